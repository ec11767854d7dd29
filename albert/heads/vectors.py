"""Vectors of tokens and of texts, and losses that make their cosine a score."""

import tensorflow.compat.v1 as tf

from albert.heads import base

LOSSES = ("cosent", "in_batch", "simcse")
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


class Likeness(SentenceVector):
  """Vectors that are trained; features besides those of the sequences:

    texts   int [B, R], numbers of the texts; equal texts have equal numbers
    scores  float [B], how alike the first two are; for "cosent"

  An example has R texts: two, and for in-batch losses a third one, if there is
  one that is unlike the first. "simcse" is the in-batch loss of texts with
  themselves, which dropout makes two different vectors of.

  Args:
    loss: str, one of LOSSES.
    scale: float, what cosines are multiplied by.
    pooling, layer: see `sentence_vectors`.
  """

  def __init__(self, loss, scale, pooling="mean", layer=-1):
    super().__init__(pooling, layer)
    self._loss = loss
    self._scale = scale

  def apply(self, model, features):
    x = tf.reshape(
        sentence_vectors(model, self.pooling, self.layer),
        [-1, features["input_ids"].shape.as_list()[1],
         model.config.hidden_size])
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
        labels=labels, logits=logits)
    return base.example_losses(losses, predictions,
                               accuracy=base.hits(logits, labels))


def in_batch_logits(x, texts, scale):
  """Compares each first text with all second ones, and all unlike ones.

  The loss is the cross entropy with the second text of the same example as the
  right answer (Gao et al., arXiv:2104.08821, equations 1, 4 and 5). A candidate
  that is the first or second text of the example once more, or that stands
  elsewhere as the like of one of these, is not used as a negative.

  Args:
    x: float [B, R, H], of length 1; see `Likeness`.
    texts: int [B, R].
    scale: float.

  Returns:
    float [B, B * (R - 1)], the right answer of example i in column i.
  """
  count = x.shape.as_list()[1]
  candidates = tf.concat([x[:, i] for i in range(1, count)], 0)
  numbers = tf.concat([texts[:, i] for i in range(1, count)], 0)
  # What a candidate is said to be like: the unlike ones, nothing but itself.
  likes = tf.concat([texts[:, 0]] + [texts[:, i] for i in range(2, count)], 0)
  logits = scale * tf.matmul(x[:, 0], candidates, transpose_b=True)

  def same(column, row):
    return tf.equal(tf.expand_dims(column, 1), tf.expand_dims(row, 0))

  alike = tf.reduce_any([same(texts[:, i], other) for i in range(2)
                         for other in (numbers, likes)], 0)
  own = tf.eye(tf.shape(logits)[0], tf.shape(logits)[1]) > 0
  no_answer = tf.logical_and(alike, tf.logical_not(own))
  return tf.where(no_answer, tf.fill(tf.shape(logits), -1e9), logits)


def cosent_loss(cosines, scores, scale):
  """Asks that pairs with greater scores have greater cosines.

  log(1 + sum of exp(scale * (cos_j - cos_i)) over all i, j with score_i >
  score_j) (Su, "CoSENT", https://kexue.fm/archives/8847).

  Args:
    cosines, scores: float [B].
    scale: float.

  Returns:
    float scalar; 0 where all scores are the same.
  """
  differences = scale * (tf.expand_dims(cosines, 0) -
                         tf.expand_dims(cosines, 1))  # cos_j - cos_i at [i, j]
  is_above = tf.expand_dims(scores, 1) > tf.expand_dims(scores, 0)
  terms = tf.where(is_above, differences, tf.fill(tf.shape(differences), -1e9))
  return tf.reduce_logsumexp(tf.concat([[0.0], tf.reshape(terms, [-1])], 0))
