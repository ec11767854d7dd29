"""Training curves: what is read of event files, and what is drawn of it."""

import pathlib
import struct
import subprocess
import sys

import pytest
import tensorflow.compat.v1 as tf
from scripting import call_main

from albert import errors
from benchmarks import plot_curves

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).resolve().parents[2]
HISTORY = """global_step\tloss\tmasked_lm_accuracy\tmasked_lm_loss
10\t7.5\t0.25\t6.75
20\t7.0\t0.5\t6.25
"""


def value(tag, number):
  return tf.Summary.Value(tag=tag, simple_value=number)


def tensor(tag, number):
  """What the summaries of TensorFlow 2 write, which a TPU's host call uses."""
  return tf.Summary.Value(
      tag=tag, tensor=tf.make_tensor_proto(number, tf.float32),
      metadata=tf.SummaryMetadata(plugin_data=tf.SummaryMetadata.PluginData(
          plugin_name="scalars")))


def write_events(folder, second, events, make=value):
  """Writes an event file as of some second; returns its path.

  Ten steps take a minute.

  Args:
    folder: pathlib.Path.
    second: int, where 0 is one of those that TensorFlow would have named.
    events: dict, step -> dict, tag -> number.
    make: function of a tag and a number that returns a Summary.Value.
  """
  path = folder / ("events.out.tfevents.%d.host" % (1700000000 + second))
  folder.mkdir(exist_ok=True)
  with tf.io.TFRecordWriter(str(path)) as writer:
    writer.write(tf.Event(file_version="brain.Event:2").SerializeToString())
    for step, scalars in events.items():
      writer.write(tf.Event(
          step=step, wall_time=second + 6 * step, summary=tf.Summary(value=[
              make(*scalar) for scalar in scalars.items()])
      ).SerializeToString())
  return path


def test_scalars_of_a_cpu_or_a_gpu(tmp_path):
  writer = tf.summary.FileWriter(str(tmp_path), tf.get_default_graph())
  loss = tf.placeholder(tf.float32, [])
  merged = tf.summary.merge([tf.summary.scalar("loss", loss),
                             tf.summary.scalar("learning_rate", loss / 8),
                             tf.summary.histogram("weights", loss)])
  with tf.Session() as session:
    for step, number in ((1, 9.5), (101, 7.25)):
      writer.add_summary(session.run(merged, {loss: number}), step)
  writer.add_summary(tf.Summary(value=[value("global_step/sec", 3.0)]), 101)
  writer.close()
  assert plot_curves.read_scalars(str(tmp_path)) == {
      "loss": {1: 9.5, 101: 7.25}, "learning_rate": {1: 1.1875, 101: 0.90625}}


def test_scalars_of_a_tpu(tmp_path):
  write_events(tmp_path, 0, {
      100: {"masked_lm_loss": 6.5, "sentence_order_accuracy": 0.5},
      200: {"masked_lm_loss": 6.25}}, make=tensor)
  assert plot_curves.read_scalars(str(tmp_path)) == {
      "masked_lm_loss": {100: 6.5, 200: 6.25},
      "sentence_order_accuracy": {100: 0.5}}


def test_after_a_restart_the_later_file_counts(tmp_path):
  # Made in another order than that of their times.
  write_events(tmp_path, 5, {20: {"loss": 5.0}, 30: {"loss": 4.0}})
  write_events(tmp_path, 9, {30: {"loss": 3.0}, 40: {"loss": 2.0}}, tensor)
  write_events(tmp_path, 1, {10: {"loss": 8.0, "learning_rate": 0.5},
                             20: {"loss": 7.0, "learning_rate": 0.25}})
  assert plot_curves.read_scalars(str(tmp_path)) == {
      "loss": {10: 8.0, 20: 5.0, 30: 3.0, 40: 2.0},
      "learning_rate": {10: 0.5, 20: 0.25}}


def test_a_killed_run_is_read_up_to_where_it_ends(tmp_path, caplog):
  path = write_events(tmp_path, 0, {step: {"loss": 9.0 - step}
                                    for step in (1, 2, 3)})
  whole = path.read_bytes()
  start = 0  # of the last record: length, its checksum, data, their checksum
  for _ in range(3):
    start += 16 + struct.unpack_from("<Q", whole, start)[0]
  write_events(tmp_path, 1, {5: {"loss": 4.0}})
  for end in (start + 1, start + 11, start + 14, len(whole) - 1):
    caplog.clear()
    path.write_bytes(whole[:end])
    # What the next start of the run wrote is read all the same.
    assert plot_curves.read_scalars(str(tmp_path)) == {
        "loss": {1: 8.0, 2: 7.0, 5: 4.0}}
    if end > start + 12:  # TensorFlow takes part of a length for the end.
      assert "%s is read up to a damaged record" % path in caplog.text
  path.write_bytes(whole[:-6] + b"?" + whole[-5:])
  assert 3 not in plot_curves.read_scalars(str(tmp_path))["loss"]


def test_held_out_values(tmp_path):
  assert plot_curves.read_history(str(tmp_path)) == {}
  history = tmp_path / "eval_history.tsv"
  history.write_text(HISTORY)
  assert plot_curves.read_history(str(tmp_path)) == {
      "loss": {10: 7.5, 20: 7.0}, "masked_lm_loss": {10: 6.75, 20: 6.25},
      "masked_lm_accuracy": {10: 0.25, 20: 0.5}}
  # Of fine-tuning.
  history.write_text("global_step\teval_accuracy\teval_loss\tmatthews\n"
                     "5\t0.5\t1.5\t0.1\n9\t0.75\t1.25\t\n")
  assert plot_curves.read_history(str(tmp_path)) == {
      "accuracy": {5: 0.5, 9: 0.75}, "loss": {5: 1.5, 9: 1.25}}
  for text in ("step\tloss\n1\t2\n", "global_step\tloss\n1\n",
               "global_step\tloss\n1\tx\n"):
    history.write_text(text)
    with pytest.raises(errors.InputError, match="eval_history.tsv is no hist"):
      plot_curves.read_history(str(tmp_path))


