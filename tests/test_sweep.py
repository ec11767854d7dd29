"""Several runs of one fine-tuning, against single runs."""

import csv
import json
import os
import statistics
import subprocess

import pytest
import scripting
from scripting import ROOT, VOCAB, command, fail, results, succeed

from similarity import BertSim

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def work(tmp_path_factory):
  folder = tmp_path_factory.mktemp("sweep")
  (folder / "small.json").write_text(json.dumps(dict(
      scripting.SIZES, hidden_dropout_prob=0.1)))
  return folder


def classify(work, output_dir, *args):
  return ["run_classifier.py", "--task_name=lcqmc", VOCAB,
          "--data_dir=%s" % (ROOT / "data" / "pairs"),
          "--bert_config_file=%s" % (work / "small.json"),
          "--output_dir=file://%s" % (work / output_dir), "--max_seq_length=32",
          "--train_batch_size=8", "--max_train_examples=64",
          "--save_checkpoints_steps=4", "--do_train", "--do_eval", *args]


def table(folder):
  """The rows of `runs.tsv`: (rate, seed) -> dict."""
  with open(str(folder / "runs.tsv")) as reader:
    return {(row.pop("learning_rate"), row.pop("seed")): row
            for row in csv.DictReader(reader, delimiter="\t")}


def numbers(row, of):
  """What a row says, as the results `of` a run have it."""
  return {name: float(row[name]) for name in of if name in row}


@pytest.fixture(scope="module")
def swept(work):
  succeed(*classify(work, "swept", "--num_train_epochs=1", "--do_predict",
                    "--seeds=7,3", "--learning_rates=0.0001,0.01"))
  return work / "swept"


def test_runs_are_those_of_single_commands(work, swept):
  succeed(*classify(work, "single", "--num_train_epochs=1", "--do_predict",
                    "--random_seed=3", "--learning_rate=0.01"))
  found = results(work / "single" / "best")
  assert results(swept / "rate_0.01_seed_3" / "best") == found
  rows = table(swept)
  assert list(rows) == [(rate, seed) for rate in ("0.0001", "0.01")
                        for seed in ("7", "3", "mean", "deviation")]
  row = rows["0.01", "3"]
  assert set(row) == set(found) - {"loss"}
  assert numbers(row, found) == {name: found[name] for name in row}
  for rate in ("0.0001", "0.01"):
    for name in set(row) - {"global_step"}:
      pair = [float(rows[rate, seed][name]) for seed in ("7", "3")]
      assert pair[0] != pair[1] or name != "eval_loss"
      assert float(rows[rate, "mean"][name]) == pytest.approx(
          statistics.mean(pair))
      assert float(rows[rate, "deviation"][name]) == pytest.approx(
          statistics.stdev(pair))


def test_best_is_the_best_seed_of_the_best_rate(work, swept):
  rows = table(swept)
  rate = max(("0.0001", "0.01"), key=lambda rate: float(
      rows[rate, "mean"]["eval_accuracy"]))
  seed = max(("7", "3"), key=lambda seed: float(
      rows[rate, seed]["eval_accuracy"]))
  run = swept / ("rate_%s_seed_%s" % (rate, seed))
  for name in ("eval_results.txt", "eval_report.txt", "task.json", "vocab.txt",
               "config.json"):
    assert (swept / "best" / name).read_bytes() == (
        run / "best" / name).read_bytes()
  assert not list(swept.glob("rate*/test_results.tsv"))
  predicted = [[float(x) for x in line.split("\t")] for line in (
      swept / "test_results.tsv").read_text().splitlines()]
  pairs = [line.split("\t")[:2] for line in (
      ROOT / "data" / "pairs" / "test.txt").read_text(
          encoding="utf-8").splitlines()]
  assert BertSim(str(swept / "best")).predict_sentences(pairs) == (
      pytest.approx([row[1] for row in predicted], abs=1e-6))
  # Later, with the checkpoint that all began from or without one.
  (swept / "test_results.tsv").unlink()
  args = classify(work, "swept", "--nodo_train", "--do_predict")
  succeed(*args)
  assert [[float(x) for x in line.split("\t")] for line in (
      swept / "test_results.tsv").read_text().splitlines()] == predicted
  found = results(swept)
  for name, value in results(swept / "best").items():
    assert found[name] == pytest.approx(value, abs=1e-6)
  _, log = succeed(*args, "--init_checkpoint=%s" % (
      swept / "rate_0.0001_seed_7"))
  assert "going on" not in log and results(swept) == found


def test_killed_and_started_again(work):
  """One run is finished, one has a checkpoint, one has not begun."""
  args = classify(work, "killed", "--num_train_epochs=5", "--num_seeds=3")
  process = subprocess.Popen(
      command(*args), stderr=subprocess.PIPE,
      env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2"))
  log = ""
  for line in process.stderr:
    log += line.decode()
    if "run 2 of 3" in log and "evaluation at step 8" in log.split(
        "run 2 of 3")[1]:
      break
  process.kill()
  process.communicate()
  assert list(table(work / "killed"))[0] == ("5e-05", "12345")
  finished = work / "killed" / "rate_5e-05_seed_12345"
  before = {path.name: path.stat().st_mtime_ns for path in finished.iterdir()
            if path.name.startswith(("model.ckpt", "train", "eval_results"))}
  _, log = succeed(*args)
  parts = log.split("run ")
  assert "already at step 40 of 40, nothing to train" in parts[1]
  assert "going on from step " in parts[2] and "step 40/40" in parts[2]
  assert "going on" not in parts[3] and "step 40/40" in parts[3]
  assert {name: (finished / name).stat().st_mtime_ns
          for name in before} == before
  rows = table(work / "killed")
  assert [seed for _, seed in rows] == ["12345", "12346", "12347", "mean",
                                        "deviation"]
  # More seeds: those that are there count.
  _, log = succeed(*args, "--num_seeds=1")
  assert log.count("nothing to train") == 1
  assert table(work / "killed")["5e-05", "deviation"]["eval_loss"] == "0.0"


def test_what_makes_no_sense(work):
  for args, message in (
      (["--nodo_eval", "--num_seeds=2"], "need --do_train and --do_eval"),
      (["--seeds=1", "--num_seeds=2"], "give --num_seeds or --seeds, not both"),
      (["--learning_rate=1", "--learning_rates=1,2"],
       "give --learning_rate or --learning_rates, not both"),
      (["--seeds=1,x"], "--seeds: invalid literal .* 'x'"),
      (["--learning_rates=1e-4,fast"], "--learning_rates: could not convert")):
    fail(message, *classify(work, "none", *args))
  assert not (work / "none").exists()
  succeed(*classify(work, "plain", "--num_train_epochs=0.2"))
  fail("plain has the checkpoints of a single run: choose a different",
       *classify(work, "plain", "--num_seeds=2"))
