"""Metrics of classification, regression and NER, and their reports."""

from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np
from absl import logging

# Metrics for choosing the best checkpoint; higher is better.
METRICS = (
  "accuracy",
  "f1",
  "macro_f1",
  "matthews",
  "pearson",
  "spearman",
  "micro_f1",
  "exact",
)
Floats = Union[Sequence[float], np.ndarray]  # [N]

_MOST_NAMES = 100  # see report


def classification(
  labels: Floats,
  predicted: Floats,
  num_labels: int,
  positive: Optional[int] = None,
) -> Tuple[Dict[str, float], np.ndarray]:
  """Computes the metrics of a classifier.

  Args:
    labels: [N], the truth.
    predicted: [N].
    num_labels: C.
    positive: positive class of "f1"; None omits "f1".

  Returns:
    metrics: accuracy, Matthews correlation (generalized to C classes: Gorodkin,
    Comput. Biol. Chem. 28, 2004), macro F1 over the classes that occur, F1 of
    the positive class; and the confusion matrix, int [C, C], one row per true
    class.
  """
  confusion = np.zeros([num_labels, num_labels], np.int64)
  np.add.at(
    confusion,
    (np.asarray(labels, np.int64), np.asarray(predicted, np.int64)),
    1,
  )
  true, claimed = confusion.sum(1), confusion.sum(0)
  right, total = np.trace(confusion), confusion.sum()
  f1 = f1_scores(confusion)
  spread = np.sqrt(
    float(total**2 - (claimed**2).sum()) * float(total**2 - (true**2).sum())
  )
  values = {
    "accuracy": right / total,
    "macro_f1": f1[true + claimed > 0].mean(),
    "matthews": (right * total - (true * claimed).sum()) / (spread or 1.0),
  }
  if positive is not None:
    values["f1"] = f1[positive]
  return {name: float(value) for name, value in values.items()}, confusion


def without_placeholders(
  examples: List[Any], field: str, where: str
) -> List[Any]:
  """Removes the labels of a file to predict if they are placeholders.

  Leaderboards publish test sets with the same label or answer in all rows.

  Args:
    examples: named tuples.
    field: name of the label, which is None if unknown.
    where: name of the file in the log.
  """
  labels = {repr(getattr(example, field)) for example in examples}
  if len(labels) > 1:
    return examples
  if labels != {"None"}:
    logging.info(
      "%s: %s in all rows: treated as a placeholder and not scored",
      where,
      labels.pop(),
    )
  return [example._replace(**{field: None}) for example in examples]


def f1_scores(confusion: np.ndarray) -> np.ndarray:
  """Returns the F1 of each class, float [C]; 0 if a class does not occur."""
  totals = confusion.sum(0) + confusion.sum(1)
  return 2.0 * np.diag(confusion) / np.maximum(totals, 1)


def regression(labels: Floats, predicted: Floats) -> Dict[str, float]:
  """Compares predictions [N] with the truth.

  Returns:
    Pearson's and Spearman's correlation, 0 if either side is constant, and the
    mean squared error.
  """
  return {
    "pearson": _correlation(labels, predicted),
    "spearman": _correlation(_ranks(labels), _ranks(predicted)),
    "mse": float(
      np.mean(np.subtract(predicted, labels, dtype=np.float64) ** 2)
    ),
  }


def separation(labels: Floats, scores: Floats) -> Dict[str, float]:
  """Measures how well scores separate two classes.

  Args:
    labels: [N], 1 for examples that should score high, otherwise 0; both occur.
    scores: [N].

  Returns:
    auc, the share of pairs with one example per class that are in the right
    order, ties counting half; accuracy, with the best threshold; threshold:
    scores of at least this are predicted as 1.
  """
  truth, x = np.asarray(labels, np.int64), np.asarray(scores, np.float64)
  positives = truth.sum()
  negatives = len(truth) - positives
  pairs = _ranks(x)[truth == 1].sum() - positives * (positives - 1) / 2.0
  thresholds = np.append(np.unique(x), np.inf)
  order = np.argsort(x, kind="stable")
  first = np.searchsorted(x[order], thresholds)  # scores below each
  ones_below = np.append(0, np.cumsum(truth[order]))[first]
  right = first - ones_below + positives - ones_below
  best = np.argmax(right)
  return {
    "auc": float(pairs / (positives * negatives)),
    "accuracy": float(right[best] / len(truth)),
    "threshold": float(min(thresholds[best], 1e9)),
  }


def calibration_error(
  probabilities: np.ndarray, right: np.ndarray, bins: int = 15
) -> float:
  """Returns the expected calibration error (Guo et al., arXiv:1706.04599).

  Args:
    probabilities: [N], of the predictions.
    right: bool [N], whether they are right.
    bins: number of intervals of equal width.
  """
  where = np.minimum((probabilities * bins).astype(int), bins - 1)
  gaps = np.bincount(where, probabilities - right, bins)
  return float(np.abs(gaps).sum() / len(right))


