"""Multi-label classification: reading labels, thresholds, scores."""

import json
import re
import unicodedata
from typing import Any, Dict, Iterable, List, Sequence, Tuple

import numpy as np

from albert.errors import InputError
from albert.tasks import metrics

WAYS = ("one", "each")  # one threshold for all labels, or one per label


def split(value: Any, separator: str = "|") -> Tuple[str, ...]:
  """Returns the labels of a row.

  Args:
    value: list of labels, its JSON, or text such as "a|b"; "" for no label.
    separator: separates labels in text.

  Raises:
    ValueError: it has none of these forms.
  """
  if isinstance(value, str):
    value = value.strip()
    if value.startswith("["):
      value = json.loads(value)
    else:
      value = [part.strip() for part in value.split(separator) if part.strip()]
  if not isinstance(value, list) or not all(
    isinstance(label, (str, int)) for label in value
  ):
    raise ValueError(
      "the labels %r are neither a list nor text such as a|b" % (value,)
    )
  names = list(map(str, value))
  if any(isinstance(label, bool) for label in value) or (
    len(set(names)) < len(names) and set(names) <= {"0", "1"}
  ):
    raise ValueError(
      "%r has a flag per label: list the names of the labels "
      "instead, such as a|b" % (value,)
    )
  return tuple(dict.fromkeys(names))


def joined(labels: Iterable[str]) -> List[str]:
  """Returns the labels that look like several labels in one.

  Args:
    labels: all labels of a training set.
  """
  known = set(labels)
  found = []
  for label in sorted(known):
    parts = [part.strip() for part in re.split("[,，;；、/|]", label)]
    if len(parts) > 1 and known.issuperset(parts):
      found.append(label)
  return found


def alike(labels: Iterable[str]) -> List[Tuple[str, ...]]:
  """Returns groups of labels that differ by width, case, spaces or ".0"."""
  groups: Dict[str, List[str]] = {}
  for label in sorted(labels):
    key = "".join(unicodedata.normalize("NFKC", label).casefold().split())
    groups.setdefault(re.sub(r"^(-?\d+)\.0+$", r"\1", key), []).append(label)
  return [tuple(group) for group in groups.values() if len(group) > 1]


def join(labels: Sequence[str]) -> str:
  """Returns the text that `split` reads."""
  return "|".join(labels)


def above(
  probabilities: np.ndarray, labels: List[str], thresholds: Dict[str, float]
) -> List[str]:
  """Returns the labels whose probability exceeds their threshold.

  Args:
    probabilities: float [L].
    labels: L labels.
    thresholds: by label, 0.5 by default.
  """
  return [
    label
    for label, probability in zip(labels, probabilities)
    if probability > thresholds.get(label, 0.5)
  ]


def targets(
  examples: Sequence[Any], labels: List[str]
) -> List[Tuple[int, ...]]:
  """Returns the indices of each example's labels.

  Args:
    examples: classification.InputExample; no indices for those without labels.
    labels: all labels.

  Raises:
    InputError: a label of an example is not among `labels`.
  """
  numbers = {label: number for number, label in enumerate(labels)}
  for example in examples:
    for label in example.label or ():
      if label not in numbers:
        raise InputError(
          "%s: the label %r is not one of the model's: list all labels with "
          "--labels" % (example.where, label)
        )
  return [
    tuple(numbers[label] for label in example.label or ())
    for example in examples
  ]


def dense(targets: List[Tuple[int, ...]], num_labels: int) -> np.ndarray:
  """Returns int [N, L], 1 where an example has a label; see `targets`."""
  rows = np.zeros([len(targets), num_labels], np.int64)
  for row, numbers in zip(rows, targets):
    row[list(numbers)] = 1
  return rows


def choose_thresholds(
  probabilities: np.ndarray, truth: np.ndarray, way: str
) -> List[float]:
  """Chooses the thresholds of probabilities that maximize F1.

  Args:
    probabilities: float [N, L].
    truth: int [N, L].
    way: one of WAYS: by micro F1, or by each label's own F1.

  Returns:
    L thresholds, each half-way between two probabilities; 0.5 for a label
    without examples.
  """
  if way == "one":
    return [_best_threshold(probabilities.ravel(), truth.ravel())] * (
      truth.shape[1]
    )
  return [_best_threshold(*pair) for pair in zip(probabilities.T, truth.T)]


def _best_threshold(probabilities, truth):
  if not truth.any():
    return 0.5
  order = np.argsort(-probabilities, kind="stable")
  sorted_ = probabilities[order]
  hits = np.cumsum(truth[order])
  f1 = 2.0 * hits / (np.arange(1, len(hits) + 1) + truth.sum())
  below = np.append(sorted_[1:], 0.0)
  f1[sorted_ == below] = -1.0  # no threshold separates equal probabilities
  best = int(np.argmax(f1))
  return float(sorted_[best] + below[best]) / 2.0


def score(
  probabilities: np.ndarray,
  truth: np.ndarray,
  thresholds: Sequence[float],
  labels: List[str],
) -> Tuple[Dict[str, float], str]:
  """Scores predictions.

  Args:
    probabilities: float [N, L].
    truth: int [N, L].
    thresholds: L thresholds.
    labels: L labels.

  Returns:
    results by name: micro F1, over all labels together; macro F1, the mean over
    labels, 0/0 counting as 0; exact, the share of examples with exactly the
    right labels; and a report by label.
  """
  claimed = (probabilities > thresholds).astype(np.int64)
  counts = np.stack([(claimed * truth).sum(0), claimed.sum(0), truth.sum(0)])
  hits, guessed, true = counts.sum(1)
  f1 = 2.0 * counts[0] / np.maximum(counts[1] + counts[2], 1)
  results = {
    "micro_f1": float(2.0 * hits / max(guessed + true, 1)),
    "macro_f1": float(f1.mean()),
    "exact": float((claimed == truth).all(1).mean()),
  }
  return results, metrics.table("label", "examples", labels, *counts)
