"""Predicts with a model; its folder determines the task.

In a program:

    from albert.predict import load

    model = load("output/my_task/best")
    for result in model.predict(["这部电影真好看", "太难看了"]):
      print(result.label, result.probability)
"""

import dataclasses
from typing import Any, Dict, Iterable, List, Optional, Tuple, Type

import numpy as np

import tokenization
from albert.errors import InputError
from albert.model_folder import FolderSettings, ModelFolder
from albert.predict import engines, results
from albert.predict.engine import Engine
from albert.predict.tagger import Tagger
from albert.settings import setting
from albert.tasks import chid, label_sets, race, squad, windows


@dataclasses.dataclass(frozen=True)
class PredictSettings:
  """Batch size and limits of prediction."""

  reject_below: float = setting(
    0.0,
    'Probability below which a text\'s label is "not sure", null in JSON.',
    least=0,
    most=1,
  )
  batch_size: int = setting(64, "Texts per batch.", least=1)
  max_query_length: int = setting(
    None,
    "Maximum tokens of a question; default: that of run_squad.py and "
    "run_race.py.",
    least=1,
  )
  max_answer_length: int = setting(
    squad.Limits.max_answer_length, "Maximum tokens of an answer.", least=1
  )
  doc_stride: int = setting(
    squad.Limits.doc_stride,
    "Stride between windows of a passage, in tokens.",
    least=1,
  )


def load(
  model_dir: str,
  engine: str = "auto",
  given: Optional[FolderSettings] = None,
  settings: Optional[PredictSettings] = None,
) -> "Predictor":
  """Loads a model once, to predict any number of times.

  Args:
    model_dir: model folder, such as the `best` of a fine-tuning run; for
      "onnx" and "openvino", a folder from export_model.py --onnx.
    engine: see engines.EngineSettings.
    given: settings that the folder lacks.
    settings: None for the defaults.

  Returns:
    the predictor of the model's task; Masks if it has none.

  Raises:
    InputError: the folder has no model.
  """
  return of_engine(engines.load(engine, model_dir, given), settings)


def of_engine(
  model: Engine, settings: Optional[PredictSettings] = None
) -> "Predictor":
  """Returns the predictor of a loaded engine; see `load`."""
  return class_for(model.folder)(model, settings or PredictSettings())


def class_for(folder: ModelFolder) -> Type["Predictor"]:
  """Returns the class of Predictor for a model.

  Raises:
    InputError: there is none for its head.
  """
  head = folder.head or ""
  if not head and folder.labels is not None:  # from an earlier version
    head = "classifier" if folder.labels else "regression"
  if head == "choices" and folder.task_name == "chid":
    return Idioms
  classes = {
    "": Masks,
    "classifier": Labels,
    "multi_label": SeveralLabels,
    "regression": Scores,
    "sentence_vector": Cosines,
    "token_labels": Entities,
    "independent": Answers,
    "beam": Answers,
    "choices": Choices,
  }
  if head not in classes:
    raise InputError(
      "%s: there is no predictor for the head %r" % (folder.where, head)
    )
  return classes[head]


class BadInput(InputError):
  """An input that does not fit the model.

  Attributes:
    number: its number, from 1.
    problem: the error.
  """

  def __init__(self, number: int, problem: str):
    super().__init__("input %d: %s" % (number, problem))
    self.number = number
    self.problem = problem


