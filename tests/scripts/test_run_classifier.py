"""Fine-tuning for classification and regression, on a small model."""

import pathlib
import random
import re
import types

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from reading import table
from refusals import refused
from scripting import ROOT, SIZES, VOCAB, fail, results, succeed
from trained_models import command
from writing import write

import run_classifier
from albert.files import outputs
from albert.model_folder import ModelFolder
from albert.tasks.classification import InputExample
from benchmarks import plot_curves

PAIRS = ROOT / "tests" / "pairs"


@pytest.fixture
def classify(tmp_path):
  """A command for pairs, with URLs as paths."""
  return [
    "run_classifier.py",
    "--task_name=LCQMC",
    "--data_dir=file://%s" % PAIRS,
    VOCAB.replace("=", "=file://"),
    "--do_train",
    "--train_batch_size=8",
    "--num_train_epochs=1",
    "--output_dir=file://%s/out" % tmp_path,
    "--max_seq_length=32",
    "--learning_rate=0.01",
    "--max_train_examples=64",
    "--save_checkpoints_steps=4",
    "--bert_config_file="
    + write(
      tmp_path,
      "small.json",
      dict(SIZES, hidden_dropout_prob=0.1, num_hidden_layers=1),
    ),
  ]


def predicted(folder):
  """Returns the header and the probabilities or scores of the test file."""
  header, *lines = table(folder / "test_results.tsv")
  first, last = header[0] == "label", header.index("text_a")
  return header, np.array([line[first:last] for line in lines], float)


@pytest.mark.slow
def test_fine_tuning(classify, tmp_path):
  _, log = succeed(*classify, "--do_eval", "--do_predict")
  folder, rows = tmp_path / "out", table(PAIRS / "train.txt")
  rows = [rows[i] for i in random.Random(12345).sample(range(len(rows)), 64)]
  assert re.search(
    "train: 64 examples of .*; labels: .*1 %d\\b"
    % sum(label == "1" for _, _, label in rows),
    log,
  )
  # Each character is a token here.
  assert (
    "train: %.1f%% of the examples fill --max_seq_length=32"
    % (100 * np.mean([len(a) + len(b) + 3 >= 32 for a, b, _ in rows]))
    in log
  )
  assert results(folder)["global_step"] == 8
  _, probabilities = predicted(folder)
  np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-6)
  assert table(folder / "test_results.tsv") == [
    ["label", "0", "1", "text_a", "text_b"],
    *(
      [str(row.argmax()), *["%.8f" % p for p in row], *texts[:2]]
      for row, texts in zip(probabilities, table(PAIRS / "test.txt"))
    ),
  ]
  assert {path.name for path in (folder / "best").iterdir()} >= {
    "checkpoint",
    "config.json",
    "task.json",
    "vocab.txt",
    "eval_report.txt",
  }
  (path,) = folder.rglob("events.out.tfevents.*")
  assert path.parent == folder
  history = plot_curves.read_history(str(folder))["accuracy"]
  assert list(history) == [4, 8]
  assert {
    event.step: value.simple_value
    for event in tf.train.summary_iterator(str(path))
    for value in event.summary.value
    if value.tag == "eval/accuracy"
  } == pytest.approx(history)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pairs", "numbers"])
