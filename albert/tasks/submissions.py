"""Prediction files in the formats of the leaderboards."""

import json
from typing import Any, Iterable, Iterator


def clue_lines(ids: Iterable[Any], answers: Iterable[Any]) -> Iterator[str]:
  """CLUE, most tasks: one JSON object per row, in order."""
  for name, answer in zip(ids, answers):
    yield json.dumps({"id": name, "label": answer}, ensure_ascii=False)


def clue_object(ids: Iterable[Any], answers: Iterable[Any]) -> Iterator[str]:
  """CLUE, ChID and CMRC2018: one JSON object, id -> answer."""
  yield json.dumps(dict(zip(ids, answers)), ensure_ascii=False, indent=1)


def glue_columns(ids: Iterable[Any], answers: Iterable[Any]) -> Iterator[str]:
  """GLUE: a header, then index and prediction separated by a tab."""
  yield "index\tprediction"
  for name, answer in zip(ids, answers):
    yield ("%s\t%.3f" if isinstance(answer, float) else "%s\t%s") % (
      name,
      answer,
    )
