"""Starts scripts as a user starts them."""

import atexit
import functools
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import fork_server
from absl import flags

from albert import settings

ROOT = pathlib.Path(__file__).resolve().parent.parent
VOCAB = "--vocab_file=%s" % (ROOT / "albert_config" / "vocab.txt")
# A small model.
SIZES = {"vocab_size": 21128, "hidden_size": 16, "embedding_size": 8,
         "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 32, "hidden_act": "gelu",
         "initializer_range": 0.3}  # so that no two texts score the same


def command(script, *args):
  return [sys.executable, str(ROOT / script)] + [str(arg) for arg in args]


@functools.lru_cache()
def quick_python():
  """Returns a `python` that has TensorFlow loaded; see fork_server."""
  folder = tempfile.TemporaryDirectory()
  server = fork_server.start(pathlib.Path(folder.name) / "bin", {})
  atexit.register(folder.cleanup)
  atexit.register(os.killpg, server.pid, signal.SIGTERM)
  return os.path.join(folder.name, "bin", "python")


def run(script, *args, python=None, **kwargs):
  """Runs a script in a process of its own.

  Args:
    script: str, relative to the project.
    *args: command line.
    python: str, interpreter; by default the quick one.
    **kwargs: of `subprocess.run`.

  Returns:
    (exit status, standard output, standard error).
  """
  done = subprocess.run(
      [python or quick_python()] + command(script, *args)[1:],
      capture_output=True, timeout=300,
      env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2"), **kwargs)
  return done.returncode, done.stdout.decode(), done.stderr.decode()


def succeed(script, *args, **kwargs):
  status, out, log = run(script, *args, **kwargs)
  assert status == 0, log
  return out, log


def fail(message, script, *args, **kwargs):
  status, _, log = run(script, *args, **kwargs)
  assert status == 1, log
  assert "Traceback" not in log
  last = log.strip().splitlines()[-1]
  assert re.search(message, last), log


def call_main(script, *args):
  """Calls a script's `main` in this process, where its flags are gone after it.

  Args:
    script: module.
    *args: command line.
  """
  others = set(flags.FLAGS)
  settings.define_flags(*script.SETTINGS, **getattr(script, "DEFAULTS", {}))
  try:
    flags.FLAGS([script.__name__, *args])
    script.main()
  finally:
    for name in set(flags.FLAGS) - others:
      delattr(flags.FLAGS, name)


def results(folder, name="eval_results.txt"):
  lines = (pathlib.Path(str(folder)) / name).read_text()
  return {key: float(value) for key, value in
          (line.split(" = ") for line in lines.splitlines())}
