"""Training curves: reading event files, plotting."""

import struct
import sys

import pytest
import tensorflow.compat.v1 as tf
from refusals import refused
from scripting import fail, succeed
from writing import write

from benchmarks import plot_curves

HISTORY = (
  "global_step\tloss\teval_accuracy\tf1\tmatthews\n"
  "10\t7.5\t0.25\t0.1\t0.1\n20\t7.0\t0.5\t\t\n"
)


def write_events(folder, second, events, is_tpu=False):
  """Writes events, step -> tag -> number, at ten steps a minute; returns the
  path. TPU host calls write tensors, as TensorFlow 2 does."""
  path = folder / ("events.out.tfevents.%d.host" % (1700000000 + second))
  folder.mkdir(exist_ok=True)
  with tf.io.TFRecordWriter(str(path)) as writer:
    writer.write(tf.Event(file_version="brain.Event:2").SerializeToString())
    for step, scalars in events.items():
      writer.write(
        tf.Event(
          step=step,
          wall_time=second + 6 * step,
          summary={
            "value": [
              {"tag": tag, "tensor": tf.make_tensor_proto(number, tf.float32)}
              if is_tpu
              else {"tag": tag, "simple_value": number}
              for tag, number in scalars.items()
            ]
          },
        ).SerializeToString()
      )
  return path


def test_after_a_restart_the_later_file_counts(tmp_path):
  write_events(tmp_path, 90, {20: {"loss": 5.0}, 30: {"loss": 4.0}})
  write_events(tmp_path, 180, {30: {"loss": 3.0}, 40: {"loss": 2.0}}, True)
  write_events(
    tmp_path,
    0,
    {
      10: {"loss": 8.0, "learning_rate": 0.5},
      20: {"loss": 7.0, "learning_rate": 0.25},
    },
  )
  assert plot_curves.read_scalars(str(tmp_path)) == {
    "loss": {10: 8.0, 20: 5.0, 30: 3.0, 40: 2.0},
    "learning_rate": {10: 0.5, 20: 0.25},
  }
  times = plot_curves.read_minutes(str(tmp_path))
  assert times == ([10, 20, 30, 40], [0.0, 2.5, 5.0, 6.0])
  assert plot_curves.over_minutes(
    {"loss": {10: 9.0, 20: 7.0}, "accuracy": {25: 0.5, 50: 0.75}}, *times
  ) == {"loss": {0.0: 9.0, 2.5: 7.0}, "accuracy": {3.75: 0.5, 6.0: 0.75}}


def test_a_killed_run_is_read_up_to_where_it_ends(tmp_path, caplog):
  # A record: length, its checksum, data, their checksum.
  events = {1: {"loss": 8.0}, 2: {"loss": 7.0}}
  start = len(write_events(tmp_path, 0, events).read_bytes())
  path = write_events(tmp_path, 0, {**events, 3: {"loss": 6.0}})
  whole = path.read_bytes()
  write_events(tmp_path, 1, {5: {"loss": 4.0}})
  for end in (start + 1, start + 11, start + 14, len(whole) - 1):
    caplog.clear()
    path.write_bytes(whole[:end])
    # Events of the next start are still read.
    assert plot_curves.read_scalars(str(tmp_path)) == {
      "loss": {1: 8.0, 2: 7.0, 5: 4.0}
    }
    if end > start + 12:  # TensorFlow takes a partial length for EOF.
      assert "%s is read up to a damaged record" % path in caplog.text
  path.write_bytes(whole[:-6] + b"?" + whole[-5:])
  assert 3 not in plot_curves.read_scalars(str(tmp_path))["loss"]


def test_held_out_values(tmp_path):
  assert plot_curves.read_history(str(tmp_path)) == {}
  write(tmp_path, "eval_history.tsv", HISTORY)
  assert plot_curves.read_history(str(tmp_path)) == {
    "loss": {10: 7.5, 20: 7.0},
    "accuracy": {10: 0.25, 20: 0.5},
    "f1": {10: 0.1},
  }
  for rows in (
    ("step\tloss", "1\t2"),
    ("global_step\tloss", "1"),
    ("global_step\tloss", "1\tx"),
  ):
    write(tmp_path, "eval_history.tsv", *rows)
    refused("eval_history.tsv", plot_curves.read_history, str(tmp_path))


def test_what_is_drawn(monkeypatch):
  figure = plot_curves.create_figure()
  plot_curves.draw(
    figure,
    {
      "A": (
        {
          "masked_lm_loss": {20: 1.0, 10: 3.0, 30: 2.0},
          "learning_rate": {10: 1.0, 20: 3.0},
        },
        {"masked_lm_loss": {15: 3.5}},
      ),
      "B": ({"masked_lm_loss": {10: 5.0}}, {}),
    },
    6.25,
    0.5,
    "minutes",
  )
  panels = {panel.get_title(): panel for panel in figure.axes}
  lines = [
    tuple(list(data) for data in line.get_data()) + (line.get_color(),)
    for line in panels["masked-LM loss"].lines
  ]
  # Weights 1/2, 1/4, 1/8 from the newest value back, divided by their sum.
  assert lines == [
    ([10, 20, 30], [3.0, 1.0, 2.0], "C0"),
    (
      [10, 20, 30],
      pytest.approx(
        [3.0, (3 / 4 + 1 / 2) / (3 / 4), (3 / 8 + 1 / 4 + 1) / (7 / 8)]
      ),
      "C0",
    ),
    ([15], [3.5], "C0"),
    *[([10], [5.0], "C1")] * 2,
    ([0, 1], [6.25, 6.25], "gray"),
  ]
  assert plot_curves.smooth([3.0, 1.0], 0.0) == [3.0, 1.0]
  # The learning rate is exact: not smoothed.
  rate = panels["learning rate"]
  assert rate.get_xlabel() == "minutes"
  assert [list(line.get_ydata()) for line in rate.lines] == [[1.0, 3.0], []]
  # Panels with data, and the legend.
  assert set(panels) == {"masked-LM loss", "learning rate", ""}
  assert [text.get_text() for text in panels[""].get_legend().get_texts()] == [
    "A",
    "A, held out",
    "B",
    "unigram entropy",
  ]
  monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
  refused("plot]", plot_curves.create_figure)


@pytest.mark.slow
def test_the_script(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for name in "ab":
    write_events(
      tmp_path / name,
      0,
      {
        step: {tag: 1 / step for tag in plot_curves.PANELS} for step in (10, 20)
      },
    )
  write(tmp_path / "a", "eval_history.tsv", HISTORY)
  args = ["benchmarks/plot_curves.py", "--output=curves.png", "--runs=a,b"]
  succeed(
    *args, "--unigram_entropy=6.33", "--smoothing=0.9", "--x_axis=minutes"
  )
  png = (tmp_path / "curves.png").read_bytes()
  assert png.startswith(b"\x89PNG\r\n")
  width, height = struct.unpack(">II", png[16:24])
  assert width > 1000 and height > 500
  assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "curves.png"}
  (tmp_path / "none").mkdir()
  write_events(tmp_path / "other", 0, {1: {"global_step/sec": 3.0}})
  for flag, message in (
    ("--names=A,B,A", "--runs .*--names.* A, B, A"),
    ("--names=A,A", "--runs .*--names"),
    ("--runs=", "--runs"),
    ("--smoothing=1.0", "--smoothing 1.0"),
    ("--runs=absent", "absent"),
    ("--runs=none", "no event files"),
    ("--runs=other", "none of: loss"),
  ):
    fail(message, *args, flag)
