"""Named entities in files: CLUENER's layout and columns, read and written."""

import json
import os
import re
from typing import Any, List, NamedTuple, Optional

from absl import logging

from albert import characters
from albert.errors import InputError
from albert.files import filesystem


class Entity(NamedTuple):
  """A name: `text[start:end]` is of the kind `kind`, a str."""
  start: int
  end: int
  kind: str


class Example(NamedTuple):
  """A text.

  Attributes:
    id: what the file calls it, by default its number from 0.
    text: str.
    entities: list of Entity, sorted, none of which overlap; None if the file
      does not say.
  """
  id: Any
  text: str
  entities: Optional[List[Entity]]


class Task(NamedTuple):
  """The files of a task.

  Attributes:
    files: names, {} for train, dev or test, of which the first that is there
      counts. `.json` and `.jsonl` are in CLUENER's layout, all others columns.
    by_character: bool, whether each character is a token, by default.
  """
  files: List[str]
  by_character: bool

TASKS = {
    # Some of its entities begin or end inside a piece of a word.
    "cluener": Task(["{}.json"], True),
    "file": Task(["{}.json", "{}.jsonl", "{}.txt", "{}.tsv", "{}.bio"], False),
}


def find_file(task, data_dir, split):
  """Returns the path of a split's file.

  Raises:
    InputError: there is none.
  """
  paths = [os.path.join(data_dir, name.format(split)) for name in task.files]
  for path in paths:
    if filesystem.exists(path):
      return path
  raise InputError("no %s file: add %s, or change --data_dir" % (
      split, " or ".join(paths)))


def read_examples(path, is_test=False, skip_bad_rows=False):
  """Reads a file, in CLUENER's layout or in columns.

  CLUENER's: a line is a JSON object with `text` and `label`, a dict, kind ->
  entity -> list of [first, last], places of characters. Columns: a line is a
  character or a word and, last, its tag, separated by white space; an empty
  line ends a sentence. The scheme of the tags, BIO, BIOES (also spelt BILOU),
  BMES or BMEO, follows from the tags of the file.

  Args:
    path: str.
    is_test: bool, whether it is a file to predict, where labels may be missing.
    skip_bad_rows: bool, whether to leave out and count bad rows, or sentences,
      instead of raising an error; a file to predict must have an answer for
      each.

  Returns:
    list of Example, at least one. Of a file to predict without any entity, as
    boards publish them, without labels.

  Raises:
    InputError: the file is empty or malformed; the message names the line.
  """
  read = _read_json if path.endswith((".json", ".jsonl")) else _read_columns
  examples, bad = [], []
  for number, example in read(path, filesystem.read_text(path).split("\n")):
    if isinstance(example, Example) and not example.text.strip():
      example = ValueError("the text is empty")
    elif isinstance(example, Example) and not (is_test or example.entities
                                             is not None):
      example = ValueError("the labels are missing")
    if isinstance(example, Example):
      examples.append(example._replace(
          id=len(examples) if example.id is None else example.id))
      continue
    message = "%s:%d: %s; correct it" % (path, number, example)
    if is_test or not skip_bad_rows:
      raise InputError(message + (
          "" if is_test else ", or leave such rows out with --skip_bad_rows"))
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
  text.encode("utf-8")  # raises where there is half of a surrogate pair
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


# What the first letter of a tag stands for, in all spellings.
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
      # A line begins with white space where that is the character.
      sentences[-1].append((number, cells[0] or " ", tag))
      letters.setdefault(tag[:1], number)
  for one, other in ("IM", "EL", "SU"):
    if one in letters and other in letters:
      raise InputError("%s:%d: tags of two schemes, %s- and %s- (line %d): use "
                       "one" % (path, letters[other], other, one, letters[one]))
  for sentence in filter(None, sentences):
    yield _column_example(sentence, set(letters))


def _column_example(sentence, letters):
  """Reads a sentence of a column file.

  Args:
    sentence: list of (line number, word, tag or "").
    letters: set of str, those that the tags of the file begin with.

  Returns:
    (line number, Example or ValueError).
  """
  text, places = _put_together([word for _, word, _ in sentence])
  if not any(tag for _, _, tag in sentence):
    return sentence[0][0], Example(None, text, None)
  has_ends = bool(letters & set("ELSU"))
  has_singles = bool(letters & set("SU"))  # else, B can be an entity by itself
  entities, length = [], 0  # rows of the entity that has not ended yet
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
  """Returns (text, list of (start, end)) of words.

  There are spaces between words that would be read as one, but not between
  characters: a file of these has no words.
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


def submission(example, entities):
  """Returns a dict as CLUENER's submissions have it."""
  label = {}
  for start, end, kind in entities:
    label.setdefault(kind, {}).setdefault(example.text[start:end], []).append(
        [start, end - 1])
  return {"id": example.id, "label": label}


def with_offsets(example, entities):
  """Returns a dict of a text and its entities; ends are exclusive."""
  return {"id": example.id, "text": example.text, "entities": [
      {"kind": kind, "start": start, "end": end,
       "text": example.text[start:end]} for start, end, kind in entities]}
