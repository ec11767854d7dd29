"""A signature's graph with the weights of a checkpoint in it, to convert.

Tests: tests/export/test_tensorflow_files.py.
"""

import tensorflow.compat.v1 as tf

import modeling
from albert.files import checkpoints
from albert.heads.signatures import build_signature


def freeze(config, head, checkpoint, kernels=modeling.PLAIN, **sizes):
  """Returns (GraphDef, Signature).

  Args:
    config: AlbertConfig.
    head: heads.base.Head.
    checkpoint: str.
    kernels, **sizes: see `signatures.build_signature`.
  """
  with tf.Graph().as_default() as graph:
    signature = build_signature(config, head, kernels=kernels, **sizes)
    with checkpoints.restored_session(checkpoint) as session:
      return tf.graph_util.convert_variables_to_constants(
          session, graph.as_graph_def(),
          [tensor.op.name for tensor in signature.outputs.values()]), signature
