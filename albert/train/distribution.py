"""Training on many devices: Horovod processes or TPU replicas."""

import os
from typing import Callable, List, NamedTuple

import tensorflow.compat.v1 as tf

from albert.errors import InputError


class Workers(NamedTuple):
  """The processes that train together, as seen by one of them.

  Attributes:
    rank: index of this process; rank 0 reads checkpoints, writes all files,
      evaluates and logs.
    size: number of processes.
    local_rank: index on this host.
    reduce_mean: maps float tensors to their means over all processes.
  """

  rank: int
  size: int
  local_rank: int
  reduce_mean: Callable[[List[tf.Tensor]], List[tf.Tensor]]


def get_workers(use_horovod: bool = False, use_tpu: bool = False) -> Workers:
  """Returns the Workers; a TPU's replicas run one program and count as one.

  Assigns one of the host's GPUs to each Horovod process. Must be called before
  TensorFlow looks for GPUs.

  Raises:
    InputError: Horovod is requested but not installed.
  """
  if use_horovod and use_tpu:
    raise InputError(
      "--use_horovod is for GPUs and CPUs; --use_tpu alone uses all of a TPU"
    )
  if not use_horovod:
    return Workers(0, 1, 0, _tpu_mean if use_tpu else list)
  hvd = _horovod()
  visible = os.environ.get("CUDA_VISIBLE_DEVICES")
  if visible is None:
    os.environ["CUDA_VISIBLE_DEVICES"] = str(hvd.local_rank())
  elif "," in visible:
    os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[hvd.local_rank()]
  return Workers(hvd.rank(), hvd.size(), hvd.local_rank(), _horovod_mean)


def broadcast(number: int) -> int:
  """Returns the number of rank 0 on every rank."""
  hvd = _horovod()
  with tf.Graph().as_default(), tf.Session(
    config=tf.ConfigProto(device_count={"GPU": 0})
  ) as session:
    return int(
      session.run(
        hvd.broadcast(tf.constant(number, tf.int64), 0, name="broadcast_number")
      )
    )


def broadcast_variables_hook() -> tf.train.SessionRunHook:
  """Returns the hook that copies the variables of rank 0 to every rank."""
  return _horovod().BroadcastGlobalVariablesHook(0)


class StopTogetherHook(tf.train.SessionRunHook):
  """Stops all ranks together when rank 0 decides to.

  Args:
    every: decides at multiples of this many steps, after their evaluation.
    should_stop: called on rank 0.
  """

  def __init__(self, every: int, should_stop: Callable[[], bool]):
    self._every = every
    self._should_stop = should_stop

  def begin(self) -> None:
    self._mine = tf.placeholder(tf.int32, [])
    self._decision = _horovod().broadcast(self._mine, 0, name="stop")
    self._step = tf.train.get_global_step()

  def after_run(
    self,
    run_context: tf.train.SessionRunContext,
    run_values: tf.train.SessionRunValues,
  ) -> None:
    session = run_context.session
    if session.run(self._step) % self._every:
      return
    is_first = _horovod().rank() == 0
    if session.run(
      self._decision, {self._mine: int(is_first and self._should_stop())}
    ):
      run_context.request_stop()


def _horovod():
  try:
    import horovod.tensorflow as hvd
  except ImportError as error:
    raise InputError(
      "--use_horovod: Horovod does not start (%s); docs/pretraining.md "
      "describes how to build it" % error
    ) from error
  hvd.init()
  return hvd


def _horovod_mean(tensors):
  hvd = _horovod()

  def mean(tensor, number):
    # The name must not depend on the order of graph construction.
    return hvd.allreduce(
      tensor, op=hvd.Average, name="mean_%d_%d" % (len(tensors), number)
    )

  # TF 2.15 folds constants when a session optimizes a graph; if only one rank
  # folds an allreduce, the rest wait forever. So scalars, some of which are
  # constants, are packed with the step, which is not.
  scalars = [i for i, tensor in enumerate(tensors) if not tensor.shape.ndims]
  step = tf.cast(tf.train.get_or_create_global_step(), tf.float32)
  packed = tf.stack([tensors[i] for i in scalars] + [step])
  means = dict(zip(scalars, tf.unstack(mean(packed, len(tensors)))))
  return [
    means[i] if i in means else mean(tensor, i)
    for i, tensor in enumerate(tensors)
  ]


def _tpu_mean(tensors):
  replicas = tf.tpu.cross_replica_sum(tf.ones([]))
  return [tf.tpu.cross_replica_sum(tensor) / replicas for tensor in tensors]
