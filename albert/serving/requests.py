"""Requests, their validation, and JSON responses.

Tests: tests/serving/test_service.py.
"""

import json
from typing import Any, Dict, List, Optional, Type, Union

import pydantic
from fastapi import responses
from starlette.exceptions import HTTPException

MOST_SENTENCES = 32  # per request
_MOST_CANDIDATES = 20000  # per request
_MOST_ERRORS = 10  # listed in a response
_MOST_BYTES = 1 << 25  # of a response


class PredictRequest(pydantic.BaseModel, extra="forbid"):
  """Texts, or objects with a key per field and an optional `id`."""

  instances: List[Union[str, Dict[str, Any]]] = pydantic.Field(
    min_length=1, examples=[["这部电影真好看"]]
  )
  top_k: int = pydantic.Field(5, ge=1, le=1000)


class SimilarityRequest(pydantic.BaseModel, extra="forbid"):
  """Sentences to compare with each other."""

  sentences: List[str] = pydantic.Field(min_length=2, max_length=MOST_SENTENCES)


class SearchRequest(pydantic.BaseModel, extra="forbid"):
  """Texts to search the corpus for."""

  queries: List[str] = pydantic.Field(min_length=1, max_length=MOST_SENTENCES)
  top_k: int = pydantic.Field(5, ge=1, le=1000)


def size_of(row: Any) -> int:
  """Returns the characters of an input."""
  if isinstance(row, str):
    return len(row)
  return sum(map(size_of, row))


def check_candidates(count: int) -> None:
  """Raises an HTTPException if a response would have too many candidates."""
  if count > _MOST_CANDIDATES:
    raise unfit(
      ["top_k"],
      "the response would have %d candidates, more than %d"
      % (count, _MOST_CANDIDATES),
    )


def problem_of(text: Any) -> Optional[str]:
  """Returns an error message for a text, or None."""
  if not isinstance(text, str):
    return "expected text"
  if "\0" in text:
    return "has a NUL character"
  try:
    text.encode()
  except UnicodeEncodeError:
    return "has half of a surrogate pair, which is not a character"
  return None


def unfit(where: List[Union[str, int]], message: str) -> HTTPException:
  """Returns the error for a part of a body, status 422."""
  return _listed(
    [{"loc": ["body", *where], "msg": message, "type": "value_error"}]
  )


def _listed(problems):
  return HTTPException(422, problems)


def respond(
  content: Any, status: int = 200, headers: Optional[Dict[str, str]] = None
) -> responses.Response:
  """Returns a JSON response; escapes lone surrogates, invalid in UTF-8."""
  body = json.dumps(content, ensure_ascii=False).encode(
    "utf-8", "backslashreplace"
  )
  if len(body) > _MOST_BYTES:
    raise unfit(
      [],
      "the response would have %d bytes, more than %d"
      % (len(body), _MOST_BYTES),
    )
  return responses.Response(body, status, headers, "application/json")


def parsed(
  kind: Type[pydantic.BaseModel], body: bytes, most: int, max_characters: int
) -> Any:
  """Returns the request in a body.

  Args:
    kind: class of the request, whose first field is the list of inputs.
    body: JSON.
    most: maximum inputs, checked before each is parsed.
    max_characters: maximum characters of all inputs.

  Raises:
    HTTPException: the body does not fit; status 422.
  """
  field = next(iter(kind.model_fields))
  try:
    content = json.loads(body)
  except (ValueError, RecursionError) as error:
    raise unfit([], "not JSON (%s)" % error) from error
  rows = content.get(field) if isinstance(content, dict) else None
  if isinstance(rows, list) and len(rows) > most:
    raise unfit([field], "more than %d" % most)
  try:
    request = kind.model_validate(content)
  except pydantic.ValidationError as error:
    raise _listed(
      [
        {
          "loc": ["body", *problem["loc"]],
          "msg": problem["msg"],
          "type": problem["type"],
        }
        for problem in error.errors()[:_MOST_ERRORS]
      ]
    ) from error
  if _characters(rows) > max_characters:
    raise unfit([field], "more than %d characters" % max_characters)
  return request


def _characters(value):
  """Returns the characters of all strings in a JSON value."""
  count, left = 0, [value]
  while left:
    value = left.pop()
    if isinstance(value, str):
      count += len(value)
    elif isinstance(value, (list, dict)):
      left.extend(value.values() if isinstance(value, dict) else value)
  return count


def check_texts(field: str, texts: List[str]) -> None:
  """Raises an HTTPException if one of the texts cannot be read."""
  for number, text in enumerate(texts):
    problem = problem_of(text)
    if problem:
      raise unfit([field, number], problem)
