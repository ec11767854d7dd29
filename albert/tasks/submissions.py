"""Prediction files in the formats of the leaderboards."""

import json
from typing import Any, Sequence


def clue_lines(ids: Sequence[Any], answers: Sequence[Any]) -> str:
  """CLUE, most tasks: one JSON object per row, in order."""
  return "".join(
      json.dumps({"id": name, "label": answer}, ensure_ascii=False) + "\n"
      for name, answer in zip(ids, answers))


def clue_object(ids: Sequence[Any], answers: Sequence[Any]) -> str:
  """CLUE, ChID and CMRC2018: one JSON object, id -> answer."""
  return json.dumps(dict(zip(ids, answers)), ensure_ascii=False,
                    indent=1) + "\n"


def glue_columns(ids: Sequence[Any], answers: Sequence[Any]) -> str:
  """GLUE: a header, then index and prediction separated by a tab."""
  return "index\tprediction\n" + "".join(
      ("%s\t%.3f\n" if isinstance(answer, float) else "%s\t%s\n") % (
          name, answer) for name, answer in zip(ids, answers))
