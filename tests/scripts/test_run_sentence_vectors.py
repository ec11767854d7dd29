"""Sentence vectors: training data, losses, scores."""

import re

import numpy as np
import pytest
from reading import read_json, table
from scripting import fail, results, succeed
from small_models import albert_zh_config
from trained_models import LENGTH, command
from writing import write

import run_sentence_vectors as vectors
from albert.model.config import AlbertConfig


@pytest.fixture
def script(trained, tmp_path):
  """A training command in tmp_path."""
  return command(
    tmp_path,
    "cosines",
    "--num_train_epochs=1",
    "--do_train",
    "--init_checkpoint=%s" % trained("cosines").best,
  )


@pytest.mark.slow
def test_cosines_of_pairs_with_labels(trained):
  model = trained("cosines")
  header, *rows = table(model.out / "test_results.tsv")
  assert header == ["score", "text_a", "text_b"]
  assert [tuple(row[1:]) for row in rows] == model.inputs
  cosines = np.array([float(row[0]) for row in rows])
  labels, found = np.arange(9) % 2, results(model.best)
  assert (
    0.5
    < found["eval_auc"]
    == pytest.approx(
      np.mean(cosines[labels == 1][:, None] > cosines[labels == 0])
    )
  )
  assert found["eval_pearson"] == pytest.approx(
    np.corrcoef(labels, cosines)[0, 1], abs=1e-4
  )
  assert found.pop("global_step")
  assert set(found) == {
    "eval_" + name
    for name in ("spearman", "pearson", "auc", "accuracy", "threshold")
  }
  assert results(model.out, "test_results.txt") == pytest.approx(found)
  assert read_json(model.best / "task.json") == dict(
    task_name="tsv",
    head="sentence_vector",
    do_lower_case=True,
    layer=-1,
    max_seq_length=LENGTH,
    pooling="mean",
    init_checkpoint="random weights",
  )


@pytest.mark.full
def test_in_batch(script, tmp_path):
  """The threshold is chosen on dev; the test labels are flipped."""
  test = tmp_path / "test.tsv"
  test.write_text(
    re.sub(
      "[01]$",
      lambda x: str(1 - int(x.group())),
      test.read_text("utf-8"),
      flags=re.M,
    ),
    "utf-8",
  )
  _, log = succeed(
    *script,
    "--loss=in_batch",
    "--do_eval",
    "--do_predict",
    "--pooling=cls",
    "--gradient_accumulation_steps=2",
    "--layer=1",
  )
  assert "4 of 9 pairs are similar: with a score of at least 1" in log
  assert "those of the same 2, not of the whole batch of 4" in log
  best = tmp_path / "out" / "best"
  task, dev = read_json(best / "task.json"), results(best)
  assert (task["pooling"], task["layer"]) == ("cls", 1)
  scored = results(tmp_path / "out", "test_results.txt")
  assert scored["eval_threshold"] == dev["eval_threshold"]
  assert scored["eval_accuracy"] == pytest.approx(1 - dev["eval_accuracy"])
  succeed(
    "run_sentence_vectors.py",
    "--data_dir=%s" % tmp_path,
    "--init_checkpoint=%s" % best,
    "--do_predict",
    "--output_dir=%s" % (tmp_path / "elsewhere"),
  )
  assert results(tmp_path / "elsewhere", "test_results.txt") == scored


def test_simcse_takes_each_text_once_with_dropout(tmp_path):
  write(tmp_path, "train.tsv", "text_a\ttext_b\tlabel", "a\tb\t1", "b\tc\t0")
  own = vectors.VectorSettings(loss="simcse", data_dir=str(tmp_path))
  assert vectors.read_texts(own, vectors.get_task(own)) == ["a", "b", "c"]
  for loss, given, rate in (
    ("simcse", None, 0.1),
    ("simcse", 0.3, 0.3),
    ("cosent", None, 0.0),
  ):
    found = vectors.with_dropout(
      AlbertConfig.from_dict(albert_zh_config()),
      vectors.VectorSettings(loss=loss, dropout=given),
    )
    assert found.hidden_dropout_prob == rate
    assert found.attention_probs_dropout_prob == rate


def test_a_part_of_the_training_file(tmp_path):
  """Parts are the same if read separately, as other processes do."""
  rows = ["%d\tb\t%d" % (i, i % 2) for i in range(20)]
  write(tmp_path, "train.tsv", "text_a\ttext_b\tlabel", *rows)
  write(tmp_path, "test.tsv", "text_a\ttext_b\tlabel", *rows[:3])
  args = vectors.VectorSettings(data_dir=str(tmp_path), dev_share=0.3)
  both = vectors.read_examples(args, ["train", "dev", "test"], 1)
  assert [len(both[name]) for name in both] == [14, 6, 3]
  assert sum(vectors.scores_of(both["dev"])) == 3  # stratified
  for name in both:
    assert vectors.read_examples(args, [name], 1) == {name: both[name]}
  assert not {x.text_a for x in both["train"]} & {x.text_a for x in both["dev"]}


@pytest.mark.full
@pytest.mark.parametrize(
  "loss, message",
  [("in_batch", "9 of 9 pairs are similar"), ("simcse", "train: 12 examples")],
)
def test_negatives_and_texts_alone(loss, message, script, trained, tmp_path):
  write(
    tmp_path,
    "train.tsv",
    "text_a\ttext_b\tlabel\tnegative",
    *("\t".join([*pair, "1", "天"]) for pair in trained("cosines").inputs),
  )
  assert message in succeed(*script, "--loss=" + loss)[1]


@pytest.mark.slow
@pytest.mark.parametrize(
  "message, rows, args",
  [
    ("train.tsv:2: ", "text_a\ttext_b\tnegative\na\tb\t ", "--loss=in_batch"),
    ("train.tsv:2: .*second", "text_a\tlabel\n天\t1\n", ""),
    ("train.tsv: .*two", "天\n", "--loss=simcse --texts_file={}/train.tsv"),
    ("one example", None, "--train_batch_size=1"),
    ("--layer=3: .* 1 to 1", None, "--layer=3"),
    (
      "--metric_for_best=auc .*0 and 1",
      "text_a\ttext_b\tscore\n天\t地\t2\n",
      "--do_eval --metric_for_best=auc",
    ),
    ("--dev_share: .*simcse", None, "--loss=simcse --do_eval --dev_share=0.3"),
    ("--loss=simcse .*--dropout", None, "--loss=simcse --dropout=0"),
    ("at least 9", None, "--loss=in_batch --positive_score=9"),
  ],
)
def test_bad_input(message, rows, args, script, tmp_path):
  for split in ("train", "dev") if rows else ():
    write(tmp_path, split + ".tsv", rows)
  fail(message, *script, *args.format(tmp_path).split())
