"""The README's programs run as they are printed."""

import json
import os
import re
import subprocess
import sys

import pytest
import scripting
from scripting import ROOT, VOCAB, succeed


@pytest.fixture(scope="module")
def work(tmp_path_factory):
  """A folder with what the README's commands for a fine-tuned model make."""
  folder = tmp_path_factory.mktemp("readme")
  (folder / "small.json").write_text(json.dumps(scripting.SIZES))
  succeed("run_classifier.py", "--task_name=lcqmc",
          "--data_dir=%s" % (ROOT / "data" / "pairs"),
          "--bert_config_file=%s" % (folder / "small.json"), VOCAB,
          "--do_train", "--do_eval",
          "--output_dir=%s" % (folder / "output" / "lcqmc"),
          "--max_seq_length=64", "--max_train_examples=32",
          "--num_train_epochs=1")
  best = "--init_checkpoint=%s" % (folder / "output" / "lcqmc" / "best")
  succeed("export_model.py", "--saved_model", best,
          "--output_dir=%s" % (folder / "served"))
  succeed("export_model.py", "--tflite", best, "--max_seq_length=64",
          "--output_dir=%s" % (folder / "phone"))
  return folder


def program(word):
  """Returns the README's only program that has a word."""
  text = (ROOT / "README.md").read_text(encoding="utf-8")
  found, = [code for code in re.findall("```python\n(.*?)```", text, re.S)
            if word in code]
  return found


def run(work, code):
  return subprocess.run(
      [sys.executable, "-c", code], cwd=str(work), check=True, timeout=300,
      env=dict(os.environ, PYTHONPATH=str(ROOT)),
      stdout=subprocess.PIPE).stdout.decode()


def test_programs(work):
  outputs = [run(work, program(word)) for word in (
      "tf.saved_model.load", "tf.lite.Interpreter")]
  scores = [[float(number) for number in re.findall(r"[01]\.[0-9]+", output)]
            for output in outputs]
  similarity = float(run(work, program("BertSim") + "print(scores[0])"))
  for different, same in scores:
    assert same == pytest.approx(similarity, abs=1e-5)
    assert different + same == pytest.approx(1, abs=1e-5)
