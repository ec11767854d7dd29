"""Answers as spans of a passage: the heads of BERT and ALBERT."""

from typing import Dict

import tensorflow.compat.v1 as tf

import modeling
from albert.heads import base

# Default number of starts to try, and of ends per start.
BEAM_SIZE = (5, 5)
_BERT_SCOPE = "cls/squad"
_IMPOSSIBLE = -1e30


class Spans(base.Head):
  """BERT's head: scores each token as start and as end of an answer.

  Variables `cls/squad/output_weights` and `cls/squad/output_bias`.
  """

  name = "independent"
  title = "answer span"
  marker = _BERT_SCOPE + "/output_weights"
  signature = "spans"
  pytorch_suffix = "ForQuestionAnswering"
  pytorch_scopes = {
    "albert": {_BERT_SCOPE: "qa_outputs"},
    "bert": {_BERT_SCOPE: "qa_outputs"},
  }

  def outputs(
    self, model: modeling.AlbertModel, inputs: Dict[str, tf.Tensor]
  ) -> Dict[str, tf.Tensor]:
    x = model.get_sequence_output()  # [B, S, H]
    batch, length, hidden = modeling.get_shape_list(x, 3, "sequence output")
    logits = modeling.row_logits(
      tf.reshape(x, [-1, hidden]), 2, model.config, _BERT_SCOPE
    )
    logits = tf.reshape(logits, [batch, length, 2])
    return {"start": logits[:, :, 0], "end": logits[:, :, 1]}

  def apply(
    self, model: modeling.AlbertModel, features: Dict[str, tf.Tensor]
  ) -> base.HeadOutput:
    predictions = self.outputs(model, features)
    if "start" not in features:
      return base.HeadOutput(predictions)
    losses = (
      _cross_entropy(predictions["start"], features["start"])
      + _cross_entropy(predictions["end"], features["end"])
    ) / 2.0
    return base.example_losses(losses, predictions)


class BeamSpans(base.Head):
  """ALBERT's head: scores ends given the start, and answerability.

  Args:
    has_unanswerable: whether to learn which questions have no answer.
    start_n_top: K, number of starts to try.
    end_n_top: L, number of ends to try per start.
  """

  name = "beam"
  title = "answer beam"
  marker = "start_logits/dense/kernel"
  signature = "spans"

  def __init__(
    self,
    has_unanswerable: bool = False,
    start_n_top: int = BEAM_SIZE[0],
    end_n_top: int = BEAM_SIZE[1],
  ):
    self._has_unanswerable = has_unanswerable
    self._size = start_n_top, end_n_top

  def outputs(
    self, model: modeling.AlbertModel, inputs: Dict[str, tf.Tensor]
  ) -> Dict[str, tf.Tensor]:
    mask = answer_mask(inputs["input_mask"], inputs["segment_ids"])
    return BeamScores(model, mask).likeliest(*self._size)

  def apply(
    self, model: modeling.AlbertModel, features: Dict[str, tf.Tensor]
  ) -> base.HeadOutput:
    beam = BeamScores(model, features["answer_mask"])
    predictions = beam.likeliest(*self._size)
    if "start" not in features:
      return base.HeadOutput(predictions)
    given = beam.end(features["start"][:, tf.newaxis])[:, 0]  # [B, S]
    losses = (
      _cross_entropy(beam.start, features["start"])
      + _cross_entropy(given, features["end"])
    ) / 2.0
    if self._has_unanswerable:
      losses += 0.5 * tf.nn.sigmoid_cross_entropy_with_logits(
        logits=beam.unanswerable,
        labels=tf.cast(tf.equal(features["start"], 0), tf.float32),
      )
    return base.example_losses(losses, predictions)


def _cross_entropy(logits, labels):
  return tf.nn.sparse_softmax_cross_entropy_with_logits(
    logits=logits, labels=labels
  )


