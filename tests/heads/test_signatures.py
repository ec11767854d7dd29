"""Graphs of exported signatures; their inputs: test_tensorflow_files.py."""

import pytest
import small_models

from albert import heads
from albert.heads.signatures import INPUTS, build_signature
from albert.model.config import AlbertConfig

CONFIG = AlbertConfig.from_dict(small_models.CONFIGS["google_relu"])


@pytest.mark.parametrize(
  "cls, tokens", [(heads.SentenceOrder, 1), (heads.Encode, 7)]
)
def test_the_last_layer_has_the_tokens_that_a_head_needs(cls, tokens):
  lengths = []

  class Head(cls):
    def outputs(self, model, inputs):
      lengths.append(model.get_sequence_output().shape.as_list()[1])
      return super().outputs(model, inputs)

  signature = build_signature(CONFIG, Head(), 3, 7)
  assert lengths == [tokens]
  assert tuple(signature.inputs) == INPUTS
  for name, x in signature.outputs.items():
    assert x.op.name == "%s/%s" % (cls.signature, name)
