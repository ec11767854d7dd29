"""Signals to a training whose step is in many slices."""

import logging
import os
import re
import signal
import subprocess
import time

import pytest
import scripting
from scripting import call_main
from small_steps import write_pretraining

from albert.files import checkpoints
from albert.train import interrupts


def train(folder, slices, steps):
  """Returns the command of a training; a slice has one example."""
  return ["run_pretraining.py", *write_pretraining(folder, slices),
          "--do_train", "--output_dir=%s" % (folder / "out"),
          "--num_warmup_steps=0", "--num_train_steps=%d" % steps,
          "--train_batch_size=%d" % slices,
          "--gradient_accumulation_steps=%d" % slices]


@pytest.mark.full
def test_training_ends_between_slices(tmp_path, monkeypatch, caplog):
  """With a checkpoint of the last whole step."""
  monkeypatch.setitem(interrupts._state, "signal", None)
  seen = []

  def goes_on(number, num_slices, once=interrupts.goes_on):
    seen.append(number)
    if len(seen) == 6:  # of the second step, before its third slice
      os.kill(os.getpid(), signal.SIGTERM)
      while not interrupts.requested():
        time.sleep(0.01)
    return once(number, num_slices)

  monkeypatch.setattr(interrupts, "goes_on", goes_on)
  with caplog.at_level(logging.INFO, "absl"), (
      pytest.raises(SystemExit)) as raised:
    call_main(*train(tmp_path, 4, steps=4))
  assert raised.value.code == 128 + signal.SIGTERM
  assert seen == [1, 2, 3, 4, 1, 2]
  path = checkpoints.latest_checkpoint(str(tmp_path / "out"))
  assert path.endswith("model.ckpt-1")
  assert "SIGTERM" in caplog.text and "at step 1 with a check" in caplog.text


@pytest.mark.full
def test_a_second_signal_ends_it_at_once(tmp_path):
  """A step takes seconds, each of its slices milliseconds."""
  process = subprocess.Popen(
      scripting.command(*train(tmp_path, 1000, steps=1000)),
      stderr=subprocess.PIPE)
  for wanted in (b"step 1/1000", b"SIGINT: training ends after this step"):
    assert any(wanted in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
  log = process.communicate(timeout=100)[1].decode()
  assert process.returncode == 128 + signal.SIGINT
  # It may have ended between two slices already.
  assert re.search("ended at (once|step 1 )", log) and "Traceback" not in log


def test_a_signal_outside_of_training_ends_the_process(monkeypatch):
  monkeypatch.setitem(interrupts._state, "signal", None)
  with pytest.raises(SystemExit) as raised, interrupts.watching():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10)
  assert raised.value.code == 128 + signal.SIGTERM
