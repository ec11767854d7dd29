"""Two Horovod processes against one with twice the batch."""

import json
import os
import shutil
import subprocess
import sys
import time
import types

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from scripting import ROOT, quick_python

from albert.files import records
from albert.train import distribution

pytestmark = [pytest.mark.slow, pytest.mark.once]

# Not horovod.tensorflow: it and onnx cannot be in one process of TF 1.15.
pytest.importorskip("horovod")
psutil = pytest.importorskip("psutil")

SPECS = records.pretraining_specs(16, 4)
SIZES = {"vocab_size": 50, "hidden_size": 24, "embedding_size": 8,
         "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 40, "hidden_act": "gelu",
         "max_position_embeddings": 16, "initializer_range": 0.2}


@pytest.fixture(scope="module")
def work(tmp_path_factory):
  """Records, a configuration, and weights to start from."""
  folder = tmp_path_factory.mktemp("horovod")
  (folder / "config.json").write_text(json.dumps(SIZES))
  rng = np.random.RandomState(0)

  def record(number):
    masked = 1 + number % 4  # so that ranks have unequal numbers of them
    return records.serialize({
        "input_ids": rng.randint(50, size=16), "input_mask": np.ones(16, int),
        "segment_ids": rng.randint(2, size=16),
        "masked_lm_positions": rng.randint(16, size=4),
        "masked_lm_ids": rng.randint(50, size=4),
        "masked_lm_weights": (np.arange(4) < masked).astype(np.float32),
        "next_sentence_labels": [rng.randint(2)]}, SPECS)

  records.write_records(
      str(folder / "train.tfrecord"), (record(number) for number in range(64)))
  finish(start(folder, "weights", 1, 8, "--num_train_steps=1"))
  return folder


