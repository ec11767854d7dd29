"""What all fine-tuning scripts share, without a model."""

import weakref

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from given_settings import make_settings
from small_models import albert_zh_config

from albert.errors import InputError
from albert.heads import base
from albert.model.config import AlbertConfig
from albert.model_folder import ModelFolder
from albert.train import distribution, finetuning, loop, step

LENGTHS = [1 + i * 7 % 20 for i in range(37)]


def batches(input_fn, batch_size):
  """Yields the batches of a dataset, dicts of arrays."""
  with tf.Graph().as_default(), tf.Session() as session:
    batch = tf.data.make_one_shot_iterator(
        input_fn({"batch_size": batch_size})).get_next()
    while True:
      try:
        yield session.run(batch)
      except tf.errors.OutOfRangeError:
        return


class Estimator:
  """Stands for a TPUEstimator; predicts the sum of the ids of an example."""

  def __init__(self, folder):
    folder.mkdir(exist_ok=True)
    self.model_dir = str(folder)
    self.shapes = set()

  def predict(self, input_fn, checkpoint_path):
    assert checkpoint_path == "model.ckpt-1"
    for values in batches(input_fn, 8):
      self.shapes.add(values["input_ids"].shape)
      for number, ids in zip(values["number"], values["input_ids"]):
        yield {"number": number, "sum": ids.sum()}


def of_length(length):
  return {"input_ids": [length] * length, "input_mask": [1] * length,
          "segment_ids": [0] * length}


def of_number(number):
  return dict(of_length(1), input_ids=[number])


@pytest.fixture
def start(tmp_path, monkeypatch):
  """Returns a function that makes a Runner, and trains if it should.

  It returns (the Runner, its Estimator, the first ids that training reads).
  """
  def start(examples, make, rank=0, size=1, **changes):
    estimator = Estimator(tmp_path / ("rank-%d" % rank))
    monkeypatch.setattr(loop, "create_estimator", lambda *_: estimator)
    monkeypatch.setattr(step, "model_fn_builder", lambda *_: None)
    read = []

    def train(settings, workers, stages, input_fn_at, evaluator):
      (_, num_train_steps), = stages
      for _, batch in zip(range(num_train_steps), batches(
          input_fn_at(0), settings.batch.train_batch_size)):
        read.extend(batch["input_ids"][:, 0])

    monkeypatch.setattr(loop, "train_and_evaluate", train)
    settings = make_settings(**dict(dict(
        output_dir=str(tmp_path / "output"), train_batch_size=1,
        eval_batch_size=8, num_train_epochs=1, warmup_proportion=0,
        random_seed=1, max_seq_length=24), **changes))
    name = "train" if settings.run.do_train else "dev"
    splits = {name: finetuning.Split(list(examples), make)}
    runner = finetuning.Runner(
        settings, distribution.Workers(rank, size, 0, list), ModelFolder(
            AlbertConfig(**albert_zh_config()), None), base.Head(), [], splits)
    if settings.run.do_train:
      runner.run(None, None, None)
      assert not splits  # nothing of the training set is kept
    return runner, estimator, read
  return start


def numbers(folder):
  """The first id of each record of a training file, in the file's order."""
  return [tf.train.Example.FromString(record).features.feature[
      "input_ids"].int64_list.value[0] for record in
          tf.io.tf_record_iterator(str(folder / "train.tf_record"))]


def test_training_examples_are_shuffled_as_a_whole(start, tmp_path):
  examples = list(range(1, 1001))
  start(examples, of_number, do_train=True, train_batch_size=1000)
  order = numbers(tmp_path / "rank-0")
  assert sorted(order) == examples
  # Of 10 stretches of 100, each has as many of the first half as chance gives:
  # 50, with a standard deviation of 4.7.
  halves = (np.array(order) <= 500).reshape([10, 100]).sum(1)
  assert halves.min() > 25 and halves.max() < 75


def test_each_rank_writes_and_reads_its_share(start, tmp_path):
  _, _, read = start(range(1, 41), of_number, do_train=True)
  assert sorted(read) == list(range(1, 41))
  whole = numbers(tmp_path / "rank-0")
  for rank in range(3):
    made = []
    _, _, read = start(
        range(1, 41), lambda x, made=made: made.append(x) or of_number(x), rank,
        3, do_train=True)
    assert made == whole[rank::3] == numbers(tmp_path / ("rank-%d" % rank))
    assert len(read) == 40 // 3  # the same number of steps for all
    assert set(read) <= set(made)


def test_features_are_let_go_once_they_are_written(start):
  class Features(dict):  # a plain dict cannot be referred to weakly
    pass

  references = []

  def make(length):
    assert sum(ref() is not None for ref in references) <= 2
    features = Features(of_length(length))
    references.append(weakref.ref(features))
    return features

  start(LENGTHS, make, do_train=True, train_batch_size=37)
  list(start(LENGTHS, make)[0].predict("dev", "model.ckpt-1"))
  assert len(references) == 2 * len(LENGTHS)


@pytest.mark.parametrize("use_tpu", [False, True])
def test_predictions_are_in_the_order_of_the_examples(start, use_tpu):
  made = []
  runner, estimator, _ = start(
      LENGTHS, lambda x: made.append(x) or of_length(x), use_tpu=use_tpu,
      num_tpu_cores=1)
  for _ in range(2):
    found = runner.predict("dev", "model.ckpt-1")
    assert [row["sum"] for row in found] == [n * n for n in LENGTHS]
  assert len(made) == (40 if use_tpu else 37)  # once, not at each evaluation
  if use_tpu:
    assert estimator.shapes == {(8, 24)}
  else:
    assert {shape[1] for shape in estimator.shapes} == {8, 16, 24}


def test_less_than_a_batch(start):
  with pytest.raises(InputError, match="^5 .* 8$"):
    start(range(5), of_length, do_train=True, train_batch_size=4, size=2)
