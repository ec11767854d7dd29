"""The scripts, started as a user starts them, on a small model."""

import gzip
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from scripting import ROOT, SIZES, VOCAB, command, fail, results, run, succeed

from albert.files import checkpoints

pytestmark = [pytest.mark.slow, pytest.mark.once]

LENGTHS = ["--max_seq_length=32", "--max_predictions_per_seq=5"]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
  """A folder with configurations and records of the sample text."""
  folder = tmp_path_factory.mktemp("work")
  (folder / "zh.json").write_text(json.dumps(SIZES))
  (folder / "google.json").write_text(json.dumps(
      dict(SIZES, num_hidden_groups=1)))
  (folder / "wide.json").write_text(json.dumps(dict(SIZES, hidden_size=32)))
  (folder / "other_vocab.json").write_text(json.dumps(
      dict(SIZES, vocab_size=30000)))
  for name in ("train", "heldout"):
    succeed("create_pretraining_data.py", VOCAB, *LENGTHS, *[
        "--input_file=%s" % (ROOT / "data" / ("text_%s.txt" % name)),
        "--output_file=%s" % (folder / (name + ".tfrecord")),
        "--dupe_factor=1"])
  return folder


@pytest.mark.parametrize("script", sorted(
    path.name for path in ROOT.glob("*.py")))
def test_a_script_starts_without_optional_packages(script, tmp_path):
  (tmp_path / "start.py").write_text("""
import runpy, sys
for name in ("apache_beam", "horovod", "matplotlib", "onnx", "onnxruntime",
             "psutil", "sklearn", "torch", "transformers"):
  sys.modules[name] = None  # an import of it fails
sys.path.insert(0, sys.argv[1])
runpy.run_path("%s/%s" % tuple(sys.argv[1:]))
""")
  succeed(tmp_path / "start.py", ROOT, script)


def create_data(output_dir, *args):
  return ["create_pretraining_data.py", VOCAB, *LENGTHS,
          "--input_file=%s" % (ROOT / "data" / "text_*.txt"),
          "--output_dir=%s" % output_dir, "--num_output_shards=3",
          "--shard_characters=1500", "--dupe_factor=40", *args]


def content(folder):
  return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def data_of_one_worker(work):
  succeed(*create_data(work / "one", "--num_workers=1"))
  return content(work / "one")


def test_workers_do_not_change_the_records(work, data_of_one_worker):
  assert sorted(data_of_one_worker) == [
      "part-0000%d-of-00003.tfrecord" % i for i in range(3)] + [
          "records.json", "vocab.txt"]
  succeed(*create_data(work / "four", "--num_workers=4"))
  assert content(work / "four") == data_of_one_worker
  sizes = [len(data) for name, data in data_of_one_worker.items()
           if name.startswith("part")]
  assert max(sizes) < 1.1 * min(sizes)


def test_a_killed_run_keeps_its_finished_shards(work, data_of_one_worker):
  folder = work / "two"
  process = subprocess.Popen(
      command(*create_data(folder, "--num_workers=2")),
      stderr=subprocess.DEVNULL, start_new_session=True)
  deadline = time.time() + 120
  while len(list(folder.glob("unfinished-*/*.json"))) < 3:
    assert process.poll() is None and time.time() < deadline
    time.sleep(0.01)
  os.killpg(process.pid, signal.SIGKILL)
  process.wait()
  assert not list(folder.glob("part*"))
  _, log = succeed(*create_data(folder, "--num_workers=2"))
  kept = int(re.search(r"kept (\d+) finished shards", log).group(1))
  assert 3 <= kept
  assert content(folder) == data_of_one_worker


def pretrain(work, output_dir, *args):
  return ["--bert_config_file=%s" % (work / "zh.json"),
          "--input_file=%s" % (work / "train.tfrecord"),
          "--output_dir=%s" % output_dir, *LENGTHS, "--num_warmup_steps=1",
          "--train_batch_size=8", "--learning_rate=0.01", *args]


@pytest.fixture(scope="module")
def pretrained(work):
  folder = work / "pretrained"
  _, log = succeed("run_pretraining.py", *pretrain(
      work, folder, "--do_train", "--num_train_steps=6", "--log_steps=2",
      "--eval_input_file=%s" % (work / "heldout.tfrecord"),
      "--save_checkpoints_steps=3", "--export_dir=%s" % (work / "export")))
  return folder, log


