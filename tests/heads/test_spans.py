"""Span heads on given vectors, against NumPy."""

import numpy as np
import pytest
import reference_albert as reference
import tensorflow.compat.v1 as tf
from small_models import evaluate, run_head, span_weights

from albert import heads
from albert.heads import spans

X = np.random.RandomState(0).normal(size=[2, 4, 3])
ALLOWED = np.array([[1, 0, 1, 1], [1, 1, 0, 0]])
START, END = np.array([2, 0]), np.array([3, 0])  # the second has no answer


def losses_of(logits, places):
  return -np.log(reference.softmax(logits)[range(len(places)), places])


def test_where_an_answer_can_be():
  """[CLS] q q [SEP] p p [SEP], and a shorter, padded one."""
  found = evaluate(
    spans.answer_mask(
      tf.constant([[1] * 7, [1] * 5 + [0] * 2]),
      tf.constant([[0] * 4 + [1] * 3, [0] * 3 + [1] * 2 + [0] * 2]),
    )
  )
  assert found.tolist() == [[1, 0, 0, 0, 1, 1, 0], [1, 0, 0, 1, 0, 0, 0]]


def test_independent():
  weights = span_weights(3, "independent")
  found = run_head(
    heads.Spans(), {"start": START, "end": END}, weights, None, X
  )
  start, end = [
    X @ row + bias
    for row, bias in zip(
      weights["cls/squad/output_weights"], weights["cls/squad/output_bias"]
    )
  ]
  for name, logits in (("start", start), ("end", end)):
    np.testing.assert_allclose(found.predictions[name], logits, atol=1e-5)
  expected = (losses_of(start, START) + losses_of(end, END)) / 2
  np.testing.assert_allclose(found.each, expected, rtol=1e-5)


def beam_scores(weights, starts):
  """Returns the scores of starts, of ends given starts and of no answer."""

  def dense(scope, x):
    return reference.dense(weights, scope, x)

  start = np.where(ALLOWED, dense("start_logits/dense", X)[..., 0], -1e30)
  likely = np.einsum("bs,bsh->bh", reference.softmax(start), X)
  null = (
    np.tanh(
      dense("answer_class/dense_0", np.concatenate([likely, X[:, 0]], -1))
    )
    @ weights["answer_class/dense_1/kernel"]
  )
  end = np.stack(
    [
      np.stack(
        [
          dense(
            "end_logits/dense_1",
            reference.layer_norm(
              weights,
              "end_logits/LayerNorm",
              np.tanh(
                dense(
                  "end_logits/dense_0",
                  np.concatenate([x, x * 0 + x[place]], -1),
                )
              ),
            ),
          )
          for place in row
        ]
      )[..., 0]
      for x, row in zip(X, starts)
    ]
  )
  return start, np.where(ALLOWED[:, np.newaxis], end, -1e30), null[:, 0]


@pytest.mark.parametrize("has_unanswerable", [False, True])
def test_the_loss_of_a_beam(has_unanswerable):
  weights = span_weights(3, "beam")
  found = run_head(
    heads.BeamSpans(has_unanswerable),
    {"start": START, "end": END, "answer_mask": ALLOWED},
    weights,
    None,
    X,
  )
  start, end, null = beam_scores(weights, START[:, np.newaxis])
  expected = (losses_of(start, START) + losses_of(end[:, 0], END)) / 2
  if has_unanswerable:
    expected += 0.5 * np.log1p(np.exp(np.where(START == 0, -null, null)))
  np.testing.assert_allclose(found.each, expected, rtol=1e-4)


def test_the_likeliest_spans_of_a_beam():
  weights = span_weights(3, "beam")
  found = run_head(
    heads.BeamSpans(False, 3, 2), {"answer_mask": ALLOWED}, weights, None, X
  ).predictions
  start, end, null = beam_scores(weights, found["starts"])
  np.testing.assert_allclose(found["null"], null, atol=1e-5)
  for logits, places, scores in (
    (start, "starts", "start_scores"),
    (end, "ends", "end_scores"),
  ):
    count = found[places].shape[-1]
    order = np.argsort(-logits, -1)[..., :count]
    sure = np.take_along_axis(logits, order, -1) > -1e29
    np.testing.assert_array_equal(found[places][sure], order[sure])
    likely = np.take_along_axis(reference.softmax(logits), order, -1)[sure]
    np.testing.assert_allclose(
      found[scores][sure], np.log(likely), rtol=1e-4, atol=1e-5
    )
    assert (found[scores][~sure] < -1e29).all()
  assert found["start_scores"][1, 2] < -1e29  # only two allowed positions
