"""The graph of what is exported, against the NumPy reference."""

import numpy as np
import pytest
import reference_albert as reference
import small_models
import tensorflow.compat.v1 as tf

from albert import heads
from albert.heads.signatures import INPUTS, build_signature
from albert.model.config import AlbertConfig

CONFIG = small_models.CONFIGS["google_relu"]
ARRAYS = {"input_ids": small_models.INPUT_IDS,
          "input_mask": small_models.INPUT_MASK,
          "segment_ids": small_models.SEGMENT_IDS,
          "masked_lm_positions": small_models.POSITIONS}


@pytest.mark.parametrize("sizes", [(None, None, None), (3, 7, 3)])
def test_masked_lm(sizes):
  batch, length, count = sizes
  signature = build_signature(
      AlbertConfig.from_dict(CONFIG), heads.MaskedLm(), batch, length, count)
  assert set(signature.inputs) == set(ARRAYS)
  for name, x in signature.inputs.items():
    assert (x.op.name, x.dtype) == (name, tf.int32)
    assert x.shape.as_list() == [
        batch, count if name == "masked_lm_positions" else length]
  logits = signature.outputs["logits"]
  assert logits.op.name == "masked_lm/logits"
  assert logits.shape.as_list() == [batch, count, 50]
  weights = reference.random_weights(CONFIG)
  found = small_models.evaluate(logits, {
      name: x for name, x in weights.items() if "seq_relationship" not in name},
                   {signature.inputs[name]: x for name, x in ARRAYS.items()})
  np.testing.assert_allclose(
      found.reshape([-1, 50]), small_models.run_reference(CONFIG, weights)[
          "masked_lm_logits"], atol=1e-5)


@pytest.mark.parametrize("cls, tokens", [
    (heads.SentenceOrder, 1), (heads.Encode, 7)])
def test_the_last_layer_has_the_tokens_that_a_head_needs(cls, tokens):
  lengths = []

  class Head(cls):
    def outputs(self, model, inputs):
      lengths.append(model.get_sequence_output().shape.as_list()[1])
      return super().outputs(model, inputs)

  signature = build_signature(AlbertConfig.from_dict(CONFIG), Head(), 3, 7)
  assert lengths == [tokens]
  assert tuple(signature.inputs) == INPUTS
