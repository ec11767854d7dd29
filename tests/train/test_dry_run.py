"""--dry_run: what it reports of hardware that is not here."""

import types

import numpy as np
import pytest
import small_steps as small
import tensorflow.compat.v1 as tf
from scripting import ROOT, call_main
from small_steps import full
from trained_models import command

from albert.train import dry_run


@pytest.fixture
def report(capsys):
  """Returns a function of a command that returns the lines of the report."""

  def report(*args):
    with pytest.raises(SystemExit) as end:
      call_main(*args)
    assert end.value.code == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("dry run of ")
    return dict(line.split(None, 1) for line in lines)

  return report


@pytest.mark.full
@pytest.mark.parametrize("hosts, share", [(4, 16), (1, 64)])
def test_pretraining_on_a_pod(hosts, share, tmp_path, report, caplog):
  lines = report(
    "run_pretraining.py",
    *small.write_pretraining(tmp_path, 99),
    "--do_train",
    "--dry_run=tpu:%dx8" % hosts,
    "--train_batch_size=512",
    "--eval_batch_size=64",
    "--gradient_accumulation_steps=4",
    "--output_dir=gs://bucket/out",
    "--tpu_name=pod",
    "--use_tpu",
  )
  assert "512 examples per step, %d for each core;" % share in lines["training"]
  assert "%d for each core" % (8 // hosts) in lines["evaluation"]
  for name in ("training", "evaluation", "prediction"):
    assert lines[name].endswith("XLA has all")
  assert "--input_file=%s/train.tfrecord" % tmp_path in caplog.text
  assert not (ROOT / "gs:").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
  "hardware, flag, names",
  [
    ("gpu:2", "--do_eval", "prediction memory"),
    full("tpu:1x8", "--do_train", "training evaluation prediction memory"),
  ],
)
def test_fine_tuning(hardware, flag, names, tmp_path, report, trained):
  lines = report(
    *command(
      tmp_path,
      "labels",
      flag,
      "--dry_run=" + hardware,
      "--init_checkpoint=%s" % trained("labels").best,
      "--max_seq_length=32",
      "--train_batch_size=8",
    )
  )
  assert list(lines) == names.split()
  assert not (tmp_path / "out").exists()


def test_a_graph_that_no_tpu_runs(capsys):
  """How many numbers it chooses is not known before."""

  def model_fn(features, labels, mode, params):
    x = features["x"]
    return types.SimpleNamespace(
      loss=tf.reduce_sum(tf.boolean_mask(x, x > 0)),
      train_op=tf.no_op(),
      eval_metrics=(None, [x]),
      predictions={"x": x},
    )

  with pytest.raises(SystemExit, match="training and evaluation would not run"):
    dry_run.DryRun(
      small.make_options(dry_run="tpu:1x2", train_batch_size=8), model_fn
    ).train(
      lambda params: tf.data.Dataset.from_tensors(
        {"x": np.zeros([params["batch_size"], 4], np.float32)}
      )
    )
  assert "shapes are not static" in capsys.readouterr().out


def test_memory_by_hand():
  """Of one dense layer on [8, 4]: what a student would count."""

  def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [4, 5])
    tf.get_variable("slot", [4, 5], trainable=False)
    loss = tf.reduce_sum(tf.tanh(tf.matmul(features["x"], kernel)) ** 2)
    (gradient,) = tf.gradients(loss, [kernel])
    return tf.estimator.EstimatorSpec(
      mode, loss=loss, train_op=kernel.assign_sub(gradient)
    )

  memory = dry_run.make_step(model_fn, {"x": (tf.float32, [8, 4])}).memory
  assert memory["weights"] == memory["gradients"] == 4 * 20
  assert memory["optimizer"] == 4 * 20 + 8  # and the global step
  # The input of the product and the output of tanh; shapes are small change.
  kept = memory["kept for the backward pass"] - 4 * (8 * 4 + 8 * 5)
  assert 0 <= kept <= 100
