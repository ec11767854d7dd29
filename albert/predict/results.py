"""Predictions, one object per text.

All are named tuples of plain values; `to_json` converts them to JSON, `cells`
to the cells of a table row. Probabilities are between 0 and 1; start and end
are character offsets, the end exclusive.

Tests: tests/predict/test_command_predict.py.
"""

from typing import Any, List, NamedTuple, Optional


class Candidate(NamedTuple):
  """A label, token or answer and its probability."""

  text: str
  probability: float

  def __str__(self):
    return "%s %.4f" % self


class LabelResult(NamedTuple):
  """The label of a text or pair.

  Attributes:
    label: None if its probability is too low; see PredictSettings.reject_below.
    probability: of the most likely label.
    candidates: most likely first.
  """

  label: Optional[str]
  probability: float
  candidates: List[Candidate]

  def cells(self) -> List[str]:
    cells = list(map(str, self.candidates))
    return ["not sure"] + cells if self.label is None else cells


class LabelsResult(NamedTuple):
  """All labels of a text or pair; `candidates`: most likely first."""

  labels: List[str]
  candidates: List[Candidate]

  def cells(self) -> List[str]:
    return ["|".join(self.labels)] + list(map(str, self.candidates))


class ScoreResult(NamedTuple):
  """The score of a text or pair."""

  score: float

  def cells(self) -> List[str]:
    return ["%.4f" % self.score]


class FoundEntity(NamedTuple):
  """An entity: text, offsets and type."""

  text: str
  start: int
  end: int
  kind: str


class EntityResult(NamedTuple):
  """The entities of a text, in order of position."""

  entities: List[FoundEntity]

  def cells(self) -> List[str]:
    return [
      ", ".join(
        "%s %s %d-%d" % (x.text, x.kind, x.start, x.end) for x in self.entities
      )
    ]


class AnswerCandidate(NamedTuple):
  """A span of a passage, `passage[start:end]`, and its probability."""

  text: str
  probability: float
  start: int
  end: int


class AnswerResult(NamedTuple):
  """The answer to a question.

  Attributes:
    text: empty if the model predicts no answer.
    start, end: its offsets in the passage.
    probability: among the candidates.
    candidates: most likely first.
    null_odds: score of "no answer" minus that of the best candidate; None if
      the model was trained without unanswerable questions.
  """

  text: str
  start: int
  end: int
  probability: float
  candidates: List[AnswerCandidate]
  null_odds: Optional[float]

  def cells(self) -> List[str]:
    return [
      self.text
      and "%s %.4f %d-%d" % (self.text, self.probability, self.start, self.end)
    ]


class ChoiceResult(NamedTuple):
  """The chosen answer to a question.

  Attributes:
    choice: its index, from 0.
    text: its text.
    candidates: all choices, in the given order.
  """

  choice: int
  text: str
  candidates: List[Candidate]

  def cells(self) -> List[str]:
    return [str(self.candidates[self.choice])]


class IdiomResult(NamedTuple):
  """The idiom for each blank of a text, in order of position."""

  blanks: List[ChoiceResult]

  def cells(self) -> List[str]:
    return [cell for blank in self.blanks for cell in blank.cells()]


class MaskResult(NamedTuple):
  """The tokens for each mask of a text, most likely first."""

  masks: List[List[Candidate]]

  def cells(self) -> List[str]:
    return [" ".join(map(str, candidates)) for candidates in self.masks]


def to_json(value: Any) -> Any:
  """Converts a result to dicts, lists and plain values."""
  if hasattr(value, "_asdict"):
    return {key: to_json(part) for key, part in value._asdict().items()}
  return [to_json(part) for part in value] if isinstance(value, list) else value
