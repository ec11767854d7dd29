"""Answers as spans of a passage: BERT's head and ALBERT's."""

import tensorflow.compat.v1 as tf

import modeling
from albert.heads import base

# Starts to try, and ends for each, where nothing else is asked for.
BEAM_SIZE = (5, 5)
_BERT_SCOPE = "cls/squad"
_IMPOSSIBLE = -1e30


class Spans(base.Head):
  """BERT's: scores each token as the first and as the last of an answer.

  Variables `cls/squad/output_weights` and `cls/squad/output_bias`.
  """
  name = "independent"
  title = "answer span"
  marker = _BERT_SCOPE + "/output_weights"
  signature = "spans"
  pytorch_suffix = "ForQuestionAnswering"
  pytorch_scopes = {"albert": {_BERT_SCOPE: "qa_outputs"},
                    "bert": {_BERT_SCOPE: "qa_outputs"}}

  def outputs(self, model, inputs):
    x = model.get_sequence_output()  # [B, S, H]
    batch, length, hidden = modeling.get_shape_list(x, 3, "sequence output")
    logits = tf.reshape(modeling.row_logits(
        tf.reshape(x, [-1, hidden]), 2, model.config, _BERT_SCOPE),
                        [batch, length, 2])
    return {"start": logits[:, :, 0], "end": logits[:, :, 1]}

  def apply(self, model, features):
    predictions = self.outputs(model, features)
    if "start" not in features:
      return base.HeadOutput(predictions)
    losses = (_cross_entropy(predictions["start"], features["start"]) +
              _cross_entropy(predictions["end"], features["end"])) / 2.0
    return base.example_losses(losses, predictions)


class BeamSpans(base.Head):
  """ALBERT's: scores the end given the start, and whether there is an answer.

  Args:
    has_unanswerable: bool, whether to learn which questions have no answer.
    start_n_top, end_n_top: int, K likeliest starts, L likeliest ends for each.
  """
  name = "beam"
  title = "answer beam"
  marker = "start_logits/dense/kernel"
  signature = "spans"

  def __init__(self, has_unanswerable=False, start_n_top=BEAM_SIZE[0],
               end_n_top=BEAM_SIZE[1]):
    self._has_unanswerable = has_unanswerable
    self._size = start_n_top, end_n_top

  def outputs(self, model, inputs):
    mask = answer_mask(inputs["input_mask"], inputs["segment_ids"])
    return BeamScores(model, mask).likeliest(*self._size)

  def apply(self, model, features):
    beam = BeamScores(model, features["answer_mask"])
    predictions = beam.likeliest(*self._size)
    if "start" not in features:
      return base.HeadOutput(predictions)
    given = beam.end(features["start"][:, tf.newaxis])[:, 0]  # [B, S]
    losses = (_cross_entropy(beam.start, features["start"]) +
              _cross_entropy(given, features["end"])) / 2.0
    if self._has_unanswerable:
      losses += 0.5 * tf.nn.sigmoid_cross_entropy_with_logits(
          logits=beam.unanswerable,
          labels=tf.cast(tf.equal(features["start"], 0), tf.float32))
    return base.example_losses(losses, predictions)


def _cross_entropy(logits, labels):
  return tf.nn.sparse_softmax_cross_entropy_with_logits(
      logits=logits, labels=labels)


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


def _only(mask, scores):
  """Returns the scores where the int mask is 1, -1e30 elsewhere."""
  return tf.where(tf.cast(mask, tf.bool), scores,
                  tf.fill(tf.shape(scores), _IMPOSSIBLE))


def _likeliest(logits, count):
  """Returns `count` log-probabilities and places; -1e30 beyond the last one."""
  beyond = [[0, 0]] * (logits.shape.ndims - 1) + [[0, count]]
  return tf.nn.top_k(tf.pad(tf.nn.log_softmax(logits), beyond,
                            constant_values=_IMPOSSIBLE), count)


class BeamScores:
  """The scores of BeamSpans.

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
    self._mask = mask
    self._batch, self._sequence, self._hidden = modeling.get_shape_list(
        self._x, 3, "sequence output")
    self.start = _only(self._mask, self._score(
        self._x, "start_logits/dense", [self._batch, self._sequence]))
    likely = tf.reduce_sum(  # TFLite has no einsum
        tf.expand_dims(tf.nn.softmax(self.start), -1) * self._x, 1)
    y = modeling.dense(tf.concat([likely, self._x[:, 0]], -1), self._hidden,
                       config, "answer_class/dense_0", "tanh")
    y = model.dropout(y, 0.1, salt=-3)
    with tf.variable_scope("answer_class/dense_1", reuse=tf.AUTO_REUSE):
      kernel = modeling.get_weights("kernel", [self._hidden, 1], config)
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
    scores = self._score(y, "end_logits/dense_1", [
        self._batch, beams, self._sequence])
    # TFLite of TensorFlow 1.15 repeats no truth values.
    return _only(tf.tile(tf.expand_dims(self._mask, 1), [1, beams, 1]), scores)

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
