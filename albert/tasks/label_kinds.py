"""What labels are: one to a text, several, or numbers.

Each kind has
  labels         list of str, all that there are; empty for numbers
  result         str, `kind` of what predicts them; see predictors.Predictor
  feature        ("int" or "float", length) of `label_ids`; see FeatureSpec
  targets(examples), what is learnt from them: a list
  values(logits), what is said of each text: float [N, ...], written
  answers(values), the same in a word or number: a list
  score(logits, targets), (dict of results, report or None)
"""

import numpy as np

from albert.tasks import label_sets, labelling, metrics


class Numbers:
  """Labels are numbers to predict."""
  labels = []
  result = "score"
  feature = ("float", 0)

  def targets(self, examples):
    return labelling.label_ids(examples, [])

  def values(self, logits):
    return logits

  def answers(self, values):
    return [float(row[0]) for row in values]

  def score(self, logits, targets):
    loss = float(np.mean((logits[:, 0] - targets)**2))
    return dict(metrics.regression(targets, logits[:, 0]), loss=loss), None


class OneLabel:
  """Each text has one label."""
  result = "label"
  feature = ("int", 0)

  def __init__(self, labels):
    self.labels = labels

  def targets(self, examples):
    return labelling.label_ids(examples, self.labels)

  def values(self, logits):
    return np.exp(log_softmax(logits))

  def answers(self, values):
    return [self.labels[np.argmax(row)] for row in values]

  def score(self, logits, targets):
    results, confusion = metrics.classification(
        targets, logits.argmax(-1), len(self.labels))
    loss = -np.mean(log_softmax(logits)[np.arange(len(targets)), targets])
    return dict(results, loss=float(loss)), metrics.report(
        confusion, self.labels)


class SeveralLabels:
  """Each text has any number of labels.

  Attributes:
    thresholds: dict, label -> what its probability must exceed.
  """
  result = "labels"

  def __init__(self, labels, thresholds=None):
    self.labels = labels
    self.feature = ("int", len(labels))
    self.thresholds = thresholds or dict.fromkeys(labels, 0.5)

  def targets(self, examples):
    return label_sets.targets(examples, self.labels)

  def values(self, logits):
    return 0.5 + 0.5 * np.tanh(0.5 * logits.astype(np.float64))  # sigmoid

  def answers(self, values):
    return [label_sets.join(label_sets.above(
        row, self.labels, self.thresholds)) for row in values]

  def choose_thresholds(self, logits, targets, way):
    """Sets the thresholds; see `label_sets.choose_thresholds`."""
    self.thresholds = dict(zip(self.labels, label_sets.choose_thresholds(
        self.values(logits), targets, way)))

  def score(self, logits, targets):
    logits = logits.astype(np.float64)
    results, report = label_sets.score(
        self.values(logits), targets,
        [self.thresholds[label] for label in self.labels], self.labels)
    # softplus(x) - x y, as in `MultiLabel`
    losses = np.logaddexp(0.0, logits) - logits * targets
    return dict(results, loss=float(losses.mean())), report


def log_softmax(logits):
  """Returns log-probabilities, float64 [N, L]."""
  logits = logits.astype(np.float64)
  logits -= logits.max(-1, keepdims=True)
  return logits - np.log(np.exp(logits).sum(-1, keepdims=True))