def test_results_are_those_of_the_predictions(name, trained):
  """The dev and test files are the same: so are their scores."""
  model = trained(name)
  found, (header, values) = results(model.best), predicted(model.out)
  if name == "pairs":
    right = values[range(9), np.arange(9) % 2]
    loss, errors = -np.log(right).mean(), 1 - right
    report, lines = [
      (model.best / file).read_text()
      for file in ("eval_report.txt", "eval_results.txt")
    ]
    assert report.split()[9] == "5"  # examples of label 0
    assert "positive_label = 1\n" in lines
    assert (model.out / "test_report.txt").read_text() == report
  else:
    errors = abs(values[:, 0] - 1000 - 500 * (np.arange(9) % 3))
    loss = (errors**2).mean()
    # In the units of the data; the best checkpoint has them in its weights.
    assert ((1000 < values) & (values < 2000)).all()
    units = [
      tf.train.load_variable(str(folder), "output_units")
      for folder in (model.out, model.best)
    ]
    np.testing.assert_allclose(units, [[1500, 1000 / 6**0.5], [0, 1]])
    assert header == ["score", "text_a"]
  assert found["eval_loss"] == pytest.approx(loss, rel=1e-4)
  assert found.pop("global_step")
  assert set(found) == {"loss"} | {
    "eval_" + key
    for key in (
      ["loss", "accuracy", "f1", "macro_f1", "matthews", "calibration_error"]
      if name == "pairs"
      else ["loss", "pearson", "spearman", "mse"]
    )
  }
  header, *rows = table(model.best / "dev_predictions.tsv")
  assert header == ["id", "label", "prediction", "error", "text_a", "text_b"]
  numbers = [int(row[0]) for row in rows]
  assert sorted(numbers) == list(range(9))
  for wanted in (sorted(errors, reverse=True), errors[numbers]):
    np.testing.assert_allclose(
      [float(row[3]) for row in rows], wanted, rtol=1e-4, atol=1e-4
    )
  assert results(model.out, "test_results.txt") == pytest.approx(
    found, rel=1e-5, abs=1e-4
  )


def of_labels(*labels):
  return [InputExample(0, "x", None, label) for label in labels]


def test_the_label_of_f1_is_kept(caplog):
  """Even if the other label is rarer among new examples."""
  caplog.set_level("INFO", "absl")
  texts, labels = types.SimpleNamespace(positive_label=None), ["a", "b"]
  examples = {"dev": of_labels(*"abb")}
  for kept, positive in ((None, "a"), ("b", "b"), ("other", "a")):
    folder = ModelFolder(None, None, "best", positive_label=kept)
    assert (
      run_classifier.choose_positive(texts, folder, labels, examples)
      == positive
    )
    assert caplog.messages[-1].startswith("f1 is for the label " + positive)


def test_records_of_many_labels_name_those_of_the_text():
  examples = of_labels(("7",), ("1", "9"))
  kind = run_classifier.create_kind(
    None,
    None,
    types.SimpleNamespace(is_multi_label=True),
    {"train": examples},
    list(map(str, range(14000))),
  )
  assert [kind.label_ids(target) for target in kind.targets(examples)] == [
    [7, 14000],
    [1, 9],
  ]


def test_a_model_of_other_inputs_or_labels(caplog):
  one = ModelFolder(None, None, "best", pairs=False, labels=["0", "1"])
  refused("0, 1, not 0$", run_classifier.check_labels, one, ["0"], False)
  run_classifier.check_labels(one, ["0", "1", "2"], trains=True)
  assert "has the labels 0, 1, not 0, 1, 2" in caplog.text
  (text,) = of_labels("0")
  run_classifier.report_labels("dev", [text, text], ["0", "2"])
  assert "dev has no example of 1 label(s): 2" in caplog.text
  refused(
    "all 2 training .* label 0: .*nothing",
    run_classifier.check_variety,
    [text, text],
    ["0", "1"],
  )
  run_classifier.check_variety(of_labels(("x", "y"), ("x",)), ["x", "y"])
  assert "all training examples have the label x" in caplog.text
  pair = text._replace(text_b="b")
  assert not run_classifier.check_pairs(one, {"dev": [text]}, False)
  assert run_classifier.check_pairs(one, {"dev": [pair]}, True)
  refused(
    "trained on single texts, not on pairs",
    run_classifier.check_pairs,
    one,
    {"dev": [pair]},
    False,
  )
  refused(
    "dev: 1 of 1 .*second",
    run_classifier.check_pairs,
    one,
    {"train": [pair], "dev": [text]},
    True,
  )


def test_what_is_said_of_labels(caplog):
  run_classifier.warn_of_labels(["a", "b", "a|b", "B"], False)
  assert re.search("'a.b': give --multi_label", caplog.messages[0])
  assert re.search("'B', 'b'", caplog.messages[1])
  labels = ["label-%d" % i for i in range(5000)]
  with caplog.at_level("INFO", "absl"):
    run_classifier.report_labels("train", of_labels(*labels[:4000]), labels)
  assert max(map(len, caplog.messages)) < 500


