"""The interface of an inference backend.

Tests: tests/predict/test_engines.py.
"""

import hashlib
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

import numpy as np

import tokenization
from albert import model_folder
from albert.errors import InputError
from albert.files import filesystem

# Error messages for models that lack a signature.
_MISSING = {
  "classify": "no classifier: fine-tune one with run_classifier.py",
  "label_tokens": "no model that finds entities: fine-tune one with run_ner.py",
  "spans": "no model that finds answers: fine-tune one with run_squad.py",
  "masked_lm": "no masked-LM weights, as usual after fine-tuning: give a "
  "pretrained model",
}


def missing(path: str, signature: str) -> InputError:
  """Returns the error of a model that lacks a signature."""
  return InputError(
    "%s has %s"
    % (path, _MISSING.get(signature, "no weights for %s" % signature))
  )


class TextPredictor:
  """Runs a model on batches of texts of similar length.

  Args:
    call: function of input_ids, input_mask, segment_ids, int32 [B, S], and of
      each additional feature, int32 [B, ...], that returns arrays [B, ...].
    tokenizer: encodes the texts.
    max_seq_length: maximum tokens of a text or pair; longer ones are truncated.
    batch_size: texts per batch.
  """

  def __init__(
    self,
    call: Callable[..., Sequence[np.ndarray]],
    tokenizer: model_folder.Tokenizer,
    max_seq_length: int,
    batch_size: int,
  ):
    self._call = call
    self._tokenizer = tokenizer
    self._max_seq_length = max_seq_length
    self._batch_size = batch_size

  def predict(self, texts: Sequence[Tuple[str, Optional[str]]]) -> np.ndarray:
    """Predicts texts.

    Args:
      texts: pairs; for a single text, the second is None.

    Returns:
      float32 [number of texts, ...], the first output.
    """
    rows = [None] * len(texts)
    for i, values in self.run(
      [
        tokenization.encode_texts(self._tokenizer, a, b, self._max_seq_length)
        for a, b in texts
      ]
    ):
      rows[i] = values[0]
    return np.array(rows, np.float32)

  def run(
    self, features: Sequence[Sequence[Sequence[int]]]
  ) -> Iterator[Tuple[int, Tuple[Any, ...]]]:
    """Predicts encoded texts.

    Args:
      features: for each text, input_ids, segment_ids and additional features,
        each padded with 0 to the longest of its batch.

    Yields:
      the index of a text and its outputs, arrays [...], in any order.
    """
    # Batching texts of similar length minimizes padding.
    order = sorted(range(len(features)), key=lambda i: len(features[i][0]))
    for start in range(0, len(order), self._batch_size):
      batch = order[start : start + self._batch_size]
      input_ids, segment_ids, *more = zip(*[features[i] for i in batch])
      input_mask = [[1] * len(ids) for ids in input_ids]
      outputs = self._call(
        *map(_padded, [input_ids, input_mask, segment_ids, *more])
      )
      yield from zip(batch, zip(*outputs))


def _padded(rows):
  array = np.zeros([len(rows), max(map(len, rows))], np.int32)
  for i, row in enumerate(rows):
    array[i, : len(row)] = row
  return array


class Engine:
  """A model kept in memory.

  Attributes:
    folder: the folder that describes the model.
    tokenizer: its tokenizer.
  """

  folder: model_folder.ModelFolder
  tokenizer: model_folder.Tokenizer

  def predictor(
    self,
    signature: str,
    *outputs: str,
    max_seq_length: Optional[int] = None,
    batch_size: int = 64,
  ) -> TextPredictor:
    """Returns the predictor of outputs of a signature; see export_model.py.

    Args:
      signature: name of the signature.
      *outputs: names of its outputs.
      max_seq_length: maximum tokens of a text; None for that of the folder.
      batch_size: texts per batch.

    Raises:
      InputError: the model lacks the weights.
    """
    raise NotImplementedError

  def constant(self, signature: str, output: str) -> np.ndarray:
    """Returns an output that does not depend on the text.

    Raises:
      InputError: the model lacks the weights.
    """
    raise NotImplementedError

  def digest(self) -> str:
    """Returns a checksum of weights, vocabulary and settings."""
    weights = filesystem.sha256(*self.weight_files())
    parts = [content for _, content in sorted(self.folder.contents().items())]
    return hashlib.sha256(b"\0".join([weights.encode(), *parts])).hexdigest()

  def weight_files(self) -> List[str]:
    """Returns the paths of the weight files."""
    raise NotImplementedError
