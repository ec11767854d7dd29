"""Questions about passages: files, windows of tokens, and back to the text."""

import collections
import dataclasses
from typing import Any, List, NamedTuple, Optional

import numpy as np
from absl import logging

from albert.errors import InputError
from albert.files import filesystem
from albert.settings import setting
from albert.tasks import windows

# The threshold of no answer is the odds of one of the questions that it was
# chosen on, which another batch size computes a little differently.
ROUNDING = 1e-4


@dataclasses.dataclass(frozen=True)
class Limits:
  """How passages are cut, and answers chosen."""
  max_query_length: int = setting(
      64, "Maximum tokens of a question; the rest is cut off.")
  max_answer_length: int = setting(30, "Maximum tokens of an answer.")
  doc_stride: int = setting(
      128, "Tokens from one window of a passage to the next.")
  n_best_size: int = setting(20, "Answers per question to write.")


class Question(NamedTuple):
  """A question and its passage.

  Attributes:
    id: what the file calls it.
    text, context: str, the question and the passage.
    answers: list of str, empty if the passage has none, None if the file does
      not say.
    start: int, where in `context` the first answer begins; None if it does not
      occur there.
  """
  id: Any
  text: str
  context: str
  answers: Optional[List[str]]
  start: Optional[int]


class Window(NamedTuple):
  """A question with as much of its passage as fits.

  Its ids are [CLS] question [SEP] passage [SEP].

  Attributes:
    number: int, which question.
    offset: int, index in the window of the first passage token.
    first: int, which token of the passage that is.
    count: int, passage tokens in this window.
  """
  number: int
  offset: int
  first: int
  count: int


class Answer(NamedTuple):
  """A part of a passage.

  Attributes:
    text: str, `passage[start:end]`; empty where no part is possible.
    score: float, the greater, the likelier.
    start, end: int, characters.
  """
  text: str
  score: float
  start: int = 0
  end: int = 0


class Found(NamedTuple):
  """What was found for a question.

  Attributes:
    best: list of Answer of different texts, not empty, the best first.
    null_odds: float, how much more speaks for "no answer" than for the best.
  """
  best: List[Answer]
  null_odds: float


def read_questions(path):
  """Reads a file in SQuAD's JSON or in CMRC2018's own.

  Args:
    path: str.

  Returns:
    list of Question, at least one.

  Raises:
    InputError: the file is no such JSON, or an id occurs twice.
  """
  questions, ids = [], set()
  try:
    content = filesystem.read_json(path)
    for question in _cmrc(content) if isinstance(content, list) else (
        _squad(content)):
      if question.id in ids:
        raise InputError("%s: the id %s occurs twice" % (
            path, question.id))
      ids.add(question.id)
      questions.append(question)
  except (AttributeError, KeyError, TypeError) as error:
    raise InputError("%s: not SQuAD's or CMRC2018's layout: %s, after %d "
                     "question(s)" % (path, error, len(questions))) from error
  if not questions:
    raise InputError("%s: has no questions" % path)
  return questions


def _squad(content):
  for article in content["data"]:
    for paragraph in article["paragraphs"]:
      for row in paragraph["qas"]:
        answers = row.get("answers")
        if row.get("is_impossible"):
          answers = []
        yield _question(
            row["id"], row["question"], paragraph["context"],
            answers and [answer["text"] for answer in answers],
            answers[0].get("answer_start", -1) if answers else -1)


def _cmrc(content):
  for passage in content:
    for row in passage["qas"]:
      yield _question(row["query_id"], row["query_text"],
                      passage["context_text"], row.get("answers"), -1)


def _question(name, text, context, answers, start):
  if not (isinstance(answers, (list, type(None))) and all(
      isinstance(x, str) for x in [text, context] + (answers or []))):
    raise TypeError("question %s has a value that is not text" % name)
  try:
    "".join([text, context] + (answers or [])).encode("utf-8")
  except UnicodeEncodeError as error:
    raise TypeError("question %s has half of a surrogate pair" % name) from (
        error)
  return Question(str(name), text, context, answers, find_answer(
      context, answers[0], start) if answers else None)


