"""What lies in an output folder: descriptions, checkpoints, results."""

import collections
import contextlib
import csv
import datetime
import io
import json
import os
import re
import shlex
import sys

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

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
  _make_folder(options.output_dir)
  for name, description in descriptions.items():
    path = os.path.join(options.output_dir, name)
    text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
    if (latest_checkpoint(options.output_dir) and tf.io.gfile.exists(path) and
        read_text(path) != text):
      raise InputError(
          "%s says that the checkpoints there were made otherwise than asked "
          "for now: choose another --output_dir" % path)
    write_text(path, text)
  with tf.io.gfile.GFile(
      os.path.join(options.output_dir, "command.txt"), "a") as writer:
    writer.write("%s %s\n" % (
        datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S"),
        " ".join(map(shlex.quote, [sys.executable] + sys.argv))))
  for source, name in files:
    target = os.path.join(options.output_dir, name)
    if os.path.abspath(source) != os.path.abspath(target):
      tf.io.gfile.copy(source, target, overwrite=True)


def _make_folder(path):
  try:
    tf.io.gfile.makedirs(path)
  except tf.errors.OpError as error:
    raise InputError("%s cannot be made: %s" % (path, error.message)) from error


@contextlib.contextmanager
def new_folder(path):
  """Makes a folder that appears whole or not at all.

  Yields:
    the folder to write into, which gets its name at the end.

  Raises:
    InputError: it exists already.
  """
  if tf.io.gfile.exists(path):
    raise InputError("%s exists already: remove it, or choose another "
                     "--output_dir" % path)
  unfinished = "%s.%d.tmp" % (path.rstrip("/"), os.getpid())
  _make_folder(unfinished)
  try:
    yield unfinished
    tf.io.gfile.rename(unfinished, path)
  except BaseException:
    tf.io.gfile.rmtree(unfinished)
    raise


# What optimizers keep, which is no part of a model.
_OPTIMIZER = re.compile("/adam_[mv]$|^global_step$|loss_scale|good_steps")


@contextlib.contextmanager
def reading(checkpoint):
  """Makes an InputError of what TensorFlow says to a damaged checkpoint."""
  try:
    yield
  except (tf.errors.OpError, IndexError, RuntimeError) as error:
    raise InputError("%s cannot be read, it is damaged or not whole: %s" % (
        checkpoint, str(error).split("\n")[0])) from error


def saved_shapes(checkpoint):
  """Returns a checkpoint's weights, without the optimizer's: name -> shape."""
  with reading(checkpoint):
    return {name: shape for name, shape in tf.train.list_variables(checkpoint)
            if not _OPTIMIZER.search(name)}


def read_weights(checkpoint):
  """Returns a checkpoint's weights, without the optimizer's: name -> array."""
  names = saved_shapes(checkpoint)
  with reading(checkpoint):
    reader = tf.train.load_checkpoint(checkpoint)
    return {name: reader.get_tensor(name) for name in names}


def write_checkpoint(folder, name, weights):
  """Writes a checkpoint and the file that says that it is the newest one.

  Args:
    folder: str.
    name: str, of the checkpoint.
    weights: dict, variable name -> array.
  """
  with tf.Graph().as_default(), tf.Session() as session:
    tensors = [tf.placeholder(x.dtype, x.shape) for x in weights.values()]
    save = tf.raw_ops.SaveV2(
        prefix=os.path.join(folder, name), tensor_names=list(weights),
        shape_and_slices=[""] * len(tensors), tensors=tensors)
    session.run(save, dict(zip(tensors, weights.values())))
  _name_newest(folder, name)


def _name_newest(folder, name):
  # TensorFlow's own way to write this file gets a relative folder wrong.
  write_text(os.path.join(folder, "checkpoint"),
             'model_checkpoint_path: "%s"\n' % name)


def check_fits(checkpoint, wanted):
  """Raises an InputError where a checkpoint is not of a model.

  Args:
    checkpoint: str.
    wanted: dict, variable name -> shape.
  """
  for name, found, shape in misfits(saved_shapes(checkpoint), wanted):
    raise InputError(
        "%s has %s for %s, the model %s: give the configuration that belongs "
        "to it" % (checkpoint, found, name, shape))


