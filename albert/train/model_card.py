"""The model card of a fine-tuned model, `best/MODEL_CARD.md`.

Tests: tests/test_runs.py.
"""

import os
import re
from typing import List, Optional

from albert.files import filesystem
from albert.train import run_file

NAME = "MODEL_CARD.md"
_NOTE = "<!-- Written by training; later runs in this folder replace it. -->"


def write(output_dir: str, task: str, begun_with: Optional[str]) -> None:
  """Writes the card of a run's best checkpoint from the files of the run.

  Args:
    output_dir: folder of the run.
    task: name of the task.
    begun_with: checkpoint that training started from; None for random weights.
  """
  best = os.path.join(output_dir, "best")
  rows = [("task", task), ("begun with", begun_with or "random weights")]
  described = run_file.read(output_dir)
  if described:
    rows += [
      ("code", described["albert"] or "unknown"),
      (
        "packages",
        ", ".join("%s %s" % pair for pair in described["packages"].items()),
      ),
    ]
  rows += [
    ("result on " + split, value)
    for split, path in (
      ("dev", os.path.join(best, "eval_results.txt")),
      ("test", os.path.join(output_dir, "test_results.txt")),
    )
    for value in _results(path)
  ]
  sections = [
    "# Model card",
    _NOTE,
    "\n".join(["| | |", "|---|---|"] + ["| %s | %s |" % row for row in rows]),
    # Without lines that quote texts.
    "## Data",
    _code(
      os.path.join(output_dir, "data_report.txt"), r"\w+: \d+ examples of "
    ),
    "## Flags",
    _code(os.path.join(output_dir, run_file.NAME), "--"),
    "## Intended use",
    "To be written by the publisher of the model.",
  ]
  filesystem.write_text(os.path.join(best, NAME), "\n\n".join(sections) + "\n")


def _lines(path: str) -> List[str]:
  return (
    filesystem.read_text(path).splitlines() if (filesystem.exists(path)) else []
  )


def _results(path):
  return (
    [
      ", ".join(
        line.replace("eval_", "")
        for line in _lines(path)
        if line.startswith("eval_")
      )
    ]
    if _lines(path)
    else []
  )


def _code(path, pattern):
  return "\n".join(
    ["```"]
    + [line for line in _lines(path) if re.match(pattern, line)]
    + ["```"]
  )
