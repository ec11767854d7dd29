"""The model that a configuration asks for, and heads for fine-tuning."""

import tensorflow.compat.v1 as tf

import modeling
from albert.errors import InputError
from modeling import AlbertModel
from modeling_google import GoogleAlbertModel

# Starts to try, and ends for each, where nothing else is asked for.
BEAM_SIZE = (5, 5)


def create_model(config, *args, **kwargs):
  """Returns an AlbertModel in the layout of `config`; arguments as there."""
  model = (GoogleAlbertModel if config.layout == "google" else AlbertModel)
  return model(config, *args, **kwargs)


def classifier_logits(model, num_labels):
  """Scores each label; variables `output_weights` and `output_bias`.

  In training a tenth of the pooled output is dropped, as in BERT's classifier.

  Args:
    model: AlbertModel.
    num_labels: int, L.

  Returns:
    float [B, L].
  """
  return _label_logits(model, model.get_pooled_output(), num_labels)


def token_logits(model, num_labels):
  """Scores each label for each token; variables as in `classifier_logits`.

  Args:
    model: AlbertModel.
    num_labels: int, L.

  Returns:
    float [B, S, L].
  """
  x = model.get_sequence_output()
  batch, length, hidden = modeling.get_shape_list(x, 3, "sequence output")
  return tf.reshape(
      _label_logits(model, tf.reshape(x, [-1, hidden]), num_labels),
      [batch, length, num_labels])


def _label_logits(model, x, num_labels):
  """Takes [M, H] to [M, L]; a tenth of it is dropped in training."""
  x = model.dropout(x, 0.1, salt=-2)
  weights = tf.get_variable(
      "output_weights", [num_labels, model.config.hidden_size],
      initializer=modeling.initializer(model.config))
  bias = tf.get_variable("output_bias", [num_labels],
                         initializer=tf.zeros_initializer())
  return tf.nn.bias_add(tf.matmul(x, weights, transpose_b=True), bias)


def sentence_vectors(model, pooling="mean", layer=-1):
  """Returns one vector for each text, float [B, H].

  Args:
    model: AlbertModel.
    pooling: "mean" of the tokens' vectors, [CLS] and [SEP] included; "cls", the
      vector of [CLS]; "pooled", the pooled output, whatever the layer.
    layer: int, 1 for the first, 0 for the embeddings, -1 for the last.

  Raises:
    InputError: the model has no such layer.
  """
  if pooling == "pooled":
    return model.get_pooled_output()
  layers = [model.get_embedding_output()] + model.get_all_encoder_layers()
  if not -len(layers) <= layer < len(layers):
    raise InputError("--layer=%d: the model has layers 0 to %d" % (
        layer, len(layers) - 1))
  x = layers[layer]  # [B, S, H]
  if pooling == "cls":
    return x[:, 0]
  weights = tf.expand_dims(tf.cast(model.input_mask, tf.float32), -1)
  return tf.reduce_sum(x * weights, 1) / tf.reduce_sum(weights, 1)


def masked_lm_logits(model, positions):
  """Scores every vocabulary entry at the given positions.

  Args:
    model: AlbertModel.
    positions: int [B, P], positions in the sequence.

  Returns:
    float [B, P, V].
  """
  batch, count = modeling.get_shape_list(positions, 2, "positions")
  return tf.reshape(model.masked_lm_logits(positions),
                    [batch, count, model.config.vocab_size])


def span_logits(model):
  """BERT's: scores each token as the first and as the last of an answer.

  Variables `cls/squad/output_weights` and `cls/squad/output_bias`.

  Args:
    model: AlbertModel.

  Returns:
    (start, end), both float [B, S].
  """
  x = model.get_sequence_output()  # [B, S, H]
  with tf.variable_scope("cls/squad", reuse=tf.AUTO_REUSE):
    weights = tf.get_variable("output_weights", [2, model.config.hidden_size],
                              initializer=modeling.initializer(model.config))
    bias = tf.get_variable("output_bias", [2],
                           initializer=tf.zeros_initializer())
  logits = tf.tensordot(x, weights, [[2], [1]]) + bias  # [B, S, 2]
  return logits[:, :, 0], logits[:, :, 1]