def answer_mask(input_mask: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
  """Returns where answers may start and end: in the passage or at [CLS].

  Args:
    input_mask, segment_ids: int [B, S], of [CLS] question [SEP] passage [SEP].

  Returns:
    int [B, S], 1 at these positions.
  """
  inside = segment_ids[:, 1:-1] * input_mask[:, 2:]  # not the last [SEP]
  first = input_mask[:, :1]
  return tf.concat([first, inside, first * 0], 1)


def _masked(mask, scores):
  """Returns the scores where the int mask is 1, -1e30 elsewhere."""
  return tf.where(
    tf.cast(mask, tf.bool), scores, tf.fill(tf.shape(scores), _IMPOSSIBLE)
  )


def _top_log_probabilities(logits, count):
  """Returns the top `count` log-probabilities and their positions.

  Padded with -1e30 if there are fewer positions.
  """
  beyond = [[0, 0]] * (logits.shape.ndims - 1) + [[0, count]]
  return tf.nn.top_k(
    tf.pad(tf.nn.log_softmax(logits), beyond, constant_values=_IMPOSSIBLE),
    count,
  )


class BeamScores:
  """The scores of BeamSpans.

  Variables under `start_logits`, `end_logits` and `answer_class`, as in
  Google's ALBERT.

  Args:
    model: the encoder.
    mask: int [B, S], 1 where an answer may start and end.

  Attributes:
    start: float [B, S], logits; -1e30 where `mask` is 0.
    unanswerable: float [B], logit for no answer.
  """

  def __init__(self, model: modeling.AlbertModel, mask: tf.Tensor):
    config = model.config
    self._model = model
    self._x = model.get_sequence_output()  # [B, S, H]
    self._mask = mask
    self._batch, self._sequence, self._hidden = modeling.get_shape_list(
      self._x, 3, "sequence output"
    )
    self.start = _masked(
      self._mask,
      self._score(self._x, "start_logits/dense", [self._batch, self._sequence]),
    )
    mean_start = tf.reduce_sum(  # TFLite has no einsum
      tf.expand_dims(tf.nn.softmax(self.start), -1) * self._x, 1
    )
    y = modeling.dense(
      tf.concat([mean_start, self._x[:, 0]], -1),
      self._hidden,
      config,
      "answer_class/dense_0",
      "tanh",
    )
    y = model.dropout(y, 0.1, salt=-3)
    with tf.variable_scope("answer_class/dense_1", reuse=tf.AUTO_REUSE):
      kernel = modeling.get_weights("kernel", [self._hidden, 1], config)
    self.unanswerable = tf.matmul(y, kernel)[:, 0]

  def end(self, starts: tf.Tensor) -> tf.Tensor:
    """Scores the ends given starts.

    Args:
      starts: int [B, K], positions in the sequence.

    Returns:
      float [B, K, S]; -1e30 where the mask is 0.
    """
    beams = starts.shape.as_list()[1]
    # TFLite's gather has no batch dimensions, so flatten the batch.
    first = tf.expand_dims(tf.range(self._batch) * self._sequence, 1)
    states = tf.reshape(
      tf.gather(tf.reshape(self._x, [-1, self._hidden]), starts + first),
      [self._batch, beams, self._hidden],
    )
    shape = [1, 1, self._sequence, 1]
    x = tf.concat(
      [
        tf.tile(tf.expand_dims(self._x, 1), [1, beams, 1, 1]),
        tf.tile(tf.expand_dims(states, 2), shape),
      ],
      -1,
    )  # [B, K, S, 2 H]
    y = modeling.dense(
      tf.reshape(x, [-1, 2 * self._hidden]),
      self._hidden,
      self._model.config,
      "end_logits/dense_0",
      "tanh",
    )
    with tf.variable_scope("end_logits"):
      y = modeling.layer_norm(y, "LayerNorm")
    scores = self._score(
      y, "end_logits/dense_1", [self._batch, beams, self._sequence]
    )
    # TFLite of TF 1.15 cannot tile booleans.
    return _masked(
      tf.tile(tf.expand_dims(self._mask, 1), [1, beams, 1]), scores
    )

  def likeliest(self, start_n_top: int, end_n_top: int) -> Dict[str, tf.Tensor]:
    """Returns the most probable spans.

    Args:
      start_n_top: K, number of starts to try.
      end_n_top: L, number of ends to try per start.

    Returns:
      `starts`, int [B, K], and their log-probabilities `start_scores`; `ends`,
      int [B, K, L], and their `end_scores`, given the starts; `null`, float
      [B], is `unanswerable`. Scores are -1e30 if K or L is more than S.
    """
    start_scores, starts = _top_log_probabilities(self.start, start_n_top)
    starts = tf.minimum(starts, tf.shape(self.start)[1] - 1)
    end_scores, ends = _top_log_probabilities(self.end(starts), end_n_top)
    return {
      "starts": starts,
      "start_scores": start_scores,
      "ends": ends,
      "end_scores": end_scores,
      "null": self.unanswerable,
    }

  def _score(self, x, scope, shape):
    return tf.reshape(
      modeling.dense(
        tf.reshape(x, [-1, self._hidden]), 1, self._model.config, scope
      ),
      shape,
    )
