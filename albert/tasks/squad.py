"""Extractive question answering: files, windows and answer spans."""

import collections
import dataclasses
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np
from absl import logging

from albert.errors import InputError
from albert.files import tables
from albert.model_folder import Tokenizer
from albert.settings import setting
from albert.tasks import windows
from albert.tasks.data_report import Item

# The null threshold equals the odds of some dev question, which vary slightly
# with the batch size.
ROUNDING = 1e-4


@dataclasses.dataclass(frozen=True)
class Limits:
  """Limits of questions, windows and answers."""

  max_query_length: int = setting(
    64, "Maximum tokens of a question; longer ones are truncated."
  )
  max_answer_length: int = setting(30, "Maximum tokens of an answer.")
  doc_stride: int = setting(
    128, "Stride between windows of a passage, in tokens."
  )
  n_best_size: int = setting(20, "Number of answers per question to write.")


class Question(NamedTuple):
  """A question and its passage.

  Attributes:
    id: from the file.
    text, context: the question and the passage.
    answers: empty if the passage has none, None if unknown.
    start: offset of the first answer in `context`; None if not found.
  """

  id: Any
  text: str
  context: str
  answers: Optional[List[str]]
  start: Optional[int]


class Window(NamedTuple):
  """A question with a window of its passage.

  Its ids are [CLS] question [SEP] passage [SEP].

  Attributes:
    number: index of the question.
    offset: index in the window of the first passage token.
    first: index in the passage of the same token.
    count: passage tokens in this window.
  """

  number: int
  offset: int
  first: int
  count: int  # type: ignore[assignment]  # hides tuple.count


class Answer(NamedTuple):
  """A span of a passage.

  Attributes:
    text: `passage[start:end]`; empty if no span is valid.
    score: higher is more likely.
    start, end: character offsets.
  """

  text: str
  score: float
  start: int = 0
  end: int = 0


class Found(NamedTuple):
  """The answers to a question.

  Attributes:
    best: at least one, with different texts, best first.
    null_odds: score of "no answer" minus that of the best answer.
  """

  best: List[Answer]
  null_odds: float


_LAYOUTS = (
  "not SQuAD's or CMRC2018's layout, nor a list or lines of passages "
  'with "qas", or of questions with "context" and "answers"'
)


def read_questions(path: str) -> List[Question]:
  """Reads questions in JSON.

  Layouts: SQuAD's, CMRC2018's, a list of SQuAD's passages, and a list or lines
  of questions as in `datasets`.

  Returns:
    at least one question.

  Raises:
    InputError: the layout is different, or an id occurs twice.
  """
  questions, ids = [], set()
  content = tables.read_json(path)
  try:
    for question in _questions(content):
      if question.id in ids:
        raise InputError("%s: the id %s occurs twice" % (path, question.id))
      ids.add(question.id)
      questions.append(question)
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    raise InputError(
      "%s: %s: %s, after %d question(s)"
      % (path, _LAYOUTS, error, len(questions))
    ) from error
  if not questions:
    raise InputError("%s: has no questions" % path)
  known = [q for q in questions if q.answers is not None]
  logging.info(
    "%s: %d questions: %d with an answer, %d whose answer is not in the "
    "passage, %d unanswerable, %d unknown",
    path,
    len(questions),
    sum(q.start is not None for q in known),
    sum(bool(q.answers) and q.start is None for q in known),
    sum(not q.answers for q in known),
    len(questions) - len(known),
  )
  return questions


def to_json(questions: List[Question]) -> List[Dict[str, Any]]:
  """Returns answered questions in the layout of `datasets`."""
  rows = []
  for q in questions:
    answers, first = q.answers or [], -1 if q.start is None else q.start
    starts = [-1 if i else first for i in range(len(answers))]
    rows.append(
      {
        "id": q.id,
        "question": q.text,
        "context": q.context,
        "answers": {"text": answers, "answer_start": starts},
      }
    )
  return rows


def _questions(content):
  """Yields the Questions of any layout."""
  if isinstance(content, dict):
    content = [
      paragraph
      for article in content["data"]
      for paragraph in article["paragraphs"]
    ]
  for passage in content:
    context = passage.get("context_text", passage.get("context"))
    for row in passage["qas"] if "qas" in passage else [passage]:
      answers, starts = _answers(row)
      yield _question(
        row["query_id"] if "query_id" in row else row["id"],
        row["query_text"] if "query_text" in row else row["question"],
        context,
        answers,
        starts[0] if starts else -1,
      )


