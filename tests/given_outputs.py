"""Fake engines with given outputs."""

import numpy as np
from small_models import albert_zh_config

from albert.model.config import AlbertConfig
from albert.model_folder import ModelFolder
from albert.predict.engine import TextPredictor


def counts(ids, *_):
  """Counts the first three non-special tokens in each text."""
  return np.stack([(ids == 5 + i).sum(1) for i in range(3)], 1)


class Engine:
  """A fake engine of 12 positions; `outputs`: name -> function of the ids."""

  def __init__(self, tokenizer, outputs, transitions=None, **described):
    self.folder = ModelFolder(
      AlbertConfig.from_dict(albert_zh_config(max_position_embeddings=12)),
      None,
      **described,
    )
    self.tokenizer = tokenizer
    self._outputs = outputs
    self._transitions = transitions

  def predictor(self, _, *outputs, max_seq_length=None, batch_size=64):
    length = self.folder.length(max_seq_length)

    def call(*ids):
      assert ids[0].shape[1] <= length
      return [np.array(self._outputs[name](*ids)) for name in outputs]

    return TextPredictor(call, self.tokenizer, length, batch_size)

  def constant(self, *_):
    return self._transitions
