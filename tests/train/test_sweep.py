"""Several runs of one fine-tuning, against single runs."""

import csv
import json
import os
import statistics
import subprocess

import numpy as np
import pytest
import scripting
from given_settings import given_flags, make_settings
from scripting import ROOT, VOCAB, command, fail, results, succeed

from albert.errors import InputError
from albert.files import checkpoints
from albert.train import sweep
from similarity import BertSim

pytestmark = [pytest.mark.slow, pytest.mark.once]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
  folder = tmp_path_factory.mktemp("sweep")
  (folder / "small.json").write_text(json.dumps(dict(
      scripting.SIZES, hidden_dropout_prob=0.1)))
  return folder


def classify(work, output_dir, *args):
  return ["run_classifier.py", "--task_name=lcqmc", VOCAB,
          "--data_dir=%s" % (ROOT / "tests" / "pairs"),
          "--bert_config_file=%s" % (work / "small.json"),
          "--output_dir=file://%s" % (work / output_dir), "--max_seq_length=32",
          "--train_batch_size=8", "--max_train_examples=64",
          "--num_train_epochs=1", "--do_train", "--do_eval", *args]


def read_table(path):
  """The rows of a file with a header, a list of dicts."""
  with open(str(path), encoding="utf-8") as reader:
    return list(map(dict, csv.DictReader(reader, delimiter="\t")))


def table(folder):
  """The rows of `runs.tsv`: (rate, seed) -> dict."""
  return {(row.pop("learning_rate"), row.pop("seed")): row
          for row in read_table(folder / "runs.tsv")}


def numbers(row, of):
  """What a row says, as the results `of` a run have it."""
  return {name: float(row[name]) for name in of if name in row}


@pytest.fixture(scope="module")
def swept(work):
  succeed(*classify(work, "swept", "--do_predict", "--seeds=7,3",
                    "--learning_rates=0.0001,0.01"))
  return work / "swept"


def test_runs_are_those_of_single_commands(work, swept):
  succeed(*classify(work, "single", "--random_seed=3", "--learning_rate=0.01"))
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


def test_one_seed_has_no_deviation():
  run = {"eval_accuracy": 0.5, "global_step": 8}
  assert sweep._table({(rate, 7): run for rate in (0.1, 0.2)}) == [
      ["learning_rate", "seed", "eval_accuracy", "global_step"],
      [0.1, 7, 0.5, 8], [0.2, 7, 0.5, 8]]


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
  predicted = read_table(swept / "test_results.tsv")
  pairs = [line.split("\t")[:2] for line in (
      ROOT / "tests" / "pairs" / "test.txt").read_text(
          encoding="utf-8").splitlines()]
  assert BertSim(str(swept / "best")).predict_sentences(pairs) == (
      pytest.approx([float(row["1"]) for row in predicted], abs=1e-6))
  # Later, with the checkpoint that all began from or without one.
  (swept / "test_results.tsv").unlink()
  args = classify(work, "swept", "--nodo_train", "--do_predict")
  succeed(*args)
  assert read_table(swept / "test_results.tsv") == predicted
  found = results(swept)
  for name, value in results(swept / "best").items():
    assert found[name] == pytest.approx(value, abs=1e-6)
  pretrained = {name: value for name, value in checkpoints.read_weights(
      checkpoints.latest_checkpoint(str(swept / "best"))).items()
                if not name.startswith("output_")}
  (work / "pretrained").mkdir()
  checkpoints.write_checkpoint(str(work / "pretrained"), "model.ckpt",
                               pretrained)
  succeed(*args, "--init_checkpoint=%s" % (work / "pretrained"))
  assert results(swept) == found


def test_killed_and_started_again(work):
  """One run is finished, one has a checkpoint that is not evaluated yet."""
  args = classify(work, "killed", "--save_checkpoints_steps=5",
                  "--num_seeds=2")
  process = subprocess.Popen(
      command(*args), stderr=subprocess.PIPE,
      env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2"))
  log = ""
  while log.count("dev: ") < 4:  # two counts, then each run begins to evaluate
    log += process.stderr.readline().decode()
  process.kill()
  process.communicate()
  assert list(table(work / "killed"))[0] == ("5e-05", "12345")
  finished = work / "killed" / "rate_5e-05_seed_12345"
  before = {path.name: path.stat().st_mtime_ns for path in finished.iterdir()
            if path.name.startswith(("model.ckpt", "train", "eval_results"))}
  _, log = succeed(*args)
  parts = log.split("run ")
  assert "already at step 8 of 8, nothing to train" in parts[1]
  assert "resuming from step 5 " in parts[2] and "step 8/8" in parts[2]
  assert {name: (finished / name).stat().st_mtime_ns
          for name in before} == before
  rows = table(work / "killed")
  assert [seed for _, seed in rows] == ["12345", "12346", "mean", "deviation"]


def test_runs_have_the_same_settings(swept):
  report = (swept / "rate_0.01_seed_3" / "eval_report.txt").read_bytes()
  args = classify(swept.parent, "swept", "--seeds=7,3",
                  "--learning_rates=0.0001,0.01")
  fail("swept has runs with --num_train_epochs=1.0, not 2.0: choose a",
       *args, "--num_train_epochs=2")
  (swept / "eval_report.txt").write_text("of another run")
  succeed(*args)
  assert (swept / "rate_0.01_seed_3" / "eval_report.txt").read_bytes() == report


def plan(folder, **given):
  """Plans what flags ask for, those that are `given` and those of a run."""
  sweep.check_flags(given_flags(**given))
  return sweep.plan(make_settings(**dict(dict(
      do_train=True, do_eval=True, output_dir=str(folder)), **given)))


def test_plan(tmp_path):
  assert plan(tmp_path) == [(5e-5, 12345)]
  assert plan(tmp_path, num_seeds=2, random_seed=3) == [(5e-5, 3), (5e-5, 4)]
  assert plan(tmp_path, seeds=["9", "2", "9"],
              learning_rates=["1e-4", ".0001", ".5"]) == [
      (1e-4, 9), (1e-4, 2), (0.5, 9), (0.5, 2)]


@pytest.mark.parametrize("given, message", [
    (dict(do_eval=False, num_seeds=2), "need --do_train and --do_eval"),
    (dict(seeds=["1"], num_seeds=2), "give --num_seeds or --seeds, not both"),
    (dict(seeds=["1"], random_seed=2), "give --random_seed or --seeds, not"),
    (dict(learning_rate=1.0, learning_rates=["0.5", "1"]),
     "give --learning_rate or --learning_rates, not both"),
    (dict(seeds=["1", "x"]), "--seeds: invalid literal .* 'x'"),
    (dict(learning_rates=["1e-4", "fast"]),
     "--learning_rates: could not convert")])
def test_what_cannot_be_planned(given, message, tmp_path):
  with pytest.raises(InputError, match=message):
    plan(tmp_path, **given)


def test_a_single_run_in_the_folder(tmp_path):
  checkpoints.write_checkpoint(
      str(tmp_path), "model.ckpt-1", {"x": np.zeros([1], np.float32)})
  assert plan(tmp_path, learning_rate=0.5) == [(0.5, 12345)]
  (tmp_path / "several").mkdir()
  (tmp_path / "several" / "runs.json").write_text("{}")
  with pytest.raises(InputError, match="several has several runs: choose"):
    plan(tmp_path / "several")
  with pytest.raises(InputError, match="has the checkpoints of a single run: "
                     "choose a different --output_dir"):
    plan(tmp_path, num_seeds=1)