class Predictor:
  """A model kept in memory.

  Args:
    model: the loaded model.
    settings: batch size and limits.

  Attributes:
    fields: the fields of an input. An input of one field is a str, of several a
      tuple; each field is a str, except `choices`, a list of str.
    kind: kind of result in the HTTP API.
    labels: the possible labels; None if they are not fixed.
    reading: `ModelFolder.reading`, empty if it is None.
  """

  fields: Tuple[str, ...] = ("text",)
  kind: Optional[str] = None

  def __init__(self, model: Engine, settings: PredictSettings):
    self._folder = model.folder
    self._tokenizer = model.tokenizer
    self._settings = settings
    self._length = model.folder.length()
    self.labels: Optional[List[str]] = model.folder.labels or None
    self.reading: Dict[str, Any] = model.folder.reading or {}

  def is_cut(self, row: Any) -> bool:
    """Returns whether an input will be truncated."""
    return False

  def predict(self, inputs: Iterable[Any], top_k: int = 5) -> List[Any]:
    """Predicts texts.

    Args:
      inputs: see `fields`.
      top_k: maximum number of candidates.

    Returns:
      for each input, an object of results.py.

    Raises:
      BadInput: an input has different fields, or cannot be predicted.
    """
    inputs = list(inputs)
    for number, row in enumerate(inputs, 1):
      if not self._takes(self._parts(row)):
        exception = (
          " but for the list of choices" if "choices" in self.fields else ""
        )
        raise BadInput(
          number,
          "expected %s, all of them text%s"
          % (", ".join(self.fields), exception),
        )
    return self._predict(inputs, top_k) if inputs else []

  def _takes(self, parts):
    return (
      isinstance(parts, (tuple, list))
      and (len(parts) == len(self.fields))
      and all(map(_fits, self.fields, parts))
    )

  def _predict(self, inputs, top_k):
    raise NotImplementedError

  def _parts(self, row):
    return (row,) if isinstance(row, str) else row

  def _count(self, text):
    return len(self._tokenizer.tokenize(text))


def _fits(field, value):
  if field == "choices":
    return (
      isinstance(value, (list, tuple))
      and len(value) > 1
      and all(isinstance(choice, str) for choice in value)
    )
  return isinstance(value, str)


class _Rated(Predictor):
  """Labels or scores texts, or pairs if trained on pairs."""

  output: Optional[str] = None

  def __init__(self, model, settings):
    super().__init__(model, settings)
    if self._folder.pairs:
      self.fields = ("text_a", "text_b")
    max_windows = self._folder.max_windows or 1
    # [CLS] and a [SEP] after each text.
    self._room = max_windows * (self._length - 1 - len(self.fields))
    self._sequences = windows.sequence_maker(
      self._tokenizer,
      self._length,
      self._folder.long_text or windows.HEAD,
      max_windows,
    )
    self._predictor = model.predictor(
      "classify", self.output, batch_size=settings.batch_size
    )

  def is_cut(self, row: Any) -> bool:
    """See Predictor."""
    return sum(map(self._count, self._parts(row))) > self._room

  def logits(self, inputs: List[Any]) -> np.ndarray:
    """Returns the output of each input, the mean of its sequences.

    Args:
      inputs: see `fields`.

    Returns:
      float64 [N, L], logits of the labels; for regression float64 [N], scores.
    """
    rows = [self._sequences(*self._parts(row)) for row in inputs]
    found: List[List[np.ndarray]] = [[] for _ in rows]
    numbers = [number for number, row in enumerate(rows) for _ in row]
    for i, (output,) in self._predictor.run([x for row in rows for x in row]):
      found[numbers[i]].append(output)
    return np.array([np.mean(row, 0, np.float64) for row in found])


class Labels(_Rated):
  """Classifies texts or pairs into one label: LabelResult."""

  kind = "label"
  output = "logits"

  def _predict(self, inputs, top_k):
    found: List[Any] = []
    for row in map(self._probabilities, self.logits(inputs)):
      labels = self._folder.labels or list(map(str, range(len(row))))
      if len(labels) != len(row):
        raise InputError(
          "%s has %d labels, the model %d outputs"
          % (self._folder.where, len(labels), len(row))
        )
      order = np.argsort(-row, kind="stable")[:top_k]
      found.append(
        self._result(
          row,
          labels,
          [results.Candidate(labels[i], float(row[i])) for i in order],
        )
      )
    return found

  def _probabilities(self, logits):
    logits = logits / (self._folder.calibration_temperature or 1.0)
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()

  def _result(self, row, labels, candidates):
    label, probability = candidates[0]
    is_sure = probability >= self._settings.reject_below
    return results.LabelResult(
      label if is_sure else None, probability, candidates
    )


class SeveralLabels(Labels):
  """Classifies texts or pairs into any number of labels: LabelsResult."""

  kind = "labels"

  def _probabilities(self, logits):
    return 0.5 + 0.5 * np.tanh(0.5 * logits)  # a sigmoid that cannot overflow

  def _result(self, row, labels, candidates):
    return results.LabelsResult(
      label_sets.above(row, labels, self._folder.thresholds or {}), candidates
    )


class Scores(_Rated):
  """Scores texts or pairs: ScoreResult."""

  kind = "score"
  output = "score"

  def _predict(self, inputs, top_k):
    return [results.ScoreResult(float(score)) for score in self.logits(inputs)]


