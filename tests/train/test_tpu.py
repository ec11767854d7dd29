"""Trainings on emulated TPU cores against those of one device."""

import json
import re
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from scripting import ROOT, SIZES, VOCAB, succeed

from albert.files import records

pytestmark = [pytest.mark.slow, pytest.mark.long]

# All of them are in each batch, so it does not matter which host reads which.
COUNT = 16
SEQ = 32
SHIFTS = {
    "run_classifier.py": "key/bias", "run_ner.py": "key/bias",
    "run_squad.py": "key/bias|start_logits/.*bias|end_logits/.*(beta|_1/bias)",
    "run_race.py": "key/bias|output_bias"}
TOPOLOGIES = [(1, 2), (2, 1)]  # hosts, cores of each


@pytest.fixture
def folder(tmp_path):
  """A folder with a configuration and 16 examples of each task."""
  folder = tmp_path
  (folder / "small.json").write_text(json.dumps(SIZES))
  rng = np.random.RandomState(0)
  records.write_records(str(folder / "a.tfrecord"), (records.serialize({
      "input_ids": rng.randint(99, 999, size=SEQ),
      "input_mask": np.ones(SEQ, int), "segment_ids": np.zeros(SEQ, int),
      "masked_lm_positions": np.arange(4), "masked_lm_ids": np.arange(4) + i,
      # Replicas have unequal numbers of masked tokens.
      "masked_lm_weights": (np.arange(4) <= i % 4).astype(np.float32),
      "next_sentence_labels": [i % 2]}, records.pretraining_specs(SEQ, 4))
                                                     for i in range(COUNT)))
  (folder / "heldout.tfrecord").write_bytes(
      (folder / "a.tfrecord").read_bytes())
  floors = ["甲在%d楼。" % i for i in range(COUNT)]
  (folder / "squad.json").write_text(json.dumps({"data": [{"paragraphs": [
      {"context": text, "qas": [{
          "id": str(i), "question": "在哪里？",
          "answers": [{"text": "%d楼" % i, "answer_start": 2}]}]}
      for i, text in enumerate(floors)]}]}))
  for task in ("pairs", "entities", "c3"):
    (folder / task).mkdir()
  for split in ("train", "dev", "test"):
    (folder / "entities" / (split + ".json")).write_text("".join(json.dumps({
        "text": text, "label": {"floor": {"%d楼" % i: [
            [2, 2 + len(str(i))]]}}}) + "\n" for i, text in enumerate(floors)))
    (folder / "pairs" / (split + ".txt")).write_text("".join(
        "%s\t甲在楼里。\t%d\n" % (text, i % 2)
        for i, text in enumerate(floors)), encoding="utf-8")
    (folder / "c3" / ("d-%s.json" % split)).write_text(json.dumps([
        [[text], [{"question": "在哪里？", "answer": "%d楼" % i,
                   "choice": ["%d楼" % i, "外面"]}], str(i)]
        for i, text in enumerate(floors)]))
  return folder


def run(folder, name, hosts, cores, script, *args):
  """Trains; returns the folder of the model."""
  succeed("tests/tpu_emulator.py", hosts, cores, ROOT / script, "--do_train",
          "--bert_config_file=%s/small.json" % folder,
          "--output_dir=%s" % (folder / name), "--train_batch_size=%d" % COUNT,
          "--save_checkpoints_steps=2", "--learning_rate=0.01",
          *["--iterations_per_loop=1"] * bool(hosts), *args,
          python=sys.executable)
  return folder / name


def assert_same_training(one, other, shifts="key/bias"):
  """Weights, and what was evaluated at every checkpoint.

  Args:
    one, other: pathlib.Path.
    shifts: str, pattern of variables that shift all scores of a softmax alike:
      their gradient is 0, so that rounding errors move them.
  """
  paths = [tf.train.latest_checkpoint(str(folder)) for folder in (one, other)]
  names = [name for name, _ in tf.train.list_variables(paths[0])]
  assert names == [name for name, _ in tf.train.list_variables(paths[1])]
  for name in names:
    if not re.search(shifts + "|adam", name):
      wanted, found = [tf.train.load_variable(path, name) for path in paths]
      np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5,
                                 err_msg=name)
  wanted, found = [[[float(x) for x in line.split("\t")] for line in (
      folder / "eval_history.tsv").read_text().splitlines()[1:]]
                   for folder in (one, other)]
  assert len(wanted) == 2
  np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.both
def test_pretraining(folder):
  args = ["run_pretraining.py", "--num_train_steps=4", "--num_warmup_steps=1",
          "--input_file=%s/a.tfrecord" % folder, "--eval_batch_size=4",
          "--eval_input_file=%s/heldout.tfrecord" % folder, "--optimizer=lamb",
          "--max_seq_length=%d" % SEQ, "--max_predictions_per_seq=4"]
  one = run(folder, "one", 0, 0, *args)
  for (hosts, cores), slices in zip(TOPOLOGIES, (1, 4)):
    assert_same_training(one, run(
        folder, "%d hosts" % hosts, hosts, cores, *args,
        "--gradient_accumulation_steps=%d" % slices))


@pytest.mark.parametrize("script, predicted, args", [
    ("run_classifier.py", "test_results.tsv", [
        "--task_name=lcqmc", "--data_dir=pairs"]),
    ("run_ner.py", "file_predict.json", [
        "--task_name=file", "--crf", "--data_dir=entities"]),
    ("run_squad.py", "nbest_predictions.json", [
        "--task_name=cmrc2018", "--head=beam"] + [
            "--%s_file=squad.json" % name for name in (
                "train", "dev", "predict")]),
    ("run_race.py", "c311_predict.json", [
        "--task_name=c3", "--data_dir=c3"])])
def test_fine_tuning(script, predicted, args, folder, monkeypatch):
  monkeypatch.chdir(folder)
  args = [script, "--do_eval", "--do_predict", "--num_train_epochs=4", VOCAB,
          "--max_seq_length=%d" % SEQ, "--eval_batch_size=6", *args]
  one = run(folder, "one", 0, 0, *args)
  for hosts, cores in TOPOLOGIES:
    other = run(folder, "%d hosts" % hosts, hosts, cores, *args)
    assert_same_training(one, other, SHIFTS[script])
    wanted, found = [(model / predicted).read_text(encoding="utf-8")
                     for model in (one, other)]
    number = r"\d\.\d+(?:e-\d+)?"
    assert re.sub(number, "", found) == re.sub(number, "", wanted)
    np.testing.assert_allclose(*[[float(x) for x in re.findall(number, text)]
                                 for text in (found, wanted)], atol=1e-4)
