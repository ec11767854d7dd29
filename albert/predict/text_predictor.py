"""Predicts texts of any number and length; without TensorFlow."""

import numpy as np

import tokenization
from albert.errors import InputError

# What to say where a model lacks a signature.
_MISSING = {
    "classify": "no classifier: fine-tune one with run_classifier.py",
    "label_tokens": "no model that finds entities: fine-tune one with "
                    "run_ner.py",
    "spans": "no model that finds answers: fine-tune one with run_squad.py",
    "masked_lm": "no masked-LM weights, as is usual after fine-tuning: give a "
                 "pretrained model"}


def missing(path, signature):
  """Returns the InputError of a model that lacks a signature."""
  return InputError("%s has %s" % (path, _MISSING.get(
      signature, "no weights for %s" % signature)))


class TextPredictor:
  """Runs a model on batches of texts of similar length.

  Args:
    call: function of int32 [B, S] input_ids, input_mask, segment_ids, and of
      int32 [B, ...] for each further feature, that returns a list of arrays
      [B, ...].
    tokenizer: of tokenization.py.
    max_seq_length: int, maximum tokens of a text or pair; longer ones are
      truncated.
    batch_size: int, texts per call of the model.
  """

  def __init__(self, call, tokenizer, max_seq_length, batch_size):
    self._call = call
    self._tokenizer = tokenizer
    self._max_seq_length = max_seq_length
    self._batch_size = batch_size

  def predict(self, texts):
    """Predicts texts.

    Args:
      texts: list of (str, str or None), single texts or pairs.

    Returns:
      float32 array [number of texts, ...], in their order, the first output.
    """
    rows = [None] * len(texts)
    for i, values in self.run([tokenization.encode_texts(
        self._tokenizer, a, b, self._max_seq_length) for a, b in texts]):
      rows[i] = values[0]
    return np.array(rows, np.float32)

  def run(self, features):
    """Predicts texts that are encoded already.

    Args:
      features: list with, for each text, lists of int: input_ids, segment_ids
        and further features. Each is padded with 0 to the longest of a batch.

    Yields:
      (int, tuple of arrays [...]), in any order: index of a text and outputs.
    """
    # Texts of similar length go together, so that there is little padding.
    order = sorted(range(len(features)), key=lambda i: len(features[i][0]))
    for start in range(0, len(order), self._batch_size):
      batch = order[start:start + self._batch_size]
      input_ids, segment_ids, *more = zip(*[features[i] for i in batch])
      input_mask = [[1] * len(ids) for ids in input_ids]
      yield from zip(batch, zip(*self._call(*map(
          _padded, [input_ids, input_mask, segment_ids] + more))))


def _padded(rows):
  array = np.zeros([len(rows), max(map(len, rows))], np.int32)
  for i, row in enumerate(rows):
    array[i, :len(row)] = row
  return array
