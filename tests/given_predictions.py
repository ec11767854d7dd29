"""Runs a fine-tuning script with predictions that are given, not a model's.

    python given_predictions.py SCRIPT CASES

CASES: JSON file with a list of {"flags": {name: value}, "predictions": {split:
[{name: list} for each example]}}; --do_predict is added.
"""

import importlib
import json
import os
import pathlib
import sys
import types

import numpy as np
from absl import flags

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import tokenization  # noqa: E402
from albert.train import finetuning  # noqa: E402
from albert import errors  # noqa: E402


class Runner:
  """A finetuning.Runner whose predictions are given."""

  predictions = None

  def __init__(self, *args):
    self._splits = args[-1]

  def predict(self, name, _):
    rows = self.predictions[name]
    assert len(rows) == len(self._splits[name].examples)
    return [{key: np.array(value, np.float32) for key, value in row.items()}
            for row in rows]

  def run(self, evaluate, metric, files, write_test):
    del evaluate, metric, files
    for name in self._splits:
      write_test(name, None)


def main(arguments):
  name, path = arguments
  script = importlib.import_module(name)
  with open(path) as reader:
    cases = json.load(reader)
  tokenizer = tokenization.create_tokenizer(os.path.join(
      os.path.dirname(script.__file__), "albert_config", "vocab.txt"))
  finetuning.start = lambda options: (
      types.SimpleNamespace(rank=0, size=1), types.SimpleNamespace(
          task={}, config=None, tokenizer=tokenizer))
  finetuning.prepare_output_dir = lambda *args: []
  finetuning.Runner = Runner
  for case in cases:
    flags.FLAGS.unparse_flags()
    flags.FLAGS([name, "--do_predict", "--verbosity=0"] + [
        "--%s=%s" % item for item in case["flags"].items()])
    Runner.predictions = case["predictions"]
    script.main()


if __name__ == "__main__":
  errors.run(main, takes_arguments=True)
