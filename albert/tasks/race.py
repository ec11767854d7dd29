"""Multiple choice: files of RACE and C3, and features."""

import array
import collections
import functools
import os
import re
from typing import (
  Any,
  Callable,
  Dict,
  Iterator,
  List,
  NamedTuple,
  Optional,
  Tuple,
)

import numpy as np

import tokenization
from albert.errors import InputError
from albert.files import filesystem
from albert.model_folder import Tokenizer
from albert.tasks import metrics, windows
from albert.tasks.data_report import Item

MAX_QUERY_LENGTH = 128  # default tokens of question and choice

# (data_dir, split) -> [(path, part)]; (path, part) -> examples.
Finder = Callable[[str, str], List[Tuple[str, Optional[str]]]]
Reader = Callable[[str, Optional[str]], Iterator["Example"]]


class Example(NamedTuple):
  """A question.

  Attributes:
    id: from the file.
    part: subset to report separately: RACE's middle and high, C3's d and m.
    passage, question: texts.
    choices: at least two.
    answer: index of the right choice; None if unknown.
    group: questions of the same group have different answers; None for no
      constraint.
  """

  id: Any
  part: Optional[str]
  passage: str
  question: str
  choices: List[str]
  answer: Optional[int]
  group: Any = None


def find_race(data_dir: str, split: str) -> List[Tuple[str, Optional[str]]]:
  """Returns (path, part) of RACE's SPLIT/{middle,high}/*.txt."""
  files: List[Tuple[str, Optional[str]]] = []
  for part in ("middle", "high"):
    files += [
      (path, part)
      for path in filesystem.find_files(
        os.path.join(data_dir, split, part), "*.txt"
      )
    ]
  return files


def read_race(path: str, part: Optional[str]) -> Iterator[Example]:
  """Yields the questions of a RACE article, a JSON file."""
  article = filesystem.read_json(path)
  try:
    questions, options = article["questions"], article["options"]
    letters = article.get("answers") or [None] * len(questions)
    if not len(questions) == len(options) == len(letters):
      raise ValueError(
        "%d questions, %d options, %d answers"
        % (len(questions), len(options), len(letters))
      )
    name = article.get("id", "%s/%s" % (part, os.path.basename(path)))
    for number, (question, choices, letter) in enumerate(
      zip(questions, options, letters)
    ):
      yield Example(
        "%s-%d" % (name, number),
        part,
        article["article"],
        question,
        choices,
        None if letter is None else list("ABCD").index(letter),
      )
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    raise InputError("%s: not RACE's layout: %s" % (path, error)) from error


def find_c3(data_dir: str, split: str) -> List[Tuple[str, Optional[str]]]:
  """Returns (path, part) of {,c3-}{d,m}-SPLIT.json, or of CLUE's single file.

  CLUE's test.json, test1.1.json and test1.0.json have both parts and take
  precedence.
  """

  def existing(names_and_parts):
    return [
      (os.path.join(data_dir, name), part)
      for name, part in names_and_parts
      if filesystem.exists(os.path.join(data_dir, name))
    ]

  whole = [split + ".json"]
  if split == "test":
    whole = ["test.json", "test1.1.json"]
  return existing((name, None) for name in whole)[:1] or existing(
    (prefix + "%s-%s.json" % (part, split), part)
    for part in ("d", "m")
    for prefix in ("", "c3-")
  )


def read_c3(path: str, part: Optional[str]) -> Iterator[Example]:
  """Yields the questions of a C3 file."""
  content = filesystem.read_json(path)
  try:
    for lines, questions, name in content:
      passage = "\n".join(lines)
      for number, row in enumerate(questions):
        answer = row.get("answer")
        yield Example(
          row.get("id", "%s-%s-%d" % (part, name, number)),
          part,
          passage,
          row["question"],
          row["choice"],
          row["choice"].index(answer) if answer else None,
        )
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    raise InputError("%s: not C3's layout: %s" % (path, error)) from error


def read_examples(
  find: Finder, read: Reader, data_dir: str, split: str
) -> List[Example]:
  """Reads a split.

  Args:
    find: finds its files.
    read: reads one of them.
    data_dir: folder of the data set.
    split: if it begins with "test", answers may be missing.

  Returns:
    at least one example.

  Raises:
    InputError: there are no files, a file is malformed, or an id occurs twice.
  """
  examples, ids = [], set()
  needs_answer = not split.startswith("test")
  for path, part in find(data_dir, split):
    for example in read(path, part):
      _check(example, path, needs_answer)
      if example.id in ids:
        raise InputError("%s: the id %s occurs twice" % (path, example.id))
      ids.add(example.id)
      examples.append(example)
  if not examples:
    raise InputError(
      "%s: no questions for %s: change --data_dir" % (data_dir, split)
    )
  return (
    examples
    if needs_answer
    else (metrics.without_placeholders(examples, "answer", data_dir))
  )


