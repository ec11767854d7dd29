"""Signals to a training whose step is in many slices.

A process of pytest-xdist may run tests in a thread that gets no signals.
"""

import os
import re
import signal
import subprocess
import sys

import pytest
import scripting
from small_steps import write_pretraining

from albert.files import checkpoints

# Sends a signal in the second step, before its third slice.
PROGRAM = """
import os, signal, sys, time
import scripting
from absl import logging
from albert.train import interrupts
logging.set_verbosity(logging.INFO)
seen = []

def goes_on(number, num_slices, once=interrupts.goes_on):
  seen.append(number)
  if len(seen) == 6:
    print(*seen, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    while not interrupts.requested():
      time.sleep(0.01)
  return once(number, num_slices)

interrupts.goes_on = goes_on
scripting.call_main(*sys.argv[1:])
"""


def start(program, *args):
  return subprocess.run(
      [sys.executable, "-c", program, *args], capture_output=True, text=True,
      timeout=300,
      env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))


def train(folder, slices, steps):
  """Returns the command of a training; a slice has one example."""
  return ["run_pretraining.py", *write_pretraining(folder, slices),
          "--do_train", "--output_dir=%s" % (folder / "out"),
          "--num_warmup_steps=0", "--num_train_steps=%d" % steps,
          "--train_batch_size=%d" % slices,
          "--gradient_accumulation_steps=%d" % slices]


@pytest.mark.full
def test_training_ends_between_slices(tmp_path):
  """With a checkpoint of the last whole step."""
  done = start(PROGRAM, *train(tmp_path, 4, steps=4))
  assert done.returncode == 128 + signal.SIGTERM, done.stderr
  assert done.stdout == "1 2 3 4 1 2\n"
  path = checkpoints.latest_checkpoint(str(tmp_path / "out"))
  assert path.endswith("model.ckpt-1")
  assert "SIGTERM" in done.stderr and "at step 1 with a check" in done.stderr


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


def test_a_signal_outside_of_training_ends_the_process():
  done = start("""
import os, signal, time
from albert.train import interrupts
with interrupts.watching():
  os.kill(os.getpid(), signal.SIGTERM)
  time.sleep(10)
""")
  assert done.returncode == 128 + signal.SIGTERM and not done.stderr
