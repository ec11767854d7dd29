"""Finds entities in texts with a model kept in memory.

Tests: tests/predict/test_predictors.py.
"""

from typing import Iterable, List, Tuple, cast

import numpy as np

from albert.errors import InputError
from albert.predict.engine import Engine, missing
from albert.tasks import bio, entity_files, ner


class Tagger:
  """Finds entities in texts.

  Args:
    model: a loaded NER model.
    batch_size: windows of text per batch.

  Attributes:
    labels: the L token labels.

  Raises:
    InputError: the model was not trained for entities.
  """

  def __init__(self, model: Engine, batch_size: int = 64):
    if model.folder.head != "token_labels":
      raise missing(model.folder.where, "label_tokens")
    self._tokenizer = model.tokenizer
    self._folder = model.folder
    self.labels = cast(List[str], model.folder.labels)
    self._transitions = model.constant("label_tokens", "transitions")
    self._predictor = model.predictor(
      "label_tokens", "scores", batch_size=batch_size
    )

  def predict(self, texts: Iterable[str]) -> List[List[entity_files.Entity]]:
    """Finds entities.

    Args:
      texts: of any length.

    Returns:
      for each text, its entities (start, end, kind), text[start:end].
    """
    windowed, scores = self.scores(texts)
    if len(self._transitions) != len(self.labels):
      raise InputError(
        "%s has %d labels, the model %d outputs"
        % (self._folder.where, len(self.labels), len(self._transitions))
      )
    return windowed.entities(decode(scores, self._transitions, self.labels))

  def scores(self, texts: Iterable[str]) -> Tuple[ner.Texts, List[np.ndarray]]:
    """Scores the labels of tokens.

    Args:
      texts: of any length.

    Returns:
      the windowed texts, and float [tokens, L] for each text.
    """
    windowed = ner.Texts(
      [
        entity_files.Example(number, text, None)
        for number, text in enumerate(texts)
      ],
      self._tokenizer,
      self.labels,
      self._folder.length(),
      self._folder.by_character,
    )
    features = map(windowed.make_features, windowed.windows)
    scores = [None] * len(windowed.windows)
    for number, (values,) in self._predictor.run(
      [(row["input_ids"], row["segment_ids"]) for row in features]
    ):
      scores[number] = values
    return windowed, windowed.join(scores)


def decode(
  scores: List[np.ndarray], transitions: np.ndarray, labels: List[str]
) -> List[np.ndarray]:
  """Labels the tokens of whole texts.

  Args:
    scores: float [tokens, L] for each text.
    transitions: float [L, L]; see crf.load_transitions.
    labels: L labels.

  Returns:
    int [tokens] for each text, indices of labels.
  """
  _, starts = bio.forbidden(labels)
  return [
    bio.best_sequence(np.asarray(rows), transitions, starts) for rows in scores
  ]