class Cosines(Predictor):
  """Cosine of the vectors of two texts, between -1 and 1: ScoreResult."""

  kind = "score"
  fields = ("text_a", "text_b")

  def __init__(self, model: Engine, settings: PredictSettings):
    super().__init__(model, settings)
    self._vectors = engines.sentence_vectors(
      model, batch_size=settings.batch_size
    )

  def is_cut(self, row: Any) -> bool:
    """See Predictor."""
    return any(self._count(text) > self._length - 2 for text in row)

  def _predict(self, inputs, top_k):
    x = self._vectors.predict([(text, None) for row in inputs for text in row])
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    return [
      results.ScoreResult(float(score)) for score in (x[::2] * x[1::2]).sum(1)
    ]


class Entities(Predictor):
  """Finds entities in texts of any length: EntityResult."""

  kind = "entities"

  def __init__(self, model: Engine, settings: PredictSettings):
    super().__init__(model, settings)
    self._tagger = Tagger(model, settings.batch_size)

  def _predict(self, inputs, top_k):
    return [
      results.EntityResult(
        [
          results.FoundEntity(text[start:end], start, end, kind)
          for start, end, kind in entities
        ]
      )
      for text, entities in zip(inputs, self._tagger.predict(inputs))
    ]


class Answers(Predictor):
  """Finds answers in passages of any length: AnswerResult."""

  kind = "answer"
  fields = ("question", "passage")

  def __init__(self, model: Engine, settings: PredictSettings):
    super().__init__(model, settings)
    self._outputs = (
      ("start", "end")
      if (self._folder.head == "independent")
      else ("starts", "start_scores", "ends", "end_scores", "null")
    )
    self._predictor = model.predictor(
      "spans", *self._outputs, batch_size=settings.batch_size
    )
    self._limits = squad.Limits(
      settings.max_query_length or squad.Limits.max_query_length,
      settings.max_answer_length,
      settings.doc_stride,
    )

  def is_cut(self, row: Any) -> bool:
    """See Predictor; a passage is never truncated."""
    return self._count(row[0]) > self._limits.max_query_length

  def _predict(self, inputs, top_k):
    limits = self._limits
    passages = squad.Passages(
      [
        squad.Question(str(number), question, passage, None, None)
        for number, (question, passage) in enumerate(inputs, 1)
      ],
      self._tokenizer,
      self._length,
      limits.doc_stride,
      limits.max_query_length,
    )
    predictions = [None] * len(passages.windows)
    features = [
      (passages.input_ids(window), passages.segment_ids(window))
      for window in passages.windows
    ]
    for number, values in self._predictor.run(features):
      predictions[number] = dict(zip(self._outputs, values))
    return [
      self._result(found, top_k)
      for found in squad.find_answers(
        passages, predictions, limits.n_best_size, limits.max_answer_length
      )
    ]

  def _result(self, found, top_k):
    candidates = [
      results.AnswerCandidate(
        answer.text, probability, answer.start, answer.end
      )
      for answer, probability in zip(
        found.best, squad.probabilities(found.best)
      )
    ]
    best, null_odds = candidates[0], None
    if self._folder.has_unanswerable:
      null_odds = found.null_odds
      if null_odds > (self._folder.null_threshold or 0.0) + squad.ROUNDING:
        best = results.AnswerCandidate("", 0.0, 0, 0)
    return results.AnswerResult(
      best.text,
      best.start,
      best.end,
      best.probability,
      candidates[:top_k],
      null_odds,
    )


