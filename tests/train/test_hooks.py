"""Progress, timed checkpoints, evaluation, with fake steps and a fake clock."""

import logging
import time
from types import SimpleNamespace
from unittest import mock

import pytest
import tensorflow.compat.v1 as tf
from given_settings import make_settings
from refusals import refused

from albert.files import checkpoints
from albert.train import distribution, hooks, interrupts


@pytest.fixture
def clock(monkeypatch):
  """A list of one float, the fake time."""
  clock = [1000.0]
  monkeypatch.setattr(time, "monotonic", lambda: clock[0])
  return clock


@pytest.fixture
def start(clock, monkeypatch, caplog):
  """A function of ProgressHook's arguments; returns (hook, function that runs a
  step with given results and duration, list of calls made)."""
  calls = []
  monkeypatch.setattr(
    hooks, "write_summary", lambda folder, *args: calls.append(args)
  )
  caplog.set_level(logging.INFO, "absl")

  def start(num_train_steps, every, writes=True):
    hook = hooks.ProgressHook(num_train_steps, every, 10, "/nowhere", writes)
    hook.begin()
    hook.after_create_session(SimpleNamespace(run=lambda x: 0), None)
    run = SimpleNamespace(request_stop=lambda: calls.append("stop"))

    def make_step(number, loss, seconds=2.0, **values):
      clock[0] += seconds
      hook.after_run(
        run,
        SimpleNamespace(results=dict(loss=loss, global_step=number, **values)),
      )

    return hook, make_step, calls

  return start


def test_lines_of_progress(start, clock, caplog):
  hook, make_step, calls = start(5, 2)
  for step, loss, accuracy in (
    (1, 4.0, 0.5),
    (2, 3.0, 0.7),
    (3, 2.0, 0.8),
    (4, 1.0, 0.9),
  ):
    make_step(
      step, loss, accuracy=accuracy, example_loss=loss, tokens_per_example=step
    )
    if step == 2:  # an evaluation follows
      clock[0] += 3
      hook.exclude(3)
  make_step(5, 1.0, accuracy=1.0, example_loss=0.5, tokens_per_example=4)
  assert [line.split(" | ") for line in caplog.messages] == [
    line.split("|")
    for line in (
      "step 1/5|last 1: loss 4.0000|accuracy 0.5000|2.0 s per step",
      "step 2/5|last 1: loss 3.0000|accuracy 0.7000|5.0 examples/s|"
      "10 tokens/s|0:00:06 left",
      "step 4/5|last 2: loss 1.5000|accuracy 0.8500|5.0 examples/s|"
      "18 tokens/s|0:00:02 left",
      "step 5/5|last 1: loss 1.0000|accuracy 1.0000|example_loss 0.5000|"
      "5.0 examples/s|20 tokens/s|0:00:00 left",
    )
  ]
  assert [step for step, _ in calls] == [1, 2, 4, 5]
  assert calls[2][1] == pytest.approx(
    {
      "loss": 1.5,
      "accuracy": 0.85,
      "examples_per_second": 5.0,
      "tokens_per_second": 17.5,
    }
  )


def test_a_loss_that_rises_is_told_once(start, caplog):
  _, make_step, _ = start(9, 1, writes=False)
  for number, loss in enumerate((8.0, 17.0, 17.1, 900.0), 1):
    make_step(number, loss)
  (told,) = [
    record.getMessage()
    for record in caplog.records
    if record.levelname == "WARNING"
  ]
  assert told.startswith("the loss is 17.1000, but was 8.0000 at first")


def test_slow_steps_and_a_signal(start, caplog, monkeypatch):
  _, make_step, calls = start(10**6, 1000, writes=False)
  for number, seconds in ((1, 60), (2, 60), (3, 20), (4, 20)):
    make_step(number, 1.0, seconds)
  lines = [line.split(" | ")[0] for line in caplog.messages]
  assert "694.4 more days" in lines.pop(2)
  assert lines == ["step %d/1000000" % step for step in (1, 2, 4)]
  assert calls == []
  monkeypatch.setitem(interrupts._state, "signal", 15)
  make_step(5, 1.0)
  assert calls == ["stop"]


@pytest.mark.parametrize(
  "losses, message",
  [
    # The step does not advance; advancing resets the count.
    ([(0, 1.0)] * 29 + [(1, 1.0)] * 31, "step 2 .* 30 .*--learning_rate"),
    ([(1, 1.0), (2, float("nan"))], "nan at step 2; .*--learning_rate"),
    ([(1, 1.0), (2, 1.0)], "gradient is inf at step 2; .*--learning_rate"),
  ],
)
def test_what_ends_training(start, losses, message):
  _, make_step, _ = start(100, 10)
  for loss in losses[:-1]:
    make_step(*loss, gradient_norm=1.0)
  # Raised before the saver hook runs.
  refused(message, make_step, *losses[-1], gradient_norm=float("inf"))