def start(work, name, ranks, batch_size, *args, python=None):
  """Starts a training without shuffling; `batch_size` is for each rank."""
  command = [] if ranks == 1 else [
      os.path.join(os.path.dirname(sys.executable), "horovodrun"),
      "-np", str(ranks), "-H", "localhost:%d" % ranks]
  command += [
      python or quick_python(), str(ROOT / "run_pretraining.py"), "--do_train",
      "--bert_config_file=%s" % (work / "config.json"),
      "--input_file=%s" % (work / "train.tfrecord"),
      "--output_dir=%s" % (work / name), "--train_batch_size=%d" % batch_size,
      "--max_seq_length=16", "--max_predictions_per_seq=4", "--log_steps=1",
      "--shuffle_buffer=1", "--num_warmup_steps=2", "--learning_rate=0.02"]
  command += ["--use_horovod"] * (ranks > 1) + list(args)
  return subprocess.Popen(
      command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
      env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2"))


def finish(process):
  log = process.communicate(timeout=300)[0].decode()
  assert process.returncode == 0, log
  return log


def losses(folder):
  """The losses of all steps, from the summaries."""
  found = {}
  for path in folder.glob("events*"):
    for event in tf.train.summary_iterator(str(path)):
      for value in event.summary.value:
        if value.tag == "loss":
          found[event.step] = value.simple_value
  return [found[step] for step in sorted(found)]


def weights(folder):
  path = tf.train.latest_checkpoint(str(folder))
  return {name: tf.train.load_variable(path, name)
          for name, _ in tf.train.list_variables(path)}


@pytest.mark.parametrize("optimizer, slices", [("lamb", 1), ("lamb", 2),
                                               ("adamw", 1)])
def test_two_ranks_make_the_steps_of_one_with_twice_the_batch(
    work, optimizer, slices):
  args = ["--num_train_steps=6", "--optimizer=%s" % optimizer,
          "--init_checkpoint=%s" % (work / "weights")]
  name = "%s-%d" % (optimizer, slices)
  one = start(work, name + "-one", 1, 16, *args)
  two = start(work, name + "-two", 2, 8, *args, "--save_checkpoints_steps=3",
              "--gradient_accumulation_steps=%d" % slices)
  finish(one)
  log = finish(two)
  expected = losses(work / (name + "-one"))
  assert len(expected) == 6
  np.testing.assert_allclose(losses(work / (name + "-two")), expected,
                             rtol=1e-5)
  found = weights(work / (name + "-two"))
  for variable, value in weights(work / (name + "-one")).items():
    # The gradient of the key bias is zero: what moves it, where other biases
    # move by 0.2, is rounding error that the optimizer scales up.
    np.testing.assert_allclose(
        found[variable], value, rtol=1e-5, err_msg=variable,
        atol=1e-4 if "key/bias" in variable else 1e-5)
  assert found["global_step"] == 6
  assert log.count("step 6/6") == 1  # rank 0 alone logs


def test_rank_0_evaluates_and_stops_all(work):
  shutil.copy(str(work / "train.tfrecord"), str(work / "heldout.tfrecord"))
  log = finish(start(
      work, "stopped", 2, 8, "--num_train_steps=400", "--learning_rate=1e-30",
      "--eval_input_file=%s" % (work / "heldout.tfrecord"),
      "--save_checkpoints_steps=5", "--early_stop_evals=2"))
  assert "stopping early" in log
  assert weights(work / "stopped")["global_step"] == 15
  history = (work / "stopped" / "eval_history.tsv").read_text()
  assert [line.split("\t")[0] for line in history.splitlines()] == [
      "global_step", "5", "10", "15"]


def test_all_stop_that_resumed_between_two_evaluations(work):
  shutil.copy(str(work / "train.tfrecord"), str(work / "heldout.tfrecord"))
  for args in (["--num_train_steps=7"],
               ["--num_train_steps=400", "--early_stop_evals=4"]):
    finish(start(
        work, "resumed", 2, 8, *args, "--learning_rate=1e-30",
        "--eval_input_file=%s" % (work / "heldout.tfrecord"),
        "--save_checkpoints_steps=5"))
  history = (work / "resumed" / "eval_history.tsv").read_text()
  assert [line.split("\t")[0] for line in history.splitlines()] == [
      "global_step", "5", "7", "12", "17", "22"]


@pytest.mark.parametrize("visible, own", [
    (None, "1"), ("4,6", "6"), ("GPU-a,GPU-b", "GPU-b"), ("5", "5"), ("", "")])
def test_a_rank_has_one_gpu(visible, own, monkeypatch):
  """Whatever session it opens first; one that was given to it stays."""
  monkeypatch.setattr(distribution, "_horovod", lambda: types.SimpleNamespace(
      rank=lambda: 3, size=lambda: 4, local_rank=lambda: 1))
  monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible or "")
  if visible is None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
  for _ in range(2):
    workers = distribution.get_workers(use_horovod=True)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == own
  assert workers[:3] == (3, 4, 1)


@pytest.mark.parametrize("victim", ["0", "1"])
def test_killing_one_ends_the_other(work, victim):
  process = start(work, "killed" + victim, 2, 8, "--num_train_steps=1000000",
                  "--save_checkpoints_steps=100000", python=sys.executable)
  try:
    for line in process.stdout:
      if b"step 10/" in line:
        break
    ranks = {child.environ().get("HOROVOD_RANK"): child
             for child in psutil.Process(process.pid).children(recursive=True)
             if child.cmdline()[0] == sys.executable}
    ranks[victim].kill()
    killed = time.time()
    log = process.communicate(timeout=60)[0].decode()
    assert time.time() - killed < 60
    assert process.returncode != 0
    assert not ranks["1" if victim == "0" else "0"].is_running()
    assert "Process name: %s\nExit code: 137" % victim in log
  finally:
    if process.poll() is None:
      for child in psutil.Process(process.pid).children(recursive=True):
        child.kill()
      process.kill()


