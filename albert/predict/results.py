"""What is predicted, one object for each text.

All are named tuples of plain values: `to_json` makes JSON of them. `cells` are
what people read in a line of a table. Probabilities are between 0 and 1; starts
and ends are characters of the text, the end exclusive.

Tests: tests/predict/test_command_predict.py.
"""

from typing import List, NamedTuple, Optional


class Candidate(NamedTuple):
  """A label, a token or an answer to choose, and how likely it is."""
  text: str
  probability: float

  def __str__(self):
    return "%s %.4f" % self


class LabelResult(NamedTuple):
  """The label of a text or pair; `candidates`: the likeliest, best first."""
  label: str
  probability: float
  candidates: List[Candidate]

  def cells(self):
    return list(map(str, self.candidates))


class LabelsResult(NamedTuple):
  """All labels of a text or pair; `candidates`: the likeliest, best first."""
  labels: List[str]
  candidates: List[Candidate]

  def cells(self):
    return ["|".join(self.labels)] + list(map(str, self.candidates))


class ScoreResult(NamedTuple):
  """The number that a text or pair is rated with."""
  score: float

  def cells(self):
    return ["%.4f" % self.score]


class FoundEntity(NamedTuple):
  """An entity of a text: what it says, where, and of which kind."""
  text: str
  start: int
  end: int
  kind: str


class EntityResult(NamedTuple):
  """The entities of a text, in its order."""
  entities: List[FoundEntity]

  def cells(self):
    return [", ".join("%s %s %d-%d" % (x.text, x.kind, x.start, x.end)
                      for x in self.entities)]


class AnswerCandidate(NamedTuple):
  """A part of a passage, `passage[start:end]`, and how likely it is."""
  text: str
  probability: float
  start: int
  end: int


class AnswerResult(NamedTuple):
  """The answer to a question.

  Attributes:
    text: str, the answer; empty where the model says that there is none.
    start, end: int, where it is in the passage.
    probability: float, among the candidates.
    candidates: list of AnswerCandidate, the likeliest, the best first.
    null_odds: float, how much more speaks for "no answer" than for the best
      candidate; None where the model was trained on questions that all have an
      answer.
  """
  text: str
  start: int
  end: int
  probability: float
  candidates: List[AnswerCandidate]
  null_odds: Optional[float]

  def cells(self):
    return [self.text and "%s %.4f %d-%d" % (
        self.text, self.probability, self.start, self.end)]


class ChoiceResult(NamedTuple):
  """Which choice is the answer.

  Attributes:
    choice: int, its number from 0.
    text: str, the choice.
    candidates: list of Candidate, all choices in their order.
  """
  choice: int
  text: str
  candidates: List[Candidate]

  def cells(self):
    return [str(self.candidates[self.choice])]


class IdiomResult(NamedTuple):
  """Which idiom belongs in each blank of a text, in its order."""
  blanks: List[ChoiceResult]

  def cells(self):
    return [cell for blank in self.blanks for cell in blank.cells()]


class MaskResult(NamedTuple):
  """The likeliest tokens for each mask of a text, the best first."""
  masks: List[List[Candidate]]

  def cells(self):
    return [" ".join(map(str, candidates)) for candidates in self.masks]


def to_json(value):
  """Returns a result as dicts, lists and plain values."""
  if hasattr(value, "_asdict"):
    return {key: to_json(part) for key, part in value._asdict().items()}
  return [to_json(part) for part in value] if isinstance(value, list) else value
