"""Distillation losses against NumPy."""

import numpy as np
import pytest
from reference_albert import softmax
from small_models import run_head

from albert.heads import Classifier, MultiLabel, Regression, TokenLabels
from albert.heads.distilled import Distilled

RNG = np.random.RandomState(4)
X = RNG.normal(size=[4, 8])  # pooled outputs
TOKENS = RNG.normal(size=[4, 6, 8])  # token outputs
WEIGHTS = RNG.normal(size=[3, 8])
TEACHER = 2.0 * RNG.normal(size=[4, 3])
TOKEN_TEACHER = 2.0 * RNG.normal(size=[4, 6, 3])
MASK = np.array(
  [
    [0, 1, 1, 1, 1, 0],
    [0, 1, 1, 0, 0, 0],
    [0, 0, 1, 1, 0, 0],
    [0, 1, 1, 1, 0, 0],
  ]
)
KNOWN = np.array([[0, 1, 0, 1, 1, 0]] * 4)
IS_LABELLED = np.array([1, 0, 1, 1])
LABELS = np.array([2, 0, 1, 1])


def softmax_loss(s, t, T):
  p, q = softmax(t / T), softmax(s / T)
  return T**2 * (p * np.log(p / q)).sum(-1)


def sigmoid_loss(s, t, T):
  p, q = [1 / (1 + np.exp(-x / T)) for x in (t, s)]
  return T**2 * (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))).mean(
    -1
  )


def squared_loss(s, t, _):
  return ((s - t) ** 2)[:, 0]


def check(
  head, loss, features, teacher, weights, *inputs, w=0.3, T=2.0, atol=0
):
  """Checks the mix with the head's own loss; returns the HeadOutput."""
  own = run_head(head, features, weights, *inputs).each
  found = run_head(
    Distilled(head, w, T),
    {**features, **teacher, "is_labelled": IS_LABELLED},
    weights,
    *inputs,
  )
  np.testing.assert_allclose(
    found.each,
    np.where(IS_LABELLED, (1 - w) * own + w * loss, loss),
    rtol=1e-4,
    atol=atol,
  )
  return found


@pytest.mark.parametrize("w, T", [(0.3, 2.0), (1.0, 1.0), (1e-6, 5.0)])
@pytest.mark.parametrize(
  "head, loss, labels",
  [
    (Classifier(3), softmax_loss, LABELS),
    (Classifier(3, [0.5, 3.0, 1.0]), softmax_loss, LABELS),
    (MultiLabel(3), sigmoid_loss, [[0, 2, 3], [3] * 3, [1, 3, 3], [0, 1, 2]]),
    (Regression(), squared_loss, np.array([0.5, 0.0, -2.0, 1.0])),
  ],
)
def test_texts(head, loss, labels, w, T):
  """Class weights apply to labels, not to the teacher."""
  size = 1 if head.name == "regression" else 3
  weights, teacher = WEIGHTS[:size], TEACHER[:, :size]
  found = check(
    head,
    loss(X @ weights.T, teacher, T),
    {"label_ids": labels},
    {"teacher_logits": teacher},
    {"output_weights": weights, "output_bias": np.zeros(size)},
    X,
    w=w,
    T=T,
    atol=1e-5,
  )
  np.testing.assert_allclose(
    found.losses["example_loss"], found.each.sum(), rtol=1e-5
  )
  assert "teacher_loss" in found.metrics
  for name, (_, counted) in found.metrics.items():
    np.testing.assert_array_equal(
      counted, np.ones([4]) if name == "teacher_loss" else IS_LABELLED
    )


@pytest.mark.parametrize("use_crf", [False, True])
def test_tokens(use_crf):
  head = TokenLabels(["O", "B-x", "I-x"], use_crf)
  label_ids = np.where(MASK, [0, 1, 2, 0, 1, 0], 0)
  features = {"label_ids": label_ids, "label_mask": MASK}
  weights = {"output_weights": WEIGHTS, "output_bias": np.zeros(3)}
  if use_crf:
    weights["crf/transitions"] = RNG.normal(size=[3, 3])
  loss = softmax_loss(TOKENS @ WEIGHTS.T, TOKEN_TEACHER, 2.0) * MASK * KNOWN
  check(
    head,
    loss.sum(1) / MASK.sum(1),
    features,
    {
      "teacher_logits": TOKEN_TEACHER.transpose([0, 2, 1]),
      "teacher_mask": KNOWN,
    },
    weights,
    None,
    TOKENS,
  )
