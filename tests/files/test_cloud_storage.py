"""From text to an export with all files on gs://, a kill in between."""

import json
import os
import subprocess
import sys

import cloud_storage
import pytest
from scripting import ROOT, SIZES

pytestmark = [pytest.mark.slow, pytest.mark.both, pytest.mark.long]

BUCKET = "gs://bucket/"


@pytest.fixture
def storage(tmp_path):
  if not cloud_storage.can_run():
    pytest.xfail("this machine forbids what the server needs")
  storage = cloud_storage.Storage(tmp_path)
  for source, name in (("data/text_heldout.txt", "text.txt"),
                       ("albert_config/vocab.txt", "vocab.txt"),
                       ("data/pairs/train.txt", "pairs/train.txt"),
                       ("data/pairs/dev.txt", "pairs/dev.txt"),
                       ("data/pairs/test.txt", "pairs/test.txt")):
    storage.objects[name] = (ROOT / source).read_bytes()
  storage.objects["small.json"] = json.dumps(SIZES).encode()
  yield storage
  storage.close()


def start(storage, script, *args):
  command, environment = storage.client(
      [sys.executable, str(ROOT / script), *args])
  return subprocess.Popen(
      command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
      env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2", **environment))


def finish(process):
  log = process.communicate(timeout=120)[0]
  assert not process.returncode, log
  return log


def test_all_files_are_on_gs(storage):
  finish(start(
      storage, "create_pretraining_data.py", "--input_file=%stext.txt" % BUCKET,
      "--vocab_file=%svocab.txt" % BUCKET, "--output_file=%srecords" % BUCKET,
      "--max_seq_length=32", "--max_predictions_per_seq=5", "--dupe_factor=1"))
  pretraining = [
      storage, "run_pretraining.py", "--do_train",
      "--bert_config_file=%ssmall.json" % BUCKET,
      "--input_file=%srecords" % BUCKET, "--output_dir=%smodel" % BUCKET,
      "--num_train_steps=60", "--num_warmup_steps=1", "--train_batch_size=4",
      "--save_checkpoints_steps=20", "--log_steps=1"]
  killed = start(*pretraining)
  for line in killed.stdout:
    if "step 25/60" in line:
      killed.kill()
      break
  else:
    pytest.fail("it ended before")
  killed.communicate()
  log = finish(start(*pretraining))
  assert "resuming from step 20 of gs://bucket/model" in log
  assert storage.objects["model/command.txt"].count(b"run_pretraining.py") == 2
  assert "model/model.ckpt-60.index" in storage.objects
  log = finish(start(
      storage, "run_classifier.py", "--task_name=lcqmc", "--do_train",
      "--do_eval", "--do_predict", "--data_dir=%spairs" % BUCKET,
      "--init_checkpoint=%smodel" % BUCKET, "--output_dir=%stuned" % BUCKET,
      "--max_seq_length=32", "--max_train_examples=64", "--num_train_epochs=1",
      "--save_checkpoints_steps=1"))
  best = int(storage.objects["tuned/best/checkpoint"].split(b'"')[1][-1:])
  assert best in (1, 2)
  lines = storage.objects["tuned/test_results.tsv"].decode().splitlines()
  assert len(lines) == 1 + len(
      storage.objects["pairs/test.txt"].decode().splitlines())
  finish(start(
      storage, "export_model.py", "--saved_model",
      "--init_checkpoint=%stuned/best" % BUCKET,
      "--output_dir=%sserved" % BUCKET))
  assert len(storage.objects["served/saved_model.pb"]) > 10000
  assert not [name for name in storage.objects if ".tmp" in name]
