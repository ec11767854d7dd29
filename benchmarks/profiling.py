"""Time of a TensorFlow session by operation."""

import collections
import re
from typing import Any, List


def print_shares(title: str, runs: List[Any], most: int = 12) -> None:
  """Prints the time of a run by operation type.

  Args:
    title: heading.
    runs: tf.RunMetadata of runs with FULL_TRACE, averaged.
    most: maximum number of types.
  """
  times = collections.Counter()
  for metadata in runs:
    for device in metadata.step_stats.dev_stats:
      for node in device.node_stats:
        kind = re.search(r" = (\w+)\(|$", node.timeline_label).group(1)
        times[kind or "other"] += (
          (node.op_end_rel_micros - node.op_start_rel_micros) / 1e3 / len(runs)
        )
  total = sum(times.values())
  print("%s: %.1f ms in all operations" % (title, total))
  for kind, milliseconds in times.most_common(most):
    print(
      "%5.1f%%%9.2f ms  %s" % (100 * milliseconds / total, milliseconds, kind)
    )
