"""Several labels to a text, or none: reading, thresholds, scores."""

import json

import numpy as np

from albert.errors import InputError
from albert.tasks import metrics

WAYS = ("one", "each")  # of choosing thresholds: for all labels, for each


def split(value):
  """Returns the labels of a row, a tuple of str.

  Args:
    value: list of str, the JSON of one, or str such as "a|b"; "" for none.

  Raises:
    ValueError: it is none of these.
  """
  if isinstance(value, str):
    value = value.strip()
    if value.startswith("["):
      value = json.loads(value)
    else:
      value = [part.strip() for part in value.split("|") if part.strip()]
  if not isinstance(value, list) or not all(
      isinstance(label, (str, int)) for label in value):
    raise ValueError("the labels %r are no list and no text such as a|b" %
                     (value,))
  names = list(map(str, value))
  if any(isinstance(label, bool) for label in value) or (
      len(set(names)) < len(names) and set(names) <= {"0", "1"}):
    raise ValueError("%r says of each label whether it is there: give the "
                     "names of those that are, such as a|b" % (value,))
  return tuple(dict.fromkeys(names))


def join(labels):
  """Returns labels as the text that `split` reads."""
  return "|".join(labels)


def above(probabilities, labels, thresholds):
  """Returns those labels whose probability exceeds their threshold, a list.

  Args:
    probabilities: float [L].
    labels: list of str, L.
    thresholds: dict, label -> float; 0.5 for those it lacks.
  """
  return [label for label, probability in zip(labels, probabilities)
          if probability > thresholds.get(label, 0.5)]


def targets(examples, labels):
  """Returns which labels each example has, a list of tuples of their numbers.

  Args:
    examples: list of classification.InputExample; those without labels have
      none.
    labels: list of str, all that there are.

  Raises:
    InputError: an example has a label that is not among them.
  """
  numbers = {label: number for number, label in enumerate(labels)}
  for example in examples:
    for label in example.label or ():
      if label not in numbers:
        raise InputError(
            "%s: the label %r is not one of the model's, those of the training "
            "set: name all that there are with --labels" % (
                example.where, label))
  return [tuple(numbers[label] for label in example.label or ())
          for example in examples]


def dense(targets, num_labels):
  """Returns int [N, L], 1 where an example has a label; see `targets`."""
  rows = np.zeros([len(targets), num_labels], np.int64)
  for row, numbers in zip(rows, targets):
    row[list(numbers)] = 1
  return rows


def choose_thresholds(probabilities, truth, way):
  """Chooses what a probability must exceed, so that F1 is greatest.

  Args:
    probabilities: float [N, L].
    truth: int [N, L].
    way: str, of WAYS: one threshold by micro F1, or for each label by its own.

  Returns:
    list of float, L, half-way between two probabilities; 0.5 where there is
    nothing to find.
  """
  if way == "one":
    return [_best_threshold(probabilities.ravel(), truth.ravel())] * (
        truth.shape[1])
  return [_best_threshold(*pair) for pair in zip(probabilities.T, truth.T)]


def _best_threshold(probabilities, truth):
  if not truth.any():
    return 0.5
  order = np.argsort(-probabilities, kind="stable")
  sorted_ = probabilities[order]
  hits = np.cumsum(truth[order])
  f1 = 2.0 * hits / (np.arange(1, len(hits) + 1) + truth.sum())
  below = np.append(sorted_[1:], 0.0)
  f1[sorted_ == below] = -1.0  # equal ones are not told apart
  best = int(np.argmax(f1))
  return float(sorted_[best] + below[best]) / 2.0


def score(probabilities, truth, thresholds, labels):
  """Scores predictions: (dict of results, report of each label).

  Args:
    probabilities: float [N, L].
    truth: int [N, L].
    thresholds: list of float, L.
    labels: list of str, L.

  Returns:
    (dict, str): micro F1, of all labels together; macro F1, the mean over all
    labels; exact, the share of examples all of whose labels are right. What
    divides by 0 is 0.
  """
  claimed = (probabilities > thresholds).astype(np.int64)
  counts = np.stack([(claimed * truth).sum(0), claimed.sum(0), truth.sum(0)])
  hits, guessed, true = counts.sum(1)
  f1 = 2.0 * counts[0] / np.maximum(counts[1] + counts[2], 1)
  return {"micro_f1": float(2.0 * hits / max(guessed + true, 1)),
          "macro_f1": float(f1.mean()),
          "exact": float((claimed == truth).all(1).mean())}, (
              metrics.table("label", "examples", labels, *counts))
