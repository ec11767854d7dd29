"""Starts scripts as a user starts them."""

import multiprocessing
import os
import pathlib
import re
import runpy
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
VOCAB = "--vocab_file=%s" % (ROOT / "albert_config" / "vocab.txt")
# A small model.
SIZES = {"vocab_size": 21128, "hidden_size": 16, "embedding_size": 8,
         "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 32, "hidden_act": "gelu",
         "initializer_range": 0.3}  # so that no two texts score the same


def command(script, *args):
  return [sys.executable, str(ROOT / script)] + [str(arg) for arg in args]


def run(script, *args, **kwargs):
  """Runs a script in a process of its own.

  It is forked from one that has TensorFlow loaded, which saves seconds.

  Args:
    script: str, relative to the project.
    *args: command line.
    **kwargs: of `subprocess.run`; with any, the script is started by Python.

  Returns:
    (exit status, standard output, standard error).
  """
  if kwargs:
    done = subprocess.run(
        command(script, *args), capture_output=True, timeout=300,
        env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2"), **kwargs)
    return done.returncode, done.stdout.decode(), done.stderr.decode()
  context = multiprocessing.get_context("forkserver")
  context.set_forkserver_preload(["preloaded"])
  with tempfile.TemporaryDirectory() as folder:
    paths = [os.path.join(folder, name) for name in ("out", "err")]
    process = context.Process(target=_run_forked, args=(
        command(script, *args)[1:], dict(os.environ), os.getcwd(), paths))
    process.start()
    process.join(300)
    if process.exitcode is None:
      process.kill()
    return (process.exitcode, *(pathlib.Path(path).read_text(encoding="utf-8")
                                for path in paths))


def _run_forked(argv, environment, folder, paths):
  for descriptor, path in enumerate([os.devnull] + paths):
    opened = os.open(path, os.O_RDWR | os.O_CREAT)
    os.dup2(opened, descriptor)
  os.environ.clear()
  os.environ.update(environment)
  os.chdir(folder)
  sys.argv = argv
  sys.path.insert(0, os.path.dirname(argv[0]))
  try:
    runpy.run_path(argv[0], run_name="__main__")
  except SystemExit as end:
    if end.code:  # multiprocessing takes None for a failure
      raise


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


def results(folder):
  lines = (pathlib.Path(str(folder)) / "eval_results.txt").read_text()
  return {key: float(value) for key, value in
          (line.split(" = ") for line in lines.splitlines())}
