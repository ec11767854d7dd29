"""--dry_run: checks a command for TPU cores or GPUs without the hardware.

Builds the graphs of training, evaluation and prediction for one core, or one
host's GPUs, and inspects them without running them.
"""

import collections
import importlib.util
import re
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import kernels as registry

from albert.train.settings import TrainSettings

_MODES = {
  "training": tf.estimator.ModeKeys.TRAIN,
  "evaluation": tf.estimator.ModeKeys.EVAL,
  "prediction": tf.estimator.ModeKeys.PREDICT,
}
# Handled by the compiler, not by kernels.
_STRUCTURAL = {
  "CrossReplicaSum",
  "Placeholder",
  "VarHandleOp",
  "NoOp",
  "PartitionedCall",
  "StatefulPartitionedCall",
  "Enter",
  "Exit",
  "Merge",
  "Switch",
  "NextIteration",
  "LoopCond",
}
_GIB = 2.0**30


class Step(NamedTuple):
  """The graph of a step.

  Attributes:
    nodes: NodeDefs, including those of loops and functions.
    shapes: TensorShapes of the nodes' outputs.
    memory: purpose -> bytes per device, as far as known.
  """

  nodes: List[Any]
  shapes: List[Any]
  memory: Dict[str, int]

  @property
  def types(self) -> Set[str]:
    """Types of the operations."""
    return {node.op for node in self.nodes}

  @property
  def has_static_shapes(self) -> bool:
    """Whether the shapes of all matrices are static."""
    return all(
      shape.is_fully_defined()
      for shape in self.shapes
      if shape.rank is not None and shape.rank > 1
    )


def make_step(
  model_fn: Callable[..., Any],
  features: Dict[str, Tuple[tf.DType, List[int]]],
  mode: str = tf.estimator.ModeKeys.TRAIN,
) -> Step:
  """Builds the graph of a step.

  Args:
    model_fn: see `step.model_fn_builder`.
    features: name -> (dtype, shape).
    mode: one of tf.estimator.ModeKeys.
  """
  with tf.Graph().as_default() as graph:
    tf.train.get_or_create_global_step()
    spec = model_fn(
      {name: tf.placeholder(*x) for name, x in features.items()}, None, mode, {}
    )
    wanted = [spec.loss, spec.train_op]
    if mode == tf.estimator.ModeKeys.EVAL:
      wanted = [spec.loss, *spec.eval_metrics[1]]
    elif mode == tf.estimator.ModeKeys.PREDICT:
      wanted = list(spec.predictions.values())
    needed = tf.graph_util.extract_sub_graph(
      graph.as_graph_def(), [getattr(x, "op", x).name for x in wanted]
    )
    names = {node.name for node in needed.node}
    nodes = list(needed.node)
    for function in needed.library.function:
      nodes += function.node_def
    return Step(
      nodes,
      [
        t.shape
        for op in graph.get_operations()
        for t in op.outputs
        if op.name in names
      ],
      _memory(graph, names),
    )


def _memory(graph, names):
  """Estimates the memory of a step: purpose -> bytes per device.

  The backward pass needs the tensors that its operations read but do not
  compute; slices of a batch need them one after the other.
  """

  def size(tensor):
    shape = tensor.shape
    if not shape.is_fully_defined():
      return 0
    return int(np.prod(shape.as_list(), dtype=np.int64)) * tensor.dtype.size

  kept = collections.defaultdict(dict)
  for op in graph.get_operations():
    if op.name in names and re.search(r"(^|/)gradients(_\d+)?/", op.name):
      place = op.device, op._get_control_flow_context()
      kept[place].update(
        {
          x.name: size(x)
          for x in op.inputs
          if x.op.type != "VarHandleOp"
          and not re.search(r"(^|/)gradients(_\d+)?/", x.op.name)
        }
      )
  trained = tf.trainable_variables()
  weights = sum(map(size, trained))
  everything = sum(map(size, tf.global_variables()))
  return {
    "weights": weights,
    "optimizer": everything - weights,
    "gradients": weights if kept else 0,
    "kept for the backward pass": max(
      (sum(sizes.values()) for sizes in kept.values()), default=0
    ),
  }


def without_xla_kernel(types: Set[str]) -> List[str]:
  """Returns the operation types that XLA cannot compile."""
  with tf.Graph().as_default(), tf.Session() as session:
    # The first compilation registers the kernels.
    session.run(tf.xla.experimental.compile(lambda: tf.constant(0.0)))
  return [
    op
    for op in sorted(types - _STRUCTURAL)
    if not any(kernel.device_type.startswith("XLA_") for kernel in _kernels(op))
  ]