def test_a_folder_without_scalars(tmp_path):
  with pytest.raises(errors.InputError, match="no folder .*none'"):
    plot_curves.read_scalars(str(tmp_path / "none"))
  (tmp_path / "graph.pbtxt").write_text("")
  with pytest.raises(errors.InputError, match="has no event files"):
    plot_curves.read_scalars(str(tmp_path))
  write_events(tmp_path, 0, {1: {"global_step/sec": 3.0}})
  with pytest.raises(errors.InputError, match="have none of: loss, masked_lm"):
    plot_curves.read_scalars(str(tmp_path))


def test_values_over_minutes(tmp_path):
  write_events(tmp_path, 0, {10: {"loss": 9.0}, 20: {"loss": 8.0}})
  write_events(tmp_path, 90, {20: {"loss": 7.0}, 30: {"loss": 6.0}})
  # Step 20 was reached twice, the second time after a pause.
  times = plot_curves.read_minutes(str(tmp_path))
  assert times == ([10, 20, 30], [0.0, 2.5, 3.5])
  assert plot_curves.over_minutes(
      {"loss": {10: 9.0, 20: 7.0}, "accuracy": {25: 0.5, 40: 0.75}}, *times
  ) == {"loss": {0.0: 9.0, 2.5: 7.0}, "accuracy": {3.0: 0.5, 3.5: 0.75}}


def test_smoothing():
  assert plot_curves.smooth([3.0, 1.0, 2.0], 0.0) == [3.0, 1.0, 2.0]
  # Weights 1/2, 1/4, 1/8 from the newest value on, divided by their sum.
  assert plot_curves.smooth([3.0, 1.0, 2.0], 0.5) == pytest.approx(
      [3.0, (3 / 4 + 1 / 2) / (3 / 4), (3 / 8 + 1 / 4 + 1) / (7 / 8)])


def test_without_matplotlib(monkeypatch):
  monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
  with pytest.raises(errors.InputError, match="requirements/plot.txt"):
    plot_curves.create_figure()


def test_what_is_drawn():
  figure = plot_curves.create_figure()
  plot_curves.draw(figure, {
      "A": ({"masked_lm_loss": {20: 2.0, 10: 4.0},
             "learning_rate": {10: 1.0, 20: 3.0}},
            {"masked_lm_loss": {15: 3.5}}),
      "B": ({"masked_lm_loss": {10: 5.0}}, {})}, 6.25, 0.5, "minutes")
  panels = {panel.get_title(): panel for panel in figure.axes}
  lines = [tuple(list(data) for data in line.get_data()) + (line.get_color(),)
           for line in panels["masked-LM loss"].lines]
  assert lines == [
      ([10, 20], [4.0, 2.0], "C0"),
      ([10, 20], [4.0, pytest.approx((4 / 4 + 2 / 2) / (3 / 4))], "C0"),
      ([15], [3.5], "C0"), ([10], [5.0], "C1"), ([10], [5.0], "C1"),
      ([0, 1], [6.25, 6.25], "gray")]
  # The learning rate is known, not measured: it is drawn as it is.
  assert panels["learning rate"].get_xlabel() == "minutes"
  lines = panels["learning rate"].lines
  assert [list(line.get_ydata()) for line in lines] == [[1.0, 3.0], []]
  # Those for which there is something to draw, and the legend.
  assert set(panels) == {"masked-LM loss", "learning rate", ""}
  legend = panels[""].get_legend()
  assert [text.get_text() for text in legend.get_texts()] == [
      "A", "A, held out", "B", "unigram entropy"]


def test_the_script(tmp_path):
  for name in "ab":
    write_events(tmp_path / name, 0, {step: {
        tag: 1 / step for tag in plot_curves.PANELS} for step in (10, 20)})
  (tmp_path / "a" / "eval_history.tsv").write_text(HISTORY)
  output = tmp_path / "curves.png"
  command = [sys.executable, str(ROOT / "benchmarks" / "plot_curves.py"),
             "--runs=%s,%s" % (tmp_path / "a", tmp_path / "b"),
             "--output=%s" % output, "--unigram_entropy=6.33",
             "--smoothing=0.9", "--x_axis=minutes"]
  done = subprocess.run(command, capture_output=True, text=True, timeout=300)
  assert done.returncode == 0, done.stderr
  png = output.read_bytes()
  assert png.startswith(b"\x89PNG\r\n")
  width, height = struct.unpack(">II", png[16:24])
  assert width > 1000 and height > 500
  assert sorted(path.name for path in tmp_path.iterdir()) == [
      "a", "b", "curves.png"]

  done = subprocess.run(command + ["--names=A"], capture_output=True,
                        text=True, timeout=300)
  assert done.returncode == 1
  assert done.stderr.splitlines()[-1] == (
      "ERROR: 2 --runs need as many different --names, not: A")
  assert "Traceback" not in done.stderr
  assert output.read_bytes() == png


@pytest.mark.parametrize("args, message", [
    (["--names=A,B,A"], "2 --runs .* different --names, not: A, B, A"),
    (["--names=A,A"], "2 --runs need as many different --names"),
    (["--smoothing=1.0"], "--smoothing 1.0: it must be at least 0"),
    (["--runs="], "--runs is required")])
def test_flags_that_do_not_fit(args, message):
  with pytest.raises(errors.InputError, match=message):
    call_main(plot_curves, "--runs=a,b", "--output=x.png", *args)
