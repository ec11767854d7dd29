r"""Prints the masked-LM loss of a token frequency model.

    python benchmarks/unigram_entropy.py --input_file=train.tfrecord \
      --eval_input_file=held.tfrecord

That is the cross entropy of the held-out labels under the frequencies of the
training labels; once its loss is lower, pretraining has left its first plateau.
"""

import dataclasses
import os
import sys
from typing import List, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from albert import cli
from albert.errors import InputError
from albert.files import records
from albert.settings import NEEDED, from_flags, setting


@dataclasses.dataclass(frozen=True)
class EntropySettings:
  """The record files."""

  input_file: str = setting(
    None, "Record files for the frequencies.", NEEDED, required=True
  )
  eval_input_file: str = setting(
    None, "Record files to predict.", NEEDED, required=True
  )


SETTINGS = (EntropySettings,)


def count_labels(paths: List[str]) -> np.ndarray:
  """Returns the count of each label id in record files, [V]."""
  description = records.read_description(paths[0])
  if not description:
    raise InputError(
      "%s has no JSON file next to it with the size of the "
      "vocabulary" % paths[0]
    )
  counts = np.zeros(description["vocab_size"])
  for path in paths:
    for record in tf.io.tf_record_iterator(path):
      feature = tf.train.Example.FromString(record).features.feature
      labels = np.array(feature["masked_lm_ids"].int64_list.value)
      weights = feature["masked_lm_weights"].float_list.value
      np.add.at(counts, labels, weights)
  return counts


def frequency_loss(
  train: List[str], heldout: List[str]
) -> Tuple[float, float, int]:
  """Predicts the labels of record files by their frequency in others.

  Args:
    train: record files for the frequencies.
    heldout: record files to predict.

  Returns:
    loss in nats, accuracy, and the number of labels.
  """
  known, asked = count_labels(train), count_labels(heldout)
  frequencies = (known + 0.1) / (known + 0.1).sum()  # smoothed
  return (
    -(asked * np.log(frequencies)).sum() / asked.sum(),
    asked[known.argmax()] / asked.sum(),
    int(asked.sum()),
  )


def main() -> None:
  args = from_flags(EntropySettings)
  print(
    "loss %.4f, accuracy %.4f, over %d labels"
    % frequency_loss(
      *(
        records.expand_patterns(getattr(args, flag), flag)
        for flag in ("input_file", "eval_input_file")
      )
    )
  )


if __name__ == "__main__":
  cli.run(main, SETTINGS)
