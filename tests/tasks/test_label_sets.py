"""Several labels to a text: by hand, against scikit-learn, and a training."""

import itertools
import json
import random

import numpy as np
import pytest
import scripting
import tensorflow.compat.v1 as tf
from scripting import ROOT, VOCAB, call_main, fail, results, succeed
from small_models import PooledModel

import export_model
from albert.heads import MultiLabel
from albert.predict import load
from albert.tasks import label_kinds, label_sets

pytestmark = pytest.mark.once
RNG = np.random.RandomState(3)


@pytest.mark.parametrize("value, labels", [
    ("a|b", ("a", "b")), (" a | b ", ("a", "b")), ("", ()), ("|", ()),
    ('["a|b", "c"]', ("a|b", "c")), (["a", 1], ("a", "1")), ([], ()),
    ("a|a", ("a",))])
def test_labels_in_files(value, labels):
  assert label_sets.split(value) == labels


@pytest.mark.parametrize("value", ["[1, [2]]", "[a", 5, {"a": 1}])
def test_what_is_no_list_of_labels(value):
  with pytest.raises(ValueError):
    label_sets.split(value)


def made():
  """Probabilities, some of them equal, and what is true."""
  probabilities = RNG.randint(1, 20, [40, 5]) / 20.0
  return probabilities, RNG.randint(0, 2, probabilities.shape)


def test_scores_are_those_of_scikit_learn():
  sklearn = pytest.importorskip("sklearn.metrics")
  probabilities, truth = made()
  truth[:, 3] = 0
  thresholds = [0.52, 0.3, 0.7, 0.5, 1.0]
  found, report = label_sets.score(probabilities, truth, thresholds,
                                   list("abcde"))
  claimed = probabilities > thresholds
  assert found == pytest.approx({
      "micro_f1": sklearn.f1_score(truth, claimed, average="micro"),
      "macro_f1": sklearn.f1_score(truth, claimed, average="macro",
                                   zero_division=0),
      "exact": sklearn.accuracy_score(truth, claimed)}, abs=1e-12)
  rows = [line.split() for line in report.splitlines()]
  assert rows[0] == ["label", "precision", "recall", "f1", "examples"]
  assert float(rows[2][3]) == pytest.approx(sklearn.f1_score(
      truth[:, 1], claimed[:, 1]), abs=1e-4)


def f1(claimed, truth):
  return 2.0 * (claimed & truth).sum() / max(claimed.sum() + truth.sum(), 1)


def test_no_threshold_is_better():
  probabilities, truth = made()
  one = label_sets.choose_thresholds(probabilities, truth, "one")
  assert len(one) == 5 and len(set(one)) == 1
  each = label_sets.choose_thresholds(probabilities, truth, "each")
  tries = np.arange(0, 41) / 40.0
  assert f1(probabilities > one, truth == 1) == pytest.approx(
      max(f1(probabilities > t, truth == 1) for t in tries))
  for label in range(5):
    p, y = probabilities[:, label], truth[:, label] == 1
    assert f1(p > each[label], y) == pytest.approx(
        max(f1(p > t, y) for t in tries))
    # Rounding cannot change what is above.
    assert np.abs(p - each[label]).min() > 0.01
  assert label_sets.choose_thresholds(
      probabilities, np.zeros_like(truth), "each") == [0.5] * 5


def test_the_loss_is_that_of_pytorch():
  """The mean over the labels of the binary cross-entropy of a sigmoid."""
  pooled, weights = RNG.normal(size=[6, 4]), RNG.normal(size=[3, 4])
  truth = RNG.randint(0, 2, [6, 3])
  with tf.Graph().as_default(), tf.Session() as session:
    head, model = MultiLabel(3), PooledModel(pooled)
    output = head.apply(model, {"label_ids": tf.constant(truth)})
    exported = head.outputs(model, {})
    variables = {v.op.name: v for v in tf.trainable_variables()}
    session.run(tf.global_variables_initializer())
    session.run(variables["output_weights"].assign(weights))
    loss, logits, probabilities = session.run([
        output.losses["example_loss"], output.predictions["logits"],
        exported["probabilities"]])
  p = 1.0 / (1.0 + np.exp(-(pooled @ weights.T)))
  np.testing.assert_allclose(probabilities, p, atol=1e-6)
  wanted = -(truth * np.log(p) + (1 - truth) * np.log(1 - p)).mean(1)
  assert loss == pytest.approx(wanted.sum(), rel=1e-5)
  found, _ = label_kinds.SeveralLabels(list("abc")).score(logits, truth)
  assert found["loss"] == pytest.approx(wanted.mean(), rel=1e-5)


