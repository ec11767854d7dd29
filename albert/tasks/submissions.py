"""Files of predictions, in the formats of the boards that judge them."""

import json


def clue_lines(ids, answers):
  """CLUE's for most tasks: one JSON object a line, in the order of the rows.

  Args:
    ids: list, what the file calls each row.
    answers: list of str, int or float, of the same length.

  Returns:
    str.
  """
  return "".join(
      json.dumps({"id": name, "label": answer}, ensure_ascii=False) + "\n"
      for name, answer in zip(ids, answers))


def clue_object(ids, answers):
  """CLUE's for ChID and CMRC2018: one JSON object, id -> answer."""
  return json.dumps(dict(zip(ids, answers)), ensure_ascii=False,
                    indent=1) + "\n"


def glue_columns(ids, answers):
  """GLUE's: a header, then index and prediction, separated by a tab."""
  return "index\tprediction\n" + "".join(
      ("%s\t%.3f\n" if isinstance(answer, float) else "%s\t%s\n") % (
          name, answer) for name, answer in zip(ids, answers))
