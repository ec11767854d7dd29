"""Reads the inputs from a command line, files and pipes.

    .jsonl, .json  one object per line, with a key for each field of an input
    .tsv           columns with a header that names the fields
    others         one text per line; several fields are separated by tabs
Standard input that starts with "{" is read as JSON lines, otherwise as texts.
"""

import json
from typing import Any, Dict, List, Optional, Tuple

from albert.errors import InputError
from albert.files import filesystem

_ALIASES = {"text": "text_a", "text_a": "text"}


def from_arguments(arguments: List[str], fields: Tuple[str, ...]) -> List[Any]:
  """Returns the inputs given on a command line.

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


def with_given(texts: List[str], given: Dict[str, Any],
               fields: Tuple[str, ...]) -> List[Any]:
  """Returns inputs that share a question or choices.

  Args:
    texts: the field that differs between inputs.
    given: name of each other field -> its str, or list of str.
    fields: see predictors.Predictor.

  Raises:
    InputError: not exactly one field is left, or the model lacks a given one.
  """
  idle = sorted(set(given) - set(fields))
  if idle:
    raise InputError("the model takes %s, and no --%s" % (
        ", ".join(fields), idle[0]))
  if len(fields) != len(given) + 1:
    raise InputError("the model takes %s: give --%s too" % (
        ", ".join(fields), " and --".join(sorted(
            {"question", "choices"}.intersection(fields) - set(given)))))
  return [tuple(given.get(field, text) for field in fields) for text in texts]


def read(path: Optional[str], fields: Tuple[str, ...]) -> List[Any]:
  """Reads a file.

  Args:
    path: None for standard input.
    fields: see predictors.Predictor.

  Returns:
    at least one input.

  Raises:
    InputError: a line is not an input; the message names it.
  """
  name = path or "standard input"
  lines = filesystem.read_lines(path)
  if name.endswith((".json", ".jsonl")) or (
      not path and lines and lines[0].startswith("{")):
    parse, first = _json_parser(fields), 0
  elif name.endswith(".tsv"):
    parse, first = _row_parser((lines or [""])[0].split("\t"), fields, name), 1
  else:
    parse, first = _line_parser(fields), 0
  inputs = []
  for number, line in enumerate(lines[first:], first + 1):
    if not line.strip() and parse is not str:
      continue
    try:
      values = parse(line)
    except ValueError as error:
      raise InputError("%s:%d: %s" % (name, number, error)) from error
    inputs.append(values)
  if not inputs:
    raise InputError("%s: has no texts" % name)
  return inputs


def _pick(row, fields):
  """Returns the input in a dict; raises a ValueError if a field is missing."""
  values = []
  for field in fields:
    key = field if field in row else _ALIASES.get(field, field)
    if key not in row:
      raise ValueError("no field %s, only %s" % (field, ", ".join(row)))
    values.append(row[key])
  return values[0] if len(fields) == 1 else tuple(values)


def _json_parser(fields):
  def parse(line):
    row = json.loads(line)
    if not isinstance(row, dict):
      raise ValueError("not a JSON object")
    return _pick(row, fields)

  return parse


def _row_parser(header, fields, name):
  if "choices" in fields:
    raise InputError("%s: choices are given as JSON lines" % name)
  try:
    _pick(dict.fromkeys(header), fields)
  except ValueError as error:
    raise InputError("%s:1: the header has %s" % (name, error)) from error

  def parse(line):
    cells = line.split("\t")
    if len(cells) != len(header):
      raise ValueError("expected %d columns, found %d" % (
          len(header), len(cells)))
    return _pick(dict(zip(header, cells)), fields)

  return parse


def _line_parser(fields):
  if len(fields) == 1:
    return str  # keeps blank lines, so that answers stay aligned with lines

  has_choices = "choices" in fields  # the remaining cells
  least = len(fields) + 1 if has_choices else len(fields)

  def parse(line):
    cells = line.split("\t")
    if len(cells) < least or (len(cells) > least and not has_choices):
      raise ValueError("expected %s separated by tabs, found %d" % (
          ", ".join(fields), len(cells)))
    if not has_choices:
      return tuple(cells)
    last = len(fields) - 1
    return tuple(cells[:last]) + (cells[last:],)

  return parse
