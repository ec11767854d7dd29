"""Code shared by all fine-tuning scripts, without a model."""

import collections
import re
import types
import weakref

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from given_settings import make_settings
from refusals import refused
from scripting import succeed
from small_models import albert_zh_config
from trained_models import command

from albert.heads import base
from albert.model.config import AlbertConfig
from albert.model_folder import ModelFolder
from albert.tasks import squad
from albert.train import distribution, finetuning, loop, step

LENGTHS = [1 + i * 7 % 20 for i in range(37)]


def batches(input_fn, batch_size):
  with tf.Graph().as_default(), tf.Session() as session:
    batch = tf.data.make_one_shot_iterator(
      input_fn({"batch_size": batch_size})
    ).get_next()
    while True:
      try:
        yield session.run(batch)
      except tf.errors.OutOfRangeError:
        return


def of_length(length):
  return {
    "input_ids": [length] * length,
    "input_mask": [1] * length,
    "segment_ids": [0] * length,
  }


def of_number(number):
  return dict(of_length(1 + number % 5), input_ids=[number] * (1 + number % 5))


@pytest.fixture
def start(tmp_path, monkeypatch):
  """A function that makes a Runner and may train; returns (runner, shapes of
  predicted batches, first ids of training examples). Predicts ids and sums."""

  def start(examples, make, rank=0, size=1, begin=0, **changes):
    folder, shapes = tmp_path / ("rank-%d" % rank), set()
    folder.mkdir(exist_ok=True)

    def predict(input_fn, checkpoint_path):
      assert checkpoint_path == "model.ckpt-1"
      for values in batches(input_fn, 8):
        shapes.add(values["input_ids"].shape)
        for number, ids in zip(values["number"], values["input_ids"]):
          yield {"number": number, "sum": ids.sum(), "ids": ids}

    monkeypatch.setattr(
      loop,
      "create_estimator",
      lambda *_: types.SimpleNamespace(model_dir=str(folder), predict=predict),
    )
    monkeypatch.setattr(step, "model_fn_builder", lambda *_: None)
    read = []

    def train(settings, workers, stages, input_fn_at, evaluator):
      ((_, num_train_steps),) = stages
      for _, batch in zip(
        range(begin, num_train_steps),
        batches(input_fn_at(begin), settings.batch.train_batch_size),
      ):
        read.extend(batch["input_ids"][:, 0])

    monkeypatch.setattr(loop, "train_and_evaluate", train)
    settings = make_settings(
      **dict(
        dict(
          output_dir=str(tmp_path / "output"),
          train_batch_size=1,
          eval_batch_size=8,
          num_train_epochs=1,
          warmup_proportion=0,
          random_seed=1,
          max_seq_length=24,
        ),
        **changes,
      )
    )
    task = finetuning.Task()
    task.head = base.Head()
    task.splits = {
      "train" if settings.run.do_train else "dev": finetuning.Split(
        list(examples), make
      )
    }
    runner = finetuning.Runner(
      settings,
      distribution.Workers(rank, size, 0, list),
      ModelFolder(AlbertConfig(**albert_zh_config()), None),
      task,
    )
    if settings.run.do_train:
      runner.run()
      assert not task.splits  # the training set is released
    return runner, shapes, read

  return start


def test_training_examples_are_shuffled_as_a_whole(start):
  order = start(
    range(1, 1001), of_number, do_train=True, train_batch_size=1000
  )[2]
  assert sorted(order) == list(range(1, 1001))
  # Examples of the first half in each stretch of 100: 50 expected, with a
  # standard deviation of 4.7.
  halves = (np.array(order) <= 500).reshape([10, 100]).sum(1)
  assert halves.min() > 25 and halves.max() < 75


def test_each_rank_reads_its_rows_of_each_batch(start, caplog):
  """Wherever training resumes."""
  changes = {"do_train": True, "num_train_epochs": 2}
  with caplog.at_level("INFO", "absl"):
    _, _, whole = start(range(1, 41), of_number, train_batch_size=6, **changes)
  assert len(whole) == 78 and sorted(whole[:40]) == list(range(1, 41))
  assert (
    "skips 2 of 40 training examples: no. %d, no. %d"
    % tuple(sorted(set(range(1, 41)) - set(whole[40:])))
    in caplog.text
  )
  for begin in (0, 1, 9):
    shares = [
      start(
        range(1, 41), of_number, rank, 3, begin, train_batch_size=2, **changes
      )[2]
      for rank in range(3)
    ]
    assert (
      np.reshape(shares, [3, -1, 2]).transpose([1, 0, 2]).ravel().tolist()
      == whole[6 * begin :]
    )


@pytest.mark.parametrize(
  "given, steps, every",
  [
    ({}, 999, 100),
    ({}, 5, 1),
    ({}, 1000, 1000),
    ({"save_checkpoints_steps": 999}, 99, 999),
    ({"do_eval": False}, 9, 1000),
    ({"early_stop_evals": 9}, 90, 9),
    ({"early_stop_evals": 10}, 90, 9),
  ],
)
def test_how_often_training_is_evaluated(given, steps, every, caplog):
  settings = make_settings(
    **{"output_dir": "a", "do_train": True, "do_eval": True, **given}
  )
  assert (
    finetuning.with_evaluations(settings, steps).run.save_checkpoints_steps
    == every
  )
  assert ("no effect with 10 evaluations" in caplog.text) == (
    given.get("early_stop_evals") == 10
  )