def fine_tune(work, script, output, *args):
  """Runs a fine-tuning script as two processes; returns their log."""
  (work / "small.json").write_text(json.dumps(dict(
      SIZES, vocab_size=21128, max_position_embeddings=512)))
  return finish(subprocess.Popen(
      [os.path.join(os.path.dirname(sys.executable), "horovodrun"), "-np", "2",
       "-H", "localhost:2", quick_python(), str(ROOT / script),
       "--bert_config_file=small.json", "--output_dir=%s" % output,
       "--vocab_file=%s" % (ROOT / "albert_config" / "vocab.txt"),
       "--train_batch_size=8", "--do_train", "--do_eval", "--use_horovod",
       *args],
      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=str(work),
      env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2")))


def test_two_ranks_run_the_same_seeds(work):
  args = ["--task_name=lcqmc", "--data_dir=%s" % (ROOT / "tests" / "pairs"),
          "--max_train_examples=64", "--num_train_epochs=1",
          "--adversarial=fgm"]
  sweep = work / "sweep"
  fine_tune(work, "run_classifier.py", sweep, "--num_seeds=2", *args)
  single = work / "single"
  fine_tune(work, "run_classifier.py", single, "--random_seed=12346", *args)
  assert (sweep / "rate_5e-05_seed_12346" / "best" / "eval_results.txt"
         ).read_text() == (single / "best" / "eval_results.txt").read_text()
  assert [line.split("\t")[1] for line in (
      sweep / "runs.tsv").read_text().splitlines()] == [
          "seed", "12345", "12346", "mean", "deviation"]
  log = fine_tune(work, "run_classifier.py", sweep, "--num_seeds=2", *args)
  assert log.count("nothing to train") == 2
  assert weights(sweep / "best")["global_step"] == 4


@pytest.mark.parametrize("script, args, test_results", [
    ("run_classifier.py", ["--task_name=lcqmc", "--data_dir=%s" % (
        ROOT / "tests" / "pairs"), "--max_train_examples=64"],
     "test_results.tsv"),
    ("run_squad.py", ["--task_name=cmrc2018", "--train_file=squad.json",
                      "--dev_file=squad.json", "--predict_file=squad.json"],
     "predictions.json"),
    ("run_race.py", ["--task_name=c3", "--data_dir=."], "c311_predict.json"),
    ("run_ner.py", ["--task_name=file", "--data_dir=entities", "--crf"],
     "file_predict.json")])
def test_fine_tuning_by_two_ranks(script, args, test_results, work):
  """Steps are counted over both; rank 0 evaluates, predicts and writes."""
  paragraphs = [{"context": "甲在%d楼。" % i, "qas": [{
      "id": str(i), "question": "在哪里？",
      "answers": [{"text": "%d楼" % i, "answer_start": 2}]}]}
                for i in range(64)]
  (work / "squad.json").write_text(
      json.dumps({"data": [{"paragraphs": paragraphs}]}))
  for split in ("train", "dev", "test"):
    (work / "entities").mkdir(exist_ok=True)
    (work / "entities" / (split + ".json")).write_text("".join(json.dumps({
        "text": "甲在%d楼。" % i, "label": {"floor": {"%d楼" % i: [
            [2, 2 + len(str(i))]]}}}) + "\n" for i in range(64)))
    (work / ("d-%s.json" % split)).write_text(json.dumps([
        [["甲在%d楼。" % i], [{"question": "在哪里？", "answer": "%d楼" % i,
                             "choice": ["%d楼" % i, "外面"]}], str(i)]
        for i in range(64)]))
  output = work / script[:-3]
  log = fine_tune(work, script, output, "--num_train_epochs=2", "--do_predict",
                  "--save_checkpoints_steps=4", *args)
  assert "8 steps of 16 examples" in log
  assert weights(output)["global_step"] == 8
  history = (output / "eval_history.tsv").read_text()
  assert [line.split("\t")[0] for line in history.splitlines()] == [
      "global_step", "4", "8"]
  predicted = (output / test_results).read_text()
  has_header = test_results.endswith(".tsv")
  assert len(json.loads(predicted) if test_results == "predictions.json" else
             predicted.splitlines()[has_header:]) == 64