def test_the_most_frequent_mistakes():
  examples = [
    InputExample(i, "text %d" % i, "b" * (i == 3) or None, None)
    for i in range(6)
  ]
  assert run_classifier.mistakes(
    examples, [0, 1, 1, 0, 1, 1], [0, 0, 1, 1, 0, 1], ["a", "b"]
  ).split("\n")[2:] == ["b\ta\t2\ttext 1", "a\tb\t1\ttext 3\tb", ""]


def test_each_text_is_evaluated_in_one_fold(tmp_path, monkeypatch):
  evaluated = []

  def run(task, settings, *_):
    evaluated.append(task.splits["dev"].examples)
    assert len(task.splits["train"].examples) == 6
    folder = pathlib.Path(settings.run.output_dir) / "best"
    folder.mkdir(parents=True)
    write(
      folder,
      "eval_results.txt",
      "eval_accuracy = 0.%d" % len(evaluated),
      "global_step = 6",
    )

  monkeypatch.setattr(run_classifier.finetuning, "run", run)
  args = command(
    tmp_path,
    "labels",
    "--do_train",
    "--do_eval",
    "--folds=3",
    "--save_checkpoints_steps=1",
  )
  (tmp_path / "dev.tsv").unlink()
  succeed(*args)
  texts = [example.text_a for fold in evaluated for example, _ in fold]
  assert [len(fold) for fold in evaluated] == [3] * 3 and len(set(texts)) == 9
  rows = table(tmp_path / "out" / "folds.tsv")
  assert rows[:4] == [
    ["fold", "eval_accuracy", "global_step"],
    *([str(fold), "0.%d" % (fold + 1), "6"] for fold in range(3)),
  ]
  assert [row[0] for row in rows[4:]] == ["mean", "deviation"]
  assert [float(row[1]) for row in rows[4:]] == pytest.approx([0.2, 0.1])
  fail("--fold=3", *args, "--fold=3")


@pytest.mark.slow
def test_bad_input(classify, trained, tmp_path):
  write(tmp_path, "train.txt", *["a\tb\t1"] * 9)
  for message, *args in (
    ("--metric_for_best=pearson .* 2 labels", "--metric_for_best=pearson"),
    ("--early_stop_evals .*--do_eval", "--early_stop_evals=2"),
    ("--unlabelled_file .*--teacher", "--unlabelled_file=x"),
    ("'lcqcm'.* lcqmc", "--task_name=lcqcm"),
    (
      "vocab.txt .*21128.* 30000",
      "--bert_config_file="
      + write(tmp_path, "other.json", dict(SIZES, vocab_size=30000)),
    ),
    ("all 9 training .* the label 1", "--data_dir=%s" % tmp_path),
    ("--long_text=windows .*pairs", "--long_text=windows"),
    ("has no checkpoint: ", "--nodo_train", "--do_predict"),
    (
      "_starter: .* embedding_size 8, not 128",
      "--bert_config_file=",
      "--init_checkpoint=%s" % (ROOT / "albert_tiny_starter"),
      "--output_dir=%s" % trained("labels").out,
    ),
  ):
    fail(message, *classify, *args)
  assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
  "warn, labels, score, values, said",
  [
    # The mean of 1 and 3 is off by 1.5 and 0.5 on 0.5 and 2.5.
    (
      run_classifier.warn_of_mean,
      [["1", "3"], ["0.5", "2.5", None]],
      "eval_mse",
      [1.2, 1.3],
      "learnt nothing",
    ),
    (
      run_classifier.warn_of_majority,
      ["abbabb"],
      "eval_accuracy",
      [0.7, 0.6],
      "0.6667",
    ),
  ],
)
def test_the_simplest_model_is_beaten(
  warn, labels, score, values, said, tmp_path, caplog
):
  """Otherwise, as for the last value here, a warning is logged."""
  (tmp_path / "best").mkdir()
  for value in values:
    assert not caplog.records
    outputs.write_results(
      str(tmp_path / "best" / "eval_results.txt"),
      {score: value, "global_step": 1},
    )
    warn(str(tmp_path), *(of_labels(*one) for one in labels))
  assert said in caplog.text
