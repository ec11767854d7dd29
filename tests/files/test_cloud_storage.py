"""From text to an export with all files on gs://, a kill in between."""

import os
import subprocess

import cloud_storage
import pytest
from scripting import ROOT, command
from trained_models import write_files

BUCKET = "gs://bucket/"


@pytest.fixture
def storage(tmp_path):
  if not cloud_storage.can_run():
    pytest.xfail("this machine forbids what the server needs")
  storage = cloud_storage.Storage(tmp_path)
  yield storage
  storage.close()


def start(storage, *args):
  args, environment = storage.client(command(*args))
  return subprocess.Popen(
      args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
      env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2", **environment))


def finish(process):
  log = process.communicate(timeout=300)[0]
  assert not process.returncode, log
  return log


@pytest.mark.full
def test_all_files_are_on_gs(storage, tmp_path):
  (tmp_path / "files").mkdir()
  write_files(tmp_path / "files", "labels")
  for path in [*(tmp_path / "files").iterdir(), ROOT / "data/text_heldout.txt",
               ROOT / "albert_config/vocab.txt"]:
    storage.objects[path.name] = path.read_bytes()
  common = ["--vocab_file=%svocab.txt" % BUCKET, "--max_seq_length=32"]
  finish(start(
      storage, "create_pretraining_data.py", *common, "--dupe_factor=1",
      "--input_file=%stext_heldout.txt" % BUCKET,
      "--output_file=%srecords" % BUCKET, "--max_predictions_per_seq=5"))
  model = ["--bert_config_file=%ssmall.json" % BUCKET, "--do_train"]
  pretraining = [
      storage, "run_pretraining.py", *model, "--input_file=%srecords" % BUCKET,
      "--output_dir=%smodel" % BUCKET, "--num_train_steps=60",
      "--num_warmup_steps=1", "--train_batch_size=4",
      "--save_checkpoints_steps=20", "--log_steps=1"]
  killed = start(*pretraining)
  assert any("step 25/60" in line for line in killed.stdout)
  killed.kill()
  killed.communicate()
  log = finish(start(*pretraining))
  assert "resuming from step 20 of gs://bucket/model" in log
  assert storage.objects["model/command.txt"].count(b"run_pretraining.py") == 2
  assert "model/model.ckpt-60.index" in storage.objects
  finish(start(
      storage, "run_classifier.py", "--task_name=tsv", *model, *common,
      "--do_eval", "--do_predict", "--data_dir=" + BUCKET,
      "--init_checkpoint=%smodel" % BUCKET, "--output_dir=%stuned" % BUCKET,
      "--train_batch_size=4", "--num_train_epochs=1",
      "--save_checkpoints_steps=1"))
  best = int(storage.objects["tuned/best/checkpoint"].split(b'"')[1][-1:])
  assert best in (1, 2)
  assert len(storage.objects["tuned/test_results.tsv"].splitlines()) == 10
  finish(start(
      storage, "export_model.py", "--saved_model",
      "--init_checkpoint=%stuned/best" % BUCKET,
      "--output_dir=%sserved" % BUCKET))
  assert len(storage.objects["served/saved_model.pb"]) > 10000
  assert not [name for name in storage.objects if ".tmp" in name]
