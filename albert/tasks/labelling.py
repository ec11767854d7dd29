"""Labels of texts as numbers, and their weights."""

import re

import numpy as np

from albert.errors import InputError


def label_ids(examples, labels):
  """Turns labels into numbers.

  Args:
    examples: list of classification.InputExample.
    labels: list of str, all labels there are; empty if labels are numbers.

  Returns:
    list of int, or of float for numbers; 0 for an example without a label.

  Raises:
    InputError: a label is not among `labels`.
  """
  if not labels:
    return [float(example.label or 0) for example in examples]
  numbers = {label: number for number, label in enumerate(labels)}
  for example in examples:
    if example.label is not None and example.label not in numbers:
      raise InputError("%s: unknown label %r; known are %s" % (
          example.where, example.label, ", ".join(labels)))
  return [numbers.get(example.label, 0) for example in examples]


def class_weights(text, labels, targets):
  """Weighs labels, so that the mean over the examples is 1.

  Args:
    text: str, "balanced" to give all labels the same share of the loss, or
      `label:weight,...`, where others weigh 1.
    labels: list of str, C, all labels there are.
    targets: list of int, the labels of the training examples.

  Returns:
    list of float, [C].

  Raises:
    InputError: labels are numbers, there is no such label, or a weight is not a
      positive number.
  """
  if not labels:
    raise InputError("--class_weights: the labels of this task are numbers")
  counts = np.bincount(targets, minlength=len(labels))
  if text == "balanced":
    weights = 1.0 / np.maximum(counts, 1)
  else:
    weights = np.ones([len(labels)])
    for pair in text.split(","):
      label, _, weight = pair.rpartition(":")
      if label not in labels:
        raise InputError("--class_weights: unknown label %r of %r; known are %s"
                         % (label, pair, ", ".join(labels)))
      if not re.match(r"\d*\.?\d+$", weight) or not float(weight):
        raise InputError("--class_weights: the weight of %r is not a positive "
                         "number" % pair)
      weights[labels.index(label)] = float(weight)
  return (weights * counts.sum() / (weights * counts).sum()).tolist()
