"""Kinds of labels: one per text, any number, or numbers (regression)."""

import re
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from albert.errors import InputError
from albert.tasks import label_sets, metrics
from albert.tasks.classification import InputExample

_YES = ("1", "true", "yes", "是")


class LabelKind:
  """The labels of a task; N examples in comments.

  Attributes:
    labels: all labels; empty for regression.
    positive: of two labels, the positive one for F1.
    result: `kind` of the predictions; see predictors.Predictor.
    feature: ("int" or "float", length) of `label_ids`; see FeatureSpec.
  """

  labels: List[str]
  positive: Optional[str] = None
  result: str
  feature: Tuple[str, int]

  def targets(self, examples: List[InputExample]) -> List[Any]:
    """Returns the training target of each example."""
    raise NotImplementedError

  def label_ids(self, target: Any) -> Any:
    """Returns the feature `label_ids` of a target."""
    return target

  def values(self, logits: np.ndarray) -> np.ndarray:
    """Converts logits [N, ...] to probabilities or numbers, float [N, ...]."""
    raise NotImplementedError

  def answers(self, values: np.ndarray) -> List[Any]:
    """Converts `values` to a label, joined labels or a number per example."""
    raise NotImplementedError

  def errors(self, values: np.ndarray, targets: List[Any]) -> np.ndarray:
    """Returns the error of each example, float [N]; higher is worse."""
    raise NotImplementedError

  def score(
    self, logits: np.ndarray, targets: List[Any]
  ) -> Tuple[Dict[str, float], Optional[str]]:
    """Returns results by name, and a report or None."""
    raise NotImplementedError


class Numbers(LabelKind):
  """Labels are numbers (regression)."""

  labels: List[str] = []
  result = "score"
  feature = ("float", 0)

  def targets(self, examples: List[InputExample]) -> List[float]:
    """See LabelKind."""
    return label_ids(examples, [])

  def values(self, logits: np.ndarray) -> np.ndarray:
    """See LabelKind."""
    return logits

  def answers(self, values: np.ndarray) -> List[float]:
    """See LabelKind."""
    return [float(row[0]) for row in values]

  def errors(self, values: np.ndarray, targets: List[float]) -> np.ndarray:
    """See LabelKind; the absolute error."""
    return np.abs(values[:, 0] - targets)

  def score(
    self, logits: np.ndarray, targets: List[float]
  ) -> Tuple[Dict[str, float], Optional[str]]:
    """See LabelKind."""
    loss = float(np.mean((logits[:, 0] - np.array(targets)) ** 2))
    return dict(metrics.regression(targets, logits[:, 0]), loss=loss), None


class OneLabel(LabelKind):
  """Each text has one label.

  Attributes:
    temperature: divides the logits before the softmax.
  """

  result = "label"
  temperature = 1.0
  feature = ("int", 0)

  def __init__(self, labels: List[str], positive: Optional[str] = None):
    self.labels = labels
    self.positive = positive

  def targets(self, examples: List[InputExample]) -> List[int]:
    """See LabelKind."""
    return label_ids(examples, self.labels)

  def values(self, logits: np.ndarray) -> np.ndarray:
    """See LabelKind."""
    return np.exp(log_softmax(logits / self.temperature))

  def answers(self, values: np.ndarray) -> List[str]:
    """See LabelKind."""
    return [self.labels[np.argmax(row)] for row in values]

  def errors(self, values: np.ndarray, targets: List[int]) -> np.ndarray:
    """See LabelKind; 1 minus the probability of the true label."""
    return 1 - values[np.arange(len(targets)), targets]

  def score(
    self, logits: np.ndarray, targets: List[int]
  ) -> Tuple[Dict[str, float], Optional[str]]:
    """See LabelKind."""
    results, confusion = metrics.classification(
      targets,
      logits.argmax(-1),
      len(self.labels),
      self.labels.index(self.positive) if self.positive else None,
    )
    loss = -np.mean(log_softmax(logits)[np.arange(len(targets)), targets])
    confidence = self.values(logits).max(-1), logits.argmax(-1) == targets
    results["calibration_error"] = metrics.calibration_error(*confidence)
    report = "%s\n%s" % (
      metrics.report(confusion, self.labels),
      metrics.confidence_table(*confidence),
    )
    if self.positive:
      report += "\nf1 is for the label %s\n" % self.positive
    return dict(results, loss=float(loss)), report


