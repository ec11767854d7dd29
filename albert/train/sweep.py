"""Sweeps: runs with several seeds and learning rates, and a table of them."""

import dataclasses
import os
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np
from absl import logging

from albert.errors import InputError
from albert.files import checkpoints, filesystem, outputs
from albert.train.settings import TrainSettings

_FOLDER = "rate_%s_seed_%s"


def is_wanted(settings: TrainSettings) -> bool:
  """Returns whether several seeds or learning rates are requested."""
  sweep = settings.sweep
  return bool(sweep.num_seeds or sweep.seeds or sweep.learning_rates)


def plan(settings: TrainSettings) -> List[Tuple[float, int]]:
  """Returns the requested runs: (learning rate, seed).

  Raises:
    InputError: a flag is malformed, or --output_dir has a single run and a
      sweep is requested, or the other way round.
  """
  run, sweep = settings.run, settings.sweep
  if is_wanted(settings):
    if checkpoints.latest_checkpoint(run.output_dir):
      raise InputError(
        "%s has the checkpoints of a single run: choose a "
        "different --output_dir" % run.output_dir
      )
  elif run.do_train and filesystem.find_files(
    run.output_dir or "", _FOLDER % ("*", "*")
  ):
    raise InputError(
      "%s has the runs of a sweep: choose a different "
      "--output_dir for a single run" % run.output_dir
    )
  seeds: Sequence[int] = sweep.seed_numbers() or range(
    run.random_seed, run.random_seed + (sweep.num_seeds or 1)
  )
  rates = sweep.rates() or [settings.optimizer.learning_rate]
  return [(rate, seed) for rate in rates for seed in seeds]


def run_settings(
  settings: TrainSettings, rate: float, seed: int
) -> TrainSettings:
  """Returns the settings of one run, in its own folder."""
  folder = os.path.join(settings.run.output_dir, _FOLDER % (rate, seed))
  return dataclasses.replace(
    settings,
    run=dataclasses.replace(settings.run, output_dir=folder, random_seed=seed),
    optimizer=dataclasses.replace(settings.optimizer, learning_rate=rate),
    data=dataclasses.replace(settings.data, do_predict=False),
  )


def run(
  settings: TrainSettings,
  leads: bool,
  metric: str,
  contents: Dict[str, bytes],
  reports: Sequence[str],
  run_once: Callable[[TrainSettings], None],
) -> None:
  """Trains with every learning rate and seed; the best run predicts.

  Each run has a folder in --output_dir, where it resumes if interrupted and is
  skipped if finished. `runs.tsv` has the dev results of all best checkpoints;
  `best` is that of the best seed of the best rate.

  Args:
    settings: settings of the sweep.
    leads: whether this process writes files.
    metric: name of a result; higher is better. Rates are compared by its mean
      over the seeds.
    contents: files that describe the model: name -> content.
    reports: files written by evaluations, to keep next to the best checkpoint.
    run_once: trains and evaluates with the settings of a run.

  Raises:
    InputError: the folder of a run has checkpoints of a different model.
  """
  output_dir = settings.run.output_dir
  runs = plan(settings)
  results = {}
  for number, (rate, seed) in enumerate(runs, 1):
    one = run_settings(settings, rate, seed)
    folder = one.run.output_dir
    logging.info("run %d of %d: %s", number, len(runs), folder)
    if leads:
      outputs.prepare_output_dir(folder, contents, settings.run.do_train)
    run_once(one)
    if leads:
      results[rate, seed] = outputs.read_results(
        os.path.join(folder, "best", "eval_results.txt")
      )
      table = _table(results)
      filesystem.write_table(os.path.join(output_dir, "runs.tsv"), table)
  if leads:
    logging.info(
      "%s:\n%s", os.path.join(output_dir, "runs.tsv"), aligned(table)
    )
    _keep_best(settings, results, metric, [*contents, *reports])
  run_once(
    dataclasses.replace(
      settings,
      run=dataclasses.replace(settings.run, do_train=False, do_eval=False),
    )
  )


def _by_rate(results):
  """Returns learning rate -> list of (seed, results)."""
  grouped: Dict[float, List[Tuple[int, Dict[str, Any]]]] = {}
  for (rate, seed), values in results.items():
    grouped.setdefault(rate, []).append((seed, values))
  return grouped


def rows_of(
  runs: Sequence[Tuple[Any, Dict[str, Any]]], names: Sequence[str]
) -> List[List[Any]]:
  """Returns rows of results; of several runs, also mean and deviation.

  Args:
    runs: label and results of each; a run without a valid evaluation has none.
    names: results that have a mean; `global_step` follows.
  """
  rows = [
    [label]
    + [values.get(name, float("nan")) for name in [*names, "global_step"]]
    for label, values in runs
  ]
  if len(runs) == 1:
    return rows
  columns = np.reshape([row[1:-1] for row in rows], [len(runs), len(names)])
  return rows + [
    ["mean"] + np.mean(columns, axis=0).tolist() + [""],
    ["deviation"] + np.std(columns, axis=0, ddof=1).tolist() + [""],
  ]


def metric_names(results: Sequence[Dict[str, Any]]) -> List[str]:
  """Returns the sorted names of the metrics in any of the results."""
  return sorted(
    name for name in set().union(*results) if name.startswith("eval_")
  )


def _table(results):
  """Returns a row per run, and mean and deviation of rates with more seeds."""
  names = metric_names(list(results.values()))
  rows = [["learning_rate", "seed"] + names + ["global_step"]]
  for rate, runs in _by_rate(results).items():
    rows += [[rate, *row] for row in rows_of(runs, names)]
  return rows


def aligned(table: List[List[Any]]) -> str:
  """Formats a table for the log or the screen."""
  texts = [
    [
      outputs.short(cell) if isinstance(cell, float) else str(cell)
      for cell in row
    ]
    for row in table
  ]
  widths = [max(map(len, column)) for column in zip(*texts)]
  return "\n".join("  ".join(map(str.rjust, row, widths)) for row in texts)


def _keep_best(settings, results, metric, files):
  """Copies the best run's `best` to --output_dir.

  Raises:
    InputError: no run has a valid evaluation.
  """

  def score(run):
    return run[1].get(metric, -np.inf)

  rate, runs = max(
    _by_rate(results).items(),
    key=lambda item: np.mean(list(map(score, item[1]))),
  )
  seed, values = max(runs, key=score)
  if not values:
    raise InputError(
      "none of the %d runs in %s has a valid %s: try a lower "
      "--learning_rate, or check the data"
      % (len(results), settings.run.output_dir, metric)
    )
  folder = os.path.join(
    run_settings(settings, rate, seed).run.output_dir, "best"
  )
  logging.info("best: %s, %s %s", folder, metric, outputs.short(values[metric]))
  outputs.keep_best(
    os.path.join(settings.run.output_dir, "best"),
    checkpoints.latest_checkpoint(folder),
    values,
    files,
  )
