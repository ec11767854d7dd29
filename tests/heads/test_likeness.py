"""The losses of sentence vectors, and their gradients, against NumPy."""

import itertools

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from albert.heads import likeness

pytestmark = pytest.mark.once

SCALE = 3.0
RNG = np.random.RandomState(0)


def unit(x):
  return x / np.linalg.norm(x, axis=-1, keepdims=True)


def run(function, *values):
  """Returns a function's value and its gradient by the first argument."""
  with tf.Graph().as_default(), tf.Session() as session:
    tensors = [tf.constant(value, tf.float32 if value.dtype == float else
                           tf.int32) for value in values]
    found = function(*tensors)
    return session.run([found, tf.gradients(found, tensors[:1])[0]])


def slope(function, x, step=1e-6):
  """Central differences of a function of a float array."""
  gradient = np.zeros_like(x)
  for place in itertools.product(*map(range, x.shape)):
    ends = []
    for sign in (1, -1):
      moved = x.copy()
      moved[place] += sign * step
      ends.append(function(moved))
    gradient[place] = (ends[0] - ends[1]) / (2 * step)
  return gradient


def cosent(cosines, scores):
  return np.log1p(sum(
      np.exp(SCALE * (cosines[j] - cosines[i]))
      for i in range(len(scores)) for j in range(len(scores))
      if scores[i] > scores[j]))


def test_cosent():
  cosines, scores = np.array([0.9, -0.2, 0.4, 0.1]), np.array([5., 1., 1., 3.])
  found, gradient = run(
      lambda *x: likeness.cosent_loss(*x, SCALE), cosines, scores)
  np.testing.assert_allclose(found, cosent(cosines, scores), rtol=1e-5)
  np.testing.assert_allclose(
      gradient, slope(lambda x: cosent(x, scores), cosines), atol=1e-5)
  # Where nothing is to be in order, nothing is learnt.
  found, gradient = run(
      lambda *x: likeness.cosent_loss(*x, SCALE), cosines, np.ones(4))
  assert found == 0 and not gradient.any()


def in_batch(x, texts):
  """The mean loss, with what may be a wrong answer worked out pair by pair."""
  count, total = len(x), 0.0
  for i in range(count):
    right = SCALE * x[i, 0] @ x[i, 1]
    logits = [right]
    for j in range(count):
      for k in range(1, x.shape[1]):
        about = {texts[j, k]} | ({texts[j, 0]} if k == 1 else set())
        if (j, k) != (i, 1) and not about & {texts[i, 0], texts[i, 1]}:
          logits.append(SCALE * x[i, 0] @ x[j, k])
    total += np.log(np.exp(logits).sum()) - right
  return total / count


@pytest.mark.parametrize("texts", [
    [[0, 1], [2, 3], [4, 5], [6, 7]],  # all different
    [[0, 1], [2, 3], [0, 4], [5, 3]],  # a first text twice, a second one twice
    [[0, 0], [1, 1], [0, 0], [2, 2]],  # simcse, a text twice
    [[0, 1, 2], [3, 4, 5], [6, 7, 1], [3, 8, 9]],  # with unlike ones
    [[0, 1, 2], [1, 3, 4], [5, 6, 6], [7, 8, 0]]])
def test_in_batch(texts):
  texts = np.array(texts)
  x = unit(RNG.normal(size=texts.shape + (5,)))

  def loss(x, texts):
    logits = likeness.in_batch_logits(x, texts, SCALE)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.range(4), logits=logits))

  found, gradient = run(loss, x, texts)
  np.testing.assert_allclose(found, in_batch(x, texts), rtol=1e-5)
  np.testing.assert_allclose(
      gradient, slope(lambda x: in_batch(x, texts), x), atol=1e-5)


class _Model:
  """Stands for an AlbertModel of one layer; vectors of tokens are given."""

  def __init__(self, x, mask):
    self.input_mask = tf.constant(mask)
    self._layers = [tf.constant(x, tf.float32)]
    self.config = type("", (), {"hidden_size": x.shape[-1]})

  def get_embedding_output(self):
    return tf.zeros_like(self._layers[0])

  def get_all_encoder_layers(self):
    return self._layers


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("loss", likeness.LOSSES)
def test_head(loss, pooling):
  x = RNG.normal(size=[8, 3, 5])  # four pairs of texts of three tokens
  mask = np.array([[1, 1, 1], [1, 1, 0]] * 4)
  weights = mask / mask.sum(1, keepdims=True)
  vectors = unit((x * weights[:, :, None]).sum(1) if pooling == "mean" else
                 x[:, 0]).reshape([4, 2, 5])
  texts, scores = np.arange(8).reshape([4, 2]), np.array([0., 3., 1., 1.])
  with tf.Graph().as_default(), tf.Session() as session:
    head = likeness.Likeness(loss, SCALE, pooling)
    features = {"input_ids": tf.zeros([4, 2, 3], tf.int32),
                "texts": tf.constant(texts),
                "scores": tf.constant(scores, tf.float32)}
    output = head.apply(_Model(x, mask), features)
    found, predicted, total = session.run([
        output.losses["example_loss"], output.predictions["cosines"],
        head.totals(features)["example_loss"]])
  cosines = (vectors[:, 0] * vectors[:, 1]).sum(1)
  np.testing.assert_allclose(predicted, cosines, rtol=1e-5)
  expected = cosent(cosines, scores) if loss == "cosent" else (
      in_batch(vectors, texts))
  np.testing.assert_allclose(found / total, expected, rtol=1e-5)
