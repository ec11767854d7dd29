"""What a TPU would have to compile of a training step."""

import tensorflow.compat.v1 as tf
from tensorflow.python.framework import kernels

# Handled by the compiler itself, not by kernels.
_STRUCTURAL = {
    "CrossReplicaSum", "Placeholder", "VarHandleOp", "NoOp", "PartitionedCall",
    "StatefulPartitionedCall", "Enter", "Exit", "Merge", "Switch",
    "NextIteration", "LoopCond"}


def ops(model_fn, features):
  """Returns the types of the step's operations, loop bodies included.

  Args:
    model_fn: of a TPUEstimator.
    features: dict, name -> array.

  Returns:
    (set of str; list of the shapes of what they give)
  """
  with tf.Graph().as_default() as graph:
    spec = model_fn({name: tf.placeholder(x.dtype, x.shape)
                     for name, x in features.items()}, None,
                    tf.estimator.ModeKeys.TRAIN, {})
    wanted = [spec.train_op.name, spec.loss.op.name]
    needed = tf.graph_util.extract_sub_graph(graph.as_graph_def(), wanted)
    names = {node.name for node in needed.node}
    shapes = [t.shape for op in graph.get_operations() for t in op.outputs
              if op.name in names]
    nodes = list(needed.node)
    for function in needed.library.function:
      nodes += function.node_def
    return {node.op for node in nodes}, shapes


def without_kernel(types):
  """Returns those types of operations that XLA cannot compile."""
  with tf.Graph().as_default(), tf.Session() as session:
    # What is compiled first registers the kernels.
    session.run(tf.xla.experimental.compile(lambda: tf.constant(0.0)))
  return [op for op in sorted(types - _STRUCTURAL) if not any(
      kernel.device_type.startswith("XLA_")
      for kernel in kernels.get_registered_kernels_for_op(op).kernel)]
