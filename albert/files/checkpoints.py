"""Checkpoints: finding, reading, comparing, writing, initialising from them."""

import contextlib
import fnmatch
import os
import re

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from albert.errors import InputError
from albert.files import filesystem


def find_checkpoint(init_checkpoint):
  """Returns the path of a checkpoint, given that or a folder with some.

  Raises:
    InputError: there is none.
  """
  path = init_checkpoint
  if tf.io.gfile.isdir(path):
    # Released models need not be named for a step.
    path = latest_checkpoint(path, "*")
  if not path or not tf.io.gfile.exists(path + ".index"):
    raise InputError(
        "no checkpoint at %s: give the path of one, or of a folder with some; "
        "%s comes with this project" % (init_checkpoint, filesystem.STARTER))
  return path


def init_from_checkpoint(init_checkpoint, is_training):
  """Makes the model's variables start from a checkpoint, by equal names.

  Reports what was loaded, newly initialised, unused, and of a different shape.

  Args:
    init_checkpoint: str, path of a checkpoint, or of a folder with some.
    is_training: bool; otherwise nothing may be left newly initialised.

  Raises:
    InputError: a variable of the encoder or of the embeddings (any variable,
      unless training) is absent or has a different shape; or the checkpoint is
      damaged.
  """
  path = find_checkpoint(init_checkpoint)
  saved = saved_shapes(path)
  model = {v.op.name: v.shape.as_list()
           for v in tf.trainable_variables() + tf.model_variables()}
  loaded = [name for name in model if saved.get(name) == model[name]]
  new = [name for name in model if name not in saved]
  wrong = ["%s (checkpoint %s, model %s)" % (name, saved[name], model[name])
           for name in model if saved.get(name, model[name]) != model[name]]
  unused = [name for name in saved if name not in model]

  needed = "bert/e" if is_training else ""  # bert/embeddings, bert/encoder
  missing = [name for name in new if name.startswith(needed)]
  if any(name.startswith("bert/encoder") for name in missing):
    other = {"bert/encoder/layer": "albert_zh's", "bert/encoder/transformer":
             "Google's"}
    for prefix, layout in other.items():
      if (any(name.startswith(prefix) for name in saved) and
          not any(name.startswith(prefix) for name in model)):
        raise InputError(
            "%s has %s variable layout and the configuration asks for the "
            "other one: use the configuration that came with the checkpoint"
            % (path, layout))
  bad = [name for name in wrong if name.startswith(needed)]
  if bad:
    raise InputError("%s does not fit the configuration: %s%s" % (
        path, bad[0], _and_more(bad)))
  if missing:
    raise InputError("%s lacks a variable of the model: %s%s" % (
        path, missing[0], _and_more(missing)))

  logging.info("%s: %d variables loaded%s", path, len(loaded), "".join(
      "; %s: %s" % (what, _some(names)) for what, names in (
          ("new", new), ("not used", unused), ("of a different shape", wrong))
      if names))
  for what, names in (("loaded", loaded), ("newly initialised", new),
                      ("unused", unused),
                      ("of a different shape, newly initialised", wrong)):
    logging.debug("  %s: %s", what, ", ".join(names) or "none")
  tf.train.init_from_checkpoint(path, {name: name for name in loaded})


def _some(names):
  """Returns the first few names, and how many there are."""
  return ", ".join(names[:3]) + (
      ", ... (%d)" % len(names) if len(names) > 3 else "")


def _and_more(names):
  return " and %d more" % (len(names) - 1) if len(names) > 1 else ""


# What optimizers keep, which is no part of a model.
_OPTIMIZER = re.compile("/adam_[mv]$|^global_step$|loss_scale|good_steps")


@contextlib.contextmanager
def reading(checkpoint):
  """Makes an InputError of TensorFlow's error about a damaged checkpoint."""
  try:
    yield
  except (tf.errors.OpError, IndexError, RuntimeError) as error:
    raise InputError("%s cannot be read, it is damaged or not whole: %s" % (
        checkpoint, str(error).split("\n")[0])) from error


@contextlib.contextmanager
def restoring(checkpoint):
  """Like `reading`, around a training or prediction that begins by that."""
  try:
    yield
  except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
    with reading(checkpoint):
      raise error


def saved_shapes(checkpoint):
  """Returns a checkpoint's weights, without the optimizer's: name -> shape."""
  with reading(checkpoint):
    return {name: shape for name, shape in tf.train.list_variables(checkpoint)
            if not _OPTIMIZER.search(name)}


def count_weights(checkpoint):
  """Returns how many parameters a checkpoint has, without the optimizer's."""
  return sum(int(np.prod(shape)) for shape in saved_shapes(checkpoint).values())


def read_weights(checkpoint):
  """Returns a checkpoint's weights, without the optimizer's: name -> array."""
  return _read(checkpoint, saved_shapes(checkpoint))


def read_all(checkpoint):
  """Returns all that a checkpoint has: name -> array."""
  with reading(checkpoint):
    return _read(checkpoint, dict(tf.train.list_variables(checkpoint)))


def _read(checkpoint, names):
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
  name_newest(folder, name)


