"""What an output folder has: descriptions, checkpoints, results."""

import datetime
import json
import os
import re
import shlex
import sys

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from albert.errors import InputError
from albert.files import checkpoints, filesystem


def prepare_output_dir(output_dir, contents):
  """Makes the output folder and puts what describes the model into it.

  Args:
    output_dir: str.
    contents: dict, name of a file -> bytes. Where the folder has checkpoints
      already, its files of these names must have the same content; those of
      earlier versions may lack keys.

  Raises:
    InputError: the folder has checkpoints of a different description, or a name
      that TensorFlow takes for a pattern.
  """
  if re.search(r"[][*?]", output_dir):
    raise InputError("--output_dir: TensorFlow finds no checkpoint in a folder "
                     "with one of [ ] * ? in its name: %s" % output_dir)
  filesystem.make_folder(output_dir)
  checkpoints.name_whole_checkpoints(output_dir)
  has_model = checkpoints.newest_or_best(output_dir)
  for name, content in contents.items():
    path = os.path.join(output_dir, name)
    if has_model and tf.io.gfile.exists(path) and _contradicts(
        filesystem.read_bytes(path), content):
      raise InputError(
          "%s says that the checkpoints there were made otherwise than asked "
          "for now: choose a different --output_dir" % path)
    filesystem.write_bytes(path, content)
  path = os.path.join(output_dir, "command.txt")
  # TF 1.15 cannot append to what does not exist yet in gs://.
  before = filesystem.read_text(path) if filesystem.exists(path) else ""
  filesystem.write_text(path, "%s%s %s\n" % (
      before, datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S"),
      " ".join(map(shlex.quote, [sys.executable] + sys.argv))))


def _contradicts(before, now):
  """Returns whether the content of a file says what another one does not."""
  if before == now or not now.startswith(b"{"):
    return before != now
  before, now = json.loads(before), json.loads(now)
  before.pop("label_tokens", None)  # is a head now
  return any(now.get(key) != value for key, value in before.items())


def write_summary(output_dir, step, values):
  """Writes values of a step where TensorBoard finds them, as one run.

  The file is the one that training writes to: TensorBoard reads the last one of
  a folder alone while that grows.

  Args:
    output_dir: str.
    step: int.
    values: dict, name -> float.
  """
  with tf.Graph().as_default():
    writer = tf.summary.FileWriterCache.get(output_dir)
  writer.add_summary(tf.Summary(value=[
      tf.Summary.Value(tag=name, simple_value=value)
      for name, value in sorted(values.items())]), step)
  writer.flush()


def shown(results):
  """Returns the results in a line, without the step, equal losses once."""
  hidden = {"global_step"}
  if results.get("loss") == results.get("eval_loss"):
    hidden.add("loss")
  return " | ".join("%s %s" % (name, short(results[name]))
                    for name in sorted(set(results) - hidden))


def write_test_scores(output_dir, name, labels, score, checkpoint=None):
  """Scores what was predicted for a file, as far as it has labels.

  Writes `NAME_results.txt` and, where there is a report, `NAME_report.txt`.

  Args:
    output_dir: str.
    name: str, "test" or what else the file is called.
    labels: list, None for an example without one.
    score: function of the indices of the labelled examples, int [N], that
      returns (dict of results, report or None).
    checkpoint: str, what predicted; None for --init_checkpoint.
  """
  path, report_path = (os.path.join(output_dir, name + ending)
                       for ending in ("_results.txt", "_report.txt"))
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


def keep_best(best, checkpoint, results, files=(), for_use=None):
  """Copies a checkpoint to the folder of the best one.

  Whatever moment it is interrupted at, `best/checkpoint` names a whole one.

  Args:
    best: str, the folder.
    checkpoint: str, its path.
    results: dict, written next to it as `eval_results.txt`.
    files: names of files of the checkpoint's folder to copy too.
    for_use: `Head.for_use`, what to change of the weights, or None.
  """
  tf.io.gfile.makedirs(best)
  folder, name = os.path.split(checkpoint)
  parts = [] if for_use else [
      part for part in tf.io.gfile.listdir(folder)
      if part.startswith(name + ".") and not part.endswith(".meta")]
  # The index comes last: with it, a checkpoint is taken for whole.
  parts.sort(key=lambda part: part.endswith(".index"))
  for part in [*files, *parts]:
    tf.io.gfile.copy(os.path.join(folder, part), os.path.join(best, part),
                     overwrite=True)
  if for_use:
    checkpoints.write_checkpoint(
        best, name, for_use(checkpoints.read_all(checkpoint)))
  checkpoints.name_newest(best, name)
  write_results(os.path.join(best, "eval_results.txt"), results, checkpoint)
  for part in tf.io.gfile.listdir(best):
    if part.startswith("model.ckpt-") and not part.startswith(name + "."):
      tf.io.gfile.remove(os.path.join(best, part))


def short(value):
  """Formats a number for the log."""
  return "%.4f" % value if abs(value) >= 0.01 or not value else "%.2e" % value


# What task.json has that results repeat.
_TEXTS = ("init_checkpoint", "positive_label")


def write_results(path, results, checkpoint=None):
  """Writes `key = value` lines, sorted by key, and what model they are of.

  That is `init_checkpoint`, what its training began with, and the
  `positive_label` that F1 is of, as `task.json` of the folder has them, and the
  number of `parameters`.

  Args:
    path: str.
    results: dict, name -> number.
    checkpoint: str, the one that has them; None for `init_checkpoint`.
  """
  folder = os.path.dirname(path)
  task = filesystem.find_beside(folder, ["task.json"])
  known = filesystem.read_json(task) if task else {}
  begun = known.get("init_checkpoint")
  values = dict(results, **{name: known[name] for name in _TEXTS
                            if known.get(name)})
  if checkpoint or begun:
    values["parameters"] = checkpoints.count_weights(
        checkpoint or checkpoints.find_checkpoint(begun))
  filesystem.write_text(path, "".join(
      "%s = %s\n" % (name, values[name]) for name in sorted(values)))


def read_results(path):
  """Reads `key = value` lines: a dict of numbers; empty without a file."""
  if not tf.io.gfile.exists(path):
    return {}
  pairs = [line.split(" = ", 1)
           for line in filesystem.read_text(path).splitlines()]
  return {name: int(value) if value.isdigit() else float(value)
          for name, value in pairs if name not in _TEXTS}