def best_temperature(logits: np.ndarray, labels: Floats) -> float:
  """Returns the temperature that minimizes the loss (arXiv:1706.04599).

  Args:
    logits: [N, C].
    labels: [N], the truth.

  Returns:
    divisor of the logits, between 0.05 and 20.
  """
  x = logits.astype(np.float64)
  rows, truth = np.arange(len(x)), np.asarray(labels, np.int64)

  def loss(temperature):
    z = x / temperature
    z -= z.max(1, keepdims=True)
    return np.mean(np.log(np.exp(z).sum(1)) - z[rows, truth])

  low, high = np.log(0.05), np.log(20.0)  # the loss has one minimum in 1 / T
  while high - low > 1e-4:
    left, right = low + (high - low) / 3, high - (high - low) / 3
    if loss(np.exp(left)) < loss(np.exp(right)):
      high = right
    else:
      low = left
  return float(np.exp((low + high) / 2))


def confidence_table(probabilities: np.ndarray, right: np.ndarray) -> str:
  """Returns a table of the accuracy at minimum probabilities.

  Args:
    probabilities, right: see `calibration_error`.
  """
  lines = ["%11s%10s%10s" % ("probability", "share", "accuracy")]
  for least in (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99):
    kept = right[probabilities >= least]
    if kept.size:
      lines.append(
        "%11.2f%10.4f%10.4f" % (least, kept.size / len(right), kept.mean())
      )
  return "\n".join(lines) + "\n"


def _correlation(x, y):
  if np.ptp(x) == 0 or np.ptp(y) == 0:
    return 0.0  # deviations would be rounding errors only
  x, y = [
    np.asarray(z, np.float64) - np.mean(z, dtype=np.float64) for z in (x, y)
  ]
  return float((x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum()))


def _ranks(x):
  """Ranks from 0; ties get their mean rank. A NaN makes all ranks NaN."""
  if np.isnan(x).any():
    return np.full(len(x), np.nan)
  _, which, counts = np.unique(x, return_inverse=True, return_counts=True)
  return (np.cumsum(counts) - (counts + 1) / 2.0)[which]


def report(confusion: np.ndarray, names: List[str]) -> str:
  """Formats scores per class and a confusion matrix as text.

  With more than 100 classes, there is no matrix.

  Args:
    confusion: int [C, C], see `classification`.
    names: C classes.
  """
  lines, width = _score_lines(
    "label",
    "examples",
    names,
    np.diag(confusion),
    confusion.sum(0),
    confusion.sum(1),
  )
  if len(names) > _MOST_NAMES:
    return "\n".join(lines) + "\n"
  cells = max(map(len, names + [str(confusion.max())])) + 2
  lines += [
    "",
    "true labels down, predicted ones across:",
    " " * width + "".join(name.rjust(cells) for name in names),
  ]
  lines += [
    name.rjust(width) + "".join(str(n).rjust(cells) for n in row)
    for name, row in zip(names, confusion)
  ]
  return "\n".join(lines) + "\n"


def _score_lines(first, last, names, hits, claimed, true):
  """Returns a table of precision, recall and F1: (lines, column width).

  Args:
    first, last: titles of the first and last column.
    names: row titles.
    hits, claimed, true: per row, numbers of correct predictions, predictions
      and true instances.
  """
  width = max(map(len, names + ["precision"])) + 2
  lines = [
    "".join(
      title.rjust(width) for title in (first, "precision", "recall", "f1", last)
    )
  ]
  for name, *counts in zip(names, hits, claimed, true):
    lines.append(
      name.rjust(width)
      + "".join(
        ("%.4f" % score).rjust(width) for score in _precision_recall_f1(*counts)
      )
      + str(counts[-1]).rjust(width)
    )
  return lines, width


def table(*args: Any) -> str:
  """Returns the table of `_score_lines` as text."""
  return "\n".join(_score_lines(*args)[0]) + "\n"


def _precision_recall_f1(hits, claimed, true):
  return (
    hits / max(claimed, 1),
    hits / max(true, 1),
    2.0 * hits / max(claimed + true, 1),
  )


def entities(
  true: Iterable[Iterable[Tuple[int, int, str]]],
  claimed: Iterable[Iterable[Tuple[int, int, str]]],
) -> Tuple[Dict[str, float], str]:
  """Scores entities, which must match exactly in offsets and type.

  Args:
    true: the (start, end, type) of each text's entities.
    claimed: predicted entities of the same texts.

  Returns:
    precision, recall and F1 over all entities, and the mean F1 over types
    (macro), CLUENER's metric, 0/0 counting as 0; and a report by type.
  """
  counts: Dict[str, List[int]] = {}  # type -> [hits, claimed, true]
  for ours, theirs in zip(claimed, true):
    for column, counted in enumerate((set(ours) & set(theirs), ours, theirs)):
      for entity in counted:
        counts.setdefault(entity[-1], [0, 0, 0])[column] += 1
  kinds = sorted(counts)
  rows = [counts[kind] for kind in kinds]
  total = [sum(column) for column in zip([0, 0, 0], *rows)]
  results = dict(
    zip(("precision", "recall", "f1"), _precision_recall_f1(*total))
  )
  results["macro_f1"] = sum(
    _precision_recall_f1(*row)[2] for row in rows
  ) / max(len(rows), 1)
  return results, table(
    "kind", "entities", kinds + ["all"], *zip(*rows + [total])
  )
