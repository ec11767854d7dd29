"""A linear-chain CRF and Viterbi decoding, in TensorFlow.

The CRF: Lafferty et al., "Conditional Random Fields: Probabilistic Models for
Segmenting and Labeling Sequence Data" (ICML 2001), with the scores of a network
(Lample et al., arXiv:1603.01360, section 2.2).

Dimensions in comments: B batch, S sequence, L labels.
"""

from typing import Any, Callable, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from albert.files import checkpoints
from albert.tasks import bio

TRANSITIONS = "crf/transitions"  # float [L, L], from row to column


def transition_scores(labels: Sequence[str]) -> tf.Tensor:
  """Returns the trained transitions, float [L, L]; variable `crf/transitions`.

  Args:
    labels: L labels; see `bio.forbidden`.
  """
  return (
    tf.get_variable(
      TRANSITIONS, [len(labels)] * 2, initializer=tf.zeros_initializer()
    )
    + bio.forbidden(labels)[0]
  )


def load_transitions(checkpoint: str, labels: Sequence[str]) -> np.ndarray:
  """Returns the transitions of a checkpoint, float32 [L, L].

  Without a CRF, all transitions allowed by BIO are equal.
  """
  scores, _ = bio.forbidden(labels)
  if TRANSITIONS in checkpoints.saved_shapes(checkpoint):
    scores = scores + tf.train.load_variable(checkpoint, TRANSITIONS)
  return scores


def unrolled_scan(
  function: Callable, elements: Sequence[tf.Tensor], initial: Any
) -> Any:
  """tf.scan without a loop, for elements of static length."""
  elements = [tf.unstack(x) for x in elements]
  outputs, value = [], initial
  for element in zip(*elements):
    value = function(value, element)
    outputs.append(value)
  return tf.nest.map_structure(lambda *steps: tf.stack(steps), *outputs)


def _joined(mask):
  """Returns float [B, S], 1 where `mask` is 1 here and one position before."""
  return mask * tf.pad(mask[:, :-1], [[0, 0], [1, 0]])


def _by_position(x):
  """Transposes [B, S, ...] to [S, B, ...]."""
  return tf.transpose(x, [1, 0] + list(range(2, x.shape.ndims)))


def log_likelihood(
  scores: tf.Tensor, labels: tf.Tensor, mask: tf.Tensor, transitions: tf.Tensor
) -> tf.Tensor:
  """Computes the log-probabilities of label sequences.

  A sequence can be a slice of a longer one: any label can be first or last.

  Args:
    scores: float [B, S, L], of each label at each position.
    labels: int [B, S].
    mask: float [B, S], 1 in a contiguous run of positions, 0 elsewhere.
    transitions: float [L, L], from row to column.

  Returns:
    float [B]; 0 if the mask is all 0.
  """
  num_labels = scores.shape.as_list()[-1]
  joined = _joined(mask)
  chosen = tf.one_hot(labels, num_labels, dtype=scores.dtype)  # [B, S, L]
  before = tf.pad(chosen[:, :-1], [[0, 0], [1, 0], [0, 0]])
  moves = tf.reshape(
    tf.matmul(tf.reshape(before, [-1, num_labels]), transitions),
    tf.shape(before),
  )  # scores of each possible next label
  of_labels = tf.reduce_sum(
    chosen
    * (scores * tf.expand_dims(mask, -1) + moves * tf.expand_dims(joined, -1)),
    [1, 2],
  )

  # Scores [B, L], summed over all sequences that end in each label.
  def step(total, position):
    scores, mask, joined = position
    moved = (
      tf.reduce_logsumexp(
        tf.expand_dims(total, -1)
        + transitions * tf.reshape(joined, [-1, 1, 1]),
        1,
      )
      + scores
    )
    mask = tf.expand_dims(mask, -1)
    return mask * moved + (1.0 - mask) * total

  # Before the first position, the probabilities of all labels sum to 1.
  totals = tf.scan(
    step,
    tuple(map(_by_position, (scores, mask, joined))),
    tf.zeros_like(scores[:, 0]) - np.log(num_labels),
  )
  return of_labels - tf.reduce_logsumexp(totals[-1], -1)


def viterbi(
  scores: tf.Tensor,
  mask: tf.Tensor,
  transitions: tf.Tensor,
  starts: tf.Tensor,
  scan: Callable = tf.scan,
) -> tf.Tensor:
  """Finds the label sequences with the highest scores.

  Args:
    scores: float [B, S, L], of each label at each position.
    mask: float [B, S], 1 in a contiguous run of positions, 0 elsewhere.
    transitions: float [L, L], from row to column.
    starts: float [L], scores of the first label.
    scan: `tf.scan` or `unrolled_scan`.

  Returns:
    int32 [B, S]; 0 where the mask is 0.
  """
  num_labels = scores.shape.as_list()[-1]
  joined = _joined(mask)
  scores += tf.expand_dims(mask - joined, -1) * starts

  def forward(state, position):
    best, _ = state  # [B, L], best scores of sequences that end in each label
    scores, mask, joined = position
    moved = tf.expand_dims(best, -1) + (
      transitions * tf.reshape(joined, [-1, 1, 1])
    )  # [B, L, L]
    mask = tf.expand_dims(mask, -1)
    best = mask * (tf.reduce_max(moved, 1) + scores) + (1.0 - mask) * best
    return best, tf.argmax(moved, 1, output_type=tf.int32)

  zeros = tf.zeros_like(scores[:, 0])
  best, origins = scan(
    forward,
    tuple(map(_by_position, (scores, mask, joined))),
    (zeros, tf.cast(zeros, tf.int32)),
  )  # [S, B, L]

  def backward(label, position):  # returns the previous label, [B]
    origins, joined = position
    origin = tf.reduce_sum(
      tf.one_hot(label, num_labels, dtype=tf.int32) * origins, -1
    )
    return joined * origin + (1 - joined) * label

  # Axis 1, because TF 1.15 converts -1 to TFLite with a wrong shape.
  last = tf.argmax(best[-1], 1, output_type=tf.int32)
  joined = tf.cast(_by_position(joined), tf.int32)
  before = scan(
    backward, (tf.reverse(origins, [0]), tf.reverse(joined, [0])), last
  )  # from the last position to the first
  labels = tf.reverse(
    tf.concat([tf.expand_dims(last, 0), before[:-1]], 0), [0]
  )  # [S, B]
  return _by_position(labels) * tf.cast(mask, tf.int32)
