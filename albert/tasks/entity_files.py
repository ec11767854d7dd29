"""Reads and writes files of named entities: CLUENER's layout, and columns."""

import json
import os
import re
from typing import Any, Dict, List, NamedTuple, Optional

from absl import logging

from albert import characters
from albert.errors import InputError
from albert.files import filesystem


class Entity(NamedTuple):
  """An entity, `text[start:end]`, of the type `kind`."""
  start: int
  end: int
  kind: str


class Example(NamedTuple):
  """A text.

  Attributes:
    id: that of the file, by default the text's number from 0.
    text: not empty.
    entities: sorted, without overlaps; None if unknown.
  """
  id: Any
  text: str
  entities: Optional[List[Entity]]


class Task(NamedTuple):
  """The files of a task.

  Attributes:
    files: file names by preference, where {} is train, dev or test. `.json` and
      `.jsonl` have CLUENER's layout, all others columns.
    by_character: whether each character is a token, by default.
  """
  files: List[str]
  by_character: bool

TASKS = {
    # Some of its entities begin or end inside a word piece.
    "cluener": Task(["{}.json"], True),
    "file": Task(["{}.json", "{}.jsonl", "{}.txt", "{}.tsv", "{}.bio"], False),
}


def find_file(task: Task, data_dir: str, split: str) -> str:
  """Returns the path of a split's file.

  Raises:
    InputError: there is no file.
  """
  paths = [os.path.join(data_dir, name.format(split)) for name in task.files]
  for path in paths:
    if filesystem.exists(path):
      return path
  raise InputError("no %s file: add %s, or change --data_dir" % (
      split, " or ".join(paths)))


def read_examples(path: str, is_test: bool = False,
                  skip_bad_rows: bool = False) -> List[Example]:
  """Reads a file, in CLUENER's layout or in columns.

  CLUENER: a line is a JSON object with `text` and `label`, an object: type ->
  entity -> list of [first, last], character offsets. Columns: a line is a
  character or word and, last, its tag, separated by white space; an empty line
  ends a sentence. The tag scheme, BIO, BIOES (also spelt BILOU), BMES or BMEO,
  is inferred from the tags.

  Args:
    path: file to read.
    is_test: whether the file is to be predicted and may lack labels.
    skip_bad_rows: whether to skip and count bad rows or sentences instead of
      raising an error; not in a file to predict, which needs an answer for
      each.

  Returns:
    at least one example. If a file to predict has no entity at all, as boards
    publish them, without labels.

  Raises:
    InputError: the file is empty or malformed; the message names the line.
  """
  read = _read_json if path.endswith((".json", ".jsonl")) else _read_columns
  examples: List[Example] = []
  bad = []
  for number, found in read(path, filesystem.read_text(path).split("\n")):
    problem = _problem_of(found, is_test)
    if problem is None:
      examples.append(found._replace(
          id=len(examples) if found.id is None else found.id))
      continue
    message = "%s:%d: %s; correct it" % (path, number, problem)
    if is_test:
      raise InputError(message)
    if not skip_bad_rows:
      raise InputError(
          message + ", or leave such rows out with --skip_bad_rows")
    bad.append(message)
  if bad:
    logging.warning("%s: skipped %d bad row(s), the first: %s", path, len(bad),
                    bad[0])
  if not examples:
    raise InputError("%s: has no texts" % path)
  unknown = sum(example.entities is None for example in examples)
  if 0 < unknown < len(examples):
    raise InputError("%s: %d of %d texts have no labels: give them to all, or "
                     "to none" % (path, unknown, len(examples)))
  if is_test and not unknown and not any(e.entities for e in examples):
    logging.info("%s: no entity in any text is taken for a placeholder: not "
                 "scored", path)
    return [example._replace(entities=None) for example in examples]
  return examples

def _problem_of(found, is_test):
  """Returns what is wrong with an Example or ValueError, or None."""
  if isinstance(found, ValueError):
    return str(found)
  if not found.text.strip():
    return "the text is empty"
  if found.entities is None and not is_test:
    return "the labels are missing"
  return None


def _read_json(path, lines):
  """Yields (line number, Example or ValueError)."""
  del path
  for number, line in enumerate(lines, 1):
    if not line.strip():
      continue
    try:
      yield number, _json_example(json.loads(line))
    except ValueError as error:
      yield number, error


