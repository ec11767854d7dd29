"""Progress lines of long-running work."""

import time

from albert import progress


def test_a_line_every_ten_seconds(monkeypatch, caplog):
  clock = [1000.0]
  monkeypatch.setattr(time, "monotonic", lambda: clock[0])
  work = progress.Progress("records")
  caplog.set_level("INFO", "absl")
  for seconds, count, share in (
    (10, 1, 0.1),
    (20, 60, 2**-15),
    (30, 70, 0.3),
    (40, 400, 0.6),
    (41, 401, 1.0),
  ):
    clock[0] = 1000.0 + seconds
    work.log(count, share)
  # The time left assumes a constant rate.
  assert caplog.messages == [
    "60 records, 3 a second, 182:02:20 left",
    "400 records, 10 a second, 0:00:26 left",
  ]
