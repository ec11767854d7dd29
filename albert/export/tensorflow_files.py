"""Models as SavedModel and TFLite."""

import os
import sys

import tensorflow.compat.v1 as tf

from albert.export import frozen
from albert.files import checkpoints
from albert.heads.signatures import build_signature
from albert.model import kernels


def save_model(config, heads, checkpoint, folder, assets):
  """Writes a SavedModel of any batch and length.

  Args:
    config: AlbertConfig.
    heads: dict, signature -> heads.base.Head; the first is the default.
    checkpoint: str.
    folder: str.
    assets: list of str, paths of files to put into it.
  """
  builder = tf.saved_model.builder.SavedModelBuilder(folder)
  with tf.Graph().as_default():
    for path in assets:
      tf.add_to_collection(tf.GraphKeys.ASSET_FILEPATHS, tf.constant(path))
    definitions = {}
    for name, head in heads.items():
      signature = build_signature(config, head)
      definitions[name] = tf.saved_model.predict_signature_def(
          signature.inputs, _outputs(head, signature))
    definitions["serving_default"] = definitions[next(iter(heads))]
    with checkpoints.restored_session(checkpoint) as session:
      builder.add_meta_graph_and_variables(
          session, [tf.saved_model.tag_constants.SERVING], definitions,
          assets_collection=tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS))
      builder.save()


def _outputs(head, signature):
  """Returns the outputs that these files have: name -> tensor."""
  return {name: x for name, x in signature.outputs.items()
          if name in (head.tensorflow_outputs or signature.outputs)}


def to_tflite(config, head, checkpoint, batch_size, length, num_positions,
              int8=False):
  """Returns the bytes of a TFLite file.

  Args:
    config: AlbertConfig.
    head: heads.base.Head.
    checkpoint: str.
    batch_size, length, num_positions: int; see `signatures.build_signature`.
    int8: bool, weights of 8 bits.
  """
  graph, signature = frozen.freeze(
      config, head, checkpoint, kernels.for_phones(batch_size),
      batch_size=batch_size, length=length, num_positions=num_positions)
  # TensorFlow 1.15 converts with a program in the folder of python.
  os.environ["PATH"] = os.pathsep.join(
      [os.path.dirname(sys.executable), os.environ.get("PATH", "")])
  with tf.Graph().as_default():
    tf.import_graph_def(graph, name="")
    converter = tf.lite.TFLiteConverter(
        graph, list(signature.inputs.values()),
        list(_outputs(head, signature).values()))
    if int8:
      converter.optimizations = [tf.lite.Optimize.DEFAULT]
    return converter.convert()