def test_features_are_let_go_once_they_are_written(start):
  references = []

  def make(length):
    assert sum(ref() is not None for ref in references) <= 2
    # Plain dicts do not support weak references.
    features = collections.OrderedDict(of_length(length))
    references.append(weakref.ref(features))
    return features

  start(LENGTHS, make, do_train=True, train_batch_size=37)
  list(start(LENGTHS, make)[0].predict("dev", "model.ckpt-1"))
  assert len(references) == 2 * len(LENGTHS)


@pytest.mark.parametrize(
  "use_tpu, num_made, lengths", [(False, 37, {8, 16, 24}), (True, 40, {24})]
)
def test_predictions_are_in_the_order_of_the_examples(
  start, use_tpu, num_made, lengths
):
  made = []
  runner, shapes, _ = start(
    LENGTHS,
    lambda x: made.append(x) or of_length(x),
    use_tpu=use_tpu,
    num_tpu_cores=1,
  )
  for _ in range(2):
    found = runner.predict("dev", "model.ckpt-1")
    assert (
      found["sum"].tolist()
      == [ids.sum() for ids in found["ids"]]
      == [n * n for n in LENGTHS]
    )
  assert len(made) == num_made  # once, not at each evaluation
  assert {length for _, length in shapes} == lengths
  assert not use_tpu or {size for size, _ in shapes} == {8}


def test_a_set_smaller_than_a_batch_repeats_within_it(start, caplog):
  refused(
    "^5 .* 8$",
    start,
    range(5),
    of_length,
    do_train=True,
    train_batch_size=4,
    size=2,
  )
  _, _, read = start(
    range(1, 6),
    of_number,
    do_train=True,
    train_batch_size=8,
    num_train_epochs=2,
  )
  assert len(read) == 8 and set(read[:5]) == set(range(1, 6))
  assert "5 training examples are fewer than a batch of 8" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
  "name, labels",
  [
    ("several", "北京 6, 上海 3"),
    ("entities", "city 90"),
    ("spans", "answerable 6, unanswerable 3"),
    ("choices", "北京 10, 上海 8"),
    ("cosines", "0 5, 1 4"),
    ("numbers", "1000 3, 1500 3, 2000 3"),
  ],
)
def test_data_is_described(name, labels, tmp_path):
  succeed(*command(tmp_path, name, "--do_train", "--do_eval", "--check_data"))
  (path,) = (tmp_path / "out").iterdir()
  assert path.name == "data_report.txt"
  lines = [
    line
    for line in path.read_text(encoding="utf-8").splitlines()
    if line.startswith(("train: ", "dev: "))
  ]
  assert re.match(r"train: \d+ examples of .*; labels: %s$" % labels, lines[0])
  assert lines[1].startswith("train: the first is read as [CLS] ")
  assert re.match(r"dev: \d+ are in the training file", lines[-1])


@pytest.mark.slow
def test_the_report_has_what_reading_it_said(tmp_path):
  args = command(
    tmp_path, "labels", "--do_train", "--check_data", "--skip_bad_rows"
  )
  path = tmp_path / "train.tsv"
  with open(str(path), "a", encoding="utf-8") as writer:
    writer.write("a\tb\tc\td\n")
  for _ in range(2):  # of this run only
    succeed(*args)
    lines = (
      (tmp_path / "out" / "data_report.txt")
      .read_text(encoding="utf-8")
      .splitlines()
    )
    assert [line for line in lines if not line.startswith("train: ")] == [
      lines[0]
    ]
    assert lines[0].startswith("%s: skipped 1 bad row" % path)


@pytest.mark.slow
@pytest.mark.parametrize(
  "kind, parts, dev",
  [
    ("labels", ["train", "dev", "test"], "dev.jsonl"),
    ("entities", ["train", "dev"], "dev.jsonl"),
    ("cosines", ["train", "dev"], "dev.jsonl"),
    ("spans", ["train", "dev"], "dev.json"),
  ],
)
def test_a_file_is_divided(tmp_path, kind, parts, dev):
  args = command(
    tmp_path,
    kind,
    "--do_train",
    "--do_eval",
    "--dev_share=0.34",
    "--num_train_steps=1",
    "--train_batch_size=2",
  )
  if "test" in parts:
    args += ["--test_share=0.34", "--do_predict"]
  for path in [*tmp_path.glob("dev.*"), *tmp_path.glob("test.*")]:
    path.unlink()
  succeed(
    *[arg for arg in args if not arg.startswith(("--dev_file", "--test_file"))]
  )
  report = (tmp_path / "out" / "data_report.txt").read_text(encoding="utf-8")
  for name in parts:
    assert re.search(
      "%s: %d examples of %s/train"
      % (name, 3 if name != "train" else 9 - 3 * len(parts[1:]), tmp_path),
      report,
    )
  assert "are in the training file" not in report
  written = (tmp_path / "out" / dev).read_text(encoding="utf-8")
  if kind == "spans":
    assert [
      q.text in written
      for q in squad.read_questions(str(tmp_path / "out" / dev))
    ] == [True] * 3
  else:
    assert len(written.splitlines()) == 3