def _answers(row):
  """Returns (answers, their offsets) of a question; (None, []) if unknown."""
  if str(row.get("is_impossible", "")).lower() == "true":
    return [], []
  answers = row.get("answers")
  if answers is None:
    return None, []
  if not isinstance(answers, (dict, list)):
    raise TypeError("the answers %r are not a list" % (answers,))
  if isinstance(answers, dict):  # of `datasets`: lists
    answers = [
      {"text": text, "answer_start": start}
      for text, start in zip(answers["text"], answers["answer_start"])
    ]
  texts = [
    answer["text"] if isinstance(answer, dict) else answer for answer in answers
  ]
  return [
    str(text) if isinstance(text, (int, float)) else text for text in texts
  ], [
    int(answer.get("answer_start", -1)) if isinstance(answer, dict) else -1
    for answer in answers
  ]


def _question(name, text, context, answers, start):
  if not all(isinstance(x, str) for x in [text, context] + (answers or [])):
    raise TypeError("question %s has a value that is not text" % name)
  try:
    "".join([text, context] + (answers or [])).encode("utf-8")
  except UnicodeEncodeError as error:
    raise TypeError("question %s has half of a surrogate pair" % name) from (
      error
    )
  place = find_answer(context, answers[0], start) if answers else None
  return Question(str(name), text, context, answers, place)


def find_answer(context: str, answer: str, start: int) -> Optional[int]:
  """Returns the occurrence of an answer nearest to `start`, if there is one.

  Args:
    context: passage.
    answer: text of the answer.
    start: offset in the file; -1 for the first occurrence.
  """
  places = []
  place = context.find(answer)
  while answer and place >= 0:
    places.append(place)
    place = context.find(answer, place + 1)
  if start < 0:
    return places[0] if places else None
  return min(places, key=lambda place: abs(place - start), default=None)


class Passages:
  """Questions as windows of tokens.

  Args:
    questions: questions with their passages.
    tokenizer: tokenizer.
    max_seq_length: maximum tokens of a window.
    doc_stride: stride between windows, in tokens.
    max_query_length: maximum tokens of a question; longer ones are truncated.

  Attributes:
    questions: as passed.
    windows: windows of all questions, in order.
    spans: for each question int [passage tokens, 2], start and end of each
      token in the passage.

  Raises:
    InputError: the longest question leaves no room for the passage, or windows
      would not advance.
  """

  def __init__(
    self,
    questions: List[Question],
    tokenizer: Tokenizer,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
  ):
    if doc_stride < 1:
      raise InputError("--doc_stride must be at least 1, not %d" % doc_stride)
    self.questions = questions
    self.windows: List[Window] = []
    self.spans: List[np.ndarray] = []
    self._tokenizer = tokenizer
    self._queries: List[np.ndarray] = []
    self._passages: List[np.ndarray] = []  # shared by a passage's questions
    cut, tokens_of = 0, {}  # caches one passage
    for number, question in enumerate(questions):
      if question.context not in tokens_of:  # its questions are consecutive
        tokens, offsets = tokenizer.tokenize_with_offsets(question.context)
        tokens_of = {
          question.context: (
            np.array(tokenizer.convert_tokens_to_ids(tokens), np.int32),
            np.array(offsets, np.int32).reshape([-1, 2]),
          )
        }
      ids, spans = tokens_of[question.context]
      query = np.array(
        tokenizer.convert_tokens_to_ids(
          tokenizer.tokenize_plain(question.text)
        ),
        np.int32,
      )
      if len(query) > max_query_length:
        cut += 1
        query = query[:max_query_length]
      self.spans.append(spans)
      self._passages.append(ids)
      self._queries.append(query)
      offset = len(query) + 2
      room = max_seq_length - offset - 1
      if room < 1:
        raise InputError(
          "question %s: its %d tokens leave no room for the passage: raise "
          "--max_seq_length or lower --max_query_length"
          % (question.id, len(query))
        )
      for first, count in windows.cut(len(ids), room, doc_stride):
        self.windows.append(Window(number, offset, first, count))
    if cut:
      logging.info("%d question(s) cut to %d tokens", cut, max_query_length)

  def input_ids(self, window: Window) -> List[int]:
    """Returns the ids of a window."""
    passage = self._passages[window.number][
      window.first : window.first + window.count
    ]
    return (
      [self._tokenizer.cls_id]
      + self._queries[window.number].tolist()
      + [self._tokenizer.sep_id]
      + passage.tolist()
      + [self._tokenizer.sep_id]
    )

  def segment_ids(self, window: Window) -> List[int]:
    """Returns the segment ids of a window: 1 from the passage on."""
    return [0] * window.offset + [1] * (window.count + 1)

  def answer_tokens(self, number: int) -> Optional[Tuple[int, int]]:
    """Returns the first and last token of a question's answer, or None."""
    question = self.questions[number]
    if question.start is None or not question.answers:
      return None
    end = question.start + len(question.answers[0])
    first, last = self.spans[number].T
    inside = np.flatnonzero((last > question.start) & (first < end))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None

  def targets(self, window: Window) -> Tuple[int, int]:
    """Returns the start and end position of the answer in a window.

    They are (0, 0), the position of [CLS], unless the window has all of it.
    """
    tokens = self.answer_tokens(window.number)
    if (
      not tokens
      or tokens[0] < window.first
      or (tokens[1] >= window.first + window.count)
    ):
      return 0, 0
    shift = window.offset - window.first
    return tokens[0] + shift, tokens[1] + shift

  def answer(
    self, window: Window, start: int, end: int, score: float
  ) -> Answer:
    """Returns the Answer between two positions of a window."""
    spans = self.spans[window.number]
    shift = window.first - window.offset
    start, end = int(spans[start + shift][0]), int(spans[end + shift][1])
    return Answer(
      self.questions[window.number].context[start:end], float(score), start, end
    )

  def has_most_context(
    self, window: Window, place: int, others: List[Window]
  ) -> bool:
    """Returns whether no other window has more context of a token.

    Args:
      window: window with the token.
      place: position of the token in the window.
      others: all windows of the question.
    """
    token = place - window.offset + window.first
    return (
      max(
        others,
        key=lambda other: windows.context(other.first, other.count, token),
      )
      is window
    )


