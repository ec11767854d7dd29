"""Settings classes read from a command line."""

import dataclasses
import re
import types

import pytest
from absl import flags
from refusals import refused
from scripting import parsed

from albert import cli, settings
from albert.settings import NEEDED, TPU, setting


@dataclasses.dataclass(frozen=True)
class Example:
  count: int = setting(3, "How many.", NEEDED, least=1, most=9)
  rate: float = setting(None, "How fast.", least=0)
  name: str = setting("", "What it is called.", alias="title")
  kind: str = setting("plain", "Which one.", TPU, choices=["plain", "fancy"])
  is_new: bool = setting(False, "Whether it is new.")
  parts: list = setting(None, "Its parts.")
  folders: tuple = setting(None, "Where it is; several times.")


def script(*args, **defaults):
  return parsed(
    types.SimpleNamespace(
      __name__="script", SETTINGS=[Example], DEFAULTS=defaults
    ),
    *args,
  )


def read(*args, **defaults):
  with script(*args, **defaults):
    return settings.from_flags(Example)


def test_defaults():
  assert read() == Example(3, None, "", "plain", False, None, None)
  assert read(count=5, kind=dict(default="fancy", text="Other.")) == Example(
    count=5, kind="fancy"
  )


@pytest.mark.parametrize(
  "args, changes",
  [
    (["--count=9", "--rate=1e-3"], dict(count=9, rate=0.001)),
    (["--title=a b"], dict(name="a b")),
    (["--kind=FANCY"], dict(kind="fancy")),
    (["--is_new", "--nois_new", "--is_new=true"], dict(is_new=True)),
    (
      ["--parts=a,b", "--folders=a,b", "--folders=c"],
      dict(parts=["a", "b"], folders=["a,b", "c"]),
    ),
  ],
)
def test_values(args, changes):
  assert read(*args) == Example(**changes)


@pytest.mark.parametrize(
  "flag",
  ["--count=0", "--count=10", "--count=1.5", "--rate=-1", "--kind=other"],
)
def test_values_that_cannot_be(flag):
  with pytest.raises(flags.IllegalFlagValueError, match=flag):
    read(flag)


def test_help():
  with script(
    count=dict(default=4, text="How many, " + "or more, " * 9 + "at most.")
  ):
    text = cli.help_text("\nWhat it does.\n")
  # absl adds a note to repeatable flags.
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
  --kind  <plain | fancy>: Which one. (plain)"""
  )


@dataclasses.dataclass(frozen=True)
class Conditions:
  do_train: bool = setting(False, "")
  kind: str = setting(None, "")
  output_dir: str = setting(None, "", required=True)
  train_file: str = setting(None, "", required="do_train and not kind")
  steps: int = setting(3, "", needs="do_train")
  rate: float = setting(0.5, "", needs="do_train")
  top_k: int = setting(5, "", needs="do_train and kind=beam or no_flag")
  seeds: list = setting(
    None, "", demands="do_train", instead_of="steps or kind"
  )


@pytest.mark.parametrize(
  "args, error, warnings",
  [
    ([], "--output_dir is required; ", []),
    (
      ["--do_train"],
      "--train_file is required if --do_train and not --kind; ",
      [],
    ),
    (["--steps=0"], None, []),  # not requested
    (
      ["--rate=1", "--steps=3"],
      None,
      ["--steps, --rate: no effect without --do_train"],
    ),
    (["--do_train", "--train_file=x", "--steps=3", "--rate=1"], None, []),
    (
      ["--do_train", "--kind=x", "--top_k=1"],
      None,
      ["--top_k: no effect without --do_train and --kind=beam"],
    ),
    (["--do_train", "--kind=beam", "--top_k=1"], None, []),
    (["--seeds=1"], "--seeds has no effect without --do_train$", []),
    (
      ["--seeds=1", "--do_train", "--kind=x"],
      "give --kind or --seeds, not both",
      [],
    ),
  ],
)
def test_conditions(args, error, warnings, caplog):
  if args:
    args = [*args, "--output_dir=x"]
  with parsed(
    types.SimpleNamespace(__name__="script", SETTINGS=[Conditions]), *args
  ):
    if error:
      refused("^" + error, settings.check_flags)
    else:
      settings.check_flags()
  assert caplog.messages == warnings
