"""What an output folder has: descriptions, checkpoints, results."""

import csv
import datetime
import io
import json
import math
import os
import re
import shlex
import sys
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from albert.errors import InputError
from albert.files import checkpoints, filesystem


class BestRule(NamedTuple):
  """When a checkpoint is better.

  Attributes:
    metric: str, name among the results.
    higher_is_better: bool.
    first_step: int; checkpoints of earlier steps do not count.
  """
  metric: str
  higher_is_better: bool
  first_step: int = 0


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


class Evaluator:
  """Evaluates checkpoints, keeps the best one, says when to stop early.

  All evaluations are remembered in `eval_history.tsv` of the output folder, so
  that a restart knows them; an evaluation with other metrics leaves cells of it
  empty. The best checkpoint is the one in `best`.

  Args:
    output_dir: str.
    evaluate_fn: function of a checkpoint path that returns a dict of results
      (name -> number).
    best_rule: BestRule.
    files: names of files of `output_dir` to keep next to the best checkpoint.
    early_stop_evals: int, evaluations without a better one after which to stop;
      None for never.
    for_use: see `keep_best`.
  """

  def __init__(self, output_dir, evaluate_fn, best_rule, files=(),
               early_stop_evals=None, for_use=None):
    self._output_dir = output_dir
    self._evaluate_fn = evaluate_fn
    self._rule = best_rule
    self._files = files
    self._early_stop_evals = early_stop_evals
    self._for_use = for_use
    self._history_path = os.path.join(output_dir, "eval_history.tsv")
    self._best_dir = os.path.join(output_dir, "best")

  def go_on_from(self, step):
    """Forgets what was evaluated at later steps, whose weights are gone.

    A best checkpoint of a later step is replaced by the best of the remaining
    ones.

    Args:
      step: int, global step that training resumes from.
    """
    history = self._history()
    kept = [row for row in history if int(row["global_step"]) <= step]
    if kept != history:
      logging.warning("%s: %d evaluations after step %d no longer count",
                      self._history_path, len(history) - len(kept), step)
      self._write_history(kept)
    best = checkpoints.latest_checkpoint(self._best_dir)
    if best and checkpoints.step_of(best) <= step:
      return
    there = {checkpoints.step_of(name): os.path.join(self._output_dir, name)
             for name in checkpoints.whole_checkpoints(self._output_dir)}
    rows = [row for row in kept if int(row["global_step"]) in there and
            self._score(row) > -math.inf]
    if best:
      logging.warning("%s is later than step %d and is removed", best, step)
    if rows:
      checkpoint = there[int(max(rows, key=self._score)["global_step"])]
      keep_best(self._best_dir, checkpoint, self._evaluate_fn(checkpoint),
                self._files, self._for_use)
    elif best:
      tf.io.gfile.rmtree(self._best_dir)

  def evaluate(self, step):
    """Evaluates the newest checkpoint unless the history has it already.

    Args:
      step: int, its global step.
    """
    history = self._history()
    if any(int(row["global_step"]) == step for row in history):
      return
    results = evaluate_and_write(self._output_dir, self._evaluate_fn)
    write_summary(self._output_dir, int(results["global_step"]), {
        "eval/" + name.replace("eval_", "", 1): value
        for name, value in results.items() if name != "global_step"})
    best = read_results(os.path.join(self._best_dir, "eval_results.txt"))
    if self._score(results) > self._score(best):
      keep_best(self._best_dir,
                checkpoints.latest_checkpoint(self._output_dir), results,
                self._files, self._for_use)
    self._write_history(history + [results])

  def should_stop(self):
    """Returns whether too many evaluations brought nothing better."""
    history = self._history()
    if not self._early_stop_evals or not history:
      return False
    best = max(history, key=self._score)
    if self._score(best) == -math.inf:
      return False
    stop = len(history) - 1 - history.index(best) >= self._early_stop_evals
    if stop:
      logging.info("stopping early: no better %s than %s of step %s in %d "
                   "evaluations", self._rule.metric,
                   best.get(self._rule.metric), best["global_step"],
                   self._early_stop_evals)
    return stop

  def _score(self, results):
    """Returns a number that is greater for better results."""
    if int(results.get("global_step", 0)) < self._rule.first_step:
      return -math.inf
    # As the history has it, where numbers have fewer digits.
    score = float(str(results.get(self._rule.metric, "")) or "nan")
    if math.isnan(score):
      return -math.inf
    return score if self._rule.higher_is_better else -score

  def _history(self):
    if not tf.io.gfile.exists(self._history_path):
      return []
    text = filesystem.read_text(self._history_path)
    return list(csv.DictReader(io.StringIO(text), delimiter="\t"))

  def _write_history(self, rows):
    names = ["global_step"] + sorted(set().union(*rows) - {"global_step"})
    table = [names] + [[row.get(name, "") for name in names] for row in rows]
    filesystem.write_text(self._history_path, "".join(
        "\t".join(map(str, row)) + "\n" for row in table))


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


def evaluate_and_write(output_dir, evaluate_fn, checkpoint=None):
  """Evaluates a checkpoint and writes `eval_results.txt`.

  Args:
    output_dir: str.
    evaluate_fn: function of a checkpoint path, or None, that returns results.
    checkpoint: str; by default the newest one of the folder, or else its best
      one, or else the model as `--init_checkpoint` makes it.

  Returns:
    dict of results.
  """
  checkpoint = checkpoint or checkpoints.newest_or_best(output_dir)
  results = evaluate_fn(checkpoint)
  write_results(os.path.join(output_dir, "eval_results.txt"), results,
                checkpoint)
  logging.info("evaluation at step %d%s | %s", results["global_step"],
               " of " + checkpoint if checkpoint else "", _shown(results))
  return results


def _shown(results):
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
  logging.info("%s: %s", path, _shown(results))


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
