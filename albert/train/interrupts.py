"""SIGINT and SIGTERM end training after the current step.

A step can take minutes during which Python's handlers do not run, so a thread
reads the signals from the wakeup descriptor. A second signal ends the process
at once. Signals are per process, and so is the state of this module.
"""

import contextlib
import os
import signal
import sys
import threading
from typing import Any, Dict, Iterator, Optional

from absl import logging

_state: Dict[str, Any] = {
  "signal": None,
  "training": False,
  "step_seconds": None,
}


def requested() -> Optional[int]:
  """Returns the signal that requested the end of training, if any."""
  return _state["signal"]


def is_training() -> bool:
  """Returns whether training is running; see `training`."""
  return _state["training"]


def tell_step(seconds: float) -> None:
  """Stores the duration of a step for the message after a signal."""
  _state["step_seconds"] = seconds


@contextlib.contextmanager
def watching() -> Iterator[None]:
  """Context in which signals request the end of training.

  Outside of `training`, the first signal ends the process. Has no effect
  outside the main thread, the only one that receives signals.
  """
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  reader, writer = os.pipe()
  os.set_blocking(writer, False)
  numbers = (signal.SIGINT, signal.SIGTERM)
  before = {number: signal.signal(number, _handle) for number in numbers}
  wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
  thread = threading.Thread(target=_watch, args=(reader,), daemon=True)
  thread.start()
  try:
    yield
  finally:
    signal.set_wakeup_fd(wakeup)
    for number, handler in before.items():
      signal.signal(number, handler)
    os.write(writer, b"\0")
    thread.join()
    os.close(reader)
    os.close(writer)


@contextlib.contextmanager
def training() -> Iterator[None]:
  """Context in which the first signal is only a request; see `requested`."""
  before = _state["training"]
  _state["training"] = True
  try:
    yield
  finally:
    _state["training"] = before


@contextlib.contextmanager
def pausing() -> Iterator[None]:
  """Context, such as evaluation, in which the first signal ends the process."""
  end_if_requested()
  before = _state["training"]
  _state["training"] = False
  try:
    yield
  finally:
    _state["training"] = before


def end_if_requested() -> None:
  """Ends the process if a signal requested it."""
  if _state["signal"]:
    sys.exit(128 + _state["signal"])


def _handle(number, frame):
  """Runs in the main thread, once Python code does."""
  del frame
  if not _state["training"]:
    _state["signal"] = number
    end_if_requested()


def _watch(reader):
  """Reads signal numbers until a 0."""
  is_second = False
  while True:
    for number in os.read(reader, 16):
      if not number:
        return
      if is_second:
        logging.info("ended at once, by a second signal")
        os._exit(128 + number)
      is_second = True
      _state["signal"] = number
      if _state["training"]:
        seconds = _state["step_seconds"]
        logging.info(
          "%s: training ends after this step%s; a second signal ends it at "
          "once and loses the progress since the last checkpoint",
          signal.Signals(number).name,
          "" if seconds is None else ", within about %.1f s" % seconds,
        )
