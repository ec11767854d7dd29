"""Finds, reads, compares, writes and initialises from checkpoints."""

import contextlib
import fnmatch
import os
import re
from typing import Dict, Iterator, List, Optional, Tuple, Union

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from albert.errors import InputError
from albert.files import filesystem


def find_checkpoint(init_checkpoint: str) -> str:
  """Returns the path of a checkpoint, given the path or its folder.

  Raises:
    InputError: no checkpoint found.
  """
  path: Optional[str] = init_checkpoint
  if tf.io.gfile.isdir(path):
    # Names of released models need not end in a step.
    path = latest_checkpoint(init_checkpoint, "*")
  if not path or not tf.io.gfile.exists(path + ".index"):
    names = (
      tf.io.gfile.listdir(init_checkpoint)
      if tf.io.gfile.isdir(init_checkpoint)
      else []
    )
    for name in names:
      if name.endswith(".index"):
        raise InputError(
          "%s is damaged or incomplete"
          % os.path.join(init_checkpoint, name[: -len(".index")])
        )
    if any(name.endswith((".bin", ".safetensors")) for name in names):
      raise InputError(
        "%s has PyTorch weights; convert them with %s"
        % (init_checkpoint, filesystem.FROM_PYTORCH % init_checkpoint)
      )
    raise InputError(
      "no checkpoint at %s: give the path of one, or a folder with some; "
      "%s is bundled" % (init_checkpoint, filesystem.STARTER)
    )
  return path


def init_from_checkpoint(init_checkpoint: str, is_training: bool) -> None:
  """Initialises the model's variables from those with the same names.

  Logs which variables were loaded, newly initialised, unused, or skipped
  because of a different shape.

  Args:
    init_checkpoint: path of a checkpoint or of its folder.
    is_training: if False, every variable must be in the checkpoint.

  Raises:
    InputError: the checkpoint is damaged, or a variable of the embeddings or
      the encoder (any variable, unless training) is missing or has a different
      shape.
  """
  path = find_checkpoint(init_checkpoint)
  saved = saved_shapes(path)
  model = {
    v.op.name: v.shape.as_list()
    for v in tf.trainable_variables() + tf.model_variables()
  }
  loaded = [name for name in model if saved.get(name) == model[name]]
  new = [name for name in model if name not in saved]
  wrong = [
    "%s (checkpoint %s, model %s)" % (name, saved[name], model[name])
    for name in model
    if saved.get(name, model[name]) != model[name]
  ]
  unused = [name for name in saved if name not in model]

  needed = "bert/e" if is_training else ""  # bert/embeddings, bert/encoder
  missing = [name for name in new if name.startswith(needed)]
  if any(name.startswith("bert/encoder") for name in missing):
    other = {
      "bert/encoder/layer": "albert_zh's",
      "bert/encoder/transformer": "Google's",
    }
    for prefix, layout in other.items():
      if any(name.startswith(prefix) for name in saved) and not any(
        name.startswith(prefix) for name in model
      ):
        raise InputError(
          "%s has %s variable layout, but the configuration has the other "
          "one: use the configuration that came with the checkpoint"
          % (path, layout)
        )
  bad = [name for name in wrong if name.startswith(needed)]
  if bad:
    raise InputError(
      "%s does not fit the configuration: %s%s" % (path, bad[0], _and_more(bad))
    )
  if missing:
    raise InputError(
      "%s lacks a variable of the model: %s%s"
      % (path, missing[0], _and_more(missing))
    )

  logging.info(
    "%s: %d variables loaded%s",
    path,
    len(loaded),
    "".join(
      "; %s: %s" % (what, _some(names))
      for what, names in (
        ("new", new),
        ("not used", unused),
        ("of a different shape", wrong),
      )
      if names
    ),
  )
  for what, names in (
    ("loaded", loaded),
    ("newly initialised", new),
    ("unused", unused),
    ("of a different shape, newly initialised", wrong),
  ):
    logging.debug("  %s: %s", what, ", ".join(names) or "none")
  tf.train.init_from_checkpoint(path, {name: name for name in loaded})


def _some(names):
  """Returns the first three names, and the total if there are more."""
  return ", ".join(names[:3]) + (
    ", ... (%d)" % len(names) if len(names) > 3 else ""
  )


def _and_more(names):
  return " and %d more" % (len(names) - 1) if len(names) > 1 else ""


# Saved by optimizers and loss scaling; not part of the model.
_OPTIMIZER = re.compile("/adam_[mv]$|^global_step$|loss_scale|good_steps")


@contextlib.contextmanager
def reading(checkpoint: str) -> Iterator[None]:
  """Converts TensorFlow's errors about damaged checkpoints to InputErrors."""
  try:
    yield
  except (tf.errors.OpError, IndexError, RuntimeError) as error:
    raise InputError(
      "%s cannot be read: damaged or incomplete (%s)"
      % (checkpoint, str(error).split("\n")[0])
    ) from error