def misfits(saved, wanted):
  """Yields (name, shape or "nothing", wanted shape or "nothing").

  What is not wanted may be on top of the encoder, but no part of it.

  Args:
    saved, wanted: dict, variable name -> shape.
  """
  for name in list(wanted) + sorted(set(saved) - set(wanted)):
    if saved.get(name) != wanted.get(name) and (
        name in wanted or name.startswith("bert/encoder/")):
      yield name, saved.get(name, "nothing"), wanted.get(name, "nothing")


def latest_checkpoint(folder):
  """Returns the newest whole checkpoint of a folder, or None."""
  try:
    return tf.train.latest_checkpoint(folder)
  except tf.errors.NotFoundError:  # the folder that it named is gone
    return None
  except ValueError as error:
    raise InputError("%s/checkpoint does not name a checkpoint" % folder
                     ) from error


def newest_finite_checkpoint(folder):
  """Returns the newest checkpoint without a NaN or infinity, or "none"."""
  state = tf.train.get_checkpoint_state(folder)
  for path in reversed(state.all_model_checkpoint_paths if state else []):
    reader = tf.train.load_checkpoint(path)
    if all(np.all(np.isfinite(reader.get_tensor(name)))
           for name in reader.get_variable_to_shape_map()):
      return path
  return "none"


def remove_unfinished_checkpoints(folder):
  """Removes what writing a checkpoint left behind when it was killed."""
  for path in tf.io.gfile.glob(os.path.join(folder, "model.ckpt-*temp*")):
    if tf.io.gfile.isdir(path):
      tf.io.gfile.rmtree(path)
    else:
      tf.io.gfile.remove(path)


def step_of(checkpoint):
  """Returns the step that a checkpoint was saved at, 0 for None."""
  return int(checkpoint.rsplit("-", 1)[1]) if checkpoint else 0


def start_step(output_dir):
  """Returns the step that training in `output_dir` will go on from."""
  return step_of(latest_checkpoint(output_dir))


def require_model(options):
  """Raises an InputError where there are no weights to evaluate or predict."""
  if not (options.init_checkpoint or latest_checkpoint(options.output_dir)):
    raise InputError("%s has no checkpoint: train first, or give "
                     "--init_checkpoint" % options.output_dir)


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
    return list(csv.DictReader(io.StringIO(read_text(self._history_path)),
                               delimiter="\t"))

  def _append(self, history, results):
    names = ["global_step"] + sorted(set(results) - {"global_step"})
    rows = [[row[name] for name in names] for row in history + [results]]
    write_text(self._history_path, "".join(
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
  results = evaluate_fn(latest_checkpoint(output_dir))
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
  checkpoint = latest_checkpoint(output_dir)
  name = os.path.basename(checkpoint)
  for path in tf.io.gfile.glob(checkpoint + ".*"):
    if not path.endswith(".meta"):
      tf.io.gfile.copy(path, os.path.join(best, os.path.basename(path)),
                       overwrite=True)
  for path in files:
    tf.io.gfile.copy(os.path.join(output_dir, path), os.path.join(best, path),
                     overwrite=True)
  _name_newest(best, name)
  write_results(os.path.join(best, "eval_results.txt"), results)
  for path in tf.io.gfile.glob(os.path.join(best, "model.ckpt-*")):
    if not os.path.basename(path).startswith(name + "."):
      tf.io.gfile.remove(path)


def short(value):
  """Formats a number for the log."""
  return "%.4f" % value if abs(value) >= 0.01 or not value else "%.2e" % value


def write_results(path, results):
  """Writes `key = value` lines, sorted by key."""
  write_text(path, "".join("%s = %s\n" % (name, results[name])
                           for name in sorted(results)))


def read_results(path):
  """Reads `key = value` lines: a dict of float; empty without a file."""
  if not tf.io.gfile.exists(path):
    return {}
  pairs = [line.split(" = ") for line in read_text(path).splitlines()]
  return {name: float(value) for name, value in pairs}


def write_text(path, text):
  """Writes a UTF-8 file that appears whole or not at all."""
  with tf.io.gfile.GFile(path + ".tmp", "w") as writer:
    writer.write(text)
  tf.io.gfile.rename(path + ".tmp", path, overwrite=True)


def read_json(path):
  """Returns what a JSON file says."""
  try:
    return json.loads(read_text(path))
  except ValueError as error:
    raise InputError("%s: not JSON (%s)" % (path, error)) from error


def read_text(path):
  """Returns the content of a UTF-8 file."""
  with tf.io.gfile.GFile(path, "r") as reader:
    return reader.read()
