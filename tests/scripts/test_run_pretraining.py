"""run_pretraining.py: outputs, resuming, growing, TPUs, errors."""

import re
import signal
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from reading import table
from refusals import refused
from scripting import fail, kill_at, results, succeed
from small_steps import SIZES, full, write_pretraining
from vocabularies import SPECIAL, write_vocab
from writing import write

import run_pretraining
from albert.files import checkpoints, records
from albert.model.config import AlbertConfig
from albert.predict import load
from albert.train import hooks
from benchmarks import plot_curves


@pytest.fixture(scope="module", autouse=True)
def work(tmp_path_factory):
  """The working directory, with training data."""
  folder = tmp_path_factory.mktemp("work")
  write_pretraining(folder, 21)
  made = list(tf.io.tf_record_iterator(str(folder / "train.tfrecord")))
  same = made[-2:-1] * 8
  for name, rows, more in (
    ("train-0", made, {}),
    ("train-1", made, {}),
    ("heldout", made, {}),
    ("same", same, {}),
    ("same_heldout", same, {}),
    *(("pairs-%s" % x, made, {"sentence_pair": x}) for x in ("sop", "nsp")),
    *(("wwm-%d" % x, made, {"legacy_wwm_labels": x}) for x in (False, True)),
  ):
    records.write_records(str(folder / (name + ".tfrecord")), rows)
    write(
      folder,
      name + ".tfrecord.json",
      dict(more, max_seq_length=16, vocab_size=50),
    )
  write_vocab(
    folder / "vocab.txt",
    [*SPECIAL, *"甲乙", *("w%d" % number for number in range(43))],
  )
  write(folder, "masked.txt", "甲[MASK]", "", "[MASK]乙[MASK]")
  write(folder, "deep.json", dict(SIZES, num_hidden_layers=2))
  write(folder, "other_vocab.json", dict(SIZES, vocab_size=51))
  with pytest.MonkeyPatch.context() as patch:
    patch.chdir(folder)
    yield folder


def command(output_dir, *args):
  return [
    "run_pretraining.py",
    "--bert_config_file=config.json",
    "--input_file=train-*.tfrecord",
    "--output_dir=%s" % output_dir,
    "--max_seq_length=16",
    "--max_predictions_per_seq=4",
    "--train_batch_size=4",
    "--eval_batch_size=4",
    "--log_steps=1",
    "--num_warmup_steps=1",
    *args,
  ]


def history_of(folder, column="loss"):
  return plot_curves.read_history(str(folder))[column]


def pretrain(output_dir, *args):
  """Returns (log, {step: loss})."""
  log = succeed(*command(output_dir, *args))[1]
  return log, {
    int(step): float(loss)
    for step, loss in re.findall(
      r"step (\d+)/\d+ \| last \d: loss ([\d.]+) ", log
    )
  }


# All batches are equal, in any reading order.
TRAINING = [
  "--do_train",
  "--bert_config_file=deep.json",
  "--input_file=same.tfrecord",
  "--optimizer=adamw",
  "--eval_input_file=same_heldout.tfrecord",
  "--learning_rate=0.01",
  "--num_train_steps=6",
  "--save_checkpoints_steps=3",
  "--vocab_file=vocab.txt",
]


@pytest.fixture(scope="module")
def whole(work):
  """(folder, losses) of an uninterrupted run."""
  return work / "whole", pretrain(
    work / "whole", *TRAINING, "--sample_file=masked.txt"
  )[1]


