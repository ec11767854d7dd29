"""Sentence vectors from training to all that is made of them."""

import json

import numpy as np
import pytest
import scripting
from scripting import VOCAB, fail, results, succeed

from albert.predict import load
from albert.predict.similarity import VectorSim

pytestmark = [pytest.mark.slow, pytest.mark.once]

RNG = np.random.RandomState(0)
CHARACTERS = list("天地人你我他春夏秋冬东南西北")


def made_pairs(count):
  """Pairs of four characters; the score is how many of them are the same."""
  for i in range(count):
    a = RNG.choice(CHARACTERS, 4, replace=False)
    b = a.copy()
    others = [c for c in CHARACTERS if c not in a]
    b[i % 4:] = RNG.choice(others, len(b[i % 4:]), replace=False)
    yield "".join(a), "".join(b), i % 4


PAIRS = list(made_pairs(40))


@pytest.fixture(scope="module")
def work(tmp_path_factory):
  folder = tmp_path_factory.mktemp("vectors")
  (folder / "small.json").write_text(json.dumps(scripting.SIZES))
  write(folder / "scores", ["score"] + [str(row[2]) for row in PAIRS])
  write(folder / "labels", ["label"] + [str(int(row[2] > 2)) for row in PAIRS])
  write(folder / "negatives", ["negative"] + [row[1][::-1] for row in PAIRS])
  return folder


def write(folder, column):
  folder.mkdir()
  lines = ["\t".join(row) for row in zip(
      ["text_a"] + [row[0] for row in PAIRS],
      ["text_b"] + [row[1] for row in PAIRS], column)]
  for split in ("train", "dev", "test"):
    (folder / (split + ".tsv")).write_text(
        "\n".join(lines) + "\n", encoding="utf-8")


def train(work, data, output, *args):
  return ["run_sentence_vectors.py", "--data_dir=%s" % (work / data),
          "--bert_config_file=%s" % (work / "small.json"), VOCAB,
          "--output_dir=%s" % (work / output), "--train_batch_size=8",
          "--max_seq_length=16", "--do_train", *args]


@pytest.fixture(scope="module")
def trained(work):
  _, log = succeed(*train(
      work, "scores", "trained", "--loss=cosent", "--do_eval", "--do_predict",
      "--num_train_epochs=12", "--learning_rate=0.003", "--pooling=cls",
      "--layer=1"))
  return work / "trained" / "best", log


def ranks(x):
  return np.array([np.mean([np.sum(x < value), np.sum(x <= value) - 1])
                   for value in x])


def test_cosines_follow_scores(trained):
  best, log = trained
  assert "cosent: each pair is compared with those of the same 8" in log
  lines = (best.parent / "test_results.tsv").read_text("utf-8").splitlines()
  assert lines[0].split("\t") == ["score", "text_a", "text_b"]
  cosines = np.array([float(line.split("\t")[0]) for line in lines[1:]])
  scores = np.array([row[2] for row in PAIRS])
  spearman = np.corrcoef(ranks(scores), ranks(cosines))[0, 1]
  assert spearman > 0.8
  found = results(best)
  assert set(found) == {"eval_spearman", "eval_pearson", "global_step"}
  assert found["eval_spearman"] == pytest.approx(spearman, abs=1e-4)
  assert json.loads((best / "task.json").read_text())["head"] == (
      "sentence_vector")


