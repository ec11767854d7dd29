"""Logs the progress of long work."""

import time

from absl import logging

_SECONDS = 10  # from one message to the next


def hours(seconds):
  """Formats a duration as H:MM:SS."""
  return "%d:%02d:%02d" % (seconds // 3600, seconds // 60 % 60, seconds % 60)


class Progress:
  """Logs progress, its rate and the time left, every ten seconds.

  Args:
    things: str, what is counted, such as "records".
  """

  def __init__(self, things):
    self._things = things
    self._start = self._last = time.time()

  def log(self, count, share):
    """Logs a line if it is time to.

    Args:
      count: int, how many things are done.
      share: float, share of the whole work that is done, more than 0.
    """
    now = time.time()
    if now > self._last + _SECONDS:
      self._last = now
      seconds = now - self._start
      logging.info("%d %s, %.0f a second, %s left", count, self._things,
                   count / seconds, hours(seconds * (1 / share - 1)))
