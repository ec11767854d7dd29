"""Vectors of texts, on given vectors of tokens."""

import numpy as np
import pytest
from small_models import PooledModel, evaluate

from albert.heads import Encode, SentenceVector
from albert.heads.vectors import sentence_vectors

# Two tokens and padding; a text without padding.
LAYERS = [number + np.array([[[1.0, 2], [3, 6], [50, 50]],
                             [[0, 0], [1, 1], [2, 8]]]) for number in range(3)]
MEANS = np.array([[2.0, 4], [1, 3]])
POOLED = [[7.0, 7], [8, 8]]


@pytest.fixture
def model():
  return PooledModel(POOLED, *LAYERS, mask=[[1, 1, 0], [1, 1, 1]])


@pytest.mark.parametrize("pooling, layer, expected", [
    ("mean", -1, MEANS + 2), ("mean", 0, MEANS), ("mean", -2, MEANS + 1),
    ("cls", 1, [[2, 3], [1, 1]]), ("pooled", 0, POOLED)])
def test_of_a_pooling_and_a_layer(pooling, layer, expected, model):
  np.testing.assert_allclose(
      evaluate(sentence_vectors(model, pooling, layer)), expected)


def test_what_is_exported(model):
  found = evaluate(SentenceVector("cls", 1).outputs(model, {}))
  assert set(found) == {"vector", "pooled", "mean_0", "cls_0", "mean_1",
                        "cls_1", "mean_2", "cls_2"}
  for name, x in (("vector", LAYERS[1][:, 0]), ("cls_2", LAYERS[2][:, 0]),
                  ("mean_0", MEANS), ("pooled", POOLED)):
    np.testing.assert_allclose(found[name], x)
  found = evaluate(Encode().outputs(model, {}))
  assert len(found) == 5
  for name, x in (("sequence_output", LAYERS[2]), ("pooled_output", POOLED),
                  ("layer_0", LAYERS[0]), ("layer_2", LAYERS[2])):
    np.testing.assert_allclose(found[name], x)