def without_gpu_kernel(nodes: List[Any]) -> Optional[List[str]]:
  """Returns the types of NodeDefs that would run on the CPU.

  Returns:
    None if TensorFlow was built without GPU support.
  """

  def fits(kernel, node):
    return kernel.device_type in ("GPU", "DEFAULT") and all(
      node.attr[constraint.name].type in constraint.allowed_values.list.type
      for constraint in kernel.constraint
      if constraint.name in node.attr and node.attr[constraint.name].type
    )

  if not any(kernel.device_type == "GPU" for kernel in _kernels("MatMul")):
    return None
  return sorted(
    {
      node.op
      for node in nodes
      if _kernels(node.op)
      and not any(fits(kernel, node) for kernel in _kernels(node.op))
    }
  )


def _kernels(op):
  return registry.get_registered_kernels_for_op(op).kernel


class DryRun:
  """Stands in for an estimator: its first use reports and exits.

  Args:
    settings: settings of the run.
    model_fn: see `step.model_fn_builder`.

  Attributes:
    model_dir: folder for files written earlier.
  """

  def __init__(self, settings: TrainSettings, model_fn: Callable[..., Any]):
    self.model_dir = settings.run.output_dir
    self._settings = settings
    self._model_fn = model_fn

  def train(self, input_fn: Callable[..., Any], **_: Any) -> None:
    self._report(input_fn, ["training", "evaluation", "prediction"])

  def evaluate(self, input_fn: Callable[..., Any], **_: Any) -> None:
    self._report(input_fn, ["evaluation", "prediction"])

  def predict(self, input_fn: Callable[..., Any], **_: Any) -> None:
    self._report(input_fn, ["prediction"])

  def _report(self, input_fn, names):
    device, batch = self._settings.device, self._settings.batch
    cores = device.num_tpu_cores if device.use_tpu else 1
    rows, failures, memory = [], [], {}
    for name in names:
      is_training = name == "training"
      size = batch.train_batch_size if is_training else batch.eval_batch_size
      found = make_step(
        self._model_fn, self._features(input_fn, size // cores), _MODES[name]
      )
      memory = memory or found.memory  # the first step needs most
      fits, verdict = self._judge(found)
      if not fits:
        failures.append(name)
      place = (
        "for each core"
        if device.use_tpu
        else "for %d GPU(s)" % (device.num_gpus if is_training else 1)
      )
      rows.append(
        (
          name,
          "%d examples per step, %d %s; %d operation types, %s"
          % (size, size // cores, place, len(found.types), verdict),
        )
      )
    parts = ", ".join(
      "%s %.2f" % (what, count / _GIB)
      for what, count in memory.items()
      if count
    )
    limits = "; a core of TPU v2 has 8, of v3 16" if device.use_tpu else ""
    rows.append(
      (
        "memory",
        "%.2f GiB per device, an estimate: %s%s"
        % (sum(memory.values()) / _GIB, parts, limits),
      )
    )
    package = (
      "googleapiclient"
      if tf.__version__.startswith("1.")
      else ("cloud_tpu_client")
    )
    if (
      device.tpu_name
      and "://" not in device.tpu_name
      and (not importlib.util.find_spec(package))
    ):
      rows.append(
        (
          "needs",
          "pip install '.[tpu]', to find --tpu_name=%s" % device.tpu_name,
        )
      )
    print(
      "dry run of %s on TensorFlow %s: nothing is trained or saved"
      % (device.dry_run, tf.__version__)
    )
    for row in rows:
      print("  %-12s%s" % row)
    sys.exit(
      "ERROR: %s would not run" % " and ".join(failures) if failures else 0
    )

  def _features(self, input_fn, batch_size):
    """Returns the features of a batch: name -> (dtype, shape)."""
    with tf.Graph().as_default():
      dataset = input_fn({"batch_size": batch_size})
      types, shapes = [
        get(dataset)
        for get in (tf.data.get_output_types, tf.data.get_output_shapes)
      ]
    longest = self._settings.data and self._settings.data.max_seq_length
    return {
      name: (
        types[name],
        [batch_size]
        + [longest if size is None else size for size in shape.as_list()[1:]],
      )
      for name, shape in shapes.items()
    }

  def _judge(self, found):
    """Returns whether a Step would run, and why."""
    if self._settings.device.use_tpu:
      lacking = without_xla_kernel(found.types)
      verdict = "XLA has all"
      if lacking:
        verdict = "XLA lacks %s" % ", ".join(lacking)
      if not found.has_static_shapes:
        verdict += "; shapes are not static"
      return found.has_static_shapes and not lacking, verdict
    lacking = without_gpu_kernel(found.nodes)
    if lacking is None:
      return True, "this TensorFlow has no GPU kernels to check"
    return True, "on the host's CPU: %s" % (", ".join(lacking) or "none")