def find_answer(context, answer, start):
  """Returns where an answer begins: at `start`, or nearest to it; or None.

  Args:
    context, answer: str.
    start: int, where the file says it begins; -1 if it does not.
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
    questions: list of Question.
    tokenizer: of tokenization.py.
    max_seq_length: int, maximum number of ids in a window.
    doc_stride: int, passage tokens from one window to the next.
    max_query_length: int, maximum tokens of a question; the rest is cut off.

  Attributes:
    questions: as given.
    windows: list of Window, those of a question in a row.
    spans: list of int array [passage tokens, 2], start and end: where the
      tokens of each question's passage are in it.

  Raises:
    InputError: no token of a passage fits next to the longest question, or
      windows would not advance.
  """

  def __init__(self, questions, tokenizer, max_seq_length, doc_stride,
               max_query_length):
    if doc_stride < 1:
      raise InputError("--doc_stride must be at least 1, not %d" % doc_stride)
    self.questions = questions
    self.windows, self.spans = [], []
    self._tokenizer = tokenizer
    # Arrays, of which the questions of a passage share one.
    self._queries, self._passages = [], []
    cut, tokens_of = 0, {}
    for number, question in enumerate(questions):
      if question.context not in tokens_of:  # they come in a row
        tokens, spans = tokenizer.tokenize_with_offsets(question.context)
        tokens_of = {question.context: (
            np.array(tokenizer.convert_tokens_to_ids(tokens), np.int32),
            np.array(spans, np.int32).reshape([-1, 2]))}
      ids, spans = tokens_of[question.context]
      query = np.array(tokenizer.convert_tokens_to_ids(
          tokenizer.tokenize_plain(question.text)), np.int32)
      cut += len(query) > max_query_length
      query = query[:max_query_length]
      self.spans.append(spans)
      self._passages.append(ids)
      self._queries.append(query)
      offset = len(query) + 2
      room = max_seq_length - offset - 1
      if room < 1:
        raise InputError(
            "question %s: its %d tokens leave no room for the passage: raise "
            "--max_seq_length or lower --max_query_length" % (
                question.id, len(query)))
      for first, count in windows.cut(len(ids), room, doc_stride):
        self.windows.append(Window(number, offset, first, count))
    if cut:
      logging.info("%d question(s) cut to %d tokens", cut, max_query_length)

  def input_ids(self, window):
    """Returns the ids of a window, a list."""
    passage = self._passages[window.number][
        window.first:window.first + window.count]
    return ([self._tokenizer.cls_id] + self._queries[window.number].tolist() +
            [self._tokenizer.sep_id] + passage.tolist() +
            [self._tokenizer.sep_id])

  def segment_ids(self, window):
    """Returns the segment ids of a window, a list: 1 from the passage on."""
    return [0] * window.offset + [1] * (window.count + 1)

  def answer_tokens(self, number):
    """Returns (first, last) token of a question's first answer, or None."""
    question = self.questions[number]
    if question.start is None:
      return None
    end = question.start + len(question.answers[0])
    first, last = self.spans[number].T
    inside = np.flatnonzero((last > question.start) & (first < end))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None

  def targets(self, window):
    """Returns the places of the answer in a window's ids.

    Returns:
      (start, end), or (0, 0), the place of [CLS], where it is not all in there.
    """
    tokens = self.answer_tokens(window.number)
    if not tokens or tokens[0] < window.first or (
        tokens[1] >= window.first + window.count):
      return 0, 0
    shift = window.offset - window.first
    return tokens[0] + shift, tokens[1] + shift

  def answer(self, window, start, end, score):
    """Returns the Answer from place `start` to place `end` of a window."""
    spans = self.spans[window.number]
    shift = window.first - window.offset
    start, end = int(spans[start + shift][0]), int(spans[end + shift][1])
    return Answer(self.questions[window.number].context[start:end],
                  float(score), start, end)

  def has_most_context(self, window, place, others):
    """Whether no other window shows more around a token.

    Args:
      window: Window.
      place: int, of a passage token in its ids.
      others: list of Window, all those of the question.
    """
    token = place - window.offset + window.first
    return max(others, key=lambda other: windows.context(
        other.first, other.count, token)) is window


def candidates(prediction, length, n_best_size):
  """Yields (start, end, score) of the likeliest spans of a window.

  Args:
    prediction: dict of arrays, what `Spans` or `BeamSpans` gives.
    length: int, ids of the window: what is behind them depends on the batch.
    n_best_size: int, starts and ends to try, of Spans.
  """
  if "starts" in prediction:
    for start, start_score, ends, end_scores in zip(
        prediction["starts"], prediction["start_scores"], prediction["ends"],
        prediction["end_scores"]):
      for end, end_score in zip(ends, end_scores):
        yield start, end, start_score + end_score
  else:
    starts, ends = [np.argsort(-prediction[name][:length])[:n_best_size]
                    for name in ("start", "end")]
    for start in starts:
      for end in ends:
        yield start, end, prediction["start"][start] + prediction["end"][end]


def find_answers(passages, predictions, n_best_size, max_answer_length):
  """Finds the best answers to each question.

  Args:
    passages: Passages.
    predictions: list of dict of arrays, for each window; see `candidates`.
    n_best_size: int.
    max_answer_length: int, tokens.

  Returns:
    list of Found, of each question.
  """
  answers = [{} for _ in passages.questions]  # text -> Answer
  nulls = [np.inf] * len(passages.questions)
  windows_of = collections.defaultdict(list)
  for window in passages.windows:
    windows_of[window.number].append(window)
  for window, prediction in zip(passages.windows, predictions):
    number = window.number
    null = prediction["null"] if "null" in prediction else (
        prediction["start"][0] + prediction["end"][0])
    nulls[number] = min(nulls[number], float(null))
    for start, end, score in candidates(
        prediction, window.offset + window.count + 1, n_best_size):
      if (window.offset <= start <= end < window.offset + window.count and
          end - start < max_answer_length and passages.has_most_context(
              window, start, windows_of[number])):
        found = passages.answer(window, start, end, score)
        known = answers[number].setdefault(found.text, found)
        if found.score > known.score:
          answers[number][found.text] = found
  is_beam = predictions and "null" in predictions[0]
  results = []
  for texts, null in zip(answers, nulls):
    best = sorted(texts.values(), key=lambda answer: -answer.score)[
        :n_best_size] or [Answer("", 0.0)]
    results.append(Found(best, null if is_beam else null - best[0].score))
  return results


def probabilities(answers):
  """Returns how likely each Answer is among them, a list of float."""
  scores = np.array([answer.score for answer in answers])
  weights = np.exp(scores - scores.max())
  return (weights / weights.sum()).tolist()