def test_pretraining(work, pretrained):
  folder, log = pretrained
  number = r"[-\d.e]+"
  progress = re.findall(
      r"step (\d)/6 \| last \d: loss {0} \| masked_lm_loss {0} \| "
      r"masked_lm_accuracy {0} \| sentence_order_loss {0} \| "
      r"sentence_order_accuracy {0} \| "
      r"learning_rate {0} \| {0} examples/s \| \d+:\d\d:\d\d left".format(
          number), log)
  assert progress == ["2", "4", "6"]
  found = results(folder)
  assert set(found) == {
      "loss", "global_step", "masked_lm_loss", "masked_lm_accuracy",
      "sentence_order_loss", "sentence_order_accuracy"}
  assert found["global_step"] == 6
  assert found["loss"] == pytest.approx(
      found["masked_lm_loss"] + found["sentence_order_loss"])
  history = (folder / "eval_history.tsv").read_text().splitlines()
  assert [row.split("\t")[0] for row in history] == ["global_step", "3", "6"]
  saved = dict(tf.train.list_variables(str(folder / "best")))
  assert saved["bert/embeddings/word_embeddings/adam_v"] == [21128, 8]
  assert saved["cls/seq_relationship/output_weights"] == [2, 16]
  tags = set()
  for path in folder.glob("events*"):
    for event in tf.train.summary_iterator(str(path)):
      tags.update(value.tag for value in event.summary.value)
  assert {"masked_lm_accuracy", "sentence_order_accuracy",
          "learning_rate"} <= tags
  assert list((work / "export").glob("*/saved_model.pb"))


def test_evaluating_a_checkpoint_as_it_stands(work, pretrained):
  folder, _ = pretrained
  # Records of other tools have no description beside them.
  copy = work / "copy" / "heldout.tfrecord"
  copy.parent.mkdir()
  copy.write_bytes((work / "heldout.tfrecord").read_bytes())
  # The configuration is found next to the checkpoint.
  succeed("run_pretraining.py", "--do_eval", "--init_checkpoint=%s" % folder,
          "--input_file=%s" % copy, *LENGTHS,
          "--output_dir=%s" % (work / "as_it_stands"))
  found, expected = results(work / "as_it_stands"), results(folder)
  assert found.pop("global_step") == 0
  for name, value in found.items():
    assert value == pytest.approx(expected[name], rel=1e-5), name


def test_training_goes_on_after_kills(work):
  """It writes a checkpoint at every step: most kills fall into a write."""
  folder = work / "killed"
  total = 1000
  args = pretrain(work, folder, "--do_train", "--num_train_steps=%d" % total,
                  "--save_checkpoints_steps=1", "--log_steps=1",
                  "--learning_rate=1e-4")
  rng = random.Random(0)
  reached = 0
  for _ in range(int(os.environ.get("ALBERT_TESTS_KILLS", 3))):
    process = subprocess.Popen(
        command("run_pretraining.py", *args), stderr=subprocess.PIPE)
    for line in process.stderr:
      going_on = re.search(rb"resuming from step (\d+)", line)
      if going_on:
        assert int(going_on.group(1)) >= reached
        reached = int(going_on.group(1))
      if b"step %d/" % (reached + 3) in line:
        break
      assert b"ERROR:" not in line, line
    time.sleep(rng.random() / 5)
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
  end = reached + 20
  _, log = succeed("run_pretraining.py", *args[:-4], *[
      "--num_train_steps=%d" % end, "--save_checkpoints_steps=5"])
  start = int(re.search(r"resuming from step (\d+)", log).group(1))
  assert reached <= start < end
  steps = [int(step) for step in re.findall(r"step (\d+)/", log)]
  assert steps[-1] == end
  losses = [float(x) for x in re.findall(r": loss ([\d.]+) ", log)]
  assert losses and all(8 < x < 12 for x in losses)
  assert not [path for path in folder.iterdir() if "temp" in path.name]
  assert checkpoints.start_step(str(folder)) == end
  _, log = succeed("run_pretraining.py", *args[:-4],
                   "--num_train_steps=%d" % end)
  assert "already at step %d" % end in log


def test_pretraining_with_xla_and_half_precision(work):
  folder = work / "xla"
  args = pretrain(work, folder, "--do_train", "--use_xla", "--use_fp16",
                  "--log_steps=1", "--save_checkpoints_steps=2")
  succeed("run_pretraining.py", *args, "--num_train_steps=5")
  _, log = succeed("run_pretraining.py", *args, "--num_train_steps=6")
  assert re.findall(r"step (\d+)/", log) == ["6"]
  assert checkpoints.start_step(str(folder)) == 6
  assert sorted(path.name for path in folder.glob("*.index")) == [
      "model.ckpt-%d.index" % step for step in (0, 2, 4, 5, 6)]


