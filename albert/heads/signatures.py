"""The graph of what an exported model gives, from ids to a head's outputs."""

from typing import Dict, NamedTuple

import tensorflow.compat.v1 as tf

import modeling
from albert.model.layouts import create_model

INPUTS = ("input_ids", "input_mask", "segment_ids")


class Signature(NamedTuple):
  """What goes in and comes out.

  Attributes:
    inputs: name -> placeholder, int32 [B, S], or [B, P] of further inputs.
    outputs: name -> tensor [B, ...].
  """
  inputs: Dict[str, tf.Tensor]
  outputs: Dict[str, tf.Tensor]


def build_signature(config, head, batch_size=None, length=None,
                    num_positions=None, kernels=modeling.PLAIN):
  """Builds a signature in the default graph.

  The last layer computes only the tokens that the head needs.

  Args:
    config: AlbertConfig.
    head: heads.base.Head.
    batch_size, length, num_positions: int, or None for any.
    kernels: modeling.Kernels.

  Returns:
    Signature.
  """
  # TFLite files know inputs by the names of these.
  inputs = {name: tf.placeholder(tf.int32, [batch_size, length], name)
            for name in INPUTS}
  inputs.update((name, tf.placeholder(
      tf.int32, [batch_size, num_positions], name))
                for name in head.extra_inputs)
  with tf.name_scope(head.signature):
    model = create_model(
        config, False, *[inputs[name] for name in INPUTS], kernels=kernels,
        output_positions=head.positions(inputs))
    return Signature(inputs, {name: tf.identity(x, name) for name, x in
                              head.outputs(model, inputs).items()})
