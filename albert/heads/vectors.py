"""Token and sentence vectors, and losses for their cosines."""

from typing import Dict, List, Optional

import tensorflow.compat.v1 as tf

from albert.heads import base
from albert.model_folder import ModelFolder
from modeling import AlbertModel

LOSSES = ("cosent", "in_batch", "simcse")
_MARKER = "bert/pooler/dense/kernel"


class Encode(base.Head):
  """The last layer, the pooled output, and all layers from `layer_0`."""

  name = signature = "encode"
  marker = _MARKER
  tensorflow_outputs = ("sequence_output", "pooled_output")

  def outputs(
    self, model: AlbertModel, inputs: Dict[str, tf.Tensor]
  ) -> Dict[str, tf.Tensor]:
    outputs = {
      "sequence_output": model.get_sequence_output(),
      "pooled_output": model.get_pooled_output(),
    }
    layers = [model.get_embedding_output()] + model.get_all_encoder_layers()
    return dict(
      outputs, **{"layer_%d" % number: x for number, x in enumerate(layers)}
    )


class SentenceVector(base.Head):
  """One vector per text: `vector`, and one per pooling and layer.

  Args:
    pooling, layer: settings of `vector`; see `sentence_vectors`.
  """

  name = signature = "sentence_vector"
  marker = _MARKER
  tensorflow_outputs = ("vector",)

  def __init__(self, pooling: str = "mean", layer: int = -1):
    self.pooling = pooling
    self.layer = layer

  @classmethod
  def restore(
    cls, saved: Dict[str, List[int]], folder: ModelFolder
  ) -> Optional[base.Head]:
    return cls(*folder.vector or ()) if cls.marker in saved else None

  def outputs(
    self, model: AlbertModel, inputs: Dict[str, tf.Tensor]
  ) -> Dict[str, tf.Tensor]:
    vectors = {
      "vector": sentence_vectors(model, self.pooling, self.layer),
      "pooled": model.get_pooled_output(),
    }
    for layer in range(1 + model.config.num_hidden_layers):
      for pooling in ("mean", "cls"):
        vectors["%s_%d" % (pooling, layer)] = sentence_vectors(
          model, pooling, layer
        )
    return vectors


def sentence_vectors(
  model: AlbertModel, pooling: str = "mean", layer: int = -1
) -> tf.Tensor:
  """Returns one vector per text, float [B, H].

  Args:
    model: the encoder.
    pooling: "mean" over the tokens, [CLS] and [SEP] included; "cls" for the
      vector of [CLS]; "pooled" for the pooled output, which ignores `layer`.
    layer: 1 for the first, 0 for the embeddings, -1 for the last.
  """
  if pooling == "pooled":
    return model.get_pooled_output()
  layers = [model.get_embedding_output()] + model.get_all_encoder_layers()
  x = layers[layer]  # [B, S, H]
  if pooling == "cls":
    return x[:, 0]
  weights = tf.expand_dims(tf.cast(model.input_mask, tf.float32), -1)
  return tf.reduce_sum(x * weights, 1) / tf.reduce_sum(weights, 1)


class Likeness(SentenceVector):
  """Trains sentence vectors.

  Additional features:
    texts   int [B, R], ids of the texts; equal texts have equal ids
    scores  float [B], similarity of the first two texts, for "cosent"

  An example has R texts: a pair, and for in-batch losses an optional hard
  negative. "simcse" is the in-batch loss of each text paired with itself; the
  two vectors differ in dropout.

  Args:
    loss: one of LOSSES.
    scale: factor of the cosines.
    pooling, layer: see `sentence_vectors`.
  """

  def __init__(
    self, loss: str, scale: float, pooling: str = "mean", layer: int = -1
  ):
    super().__init__(pooling, layer)
    self._loss = loss
    self._scale = scale

  def apply(
    self, model: AlbertModel, features: Dict[str, tf.Tensor]
  ) -> base.HeadOutput:
    x = tf.reshape(
      sentence_vectors(model, self.pooling, self.layer),
      [-1, features["input_ids"].shape.as_list()[1], model.config.hidden_size],
    )
    x = tf.nn.l2_normalize(x, -1)
    cosines = tf.reduce_sum(x[:, 0] * x[:, 1], -1)
    predictions = {"cosines": cosines}
    if "texts" not in features:
      return base.HeadOutput(predictions)
    if self._loss == "cosent":
      loss = cosent_loss(cosines, features["scores"], self._scale)
      return base.example_losses(tf.fill(tf.shape(cosines), loss), predictions)
    logits = in_batch_logits(x, features["texts"], self._scale)
    labels = tf.range(tf.shape(logits)[0])
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=labels, logits=logits
    )
    return base.example_losses(
      losses, predictions, accuracy=base.hits(logits, labels)
    )


def in_batch_logits(x: tf.Tensor, texts: tf.Tensor, scale: float) -> tf.Tensor:
  """Scores all second texts and hard negatives of a batch for each first text.

  The loss is the cross entropy with the second text of the example as label
  (Gao et al., arXiv:2104.08821, equations 1, 4 and 5). A candidate is not used
  as a negative if it equals the first or second text of the example, or is the
  positive of one of these in another example.

  Args:
    x: float [B, R, H], normalized; see `Likeness`.
    texts: int [B, R], ids.
    scale: factor of the cosines.

  Returns:
    float [B, B * (R - 1)], the label of example i is column i.
  """
  count = x.shape.as_list()[1]
  candidates = tf.concat([x[:, i] for i in range(1, count)], 0)
  numbers = tf.concat([texts[:, i] for i in range(1, count)], 0)
  # The text of which each candidate is a positive; for hard negatives, itself.
  likes = tf.concat([texts[:, 0]] + [texts[:, i] for i in range(2, count)], 0)
  logits = scale * tf.matmul(x[:, 0], candidates, transpose_b=True)

  def same(column, row):
    return tf.equal(tf.expand_dims(column, 1), tf.expand_dims(row, 0))

  alike = tf.reduce_any(
    [same(texts[:, i], other) for i in range(2) for other in (numbers, likes)],
    0,
  )
  own = tf.eye(tf.shape(logits)[0], tf.shape(logits)[1]) > 0
  no_answer = tf.logical_and(alike, tf.logical_not(own))
  return tf.where(no_answer, tf.fill(tf.shape(logits), -1e9), logits)


def cosent_loss(
  cosines: tf.Tensor, scores: tf.Tensor, scale: float
) -> tf.Tensor:
  """Trains pairs with higher scores to have higher cosines.

  log(1 + sum of exp(scale * (cos_j - cos_i)) over all i, j with score_i >
  score_j) (Su, "CoSENT", https://kexue.fm/archives/8847).

  Args:
    cosines, scores: float [B].
    scale: factor of the cosines.

  Returns:
    float scalar; 0 if all scores are equal.
  """
  differences = scale * (
    tf.expand_dims(cosines, 0) - tf.expand_dims(cosines, 1)
  )  # cos_j - cos_i at [i, j]
  is_above = tf.expand_dims(scores, 1) > tf.expand_dims(scores, 0)
  terms = tf.where(is_above, differences, tf.fill(tf.shape(differences), -1e9))
  return tf.reduce_logsumexp(tf.concat([[0.0], tf.reshape(terms, [-1])], 0))