@contextlib.contextmanager
def restoring(checkpoint: str) -> Iterator[None]:
  """Like `reading`, for training or prediction that starts by restoring."""
  try:
    yield
  except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
    if "IteratorGetNext" in error.message:  # of a record file
      raise
    with reading(checkpoint):
      raise error


def saved_shapes(checkpoint: str) -> Dict[str, List[int]]:
  """Returns the shapes of a checkpoint's weights, without optimizer slots."""
  with reading(checkpoint):
    return {
      name: shape
      for name, shape in tf.train.list_variables(checkpoint)
      if not _OPTIMIZER.search(name)
    }


def count_weights(checkpoint: str) -> int:
  """Returns a checkpoint's number of parameters, without optimizer slots."""
  return sum(int(np.prod(shape)) for shape in saved_shapes(checkpoint).values())


def read_weights(checkpoint: str) -> Dict[str, np.ndarray]:
  """Returns a checkpoint's weights by name, without optimizer slots."""
  return _read(checkpoint, saved_shapes(checkpoint))


def read_average(checkpoint: str, count: int) -> Dict[str, np.ndarray]:
  """Returns the mean of the weights of the last checkpoints of a training.

  Args:
    checkpoint: the last one.
    count: number of checkpoints.

  Raises:
    InputError: its folder has fewer up to this one.
  """
  folder, last = os.path.split(checkpoint)
  names = whole_checkpoints(folder)
  names = names[: names.index(last) + 1][-count:] if last in names else []
  if len(names) < count:
    raise InputError(
      "%s: the folder has %d complete checkpoints up to it, not "
      "%d" % (checkpoint, len(names), count)
    )
  logging.info("mean of %s", ", ".join(names))
  sums: Dict[str, np.ndarray] = {}
  for name in names:
    for key, value in read_weights(os.path.join(folder, name)).items():
      sums[key] = sums.get(key, 0.0) + value.astype(np.float64)
  return {
    key: (value / count).astype(np.float32) for key, value in sums.items()
  }


def read_all(checkpoint: str) -> Dict[str, np.ndarray]:
  """Returns all variables of a checkpoint by name."""
  with reading(checkpoint):
    return _read(checkpoint, dict(tf.train.list_variables(checkpoint)))


def _read(checkpoint, names):
  with reading(checkpoint):
    reader = tf.train.load_checkpoint(checkpoint)
    return {name: reader.get_tensor(name) for name in names}


def write_checkpoint(
  folder: str, name: str, weights: Dict[str, np.ndarray]
) -> None:
  """Writes a checkpoint and marks it as the folder's newest.

  Args:
    folder: an existing folder.
    name: file name of the checkpoint, such as "model.ckpt-1000".
    weights: arrays by variable name.
  """
  with tf.Graph().as_default(), tf.Session() as session:
    tensors = [tf.placeholder(x.dtype, x.shape) for x in weights.values()]
    save = tf.raw_ops.SaveV2(
      prefix=os.path.join(folder, name),
      tensor_names=list(weights),
      shape_and_slices=[""] * len(tensors),
      tensors=tensors,
    )
    session.run(save, dict(zip(tensors, weights.values())))
  name_newest(folder, name)


def name_newest(folder: str, *names: str) -> None:
  """Writes the file `checkpoint`, which lists a folder's checkpoints.

  Args:
    folder: the folder of the checkpoints.
    *names: file names of checkpoints, newest last.
  """
  # tf.train.update_checkpoint_state writes wrong paths for a relative folder.
  filesystem.write_text(
    os.path.join(folder, "checkpoint"),
    'model_checkpoint_path: "%s"\n' % names[-1]
    + "".join('all_model_checkpoint_paths: "%s"\n' % name for name in names),
  )


def restored_session(
  checkpoint: str, session_config: Optional[tf.ConfigProto] = None
) -> tf.Session:
  """Returns a session with the default graph's variables restored.

  Raises:
    InputError: the checkpoint is damaged or belongs to a different model.
  """
  check_fits(
    checkpoint, {v.op.name: v.shape.as_list() for v in tf.global_variables()}
  )
  session = tf.Session(config=session_config)
  with reading(checkpoint):
    tf.train.Saver().restore(session, checkpoint)
  return session


def check_fits(checkpoint: str, wanted: Dict[str, List[int]]) -> None:
  """Checks that a checkpoint has the variables of a model.

  Args:
    checkpoint: path of the checkpoint.
    wanted: shapes of the model's variables by name.

  Raises:
    InputError: a variable is missing or has a different shape.
  """
  for name, saved, shape in misfits(saved_shapes(checkpoint), wanted):
    raise InputError(
      "%s has %s for %s, the model %s: use the configuration that belongs "
      "to it" % (checkpoint, saved, name, shape)
    )


def misfits(
  saved: Dict[str, List[int]], wanted: Dict[str, List[int]]
) -> Iterator[Tuple[str, Union[List[int], str], Union[List[int], str]]]:
  """Compares the shapes of saved and wanted variables, by name.

  Extra variables are allowed on top of the encoder, but not inside it.

  Yields:
    (name, saved shape, wanted shape) of each difference; "nothing" instead of
    the shape of a missing variable.
  """
  for name in list(wanted) + sorted(set(saved) - set(wanted)):
    if saved.get(name) != wanted.get(name) and (
      name in wanted or name.startswith("bert/encoder/")
    ):
      yield name, saved.get(name, "nothing"), wanted.get(name, "nothing")