def candidates(
  prediction: Dict[str, np.ndarray], length: int, n_best_size: int
) -> Iterator[Tuple[int, int, float]]:
  """Yields (start, end, score) of the most likely spans of a window.

  Args:
    prediction: outputs of `Spans` or `BeamSpans` by name.
    length: tokens of the window; the rest is padding.
    n_best_size: with Spans, starts and ends to combine.
  """
  if "starts" in prediction:
    for start, start_score, ends, end_scores in zip(
      prediction["starts"],
      prediction["start_scores"],
      prediction["ends"],
      prediction["end_scores"],
    ):
      for end, end_score in zip(ends, end_scores):
        yield start, end, start_score + end_score
  else:
    starts, ends = [
      np.argsort(-prediction[name][:length])[:n_best_size]
      for name in ("start", "end")
    ]
    for start in starts:
      for end in ends:
        yield start, end, prediction["start"][start] + prediction["end"][end]


def find_answers(
  passages: Passages,
  predictions: List[Dict[str, np.ndarray]],
  n_best_size: int,
  max_answer_length: int,
) -> List[Found]:
  """Finds the best answers to each question.

  Args:
    passages: windows of the questions.
    predictions: for each window; see `candidates`.
    n_best_size: maximum answers per question.
    max_answer_length: maximum tokens of an answer.
  """
  # For each question, text -> Answer.
  answers: List[Dict[str, Answer]] = [{} for _ in passages.questions]
  nulls = [np.inf] * len(passages.questions)
  windows_of = collections.defaultdict(list)
  for window in passages.windows:
    windows_of[window.number].append(window)
  for window, prediction in zip(passages.windows, predictions):
    number = window.number
    null = (
      prediction["null"]
      if "null" in prediction
      else (prediction["start"][0] + prediction["end"][0])
    )
    nulls[number] = min(nulls[number], float(null))
    for start, end, score in candidates(
      prediction, window.offset + window.count + 1, n_best_size
    ):
      if (
        window.offset <= start <= end < window.offset + window.count
        and end - start < max_answer_length
        and passages.has_most_context(window, start, windows_of[number])
      ):
        found = passages.answer(window, start, end, score)
        known = answers[number].setdefault(found.text, found)
        if found.score > known.score:
          answers[number][found.text] = found
  is_beam = predictions and "null" in predictions[0]
  results = []
  for texts, null in zip(answers, nulls):
    best = sorted(texts.values(), key=lambda answer: -answer.score)[
      :n_best_size
    ] or [Answer("", 0.0)]
    results.append(Found(best, null if is_beam else null - best[0].score))
  return results


def probabilities(answers: List[Answer]) -> List[float]:
  """Returns the softmax of the scores."""
  scores = np.array([answer.score for answer in answers])
  weights = np.exp(scores - scores.max())
  return (weights / weights.sum()).tolist()


def items(questions: List[Question]) -> List[Item]:
  """Returns the questions and passages for the report on the data."""
  return [
    Item(
      (x.text, x.context),
      None
      if x.answers is None
      else (
        "unanswerable"
        if not x.answers
        else "answer not found"
        if x.start is None
        else "answerable",
      ),
    )
    for x in questions
  ]
