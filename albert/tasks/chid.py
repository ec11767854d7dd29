"""ChID, idioms for blanks: files and features."""

import os
import re
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import tokenization
from albert.errors import InputError
from albert.files import filesystem, tables
from albert.model_folder import Tokenizer
from albert.tasks import race, windows

_BLANK = re.compile(r"#idiom\d*#")
_IDIOM_LENGTH = 4  # characters of almost all idioms

# By preference: ChID's own names, then FewCLUE's.
_NAMES = {
  "train": ["train.json", "train_few_all.json", "train_0.json"],
  "dev": ["dev.json", "dev_few_all.json", "dev_0.json"],
  "test": ["test.json", "test1.1.json", "test_public.json"],
  "test1.0": ["test1.0.json"],
}


def find_files(data_dir: str, split: str) -> List[Tuple[str, Optional[str]]]:
  """Returns [(path, None)] of a split's file, or []."""
  paths = [os.path.join(data_dir, name) for name in _NAMES[split]]
  found: List[Tuple[str, Optional[str]]] = [
    (path, None) for path in paths if filesystem.exists(path)
  ]
  return found[:1]


def answer_file(path: str) -> Optional[str]:
  """Returns the path of a file's answers, if it exists."""
  path = path[: -len(".json")] + "_answer.json"
  return path if filesystem.exists(path) else None


def read(path: str, part: Optional[str]) -> Iterator[race.Example]:
  """Yields an Example per blank; its `question` is the blank's tag.

  A row is a JSON object with `candidates` and `content`: texts with tags such
  as #idiom000378#, with answers in PATH_answer.json (ChID), or one text with
  #idiom# and, if known, `answer` (FewCLUE).

  Raises:
    InputError: a row is malformed; the message names the line.
  """
  answers, answer_path = {}, answer_file(path)
  if answer_path:
    answers = filesystem.read_json(answer_path)
    if not isinstance(answers, dict):
      raise InputError("%s: not one JSON object, tag -> number" % answer_path)
  for number, row in enumerate(tables.read(path), 1):
    if row.is_blank:
      continue
    try:
      if row.error:
        raise ValueError(row.error)
      yield from blanks(row.values, number, part, answers)
    except KeyError as error:
      raise InputError(
        "%s: no field %s, only %s" % (row.where, error, ", ".join(row.values))
      ) from error
    except (TypeError, ValueError) as error:
      raise InputError("%s: %s" % (row.where, error)) from error


def blanks(
  row: Dict[str, Any], number: int, part: Optional[str], answers: Dict[str, int]
) -> Iterator[race.Example]:
  """Yields an Example per blank of a row; see `read`.

  Args:
    row: JSON object.
    number: number of the row; each candidate is used once per row.
    part: see race.Example.
    answers: tag -> index of the candidate, if known.

  Raises:
    KeyError, ValueError: the row is malformed.
  """
  content, choices = row["content"], row["candidates"]
  if not isinstance(choices, list) or not all(
    isinstance(choice, str) for choice in choices
  ):
    raise ValueError("candidates is not a list of texts")
  if isinstance(content, str):
    name = row.get("id", number - 1)
    found = [(content, tag, name) for tag in _BLANK.findall(content)]
    if len(found) != 1:
      raise ValueError("expected one #idiom#, found %d" % len(found))
    answers = {name: row["answer"]} if "answer" in row else {}
  else:
    found = [
      (text, tag, tag) for text in content for tag in _BLANK.findall(text)
    ]
    if not 0 < len({tag for _, tag, _ in found}) == len(found):
      raise ValueError("no blank, or a duplicate tag")
  if len(found) > len(choices):
    raise ValueError(
      "%d blanks for %d candidates, each of which is used once"
      % (len(found), len(choices))
    )
  for text, tag, name in found:
    answer = answers.get(name)
    if answer is not None and answer not in range(len(choices)):
      raise ValueError(
        "%s: the answer %r is not in 0 to %d" % (tag, answer, len(choices) - 1)
      )
    yield race.Example(name, part, text, tag, choices, answer, group=number)


def fill_blanks(text: str, idiom: str) -> str:
  """Puts an idiom into all blanks of a text."""
  return _BLANK.sub(lambda found: idiom, text)


def sequence_maker(
  tokenizer: Tokenizer, max_seq_length: int, max_query_length: int
) -> Callable[[race.Example], List[windows.Encoded]]:
  """Returns the function that encodes an Example; see race.sequence_maker.

  A choice is inserted into its blank, so that all other blanks are masked alike
  and need no marker. A long text is truncated to the part around the blank.
  """
  mask = [tokenizer.mask_id] * _IDIOM_LENGTH

  def tokenize(text):
    return tokenizer.convert_tokens_to_ids(tokenizer.tokenize_plain(text))

  def with_masks(text):
    first, *others = map(tokenize, _BLANK.split(text))
    return sum((mask + ids for ids in others), first)

  def make_sequences(example):
    before, after = map(with_masks, example.passage.split(example.question))
    choices = [
      tokenize(choice)[:max_query_length] for choice in example.choices
    ]
    room = max(0, max_seq_length - 2 - max(map(len, choices)))
    left = min(len(before), max(room // 2, room - len(after)))
    start = len(before) - left
    return [
      tokenization.pack_pair(
        tokenizer,
        before[start:] + choice + after[: room - left],
        None,
        max_seq_length,
      )
      for choice in choices
    ]

  return make_sequences