def _json_example(row):
  if not (isinstance(row, dict) and isinstance(row.get("text"), str)):
    raise ValueError('not a JSON object with a "text"')
  text = row["text"]
  text.encode("utf-8")  # raises a ValueError for a lone surrogate
  if "label" not in row:
    return Example(row.get("id"), text, None)
  entities = []
  try:
    for kind, places in row["label"].items():
      for words, spans in places.items():
        for first, last in spans:
          if not 0 <= first <= last < len(text) or (
              text[first:last + 1] != words):
            raise ValueError("characters %s to %s of the text are not %r" % (
                first, last, words))
          entities.append(Entity(first, last + 1, kind))
  except (AttributeError, TypeError) as error:
    raise ValueError('"label" is not {kind: {entity: [[first, last]]}} (%s)'
                     % error) from error
  entities.sort()
  for one, other in zip(entities, entities[1:]):
    if other.start < one.end:
      raise ValueError("%r and %r overlap" % (
          text[one.start:one.end], text[other.start:other.end]))
  return Example(row.get("id"), text, entities)


# The canonical first letter of a tag, for all spellings.
_LETTERS = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S",
            "U": "S"}
_TAG = re.compile("(O)$|([%s])[-_](.+)$" % "".join(_LETTERS))


def _read_columns(path, lines):
  """Yields (line number, Example or ValueError)."""
  sentences, letters = [[]], {}
  for number, line in enumerate(lines, 1):
    cells = re.split("[ \t]+", line.rstrip(" \t\r"))
    if cells == [""]:
      sentences.append([])
    elif cells[0] != "-DOCSTART-":
      tag = cells[-1] if len(cells) > 1 else ""
      # A line starts with white space if that is the character.
      sentences[-1].append((number, cells[0] or " ", tag))
      letters.setdefault(tag[:1], number)
  for one, other in ("IM", "EL", "SU"):
    if one in letters and other in letters:
      raise InputError("%s:%d: tags of two schemes, %s- and %s- (line %d): use "
                       "one" % (path, letters[other], other, one, letters[one]))
  for sentence in filter(None, sentences):
    yield _column_example(sentence, set(letters))


def _column_example(sentence, letters):
  """Parses a sentence of a column file.

  Args:
    sentence: list of (line number, word, tag or "").
    letters: first letters of all tags in the file.

  Returns:
    (line number, Example or ValueError).
  """
  text, places = _put_together([word for _, word, _ in sentence])
  if not any(tag for _, _, tag in sentence):
    return sentence[0][0], Example(None, text, None)
  has_ends = bool(letters & set("ELSU"))
  has_singles = bool(letters & set("SU"))  # otherwise B alone can be an entity
  entities, length = [], 0  # rows of the open entity
  rows = list(zip(sentence, places))
  end = (sentence[-1][0], "", "O"), None
  for (number, _, tag), place in rows + [end]:
    match = _TAG.match(tag)
    if not match:
      return number, ValueError(
          "unknown tag %r: tags are O, or one of %s with - and a kind" % (
              tag, ", ".join(sorted(_LETTERS))))
    letter, kind = match.group(1) or _LETTERS[match.group(2)], match.group(3)
    if letter in "IE":
      if not length or entities[-1].kind != kind:
        return number, ValueError("%s without B-%s before it" % (tag, kind))
      entities[-1] = entities[-1]._replace(end=place[1])
      length = 0 if letter == "E" else length + 1
      continue
    if has_ends and (length > 1 or length and has_singles):
      return number, ValueError("an entity of kind %s has no end before %s" % (
          entities[-1].kind, tag))
    if letter in "BS":
      entities.append(Entity(*place, kind))
    length = int(letter == "B")
  return sentence[0][0], Example(None, text, entities)


def _put_together(words):
  """Joins words: returns (text, list of (start, end)).

  Puts spaces between words that would merge otherwise, but not between
  characters: a file of characters has no words.
  """
  text, places, previous = "", [], ""
  for word in words:
    if (len(previous + word) > 2 and previous and
        characters.is_joined(previous[-1]) and
        characters.is_joined(word[0])):
      text += " "
    places.append((len(text), len(text) + len(word)))
    text += word
    previous = word
  return text, places


def submission(example: Example, entities: List[Entity]) -> Dict[str, Any]:
  """Returns a row of CLUENER's submission format."""
  label: Dict[str, Dict[str, List[List[int]]]] = {}
  for start, end, kind in entities:
    label.setdefault(kind, {}).setdefault(example.text[start:end], []).append(
        [start, end - 1])
  return {"id": example.id, "label": label}


def with_offsets(example: Example, entities: List[Entity]) -> Dict[str, Any]:
  """Returns a text and its entities as JSON; ends are exclusive."""
  return {"id": example.id, "text": example.text, "entities": [
      {"kind": kind, "start": start, "end": end,
       "text": example.text[start:end]} for start, end, kind in entities]}
