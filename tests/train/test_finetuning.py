"""What all fine-tuning scripts share, without a model."""

import json
import logging
import types
import weakref

import numpy as np
import pytest
import reference_albert as reference
import scripting
import tensorflow.compat.v1 as tf
from absl import flags

from albert.errors import InputError
from albert.files import checkpoints
from albert.predict import predictor
from albert.train import distribution, estimators, finetuning, training
from modeling import AlbertConfig

pytestmark = pytest.mark.slow

LENGTHS = [1 + i * 7 % 20 for i in range(40)]


class Estimator:
  """Stands for a TPUEstimator; predicts the sum of the ids of an example."""

  def __init__(self, folder):
    self.model_dir = str(folder)
    self.shapes = []

  def predict(self, input_fn, checkpoint_path):
    assert checkpoint_path == "model.ckpt-1"
    tf.reset_default_graph()
    batch = tf.data.make_one_shot_iterator(
        input_fn({"batch_size": 8})).get_next()
    with tf.Session() as session:
      try:
        while True:
          values = session.run(batch)
          self.shapes.append(values["input_ids"].shape)
          for number, ids in zip(values["number"], values["input_ids"]):
            yield {"number": number, "sum": ids.sum()}
      except tf.errors.OutOfRangeError:
        pass


def make_features(length):
  return {"input_ids": [length] * length, "input_mask": [1] * length,
          "segment_ids": [0] * length}


@pytest.fixture
def start(tmp_path, monkeypatch):
  """Returns a function that makes a Runner, and trains if it should."""
  def start(rank=0, size=1, examples=LENGTHS, make=make_features, **changes):
    estimator = Estimator(tmp_path / ("rank-%d" % rank))
    tf.io.gfile.makedirs(estimator.model_dir)
    monkeypatch.setattr(estimators, "create_estimator", lambda *_: estimator)
    monkeypatch.setattr(estimators, "model_fn_builder", lambda *_: None)
    read = []

    def train(estimator, options, input_fn_at, num_train_steps, evaluator):
      batch = tf.data.make_one_shot_iterator(
          input_fn_at(0)({"batch_size": 1})).get_next()
      with tf.Session() as session:
        for _ in range(num_train_steps):
          read.append(session.run(batch)["input_ids"].ravel()[0])

    monkeypatch.setattr(training, "train_and_evaluate", train)
    options = types.SimpleNamespace(**dict(dict(
        do_train=False, do_eval=False, do_predict=False, use_tpu=False,
        pad_to_max=False, train_batch_size=1, eval_batch_size=8,
        num_train_epochs=1, warmup_proportion=0, random_seed=1, num_seeds=None,
        seeds=None, learning_rates=None, adversarial=None,
        max_seq_length=24), **changes))
    name = "train" if options.do_train else "dev"
    splits = {name: finetuning.Split(list(examples), make)}
    runner = finetuning.Runner(
        options, distribution.Workers(rank, size, 0, list), None, None,
        finetuning.SPECS, splits)
    if options.do_train:
      runner.run(None, None, (), None)
      assert not splits  # nothing of the training set is kept
    return runner, estimator, read
  return start


def numbers(folder):
  """The first id of each record of a training file, in the file's order."""
  return [tf.train.Example.FromString(record).features.feature[
      "input_ids"].int64_list.value[0] for record in
          tf.io.tf_record_iterator(str(folder / "train.tf_record"))]


def test_training_examples_are_shuffled_as_a_whole(start, tmp_path):
  examples = list(range(1, 2001))
  start(do_train=True, examples=examples,
        make=lambda i: dict(make_features(1), input_ids=[i]))
  order = numbers(tmp_path / "rank-0")
  assert sorted(order) == examples
  # Of 20 stretches of 100, each has as many of the first half as chance gives:
  # 50, with a standard deviation of 4.9.
  halves = (np.array(order) <= 1000).reshape([20, 100]).sum(1)
  assert halves.min() > 25 and halves.max() < 75


def test_each_rank_writes_and_reads_its_share(start, tmp_path):
  _, _, read = start(do_train=True, examples=range(1, 41),
                     make=lambda i: dict(make_features(1), input_ids=[i]))
  assert sorted(read) == list(range(1, 41))
  one = numbers(tmp_path / "rank-0")
  for rank in range(3):
    made = []

    def make(number, made=made):
      made.append(number)
      return dict(make_features(1), input_ids=[number])

    _, _, read = start(rank, 3, range(1, 41), make, do_train=True)
    assert made == one[rank::3] == numbers(tmp_path / ("rank-%d" % rank))
    assert len(read) == 40 // 3  # the same number of steps for all
    assert set(read) <= set(made)


