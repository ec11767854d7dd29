"""What the hooks of training do beside what whole trainings show."""

import time

import pytest
import tensorflow.compat.v1 as tf

from albert.errors import InputError
from albert.files import checkpoints
from albert.train import hooks
from albert.train.step import PROGRESS


def test_half_precision_that_always_overflows_ends_training(tmp_path):
  """The step stays where it is; one that advances starts the count anew."""
  step = tf.train.get_or_create_global_step()
  advance = tf.placeholder_with_default(tf.constant(0, tf.int64), [])
  with tf.control_dependencies([step.assign_add(advance)]):
    scalars = {"loss": tf.constant(1.0), "global_step": step.read_value()}
    for name, scalar in scalars.items():
      tf.add_to_collection(PROGRESS, tf.identity(scalar, "progress/" + name))
  nothing = tf.no_op()
  progress = hooks.ProgressHook(100, 10, 1, str(tmp_path))
  with tf.train.SingularMonitoredSession(hooks=[progress]) as session:
    for _ in range(29):
      session.run(nothing)
    session.run(nothing, {advance: 1})
    for _ in range(29):
      session.run(nothing)
    with pytest.raises(InputError, match="step 2 overflows half precision, 30 "
                       "times in a row: try a lower --learning_rate"):
      session.run(nothing)


def test_checkpoints_by_time(tmp_path, monkeypatch):
  """Neither the first step nor the last one; a step takes 25 seconds."""
  clock = [1000.0]
  monkeypatch.setattr(time, "time", lambda: clock[0])
  step = tf.train.get_or_create_global_step()
  advance = step.assign_add(1)
  saver = hooks._TimedSaver(str(tmp_path), 60)
  with tf.train.SingularMonitoredSession(hooks=[saver]) as session:
    for _ in range(8):
      session.run(advance)
      clock[0] += 25
  assert checkpoints.whole_checkpoints(str(tmp_path)) == [
      "model.ckpt-4", "model.ckpt-7"]
