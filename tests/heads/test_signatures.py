"""The graph of what is exported. What it computes: predict/test_masks.py."""

import pytest
import small_models
import tensorflow.compat.v1 as tf

from albert import heads
from albert.heads.signatures import INPUTS, build_signature
from albert.model.config import AlbertConfig

CONFIG = AlbertConfig.from_dict(small_models.CONFIGS["google_relu"])


@pytest.mark.parametrize("sizes", [(None, None, None), (3, 7, 3)])
def test_masked_lm(sizes):
  batch, length, count = sizes
  signature = build_signature(CONFIG, heads.MaskedLm(), batch, length, count)
  assert {(name, x.op.name, x.dtype, *x.shape.as_list())
          for name, x in signature.inputs.items()} == {
              (name, name, tf.int32, batch, size) for name, size in (
                  ("input_ids", length), ("input_mask", length),
                  ("segment_ids", length), ("masked_lm_positions", count))}
  logits = signature.outputs["logits"]
  assert logits.op.name == "masked_lm/logits"
  assert logits.shape.as_list() == [batch, count, 50]


@pytest.mark.parametrize("cls, tokens", [
    (heads.SentenceOrder, 1), (heads.Encode, 7)])
def test_the_last_layer_has_the_tokens_that_a_head_needs(cls, tokens):
  lengths = []

  class Head(cls):
    def outputs(self, model, inputs):
      lengths.append(model.get_sequence_output().shape.as_list()[1])
      return super().outputs(model, inputs)

  signature = build_signature(CONFIG, Head(), 3, 7)
  assert lengths == [tokens]
  assert tuple(signature.inputs) == INPUTS
