"""What labels are: one to a text, several, or numbers.

Each kind has
  labels         list of str, all that there are; empty for numbers
  positive       str, the one of two labels that F1 is of, or None
  result         str, `kind` of what predicts them; see predictors.Predictor
  feature        ("int" or "float", length) of `label_ids`; see FeatureSpec
  targets(examples), what is learnt from them: a list
  label_ids(target), the feature `label_ids` of one
  values(logits), what is said of each text: float [N, ...], written
  answers(values), the same in a word or number: a list
  score(logits, targets), (dict of results, report or None)
"""

import re

import numpy as np

from albert.errors import InputError
from albert.tasks import label_sets, metrics

_YES = ("1", "true", "yes", "是")


class Numbers:
  """Labels are numbers to predict."""
  labels = []
  positive = None
  result = "score"
  feature = ("float", 0)

  def targets(self, examples):
    return label_ids(examples, [])

  def label_ids(self, target):
    return target

  def values(self, logits):
    return logits

  def answers(self, values):
    return [float(row[0]) for row in values]

  def score(self, logits, targets):
    loss = float(np.mean((logits[:, 0] - np.array(targets))**2))
    return dict(metrics.regression(targets, logits[:, 0]), loss=loss), None


class OneLabel:
  """Each text has one label."""
  result = "label"
  feature = ("int", 0)

  def __init__(self, labels, positive=None):
    self.labels = labels
    self.positive = positive

  def targets(self, examples):
    return label_ids(examples, self.labels)

  def label_ids(self, target):
    return target

  def values(self, logits):
    return np.exp(log_softmax(logits))

  def answers(self, values):
    return [self.labels[np.argmax(row)] for row in values]

  def score(self, logits, targets):
    results, confusion = metrics.classification(
        targets, logits.argmax(-1), len(self.labels),
        self.positive and self.labels.index(self.positive))
    loss = -np.mean(log_softmax(logits)[np.arange(len(targets)), targets])
    report = metrics.report(confusion, self.labels)
    if self.positive:
      report += "\nf1 is of the label %s\n" % self.positive
    return dict(results, loss=float(loss)), report


class SeveralLabels:
  """Each text has any number of labels.

  Attributes:
    thresholds: dict, label -> what its probability must exceed.
  """
  positive = None
  result = "labels"

  def __init__(self, labels, thresholds=None):
    self.labels = labels
    self.feature = ("int", len(labels))
    self.thresholds = thresholds or dict.fromkeys(labels, 0.5)

  def targets(self, examples):
    return label_sets.targets(examples, self.labels)

  def label_ids(self, target):
    return label_sets.dense([target], len(self.labels))[0].tolist()

  def values(self, logits):
    return 0.5 + 0.5 * np.tanh(0.5 * logits.astype(np.float64))  # sigmoid

  def answers(self, values):
    return [label_sets.join(label_sets.above(
        row, self.labels, self.thresholds)) for row in values]

  def choose_thresholds(self, logits, targets, way):
    """Sets the thresholds; see `label_sets.choose_thresholds`."""
    self.thresholds = dict(zip(self.labels, label_sets.choose_thresholds(
        self.values(logits), label_sets.dense(targets, len(self.labels)),
        way)))

  def score(self, logits, targets):
    logits = logits.astype(np.float64)
    truth = label_sets.dense(targets, len(self.labels))
    results, report = label_sets.score(
        self.values(logits), truth,
        [self.thresholds[label] for label in self.labels], self.labels)
    # softplus(x) - x y, as in `MultiLabel`
    losses = np.logaddexp(0.0, logits) - logits * truth
    return dict(results, loss=float(losses.mean())), report


def positive_label(labels, counts, chosen=None):
  """Returns which of two labels F1 is of.

  Args:
    labels: list of str.
    counts: dict, label -> how many examples have it.
    chosen: str, what the user or the model names, or None.

  Returns:
    str: what is chosen; or what says yes; or the rarer label, the second one of
    two that are equally frequent.

  Raises:
    InputError: it is not one of two labels.
  """
  if chosen is not None and (chosen not in labels or len(labels) != 2):
    raise InputError("--positive_label=%s is to be one of two labels: there "
                     "are %s" % (chosen, ", ".join(labels)))
  yes = [label for label in labels if label.lower() in _YES]
  return chosen or (yes[0] if len(yes) == 1 else min(
      reversed(labels), key=lambda label: counts.get(label, 0)))


def log_softmax(logits):
  """Returns log-probabilities, float64 [N, L]."""
  logits = logits.astype(np.float64)
  logits -= logits.max(-1, keepdims=True)
  return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


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
