"""Losses and outputs of classification, regression and choice heads."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from reference_albert import softmax
from small_models import PooledModel, evaluate, run_head

from albert import heads

POOLED = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0]])
THREE = {
  "output_weights": np.array([[1.0, 0], [0, 1], [1, 1]]),
  "output_bias": np.array([0, 0, 0.5]),
}
LOGITS = np.array([[1, 0, 1.5], [0, 2, 2.5], [-1, 1, 0.5]])
SIGMOIDS = 1 / (1 + np.exp(-LOGITS))
ONE = {"output_weights": np.array([[1.0, -1]]), "output_bias": np.array([0.5])}
SCORES = np.array([1.5, -1.5, -1.5])
UNITS = dict(ONE, output_units=np.array([100.0, 20.0]))
LABELS = [0, 2, 1]
SEVERAL, THERE = [[0, 2], [3, 3], [1, 3]], [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
ENTROPIES = -np.log(softmax(LOGITS)[range(3), LABELS])


def close(found, expected):
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
  "head, labels, weights, logits, losses, factors",
  [
    (heads.Classifier(3), LABELS, THREE, LOGITS, ENTROPIES, 1),
    (
      heads.Classifier(3, [2.0, 1.0, 4.0]),
      LABELS,
      THREE,
      LOGITS,
      ENTROPIES,
      np.array([2, 4, 1]),
    ),
    (
      heads.MultiLabel(3),
      SEVERAL,
      THREE,
      LOGITS,
      -np.log(np.where(THERE, SIGMOIDS, 1 - SIGMOIDS)).mean(1),
      1,
    ),
    (
      heads.Regression(),
      [1.5, 0, -2.5],
      ONE,
      SCORES[:, np.newaxis],
      np.array([0, 2.25, 1]),
      1,
    ),
    # The second number is -3 when standardized.
    (
      heads.Regression((5.0, 6.0)),
      [130.0, 40, 90],
      UNITS,
      100 + 20 * SCORES[:, np.newaxis],
      np.array([0, 2.25, 1]),
      1,
    ),
  ],
)
def test_loss(head, labels, weights, logits, losses, factors):
  found = run_head(head, {"label_ids": np.array(labels)}, weights, POOLED)
  close(found.predictions["logits"], logits)
  close(found.each, losses * factors)
  close(found.losses["example_loss"], (losses * factors).sum())
  close(found.metrics["example_loss"], [losses, [1, 1, 1]])
  if labels is LABELS:
    close(found.metrics["accuracy"], [[0, 1, 1], [1, 1, 1]])


def test_choices():
  """The second question has one choice; its padding gets no probability."""
  found = run_head(
    heads.Choices(2),
    {"num_choices": [2, 1], "label": [1, 0]},
    ONE,
    np.array([[0.0, 1], [0, 2], [1, 0], [9, 0]]),
  )
  close(
    found.predictions["log_probabilities"][0],
    np.log(softmax(np.array([-0.5, -1.5]))),
  )
  close(found.predictions["log_probabilities"][1, 0], 0)
  assert found.predictions["log_probabilities"][1, 1] < -1e8
  close(found.each, [np.log(1 + np.e), 0])
  close(found.metrics["accuracy"][0], [0, 1])


@pytest.mark.parametrize("head", [heads.Classifier, heads.MultiLabel])
def test_logits_of_windows_are_averaged(head):
  found = run_head(
    head(3, num_windows=2), {"num_windows": [2, 1]}, THREE, POOLED[[0, 1, 2, 0]]
  )
  close(found.predictions["logits"], [LOGITS[:2].mean(0), LOGITS[2]])
  assert not found.losses  # without labels


def test_weights_for_use_give_the_units_of_the_data():
  used = heads.Regression.for_use(UNITS)
  close(used["output_weights"], [[20, -20]])
  close(used["output_bias"], [110])
  for units, weights in (((0.0, 1.0), UNITS), ((0.0, 1.0), used), (None, used)):
    close(
      evaluate(
        heads.Regression(units).outputs(PooledModel(POOLED), {}), weights
      )["score"],
      100 + 20 * SCORES,
    )
  assert heads.Regression.for_use(ONE) is ONE


@pytest.mark.parametrize(
  "head, weights, expected",
  [
    (
      heads.Classifier(3),
      THREE,
      dict(logits=LOGITS, probabilities=softmax(LOGITS)),
    ),
    (heads.MultiLabel(3), THREE, dict(logits=LOGITS, probabilities=SIGMOIDS)),
    *(
      (head, ONE, dict(score=SCORES))
      for head in (heads.Regression(), heads.Choices(4))
    ),
  ],
)
def test_what_is_exported(head, weights, expected):
  found = evaluate(head.outputs(PooledModel(POOLED), {}), weights)
  assert set(found) == set(expected)
  for name, x in expected.items():
    close(found[name], x)
  ids = {"input_ids": tf.zeros([3, 5], tf.int32)}
  assert head.positions(ids).shape.as_list() == [3, 1]
