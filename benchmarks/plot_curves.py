r"""Plots the training curves of one or more runs as a PNG.

    python benchmarks/plot_curves.py --runs=output/a,output/b --names=A,B \
      --output=curves.png

Needs: pip install '.[plot]'.
"""

import collections
import csv
import dataclasses
import io
import os
import sys
from typing import Dict, List, Tuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from albert import cli
from albert.errors import InputError
from albert.files import filesystem
from albert.settings import NEEDED, USUAL, from_flags, setting


@dataclasses.dataclass(frozen=True)
class CurveSettings:
  """The runs and how to plot them."""

  runs: list = setting(
    None, "Output folders of pretraining or fine-tuning.", NEEDED, required=True
  )
  output: str = setting(None, "PNG to write.", NEEDED, required=True)
  names: list = setting(None, "Names of the runs; default: --runs.", USUAL)
  unigram_entropy: float = setting(
    None,
    "Masked-LM loss of a token frequency model, shown as a dashed "
    "line; see unigram_entropy.py.",
    USUAL,
  )
  smoothing: float = setting(
    0.0,
    "Weight of the past in a moving average, at least 0 and less than "
    "1; raw values are drawn pale behind it.",
    USUAL,
  )
  x_axis: str = setting(
    "step",
    "The x axis; minutes since the start of a run include pauses.",
    USUAL,
    choices=["step", "minutes"],
  )


SETTINGS = (CurveSettings,)

# Scalar -> title of its panel, drawn if any run has it.
PANELS = {
  "loss": "loss",
  "masked_lm_loss": "masked-LM loss",
  "masked_lm_accuracy": "masked-LM accuracy",
  "sentence_order_accuracy": "sentence-order accuracy",
  "accuracy": "accuracy",
  "exact": "exact match",
  "f1": "F1",
  "macro_f1": "macro F1",
  "pearson": "Pearson's correlation",
  "spearman": "Spearman's correlation",
  "learning_rate": "learning rate",
  "tokens_per_second": "tokens per second",
}


def read_scalars(folder: str) -> Dict[str, Dict[int, float]]:
  """Reads the event files of a run; for equal steps, the later one wins.

  Returns:
    scalar of PANELS -> step -> value.

  Raises:
    InputError: there are no such scalars.
  """
  scalars = collections.defaultdict(dict)
  for event in _events(folder):
    for value in event.summary.value:
      if value.tag in PANELS:  # a TPU's summaries are tensors
        scalars[value.tag][event.step] = (
          tf.make_ndarray(value.tensor).item()
          if value.HasField("tensor")
          else value.simple_value
        )
  if not scalars:
    raise InputError(
      "the event files of %s have none of: %s" % (folder, ", ".join(PANELS))
    )
  return scalars


def _events(folder):
  if not tf.io.gfile.isdir(folder):
    raise InputError("--runs: no folder %r" % folder)
  # The names contain the creation time, so this sorts by time.
  names = sorted(
    name
    for name in tf.io.gfile.listdir(folder)
    if name.startswith("events.out.tfevents.")
  )
  if not names:
    raise InputError(
      "%s has no event files (events.out.tfevents.*): --runs "
      "are output folders of training" % folder
    )
  for name in names:
    path = os.path.join(folder, name)
    try:
      yield from tf.train.summary_iterator(path)
    except tf.errors.DataLossError:  # killed, or still running
      logging.warning("%s is read up to a damaged record", path)


def read_history(folder: str) -> Dict[str, Dict[int, float]]:
  """Reads the evaluations of a run on held-out or dev data.

  Returns:
    like read_scalars, without the prefix "eval_" of fine-tuning.
  """
  path = os.path.join(folder, "eval_history.tsv")
  if not tf.io.gfile.exists(path):
    return {}
  rows = list(
    csv.DictReader(io.StringIO(filesystem.read_text(path)), delimiter="\t")
  )
  try:
    # Metrics may differ between evaluations.
    return {
      column.replace("eval_", ""): {
        int(row["global_step"]): float(row[column])
        for row in rows
        if row[column] != ""
      }
      for column in (rows[0] if rows else ())
      if column.replace("eval_", "") in PANELS
    }
  except (KeyError, TypeError, ValueError) as error:
    raise InputError(
      "%s is not an evaluation history: %r" % (path, error)
    ) from error


