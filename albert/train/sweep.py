"""Several runs of one fine-tuning: seeds, learning rates, a table of both."""

import contextlib
import os

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags, logging

from albert.errors import InputError
from albert.files import checkpoints, filesystem, outputs

flags.DEFINE_integer("num_seeds", None,
                     "Train so many runs, with --random_seed and the seeds "
                     "after it; report mean and deviation.", lower_bound=1)
flags.DEFINE_list("seeds", None, "Seeds of the runs, instead of --num_seeds.")
flags.DEFINE_list("learning_rates", None,
                  "Learning rates to try, each with all seeds; the best one on "
                  "dev counts.")


_SETTINGS_FILE = "runs.json"
# Runs that differ in one of these are not compared.
_SETTINGS = (
    "init_checkpoint", "optimizer", "train_batch_size", "num_train_epochs",
    "gradient_accumulation_steps", "max_train_examples", "warmup_proportion",
    "adversarial", "adversarial_epsilon", "class_weights", "precision",
    "early_stop_evals", "save_checkpoints_steps")


def is_wanted(options):
  """Returns whether more than one plain run is asked for."""
  return bool(options.num_seeds or options.seeds or options.learning_rates)


def plan(options):
  """Returns the runs that flags ask for: a list of (learning rate, seed).

  Args:
    options: flags.

  Raises:
    InputError: a flag is not readable, or contradicts another one, or
      --output_dir has checkpoints of its own, or, where one plain run is asked
      for, those of several runs.
  """
  if is_wanted(options):
    if not (options.do_train and options.do_eval):
      raise InputError("--num_seeds, --seeds and --learning_rates need "
                       "--do_train and --do_eval: runs are compared on dev")
    if checkpoints.latest_checkpoint(options.output_dir):
      raise InputError("%s has the checkpoints of a single run: choose a "
                       "different --output_dir" % options.output_dir)
  elif options.do_train and filesystem.exists(
      os.path.join(options.output_dir or "", _SETTINGS_FILE)):
    raise InputError("%s has several runs: choose a different --output_dir for "
                     "a single one" % options.output_dir)
  for one, other in (("learning_rate", "learning_rates"),
                     ("random_seed", "seeds"), ("num_seeds", "seeds")):
    if options[one].present and options[other].present:
      raise InputError("give --%s or --%s, not both" % (one, other))
  first = options.random_seed
  seeds = _numbers("seeds", int, options.seeds or range(
      first, first + (options.num_seeds or 1)))
  rates = _numbers("learning_rates", float,
                   options.learning_rates or [options.learning_rate])
  return [(rate, seed) for rate in rates for seed in seeds]


def _numbers(name, kind, texts):
  try:
    return list(dict.fromkeys(map(kind, texts)))
  except ValueError as error:
    raise InputError("--%s: %s" % (name, error)) from error


