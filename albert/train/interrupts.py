"""SIGINT and SIGTERM: training ends after the running step.

A step can take minutes in which Python's own handlers do not run, so a thread
reads what the system writes for each signal. The second signal ends the process
at once. Signals are the process's, and so is the state here.
"""

import contextlib
import os
import signal
import sys
import threading

from absl import logging

_state = {"signal": None, "training": False, "step_seconds": None}


def requested():
  """Returns the number of the signal that asked for the end, or None."""
  return _state["signal"]


def tell_step(seconds):
  """Keeps how many seconds a step takes, to say it where a signal comes."""
  _state["step_seconds"] = seconds


@contextlib.contextmanager
def watching():
  """Lets signals ask for the end of training while this lasts.

  Outside of `training`, the first signal ends the process. Other threads than
  the main one have no signals; there, nothing changes.
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
def training():
  """While this lasts, the first signal only asks; see `requested`."""
  before = _state["training"]
  _state["training"] = True
  try:
    yield
  finally:
    _state["training"] = before


@contextlib.contextmanager
def pausing():
  """While this lasts, as in evaluating, the first signal ends the process."""
  end_if_requested()
  before = _state["training"]
  _state["training"] = False
  try:
    yield
  finally:
    _state["training"] = before


def end_if_requested():
  """Ends the process if a signal has asked for it."""
  if _state["signal"]:
    sys.exit(128 + _state["signal"])


def _handle(number, frame):
  """Runs in the main thread, when Python is back in it."""
  del frame
  if not _state["training"]:
    _state["signal"] = number
    end_if_requested()


def _watch(reader):
  """Reads the numbers of signals; 0 is the end."""
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
            "%s: training ends after this step%s; a second one ends it at once "
            "and loses what came after the last checkpoint",
            signal.Signals(number).name,
            "" if seconds is None else ", within about %.1f s" % seconds)
