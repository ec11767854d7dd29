"""The CRF against brute force over all label sequences."""

import itertools

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from small_models import evaluate

from albert.heads import crf

LABELS, LENGTH = 5, 4
MASK = np.array([[1] * 4, [0, 1, 1, 0], [0, 0, 1, 0], [0] * 4], np.float64)
RNG = np.random.RandomState(3)
SCORES = RNG.normal(size=[4, LENGTH, LABELS])
TRANSITIONS, STARTS = RNG.normal(size=[LABELS] * 2), RNG.normal(size=[LABELS])


def sequences(row):
  """Returns {label sequence: score} over the unmasked tokens of a row."""
  scores = SCORES[row, MASK[row] > 0]
  return {
    y: sum(x[label] for x, label in zip(scores, y))
    + sum(TRANSITIONS[pair] for pair in zip(y, y[1:]))
    for y in itertools.product(range(LABELS), repeat=len(scores))
  }


@pytest.mark.parametrize("static", [True, False])
def test_log_likelihood_is_that_of_all_sequences(static):
  labels = RNG.randint(LABELS, size=[4, LENGTH])
  scores = tf.placeholder(
    tf.float64, SCORES.shape if static else [None, None, LABELS]
  )
  likelihoods = crf.log_likelihood(
    scores, tf.constant(labels), tf.constant(MASK), tf.constant(TRANSITIONS)
  )
  found, gradient = evaluate(
    [likelihoods, *tf.gradients(likelihoods, scores)], feed={scores: SCORES}
  )
  for row in range(4):
    every = sequences(row)
    own = every[tuple(labels[row, MASK[row] > 0])]
    total = np.log(np.sum(np.exp(list(every.values()))))
    assert found[row] == pytest.approx(own - total)
  # The gradient is one-hot labels minus marginals.
  np.testing.assert_allclose(gradient.sum(-1), 0, atol=1e-9)


@pytest.mark.parametrize("scan", [tf.scan, crf.unrolled_scan])
def test_viterbi_finds_the_best_of_all_sequences(scan):
  found = evaluate(
    crf.viterbi(
      *[
        tf.constant(x, tf.float32) for x in (SCORES, MASK, TRANSITIONS, STARTS)
      ],
      scan=scan,
    )
  )
  for row in range(3):
    every = sequences(row)
    assert tuple(found[row, MASK[row] > 0]) == max(
      every, key=lambda y, every=every: STARTS[y[0]] + every[y]
    )
  assert not found[MASK == 0].any()
