"""Exports models as SavedModel and TFLite."""

import os
import sys
from typing import Dict, Optional, Sequence

import tensorflow.compat.v1 as tf

from albert.export import frozen
from albert.files import checkpoints
from albert.heads.base import Head
from albert.heads.signatures import build_signature
from albert.model import kernels
from albert.model.config import AlbertConfig


def save_model(
  config: AlbertConfig,
  heads: Dict[str, Head],
  checkpoint: str,
  folder: str,
  assets: Sequence[str],
) -> None:
  """Writes a SavedModel for any batch size and length.

  Args:
    config: configuration of the model.
    heads: heads by signature; the first is the default.
    checkpoint: path of the checkpoint.
    folder: the folder to create.
    assets: paths of files to copy into it.
  """
  builder = tf.saved_model.builder.SavedModelBuilder(folder)
  with tf.Graph().as_default():
    for path in assets:
      tf.add_to_collection(tf.GraphKeys.ASSET_FILEPATHS, tf.constant(path))
    definitions = {}
    for name, head in heads.items():
      signature = build_signature(config, head)
      definitions[name] = tf.saved_model.predict_signature_def(
        signature.inputs, _outputs(head, signature)
      )
    definitions["serving_default"] = definitions[next(iter(heads))]
    with checkpoints.restored_session(checkpoint) as session:
      builder.add_meta_graph_and_variables(
        session,
        [tf.saved_model.tag_constants.SERVING],
        definitions,
        assets_collection=tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS),
      )
      builder.save()


def _outputs(head, signature):
  """Returns the outputs in these formats, by name."""
  return {
    name: x
    for name, x in signature.outputs.items()
    if name in (head.tensorflow_outputs or signature.outputs)
  }


def to_tflite(
  config: AlbertConfig,
  head: Head,
  checkpoint: str,
  batch_size: int,
  length: int,
  num_positions: Optional[int],
  int8: bool = False,
) -> bytes:
  """Returns the content of a TFLite file.

  Args:
    config: configuration of the model.
    head: the head to export.
    checkpoint: path of the checkpoint.
    batch_size, length, num_positions: see `signatures.build_signature`.
    int8: whether to quantize weights to 8 bits.
  """
  graph, signature = frozen.freeze(
    config,
    head,
    checkpoint,
    kernels.for_phones(batch_size),
    batch_size=batch_size,
    length=length,
    num_positions=num_positions,
  )
  # TF 1.15 converts with a program in the folder of the Python executable.
  os.environ["PATH"] = os.pathsep.join(
    [os.path.dirname(sys.executable), os.environ.get("PATH", "")]
  )
  with tf.Graph().as_default():
    tf.import_graph_def(graph, name="")
    converter = tf.lite.TFLiteConverter(
      graph,
      list(signature.inputs.values()),
      list(_outputs(head, signature).values()),
    )
    if int8:
      converter.optimizations = [tf.lite.Optimize.DEFAULT]
    return converter.convert()