def _check(example, path, needs_answer):
  where = "%s: question %s" % (path, example.id)
  if not isinstance(example.choices, list) or not all(
    isinstance(text, str)
    for text in [example.passage, example.question] + example.choices
  ):
    raise InputError("%s has a value that is not text" % where)
  if len(example.choices) < 2:
    raise InputError("%s has fewer than 2 choices" % where)
  if example.answer is None and needs_answer:
    raise InputError("%s has no answer" % where)
  if (example.answer or 0) >= len(example.choices):
    raise InputError("%s has no choice %s" % (where, "ABCD"[example.answer]))


def choose(
  examples: List[Example], log_probabilities: np.ndarray
) -> np.ndarray:
  """Returns the choices with the highest joint probability.

  Args:
    examples: N questions.
    log_probabilities: float [N, C].

  Returns:
    int [N]; within a group, all are different.
  """
  groups: Dict[Any, List[int]] = collections.defaultdict(list)
  for number, example in enumerate(examples):
    groups[number if example.group is None else (example.group,)].append(number)
  chosen = np.zeros(len(examples), np.int64)
  for numbers in groups.values():
    num_choices = len(examples[numbers[0]].choices)
    chosen[numbers] = assign(log_probabilities[numbers, :num_choices])
  return chosen


def assign(scores: np.ndarray) -> List[int]:
  """Assigns a different column to each row, maximizing the sum of scores.

  Args:
    scores: float [rows, columns], with at least as many columns as rows.

  Returns:
    the column of each row.
  """
  # Bit mask of the used columns -> (sum of scores, column of each row).
  best: Dict[int, Tuple[float, Tuple[int, ...]]] = {0: (0.0, ())}
  for row in scores.tolist():
    longer: Dict[int, Tuple[float, Tuple[int, ...]]] = {}
    for used, (total, columns) in best.items():
      for column, score in enumerate(row):
        if not used >> column & 1:
          key = used | 1 << column
          candidate = total + score, columns + (column,)
          if key not in longer or longer[key] < candidate:
            longer[key] = candidate
    best = longer
  return list(max(best.values())[1])


def fill_in(question: str, choice: str) -> str:
  """Inserts a choice into the gap of a question, `_` in RACE, or appends it."""
  if "_" in question:
    return re.sub("_+", lambda _: " %s " % choice, question)
  return "%s %s" % (question, choice)


def sequence_maker(
  tokenizer: Tokenizer, max_seq_length: int, max_query_length: int
) -> Callable[[Example], List[windows.Encoded]]:
  """Returns the function that encodes each choice of an Example.

  Args:
    tokenizer: tokenizer.
    max_seq_length: maximum tokens of a sequence.
    max_query_length: maximum tokens of question and choice; longer ones keep
      their end.
  """

  def tokenize(text):
    return tokenizer.convert_tokens_to_ids(tokenizer.tokenize_plain(text))

  # Cached, as shuffling separates the questions about a passage.
  @functools.lru_cache(maxsize=None)
  def passage_ids(passage):
    return array.array("i", tokenize(passage)[:max_seq_length])

  def make_sequences(example):
    packed = []
    for choice in example.choices:
      query = tokenize(fill_in(example.question, choice))[-max_query_length:]
      room = max(0, max_seq_length - len(query) - 3)
      packed.append(
        tokenization.pack_pair(
          tokenizer,
          passage_ids(example.passage)[:room].tolist(),
          query,
          max_seq_length,
        )
      )
    return packed

  return make_sequences


def pack_choices(
  packed: List[windows.Encoded], example: Example, num_choices: int
) -> Dict[str, Any]:
  """Returns the features of an Example by name.

  Args:
    packed: encoded choices.
    example: question.
    num_choices: maximum choices; missing ones are padding.
  """
  return dict(
    windows.pack_rows(packed, num_choices),
    num_choices=len(packed),
    label=example.answer or 0,
  )


def items(examples: List[Example]) -> List[Item]:
  """Returns the questions with their longest choice, for the report."""
  return [
    Item(
      (x.passage, x.question, max(x.choices, key=len)),
      None if x.answer is None else (x.choices[x.answer],),
    )
    for x in examples
  ]
