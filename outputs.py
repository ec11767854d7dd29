"""What lies in an output folder: descriptions, checkpoints, results."""

import collections
import csv
import datetime
import io
import json
import os
import shlex
import sys

import tensorflow.compat.v1 as tf
from absl import logging

import checkpoints
import filesystem
from errors import InputError

# When one checkpoint is better than another.
BestRule = collections.namedtuple("BestRule", ["metric", "higher_is_better"])


def prepare_output_dir(options, descriptions, files=()):
  """Makes the output folder and puts what describes the model into it.

  Args:
    options: flags.
    descriptions: dict, file name -> dict to write as JSON; where the folder
      has checkpoints already, they must be of the same description.
    files: list of (path, name) to copy there, such as the vocabulary.

  Raises:
    InputError: the folder has checkpoints of another description.
  """
  filesystem.make_folder(options.output_dir)
  for name, description in descriptions.items():
    path = os.path.join(options.output_dir, name)
    text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
    if (checkpoints.latest_checkpoint(options.output_dir) and
        tf.io.gfile.exists(path) and filesystem.read_text(path) != text):
      raise InputError(
          "%s says that the checkpoints there were made otherwise than asked "
          "for now: choose another --output_dir" % path)
    filesystem.write_text(path, text)
  with tf.io.gfile.GFile(
      os.path.join(options.output_dir, "command.txt"), "a") as writer:
    writer.write("%s %s\n" % (
        datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S"),
        " ".join(map(shlex.quote, [sys.executable] + sys.argv))))
  for source, name in files:
    target = os.path.join(options.output_dir, name)
    if os.path.abspath(source) != os.path.abspath(target):
      tf.io.gfile.copy(source, target, overwrite=True)


class Evaluator:
  """Evaluates checkpoints, keeps the best one, says when to stop early.

  Everything is remembered in `eval_history.tsv` of the output folder, so that
  a restart knows what the best has been.

  Args:
    output_dir: str.
    evaluate_fn: function of a checkpoint path that returns a dict of results
      (name -> number).
    best_rule: BestRule.
    files: names of files of `output_dir` to keep beside the best checkpoint.
    early_stop_evals: int, evaluations without a better one after which to stop;
      None for never.
  """

  def __init__(self, output_dir, evaluate_fn, best_rule, files=(),
               early_stop_evals=None):
    self._output_dir = output_dir
    self._evaluate_fn = evaluate_fn
    self._rule = best_rule
    self._files = files
    self._early_stop_evals = early_stop_evals
    self._history_path = os.path.join(output_dir, "eval_history.tsv")

  def evaluate(self, step):
    """Evaluates the newest checkpoint unless the history has it already.

    Args:
      step: int, its global step.
    """
    history = self._history()
    if any(int(row["global_step"]) == step for row in history):
      return
    results = evaluate_and_write(self._output_dir, self._evaluate_fn)
    if not history or self._is_better(results, self._best(history)):
      keep_best(self._output_dir, results, self._files)
    self._append(history, results)

  def should_stop(self):
    """Returns whether too many evaluations brought nothing better."""
    history = self._history()
    if not self._early_stop_evals or not history:
      return False
    best = self._best(history)
    stop = len(history) - 1 - history.index(best) >= self._early_stop_evals
    if stop:
      logging.info("stopping early: no better %s than %s of step %s in %d "
                   "evaluations", self._rule.metric, best[self._rule.metric],
                   best["global_step"], self._early_stop_evals)
    return stop

  def _best(self, history):
    best = history[0]
    for row in history[1:]:
      if self._is_better(row, best):
        best = row
    return best

  def _is_better(self, row, other):
    new, old = (float(r[self._rule.metric]) for r in (row, other))
    return new > old if self._rule.higher_is_better else new < old

  def _history(self):
    if not tf.io.gfile.exists(self._history_path):
      return []
    text = filesystem.read_text(self._history_path)
    return list(csv.DictReader(io.StringIO(text), delimiter="\t"))

  def _append(self, history, results):
    names = ["global_step"] + sorted(set(results) - {"global_step"})
    rows = [[row[name] for name in names] for row in history + [results]]
    filesystem.write_text(self._history_path, "".join(
        "\t".join(map(str, row)) + "\n" for row in [names] + rows))


def evaluate_and_write(output_dir, evaluate_fn):
  """Evaluates the newest checkpoint and writes `eval_results.txt`.

  Args:
    output_dir: str; where it has no checkpoint, the model is evaluated as
      `--init_checkpoint` makes it.
    evaluate_fn: function of a checkpoint path, or None, that returns results.

  Returns:
    dict of results.
  """
  results = evaluate_fn(checkpoints.latest_checkpoint(output_dir))
  write_results(os.path.join(output_dir, "eval_results.txt"), results)
  logging.info("evaluation at step %d | %s", results["global_step"], " | ".join(
      "%s %s" % (name, short(results[name]))
      for name in sorted(results) if name != "global_step"))
  return results


def keep_best(output_dir, results, files=()):
  """Copies the newest checkpoint of `output_dir` to `output_dir/best`.

  Whatever moment it is interrupted at, `best/checkpoint` names a whole one.

  Args:
    output_dir: str.
    results: dict, written beside it as `eval_results.txt`.
    files: names of files of `output_dir` to copy too.
  """
  best = os.path.join(output_dir, "best")
  tf.io.gfile.makedirs(best)
  checkpoint = checkpoints.latest_checkpoint(output_dir)
  name = os.path.basename(checkpoint)
  for path in tf.io.gfile.glob(checkpoint + ".*"):
    if not path.endswith(".meta"):
      tf.io.gfile.copy(path, os.path.join(best, os.path.basename(path)),
                       overwrite=True)
  for path in files:
    tf.io.gfile.copy(os.path.join(output_dir, path), os.path.join(best, path),
                     overwrite=True)
  checkpoints.name_newest(best, name)
  write_results(os.path.join(best, "eval_results.txt"), results)
  for path in tf.io.gfile.glob(os.path.join(best, "model.ckpt-*")):
    if not os.path.basename(path).startswith(name + "."):
      tf.io.gfile.remove(path)


def short(value):
  """Formats a number for the log."""
  return "%.4f" % value if abs(value) >= 0.01 or not value else "%.2e" % value


def write_results(path, results):
  """Writes `key = value` lines, sorted by key."""
  filesystem.write_text(path, "".join("%s = %s\n" % (name, results[name])
                           for name in sorted(results)))


def read_results(path):
  """Reads `key = value` lines: a dict of float; empty without a file."""
  if not tf.io.gfile.exists(path):
    return {}
  lines = filesystem.read_text(path).splitlines()
  pairs = [line.split(" = ") for line in lines]
  return {name: float(value) for name, value in pairs}