@pytest.mark.slow
def test_what_training_leaves(whole):
  (folder, losses), found = whole, results(whole[0])
  assert sorted(losses) == list(range(1, 7))
  assert set(found) == {
    "loss",
    "global_step",
    *(
      task + what
      for task in ("masked_lm_", "sentence_order_")
      for what in ("loss", "accuracy")
    ),
  }
  assert found["global_step"] == 6
  assert (
    found["loss"]
    == history_of(folder)[6]
    == pytest.approx(found["masked_lm_loss"] + found["sentence_order_loss"])
  )
  assert (
    dict(tf.train.list_variables(str(folder / "best"))).items()
    >= {
      "bert/embeddings/word_embeddings/adam_v": [50, 8],
      "cls/seq_relationship/output_weights": [2, 24],
    }.items()
  )
  scalars = {
    (value.tag, event.step): value.simple_value
    for path in folder.glob("events*")
    for event in tf.train.summary_iterator(str(path))
    for value in event.summary.value
  }
  assert {
    ("masked_lm_accuracy", 6),
    ("sentence_order_accuracy", 6),
    ("learning_rate", 6),
    ("eval/masked_lm_loss", 6),
  } <= set(scalars)
  # Steps of four of the eight records.
  assert [scalars["passes", step] for step in (1, 6)] == [0.5, 3]

  rows = table(folder / "samples.txt")
  assert [row[:2] for row in rows] == [
    [step, text] for step in "36" for text in ("甲[MASK]", "[MASK]乙[MASK]")
  ]
  assert [len(row) for row in rows] == [3, 4] * 2
  best = load(str(folder / "best")).predict(["甲[MASK]"], top_k=3)
  assert rows[-2][2:] == best[0].cells()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, full(signal.SIGTERM)])
def test_training_goes_on_after_a_signal(number, work, whole):
  """SIGTERM leaves a checkpoint, which is not evaluated."""
  folder, (wanted, losses) = work / str(number), whole
  kill_at(4, *command(folder, *TRAINING), number=number)
  log, found = pretrain(folder, *TRAINING)
  step = int(re.search(r"resuming from step (\d+) ", log).group(1))
  assert step == 3 if number == signal.SIGKILL else step in (4, 5)
  assert found == pytest.approx(
    {step: losses[step] for step in range(step + 1, 7)}, abs=2e-4
  )
  assert history_of(folder) == pytest.approx(history_of(wanted), abs=2e-4)


