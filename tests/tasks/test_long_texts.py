"""What of a long text is read, and what can be learnt from it."""

import json
import random

import numpy as np
import pytest
import scripting
import tensorflow.compat.v1 as tf
from scripting import ROOT, VOCAB, fail, results, succeed
from small_models import PooledModel

import tokenization
from albert.heads import Classifier, MultiLabel
from albert.predict import load
from albert.tasks import long_texts

pytestmark = pytest.mark.once
LENGTH = 22  # 20 tokens of text


def tokens_of(text, *args):
  tokenizer = tokenization.create_tokenizer(
      str(ROOT / "albert_config" / "vocab.txt"))
  make = long_texts.sequence_maker(tokenizer, 10, *args)
  found = []
  for ids, segments in make(text):
    assert segments == [0] * len(ids)
    first, *tokens, last = tokenizer.convert_ids_to_tokens(ids)
    assert (first, last) == ("[CLS]", "[SEP]")
    found.append("".join(tokens))
  return found


@pytest.mark.parametrize("way, windows, short, exact, long", [
    ("head", 1, ["甲乙"], ["甲乙丙丁戊己庚辛"], ["甲乙丙丁戊己庚辛"]),
    ("head_tail", 1, ["甲乙"], ["甲乙丙丁戊己庚辛"], ["甲乙寅卯辰巳午未"]),
    ("windows", 2, ["甲乙"], ["甲乙丙丁戊己庚辛"],
     ["甲乙丙丁戊己庚辛", "壬癸子丑寅卯辰巳"]),
    ("windows", 3, ["甲乙"], ["甲乙丙丁戊己庚辛"],
     ["甲乙丙丁戊己庚辛", "壬癸子丑寅卯辰巳", "午未"])])
def test_what_is_kept(way, windows, short, exact, long):
  text = "甲乙丙丁戊己庚辛壬癸子丑寅卯辰巳午未"
  for count, wanted in ((2, short), (8, exact), (18, long)):
    assert tokens_of(text[:count], way, windows) == wanted
  assert tokens_of("", way, windows) == [""]


@pytest.mark.parametrize("head", [Classifier, MultiLabel])
def test_logits_are_averaged(head):
  pooled = np.random.RandomState(1).normal(size=[6, 4])
  weights = np.random.RandomState(2).normal(size=[3, 4])
  with tf.Graph().as_default(), tf.Session() as session:
    output = head(3, num_windows=2).apply(
        PooledModel(pooled), {"num_windows": tf.constant([2, 1, 2])})
    variables = {v.op.name: v for v in tf.trainable_variables()}
    session.run(tf.global_variables_initializer())
    session.run(variables["output_weights"].assign(weights))
    found = session.run(output.predictions["logits"])
  logits = pooled @ weights.T
  np.testing.assert_allclose(found, [
      logits[:2].mean(0), logits[2], logits[4:].mean(0)], atol=1e-5)


def documents(number, seed):
  """Texts of 60 tokens whose label is one character, and where that is."""
  rng, rows = random.Random(seed), []
  for i in range(number):
    place = ("beginning", "middle", "end")[i % 3]
    text = [rng.choice("的一是不了在有人这上") for _ in range(60)]
    at = {"beginning": 2, "middle": 30, "end": 57}[place]
    label = rng.choice("好坏")
    text[at] = label
    rows.append((place, label, "".join(text)))
  return rows


@pytest.mark.slow
@pytest.mark.parametrize("way, seen", [
    ("head", {"beginning"}), ("head_tail", {"beginning", "end"}),
    ("windows", {"beginning", "middle", "end"})])
def test_what_can_be_learnt(way, seen, tmp_path):
  (tmp_path / "small.json").write_text(json.dumps(dict(
      scripting.SIZES, hidden_size=32, intermediate_size=64,
      initializer_range=0.1)))
  rows = {"train": documents(360, 1), "test": documents(150, 2)}
  for name, found in rows.items():
    (tmp_path / (name + ".tsv")).write_text("label\ttext_a\n" + "".join(
        "%s\t%s\n" % row[1:] for row in found), encoding="utf-8")
  args = ["run_classifier.py", "--task_name=tsv", "--data_dir=%s" % tmp_path,
          "--do_predict"]
  succeed(*args, "--do_train", "--long_text=" + way,
          "--max_seq_length=%d" % LENGTH, "--num_train_epochs=30", VOCAB,
          "--bert_config_file=%s" % (tmp_path / "small.json"),
          "--learning_rate=2e-3", "--output_dir=%s" % (tmp_path / "out"))
  model = load(str(tmp_path / "out"))
  answers = model.predict([text for _, _, text in rows["test"]])
  for place in ("beginning", "middle", "end"):
    accuracy = np.mean([answer.label == row[1] for answer, row in zip(
        answers, rows["test"]) if row[0] == place])
    assert accuracy > 0.95 if place in seen else accuracy < 0.75
  # The folder says what is kept of a text, to those who predict.
  before = (tmp_path / "out" / "test_results.tsv").read_text()
  succeed(*args, "--init_checkpoint=%s" % (tmp_path / "out"),
          "--output_dir=%s" % (tmp_path / "again"))
  assert (tmp_path / "again" / "test_results.tsv").read_text() == before
  lines = [line.split("\t") for line in before.splitlines()[1:]]
  np.testing.assert_allclose(
      [answer.probability for answer in answers],
      [max(map(float, cells[1:3])) for cells in lines], atol=1e-5)
  assert results(tmp_path / "out", "test_results.txt")


@pytest.mark.slow
def test_what_does_not_go_together(tmp_path):
  for name in ("train", "dev"):
    (tmp_path / (name + ".tsv")).write_text(
        "text_a\ttext_b\tlabel\n甲\t乙\t0\n丙\t丁\t1\n")
  args = ["run_classifier.py", "--task_name=tsv", "--data_dir=%s" % tmp_path,
          "--do_train", "--output_dir=%s" % (tmp_path / "out"), VOCAB,
          "--bert_config_file=%s" % (ROOT / "albert_config" /
                                     "albert_config_tiny.json")]
  fail("--long_text=windows is for single texts, not for pairs", *args,
       "--long_text=windows")
  (tmp_path / "train.tsv").write_text("text_a\tlabel\n甲\t0\n")
  fail("--long_text=windows is for labels", *args, "--long_text=windows",
       "--regression")
