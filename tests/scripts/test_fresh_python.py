"""Scripts in a Python of their own, whose graphs Grappler makes faster.

Other tests fork them from a process that has TensorFlow loaded. Here every one
prints its help, and one of each kind does its work: create_pretraining_data.py,
run_pretraining.py, run_classifier.py, similarity.py, export_model.py and
convert_to_pytorch.py.
"""

import dataclasses
import importlib
import json
import re
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from scripting import ROOT, SIZES, VOCAB, succeed

pytestmark = pytest.mark.slow

SCRIPTS = sorted(path.name for path in ROOT.glob("*.py")
                 if "cli.run(" in path.read_text(encoding="utf-8"))


def start(*args, **kwargs):
  return succeed(*args, python=sys.executable, **kwargs)


def test_these_are_all():
  assert SCRIPTS == [
      "build_vocab.py", "convert_to_pytorch.py", "create_pretraining_data.py",
      "export_model.py", "extend_vocab.py", "extract_features.py", "predict.py",
      "predict_masked.py", "run_classifier.py", "run_ner.py",
      "run_pretraining.py", "run_race.py", "run_sentence_vectors.py",
      "run_squad.py", "serve.py", "similarity.py"]


@pytest.mark.once
@pytest.mark.parametrize("script", SCRIPTS)
def test_help(script):
  """What the script is for, then each of its flags once, in four groups."""
  module = importlib.import_module(script[:-len(".py")])
  out, _ = start(script, "--help")
  description = module.__doc__.strip() + "\n\n"
  assert out.startswith(description)
  text = out[len(description):]
  groups = re.findall(r"^(\w+):\n((?:  .*\n)+)", text, re.M)
  assert text == "\n".join("%s:\n%s" % group for group in groups)
  assert [name for name, _ in groups] == [
      name for name in ("needed", "usual", "advanced", "TPU")
      if name in dict(groups)]
  found = [(flag, name) for name, lines in groups
           for flag in re.findall(r"^  --(\w+)  \S", lines, re.M)]
  assert sorted(found) == sorted(
      (field.name, field.metadata["group"]) for cls in module.SETTINGS
      for field in dataclasses.fields(cls))
  assert max(map(len, text.splitlines())) <= 80


@pytest.fixture(scope="module")
def work(tmp_path_factory):
  """A model that was pretrained and fine-tuned on the sample data."""
  folder = tmp_path_factory.mktemp("fresh")
  (folder / "small.json").write_text(json.dumps(dict(
      SIZES, num_hidden_groups=1)))
  start("create_pretraining_data.py", VOCAB, "--max_seq_length=32",
        "--max_predictions_per_seq=5", "--dupe_factor=1",
        "--input_file=%s" % (ROOT / "data" / "text_heldout.txt"),
        "--output_file=%s" % (folder / "records"))
  start(*pretraining(folder, "pretrained"))
  start("run_classifier.py", "--task_name=lcqmc", "--do_train", "--do_predict",
        "--data_dir=%s" % (ROOT / "tests" / "pairs"), "--max_seq_length=32",
        "--init_checkpoint=%s" % (folder / "pretrained"),
        "--output_dir=%s" % (folder / "tuned"), "--train_batch_size=16",
        "--max_train_examples=64", "--num_train_epochs=1", "--plain_results")
  return folder


def pretraining(folder, name):
  return ["run_pretraining.py", "--do_train",
          "--input_file=%s" % (folder / "records"), "--num_train_steps=3",
          "--num_warmup_steps=1", "--train_batch_size=8", "--log_steps=1",
          "--bert_config_file=%s" % (folder / "small.json"),
          "--output_dir=%s" % (folder / name)]


def test_a_forked_script_trains_the_same(work):
  succeed(*pretraining(work, "forked"))
  for name, _ in tf.train.list_variables(str(work / "forked")):
    np.testing.assert_allclose(
        *[tf.train.load_variable(str(work / folder), name)
          for folder in ("pretrained", "forked")], atol=1e-5, err_msg=name)


def test_predictions(work):
  pairs = (ROOT / "tests" / "pairs" / "test.txt").read_text(encoding="utf-8")
  pairs = [line.rsplit("\t", 1)[0] for line in pairs.splitlines()]
  out, _ = start("similarity.py", "--model_dir=%s" % (work / "tuned"),
                 input="\n".join(pairs + [""]).encode())
  lines = (work / "tuned" / "test_results.tsv").read_text().splitlines()
  np.testing.assert_allclose(
      [float(line.split("\t")[0]) for line in out.splitlines()],
      [float(line.split("\t")[1]) for line in lines], atol=1e-4)
  out, _ = start("predict.py", "--model_dir=%s" % (work / "tuned"),
                 "--format=jsonl", input="\n".join(pairs + [""]).encode())
  np.testing.assert_allclose(
      [json.loads(line)["probability"] for line in out.splitlines()],
      [max(map(float, line.split("\t"))) for line in lines], atol=1e-4)


def test_exports(work):
  tuned = "--init_checkpoint=%s" % (work / "tuned")
  start("export_model.py", "--tflite", tuned, "--max_seq_length=16",
        "--output_dir=%s" % (work / "phone"))
  start("export_model.py", "--saved_model", tuned,
        "--output_dir=%s" % (work / "served"))
  assert (work / "phone" / "model.tflite").stat().st_size > 100000
  assert (work / "served" / "saved_model.pb").exists()
  pytest.importorskip("safetensors")
  start("convert_to_pytorch.py", tuned, "--output_dir=%s" % (work / "pytorch"))
  assert (work / "pytorch" / "model.safetensors").exists()
