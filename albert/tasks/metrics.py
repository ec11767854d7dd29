"""Metrics of classification and regression, and the report of a confusion."""

import numpy as np
from absl import logging

# Those a best checkpoint can be chosen by; more is better.
METRICS = ("accuracy", "f1", "macro_f1", "matthews", "pearson", "spearman",
           "micro_f1", "exact")


_MOST_NAMES, _MOST_PAIRS = 100, 50  # see report


def classification(labels, predicted, num_labels, positive=None):
  """Computes the metrics of a classifier.

  Args:
    labels: int [N], the truth.
    predicted: int [N].
    num_labels: int, C.
    positive: int, the class that "f1" is of; None for no such metric.

  Returns:
    (dict, int [C, C]): accuracy, Matthews' correlation (its generalization to C
    classes: Gorodkin, Comput. Biol. Chem. 28, 2004), F1 averaged over the
    classes that are there (macro), F1 of the positive class; the confusion
    matrix, the truth down and the prediction across.
  """
  confusion = np.zeros([num_labels, num_labels], np.int64)
  np.add.at(confusion, (labels, predicted), 1)
  true, claimed = confusion.sum(1), confusion.sum(0)
  right, total = np.trace(confusion), confusion.sum()
  f1 = f1_scores(confusion)
  spread = np.sqrt(float(total**2 - (claimed**2).sum()) *
                   float(total**2 - (true**2).sum()))
  values = {
      "accuracy": right / total,
      "macro_f1": f1[true + claimed > 0].mean(),
      "matthews": (right * total - (true * claimed).sum()) / (spread or 1.0)}
  if positive is not None:
    values["f1"] = f1[positive]
  return {name: float(value) for name, value in values.items()}, confusion


def without_placeholders(examples, field, where):
  """Takes away the labels of a file to predict where they say nothing.

  Boards publish test sets with one and the same label, or answer, in all rows.

  Args:
    examples: list of namedtuple.
    field: str, name of the label, which is None where there is none.
    where: str, what to call the file in the log.

  Returns:
    list of namedtuple.
  """
  labels = {repr(getattr(example, field)) for example in examples}
  if len(labels) > 1:
    return examples
  if labels != {"None"}:
    logging.info("%s: %s in all rows is taken for a placeholder: not scored",
                 where, labels.pop())
  return [example._replace(**{field: None}) for example in examples]


def f1_scores(confusion):
  """Returns the F1 of each class, float [C]; 0 where a class is not there."""
  ends = confusion.sum(0) + confusion.sum(1)
  return 2.0 * np.diag(confusion) / np.maximum(ends, 1)


def regression(labels, predicted):
  """Compares two float [N].

  Returns:
    dict: Pearson's and Spearman's correlation, 0 with what does not vary, and
    the mean squared error.
  """
  return {"pearson": _correlation(labels, predicted),
          "spearman": _correlation(_ranks(labels), _ranks(predicted)),
          "mse": float(np.mean(np.subtract(predicted, labels,
                                           dtype=np.float64)**2))}


def separation(labels, scores):
  """Tells how well scores separate two classes.

  Args:
    labels: [N], 1 for what should score high, 0 for what should not; both are
      there.
    scores: float [N].

  Returns:
    dict: auc, the share of pairs of one of each class that are in order, ties
    counting half; accuracy, the best that a threshold has, and threshold: what
    scores at least so much is taken for class 1.
  """
  labels, scores = np.asarray(labels, np.int64), np.asarray(scores, np.float64)
  positives = labels.sum()
  negatives = len(labels) - positives
  pairs = _ranks(scores)[labels == 1].sum() - positives * (positives - 1) / 2.0
  thresholds = np.append(np.unique(scores), np.inf)
  order = np.argsort(scores, kind="stable")
  first = np.searchsorted(scores[order], thresholds)  # how many are below it
  ones_below = np.append(0, np.cumsum(labels[order]))[first]
  right = first - ones_below + positives - ones_below
  best = np.argmax(right)
  return {"auc": float(pairs / (positives * negatives)),
          "accuracy": float(right[best] / len(labels)),
          "threshold": float(min(thresholds[best], 1e9))}


