"""Trainings that signals stop.

Signals are sent to processes: a process of pytest-xdist may run tests in a
thread that gets none.
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


@pytest.mark.full
@pytest.mark.parametrize("signals", [1, 2])
def test_signals(signals, tmp_path):
  """A step takes seconds: the first ends after it, the second at once."""
  process = subprocess.Popen(
    scripting.command(
      "run_pretraining.py",
      *write_pretraining(tmp_path, 1000),
      "--do_train",
      "--output_dir=%s" % (tmp_path / "out"),
      "--num_warmup_steps=0",
      "--num_train_steps=1000",
      "--train_batch_size=1000",
      "--gradient_accumulation_steps=1000",
    ),
    stderr=subprocess.PIPE,
  )
  log = []
  for wanted in ("step 1/1000", "training ends after this step, within")[
    :signals
  ]:
    for line in process.stderr:
      log.append(line.decode())
      if wanted in log[-1]:
        break
    process.send_signal(signal.SIGINT)
  log = "".join(log) + process.communicate(timeout=100)[1].decode()
  assert process.returncode == 128 + signal.SIGINT
  assert "Traceback" not in log
  ends = re.findall("ended at (once|step [12] )", log)
  # A second signal may have come when the step had ended.
  assert ends and (signals == 2 or ends[0] != "once"), log
  assert checkpoints.latest_checkpoint(str(tmp_path / "out")).endswith(
    tuple("012")
  )


def test_a_signal_outside_of_training_ends_the_process():
  done = subprocess.run(
    [
      sys.executable,
      "-c",
      """
import os, signal, time
from albert.train import interrupts
with interrupts.watching():
  os.kill(os.getpid(), signal.SIGTERM)
  time.sleep(10)
""",
    ],
    stderr=subprocess.PIPE,
    timeout=300,
    env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
  )
  assert done.returncode == 128 + signal.SIGTERM and not done.stderr