def answer_mask(input_mask, segment_ids):
  """Tells where an answer may begin and end: in the passage, or at [CLS].

  Args:
    input_mask, segment_ids: int [B, S], of [CLS] question [SEP] passage [SEP].

  Returns:
    int [B, S], 1 there.
  """
  inside = segment_ids[:, 1:-1] * input_mask[:, 2:]  # not the last [SEP]
  first = input_mask[:, :1]
  return tf.concat([first, inside, first * 0], 1)


def _likeliest(logits, count):
  """Returns `count` log-probabilities and places; -1e30 beyond the last one."""
  beyond = [[0, 0]] * (logits.shape.ndims - 1) + [[0, count]]
  return tf.nn.top_k(tf.pad(tf.nn.log_softmax(logits), beyond,
                            constant_values=-1e30), count)


class BeamSpan:
  """ALBERT's: the end is scored given the start; and is there an answer at all.

  Variables under `start_logits`, `end_logits` and `answer_class`, as in
  Google's ALBERT.

  Args:
    model: AlbertModel.
    mask: int [B, S], 1 where an answer may begin and end.

  Attributes:
    start: float [B, S], scores; -1e30 where `mask` is 0.
    unanswerable: float [B], greater where no answer is likelier.
  """

  def __init__(self, model, mask):
    config = model.config
    self._model = model
    self._x = model.get_sequence_output()  # [B, S, H]
    self._masked = -1e30 * (1.0 - tf.cast(mask, tf.float32))
    self._batch, self._sequence, self._hidden = modeling.get_shape_list(
        self._x, 3, "sequence output")
    self.start = self._score(self._x, "start_logits/dense", [
        self._batch, self._sequence]) + self._masked
    likely = tf.einsum("bs,bsh->bh", tf.nn.softmax(self.start), self._x)
    y = modeling.dense(tf.concat([likely, self._x[:, 0]], -1), self._hidden,
                       config, "answer_class/dense_0", "tanh")
    y = model.dropout(y, 0.1, salt=-3)
    with tf.variable_scope("answer_class/dense_1", reuse=tf.AUTO_REUSE):
      kernel = tf.get_variable("kernel", [self._hidden, 1],
                               initializer=modeling.initializer(config))
    self.unanswerable = tf.matmul(y, kernel)[:, 0]

  def end(self, starts):
    """Scores the ends given starts.

    Args:
      starts: int [B, K], places in the sequence.

    Returns:
      float [B, K, S]; -1e30 where the mask is 0.
    """
    beams = starts.shape.as_list()[1]
    # From all texts as one: TFLite's gather has no batch dimensions.
    first = tf.expand_dims(tf.range(self._batch) * self._sequence, 1)
    states = tf.reshape(
        tf.gather(tf.reshape(self._x, [-1, self._hidden]), starts + first),
        [self._batch, beams, self._hidden])
    shape = [1, 1, self._sequence, 1]
    x = tf.concat([
        tf.tile(tf.expand_dims(self._x, 1), [1, beams, 1, 1]),
        tf.tile(tf.expand_dims(states, 2), shape)], -1)  # [B, K, S, 2 H]
    y = modeling.dense(tf.reshape(x, [-1, 2 * self._hidden]), self._hidden,
                       self._model.config, "end_logits/dense_0", "tanh")
    with tf.variable_scope("end_logits"):
      y = modeling.layer_norm(y, "LayerNorm")
    return self._score(y, "end_logits/dense_1", [
        self._batch, beams, self._sequence]) + tf.expand_dims(
            self._masked, 1)

  def likeliest(self, start_n_top, end_n_top):
    """Returns the likeliest spans.

    Args:
      start_n_top: int, K, starts to try.
      end_n_top: int, L, ends to try for each.

    Returns:
      dict: `starts`, int [B, K], and their `start_scores`, log-probabilities;
      `ends`, int [B, K, L], and their `end_scores`, given the starts; `null`,
      float [B], `unanswerable`. Scores are -1e30 beyond the last place.
    """
    start_scores, starts = _likeliest(self.start, start_n_top)
    starts = tf.minimum(starts, tf.shape(self.start)[1] - 1)
    end_scores, ends = _likeliest(self.end(starts), end_n_top)
    return {"starts": starts, "start_scores": start_scores, "ends": ends,
            "end_scores": end_scores, "null": self.unanswerable}

  def _score(self, x, scope, shape):
    return tf.reshape(modeling.dense(
        tf.reshape(x, [-1, self._hidden]), 1, self._model.config, scope), shape)
