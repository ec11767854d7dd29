"""Reads and writes files of named entities: JSON, and columns."""

import itertools
import os
import re
from typing import Any, Dict, List, NamedTuple, Optional

from absl import logging

from albert import characters
from albert.errors import InputError
from albert.files import filesystem, tables
from albert.tasks.data_report import Item


class Entity(NamedTuple):
  """An entity, `text[start:end]`, of the type `kind`."""

  start: int
  end: int
  kind: str


class Example(NamedTuple):
  """A text.

  Attributes:
    id: from the file; defaults to the index of the text.
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
      `.jsonl` have JSON objects, all other files columns.
    by_character: the default of --by_character.
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
  raise InputError(
    "no %s file: add %s, or change --data_dir" % (split, " or ".join(paths))
  )


def read_examples(
  path: str,
  is_test: bool = False,
  settings: Optional[tables.ReadSettings] = None,
) -> List[Example]:
  """Reads a file of JSON objects, or of columns.

  JSON has a text and its entities as written by CLUENER, doccano, Label Studio
  or this project. In columns, a line has a word or character and, last, its
  tag, separated by tabs, or by spaces if there is no tab; an empty line ends a
  sentence. The tagging scheme, BIO, IOB1, BIOES (BILOU), BMES or BMEO, is
  inferred from the file. A file to predict may have one text per line.

  Args:
    path: file to read.
    is_test: whether to predict the file, which may then lack labels and of
      which no text is skipped.
    settings: how to read files; None for the defaults.

  Returns:
    at least one example. If no text of a file to predict has an entity, as in
    test sets of leaderboards, its labels are placeholders, and are removed.

  Raises:
    InputError: the file is empty or malformed; the message names the line.
  """
  settings = settings or tables.ReadSettings()
  if tables.kind_of(path) == "json":
    found = _read_json(path, settings)
  else:
    with tables.open_text(path, settings.encoding) as lines:
      found = _read_columns(path, list(lines), is_test)
  examples: List[Example] = []
  skipped = tables.Skipped(path, settings, is_test)
  for where, example in found:
    problem = example
    if isinstance(example, Example):
      problem = None
      if not example.text.strip():
        problem = ValueError("the text is empty")
      elif example.entities is None and not is_test:
        problem = ValueError("the labels are missing")
    if problem:
      skipped.add(where, problem)
    else:
      examples.append(
        example._replace(id=len(examples) if example.id is None else example.id)
      )
  skipped.report(len(examples))
  if not examples:
    raise InputError("%s: has no texts" % path)
  unknown = sum(example.entities is None for example in examples)
  if 0 < unknown < len(examples):
    raise InputError(
      "%s: %d of %d texts have no labels: label all or none"
      % (path, unknown, len(examples))
    )
  if is_test and not unknown and not any(e.entities for e in examples):
    logging.info(
      "%s: no text has an entity: treated as placeholders and not scored", path
    )
    return [example._replace(entities=None) for example in examples]
  return examples


# Names of the entities in a JSON object, and of the parts of an entity.
_ENTITIES = ("label", "labels", "entities", "spans")
_STARTS, _ENDS = ("start", "start_offset"), ("end", "end_offset")
_KINDS = ("kind", "label", "labels", "type", "entity_group")
_LAYOUTS = (
  'not a JSON object with a "text" and its entities: "label": {kind: '
  '{entity: [[first, last]]}} (CLUENER), "label": [[start, end, kind]] or '
  '"entities": [{"start_offset", "end_offset", "label"}] (doccano), '
  '"label": [{"start", "end", "labels"}] (Label Studio), or "tokens" and '
  '"tags"'
)


def _read_json(path, settings):
  """Yields (place, Example or ValueError)."""
  for row in tables.read(
    path, tables.TableSettings(encoding=settings.encoding)
  ):
    if row.is_blank:
      continue
    try:
      if row.error == "not a JSON object":
        raise ValueError(_LAYOUTS)
      if row.error:
        raise ValueError(row.error)
      yield row.where, _json_example(row.values)
    except ValueError as error:
      yield row.where, error


def _json_example(row):
  data = row.get("data")
  if isinstance(data, dict) and "annotations" in row:  # all of Label Studio's
    found = [
      result["value"]
      for annotation in row["annotations"]
      for result in annotation["result"]
      if "labels" in result["value"]
    ]
    row = dict(id=row.get("id"), text=data.get("text"), label=found)
  tags = row.get("ner_tags", row.get("tags"))
  if isinstance(row.get("tokens"), list) and isinstance(tags, list):
    if not all(isinstance(tag, str) for tag in tags):
      raise ValueError("tags are numbers: use their names, such as B-PER")
    if len(tags) != len(row["tokens"]):
      raise ValueError(
        "%d tokens have %d tags" % (len(row["tokens"]), len(tags))
      )
    return _tagged(row["tokens"], tags, {tag[:1] for tag in tags})._replace(
      id=row.get("id")
    )
  text = row.get("text")
  if not isinstance(text, str):
    raise ValueError(_LAYOUTS)
  text.encode("utf-8")  # raises for half of a surrogate pair
  names = [name for name in _ENTITIES if name in row]
  if not names:
    return Example(row.get("id"), text, None)
  try:
    entities = sorted(_entities_of(text, row[names[0]]))
  except (AttributeError, KeyError, TypeError) as error:
    raise ValueError("%r: %s" % (names[0], _LAYOUTS)) from error
  for one, other in zip(entities, entities[1:]):
    if other.start < one.end:
      raise ValueError(
        "%r and %r overlap"
        % (text[one.start : one.end], text[other.start : other.end])
      )
  return Example(row.get("id"), text, entities)


def _entities_of(text, value):
  """Yields the entities of a text in any of _LAYOUTS."""
  if isinstance(value, dict):  # CLUENER: ends are inclusive
    found = [
      (first, last + 1, kind, words)
      for kind, places in value.items()
      for words, spans in places.items()
      for first, last in spans
    ]
  else:
    found = [_span(entity) for entity in value]
  for start, end, kind, words in found:
    if not 0 <= start < end <= len(text) or (
      words is not None and text[start:end] != words
    ):
      raise ValueError(
        "characters %s to %s of the text are not %r" % (start, end - 1, words)
      )
    yield Entity(start, end, kind)


def _span(entity):
  """Returns (start, end, kind, text or None) of an entity in a list."""
  if not isinstance(entity, dict):
    start, end, kind = entity
    return int(start), int(end), str(kind), None
  start, end, kind = (
    next(entity[name] for name in names if name in entity)
    if set(names) & set(entity)
    else entity[names[0]]
    for names in (_STARTS, _ENDS, _KINDS)
  )
  if isinstance(kind, list):
    (kind,) = kind
  return int(start), int(end), str(kind), entity.get("text")


# First letter of a tag -> its meaning in BIOES.
_LETTERS = {
  "B": "B",
  "I": "I",
  "M": "I",
  "E": "E",
  "L": "E",
  "S": "S",
  "U": "S",
}
_TAG = re.compile("(O)$|([%s])[-_](.+)$" % "".join(_LETTERS))
_HEADER = re.compile("(?i)(tag|label|ner|ner_tag|标签)s?$")


def _read_columns(path, lines, is_test):
  """Yields (place, Example or ValueError) of sentences.

  Args:
    path: the file, for messages.
    lines: its lines.
    is_test: whether it may have one text per line.
  """
  separator = "\t" if any("\t" in line for line in lines) else "[ \t]+"
  rows = [
    (number, re.split(separator, line.rstrip(" \t\r\n")))
    for number, line in enumerate(lines, 1)
  ]
  rows = [row for row in rows if row[1][0] != "-DOCSTART-"]
  words = [cells for _, cells in rows if cells != [""]]
  if (
    is_test
    and words
    and max(map(len, words)) == 1
    and [""] not in [cells for _, cells in rows[:-1]]
    and max(len(cells[0]) for cells in words) > 1
  ):
    for number, (text,) in rows:
      if text:
        yield "%s:%d" % (path, number), Example(None, text, None)
    return
  if words and len(words[0]) > 1 and _HEADER.match(words[0][-1]):
    logging.info("%s: %s is treated as a header", path, " ".join(words[0]))
    header = next(i for i, row in enumerate(rows) if row[1] == words[0])
    rows, words = rows[header + 1 :], words[1:]
  if (
    separator == "\t"
    and words
    and all(len(cells) == 2 and " " in cells[1] for cells in words)
  ):
    rows = _one_sentence_per_line(rows)
    words = [cells for _, cells in rows if cells != [""]]
  if words and len(words[0]) > 2:
    logging.info(
      "%s: %d columns; the first is the word, the last its tag",
      path,
      len(words[0]),
    )
  _check_tags(path, words)
  yield from _sentences(path, rows)


def _one_sentence_per_line(rows):
  """Converts lines of words, a tab and their tags to columns."""
  found = []
  for number, cells in rows:
    words, tags = [cell.split() for cell in (cells + [""])[:2]]
    found += [
      (number, [word, tag])
      for word, tag in itertools.zip_longest(words, tags, fillvalue="")
    ] + [(number, [""])]
  return found


def _check_tags(path, words):
  """Refuses files in unsupported schemes, with a hint how to convert them."""
  tags = {cells[-1] for cells in words if len(cells) > 1} - {"O"}
  if tags and tags <= set("BMES"):
    raise InputError(
      "%s: tags without a type, as in word segmentation: write "
      "B-PER and so on" % path
    )
  if tags and all(
    re.match(".+[-_][BIMESLU]$", tag) and not _TAG.match(tag) for tag in tags
  ):
    raise InputError(
      "%s: the type comes first (%s): write B-PER, not PER-B"
      % (path, min(tags))
    )
  if len(words) > 1 and all(
    len(cells) > 1 and re.match(r"\D\d$", cells[0]) for cells in words
  ):
    raise InputError(
      "%s: each character is followed by its place in a word (%s), as in "
      "WeiboNER: remove it: sed -E 's/^(.)[0-9]/\\1/' OLD >NEW"
      % (path, words[0][0])
    )


def _sentences(path, rows):
  """Yields (place, Example or ValueError) of each sentence of columns."""
  sentences, letters = [[]], {}
  for number, cells in rows:
    if cells == [""]:
      sentences.append([])
      continue
    tag = cells[-1] if len(cells) > 1 else ""
    # A line begins with white space if that is the character.
    sentences[-1].append((number, cells[0] or " ", tag, len(cells)))
    letters.setdefault(tag[:1], number)
  for one, other in ("IM", "EL", "SU"):
    if one in letters and other in letters:
      raise InputError(
        "%s:%d: two tagging schemes, %s- and %s- (line %d): use "
        "one" % (path, letters[other], other, one, letters[one])
      )
  stray, width = [], None
  for sentence in filter(None, sentences):
    numbers, words, tags, widths = zip(*sentence)
    width = width or widths[0]
    number = numbers[0]
    try:
      odd = next((i for i, x in enumerate(widths) if x != width), None)
      if odd is not None:
        number = numbers[odd]
        raise ValueError("expected %d columns, found %d" % (width, widths[odd]))
      yield (
        "%s:%d" % (path, number),
        _tagged(words, tags, set(letters), numbers, stray),
      )
    except _BadTag as error:
      yield "%s:%d" % (path, numbers[error.index]), error
    except ValueError as error:
      yield "%s:%d" % (path, number), error
  if stray:
    logging.info(
      "%s: %d entities begin with I- (the first in line %d), as in IOB1",
      path,
      len(stray),
      stray[0],
    )


class _BadTag(ValueError):
  """A ValueError for the tag at an index."""

  def __init__(self, index, message):
    super().__init__(message)
    self.index = index


def _tagged(words, tags, letters, numbers=None, stray=None):
  """Reads a sentence of words and tags.

  Args:
    words, tags: the sentence; tags are "" if they are missing.
    letters: first letters of the tags of the file.
    numbers, stray: line of each word, and a list that collects the lines where
      an entity begins with I- or E-; or None.

  Returns:
    Example.

  Raises:
    ValueError: the tags are invalid.
  """
  text, places = _put_together(words)
  if not any(tags):
    return Example(None, text, None)
  has_ends = bool(letters & set("ELSU"))
  has_singles = bool(letters & set("SU"))  # else, B alone can be an entity
  entities, length = [], 0  # rows of the open entity
  end = "O", (len(text), len(text))
  for index, (tag, place) in enumerate([*zip(tags, places), end]):
    match = _TAG.match(tag)
    if not match:
      raise _BadTag(
        index,
        "unknown tag %r: tags are O, or one of %s with - "
        "and a type" % (tag, ", ".join(sorted(_LETTERS))),
      )
    letter, kind = match.group(1) or _LETTERS[match.group(2)], match.group(3)
    if letter in "IE" and length and entities[-1].kind == kind:
      entities[-1] = entities[-1]._replace(end=place[1])
      length = 0 if letter == "E" else length + 1
      continue
    if has_ends and (length > 1 or length and has_singles):
      raise _BadTag(
        min(index, len(words) - 1),
        "an entity of type %s has no end before %s" % (entities[-1].kind, tag),
      )
    if letter != "O":
      entities.append(Entity(*place, kind))
      if letter in "IE" and stray is not None:
        stray.append(numbers[index])
    length = int(letter in "BI")
  return Example(None, text, entities)


def _put_together(words):
  """Joins words: returns (text, list of (start, end)).

  Inserts spaces between words that would otherwise merge, but not between
  single characters.
  """
  text, places, previous = "", [], ""
  for word in words:
    if (
      len(previous + word) > 2
      and previous
      and characters.is_joined(previous[-1])
      and characters.is_joined(word[0])
    ):
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
      [start, end - 1]
    )
  return {"id": example.id, "label": label}


def with_offsets(example: Example, entities: List[Entity]) -> Dict[str, Any]:
  """Returns a text and its entities as JSON; ends are exclusive."""
  return {
    "id": example.id,
    "text": example.text,
    "entities": [
      {
        "kind": kind,
        "start": start,
        "end": end,
        "text": example.text[start:end],
      }
      for start, end, kind in entities
    ],
  }


def items(examples: List[Example]) -> List[Item]:
  """Returns the texts for the report on the data."""
  return [
    Item(
      (x.text,),
      None
      if x.entities is None
      else tuple(entity.kind for entity in x.entities),
    )
    for x in examples
  ]
