"""Metrics, worked by hand or against scikit-learn."""

import numpy as np
import pytest
import sklearn.metrics

from albert.tasks import metrics
from albert.tasks.entity_files import Entity


@pytest.mark.filterwarnings("ignore:A single label was found")
@pytest.mark.parametrize("num_labels", [2, 3])
def test_classification_is_scored_as_by_scikit_learn(num_labels):
  rng = np.random.RandomState(0)
  for size in [1, 2, 3, 40] * 20:
    rows = rng.randint(num_labels, size=[2, size])
    values, confusion = metrics.classification(*rows, num_labels, 1)
    assert values == pytest.approx(
      {
        "accuracy": sklearn.metrics.accuracy_score(*rows),
        "macro_f1": sklearn.metrics.f1_score(*rows, average="macro"),
        "f1": sklearn.metrics.f1_score(*rows == 1, zero_division=0),
        "matthews": sklearn.metrics.matthews_corrcoef(*rows),
      }
    )
    np.testing.assert_array_equal(
      confusion,
      sklearn.metrics.confusion_matrix(*rows, labels=range(num_labels)),
    )
  assert "f1" not in metrics.classification([0], [0], 2)[0]


@pytest.mark.parametrize(
  "labels, predicted, expected",
  [
    ([1, 2, 3], [1, 2, 4], (3 / (2 * 14 / 3) ** 0.5, 1, 1 / 3)),
    # Ties: ranks 0, 1.5, 1.5, 3 against 0, 1, 2, 3.
    (
      [5, 6, 6, 9],
      [5, 6, 7, 8],
      (6 / (9 * 5) ** 0.5, 4.5 / (4.5 * 5) ** 0.5, 2 / 4),
    ),
    ([1, 2], [3, 3], (0, 0, 2.5)),
    ([2], [4], (0, 0, 4)),  # constant
    ([0.1] * 3, [0.3] * 3, (0, 0, 0.04)),
    ([1, 2, 3], [1, 3, np.nan], (np.nan, np.nan, np.nan)),
    # Small differences of large numbers, in float32.
    ([1e6, 1e6 + 2], np.float32([1e6 + 1, 1e6 + 3]), (1, 1, 1)),
  ],
)
def test_regression(labels, predicted, expected):
  assert metrics.regression(labels, predicted) == pytest.approx(
    dict(zip(("pearson", "spearman", "mse"), expected)), nan_ok=True
  )


def test_report():
  # Rows are the truth: recall is by row, precision by column.
  lines = metrics.report(np.array([[3, 1], [0, 0]]), ["a", "b"]).split("\n")
  assert [line.split() for line in lines[:3] + lines[-3:-1]] == [
    ["label", "precision", "recall", "f1", "examples"],
    ["a", "1.0000", "0.7500", "0.8571", "4"],
    ["b", "0.0000", "0.0000", "0.0000", "0"],
    ["a", "3", "1"],
    ["b", "0", "0"],
  ]
  # No matrix of many classes.
  lines = metrics.report(
    9 * np.eye(5000, dtype=np.int64), list(map(str, range(5000)))
  ).splitlines()
  assert len(lines) == 1 + 5000


def test_entities():
  true = [[Entity(0, 2, "a"), Entity(3, 4, "b")], [Entity(0, 1, "a")], []]
  claimed = [
    [Entity(0, 2, "a"), Entity(3, 4, "a")],
    [Entity(0, 1, "a")],
    [Entity(0, 2, "c")],
  ]
  found, report = metrics.entities(true, claimed)
  assert found == pytest.approx(
    {"precision": 0.5, "recall": 2 / 3, "f1": 4 / 7, "macro_f1": 0.8 / 3}
  )
  assert [line.split() for line in report.splitlines()] == [
    ["kind", "precision", "recall", "f1", "entities"],
    ["a", "0.6667", "1.0000", "0.8000", "2"],
    ["b", "0.0000", "0.0000", "0.0000", "1"],
    ["c", "0.0000", "0.0000", "0.0000", "0"],
    ["all", "0.5000", "0.6667", "0.5714", "3"],
  ]
  assert metrics.entities([[]], [[]])[0] == dict.fromkeys(found, 0.0)


@pytest.mark.parametrize(
  "labels, scores, threshold",
  [
    ([0, 1], [0.1, 0.9], 0.9),
    ([1, 0], [0.1, 0.9], 0.1),
    ([1, 0, 0], [0.5] * 3, 1e9),  # no positives
    ([0, 1, 0, 1, 1, 0, 0, 0], [0.2, 0.6, 0.6, 1, 0.6, 0.4, 0.6, 0.6], 1),
  ],
)
def test_separation(labels, scores, threshold):
  found = metrics.separation(labels, scores)
  assert found == pytest.approx(
    {
      "auc": sklearn.metrics.roc_auc_score(labels, scores),
      "accuracy": max(
        np.mean((np.array(scores) >= t) == labels) for t in [*scores, threshold]
      ),
      "threshold": threshold,
    }
  )


def test_the_temperature_is_that_of_the_labels():
  rng = np.random.RandomState(0)
  logits = rng.normal(size=[5000, 3])
  labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)  # Gumbel-max
  found = metrics.best_temperature(4 * logits, labels)
  assert found == pytest.approx(4, rel=0.1)

  def loss(temperature):
    z = 4 * logits / temperature
    return np.mean(np.log(np.exp(z).sum(1)) - z[range(5000), labels])

  assert loss(found) < min(loss(1.01 * found), loss(0.99 * found))
