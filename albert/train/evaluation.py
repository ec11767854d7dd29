"""Evaluation of checkpoints, the best checkpoint, early stopping.

Tests: tests/files/test_outputs.py.
"""

import csv
import io
import math
import os
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf
from absl import logging

from albert.errors import InputError
from albert.files import checkpoints, filesystem, outputs


class BestRule(NamedTuple):
  """How checkpoints are compared.

  Attributes:
    metric: name of the result.
    higher_is_better: whether a higher value is better.
    first_step: earlier checkpoints are ignored.
  """

  metric: str
  higher_is_better: bool
  first_step: int = 0


class Evaluator:
  """Evaluates checkpoints, keeps the best one, decides when to stop early.

  All evaluations are recorded in `eval_history.tsv` of the output folder, which
  restarts read; cells of missing metrics are empty. The best checkpoint is in
  `best`.

  Args:
    output_dir: output folder.
    evaluate_fn: maps a checkpoint path to results by name.
    best_rule: how checkpoints are compared.
    files: files of `output_dir` to keep next to the best checkpoint.
    early_stop_evals: evaluations without improvement after which to stop; None
      for never.
    for_use: see `outputs.keep_best`.
  """

  def __init__(
    self,
    output_dir: str,
    evaluate_fn: Callable[[Optional[str]], Dict[str, Any]],
    best_rule: BestRule,
    files: Sequence[str] = (),
    early_stop_evals: Optional[int] = None,
    for_use: Optional[Callable[..., Any]] = None,
  ):
    self._output_dir = output_dir
    self._evaluate_fn = evaluate_fn
    self._rule = best_rule
    self._files = files
    self._early_stop_evals = early_stop_evals
    self._for_use = for_use
    self._history_path = os.path.join(output_dir, "eval_history.tsv")
    self._best_dir = os.path.join(output_dir, "best")

  def go_on_from(self, step: int) -> None:
    """Discards evaluations of later steps, whose weights are gone.

    A best checkpoint of a later step is replaced with the best remaining one.

    Args:
      step: global step that training resumes from.
    """
    history = self._history()
    kept = [row for row in history if int(row["global_step"]) <= step]
    if kept != history:
      logging.warning(
        "%s: discarding %d evaluations after step %d",
        self._history_path,
        len(history) - len(kept),
        step,
      )
      self._write_history(kept)
    best = checkpoints.latest_checkpoint(self._best_dir)
    if best and checkpoints.step_of(best) <= step:
      return
    there = {
      checkpoints.step_of(name): os.path.join(self._output_dir, name)
      for name in checkpoints.whole_checkpoints(self._output_dir)
    }
    rows = [
      row
      for row in kept
      if int(row["global_step"]) in there and self._score(row) > -math.inf
    ]
    if best:
      logging.warning("%s is later than step %d: removing it", best, step)
    if rows:
      checkpoint = there[int(max(rows, key=self._score)["global_step"])]
      self._keep_best(checkpoint, self._evaluate_fn(checkpoint))
    elif best:
      tf.io.gfile.rmtree(self._best_dir)

  def evaluate(self, step: int) -> None:
    """Evaluates the newest checkpoint, unless the history has it.

    Args:
      step: its global step.
    """
    history = self._history()
    if any(int(row["global_step"]) == step for row in history):
      return
    results = evaluate_and_write(self._output_dir, self._evaluate_fn)
    outputs.write_summary(
      self._output_dir,
      int(results["global_step"]),
      {
        "eval/" + name.replace("eval_", "", 1): value
        for name, value in results.items()
        if name != "global_step"
      },
    )
    best = outputs.read_results(
      os.path.join(self._best_dir, "eval_results.txt")
    )
    if self._score(results) > self._score(best):
      self._keep_best(checkpoints.latest_checkpoint(self._output_dir), results)
    self._write_history(history + [results])

  def _keep_best(self, checkpoint, results):
    outputs.keep_best(
      self._best_dir, checkpoint, results, self._files, self._for_use
    )

  def should_stop(self) -> bool:
    """Returns whether too many evaluations had no improvement."""
    history = self._history()
    if not self._early_stop_evals or not history:
      return False
    best = max(history, key=self._score)
    if self._score(best) == -math.inf:
      return False
    stop = len(history) - 1 - history.index(best) >= self._early_stop_evals
    if stop:
      logging.info(
        "stopping early: no better %s than %s at step %s in %d evaluations",
        self._rule.metric,
        best.get(self._rule.metric),
        best["global_step"],
        self._early_stop_evals,
      )
    return stop

  def _score(self, results):
    """Returns a number that is higher for better results."""
    if int(results.get("global_step", 0)) < self._rule.first_step:
      return -math.inf
    # Rounded as in the history.
    score = float(str(results.get(self._rule.metric, "")) or "nan")
    if math.isnan(score):
      return -math.inf
    return score if self._rule.higher_is_better else -score

  def _history(self):
    if not tf.io.gfile.exists(self._history_path):
      return []
    text = filesystem.read_text(self._history_path)
    rows = list(csv.DictReader(io.StringIO(text), delimiter="\t"))
    if not all((row.get("global_step") or "").isdigit() for row in rows):
      raise InputError("%s: damaged: remove it" % self._history_path)
    return rows

  def _write_history(self, rows):
    names = ["global_step"] + sorted(set().union(*rows) - {"global_step"})
    filesystem.write_table(
      self._history_path,
      [names] + [[row.get(name, "") for name in names] for row in rows],
    )


def evaluate_and_write(
  output_dir: str,
  evaluate_fn: Callable[[Optional[str]], Dict[str, Any]],
  checkpoint: Optional[str] = None,
) -> Dict[str, Any]:
  """Evaluates a checkpoint and writes `eval_results.txt`.

  Args:
    output_dir: output folder.
    evaluate_fn: maps a checkpoint path to results by name.
    checkpoint: defaults to the newest in the folder, otherwise its best one,
      otherwise --init_checkpoint.

  Returns:
    the results by name.
  """
  checkpoint = checkpoint or checkpoints.newest_or_best(output_dir)
  results = evaluate_fn(checkpoint)
  outputs.write_results(
    os.path.join(output_dir, "eval_results.txt"), results, checkpoint
  )
  logging.info(
    "evaluation at step %d%s | %s",
    results["global_step"],
    " of " + checkpoint if checkpoint else "",
    outputs.shown(results),
  )
  return results
