"""The loss of a teacher, against NumPy."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from small_models import PooledModel

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


class Model(PooledModel):
  def __init__(self):
    super().__init__(X)

  def get_sequence_output(self):
    return tf.constant(TOKENS, tf.float32)


def softmax(x):
  x = np.exp(x - x.max(-1, keepdims=True))
  return x / x.sum(-1, keepdims=True)


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def softmax_loss(s, t, labels, w, T):
  """Returns each mixed loss, and its gradient by the logits."""
  p, q, one = softmax(t / T), softmax(s / T), np.eye(3)[labels]
  kl = T**2 * (p * np.log(p / q)).sum(-1)
  ce = -np.log((softmax(s) * one).sum(-1))
  w = np.asarray(w)
  return (1 - w) * ce + w * kl, (
      (1 - w)[..., None] * (softmax(s) - one) + w[..., None] * T * (q - p))


def sigmoid_loss(s, t, labels, w, T):
  p, q = sigmoid(t / T), sigmoid(s / T)
  kl = T**2 * (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))
  ce = -np.log(np.where(labels, sigmoid(s), 1 - sigmoid(s)))
  w = w[:, None]
  return ((1 - w) * ce + w * kl).mean(-1), (
      (1 - w) * (sigmoid(s) - labels) + w * T * (q - p)) / 3


def squared_loss(s, t, labels, w, T):
  del T
  s, t = s[:, 0], t[:, 0]
  return (1 - w) * (s - labels)**2 + w * (s - t)**2, 2 * (
      (1 - w) * (s - labels) + w * (s - t))[:, None]


def run(head, features, num_labels):
  """Returns each loss, their sum's gradient by the bias, and what is shown."""
  with tf.Graph().as_default(), tf.Session() as session:
    output = head.apply(Model(), {
        name: tf.constant(x, tf.float32 if np.asarray(x).dtype == float else
                          tf.int32) for name, x in features.items()})
    variables = {v.op.name: v for v in tf.trainable_variables()}
    loss, = output.losses.values()
    gradient, = tf.gradients(loss, variables["output_bias"])
    session.run(tf.global_variables_initializer())
    session.run(variables["output_weights"].assign(WEIGHTS[:num_labels]))
    each, total, gradient, shown = session.run(
        [output.each, loss, gradient, output.metrics])
    np.testing.assert_allclose(total, each.sum(), rtol=1e-5)
    return each, gradient, shown


@pytest.mark.parametrize("w, T", [(0.3, 2.0), (1.0, 1.0), (1e-6, 5.0)])
@pytest.mark.parametrize("head, loss_of, labels", [
    (Classifier(3), softmax_loss, LABELS),
    (MultiLabel(3), sigmoid_loss, np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0],
                                            [1, 1, 1]])),
    (Regression(), squared_loss, np.array([0.5, 0.0, -2.0, 1.0]))],
                         ids=["one", "several", "numbers"])
def test_texts(head, loss_of, labels, w, T):
  size = 1 if head.name == "regression" else 3
  expected, by_logits = loss_of(
      X @ WEIGHTS[:size].T, TEACHER[:, :size], labels,
      np.where(IS_LABELLED, w, 1.0), T)
  features = {"label_ids": labels, "teacher_logits": TEACHER[:, :size],
              "is_labelled": IS_LABELLED}
  each, gradient, shown = run(Distilled(head, w, T), features, size)
  np.testing.assert_allclose(each, expected, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(gradient, by_logits.sum(0), rtol=1e-4, atol=1e-5)
  for name, (_, weights) in shown.items():
    np.testing.assert_array_equal(
        weights, np.ones([4]) if name == "teacher_loss" else IS_LABELLED)
  # With hardly any weight, labelled texts have the loss they have alone.
  if w < 1e-5:
    alone, _, _ = run(head, {"label_ids": labels}, size)
    np.testing.assert_allclose(each[[0, 2, 3]], alone[[0, 2, 3]], rtol=1e-3)


def test_labels_are_weighted_and_the_teacher_is_not():
  features = {"label_ids": LABELS, "teacher_logits": TEACHER,
              "is_labelled": IS_LABELLED}
  weights = np.array([0.5, 3.0, 1.0])
  each, _, _ = run(Distilled(Classifier(3, weights.tolist()), 0.3, 2.0),
                   features, 3)
  s = X @ WEIGHTS.T
  own, _ = softmax_loss(s, TEACHER, LABELS, np.zeros([4]), 2.0)
  soft, _ = softmax_loss(s, TEACHER, LABELS, np.ones([4]), 2.0)
  np.testing.assert_allclose(each, np.where(
      IS_LABELLED, 0.7 * own * weights[LABELS] + 0.3 * soft, soft), rtol=1e-4)


def test_an_equal_teacher_is_without_loss():
  for head, size in ((Classifier(3), 3), (MultiLabel(3), 3), (Regression(), 1)):
    labels = {"multi_label": np.zeros([4, 3], int), "classifier": LABELS}.get(
        head.name, np.zeros([4]))
    each, gradient, _ = run(Distilled(head, 1.0, 3.0), {
        "label_ids": labels, "teacher_logits": X @ WEIGHTS[:size].T,
        "is_labelled": IS_LABELLED}, size)
    np.testing.assert_allclose(each, 0.0, atol=1e-5)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-5)


@pytest.mark.parametrize("use_crf", [False, True])
def test_tokens(use_crf):
  names = ["O", "B-x", "I-x"]
  label_ids = np.where(MASK, [0, 1, 2, 0, 1, 0], 0)
  features = {"label_ids": label_ids, "label_mask": MASK}
  alone, own_gradient, _ = run(TokenLabels(names, use_crf), features, 3)
  features.update(teacher_logits=TOKEN_TEACHER.transpose([0, 2, 1]),
                  teacher_mask=KNOWN, is_labelled=IS_LABELLED)
  each, _, _ = run(Distilled(TokenLabels(names, use_crf), 0.3, 2.0), features,
                   3)
  soft, by_logits = softmax_loss(TOKENS @ WEIGHTS.T, TOKEN_TEACHER, label_ids,
                                 np.ones([4, 6]), 2.0)
  counts = MASK.sum(1)
  soft = (soft * MASK * KNOWN).sum(1) / counts
  np.testing.assert_allclose(each, np.where(
      IS_LABELLED, 0.7 * alone + 0.3 * soft, soft), rtol=1e-4)
  # The gradient of what is not labelled is the teacher's alone.
  features["is_labelled"] = np.zeros([4], int)
  _, gradient, _ = run(Distilled(TokenLabels(names, use_crf), 0.3, 2.0),
                       features, 3)
  by_logits *= (MASK * KNOWN / counts[:, None])[..., None]
  np.testing.assert_allclose(gradient, by_logits.sum((0, 1)), rtol=1e-3,
                             atol=1e-5)
  assert np.abs(own_gradient - gradient).max() > 0.1