def test_a_loss_that_is_not_finite_ends_training(work):
  folder = work / "diverged"
  args = pretrain(work, folder, "--do_train", "--num_train_steps=50",
                  "--save_checkpoints_steps=1", "--log_steps=1",
                  "--optimizer=adamw", "--weight_decay_rate=1e30")
  status, _, log = run("run_pretraining.py", *args)
  assert status == 1
  found = re.search(r"ERROR: the loss is (nan|inf) at step (\d+); the newest "
                    r"checkpoint with finite weights is (\S+):", log)
  assert found, log
  path = found.group(3)
  assert int(path.rsplit("-", 1)[1]) < int(found.group(2))
  assert "Traceback" not in log
  for name, _ in tf.train.list_variables(path):
    assert np.all(np.isfinite(tf.train.load_variable(path, name))), name


def test_bad_input_to_data_creation(work):
  (work / "blank.txt").write_text("\n \n")
  output = work / "none.tfrecord"
  args = [VOCAB, "--output_file=%s" % output]
  fail("--input_file .*blank.txt: no text", "create_pretraining_data.py",
       "--input_file=%s" % (work / "blank.txt"), *args)
  fail("--input_file: no file matches .*absent", "create_pretraining_data.py",
       "--input_file=%s" % (work / "absent"), *args)
  (work / "cut.txt.gz").write_bytes(gzip.compress(os.urandom(10000))[:-2000])
  fail("cut.txt.gz: damaged, or not a text file", "create_pretraining_data.py",
       "--input_file=%s" % (work / "cut.txt.gz"), *args)
  os.mkfifo(work / "pipe")
  writer = os.open(work / "pipe", os.O_RDWR)
  fail("pipe: not a regular file", "create_pretraining_data.py",
       "--input_file=%s" % (work / "pipe"), *args)
  os.close(writer)
  fail("--do_whole_word_mask=True is --masking=word, but --masking=ngram",
       *create_data(work / "none"), "--do_whole_word_mask", "--masking=ngram")
  (work / "latin.txt").write_bytes(b"\xe9\n")
  fail("user_dict .*latin.txt: .*utf", *create_data(work / "none"),
       "--user_dict=%s" % (work / "latin.txt"))
  assert not list(work.glob("none*.tfrecord"))
  fail("is also an --input_file", "create_pretraining_data.py", VOCAB,
       "--input_file=%s" % (work / "blank.txt"),
       "--output_file=%s" % (work / ".." / work.name / "blank.txt"))
  assert (work / "blank.txt").read_text() == "\n \n"


def test_a_folder_has_the_records_of_one_run(work, data_of_one_worker):
  folder = work / "again"
  args = create_data(folder, "--dupe_factor=1")
  succeed(*args)
  before = content(folder)
  fail("again has the records of another run .part-00000-of-00003.tfrecord",
       *args, "--num_output_shards=2")
  assert content(folder) == before
  succeed(*args, "--random_seed=2")
  after = content(folder)
  assert after.keys() == before.keys() and after != before


def test_bad_input_to_pretraining(work, pretrained):
  train = ["--do_train", "--num_train_steps=6"]

  def expect(message, *args):
    fail(message, "run_pretraining.py", *pretrain(
        work, work / "bad", *train), *args)

  # The later of two equal flags counts.
  expect("made with max_seq_length 32, but this run has 64",
         "--max_seq_length=64")
  expect("made with vocab_size 21128, but this run has 30000",
         "--bert_config_file=%s" % (work / "other_vocab.json"))
  expect("has albert_zh's variable layout",
         "--bert_config_file=%s" % (work / "google.json"),
         "--init_checkpoint=%s" % pretrained[0])
  expect("does not fit the configuration",
         "--bert_config_file=%s" % (work / "wide.json"),
         "--init_checkpoint=%s" % pretrained[0])
  cut = work / "cut"
  shutil.copytree(str(pretrained[0]), str(cut))
  for data in cut.glob("*.data*"):
    data.write_bytes(data.read_bytes()[:-1000])
  expect("cannot be read, it is damaged or not whole",
         "--init_checkpoint=%s" % cut)
  expect("the checkpoint to resume from lacks .*loss_scale.*: give those it "
         "was made with", "--output_dir=%s" % pretrained[0],
         "--num_train_steps=8", "--precision=fp16")
  expect("--use_fp16 contradicts --precision=float32", "--use_fp16",
         "--precision=float32")
  expect("--eval_input_file: .*train.tfrecord is a training file",
         "--eval_input_file=%s" % (work / "train.tfrecord"))
  expect("^ERROR: Unknown command line flag 'do_trian'. Did you mean: "
         "do_train .*; see --help$", "--do_trian")
  expect("^ERROR: flag --train_batch_size=0: .*; see --help$",
         "--train_batch_size=0")
