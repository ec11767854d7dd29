"""Lines on the progress of long work."""

import logging
import time

from albert import progress


def test_hours():
  assert list(map(progress.hours, (0, 59.9, 3600 + 61, 100 * 3600))) == [
      "0:00:00", "0:00:59", "1:01:01", "100:00:00"]


def test_a_line_every_ten_seconds(monkeypatch, caplog):
  clock = [1000.0]
  monkeypatch.setattr(time, "monotonic", lambda: clock[0])
  work = progress.Progress("records")
  caplog.set_level(logging.INFO, "absl")
  for seconds, count, share in ((10, 1, 0.1), (20, 60, 0.25), (30, 70, 0.3),
                                (40, 400, 0.5), (41, 401, 1.0)):
    clock[0] = 1000.0 + seconds
    work.log(count, share)
  # What is left takes as long for each part as what is done.
  assert caplog.messages == ["60 records, 3 a second, 0:01:00 left",
                             "400 records, 10 a second, 0:00:40 left"]
