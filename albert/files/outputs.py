"""Writes output folders: model descriptions, best checkpoints, results."""

import datetime
import json
import os
import re
import shlex
import sys
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from albert.errors import InputError
from albert.files import checkpoints, filesystem


def prepare_output_dir(
  output_dir: str, contents: Dict[str, bytes], trains: bool = False
) -> None:
  """Creates the output folder and writes the files that describe the model.

  Args:
    output_dir: may already have checkpoints.
    contents: bytes by file name. Next to existing checkpoints, files with these
      names must have the same content; those of earlier versions may lack keys.
    trains: whether to lock the folder.

  Raises:
    InputError: the folder has checkpoints of a different model, another process
      trains there, or TensorFlow would treat its name as a glob.
  """
  if re.search(r"[][*?]", output_dir):
    raise InputError(
      "--output_dir: TensorFlow finds no checkpoints in folders "
      "with [ ] * ? in their names: %s" % output_dir
    )
  filesystem.make_folder(output_dir)
  if trains:
    filesystem.lock(output_dir)
  checkpoints.name_whole_checkpoints(output_dir)
  has_model = checkpoints.newest_or_best(output_dir)
  for name, content in contents.items():
    path = os.path.join(output_dir, name)
    if (
      has_model
      and tf.io.gfile.exists(path)
      and _contradicts(filesystem.read_bytes(path), content)
    ):
      raise InputError(
        "%s: the checkpoints there were made with different settings: choose "
        "a different --output_dir" % path
      )
    filesystem.write_bytes(path, content)
  path = os.path.join(output_dir, "command.txt")
  # TF 1.15 cannot append to a new file in gs://.
  before = filesystem.read_text(path) if filesystem.exists(path) else ""
  filesystem.write_text(
    path,
    "%s%s %s\n"
    % (
      before,
      datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S"),
      " ".join(map(shlex.quote, [sys.executable] + sys.argv)),
    ),
  )


def _contradicts(before, now):
  """Returns whether `before` has keys or content that `now` lacks."""
  if before == now or not now.startswith(b"{"):
    return before != now
  before, now = json.loads(before), json.loads(now)
  before.pop("label_tokens", None)  # replaced by the key "head"
  return any(now.get(key) != value for key, value in before.items())


def write_summary(output_dir: str, step: int, values: Dict[str, float]) -> None:
  """Writes values of a step to the event file of training.

  TensorBoard only follows the last event file of a folder, so evaluation must
  not start a new one.
  """
  with tf.Graph().as_default():
    writer = tf.summary.FileWriterCache.get(output_dir)
  writer.add_summary(
    tf.Summary(
      value=[
        tf.Summary.Value(tag=name, simple_value=value)
        for name, value in sorted(values.items())
      ]
    ),
    step,
  )
  writer.flush()


def shown(results: Dict[str, Any]) -> str:
  """Formats results in one line, without the step and duplicate losses."""
  hidden = {"global_step"}
  if results.get("loss") == results.get("eval_loss"):
    hidden.add("loss")
  return " | ".join(
    "%s %s" % (name, short(results[name]))
    for name in sorted(set(results) - hidden)
  )


def write_test_scores(
  output_dir: str,
  name: str,
  labels: Sequence[Any],
  score: Callable[[np.ndarray], Tuple[Dict[str, Any], Optional[str]]],
  checkpoint: Optional[str] = None,
) -> None:
  """Scores the predictions of the labelled examples of a file.

  Writes `NAME_results.txt` and, if `score` returns a report, `NAME_report.txt`.

  Args:
    output_dir: folder of the results.
    name: name of the file, such as "test".
    labels: one per example, None if it has no label.
    score: function of the indices of labelled examples, int [N], that returns
      (results, report or None).
    checkpoint: checkpoint of the predictions; None for --init_checkpoint.
  """
  path, report_path = (
    os.path.join(output_dir, name + ending)
    for ending in ("_results.txt", "_report.txt")
  )
  for before in filter(tf.io.gfile.exists, (path, report_path)):
    tf.io.gfile.remove(before)
  labelled = np.flatnonzero([label is not None for label in labels])
  if not len(labelled):
    return
  results, report = score(labelled)
  write_results(path, results, checkpoint)
  if report:
    filesystem.write_text(report_path, report)
  logging.info("%s: %s", path, shown(results))


def keep_best(
  best: str,
  checkpoint: str,
  results: Dict[str, Any],
  files: Sequence[str] = (),
  for_use: Optional[Callable] = None,
) -> None:
  """Copies a checkpoint to the folder of the best one.

  If interrupted, `best/checkpoint` still names a complete checkpoint.

  Args:
    best: the folder.
    checkpoint: path of the checkpoint.
    results: written next to it as `eval_results.txt`.
    files: names of additional files in the checkpoint's folder to copy.
    for_use: `Head.for_use`, a conversion of the weights, or None.
  """
  tf.io.gfile.makedirs(best)
  folder, name = os.path.split(checkpoint)
  parts = (
    []
    if for_use
    else [
      part
      for part in tf.io.gfile.listdir(folder)
      if part.startswith(name + ".") and not part.endswith(".meta")
    ]
  )
  # The index is copied last, because it marks a checkpoint as complete.
  parts.sort(key=lambda part: part.endswith(".index"))
  for part in [*files, *parts]:
    filesystem.copy(os.path.join(folder, part), os.path.join(best, part))
  if for_use:
    checkpoints.write_checkpoint(
      best, name, for_use(checkpoints.read_all(checkpoint))
    )
  checkpoints.name_newest(best, name)
  write_results(os.path.join(best, "eval_results.txt"), results, checkpoint)
  for part in tf.io.gfile.listdir(best):
    if part.startswith("model.ckpt-") and not part.startswith(name + "."):
      tf.io.gfile.remove(os.path.join(best, part))


def short(value: float) -> str:
  """Formats a number for the log."""
  return "%.4f" % value if abs(value) >= 0.01 or not value else "%.2e" % value


# Strings of task.json that are repeated in results.
_TEXTS = ("init_checkpoint", "positive_label")


def write_results(
  path: str, results: Dict[str, Any], checkpoint: Optional[str] = None
) -> None:
  """Writes `key = value` lines sorted by key, and describes the model.

  Adds `init_checkpoint` and the `positive_label` of F1 from the folder's
  `task.json`, and the number of `parameters`.

  Args:
    path: the file to write.
    results: numbers by name.
    checkpoint: the evaluated checkpoint; None for `init_checkpoint`.
  """
  folder = os.path.dirname(path)
  task = filesystem.find_beside(folder, ["task.json"])
  known = filesystem.read_json(task) if task else {}
  begun = known.get("init_checkpoint", "")
  values = dict(
    results, **{name: known[name] for name in _TEXTS if known.get(name)}
  )
  if checkpoint or begun:
    values["parameters"] = checkpoints.count_weights(
      checkpoint or checkpoints.find_checkpoint(begun)
    )
  filesystem.write_lines(
    path, ("%s = %s" % (name, values[name]) for name in sorted(values))
  )


def read_results(path: str) -> Dict[str, float]:
  """Reads the numbers of `write_results`; empty if there is no file."""
  if not tf.io.gfile.exists(path):
    return {}
  try:
    pairs = [
      line.split(" = ", 1) for line in filesystem.read_text(path).splitlines()
    ]
    return {
      name: int(value) if value.isdigit() else float(value)
      for name, value in pairs
      if name not in _TEXTS
    }
  except ValueError as error:
    raise InputError("%s: damaged (%s): remove it" % (path, error)) from error
