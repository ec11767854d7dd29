"""The results of quickstart.sh as a self-contained HTML page.

    python -m albert.report output/quickstart

Writes FOLDER/report.html from FOLDER/masks.tsv, the eval_history.tsv of the
fine-tunings in FOLDER/topics and FOLDER/scratch, and FOLDER/grid.tsv.
"""

import html
import os
from typing import Dict, List, Sequence, Tuple

from albert import cli
from albert.errors import InputError
from albert.files import filesystem, tables

PAGE = """<!DOCTYPE html>
<html lang="zh">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>ALBERT: quick start</title>
<style>
  body { font: 16px/1.5 sans-serif; max-width: 46em; margin: 2em auto;
         padding: 0 1em; color: #222; }
  h2 { margin-top: 2em; border-bottom: 1px solid #ccc; }
  p { margin: 1em 0 .2em; }
  .bar { background: linear-gradient(#9cc4ee, #9cc4ee) no-repeat;
         padding: 0 .4em; margin: 2px 0; }
  table { border-collapse: collapse; font-size: 13px; display: block;
          overflow-x: auto; }
  td, th { padding: .2em .5em; text-align: right; font-weight: normal; }
  svg { width: 100%%; font-size: 13px; }
</style>
<h1>ALBERT: quick start</h1>
<h2>填空 · The most likely characters for [MASK]</h2>
%s
<h2>六类主题 · Six topics: dev accuracy in training</h2>
%s
<h2>相似度 · Similarity of sentences</h2>
%s
</html>
"""


def read_tsv(path: str) -> List[List[str]]:
  """Returns the rows of a file."""
  return [line.split("\t") for line in tables.read_lines(path)]


def show_masks(rows: Sequence[Sequence[str]]) -> str:
  """Returns HTML: each text with one bar per candidate.

  Args:
    rows: [["TOKEN PROBABILITY TOKEN PROBABILITY ...", text]], the output of
      predict.py for texts with one mask.
  """
  shown = []
  for candidates, text in rows:
    words = candidates.split()
    shown.append("<p>%s</p>" % html.escape(text))
    for token, probability in zip(words[::2], words[1::2]):
      shown.append(
        '<div class="bar" style="background-size: %.1f%%">%s %s</div>'
        % (100 * float(probability), html.escape(token), probability)
      )
  return "\n".join(shown)


def show_curves(
  histories: Dict[str, List[Tuple[int, float]]],
  width: int = 640,
  height: int = 260,
) -> str:
  """Returns an SVG of accuracies by step.

  Args:
    histories: name -> [(step, accuracy)].
    width, height: pixels.
  """
  steps = max(step for points in histories.values() for step, _ in points)

  def at(step, accuracy):
    return (
      40 + step / steps * (width - 180),
      height - 30 - accuracy * (height - 50),
    )

  shown = []
  for accuracy in (0, 0.25, 0.5, 0.75, 1):
    left, y = at(0, accuracy)
    shown.append(
      '<path d="M%.1f %.1fH%d" stroke="#ddd"/>'
      '<text x="4" y="%.1f">%g</text>' % (left, y, width - 140, y + 4, accuracy)
    )
  for (name, points), color in zip(histories.items(), ("#1769b5", "#b54a17")):
    places = [at(*point) for point in points]
    shown.append(
      '<polyline points="%s" fill="none" stroke="%s" '
      'stroke-width="2"/>'
      % (" ".join("%.1f,%.1f" % place for place in places), color)
    )
    for (x, y), (step, accuracy) in zip(places, points):
      shown.append(
        '<circle cx="%.1f" cy="%.1f" r="4" fill="%s"><title>'
        "%d: %.3f</title></circle>" % (x, y, color, step, accuracy)
      )
    shown.append(
      '<text x="%.1f" y="%.1f" fill="%s">%s %.3f</text>'
      % (
        places[-1][0] + 8,
        places[-1][1] + 4,
        color,
        html.escape(name),
        points[-1][1],
      )
    )
  shown.append(
    '<text x="%.1f" y="%d" text-anchor="end">%d steps</text>'
    % (at(steps, 0)[0], height - 8, steps)
  )
  return '<svg viewBox="0 0 %d %d">\n%s\n</svg>' % (
    width,
    height,
    "\n".join(shown),
  )


def show_grid(rows: Sequence[Sequence[str]]) -> str:
  """Returns an HTML table with one row per first text, one column per second.

  Args:
    rows: [[score from -1 to 1, first text, second text]], all pairs.
  """
  scores = {(a, b): float(score) for score, a, b in rows}
  first, second = [list(dict.fromkeys(row[i] for row in rows)) for i in (1, 2)]
  shown = [
    "<table>",
    "<tr><th></th>%s</tr>"
    % "".join(
      '<th title="%s">%d</th>' % (html.escape(text), number)
      for number, text in enumerate(second, 1)
    ),
  ]
  for number, a in enumerate(first, 1):
    shown.append(
      "<tr><th>%d. %s</th>%s</tr>"
      % (
        number,
        html.escape(a),
        "".join(
          '<td style="background: rgba(23, 105, 181, %.2f)">%.2f</td>'
          % (0.8 * max(0, scores[a, b]), scores[a, b])
          for b in second
        ),
      )
    )
  shown.append(
    "</table>\n<p>%s</p>"
    % "<br>".join(
      "%d. %s" % (number, html.escape(text))
      for number, text in enumerate(second, 1)
    )
  )
  return "\n".join(shown)


def read_history(path: str) -> List[Tuple[int, float]]:
  """Returns [(step, dev accuracy)]."""
  header, *rows = read_tsv(path)
  return [
    (
      int(row[header.index("global_step")]),
      float(row[header.index("eval_accuracy")]),
    )
    for row in rows
  ]


def main(arguments: Sequence[str]) -> None:
  if len(arguments) != 1:
    raise InputError("give one folder, the output of quickstart.sh")
  (folder,) = arguments
  filesystem.write_text(
    os.path.join(folder, "report.html"),
    PAGE
    % (
      show_masks(read_tsv(os.path.join(folder, "masks.tsv"))),
      show_curves(
        {
          name: read_history(os.path.join(folder, run, "eval_history.tsv"))
          for name, run in (
            ("from the starter", "topics"),
            ("from scratch", "scratch"),
          )
        }
      ),
      show_grid(read_tsv(os.path.join(folder, "grid.tsv"))),
    ),
  )


if __name__ == "__main__":
  cli.run(main, [], takes_arguments=True)
