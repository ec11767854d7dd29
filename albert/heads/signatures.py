"""The graph of an exported model, from token ids to a head's outputs."""

from typing import Dict, NamedTuple, Optional

import tensorflow.compat.v1 as tf

import modeling
from albert.heads.base import Head
from albert.model.config import AlbertConfig
from albert.model.layouts import create_model

INPUTS = ("input_ids", "input_mask", "segment_ids")


class Signature(NamedTuple):
  """Inputs and outputs of an exported model.

  Attributes:
    inputs: name -> placeholder, int32 [B, S], or [B, P] for extra inputs.
    outputs: name -> tensor [B, ...].
  """

  inputs: Dict[str, tf.Tensor]
  outputs: Dict[str, tf.Tensor]


def build_signature(
  config: AlbertConfig,
  head: Head,
  batch_size: Optional[int] = None,
  length: Optional[int] = None,
  num_positions: Optional[int] = None,
  kernels: modeling.Kernels = modeling.PLAIN,
) -> Signature:
  """Builds a signature in the default graph.

  The last layer computes only the tokens that the head needs.

  Args:
    config: configuration of the model.
    head: the head to export.
    batch_size, length, num_positions: B, S, P; None for any.
    kernels: see modeling.Kernels.
  """
  # TFLite files keep the names of these placeholders.
  inputs = {
    name: tf.placeholder(tf.int32, [batch_size, length], name)
    for name in INPUTS
  }
  inputs.update(
    (name, tf.placeholder(tf.int32, [batch_size, num_positions], name))
    for name in head.extra_inputs
  )
  with tf.name_scope(head.signature):
    model = create_model(
      config,
      False,
      *[inputs[name] for name in INPUTS],
      kernels=kernels,
      output_positions=head.positions(inputs),
    )
    return Signature(
      inputs,
      {
        name: tf.identity(x, name)
        for name, x in head.outputs(model, inputs).items()
      },
    )