def name_newest(folder, *names):
  """Writes the file `checkpoint`.

  Args:
    folder: str.
    names: of its checkpoints, the newest last.
  """
  # TensorFlow's own way to write this file gets a relative folder wrong.
  filesystem.write_text(
      os.path.join(folder, "checkpoint"),
      'model_checkpoint_path: "%s"\n' % names[-1] + "".join(
          'all_model_checkpoint_paths: "%s"\n' % name for name in names))


def restored_session(checkpoint, session_config=None):
  """Returns a session whose variables, the default graph's, are a checkpoint's.

  Args:
    checkpoint: str.
    session_config: tf.ConfigProto, or None.

  Raises:
    InputError: the checkpoint is of a different model, or damaged.
  """
  check_fits(checkpoint, {v.op.name: v.shape.as_list()
                          for v in tf.global_variables()})
  session = tf.Session(config=session_config)
  with reading(checkpoint):
    tf.train.Saver().restore(session, checkpoint)
  return session


def check_fits(checkpoint, wanted):
  """Raises an InputError where a checkpoint is not of a model.

  Args:
    checkpoint: str.
    wanted: dict, variable name -> shape.
  """
  for name, saved, shape in misfits(saved_shapes(checkpoint), wanted):
    raise InputError(
        "%s has %s for %s, the model %s: give the configuration that belongs "
        "to it" % (checkpoint, saved, name, shape))


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


def whole_checkpoints(folder, pattern="*-[0-9]*"):
  """Returns the names of a folder's checkpoints that lack no part.

  Args:
    folder: str.
    pattern: str, glob of names; by default those that training gives.

  Returns:
    list of str, those of the greatest steps last.
  """
  if not tf.io.gfile.isdir(folder):
    return []
  files = set(tf.io.gfile.listdir(folder))
  shards = [re.match(r"(.*)\.data-\d{5}-of-(\d{5})$", name) for name in files]
  names = {match.group(1) for match in filter(None, shards) if all(
      "%s.data-%05d-of-%s" % (match.group(1), number, match.group(2)) in files
      for number in range(int(match.group(2))))}
  return sorted(
      (name for name in fnmatch.filter(names, pattern)
       if name + ".index" in files),
      key=lambda name: (int(re.search("[0-9]*$", name).group() or -1), name))


def latest_checkpoint(folder, pattern="*-[0-9]*"):
  """Returns the newest whole checkpoint of a folder, or None.

  It is the one that the file `checkpoint` names, if that is whole and in the
  folder, else the one of the greatest step.

  Args:
    folder: str.
    pattern: str, glob of names; by default those that training gives.
  """
  names = whole_checkpoints(folder, pattern)
  if not names:
    return None
  try:
    state = tf.train.get_checkpoint_state(folder)
  except ValueError:  # the file is empty
    state = None
  named = state and os.path.basename(state.model_checkpoint_path)
  return os.path.join(folder, named if named in names else names[-1])


def named_in(output_dir, init_checkpoint):
  """Returns `init_checkpoint` if it is a checkpoint of `output_dir`, else None.

  Who names one of several wants its results, not those of the newest.
  """
  if not init_checkpoint or not tf.io.gfile.exists(init_checkpoint + ".index"):
    return None
  return init_checkpoint if filesystem.is_same(
      os.path.dirname(init_checkpoint) or ".", output_dir) else None


def newest_or_best(output_dir):
  """Returns the newest checkpoint of a folder, else its best one, or None."""
  return (latest_checkpoint(output_dir) or
          latest_checkpoint(os.path.join(output_dir, "best")))


def name_whole_checkpoints(folder):
  """Makes the file `checkpoint`, which Estimators go by, name what is whole."""
  path = os.path.join(folder, "checkpoint")
  latest = latest_checkpoint(folder)
  if latest:
    names = whole_checkpoints(folder)
    name_newest(folder, *names[:names.index(os.path.basename(latest)) + 1])
  elif tf.io.gfile.exists(path):
    tf.io.gfile.remove(path)


def newest_finite_checkpoint(folder):
  """Returns the newest checkpoint without a NaN or infinity, or "none"."""
  for name in reversed(whole_checkpoints(folder)):
    path = os.path.join(folder, name)
    reader = tf.train.load_checkpoint(path)
    if all(np.all(np.isfinite(reader.get_tensor(name)))
           for name in reader.get_variable_to_shape_map()):
      return path
  return "none"


def remove_unfinished_checkpoints(folder):
  """Removes what writing a checkpoint left behind when it was killed."""
  for name in fnmatch.filter(tf.io.gfile.listdir(folder),
                             "model.ckpt-*temp*"):
    path = os.path.join(folder, name)
    if tf.io.gfile.isdir(path):
      tf.io.gfile.rmtree(path)
    else:
      tf.io.gfile.remove(path)


def step_of(checkpoint):
  """Returns the step that a checkpoint was saved at, 0 for None."""
  return int(checkpoint.rsplit("-", 1)[1]) if checkpoint else 0


def start_step(output_dir):
  """Returns the step that training in `output_dir` will resume from."""
  return step_of(latest_checkpoint(output_dir))


def require_model(init_checkpoint, output_dir):
  """Raises an InputError where there are no weights to evaluate or predict."""
  if not (init_checkpoint or newest_or_best(output_dir)):
    raise InputError("%s has no checkpoint: train first, or give "
                     "--init_checkpoint" % output_dir)