def _correlation(x, y):
  if np.ptp(x) == 0 or np.ptp(y) == 0:
    return 0.0  # what rounding leaves of their deviations says nothing
  x, y = [np.asarray(z, np.float64) - np.mean(z, dtype=np.float64)
          for z in (x, y)]
  return float((x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum()))


def _ranks(x):
  """Ranks from 0; ties get their mean. All are NaN with one that is NaN."""
  if np.isnan(x).any():
    return np.full(len(x), np.nan)
  _, which, counts = np.unique(x, return_inverse=True, return_counts=True)
  return (np.cumsum(counts) - (counts + 1) / 2.0)[which]


def report(confusion, names):
  """Formats a confusion matrix: scores of each class, then the matrix.

  Of more than 100 classes, the 50 most frequent mistakes instead of the matrix.

  Args:
    confusion: int [C, C], see `classification`.
    names: list of str, the classes.

  Returns:
    str of lines.
  """
  lines, width = _score_lines("label", "examples", names, np.diag(confusion),
                              confusion.sum(0), confusion.sum(1))
  if len(names) > _MOST_NAMES:
    pairs = confusion * (1 - np.eye(len(names), dtype=np.int64))
    order = np.argsort(-pairs, axis=None, kind="stable")[:_MOST_PAIRS]
    lines += ["", "true label, predicted one, most frequent mistakes:"] + [
        "%s\t%s\t%d" % (names[i], names[j], pairs[i, j])
        for i, j in zip(*np.unravel_index(order, pairs.shape)) if pairs[i, j]]
    return "\n".join(lines) + "\n"
  cells = max(map(len, names + [str(confusion.max())])) + 2
  lines += ["", "true labels down, predicted ones across:",
            " " * width + "".join(name.rjust(cells) for name in names)]
  lines += [name.rjust(width) + "".join(str(n).rjust(cells) for n in row)
            for name, row in zip(names, confusion)]
  return "\n".join(lines) + "\n"


def _score_lines(first, last, names, hits, claimed, true):
  """Returns a table of precision, recall and F1: (lines, width of a column).

  Args:
    first, last: str, titles of the first and of the last column.
    names: list of str, of the rows.
    hits, claimed, true: int, for each row: how many were claimed rightly, were
      claimed, and are there.
  """
  width = max(map(len, names + ["precision"])) + 2
  lines = ["".join(title.rjust(width) for title in (
      first, "precision", "recall", "f1", last))]
  for name, *counts in zip(names, hits, claimed, true):
    lines.append(name.rjust(width) + "".join(
        ("%.4f" % score).rjust(width) for score in _precision_recall_f1(
            *counts)) + str(counts[-1]).rjust(width))
  return lines, width


def table(*args):
  """Returns the same as a str of lines; see `_score_lines`."""
  return "\n".join(_score_lines(*args)[0]) + "\n"


def _precision_recall_f1(hits, claimed, true):
  return (hits / max(claimed, 1), hits / max(true, 1),
          2.0 * hits / max(claimed + true, 1))


def entities(true, claimed):
  """Scores entities; right are those of the same place and kind.

  Args:
    true: list of lists of hashable (start, end, kind), for each text.
    claimed: list of the same kind and order.

  Returns:
    (dict of precision, recall and F1 of all entities together, and the mean F1
    of the kinds (macro), which CLUENER is judged by; report of each kind, a str
    of lines). What divides by 0 is 0.
  """
  counts = {}  # kind -> [hits, claimed, true]
  for ours, theirs in zip(claimed, true):
    for column, counted in enumerate((set(ours) & set(theirs), ours, theirs)):
      for entity in counted:
        counts.setdefault(entity[-1], [0, 0, 0])[column] += 1
  kinds = sorted(counts)
  rows = [counts[kind] for kind in kinds]
  total = [sum(column) for column in zip([0, 0, 0], *rows)]
  results = dict(zip(("precision", "recall", "f1"), _precision_recall_f1(
      *total)))
  results["macro_f1"] = sum(
      _precision_recall_f1(*row)[2] for row in rows) / max(len(rows), 1)
  return results, table("kind", "entities", kinds + ["all"],
                        *zip(*rows + [total]))
