"""Logs the progress of long work."""

import time

from absl import logging

_SECONDS = 10  # between messages


def hours(seconds: float) -> str:
  """Formats a duration as H:MM:SS."""
  return "%d:%02d:%02d" % (seconds // 3600, seconds // 60 % 60, seconds % 60)


class Progress:
  """Logs progress, rate and remaining time every ten seconds.

  Args:
    things: name of the counted items, such as "records".
  """

  def __init__(self, things: str):
    self._things = things
    self._start = self._last = time.monotonic()

  def log(self, count: int, share: float) -> None:
    """Logs a line, unless the last one was less than ten seconds ago.

    Args:
      count: number of finished items.
      share: finished share of the work; 0 if unknown.
    """
    now = time.monotonic()
    if now > self._last + _SECONDS:
      self._last = now
      seconds = now - self._start
      left = ", %s left" % hours(seconds * (1 / share - 1)) if share else ""
      logging.info(
        "%d %s, %.0f a second%s", count, self._things, count / seconds, left
      )
