"""Finds entities with a model kept in memory.

Tests: tests/predict/test_predictors.py.
"""

import numpy as np

from albert.predict.text_predictor import missing
from albert.tasks import bio, entity_files, ner


class Tagger:
  """Marks entities in texts.

  Args:
    model: an engine; see engines.py.
    batch_size: int, windows of texts per call of the model.

  Attributes:
    labels: list of str, L, of tokens.

  Raises:
    InputError: the model finds no entities.
  """

  def __init__(self, model, batch_size=64):
    if model.folder.head != "token_labels":
      raise missing(model.folder.where, "label_tokens")
    self._tokenizer = model.tokenizer
    self._folder = model.folder
    self.labels = model.folder.labels
    self._transitions = model.constant("label_tokens", "transitions")
    self._predictor = model.predictor("label_tokens", "scores",
                                      batch_size=batch_size)

  def predict(self, texts):
    """Finds entities.

    Args:
      texts: iterable of str, of any length.

    Returns:
      list of lists of entity_files.Entity (start, end, kind), for each text, in
      their order: text[start:end] is an entity of that kind.
    """
    texts, scores = self.scores(texts)
    return texts.entities(decode(scores, self._transitions, self.labels))

  def scores(self, texts):
    """Scores the labels of tokens.

    Args:
      texts: iterable of str, of any length.

    Returns:
      (ner.Texts, list of float [tokens, L] for each text)
    """
    texts = ner.Texts(
        [entity_files.Example(number, text, None)
         for number, text in enumerate(texts)],
        self._tokenizer, self.labels, self._folder.length(),
        self._folder.by_character)
    features = map(texts.make_features, texts.windows)
    scores = [None] * len(texts.windows)
    for number, (values,) in self._predictor.run(
        [(row["input_ids"], row["segment_ids"]) for row in features]):
      scores[number] = values
    return texts, texts.join(scores)


def decode(scores, transitions, labels):
  """Labels the tokens of whole texts.

  Args:
    scores: list of float [tokens, L], one for each text.
    transitions: float [L, L]; see crf.load_transitions.
    labels: list of str, L.

  Returns:
    list of int arrays [tokens], numbers of labels.
  """
  _, starts = bio.forbidden(labels)
  return [bio.best_sequence(np.asarray(rows), transitions, starts)
          for rows in scores]