def test_features_are_let_go_once_they_are_written(start):
  class Features(dict):  # a plain dict cannot be referred to weakly
    pass

  references = []

  def make(length):
    assert sum(ref() is not None for ref in references) <= 2
    features = Features(make_features(length))
    references.append(weakref.ref(features))
    return features

  start(do_train=True, make=make)
  start(make=make)[0].predict("dev", "model.ckpt-1")
  assert len(references) == 2 * len(LENGTHS)


@pytest.mark.parametrize("use_tpu", [False, True])
def test_predictions_are_in_the_order_of_the_examples(start, use_tpu):
  lengths = LENGTHS[:37]
  made = []

  def make(length):
    made.append(length)
    return make_features(length)

  runner, estimator, _ = start(examples=lengths, make=make, use_tpu=use_tpu)
  for _ in range(2):
    found = runner.predict("dev", "model.ckpt-1")
    assert [row["sum"] for row in found] == [n * n for n in lengths]
  assert len(made) == (40 if use_tpu else 37)  # once, not at each evaluation
  if use_tpu:
    assert set(estimator.shapes) == {(8, 24)}
  else:
    assert {shape[1] for shape in estimator.shapes} == {8, 16, 24}


def test_less_than_a_batch(start):
  with pytest.raises(InputError, match="5 training examples are less than one "
                     "batch of 8"):
    start(do_train=True, examples=range(5), train_batch_size=4, size=2)


@pytest.fixture
def folder(tmp_path):
  """A fine-tuned folder, of a model whose texts keep their case."""
  config = dict(scripting.SIZES, vocab_size=6)
  weights = {name: value.astype(np.float32) for name, value in
             reference.random_weights(dict(
                 AlbertConfig(**config).to_dict())).items()}
  weights["output_weights"] = np.zeros([2, 16], np.float32)
  checkpoints.write_checkpoint(str(tmp_path), "model.ckpt-3", weights)
  (tmp_path / "config.json").write_text(json.dumps(config))
  (tmp_path / "task.json").write_text(json.dumps(
      {"labels": ["0", "1"], "do_lower_case": False}))
  (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na")
  return tmp_path


def options(*args):
  values = flags.FlagValues()
  for name in ("bert_config_file", "vocab_file", "spm_model_file"):
    flags.DEFINE_string(name, None, "", flag_values=values)
  flags.DEFINE_bool("do_lower_case", True, "", flag_values=values)
  values(["script", *args])
  return values


def test_case_is_that_of_the_fine_tuned_model(folder, caplog):
  url = "file://%s" % folder
  for given in (None, options()):
    model = predictor.load_folder(url, given)
    assert model.tokenizer.tokenize("a A") == ["a", "[UNK]"]
    assert model.checkpoint == url + "/model.ckpt-3"
    assert model.files == {name: "%s/%s" % (url, name) for name in (
        "config.json", "task.json", "vocab.txt")}
  assert not caplog.text
  with caplog.at_level(logging.WARNING, "absl"):
    model = predictor.load_folder(url, options("--do_lower_case"))
  assert model.tokenizer.tokenize("a A") == ["a", "a"]
  assert "--do_lower_case is True, but %s/task.json says False" % url in (
      caplog.text)
  (folder / "task.json").unlink()
  assert predictor.load_folder(url).tokenizer.tokenize("A") == ["a"]


def test_a_tokenizer_that_was_given_wins(folder):
  path = folder / "other"
  path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nb")
  model = predictor.load_folder(str(folder), options("--vocab_file=%s" % path))
  assert model.files["vocab.txt"] == str(path)
  assert model.tokenizer.tokenize("a b") == ["[UNK]", "b"]
  files = predictor.find_files(str(folder), options("--spm_model_file=other"))
  assert "vocab.txt" not in files and files["spm.model"] == "other"


def test_what_a_folder_lacks(folder):
  (folder / "config.json").unlink()
  with pytest.raises(InputError, match="--bert_config_file is required"):
    predictor.load_folder(str(folder))
