"""The loss of a teacher, against NumPy."""

import numpy as np
import pytest
from reference_albert import softmax
from small_models import run_head

from albert.heads import Classifier, MultiLabel, Regression, TokenLabels
from albert.heads.distilled import Distilled

RNG = np.random.RandomState(4)
X = RNG.normal(size=[4, 8])  # pooled outputs
TOKENS = RNG.normal(size=[4, 6, 8])  # and of tokens
WEIGHTS = RNG.normal(size=[3, 8])
TEACHER = 2.0 * RNG.normal(size=[4, 3])
TOKEN_TEACHER = 2.0 * RNG.normal(size=[4, 6, 3])
MASK = np.array([[0, 1, 1, 1, 1, 0], [0, 1, 1, 0, 0, 0], [0, 0, 1, 1, 0, 0],
                 [0, 1, 1, 1, 0, 0]])
KNOWN = np.array([[0, 1, 0, 1, 1, 0]] * 4)
IS_LABELLED = np.array([1, 0, 1, 1])
LABELS = np.array([2, 0, 1, 1])
CLASS_WEIGHTS = [0.5, 3.0, 1.0]


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def softmax_losses(s, t, labels, T):
  """Returns the losses of labels and of a teacher."""
  p, q = softmax(t / T), softmax(s / T)
  return (-np.log((softmax(s) * np.eye(3)[labels]).sum(-1)),
          T**2 * (p * np.log(p / q)).sum(-1))


def weighted_losses(s, t, labels, T):
  own, soft = softmax_losses(s, t, labels, T)
  return own * np.take(CLASS_WEIGHTS, labels), soft


def sigmoid_losses(s, t, labels, T):
  p, q = sigmoid(t / T), sigmoid(s / T)
  kl = T**2 * (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))
  return (-np.log(np.where(labels, sigmoid(s), 1 - sigmoid(s))).mean(-1),
          kl.mean(-1))


def squared_losses(s, t, labels, T):
  del T
  return (s[:, 0] - labels)**2, (s[:, 0] - t[:, 0])**2


@pytest.mark.parametrize("w, T", [(0.3, 2.0), (1.0, 1.0), (1e-6, 5.0)])
@pytest.mark.parametrize("head, losses, labels", [
    (Classifier(3), softmax_losses, LABELS),
    (Classifier(3, CLASS_WEIGHTS), weighted_losses, LABELS),
    (MultiLabel(3), sigmoid_losses, np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0],
                                              [1, 1, 1]])),
    (Regression(), squared_losses, np.array([0.5, 0.0, -2.0, 1.0]))],
                         ids=["one", "weighted", "several", "numbers"])
def test_texts(head, losses, labels, w, T):
  """The labels may be weighted; the teacher is not."""
  size = 1 if head.name == "regression" else 3
  found = run_head(Distilled(head, w, T), {
      "label_ids": labels, "teacher_logits": TEACHER[:, :size],
      "is_labelled": IS_LABELLED}, {
          "output_weights": WEIGHTS[:size], "output_bias": np.zeros(size)}, X)
  own, soft = losses(X @ WEIGHTS[:size].T, TEACHER[:, :size], labels, T)
  np.testing.assert_allclose(
      found.each, np.where(IS_LABELLED, (1 - w) * own + w * soft, soft),
      rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(found.losses["example_loss"], found.each.sum(),
                             rtol=1e-5)
  for name, (_, weights) in found.metrics.items():
    np.testing.assert_array_equal(
        weights, np.ones([4]) if name == "teacher_loss" else IS_LABELLED)


@pytest.mark.parametrize("use_crf", [False, True])
def test_tokens(use_crf):
  head = TokenLabels(["O", "B-x", "I-x"], use_crf)
  label_ids = np.where(MASK, [0, 1, 2, 0, 1, 0], 0)
  features = {"label_ids": label_ids, "label_mask": MASK}
  weights = {"output_weights": WEIGHTS, "output_bias": np.zeros(3)}
  if use_crf:
    weights["crf/transitions"] = RNG.normal(size=[3, 3])
  own = run_head(head, features, weights, None, TOKENS).each
  found = run_head(Distilled(head, 0.3, 2.0), dict(
      features, teacher_logits=TOKEN_TEACHER.transpose([0, 2, 1]),
      teacher_mask=KNOWN, is_labelled=IS_LABELLED), weights, None, TOKENS)
  _, soft = softmax_losses(TOKENS @ WEIGHTS.T, TOKEN_TEACHER, label_ids, 2.0)
  soft = (soft * MASK * KNOWN).sum(1) / MASK.sum(1)
  np.testing.assert_allclose(found.each, np.where(
      IS_LABELLED, 0.7 * own + 0.3 * soft, soft), rtol=1e-4)