def whole_checkpoints(folder: str, pattern: str = "*-[0-9]*") -> List[str]:
  """Returns the names of a folder's complete checkpoints, sorted by step.

  Args:
    folder: may not exist.
    pattern: glob of checkpoint names; by default, names that end in a step.
  """
  if not tf.io.gfile.isdir(folder):
    return []
  files = set(tf.io.gfile.listdir(folder))
  shards = [re.match(r"(.*)\.data-\d{5}-of-(\d{5})$", name) for name in files]
  names = {
    match.group(1)
    for match in filter(None, shards)
    if all(
      "%s.data-%05d-of-%s" % (match.group(1), number, match.group(2)) in files
      for number in range(int(match.group(2)))
    )
  }
  return sorted(
    (
      name
      for name in fnmatch.filter(names, pattern)
      if name + ".index" in files
      and (_is_whole_index(os.path.join(folder, name + ".index")))
    ),
    key=lambda name: (int(re.findall("[0-9]*$", name)[0] or -1), name),
  )


def _is_whole_index(path):
  """Returns whether an index ends with LevelDB's magic number."""
  with filesystem.open_binary(path) as reader:
    reader.seek(max(0, reader.seek(0, os.SEEK_END) - 8))
    return reader.read() == 0xDB4775248B80FB57.to_bytes(8, "little")


def latest_checkpoint(folder: str, pattern: str = "*-[0-9]*") -> Optional[str]:
  """Returns the path of a folder's newest complete checkpoint, or None.

  The newest is the one named in the file `checkpoint` if it is complete and in
  the folder, otherwise the one with the highest step.

  Args:
    folder: may not exist.
    pattern: glob of checkpoint names; by default, names that end in a step.
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


def named_in(output_dir: str, init_checkpoint: Optional[str]) -> Optional[str]:
  """Returns `init_checkpoint` if it is a checkpoint in `output_dir`, else None.

  Users who name one of several checkpoints want its results, not the newest.
  """
  if not init_checkpoint or not tf.io.gfile.exists(init_checkpoint + ".index"):
    return None
  folder = os.path.dirname(init_checkpoint) or "."
  return init_checkpoint if filesystem.is_same(folder, output_dir) else None


def newest_or_best(output_dir: str) -> Optional[str]:
  """Returns a folder's newest checkpoint, else its best one, else None."""
  return latest_checkpoint(output_dir) or latest_checkpoint(
    os.path.join(output_dir, "best")
  )


def name_whole_checkpoints(folder: str) -> None:
  """Lists only complete checkpoints in `checkpoint`, which Estimators read."""
  path = os.path.join(folder, "checkpoint")
  latest = latest_checkpoint(folder)
  if latest:
    names = whole_checkpoints(folder)
    name_newest(folder, *names[: names.index(os.path.basename(latest)) + 1])
  elif tf.io.gfile.exists(path):
    tf.io.gfile.remove(path)


def newest_finite_checkpoint(folder: str) -> str:
  """Returns the newest checkpoint without NaN or infinity, or "none"."""
  for name in reversed(whole_checkpoints(folder)):
    path = os.path.join(folder, name)
    reader = tf.train.load_checkpoint(path)
    if all(
      np.all(np.isfinite(reader.get_tensor(name)))
      for name in reader.get_variable_to_shape_map()
    ):
      return path
  return "none"


def remove_unfinished_checkpoints(folder: str) -> None:
  """Removes temporary files of interrupted checkpoint writes."""
  temporary = re.compile(
    r"model\.ckpt-\d+_temp.*|model\.ckpt-\d+\.\S*tempstate\d+|"
    r"(model\.ckpt-\d+\.meta|checkpoint|graph\.pbtxt)\.tmp[0-9a-f]{32}"
  )
  for name in tf.io.gfile.listdir(folder):
    if not temporary.fullmatch(name.rstrip("/")):
      continue
    path = os.path.join(folder, name)
    if tf.io.gfile.isdir(path):
      tf.io.gfile.rmtree(path)
    else:
      tf.io.gfile.remove(path)


def step_of(checkpoint: Optional[str]) -> int:
  """Returns the step in a checkpoint's name, 0 for None."""
  return int(checkpoint.rsplit("-", 1)[1]) if checkpoint else 0


def start_step(output_dir: str) -> int:
  """Returns the step from which training in `output_dir` will resume."""
  return step_of(latest_checkpoint(output_dir))


def require_model(init_checkpoint: Optional[str], output_dir: str) -> None:
  """Raises an InputError if there is no checkpoint to evaluate or predict."""
  if not (init_checkpoint or newest_or_best(output_dir)):
    raise InputError(
      "%s has no checkpoint: train first, or give "
      "--init_checkpoint" % output_dir
    )
