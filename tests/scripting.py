"""Runs scripts, in this process or in a subprocess."""

import atexit
import contextlib
import functools
import importlib
import inspect
import io
import logging as standard_logging
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from unittest import mock

import fork_server
import pytest
from absl import flags, logging

from albert import cli, settings
from albert.errors import InputError
from albert.files import filesystem

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPTS = sorted(
  path.name
  for path in ROOT.glob("*.py")
  if re.search(r"\b(cli|command)\.run\(", path.read_text(encoding="utf-8"))
)
VOCAB = "--vocab_file=%s" % (ROOT / "albert_config" / "vocab.txt")
SIZES = dict(
  vocab_size=21128,
  hidden_size=16,
  embedding_size=8,
  num_hidden_layers=2,
  num_attention_heads=2,
  intermediate_size=32,
  hidden_act="gelu",
  initializer_range=0.3,
)  # so that no two texts score the same


def module_of(script):
  module = importlib.import_module(script[: -len(".py")].replace("/", "."))
  return getattr(module, "command", module)


@contextlib.contextmanager
def parsed(script, *args):
  """Parses a command line into absl flags, which are undefined at the end.

  Yields (module, positional arguments); `script`: that module, or str such as
  "predict.py".
  """
  if isinstance(script, str):
    script = module_of(script)
  others = set(flags.FLAGS)
  settings.define_flags(*script.SETTINGS, **getattr(script, "DEFAULTS", {}))
  try:
    yield (
      script,
      flags.FLAGS(
        cli.without_older_flags(
          [script.__name__, *map(str, args)], getattr(script, "OLDER_FLAGS", ())
        )
      )[1:],
    )
  finally:
    for name in set(flags.FLAGS) - others:
      delattr(flags.FLAGS, name)


def call_main(script, *args):
  with parsed(script, *args) as (module, words):
    settings.check_flags()
    try:
      if inspect.signature(module.main).parameters:
        module.main(words)
      else:
        assert not words, words
        module.main()
    finally:
      filesystem.unlock()


@contextlib.contextmanager
def streams(given):
  """Replaces the standard streams; yields (stdout, log)."""
  out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
  log = io.StringIO()
  handler = standard_logging.StreamHandler(log)
  logger, level = logging.get_absl_logger(), logging.get_verbosity()
  logger.addHandler(handler)
  logging.set_verbosity(logging.INFO)
  try:
    with mock.patch.multiple(
      sys, stdout=out, stdin=io.TextIOWrapper(io.BytesIO(given), "utf-8")
    ):
      yield out, log
  finally:
    logger.removeHandler(handler)
    logging.set_verbosity(level)


def succeed(script, *args, input=b""):
  """Runs `main` in this process; returns (stdout, log), str."""
  with streams(input) as (out, log):
    call_main(script, *args)
  return out.buffer.getvalue().decode(), log.getvalue()


def fail(message, script, *args, input=b""):
  """Asserts that `main` raises a one-line error that matches `message`."""
  with streams(input), pytest.raises(
    (InputError, OSError, flags.Error), match=message
  ) as error:
    call_main(script, *args)
  assert "\n" not in str(error.value)


def export(source, target, *args):
  """Exports a model folder, with URLs as paths; returns (stdout, log)."""
  return succeed(
    "export_model.py",
    "--init_checkpoint=file://%s" % source,
    "--output_dir=file://%s" % target,
    *args,
  )


def command(script, *args):
  return [sys.executable, str(ROOT / script)] + [str(arg) for arg in args]


# A Markdown code block and the comment before it.
BLOCK = r"(?ms)^(?:<!-- ([^\n]*) -->\n)?```(\w*)\n(.*?)^```$"


def blocks(path):
  """Returns (comment, language, text) of each code block of a document."""
  return re.findall(BLOCK, (ROOT / path).read_text(encoding="utf-8"))


@functools.lru_cache()
def quick_python():
  """Returns a `python` with TensorFlow preloaded; see fork_server."""
  folder = tempfile.TemporaryDirectory()
  server = fork_server.start(pathlib.Path(folder.name) / "bin", {})
  atexit.register(folder.cleanup)
  atexit.register(os.killpg, server.pid, signal.SIGTERM)
  return folder.name + "/bin/python"


def run(script, *args, python=sys.executable, **kwargs):
  """Runs a subprocess; returns (exit status, stdout, stderr)."""
  done = subprocess.run(
    [python] + command(script, *args)[1:],
    capture_output=True,
    timeout=300,
    env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2"),
    **kwargs,
  )
  return done.returncode, done.stdout.decode(), done.stderr.decode()


def kill_at(step, script, *args, later=0, number=signal.SIGKILL):
  """Sends a signal `later` seconds after training logs `step`; returns its log
  until then."""
  process = subprocess.Popen(
    command(script, *args), stderr=subprocess.PIPE, text=True
  )
  log = ""
  for line in process.stderr:
    log += line
    step += sum(map(int, re.findall(r"resuming from step (\d+)", line)))
    if "step %d/" % step in line:
      break
  time.sleep(later)
  assert process.poll() is None, log
  process.send_signal(number)
  process.communicate()
  return log


def results(folder, name="eval_results.txt"):
  return {
    key: float(value)
    for key, value in (
      line.split(" = ") for line in (folder / name).read_text().splitlines()
    )
    if key not in ("init_checkpoint", "parameters", "positive_label")
  }
