"""Reads inputs from the command line, files and pipes.

Tables are read by files.tables. Other files, and standard input that is not
JSON, have one text per line; several fields are separated by tabs.
"""

from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from absl import logging

from albert.errors import InputError
from albert.files import tables

_ALIASES = {"text": "text_a", "text_a": "text"}
_SYNONYMS = {
  "text": tables.TEXT,
  "text_a": tables.TEXT,
  "text_b": tables.SECOND,
}


class Item(NamedTuple):
  """An input and its origin.

  Attributes:
    values: the input; None for a blank row or a missing text, which get an
      empty answer, so that line n answers line n.
    row: all fields of the row, in order.
    where: file and line, for messages.
  """

  values: Any
  row: Dict[str, Any]
  where: str


def from_arguments(arguments: List[str], fields: Tuple[str, ...]) -> List[Any]:
  """Returns the inputs from the command line.

  Args:
    arguments: at least one.
    fields: see predictors.Predictor.

  Raises:
    InputError: the arguments are not inputs of this model.
  """
  if len(fields) == 1:
    return arguments
  if "choices" not in fields and len(arguments) == len(fields):
    return [tuple(arguments)]
  advice = "give one of each, or a file"
  if "question" in fields:
    advice = "give --question, or a file"
  elif "choices" in fields:
    advice = "give --choices, or a file"
  raise InputError("the model takes %s: %s" % (", ".join(fields), advice))


def with_given(
  texts: List[str], given: Dict[str, Any], fields: Tuple[str, ...]
) -> List[Any]:
  """Returns inputs that share a question or choices.

  Args:
    texts: the field that differs between inputs.
    given: name -> str, or list of str, of each remaining field.
    fields: see predictors.Predictor.

  Raises:
    InputError: not exactly one field is left, or the model lacks a given one.
  """
  idle = sorted(set(given) - set(fields))
  if idle:
    raise InputError(
      "the model takes %s, not --%s" % (", ".join(fields), idle[0])
    )
  if len(fields) != len(given) + 1:
    raise InputError(
      "the model takes %s: also give --%s"
      % (
        ", ".join(fields),
        " and --".join(
          sorted({"question", "choices"}.intersection(fields) - set(given))
        ),
      )
    )
  return [tuple(given.get(field, text) for field in fields) for text in texts]


def column_of(field: str, reading: Dict[str, Any]) -> Optional[str]:
  """Returns the name of a field in the training table; None for its own.

  Args:
    field: see predictors.Predictor.
    reading: see ModelFolder.
  """
  return reading.get("text_a" if field == "text" else field)


def read(
  path: Optional[str],
  fields: Tuple[str, ...],
  settings: Optional[tables.TableSettings] = None,
  reading: Optional[Dict[str, Any]] = None,
) -> Iterator[Item]:
  """Reads a file.

  Args:
    path: None for standard input.
    fields: see predictors.Predictor.
    settings: how to read tables.
    reading: how those of training were read; see ModelFolder.

  Yields:
    an Item per row or line.

  Raises:
    InputError: a row is not an input; the message names it.
  """
  found, reading = None, reading or {}

  def header(cells):
    try:
      _find_fields(fields, cells, reading)
    except ValueError:
      columns = reading.get("columns", [])
      if len(columns) != len(cells):
        raise
      logging.info(
        "%s: the columns are %s, as in training", path, ", ".join(columns)
      )
      return columns
    return cells

  if "choices" in fields and tables.kind_of(path) in ("csv", "tsv"):
    raise InputError("%s: choices need JSON lines" % path)
  for row in tables.read(path, settings, header, as_lines=True):
    try:
      if row.error:
        raise ValueError(row.error)
      if row.is_blank:
        yield Item(None, {fields[0]: ""} if row.values else {}, row.where)
        continue
      if tables.LINE in row.values:
        values = _split(row.values[tables.LINE], fields)
        yield Item(values, dict(zip(fields, as_tuple(values))), row.where)
        continue
      if found is None:
        found = _find_fields(fields, list(row.values), reading)
        for field, name in zip(fields, found):
          if name not in (field, _ALIASES.get(field)):
            logging.info("%s: %s is %s", path, field, name)
      values = tuple(row.values[name] for name in found)
      if any(
        value is None or isinstance(value, str) and not value.strip()
        for value in values
      ):
        yield Item(None, row.values, row.where)
        continue
    except KeyError as error:
      raise InputError(
        "%s: no field %s, only %s"
        % (row.where, error.args[0], ", ".join(row.values))
      ) from error
    except ValueError as error:
      raise InputError("%s: %s" % (row.where, error)) from error
    yield Item(values[0] if len(fields) == 1 else values, row.values, row.where)


def as_tuple(values: Any) -> Tuple[Any, ...]:
  """Returns the fields of an input; a single one is not a tuple."""
  return values if isinstance(values, tuple) else (values,)


def _find_fields(fields, columns, reading):
  """Returns the columns of the fields; raises a ValueError."""
  found = []
  for field in fields:
    names = (column_of(field, reading), field, _ALIASES.get(field))
    name = tables.find_column(
      filter(None, names), columns, _SYNONYMS.get(field, ())
    )
    if name is None:
      raise ValueError(
        "no field %s, only %s; a .csv or .tsv without a header needs "
        "--columns" % (field, ", ".join(columns))
      )
    found.append(name)
  second = tables.find_column((), columns, tables.SECOND)
  if (
    len(fields) == 1
    and second
    and found[0] not in (*fields, "text_a", reading.get("text_a"))
  ):
    raise ValueError(
      "two texts, %s and %s, but the model takes one: rename it "
      "to text" % (found[0], second)
    )
  return found


def _split(line, fields):
  """Returns the fields of a line separated by tabs; raises a ValueError."""
  if len(fields) == 1:
    return line
  cells = line.split("\t")
  has_choices = "choices" in fields  # the remaining cells
  least = len(fields) + has_choices
  if len(cells) < least or (len(cells) > least and not has_choices):
    raise ValueError(
      "expected %s separated by tabs, found %d"
      % (", ".join(fields), len(cells))
    )
  if not has_choices:
    return tuple(cells)
  last = len(fields) - 1
  return tuple(cells[:last]) + (cells[last:],)