def test_where_a_training_waits_is_told(clock, caplog, monkeypatch):
  """Once, after ten times the usual; only while training."""
  monkeypatch.setitem(interrupts._state, "training", True)
  watch = hooks._Watch()

  def told_after(seconds, usual=4.0):
    caplog.clear()
    clock[0] += seconds
    watch.usual = usual
    watch.stop = mock.Mock(**{"wait.side_effect": [False, False, True]})
    watch.run()
    return len(caplog.records)

  assert [
    told_after(39),
    told_after(2),
    told_after(500, None),
    told_after(0),
  ] == [0, 1, 0, 1]
  watch.ended()
  assert told_after(29, 0.1) == 0 and told_after(2, 0.1) == 1
  assert "no step has ended for 31 s, usually 0.1 s: waiting in run (" in (
    caplog.text
  )
  monkeypatch.setitem(interrupts._state, "training", False)
  assert told_after(99) == 0


def test_what_a_tpu_sends_its_host_may_be_late(clock, monkeypatch):
  hook = hooks.ProgressHook(9, 4, 10, "/nowhere")
  hook._of_host = None
  monkeypatch.setattr(time, "sleep", lambda seconds: None)
  # The hook waits for at most ten seconds.
  for seconds, loss in ((0, 0.75), (6, 0.625)):
    sent = [{"host_step": step, "loss": step / 8} for step in (4, 5, 6, 7)]

    def run(_, seconds=seconds, sent=sent):
      clock[0] += seconds
      return sent.pop(0)

    assert hook._host_values(SimpleNamespace(run=run), 6) == {"loss": loss}


@pytest.mark.parametrize(
  "given, rank, names",
  [
    ({}, 0, "ProgressHook _Saver"),
    ({"save_checkpoints_secs": 60}, 0, "ProgressHook _TimedSaver _Saver"),
    ({"use_tpu": True}, 0, "ProgressHook"),
    ({"use_horovod": True}, 0, "str ProgressHook _Saver StopTogetherHook"),
    (
      {"use_horovod": True, "save_checkpoints_secs": 60},
      1,
      "str ProgressHook StopTogetherHook",
    ),
  ],
)
def test_order(given, rank, names, monkeypatch):
  monkeypatch.setattr(distribution, "broadcast_variables_hook", lambda: "")
  made = hooks.create(
    make_settings(output_dir="/nowhere", **given),
    distribution.Workers(rank, 2, 0, list),
    [9],
    None,
    None,
  )
  assert [type(hook).__name__ for hook in made] == names.split()


def test_checkpoints_by_time(tmp_path, clock):
  """Not at the first or last step; a step takes 25 seconds."""
  advance = tf.train.get_or_create_global_step().assign_add(1)
  with tf.train.SingularMonitoredSession(
    hooks=[hooks._TimedSaver(str(tmp_path), 60)]
  ) as session:
    for _ in range(8):
      session.run(advance)
      clock[0] += 25
  assert checkpoints.whole_checkpoints(str(tmp_path)) == [
    "model.ckpt-4",
    "model.ckpt-7",
  ]


def test_checkpoints_at_multiples_wherever_training_resumes(tmp_path):
  step = tf.train.get_or_create_global_step()
  advance = step.assign_add(1)
  with tf.train.SingularMonitoredSession(
    hooks=[hooks._Saver(str(tmp_path), 5, None)],
    scaffold=tf.train.Scaffold(init_op=step.assign(7)),
  ) as session:
    for _ in range(9):
      session.run(advance)
  assert checkpoints.whole_checkpoints(str(tmp_path)) == [
    "model.ckpt-%d" % step for step in (7, 10, 15, 16)
  ]
  assert [
    step for step in range(17) if hooks.is_evaluated(step, 5, [8, 16])
  ] == [0, 5, 8, 10, 15, 16]


def test_a_checkpoint_is_evaluated_if_it_is_due(clock):
  excluded = []
  listener = hooks._EvaluationListener(
    SimpleNamespace(
      evaluate=lambda step: clock.insert(0, clock[0] + step),
      should_stop=lambda: True,
    ),
    SimpleNamespace(exclude=excluded.append),
    [5, 0].count,
  )
  assert not listener.after_save(None, 0)
  assert not listener.after_save(None, 4)
  assert listener.after_save(None, 5)
  assert excluded == [5]
