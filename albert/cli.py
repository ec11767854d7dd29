"""Starts every script and reports bad input."""

import errno
import logging as standard_logging
import os
import re
import select
import signal
import sys
import textwrap
from typing import Any, Callable, List, Optional, Sequence

from absl import app, flags, logging

from albert import settings
from albert.errors import InputError
from albert.files import filesystem


def _without_tensorflow(kind, error, trace):
  """Ends a script with one line if TensorFlow is not installed."""
  if not isinstance(error, ImportError) or (
    (error.name or "").split(".")[0] != "tensorflow"
  ):
    sys.__excepthook__(kind, error, trace)
    return
  print(
    "ERROR: TensorFlow is not installed in %s: pip install '.[tf2]' with "
    "Python 3.9 to 3.11, or '.[tf1]' with 3.7; exported ONNX models do not "
    "need it (--engine=onnx)" % sys.executable,
    file=sys.stderr,
  )


# Scripts that train import TensorFlow at once, others only if needed.
sys.excepthook = _without_tensorflow


def run(
  main: Callable,
  classes: Sequence[type],
  takes_arguments: bool = False,
  older_flags: Sequence[str] = (),
  description: Optional[str] = None,
  **changes: Any,
) -> None:
  """Runs `main` as a script; bad input prints one line and exits with 1.

  Args:
    main: takes nothing, or the list of arguments that are not flags.
    classes: settings classes, whose fields are the script's flags.
    takes_arguments: whether such arguments are allowed.
    older_flags: see `without_older_flags`.
    description: beginning of --help; defaults to the docstring of the script.
    **changes: see `settings.define_flags`.
  """

  def guarded_main(argv):
    if flags.FLAGS["verbosity"].using_default_value:
      logging.set_verbosity(logging.INFO)
    logging.get_absl_handler().setFormatter(
      standard_logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S")
    )
    # Silences TensorFlow's deprecation warnings.
    standard_logging.getLogger("tensorflow").setLevel("ERROR")
    try:
      if argv[1:] and not takes_arguments:
        raise InputError("unexpected argument %r: use --flag=value" % argv[1])
      settings.check_flags()
      if takes_arguments:
        main(argv[1:])
      else:
        main()
    except Exception as error:  # TensorFlow's classes are not imported
      if isinstance(error, BrokenPipeError) and _is_stdout_closed():
        sys.exit(128 + signal.SIGPIPE)
      line = _readable_line(error)
      if not line:
        raise
      sys.exit("ERROR: %s" % line)
    finally:
      filesystem.unlock()

  settings.define_flags(*classes, **changes)
  if {"-h", "--help", "-help"}.intersection(sys.argv[1:]):
    print(help_text(description or sys.modules["__main__"].__doc__ or ""))
    sys.exit(0)
  app.run(
    guarded_main,
    flags_parser=lambda argv: _parse(without_older_flags(argv, older_flags)),
  )


def _is_stdout_closed():
  """Returns whether the reader of a pipe, such as `| head`, has exited."""
  poll = select.poll()
  poll.register(sys.stdout.fileno(), 0)
  is_closed = any(event & select.POLLERR for _, event in poll.poll(0))
  if is_closed:  # discards buffered output, which fails at exit
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
  return is_closed


# File errors; those of TensorFlow have other classes but the same texts.
_ERRNOS = (
  errno.ENOSPC,
  errno.EDQUOT,
  errno.EROFS,
  errno.EACCES,
  errno.EIO,
  errno.EISDIR,
  errno.ENOTDIR,
)


def _readable_line(error):
  """Returns the line of an error that a user can act on, or None."""
  lines = str(getattr(error, "message", error)).split("\n")
  if (
    isinstance(error, InputError)
    or getattr(error, "filename", None)
    or (getattr(error, "errno", None) in _ERRNOS)
  ):
    return lines[0]
  return next(
    (
      line
      for line in lines
      if hasattr(error, "error_code")
      and any(os.strerror(number) in line for number in _ERRNOS)
    ),
    None,
  )


def _parse(argv):
  """Parses the command line; returns the arguments that are not flags."""
  try:
    return flags.FLAGS(argv)
  except flags.Error as error:
    sys.exit("ERROR: %s; see --help" % str(error).replace("\n", " "))


def without_older_flags(argv: List[str], names: Sequence[str]) -> List[str]:
  """Returns a command line without obsolete flags, and warns of them.

  Args:
    argv: command line.
    names: flags of earlier versions for files with cached features, which are
      now made in each run.
  """
  kept = []
  for word in argv:
    found = re.match(r"--(\w+)=", word)
    if found and found.group(1) in names:
      logging.warning(
        "--%s has no effect: features are made in each run, in --output_dir",
        found.group(1),
      )
    else:
      kept.append(word)
  return kept


def help_text(description: str) -> str:
  """Returns the output of --help: `description`, then the flags by group."""
  lines = [description.strip()]
  for group in settings.GROUPS:
    members = [
      flag for flag in settings.own_flags() if flag.setting["group"] == group
    ]
    members.sort(key=lambda flag: flag.setting.get("required") is not True)
    if members:
      lines += ["", "%s:" % group]
    for flag in members:
      # Lets lines break between the choices that absl puts first, "<a|b>: ".
      text = re.sub(
        r"^<\S+>", lambda found: found.group().replace("|", " | "), flag.help
      )
      lines += textwrap.wrap(
        "--%s  %s%s"
        % (flag.name, text, settings.requirement(flag) or _default_of(flag)),
        80,
        initial_indent="  ",
        subsequent_indent="      ",
      )
  return "\n".join(lines)


def _default_of(flag):
  if flag.default is None or flag.default == "":
    return ""
  return " (%s)" % str(flag.default_as_str).strip("'")
