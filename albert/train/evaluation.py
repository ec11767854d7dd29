"""When checkpoints are evaluated, which one is the best, when to stop.

Tests: tests/files/test_outputs.py.
"""

import csv
import io
import math
import os
from typing import NamedTuple

import tensorflow.compat.v1 as tf
from absl import logging

from albert.files import checkpoints, filesystem, outputs


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
    for_use: see `outputs.keep_best`.
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
      self._keep_best(checkpoint, self._evaluate_fn(checkpoint))
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
    outputs.write_summary(self._output_dir, int(results["global_step"]), {
        "eval/" + name.replace("eval_", "", 1): value
        for name, value in results.items() if name != "global_step"})
    best = outputs.read_results(
        os.path.join(self._best_dir, "eval_results.txt"))
    if self._score(results) > self._score(best):
      self._keep_best(checkpoints.latest_checkpoint(self._output_dir), results)
    self._write_history(history + [results])

  def _keep_best(self, checkpoint, results):
    outputs.keep_best(self._best_dir, checkpoint, results, self._files,
                      self._for_use)

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
  outputs.write_results(
      os.path.join(output_dir, "eval_results.txt"), results, checkpoint)
  logging.info(
      "evaluation at step %d%s | %s", results["global_step"],
      " of " + checkpoint if checkpoint else "", outputs.shown(results))
  return results
