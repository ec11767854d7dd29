"""Trainings on emulated TPU cores against those of one device."""

import re

import numpy as np
import pytest
import scripting
import small_steps
import tensorflow.compat.v1 as tf
from small_steps import assert_equal_variables, full, write_pretraining
from trained_models import command

from albert.files import checkpoints
from benchmarks import plot_curves


@pytest.fixture(autouse=True)
def no_dropout(monkeypatch):  # of which replicas draw other numbers
  small_steps.without_dropout(monkeypatch)


def run(folder, topology, script, *args):
  """Trains on (hosts, cores of each), or None; returns the model's folder."""
  args += ("--do_train", "--output_dir=%s" % folder, "--learning_rate=0.01")
  if topology:
    status, _, log = scripting.run(
      "tests/tpu_emulator.py",
      *topology,
      scripting.ROOT / script,
      "--iterations_per_loop=1",
      *args,
    )
    assert not status, log
  else:
    scripting.succeed(script, *args)
  return folder


def assert_same_training(
  one, other, evaluations=0, shifts="key/bias", tolerance=1e-5
):
  """Weights, and what was evaluated at every checkpoint. `shifts` shift all
  scores of a softmax alike: rounding errors move them, and Adam's moments."""
  wanted, found = [
    {
      name: value
      for name, value in checkpoints.read_all(
        tf.train.latest_checkpoint(str(folder))
      ).items()
      if not re.search(shifts + "|adam", name)
    }
    for folder in (one, other)
  ]
  assert set(wanted) == set(found)
  assert_equal_variables(found, wanted, tolerance)
  if evaluations:
    wanted, found = [
      np.loadtxt(
        str(folder / "eval_history.tsv"), delimiter="\t", skiprows=1, ndmin=2
      )
      for folder in (one, other)
    ]
    assert len(wanted) == evaluations
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(
  "topology, slices, evaluations", [((1, 2), 1, 0), full((2, 1), 2, 1)]
)
def test_pretraining(topology, slices, evaluations, tmp_path):
  # All records are in each batch, so it does not matter which core reads which.
  args = [
    "run_pretraining.py",
    *write_pretraining(tmp_path, 8),
    "--train_batch_size=8",
    "--num_train_steps=2",
    "--num_warmup_steps=0",
    "--log_steps=1",
  ]
  if evaluations:
    args += [
      "--eval_input_file=%s" % (tmp_path / "heldout.tfrecord"),
      "--eval_batch_size=4",
      "--save_checkpoints_steps=2",
    ]
  one = run(tmp_path / "one", None, *args)
  two = run(
    tmp_path / "two",
    topology,
    *args,
    "--gradient_accumulation_steps=%d" % slices,
  )
  assert_same_training(one, two, evaluations)
  wanted, found = [plot_curves.read_scalars(str(x)) for x in (one, two)]
  for name in ("loss", "masked_lm_accuracy", "learning_rate"):
    assert found[name] == pytest.approx(wanted[name], rel=1e-4)
    assert list(found[name]) == [1, 2]


@pytest.mark.full
def test_fine_tuning(tmp_path):
  args = command(
    tmp_path,
    "beam",
    "--do_eval",
    "--do_predict",
    "--max_seq_length=32",
    "--max_train_examples=2",
    "--train_batch_size=2",
    "--random_seed=2",  # draws the shortest, of different labels
    "--num_train_epochs=2",
    "--save_checkpoints_steps=2",
    "--eval_batch_size=6",
  )
  one = run(tmp_path / "one", None, *args)
  two = run(tmp_path / "two", (2, 1), *args)
  assert_same_training(
    one,
    two,
    1,
    "key/bias|start_logits/.*bias|end_logits/.*(beta|_1/bias)",
    tolerance=5e-5,
  )
  wanted, found = [
    (model / "nbest_predictions.json").read_text(encoding="utf-8")
    for model in (one, two)
  ]
  number = r"\d\.\d+(?:e-\d+)?"
  assert re.sub(number, "", found) == re.sub(number, "", wanted)
  np.testing.assert_allclose(
    *[[float(x) for x in re.findall(number, text)] for text in (found, wanted)],
    atol=1e-4,
  )