class Choices(Predictor):
  """Chooses an answer to a question about a passage: ChoiceResult."""

  kind = "choice"
  fields: Tuple[str, ...] = ("passage", "question", "choices")
  _sequence_maker = staticmethod(race.sequence_maker)

  def __init__(self, model: Engine, settings: PredictSettings):
    super().__init__(model, settings)
    self._max_query_length = settings.max_query_length or race.MAX_QUERY_LENGTH
    self._predictor = model.predictor(
      "classify", "score", batch_size=settings.batch_size
    )

  def is_cut(self, row: Any) -> bool:
    """See Predictor."""
    passage, question, choices = row
    query = max(self._count(race.fill_in(question, x)) for x in choices)
    return query > self._max_query_length or (
      self._count(passage) + query + 3 > self._length
    )

  def _predict(self, inputs, top_k):
    return self._choose(
      [
        race.Example(number, None, passage, question, list(choices), None)
        for number, (passage, question, choices) in enumerate(inputs)
      ]
    )

  def _choose(self, examples):
    """Returns a ChoiceResult for each race.Example."""
    # A new maker per call, because it caches passages.
    sequences = self._sequence_maker(
      self._tokenizer, self._length, self._max_query_length
    )
    rows = list(map(sequences, examples))
    scores = np.full([len(rows), max(map(len, rows))], -1e9)
    places = [(i, j) for i, row in enumerate(rows) for j in range(len(row))]
    for number, (score,) in self._predictor.run(
      [rows[i][j] for i, j in places]
    ):
      scores[places[number]] = score
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    rows = weights / weights.sum(-1, keepdims=True)
    chosen = race.choose(examples, np.log(rows + 1e-38))
    return [
      results.ChoiceResult(
        int(choice),
        example.choices[choice],
        list(map(results.Candidate, example.choices, row.tolist())),
      )
      for example, row, choice in zip(examples, rows, chosen)
    ]


class Idioms(Choices):
  """Chooses idioms for the blanks of texts, `#idiom1#`: IdiomResult.

  Each candidate fills at most one blank of a text.
  """

  kind = "idioms"
  fields = ("text", "choices")
  _sequence_maker = staticmethod(chid.sequence_maker)

  def is_cut(self, row: Any) -> bool:
    """See Predictor."""
    text, choices = row
    filled = chid.fill_blanks(text, max(choices, key=len))
    return self._count(filled) + 2 > self._length

  def _predict(self, inputs, top_k):
    examples = []
    for number, (text, choices) in enumerate(inputs, 1):
      try:
        examples += chid.blanks(
          {"content": [text], "candidates": list(choices)}, number, None, {}
        )
      except ValueError as error:
        raise BadInput(number, str(error)) from error
    found = [[] for _ in inputs]
    for example, result in zip(examples, self._choose(examples)):
      found[example.group - 1].append(result)
    return list(map(results.IdiomResult, found))


class Masks(Predictor):
  """Fills in [MASK] tokens independently of each other: MaskResult."""

  kind = "masks"

  def __init__(self, model: Engine, settings: PredictSettings):
    super().__init__(model, settings)
    self._length = self._folder.config.max_position_embeddings
    self._predictor = model.predictor(
      "masked_lm",
      "logits",
      max_seq_length=self._length,
      batch_size=min(settings.batch_size, 16),
    )
    tokens = self._tokenizer.convert_ids_to_tokens(
      range(self._tokenizer.vocab_size)
    )
    self._fillings = np.array(
      [
        i
        for i, token in enumerate(tokens)
        if not tokenization.NO_TEXT.match(token)
      ]
    )

  def _predict(self, inputs, top_k):
    features = [
      self._encode(number, text) for number, text in enumerate(inputs, 1)
    ]
    found = [None] * len(inputs)
    for i, (logits,) in self._predictor.run(features):
      # Zipping with the positions drops the padding.
      found[i] = results.MaskResult(
        [self._likeliest(row, top_k) for row, _ in zip(logits, features[i][2])]
      )
    return found

  def _encode(self, number, text):
    """Returns input_ids, segment_ids and the positions of [MASK]."""

    input_ids, segment_ids = tokenization.encode_texts(
      self._tokenizer, text, None, self._length + 1
    )
    positions = np.flatnonzero(np.equal(input_ids, self._tokenizer.mask_id))
    if len(input_ids) > self._length:
      problem = (
        "has more than the %d tokens that the model can read: "
        "shorten it" % self._length
      )
    elif not len(positions):
      problem = "has no [MASK]: write one for each token to fill in"
    else:
      return input_ids, segment_ids, positions
    raise BadInput(
      number,
      "%r %s" % (text if len(text) <= 40 else text[:40] + "...", problem),
    )

  def _likeliest(self, logits, top_k):
    ids = self._fillings[
      np.argsort(-logits[self._fillings], kind="stable")[:top_k]
    ]
    weights = np.exp(logits - logits.max())
    return list(
      map(
        results.Candidate,
        self._tokenizer.convert_ids_to_tokens(ids),
        (weights[ids] / weights.sum()).tolist(),
      )
    )
