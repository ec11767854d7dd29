"""Questions with choices: RACE's and C3's files, and their features."""

import array
import collections
import functools
import os
import re
from typing import Any, List, NamedTuple, Optional

import numpy as np

import tokenization
from albert.errors import InputError
from albert.files import filesystem
from albert.tasks import metrics, windows

MAX_QUERY_LENGTH = 128  # tokens of question and choice, by default


class Example(NamedTuple):
  """A question.

  Attributes:
    id: what the file calls it.
    part: str, what is reported separately: RACE's middle and high, C3's d and
      m; None for nothing.
    passage, question: str.
    choices: list of str.
    answer: int, number of the right choice; None where a file does not say.
    group: questions of one group have different answers; a question without
      one, None, is on its own.
  """
  id: Any
  part: Optional[str]
  passage: str
  question: str
  choices: List[str]
  answer: Optional[int]
  group: Any = None


def find_race(data_dir, split):
  """Returns [(path, part)] of RACE's SPLIT/{middle,high}/*.txt."""
  files = []
  for part in ("middle", "high"):
    files += [(path, part) for path in filesystem.find_files(
        os.path.join(data_dir, split, part), "*.txt")]
  return files


def read_race(path, part):
  """Yields the Examples of a file of RACE, one article in JSON."""
  article = filesystem.read_json(path)
  try:
    questions, options = article["questions"], article["options"]
    letters = article.get("answers") or [None] * len(questions)
    if not len(questions) == len(options) == len(letters):
      raise ValueError("%d questions, %d options, %d answers" % (
          len(questions), len(options), len(letters)))
    name = article.get("id", "%s/%s" % (part, os.path.basename(path)))
    for number, (question, choices, letter) in enumerate(
        zip(questions, options, letters)):
      yield Example(
          "%s-%d" % (name, number), part, article["article"], question,
          choices, None if letter is None else list("ABCD").index(letter))
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    raise InputError("%s: not RACE's layout: %s" % (path, error)) from error


def find_c3(data_dir, split):
  """Returns [(path, part)] of {,c3-}{d,m}-SPLIT.json, or of CLUE's one file.

  CLUE's test.json or test1.1.json, and test1.0.json, have both parts and come
  first.
  """
  def there(names_and_parts):
    return [(os.path.join(data_dir, name), part)
            for name, part in names_and_parts
            if filesystem.exists(os.path.join(data_dir, name))]

  whole = {"test": ["test.json", "test1.1.json"]}.get(split, [split + ".json"])
  return there((name, None) for name in whole)[:1] or there(
      (prefix + "%s-%s.json" % (part, split), part)
      for part in ("d", "m") for prefix in ("", "c3-"))


def read_c3(path, part):
  """Yields the Examples of a file of C3."""
  content = filesystem.read_json(path)
  try:
    for lines, questions, name in content:
      passage = "\n".join(lines)
      for number, row in enumerate(questions):
        answer = row.get("answer")
        yield Example(
            row.get("id", "%s-%s-%d" % (part, name, number)), part, passage,
            row["question"], row["choice"],
            row["choice"].index(answer) if answer else None)
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    raise InputError("%s: not C3's layout: %s" % (path, error)) from error


def read_examples(find, read, data_dir, split):
  """Reads a split.

  Args:
    find: function of (data_dir, split) that returns a list of (path, part).
    read: function of (path, part) that yields Examples.
    data_dir: str.
    split: str; where it begins with "test", answers may be missing.

  Returns:
    list of Example, at least one.

  Raises:
    InputError: there are no files, one of them is malformed, or an id occurs
      twice.
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
    raise InputError("%s: no questions for %s there: change --data_dir"
                     % (data_dir, split))
  return examples if needs_answer else (
      metrics.without_placeholders(examples, "answer", data_dir))


def _check(example, path, needs_answer):
  where = "%s: question %s" % (path, example.id)
  if not isinstance(example.choices, list) or not all(
      isinstance(text, str) for text in
      [example.passage, example.question] + example.choices):
    raise InputError("%s has a value that is not text" % where)
  if len(example.choices) < 2:
    raise InputError("%s has fewer than 2 choices" % where)
  if example.answer is None and needs_answer:
    raise InputError("%s has no answer" % where)
  if (example.answer or 0) >= len(example.choices):
    raise InputError("%s has no choice %s" % (where, "ABCD"[example.answer]))


def choose(examples, log_probabilities):
  """Returns the choices of the greatest joint probability.

  Args:
    examples: list of Example.
    log_probabilities: float [N, C].

  Returns:
    int [N]; within a group, all are different.
  """
  groups = collections.defaultdict(list)
  for number, example in enumerate(examples):
    groups[number if example.group is None else (example.group,)].append(number)
  chosen = np.zeros(len(examples), np.int64)
  for numbers in groups.values():
    num_choices = len(examples[numbers[0]].choices)
    chosen[numbers] = assign(log_probabilities[numbers, :num_choices])
  return chosen


def assign(scores):
  """Gives each row a column of its own so that the sum of scores is greatest.

  Args:
    scores: float [rows, columns], no more rows than columns.

  Returns:
    list of int, the column of each row.
  """
  best = {0: (0.0, ())}  # bits of the columns in use -> (sum, their order)
  for row in scores.tolist():
    longer = {}
    for used, (total, columns) in best.items():
      for column, score in enumerate(row):
        if not used >> column & 1:
          key = used | 1 << column
          candidate = total + score, columns + (column,)
          if key not in longer or longer[key] < candidate:
            longer[key] = candidate
    best = longer
  return list(max(best.values())[1])


def fill_in(question, choice):
  """Puts a choice into the gap of a question, `_` in RACE, or behind it."""
  if "_" in question:
    return re.sub("_+", lambda _: " %s " % choice, question)
  return "%s %s" % (question, choice)


def sequence_maker(tokenizer, max_seq_length, max_query_length):
  """Returns the function that makes the sequences of an Example.

  Args:
    tokenizer: of tokenization.py.
    max_seq_length: int, maximum ids of a sequence.
    max_query_length: int, maximum tokens of question and choice; longer ones
      keep their end.

  Returns:
    function of an Example that returns (ids, segment ids) of each choice.
  """
  def tokenize(text):
    return tokenizer.convert_tokens_to_ids(tokenizer.tokenize_plain(text))

  # Shuffled, the questions about a passage are far from each other.
  @functools.lru_cache(maxsize=None)
  def passage_ids(passage):
    return array.array("i", tokenize(passage)[:max_seq_length])

  def make_sequences(example):
    packed = []
    for choice in example.choices:
      query = tokenize(fill_in(example.question, choice))[-max_query_length:]
      room = max(0, max_seq_length - len(query) - 3)
      packed.append(tokenization.pack_pair(
          tokenizer, passage_ids(example.passage)[:room].tolist(), query,
          max_seq_length))
    return packed

  return make_sequences


def pack_choices(packed, example, num_choices):
  """Makes the features of an Example, a dict: name -> list or int.

  Args:
    packed: list of (ids, segment ids), one of each choice.
    example: Example.
    num_choices: int; choices that an example lacks are empty.
  """
  return dict(windows.pack_rows(packed, num_choices),
              num_choices=len(packed), label=example.answer or 0)
