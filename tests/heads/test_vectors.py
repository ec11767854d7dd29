"""Sentence vectors and their losses on given token vectors."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from small_models import PooledModel, evaluate, run_head

from albert.heads import Encode, SentenceVector, vectors

# A text of two tokens with padding, a text without padding.
LAYERS = [
  number + np.array([[[1.0, 2], [3, 6], [50, 50]], [[0, 0], [1, 1], [2, 8]]])
  for number in range(3)
]
MEANS = np.array([[2.0, 4], [1, 3]])
POOLED = [[7.0, 7], [8, 8]]


@pytest.mark.parametrize(
  "head, vector",
  [
    (Encode(), None),
    *(
      (SentenceVector(*which), vector)
      for *which, vector in (
        ("cls", 1, LAYERS[1][:, 0]),
        ("mean", -1, MEANS + 2),
        ("mean", -2, MEANS + 1),
        ("pooled", 0, POOLED),
      )
    ),
  ],
)
def test_what_is_exported(head, vector):
  model = PooledModel(POOLED, *LAYERS, mask=[[1, 1, 0], [1, 1, 1]])
  found, expected = (
    evaluate(head.outputs(model, {})),
    {
      "pooled_output": POOLED,
      "sequence_output": LAYERS[2],
      **{"layer_%d" % i: x for i, x in enumerate(LAYERS)},
    },
  )
  if vector is not None:
    expected = {"vector": vector, "pooled": POOLED}
    for i, x in enumerate(LAYERS):
      expected.update({"mean_%d" % i: MEANS + i, "cls_%d" % i: x[:, 0]})
  assert set(found) == set(expected)
  for name, x in expected.items():
    np.testing.assert_allclose(found[name], x)


SCALE = 3.0


def test_where_nothing_is_to_be_in_order_nothing_is_learnt():
  x = tf.constant([0.9, -0.2, 0.4])
  loss = vectors.cosent_loss(x, tf.ones([3]), SCALE)
  found, slope = evaluate([loss, *tf.gradients(loss, x)])
  assert found == 0 and not slope.any()


def in_batch(x, texts):
  """The mean loss, with negatives chosen pair by pair."""
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


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize(
  "loss, texts",
  [
    *((loss, [[0, 1], [2, 3], [4, 5], [6, 7]]) for loss in vectors.LOSSES),
    # A first text and a second text occur twice.
    ("in_batch", [[0, 1], [2, 3], [0, 4], [5, 3]]),
    ("simcse", [[0, 0], [1, 1], [0, 0], [2, 2]]),  # a duplicate
    ("in_batch", [[0, 1, 2], [3, 4, 5], [6, 7, 1], [3, 8, 9]]),  # negatives
    ("in_batch", [[0, 1, 2], [1, 3, 4], [5, 6, 6], [7, 8, 0]]),
  ],
)
def test_head(loss, texts, pooling):
  texts, scores = np.array(texts), np.array([0.0, 3.0, 1.0, 1.0])
  # Three tokens each.
  x = np.random.RandomState(0).normal(size=[texts.size, 3, 5])
  mask = np.array([[1, 1, 1], [1, 1, 0]] * (texts.size // 2))
  weights = mask / mask.sum(1, keepdims=True)
  units = (x * weights[:, :, None]).sum(1) if pooling == "mean" else x[:, 0]
  units = (units / np.linalg.norm(units, axis=1, keepdims=True)).reshape(
    texts.shape + (5,)
  )
  found = run_head(
    vectors.Likeness(loss, SCALE, pooling),
    {
      "input_ids": np.zeros(texts.shape + (3,), int),
      "texts": texts,
      "scores": scores,
    },
    {},
    None,
    0 * x,
    x,
    mask=mask,
  )
  cosines = (units[:, 0] * units[:, 1]).sum(1)
  np.testing.assert_allclose(found.predictions["cosines"], cosines, rtol=1e-5)
  expected = (
    np.log1p(
      sum(
        np.exp(SCALE * (cosines[j] - cosines[i]))
        for i in range(4)
        for j in range(4)
        if scores[i] > scores[j]
      )
    )
    if loss == "cosent"
    else (in_batch(units, texts))
  )
  np.testing.assert_allclose(found.each.mean(), expected, rtol=1e-5)