@pytest.mark.full
def test_a_deeper_model_begins_with_the_weights_of_the_shallower(work):
  folder = work / "grown"
  _, losses = pretrain(folder, *TRAINING, "--grow_layers=1:3")
  history = history_of(folder)
  assert sorted(history) == [3, 6]
  assert abs(losses[4] - history[3]) > 0.001
  # The configuration is found next to the checkpoint.
  pretrain(
    "deeper",
    "--do_eval",
    "--bert_config_file=",
    "--input_file=same.tfrecord",
    "--init_checkpoint=%s" % (folder / "model.ckpt-3"),
  )
  found = results(work / "deeper")
  assert losses[4] == pytest.approx(found["loss"], abs=2e-4)
  assert found["global_step"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
  "args", ["--do_train --check_records", full("--do_train")]
)
def test_a_damaged_file_is_named_when_it_is_met(args, work, whole, tmp_path):
  path = tmp_path / "damaged.tfrecord"
  data = bytearray((work / "heldout.tfrecord").read_bytes())
  data[len(data) // 2] ^= 1
  path.write_bytes(data)
  fail(
    "^%s: .*after 10 records" % path,
    *command(
      tmp_path / "out",
      "--bert_config_file=",
      "--input_file=%s" % path,
      "--num_train_steps=20",
      "--shuffle_buffer=1",
      "--init_checkpoint=%s" % whole[0],
      *args.split(),
    ),
  )


@pytest.mark.slow
@pytest.mark.parametrize(
  "flag, state", [("input_file", "gone"), full("eval_input_file", "bad")]
)
def test_a_file_that_changes_while_it_is_used(
  flag, state, work, tmp_path, monkeypatch
):
  """After the check; training must not hang, and must name the file."""
  path = tmp_path / "file.tfrecord"
  rows = list(tf.io.tf_record_iterator("same.tfrecord"))
  records.write_records(str(path), rows)
  bad = tf.train.Example.FromString(rows[0])
  bad.features.feature["input_ids"].int64_list.value[0] = 50
  create, slept = hooks.create, []

  def create_and_change(*args):
    path.unlink()
    if state == "bad":
      records.write_records(
        str(path), rows[:4] + [bad.SerializeToString()] + rows[5:]
      )
    return create(*args)

  monkeypatch.setattr(hooks, "create", create_and_change)
  monkeypatch.setattr(records, "time", SimpleNamespace(sleep=slept.append))
  fail(
    "^%s: %s"
    % (
      path,
      "not a readable .*No such file"
      if state == "gone"
      else "record 5 has .*'input_ids' .* 0 and 49",
    ),
    *command(tmp_path / "out", *TRAINING, "--%s=%s" % (flag, path)),
  )
  assert slept == [2, 5, 15] * (state == "gone")


@pytest.mark.slow
def test_what_training_cannot_begin_or_go_on_with(work, whole):
  folder, _ = whole
  (work / "cut").mkdir()
  for path in folder.glob("model.ckpt-6.*"):
    (work / "cut" / path.name).write_bytes(path.read_bytes()[:500])
  for message, out, *args in (
    ("damaged or incomplete", "unused", "--init_checkpoint=cut"),
    (
      "started with --learning_rate=.*, not 0.9; .* step 6 was .* becomes",
      folder,
      "--learning_rate=0.9",
    ),
    (
      "lacks .*loss_scale.*--precision",
      folder,
      "--num_train_steps=10",
      "--precision=fp16",
      "--resume_anyway",
    ),
  ):
    fail(message, *command(out, *TRAINING, *args))


@pytest.mark.parametrize(
  "args, message",
  [
    (["--bert_config_file="], "^--bert_config_file"),
    (["--early_stop_evals=2"], "--early_stop_evals .*--eval_input_file"),
    (
      ["--nodo_train", "--do_eval", "--export_dir=x"],
      "--export_dir .* --do_train",
    ),
    (["--tpu_name=x"], "--tpu_name .* --use_tpu"),
    (["--max_seq_length=64"], "max_seq_length 16, .* 64"),
    (["--bert_config_file=other_vocab.json"], "vocab_size 50, .* 51"),
    (
      ["--eval_input_file=train-1.tfrecord"],
      "^--eval_input_file: .*train-1.tfrecord",
    ),
    (["--input_file=pairs-*.tfrecord"], "sentence_pair"),
    (["--input_file=wwm-*.tfrecord"], "legacy_wwm_labels"),
    (["--grow_layers=deep"], "^--grow_layers=deep"),
  ],
)
def test_bad_input(args, message, work):
  fail(message, *command("none", "--do_train", "--num_train_steps=1", *args))
  assert not (work / "none").exists()


def test_flags_that_do_nothing_are_warned_of(caplog, monkeypatch):
  monkeypatch.setattr(
    tf.config.experimental, "list_physical_devices", lambda kind: []
  )
  fail(
    "--do_train or --do_eval",
    *command(
      "none",
      "--use_fp16",
      "--num_tpu_cores=8",
      "--recompute_grads",
      "--max_eval_steps=3",
      "--norecompute_grads",
    ),
  )
  assert [
    " ".join(re.findall("--[a-z_0-9]+|GPU", record.getMessage()))
    for record in caplog.records
    if record.levelname == "WARNING"
  ] == [
    "--num_warmup_steps --train_batch_size --do_train",
    "--max_eval_steps --do_eval --eval_input_file",
    "--eval_batch_size --do_eval --eval_input_file",
    "--num_tpu_cores --use_tpu",
    "--precision GPU",
  ]


def test_samples_of_other_steps_stay(tmp_path, monkeypatch):
  monkeypatch.setattr(
    run_pretraining,
    "load",
    lambda checkpoint, engine: SimpleNamespace(
      predict=lambda texts, top_k: [
        SimpleNamespace(cells=lambda: [checkpoint[-1:] * 2]) for _ in texts
      ]
    ),
  )
  for step in (9, 3, 9, 6):
    run_pretraining.write_samples(
      str(tmp_path), ["b", "a"], "model.ckpt-%d" % step
    )
  assert table(tmp_path / "samples.txt") == [
    [step, text, step * 2] for step in "369" for text in "ba"
  ]


def test_growth():
  def parse_growth(text, **changes):
    config = AlbertConfig.from_dict(dict(SIZES, num_hidden_layers=3, **changes))
    return [
      (config.num_hidden_layers, end)
      for config, end in run_pretraining.parse_growth(text, config, 9)
    ]

  assert parse_growth(None) == [(3, 9)]
  assert parse_growth("1:3, 2:6") == [(1, 3), (2, 6), (3, 9)]
  assert parse_growth("1:8", num_hidden_groups=1) == [(1, 8), (3, 9)]
  for message, values in (
    ("write", "1 1: :4 one:4 1:4, 1:4;2:6 1:-4 1.5:4 1:4:6"),
    (".*must grow", "0:4 2:4,1:6 1:4,1:6 1:4,2:4 1:6,2:4 3:4 1:9 1:0"),
  ):
    for value in values.split():
      refused("=%s: %s" % (value, message), parse_growth, value)
  for changes in (
    {"parameter_sharing": "none"},
    {"num_hidden_groups": 2},
    {"parameter_sharing": "attention"},
  ):
    assert parse_growth(None, **changes) == [(3, 9)]
    refused("do not share", parse_growth, "1:3", **changes)


TPU = ["--use_tpu", "--num_tpu_cores=1", "--save_checkpoints_steps=3"]
LOSSES = {3: 1.0, 5: 1.5, 6: 4.0, 9: 3.0}  # step -> masked-LM loss


@pytest.fixture
def calls(monkeypatch):
  """The calls of a fake TPUEstimator."""
  calls = []

  def train(self, input_fn, max_steps, hooks):
    calls.append(("train", max_steps))
    checkpoints.write_checkpoint(
      self.model_dir, "model.ckpt-%d" % max_steps, {"x": np.zeros([])}
    )

  def evaluate(self, input_fn, steps, checkpoint_path):
    # TPUEstimator rejects an evaluation without a number of batches.
    stop, _ = self._convert_eval_steps_to_hooks(steps)
    calls.append(("evaluate", stop._num_evals))
    step = checkpoints.step_of(checkpoint_path)
    return {
      "masked_lm_loss": LOSSES[step],
      "sentence_order_loss": 1.0,
      "global_step": step,
    }

  monkeypatch.setattr(tf.estimator.tpu.TPUEstimator, "train", train)
  monkeypatch.setattr(tf.estimator.tpu.TPUEstimator, "evaluate", evaluate)
  return calls


def test_training_leaves_a_tpu_only_to_evaluate(calls, tmp_path):
  def called(folder, *args):
    del calls[:]
    pretrain(tmp_path / folder, *TPU, *args)
    return " ".join("%s %d" % call for call in calls)

  heldout = "--eval_input_file=heldout.tfrecord"
  assert called("a", "--do_train", "--num_train_steps=5") == "train 5"
  assert (
    "already at step 5"
    in pretrain(tmp_path / "a", *TPU, "--do_train", "--num_train_steps=5")[0]
  )
  assert called("b", "--do_train", "--num_train_steps=6", heldout) == (
    "train 3 evaluate 5 train 6 evaluate 5"
  )
  # As if killed between saving and evaluating a checkpoint.
  history = tmp_path / "b" / "eval_history.tsv"
  history.write_text("".join(history.read_text().splitlines(True)[:2]))
  assert called("b", "--do_train", "--num_train_steps=9", heldout) == (
    "evaluate 5 train 9 evaluate 5"
  )
  assert called("b", "--do_eval", "--max_eval_steps=2", heldout) == "evaluate 2"
  # The best checkpoint is never a shallower model.
  called("c", *TRAINING, "--grow_layers=1:5", "--num_train_steps=9")
  assert history_of(tmp_path / "c", "masked_lm_loss") == {
    step: LOSSES[step] for step in (3, 5, 6, 9)
  }
  assert results(tmp_path / "c" / "best")["global_step"] == 9


def test_weights_that_a_tpu_finds_not_finite(monkeypatch, tmp_path):
  def train(*args, **kwargs):
    raise tf.errors.InvalidArgumentError(
      None, None, "Gradient for bert/x is NaN : Tensor had NaN values"
    )

  monkeypatch.setattr(tf.estimator.tpu.TPUEstimator, "train", train)
  fail(
    "not finite after step 0; .* none", *command(tmp_path, "--do_train", *TPU)
  )