def test_what_is_made_of_it(work, trained, tmp_path):
  best, _ = trained
  pairs = [row[:2] for row in PAIRS]
  expected = VectorSim(str(best)).predict_sentences(pairs)
  lines = (best.parent / "test_results.tsv").read_text("utf-8").splitlines()
  np.testing.assert_allclose(
      [float(line.split("\t")[0]) for line in lines[1:]], expected, atol=2e-6)
  # Both read as much as the model was trained with, not more.
  cut = [("天地" * 9, "地人" * 9), (pairs[0][0], "天地" * 7 + "东南西北")]
  np.testing.assert_allclose(
      [result.score for result in load(str(best)).predict(cut)],
      VectorSim(str(best)).predict_sentences(cut), atol=1e-5)
  out, _ = succeed("similarity.py", "--model_dir=%s" % best, *pairs[3])
  assert out == "%.4f\t%s\t%s\n" % (expected[3], *pairs[3])
  # The first layer's [CLS], as it was trained, is what all take.
  texts = tmp_path / "texts.txt"
  texts.write_text("\n".join(row[1] for row in PAIRS), encoding="utf-8")
  vectors = []
  for args in [], ["--pooling=cls", "--layer=1"]:
    succeed("extract_features.py", "--init_checkpoint=%s" % best,
            "--input_file=%s" % texts, "--output_file=%s" % (
                tmp_path / "vectors.npy"), *args)
    vectors.append(np.load(tmp_path / "vectors.npy"))
  np.testing.assert_array_equal(*vectors)
  query = PAIRS[0][0]
  out, _ = succeed("similarity.py", "--search", "--corpus_file=%s" % texts,
                   "--model_dir=%s" % best, "--top_k=1", query)
  scores = VectorSim(str(best)).compare([query] + [row[1] for row in PAIRS])[0]
  assert float(out.split("\t")[1]) == pytest.approx(scores[1:].max(), abs=1e-4)
  succeed("export_model.py", "--onnx", "--signature=sentence_vector",
          "--init_checkpoint=%s" % best, "--output_dir=%s" % (
              tmp_path / "onnx"))
  onnx = VectorSim(str(tmp_path / "onnx"), engine="onnx")
  np.testing.assert_allclose(onnx.predict_sentences(pairs), expected, atol=1e-5)
  fail("vectors of layer 1 cannot be converted", "convert_to_pytorch.py",
       "--init_checkpoint=%s" % best, "--output_dir=%s" % (tmp_path / "torch"))


def test_other_losses(work):
  test = work / "labels" / "test.tsv"
  flipped = test.read_text("utf-8").translate({ord("0"): "1", ord("1"): "0"})
  test.write_text(flipped, "utf-8")
  _, log = succeed(*train(
      work, "labels", "in_batch", "--loss=in_batch", "--do_eval",
      "--do_predict", "--num_train_epochs=3",
      "--gradient_accumulation_steps=2"))
  assert "10 of 40 pairs are alike: with a score of 1 or more" in log
  assert ("each pair is compared with those of the same 4, not of the whole "
          "batch of 8") in log
  dev = results(work / "in_batch" / "best")
  assert dev["eval_auc"] > 0.5
  # The threshold is chosen on dev; on test, each label is the other one.
  test = results(work / "in_batch", "test_results.txt")
  assert test["eval_threshold"] == dev["eval_threshold"]
  assert test["eval_accuracy"] == pytest.approx(1 - dev["eval_accuracy"])
  succeed("run_sentence_vectors.py", "--data_dir=%s" % (work / "labels"),
          "--init_checkpoint=%s" % (work / "in_batch" / "best"),
          "--do_predict", "--output_dir=%s" % (work / "elsewhere"))
  assert results(work / "elsewhere", "test_results.txt") == test
  _, log = succeed(*train(work, "negatives", "negatives", "--loss=in_batch",
                          "--num_train_epochs=1"))
  assert "40 of 40 pairs are alike" in log
  _, log = succeed(*train(work, "scores", "simcse", "--loss=simcse",
                          "--num_train_epochs=1"))
  texts = {text for row in PAIRS for text in row[:2]}
  assert "train: %d examples" % len(texts) in log
  config = json.loads((work / "simcse" / "config.json").read_text())
  assert config["hidden_dropout_prob"] == 0.1


def test_bad_input(work, tmp_path):
  def refuse(message, data, *args):
    fail(message, *train(work, data, "refused", *args))

  for name, lines, message in (
      ("empty", ["text_a\ttext_b\tnegative", "天\t地\t "],
       "train.tsv:2: a text is empty"),
      ("number", ["text_a\ttext_b\tscore", "天\t地\thigh"],
       "train.tsv:2: the label 'high' is not a number"),
      ("single", ["text_a\tlabel", "天\t1"],
       "train.tsv:2: there is no second text")):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "train.tsv").write_text("\n".join(lines), encoding="utf-8")
    refuse(message, folder, "--loss=in_batch" if name == "empty" else
           "--loss=cosent")
  refuse("one example at a time has nothing to be compared with", "scores",
         "--train_batch_size=1")
  refuse("--layer=3: the model has layers 1 to 2", "scores", "--layer=3")
  refuse("--metric_for_best=auc needs labels 0 and 1", "scores", "--do_eval",
         "--metric_for_best=auc")
  refuse("--loss=simcse needs --dropout", "scores", "--loss=simcse",
         "--dropout=0")
  refuse("no pair has a score of at least 9", "scores", "--loss=in_batch",
         "--positive_score=9")
  one = tmp_path / "one.txt"
  one.write_text("天\n", encoding="utf-8")
  refuse("one.txt: fewer than two texts", "scores", "--loss=simcse",
         "--texts_file=%s" % one)
