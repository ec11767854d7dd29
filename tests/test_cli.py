"""How scripts start and exit, on one that needs no TensorFlow."""

import re
import subprocess
import sys

import pytest
from scripting import ROOT

SCRIPT = '''"""Does what --code says."""
import dataclasses
import sys
sys.path.insert(0, %r)
from absl import flags, logging
from albert import cli, errors, settings

@dataclasses.dataclass(frozen=True)
class Settings:
  number: int = settings.setting(3, "A number.", settings.NEEDED, least=1,
                                 required=True)
  code: str = settings.setting("", "What to do.")

def main(words=None):
  logging.info("it begins")
  print(flags.FLAGS.number, words)
  exec(flags.FLAGS.code)

cli.run(main, [Settings], takes_arguments=%%r,
        code=dict(text="Another help."), number=None)
''' % str(ROOT)
TWO = "--number=2"
FULL = "--code=raise OSError(28, 'No space')"
CLOSED = """import os; reader, writer = os.pipe(); os.close(reader)
os.dup2(writer, 1); print("x" * 10**6)"""
UNKNOWN = "--code=raise OSError('what?')"
OF_TENSORFLOW = """--code=class OpError(Exception):
  error_code, message = 8, 'Failed:\\na: No space left on device, [[x]]'
raise OpError(OpError.message)"""


@pytest.mark.parametrize(
  "args, status, out, last",
  [
    ([TWO], 0, "2 None\n", r"\d\d:\d\d:\d\d it begins"),
    ([TWO, "--verbosity=-1"], 0, "2 None\n", ""),
    (["word", TWO], 1, "", "ERROR: .*'word': .*"),
    (
      ["--code=raise errors.InputError('a.txt:3: bad')", TWO],
      1,
      "2 None\n",
      "ERROR: a.txt:3: bad",
    ),
    (
      ["--code=open('no_such_file')", TWO],
      1,
      "2 None\n",
      "ERROR: .*no_such_file'",
    ),
    ([FULL, TWO], 1, "2 None\n", r"ERROR: \[Errno 28\] No space"),
    ([OF_TENSORFLOW, TWO], 1, "2 None\n", "ERROR: a: No space .*"),
    (["--code=" + CLOSED, TWO], 141, "2 None\n", ".*"),
    (["--code=raise BrokenPipeError('x')", TWO], 1, "2 None\n", ".*Pipe.*"),
    ([UNKNOWN, TWO], 1, "2 None\n", r"OSError: what\?"),
    (["--nmber=2"], 1, "", "ERROR: .*'nmber'.*: number .*; see --help"),
    (["--number=0"], 1, "", "ERROR: flag --number=0: .*; see --help"),
    (["a", TWO, "b"], 0, "2 ['a', 'b']\n", None),
    ([], 1, "", "ERROR: --number .*; see --help"),
    (
      [TWO, "--help", "b"],
      0,
      "Does what --code says.\n\nneeded:\n"
      "  --number  A number. (required)\n\n"
      "advanced:\n  --code  Another help.\n",
      None,
    ),
  ],
)
def test_how_it_ends(args, status, out, last, tmp_path):
  """`last` is None if positional arguments are allowed."""
  (tmp_path / "script.py").write_text(SCRIPT % (last is None))
  done = subprocess.run(
    [sys.executable, "script.py", *args],
    cwd=str(tmp_path),
    capture_output=True,
    text=True,
  )
  assert (done.returncode, done.stdout) == (status, out), done.stderr
  log = done.stderr.splitlines()
  if last is not None:
    assert re.fullmatch(last, log[-1] if log else ""), log
  # Errors that a user can fix have no traceback.
  assert ("Traceback" in done.stderr) == (
    UNKNOWN in args or "--code=raise BrokenPipeError('x')" in args
  )