def documents(number, seed):
  """Texts of 11 tokens and their labels: which of three characters occur."""
  rng, rows = random.Random(seed), []
  kinds = list(itertools.product([0, 1], repeat=3))
  for i in range(number):
    labels = [c for c, there in zip("甲乙丙", kinds[i % 8]) if there]
    text = labels + [rng.choice("的一是不了在有人")
                     for _ in range(11 - len(labels))]
    rng.shuffle(text)
    rows.append(("".join(text), labels))
  return rows


@pytest.mark.slow
@pytest.mark.parametrize("as_json, way, length", [
    (False, "one", ["--max_seq_length=13"]),
    (True, "each", ["--max_seq_length=9", "--long_text=windows",
                    "--max_windows=2", "--num_train_epochs=100"])])
def test_a_small_model_learns_all_labels(as_json, way, length, tmp_path):
  (tmp_path / "small.json").write_text(json.dumps(dict(
      scripting.SIZES, hidden_size=32, intermediate_size=64,
      initializer_range=0.1)))
  rows = {"train": documents(400, 1), "dev": documents(80, 2),
          "test": documents(80, 3)}
  for name, found in rows.items():
    lines = [json.dumps({"text_a": text, "label": labels})
             for text, labels in found] if as_json else ["text_a\tlabel"] + [
                 "%s\t%s" % (text, "|".join(labels)) for text, labels in found]
    (tmp_path / (name + (".jsonl" if as_json else ".tsv"))).write_text(
        "\n".join(lines) + "\n", encoding="utf-8")
  args = ["run_classifier.py", "--data_dir=%s" % tmp_path, "--do_predict",
          "--task_name=" + ("jsonl" if as_json else "tsv")]
  _, log = succeed(
      *args, "--do_train", "--do_eval", "--multi_label", "--thresholds=" + way,
      "--num_train_epochs=40", *length, "--learning_rate=2e-3",
      "--save_checkpoints_steps=1000", VOCAB, "--output_dir=%s" % (
          tmp_path / "out"), "--bert_config_file=%s" % (
              tmp_path / "small.json"))
  assert "labels: 丙 200, 乙 200, 甲 200" in log
  best = tmp_path / "out" / "best"
  assert results(best)["eval_micro_f1"] > 0.98
  thresholds = json.loads((best / "thresholds.json").read_text())
  assert set(thresholds) == set("甲乙丙")
  assert (len(set(thresholds.values())) == 1) == (way == "one")
  tested = results(tmp_path / "out", "test_results.txt")
  assert tested["eval_exact"] > 0.9
  header, *lines = [line.split("\t") for line in (
      tmp_path / "out" / "test_results.tsv").read_text(
          encoding="utf-8").splitlines()]
  assert header == ["label", "丙", "乙", "甲", "text_a"]
  folders = {"tensorflow": best}
  try:
    import onnxruntime  # noqa: F401
  except ImportError:
    pass
  else:
    folders["onnx"] = tmp_path / "onnx"
    call_main(export_model, "--onnx", "--init_checkpoint=%s" % best,
              "--output_dir=%s" % folders["onnx"])
  for engine, folder in folders.items():
    found = load(str(folder), engine).predict(
        [text for text, _ in rows["test"]])
    assert ["|".join(x.labels) for x in found] == [cells[0] for cells in lines]
    for answer, cells in zip(found, lines):
      assert {x.text: x.probability for x in answer.candidates} == (
          pytest.approx(dict(zip(header[1:4], map(float, cells[1:4]))),
                        abs=1e-5))
  # The folder says that there are several labels, and the thresholds.
  before = (tmp_path / "out" / "test_results.tsv").read_text()
  succeed(*args, "--init_checkpoint=%s" % best,
          "--output_dir=%s" % (tmp_path / "again"))
  assert (tmp_path / "again" / "test_results.tsv").read_text() == before


@pytest.mark.slow
def test_what_does_not_go_together(tmp_path):
  for name in ("train", "dev"):
    (tmp_path / (name + ".tsv")).write_text("text_a\tlabel\n甲\ta|b\n乙\t\n")
  args = ["run_classifier.py", "--task_name=tsv", "--data_dir=%s" % tmp_path,
          "--do_train", "--output_dir=%s" % (tmp_path / "out"), VOCAB,
          "--multi_label", "--bert_config_file=%s" % (
              ROOT / "albert_config" / "albert_config_tiny.json")]
  fail("--multi_label does not go with numbers", *args, "--regression")
  fail("--class_weights does not go with --multi_label", *args,
       "--class_weights=balanced")
  fail("--metric_for_best=accuracy does not go with", *args, "--do_eval",
       "--metric_for_best=accuracy")
  fail("train.tsv:2: unknown label 'b'; known are a, c", *args,
       "--labels=a,c")
