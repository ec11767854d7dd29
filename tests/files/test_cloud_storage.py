"""From text to an export with all files on gs://, a kill in between."""

import os
import subprocess

import cloud_storage
import pytest
from scripting import ROOT, command
from trained_models import write_files


def start(storage, words):
  args, environment = storage.client(command(
      *words.replace("gs:", "gs://bucket/").split()))
  return subprocess.Popen(
      args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
      env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2", **environment))


def finish(process):
  log = process.communicate(timeout=300)[0]
  assert not process.returncode, log
  return log


@pytest.mark.full
def test_all_files_are_on_gs(tmp_path, request):
  if not cloud_storage.can_run():
    pytest.xfail("this machine forbids what the server needs")
  storage = cloud_storage.Storage(tmp_path)
  request.addfinalizer(storage.close)
  (tmp_path / "files").mkdir()
  write_files(tmp_path / "files", "labels")
  for path in [*(tmp_path / "files").iterdir(), ROOT / "data/text_heldout.txt",
               ROOT / "albert_config/vocab.txt"]:
    storage.objects[path.name] = path.read_bytes()
  common = " --vocab_file=gs:vocab.txt --max_seq_length=32"
  finish(start(
      storage, "create_pretraining_data.py --input_file=gs:text_heldout.txt "
      "--output_file=gs:records --max_predictions_per_seq=5 --dupe_factor=1" +
      common))
  model = (" --bert_config_file=gs:small.json --do_train --train_batch_size=4 "
           "--save_checkpoints_steps=")
  pretraining = (
      "run_pretraining.py --input_file=gs:records --output_dir=gs:model "
      "--num_train_steps=60 --num_warmup_steps=1 --log_steps=1" + model + "20")
  killed = start(storage, pretraining)
  assert any("step 25/60" in line for line in killed.stdout)
  killed.kill()
  killed.communicate()
  log = finish(start(storage, pretraining))
  assert "resuming from step 20 of gs://bucket/model" in log
  assert storage.objects["model/command.txt"].count(b"run_pretraining.py") == 2
  assert "model/model.ckpt-60.index" in storage.objects
  finish(start(
      storage, "run_classifier.py --task_name=tsv --do_eval --do_predict "
      "--data_dir=gs: --init_checkpoint=gs:model --output_dir=gs:tuned "
      "--num_train_epochs=1" + model + "1" + common))
  best = int(storage.objects["tuned/best/checkpoint"].split(b'"')[1][-1:])
  assert best in (1, 2)
  assert len(storage.objects["tuned/test_results.tsv"].splitlines()) == 10
  finish(start(storage, "export_model.py --saved_model "
               "--init_checkpoint=gs:tuned/best --output_dir=gs:served"))
  assert len(storage.objects["served/saved_model.pb"]) > 10000
  assert not [name for name in storage.objects if ".tmp" in name]
