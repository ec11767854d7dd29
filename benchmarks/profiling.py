"""Which operations the time of a TensorFlow session goes to."""

import collections
import re


def print_shares(title, runs, most=12):
  """Prints how the time of a run is shared among the kinds of operations.

  Args:
    title: str.
    runs: list of tf.RunMetadata of runs with FULL_TRACE, to take the mean of.
    most: int, kinds to print.
  """
  times = collections.Counter()
  for metadata in runs:
    for device in metadata.step_stats.dev_stats:
      for node in device.node_stats:
        kind = re.search(r" = (\w+)\(|$", node.timeline_label).group(1)
        times[kind or "other"] += (
            node.op_end_rel_micros - node.op_start_rel_micros) / 1e3 / len(runs)
  total = sum(times.values())
  print("%s: %.1f ms in all operations" % (title, total))
  for kind, milliseconds in times.most_common(most):
    print("%5.1f%%%9.2f ms  %s" % (
        100 * milliseconds / total, milliseconds, kind))