def run(options, leads, metric, files, run_once):
  """Trains with every learning rate and seed; the best run makes predictions.

  Each run has a folder in --output_dir, where it goes on if it was interrupted
  and ends at once if it was finished. `runs.tsv` has the dev results of the
  best checkpoint of each; `best` is that of the best seed of the best rate.

  Args:
    options: flags.
    leads: bool, whether this process is the one that writes files.
    metric: str, name among the results; the greater, the better. Rates are
      compared by its mean over the seeds.
    files: names of files to keep next to the best checkpoint; those that
      describe the model are in --output_dir.
    run_once: function of nothing that does what `options` say when it is
      called.

  Raises:
    InputError: the folder of a run has checkpoints of a different description,
      or the runs there had different settings.
  """
  output_dir = options.output_dir
  runs = plan(options)
  path = os.path.join(output_dir, _SETTINGS_FILE)
  settings = {name: getattr(options, name) for name in _SETTINGS
              if name in options}
  found = filesystem.read_json(path) if filesystem.exists(path) else settings
  for name, value in settings.items():
    if found.get(name) != value:
      raise InputError("%s has runs with --%s=%s, not %s: choose a different "
                       "--output_dir" % (output_dir, name, found.get(name),
                                         value))
  if leads:
    filesystem.write_json(path, settings)
  results = {}
  for number, (rate, seed) in enumerate(runs, 1):
    folder = _folder(output_dir, rate, seed)
    logging.info("run %d of %d: %s", number, len(runs), folder)
    with _changed(options, output_dir=folder, learning_rate=rate,
                  random_seed=seed, do_predict=False):
      if leads:
        _describe(options, output_dir, files)
      run_once()
    if leads:
      results[rate, seed] = outputs.read_results(
          os.path.join(folder, "best", "eval_results.txt"))
      table = _table(results)
      filesystem.write_text(os.path.join(output_dir, "runs.tsv"), "".join(
          "\t".join(map(str, row)) + "\n" for row in table))
  if leads:
    logging.info("%s:\n%s", os.path.join(output_dir, "runs.tsv"),
                 _aligned(table))
    _keep_best(output_dir, results, metric, files)
  with _changed(options, do_train=False, do_eval=False):
    run_once()


def _describe(options, source, names):
  """Puts what describes the model into the folder of a run."""
  paths = {name: os.path.join(source, name) for name in names
           if not name.startswith("eval_")}  # a run has its own report
  outputs.prepare_output_dir(
      options, {name: filesystem.read_json(path)
                for name, path in paths.items() if name.endswith(".json")},
      [(path, name) for name, path in paths.items()
       if not name.endswith(".json") and tf.io.gfile.exists(path)])


def _folder(output_dir, rate, seed):
  return os.path.join(output_dir, "rate_%s_seed_%d" % (rate, seed))


@contextlib.contextmanager
def _changed(options, **values):
  """Changes flags for a while."""
  before = {name: getattr(options, name) for name in values}
  try:
    for name, value in values.items():
      setattr(options, name, value)
    yield
  finally:
    for name, value in before.items():
      setattr(options, name, value)


def _by_rate(results):
  """Returns a dict, learning rate -> list of (seed, results)."""
  found = {}
  for (rate, seed), values in results.items():
    found.setdefault(rate, []).append((seed, values))
  return found


def _table(results):
  """Returns rows: each run; mean and deviation of a rate with several seeds."""
  names = sorted(name for name in set().union(*results.values())
                 if name.startswith("eval_"))
  rows = [["learning_rate", "seed"] + names + ["global_step"]]
  for rate, runs in _by_rate(results).items():
    rows += [[rate, seed] + [values[name] for name in names + ["global_step"]]
             for seed, values in runs]
    if len(runs) == 1:
      continue
    columns = [[values[name] for _, values in runs] for name in names]
    deviations = np.std(columns, axis=1, ddof=1).tolist()  # of a sample
    rows += [[rate, "mean"] + np.mean(columns, axis=1).tolist() + [""],
             [rate, "deviation"] + deviations + [""]]
  return rows


def _aligned(table):
  """Returns the lines of a table for the log."""
  texts = [[outputs.short(cell) if isinstance(cell, float) else str(cell)
            for cell in row] for row in table]
  widths = [max(map(len, column)) for column in zip(*texts)]
  return "\n".join("  ".join(map(str.rjust, row, widths)) for row in texts)


def _keep_best(output_dir, results, metric, files):
  """Makes `best` of --output_dir that of the best run."""
  rate, runs = max(_by_rate(results).items(), key=lambda item: np.mean(
      [values[metric] for _, values in item[1]]))
  seed, values = max(runs, key=lambda run: run[1][metric])
  folder = os.path.join(_folder(output_dir, rate, seed), "best")
  logging.info("best: %s, %s %s", folder, metric, outputs.short(values[metric]))
  outputs.keep_best(
      os.path.join(output_dir, "best"), checkpoints.latest_checkpoint(folder),
      values, files)
