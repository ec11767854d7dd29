"""Reads what is to be predicted, from a command line, files and pipes.

    .jsonl, .json  an object a line, with a key for each field of an input
    .tsv           columns with a header that names the fields
    others         a text a line; several fields are separated by tabs
Standard input is JSON lines where it begins with "{", else texts.
"""

import json

from albert.errors import InputError
from albert.files import filesystem

_ALIASES = {"text": "text_a", "text_a": "text"}


def from_arguments(arguments, fields):
  """Returns the inputs that words of a command line are.

  Args:
    arguments: list of str, at least one.
    fields: tuple of str; see predictors.Predictor.

  Raises:
    InputError: they are none.
  """
  if len(fields) == 1:
    return arguments
  if "choices" not in fields and len(arguments) == len(fields):
    return [tuple(arguments)]
  raise InputError("the model takes %s: %s" % (
      ", ".join(fields), "give --question, or a file" if "question" in fields
      else "give --choices, or a file" if "choices" in fields else
      "give one of each, or a file"))


def with_given(texts, given, fields):
  """Returns inputs that have a question or choices in common.

  Args:
    texts: list of str, one of each input.
    given: dict, name -> str, or list of str, of the others.
    fields: tuple of str; see predictors.Predictor.

  Raises:
    InputError: what is given does not leave one field, or the model has none.
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


def read(path, fields):
  """Reads a file.

  Args:
    path: str, or None for standard input.
    fields: tuple of str; see predictors.Predictor.

  Returns:
    list of inputs, at least one.

  Raises:
    InputError: a line is no input; the message names it.
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
  """Returns the input in a dict; a ValueError where it is not."""
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
    return str  # blank lines are texts too: answers stay in line

  def parse(line):
    cells = line.split("\t")
    several = "choices" in fields  # all that follow
    if len(cells) < len(fields) + several or (
        not several and len(cells) > len(fields)):
      raise ValueError("expected %s separated by tabs, found %d" % (
          ", ".join(fields), len(cells)))
    last = len(fields) - several
    return tuple(cells[:last]) + ((cells[last:],) if several else ())

  return parse
