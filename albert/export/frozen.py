"""Freezes a signature: a graph with a checkpoint's weights as constants.

Tests: tests/export/test_tensorflow_files.py.
"""

from typing import Any, Tuple

import tensorflow.compat.v1 as tf

import modeling
from albert.files import checkpoints
from albert.heads.base import Head
from albert.heads.signatures import Signature, build_signature
from albert.model.config import AlbertConfig


def freeze(
  config: AlbertConfig,
  head: Head,
  checkpoint: str,
  kernels: modeling.Kernels = modeling.PLAIN,
  **sizes: Any,
) -> Tuple[tf.GraphDef, Signature]:
  """Returns the frozen graph of a signature.

  Args:
    config: configuration of the model.
    head: the head to export.
    checkpoint: path of the checkpoint.
    kernels, **sizes: see `signatures.build_signature`.
  """
  with tf.Graph().as_default() as graph:
    signature = build_signature(config, head, kernels=kernels, **sizes)
    with checkpoints.restored_session(checkpoint) as session:
      return tf.graph_util.convert_variables_to_constants(
        session,
        graph.as_graph_def(),
        [tensor.op.name for tensor in signature.outputs.values()],
      ), signature
