"""Runs a fine-tuning script with predictions that are given, not a model's.

    python given_predictions.py SCRIPT CASES

CASES: JSON file with a list of {"flags": {name: value}, "predictions": {split:
[{name: list} for each example]}}; --do_predict is added.
"""

import dataclasses
import importlib
import json
import os
import pathlib
import sys
import types

import numpy as np
from absl import flags

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from albert import cli, settings
from albert.model.config import AlbertConfig
from albert.model_folder import ModelFolder
from albert.train import finetuning
from albert.train import settings as train_settings


class Runner:
  """A finetuning.Runner whose predictions are given."""

  predictions = None

  def __init__(self, given, workers, folder, head, label_specs, splits,
               specs=None):
    del workers, folder, head, label_specs, specs
    self.output_dir = given.run.output_dir
    self._splits = splits

  def predict(self, name, _):
    rows = self.predictions[name]
    assert len(rows) == len(self._splits[name].examples)
    return [{key: np.array(value, np.float32) for key, value in row.items()}
            for row in rows]

  def run(self, evaluate, metric, write_test, reports=(), task_settings=None):
    del evaluate, metric, reports, task_settings
    for name in self._splits:
      write_test(name, None)


def start(values, default_length):
  """As finetuning.start, with a tiny model that has no checkpoint."""
  given = train_settings.read(values)
  configs = os.path.join(os.path.dirname(finetuning.__file__),
                         "../../albert_config")
  return (
      dataclasses.replace(given, data=dataclasses.replace(
          given.data, max_seq_length=default_length)),
      types.SimpleNamespace(rank=0, size=1),
      ModelFolder(
          AlbertConfig.from_json_file(
              os.path.join(configs, "albert_config_tiny.json")),
          os.path.join(configs, "vocab.txt")))


def main(arguments):
  name, path = arguments
  script = importlib.import_module(name)
  with open(path) as reader:
    cases = json.load(reader)
  settings.define_flags(*script.SETTINGS)
  finetuning.start, finetuning.Runner = start, Runner
  for case in cases:
    flags.FLAGS.unparse_flags()
    flags.FLAGS([name, "--do_predict", "--verbosity=0"] + [
        "--%s=%s" % item for item in case["flags"].items()])
    Runner.predictions = case["predictions"]
    script.main()


if __name__ == "__main__":
  cli.run(main, [], takes_arguments=True)
