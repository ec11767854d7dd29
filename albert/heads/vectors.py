"""What the encoder itself gives: vectors of tokens and of texts."""

import tensorflow.compat.v1 as tf

from albert.heads import base

_MARKER = "bert/pooler/dense/kernel"


class Encode(base.Head):
  """The last layer, the pooled output, and all layers: `layer_0` and on."""
  name = signature = "encode"
  marker = _MARKER
  tensorflow_outputs = ("sequence_output", "pooled_output")

  def outputs(self, model, inputs):
    outputs = {"sequence_output": model.get_sequence_output(),
               "pooled_output": model.get_pooled_output()}
    layers = [model.get_embedding_output()] + model.get_all_encoder_layers()
    return dict(outputs, **{"layer_%d" % number: x
                            for number, x in enumerate(layers)})


class SentenceVector(base.Head):
  """One vector for each text: `vector`, and others by pooling and layer.

  Args:
    pooling, layer: what `vector` is; see `sentence_vectors`.
  """
  name = signature = "sentence_vector"
  marker = _MARKER
  tensorflow_outputs = ("vector",)

  def __init__(self, pooling="mean", layer=-1):
    self.pooling = pooling
    self.layer = layer

  @classmethod
  def restore(cls, saved, folder):
    return cls(*folder.vector or ()) if cls.marker in saved else None

  def outputs(self, model, inputs):
    vectors = {"vector": sentence_vectors(model, self.pooling, self.layer),
               "pooled": model.get_pooled_output()}
    for layer in range(1 + model.config.num_hidden_layers):
      for pooling in ("mean", "cls"):
        vectors["%s_%d" % (pooling, layer)] = sentence_vectors(
            model, pooling, layer)
    return vectors


def sentence_vectors(model, pooling="mean", layer=-1):
  """Returns one vector for each text, float [B, H].

  Args:
    model: AlbertModel.
    pooling: "mean" of the tokens' vectors, [CLS] and [SEP] included; "cls", the
      vector of [CLS]; "pooled", the pooled output, whatever the layer.
    layer: int, 1 for the first, 0 for the embeddings, -1 for the last.
  """
  if pooling == "pooled":
    return model.get_pooled_output()
  layers = [model.get_embedding_output()] + model.get_all_encoder_layers()
  x = layers[layer]  # [B, S, H]
  if pooling == "cls":
    return x[:, 0]
  weights = tf.expand_dims(tf.cast(model.input_mask, tf.float32), -1)
  return tf.reduce_sum(x * weights, 1) / tf.reduce_sum(weights, 1)
