"""Signals to a training whose step is in many slices."""

import json
import os
import re
import signal
import subprocess
import time

import numpy as np
import pytest
import scripting
from scripting import succeed

from albert.files import checkpoints, records
from albert.train import interrupts

pytestmark = [pytest.mark.slow, pytest.mark.once]

SPECS = records.pretraining_specs(16, 4)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
  """Records, a configuration."""
  folder = tmp_path_factory.mktemp("interrupts")
  (folder / "config.json").write_text(json.dumps(dict(
      scripting.SIZES, vocab_size=50)))
  rng = np.random.RandomState(0)
  records.write_records(str(folder / "train.tfrecord"), [records.serialize({
      "input_ids": rng.randint(50, size=16), "input_mask": np.ones(16, int),
      "segment_ids": np.zeros(16, int), "masked_lm_positions": np.arange(1, 5),
      "masked_lm_ids": rng.randint(50, size=4),
      "masked_lm_weights": np.ones(4), "next_sentence_labels": [0]}, SPECS)
                                      for _ in range(1000)])
  return folder


def train(work, output_dir, *args):
  """A step takes seconds, each of its slices milliseconds."""
  return ["run_pretraining.py", "--do_train",
          "--bert_config_file=%s" % (work / "config.json"),
          "--input_file=%s" % (work / "train.tfrecord"),
          "--output_dir=%s" % output_dir, "--max_seq_length=16",
          "--max_predictions_per_seq=4", "--num_warmup_steps=0",
          "--train_batch_size=1000", "--gradient_accumulation_steps=1000",
          *args]


def start(work, output_dir):
  """Starts training and waits for the line of its first step."""
  process = subprocess.Popen(
      scripting.command(*train(work, output_dir, "--num_train_steps=1000")),
      stderr=subprocess.PIPE)
  for line in process.stderr:
    if b"step 1/1000" in line:
      return process
  raise AssertionError("it ended before its first step")


def test_training_ends_between_slices_and_resumes(work):
  folder = work / "ended"
  process = start(work, folder)
  process.send_signal(signal.SIGTERM)
  log = process.communicate(timeout=100)[1].decode()
  assert process.returncode == 128 + signal.SIGTERM, log
  assert "Traceback" not in log
  # Had it ended after a step, it would be the second.
  assert "ended at step 1 with a checkpoint; the same command resumes" in log
  path = checkpoints.latest_checkpoint(str(folder))
  assert path.endswith("model.ckpt-1")
  _, log = succeed(*train(work, folder, "--num_train_steps=2"))
  assert "resuming from step 1" in log and re.search("step 2/2 ", log)


def test_a_second_signal_ends_it_at_once(work):
  process = start(work, work / "twice")
  process.send_signal(signal.SIGINT)
  for line in process.stderr:
    if b"SIGINT: training ends after this step" in line:
      break
  process.send_signal(signal.SIGINT)
  log = process.communicate(timeout=100)[1].decode()
  assert process.returncode == 128 + signal.SIGINT
  # It may have ended between two slices already.
  assert "ended at once" in log or "ended at step 1" in log


def test_a_signal_outside_of_training_ends_the_process(monkeypatch):
  monkeypatch.setitem(interrupts._state, "signal", None)
  with pytest.raises(SystemExit) as raised, interrupts.watching():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10)
  assert raised.value.code == 128 + signal.SIGTERM
