"""Runs a fine-tuning script with given predictions instead of a model's.

    scripting.succeed("tests/given_predictions.py", SCRIPT, CASES)

CASES: JSON file, a list of {"flags": {name: value}, "predictions": {split:
[{name: list} for each example]}}; --do_predict is added.
"""

import dataclasses
import pathlib
import types
from unittest import mock

import numpy as np
from reading import read_json
from scripting import SIZES, VOCAB, call_main

from albert.model.config import AlbertConfig
from albert.model_folder import ModelFolder
from albert.train import finetuning
from albert.train import settings as train_settings

SETTINGS = ()


class Runner(finetuning.Runner):
  predictions = None

  def __init__(self, given, workers, folder, task):
    self.output_dir = given.run.output_dir
    self._task, self._splits = task, task.splits

  def predict(self, name, checkpoint):
    rows = self.predictions[name]
    assert len(rows) == len(self._splits[name].examples)
    return {
      key: np.array([row[key] for row in rows], np.float32) for key in rows[0]
    }

  def run(self):
    for name in self._splits:
      self._write_test(name, None)


def start(default_length):
  """Like finetuning.start, with a tiny model without a checkpoint."""
  given = train_settings.read()
  data = dataclasses.replace(given.data, max_seq_length=default_length)
  folder = ModelFolder(AlbertConfig.from_dict(SIZES), VOCAB.split("=")[1])
  return (
    dataclasses.replace(given, data=data),
    types.SimpleNamespace(rank=0, size=1),
    folder,
  )


def main(arguments):
  script, path = arguments
  with mock.patch.multiple(finetuning, start=start, Runner=Runner):
    for case in read_json(pathlib.Path(path)):
      Runner.predictions = case["predictions"]
      call_main(
        script + ".py",
        "--do_predict",
        *("--%s=%s" % item for item in case["flags"].items()),
      )
