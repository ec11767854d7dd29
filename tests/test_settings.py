"""What a command line makes of a class of settings."""

import dataclasses
import re
import types

import pytest
from absl import flags
from scripting import parsed

from albert import cli, settings
from albert.settings import NEEDED, TPU, setting


@dataclasses.dataclass(frozen=True)
class Example:
  """A field of every kind."""
  count: int = setting(3, "How many.", NEEDED, least=1, most=9)
  rate: float = setting(None, "How fast.", least=0)
  name: str = setting("", "What it is called.", alias="title")
  kind: str = setting("plain", "Which one.", TPU, choices=["plain", "fancy"])
  is_new: bool = setting(False, "Whether it is new.")
  parts: list = setting(None, "Its parts.")
  folders: tuple = setting(None, "Where it is; several times.")


def script(*args, **defaults):
  return parsed(types.SimpleNamespace(
      __name__="script", SETTINGS=[Example], DEFAULTS=defaults), *args)


def read(*args, **defaults):
  with script(*args, **defaults):
    return settings.from_flags(Example, flags.FLAGS)


def test_defaults():
  assert Example() == Example(3, None, "", "plain", False, None, None)
  assert read(count=5, kind=("fancy", "Another help.")) == Example(
      count=5, kind="fancy")


@pytest.mark.parametrize("args, changes", [
    ([], {}), (["--count=9", "--rate=1e-3"], dict(count=9, rate=0.001)),
    (["--title=a b"], dict(name="a b")),
    (["--kind=FANCY"], dict(kind="fancy")),
    (["--is_new", "--nois_new", "--is_new=true"], dict(is_new=True)),
    (["--parts=a,b", "--folders=a,b", "--folders=c"],
     dict(parts=["a", "b"], folders=["a,b", "c"]))])
def test_values(args, changes):
  assert read(*args) == Example(**changes)


@pytest.mark.parametrize("flag", [
    "--count=0", "--count=10", "--count=1.5", "--rate=-1", "--kind=other"])
def test_values_that_cannot_be(flag):
  with pytest.raises(flags.IllegalFlagValueError, match=flag):
    read(flag)


def test_help():
  with script(count=(4, "How many, " + "or more, " * 9 + "at most.")):
    text = cli.help_text("\nWhat it does.\n")
  # Of a flag that may be given several times, absl says so.
  assert re.sub(r";\s+repeat this option\s.*\s.*values", "", text) == (
      """What it does.

needed:
  --count  How many, or more, or more, or more, or more, or more, or more, or
      more, or more, or more, at most. (4)

advanced:
  --rate  How fast.
  --name  What it is called.
  --is_new  Whether it is new. (false)
  --parts  Its parts.
  --folders  Where it is; several times.

TPU:
  --kind  <plain | fancy>: Which one. (plain)""")