class SeveralLabels(LabelKind):
  """Each text has any number of labels.

  Args:
    labels: all L labels.
    thresholds: label -> probability threshold, 0.5 by default.
    most: K, maximum number of labels of a training example.
  """

  result = "labels"

  def __init__(
    self,
    labels: List[str],
    thresholds: Optional[Dict[str, float]] = None,
    most: int = 1,
  ):
    self.labels = labels
    self.feature = ("int", most)
    self.thresholds = thresholds or dict.fromkeys(labels, 0.5)

  def targets(self, examples: List[InputExample]) -> List[Tuple[int, ...]]:
    """See LabelKind."""
    return label_sets.targets(examples, self.labels)

  def label_ids(self, target: Tuple[int, ...]) -> List[int]:
    """Returns K numbers, padded with L."""
    return [*target, *[len(self.labels)] * (self.feature[1] - len(target))]

  def values(self, logits: np.ndarray) -> np.ndarray:
    """See LabelKind."""
    return 0.5 + 0.5 * np.tanh(0.5 * logits.astype(np.float64))  # sigmoid

  def answers(self, values: np.ndarray) -> List[str]:
    """See LabelKind."""
    return [
      label_sets.join(label_sets.above(row, self.labels, self.thresholds))
      for row in values
    ]

  def errors(
    self, values: np.ndarray, targets: List[Tuple[int, ...]]
  ) -> np.ndarray:
    """See LabelKind; the sum of the labels' absolute errors."""
    return np.abs(values - label_sets.dense(targets, len(self.labels))).sum(1)

  def choose_thresholds(
    self, logits: np.ndarray, targets: List[Tuple[int, ...]], way: str
  ) -> None:
    """Sets the thresholds; see `label_sets.choose_thresholds`."""
    self.thresholds = dict(
      zip(
        self.labels,
        label_sets.choose_thresholds(
          self.values(logits), label_sets.dense(targets, len(self.labels)), way
        ),
      )
    )

  def score(
    self, logits: np.ndarray, targets: List[Tuple[int, ...]]
  ) -> Tuple[Dict[str, float], Optional[str]]:
    """See LabelKind."""
    logits = logits.astype(np.float64)
    truth = label_sets.dense(targets, len(self.labels))
    results, report = label_sets.score(
      self.values(logits),
      truth,
      [self.thresholds[label] for label in self.labels],
      self.labels,
    )
    # softplus(x) - x y, as in `MultiLabel`
    losses = np.logaddexp(0.0, logits) - logits * truth
    return dict(results, loss=float(losses.mean())), report


def positive_label(
  labels: List[str], counts: Dict[str, int], chosen: Optional[str] = None
) -> str:
  """Returns the positive one of two labels.

  Args:
    labels: all labels.
    counts: label -> number of examples.
    chosen: label chosen by the user or the model, or None.

  Returns:
    `chosen`; by default the only label that means yes, otherwise the rarer one,
    the second in case of a tie.

  Raises:
    InputError: `chosen` is not one of two labels.
  """
  if chosen is not None and (chosen not in labels or len(labels) != 2):
    raise InputError(
      "--positive_label=%s must be one of two labels: there "
      "are %s" % (chosen, ", ".join(labels))
    )
  if chosen:
    return chosen
  yes = [label for label in labels if label.lower() in _YES]
  if len(yes) == 1:
    return yes[0]
  return min(reversed(labels), key=lambda label: counts.get(label, 0))


def log_softmax(logits: np.ndarray) -> np.ndarray:
  """Returns log-probabilities, float64 [N, L]."""
  logits = logits.astype(np.float64)
  logits -= logits.max(-1, keepdims=True)
  return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def label_ids(examples: List[InputExample], labels: List[str]) -> List[Any]:
  """Converts labels to indices.

  Args:
    examples: with or without labels.
    labels: all labels; empty for regression.

  Returns:
    int, or float for regression; 0 for an example without a label.

  Raises:
    InputError: a label is not among `labels`.
  """
  if not labels:
    return [float(example.label or 0) for example in examples]
  numbers = {label: number for number, label in enumerate(labels)}
  for example in examples:
    if example.label is not None and example.label not in numbers:
      raise InputError(
        "%s: unknown label %r; known are %s"
        % (example.where, example.label, ", ".join(labels))
      )
  return [numbers.get(example.label, 0) for example in examples]


def class_weights(
  text: str, labels: List[str], targets: Sequence[int]
) -> List[float]:
  """Returns weights of labels, with a mean of 1 over the examples.

  Args:
    text: "balanced" to give all labels the same share of the loss, or
      `label:weight,...`, where the default is 1.
    labels: all C labels.
    targets: labels of the training examples.

  Returns:
    C weights.

  Raises:
    InputError: the task is a regression, there is no such label, or a weight is
      not a positive number.
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
        raise InputError(
          "--class_weights: unknown label %r of %r; known are %s"
          % (label, pair, ", ".join(labels))
        )
      if not re.match(r"\d*\.?\d+$", weight) or not float(weight):
        raise InputError(
          "--class_weights: the weight of %r is not a positive number" % pair
        )
      weights[labels.index(label)] = float(weight)
  return (weights * counts.sum() / (weights * counts).sum()).tolist()