def read_minutes(folder: str) -> Tuple[List[int], List[float]]:
  """Returns the steps of a run, sorted, and the minutes since the first."""
  times = {
    event.step: event.wall_time
    for event in _events(folder)
    if event.HasField("summary")
  }
  steps = sorted(times)
  return steps, [(times[step] - times[steps[0]]) / 60 for step in steps]


def over_minutes(
  scalars: Dict[str, Dict[int, float]], steps: List[int], minutes: List[float]
) -> Dict[str, Dict[float, float]]:
  """Replaces the steps of `read_scalars` with minutes."""
  return {
    tag: {
      np.interp(step, steps, minutes): value for step, value in curve.items()
    }
    for tag, curve in scalars.items()
  }


def smooth(values: List[float], weight: float) -> List[float]:
  """Returns exponential moving averages, with bias correction."""
  average, averages = 0.0, []
  for count, value in enumerate(values, 1):
    average = weight * average + (1 - weight) * value
    averages.append(average / (1 - weight**count))
  return averages


def create_figure():
  """Returns an empty figure, drawn with Agg, which needs no display."""
  try:
    from matplotlib.figure import Figure
  except ImportError as error:
    raise InputError(
      "matplotlib cannot be imported (%s): pip install '.[plot]'" % error
    ) from error
  return Figure(figsize=(15, 8), layout="constrained")


def draw(figure, runs, unigram_entropy=None, smoothing=0.0, x_axis="step"):
  """Draws runs: name -> (training scalars, held-out scalars)."""
  tags = [
    tag
    for tag in PANELS
    if any(scalars.get(tag) for pair in runs.values() for scalars in pair)
  ]
  *panels, legend = figure.subplots(-(-(len(tags) + 1) // 3), 3).flat
  for panel in panels[len(tags) :]:
    panel.axis("off")
  entries = {}
  for panel, tag in zip(panels, tags):
    weight = 0.0 if tag == "learning_rate" else smoothing
    for number, (name, (train, held_out)) in enumerate(runs.items()):
      color = "C%d" % number
      steps, values = _curve(train, tag)
      if weight:
        panel.plot(steps, values, color=color, alpha=0.25)
      panel.plot(steps, smooth(values, weight), color=color, label=name)
      if held_out.get(tag):
        panel.plot(
          *_curve(held_out, tag),
          "o",
          color=color,
          markeredgecolor="black",
          label="%s, held out" % name,
        )
    if tag == "masked_lm_loss" and unigram_entropy is not None:
      panel.axhline(
        unigram_entropy, color="gray", linestyle="--", label="unigram entropy"
      )
    panel.set(title=PANELS[tag], xlabel=x_axis)
    panel.grid(alpha=0.3)
    handles, labels = panel.get_legend_handles_labels()
    entries.update(zip(labels, handles))
  legend.axis("off")
  legend.legend(entries.values(), entries.keys(), loc="center")


def _curve(scalars, tag):
  steps = sorted(scalars.get(tag, ()))
  return steps, [scalars[tag][step] for step in steps]


def main() -> None:
  args = from_flags(CurveSettings)
  names = args.names or args.runs
  if not len(set(names)) == len(names) == len(args.runs):
    raise InputError(
      "%d --runs need as many different --names, not %s"
      % (len(args.runs), ", ".join(names))
    )
  if not 0 <= args.smoothing < 1:
    raise InputError(
      "--smoothing %s: must be at least 0 and less than 1" % args.smoothing
    )
  figure = create_figure()
  runs = {}
  for name, folder in zip(names, args.runs):
    runs[name] = read_scalars(folder), read_history(folder)
    if args.x_axis == "minutes":
      times = read_minutes(folder)
      runs[name] = [over_minutes(scalars, *times) for scalars in runs[name]]
  draw(figure, runs, args.unigram_entropy, args.smoothing, args.x_axis)
  png = io.BytesIO()
  figure.savefig(png, format="png")
  filesystem.write_bytes(args.output, png.getvalue())
  logging.info("made %s", args.output)


if __name__ == "__main__":
  cli.run(main, SETTINGS)
