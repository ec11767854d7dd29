"""Batches of texts of like length, and their outputs in the texts' order."""

import numpy as np
import pytest
from vocabularies import small_tokenizer

from albert.predict.engines import TextPredictor, missing


@pytest.fixture
def calls():
  return []


@pytest.fixture
def predictor(calls, tmp_path):
  """Gives the first ids of a text, and how many ids it has."""

  def call(*inputs):
    calls.append(inputs)
    return [inputs[0][:, :2], inputs[1].sum(1)]

  return TextPredictor(call, small_tokenizer(tmp_path, "甲乙"), 5, 2)


def test_texts_are_predicted_in_their_order(predictor, calls):
  found = predictor.predict([("甲乙甲乙", None), ("乙", None), ("甲", "乙乙"),
                             ("", None)])
  # [CLS] and the first token; of the second call, what is cut to 5.
  np.testing.assert_array_equal(found, [[2, 5], [2, 6], [2, 5], [2, 3]])
  assert found.dtype == np.float32
  assert [[x.tolist() for x in inputs] for inputs in calls] == [
      [[[2, 3, 0], [2, 6, 3]], [[1, 1, 0], [1, 1, 1]], [[0] * 3] * 2],
      [[[2, 5, 6, 5, 3], [2, 5, 3, 6, 3]], [[1] * 5] * 2,
       [[0] * 5, [0, 0, 0, 1, 1]]]]
  assert {x.dtype for inputs in calls for x in inputs} == {np.dtype(np.int32)}
  assert predictor.predict([]).shape == (0,)


def test_further_features_are_padded_too(predictor, calls):
  found = dict(predictor.run([([2, 6, 3], [0] * 3, [1]),
                              ([2, 3], [0, 0], [1, 1])]))
  assert {i: length for i, (_, length) in found.items()} == {0: 3, 1: 2}
  np.testing.assert_array_equal(calls[0][3], [[1, 1], [1, 0]])


def test_what_a_model_lacks():
  for signature, words in (("classify", "run_classifier.py"),
                           ("masked_lm", "pretrained"), ("encode", "encode")):
    assert str(missing("a/b", signature)).startswith("a/b has no ")
    assert words in str(missing("a/b", signature))
