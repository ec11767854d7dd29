"""Compares fine-tuning runs: python -m albert.runs output/* [--html=runs.html]

Prints one row per run: the flags that differ between runs, results of the best
checkpoint on dev, results on test, and minutes from start to last checkpoint.
"""

import dataclasses
import datetime
import html
import os
from typing import Any, Dict, List

from albert import cli
from albert.errors import InputError
from albert.files import filesystem, outputs
from albert.settings import USUAL, from_flags, setting
from albert.train import run_file


@dataclasses.dataclass(frozen=True)
class TableSettings:
  """What to show."""

  html: str = setting(None, "Also write the table as a page.", USUAL)
  metrics: list = setting(
    None,
    "Results to show, such as accuracy,f1; default: all but the loss.",
    USUAL,
  )


SETTINGS = (TableSettings,)


def describe(folder: str) -> Dict[str, Any]:
  """Returns the flags and results of a run by name.

  Raises:
    InputError: the folder has no run.
  """
  described = run_file.read(folder)
  if not described:
    raise InputError("%s has no %s" % (folder, run_file.NAME))
  row = {
    "--" + name: value
    for name, value in described["flags"].items()
    if name != "output_dir"
  }
  row.update(
    ("data of %s" % name, data["first"])
    for name, data in described["data"].items()
  )
  for split, path in (
    ("dev", os.path.join("best", "eval_results.txt")),
    ("test", "test_results.txt"),
  ):
    row.update(
      ("%s %s" % (split, name.replace("eval_", "")), value)
      for name, value in outputs.read_results(
        os.path.join(folder, path)
      ).items()
      if name.startswith("eval_")
    )
  last = os.path.join(folder, "checkpoint")
  if os.path.exists(last):
    seconds = os.path.getmtime(last) - described["begun"].timestamp()
    row["minutes"] = round(seconds / 60)
  return row


def table(folders: List[str], metrics: List[str]) -> List[List[str]]:
  """Returns the header and a row per folder.

  The columns are metrics, minutes, and whatever differs between the runs.

  Args:
    folders: folders of runs.
    metrics: metrics to show; if empty, all but the loss.
  """
  rows = [describe(folder) for folder in folders]
  names = list(dict.fromkeys(name for row in rows for name in row))

  def is_shown(name):
    if name.startswith(("dev ", "test ")):
      metric = name.split(" ", 1)[1]
      return metric in metrics if metrics else metric != "loss"
    return name == "minutes" or len({str(row.get(name)) for row in rows}) > 1

  def cell(row, name):
    value = row.get(name, "")
    if isinstance(value, float) and not name.startswith("--"):
      return outputs.short(value)
    return str(value)

  names = list(filter(is_shown, names))
  return [["run"] + names] + [
    [
      os.path.basename(os.path.normpath(folder)),
      *[cell(row, name) for name in names],
    ]
    for folder, row in zip(folders, rows)
  ]


def page(rows: List[List[str]]) -> str:
  """Returns the table as HTML."""
  lines = [
    "<!doctype html>",
    '<meta charset="utf-8">',
    "<title>Runs</title>",
    "<style>td, th { padding: 2px 8px; text-align: right }</style>",
    "<p>%s" % datetime.date.today(),
    "<table>",
  ]
  for row, tag in zip(rows, ["th"] + ["td"] * len(rows)):
    lines.append(
      "<tr>"
      + "".join("<%s>%s</%s>" % (tag, html.escape(cell), tag) for cell in row)
    )
  return "\n".join(lines + ["</table>", ""])


def main(folders: List[str]) -> None:
  args = from_flags(TableSettings)
  found = [
    folder
    for folder in folders
    if filesystem.exists(os.path.join(folder, run_file.NAME))
  ]
  if not found:
    raise InputError("give the --output_dir of runs, such as output/*")
  rows = table(found, args.metrics or [])
  widths = [max(map(len, column)) for column in zip(*rows)]
  for row in rows:
    print("  ".join(map(str.rjust, row, widths)))
  if args.html:
    filesystem.write_text(args.html, page(rows))


if __name__ == "__main__":
  cli.run(main, SETTINGS, takes_arguments=True, description=__doc__)
