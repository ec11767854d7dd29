"""Metrics, worked by hand and against scikit-learn and SciPy."""

import numpy as np
import pytest

from albert.tasks import metrics


def test_worked_by_hand():
  values, confusion = metrics.classification(
      np.array([1, 1, 1, 0, 0, 0, 0, 0]), np.array([1, 1, 0, 1, 0, 0, 0, 0]), 2)
  np.testing.assert_array_equal(confusion, [[4, 1], [1, 2]])
  assert values == pytest.approx({
      "accuracy": 6 / 8, "f1": 2 * 2 / (3 + 3),
      "macro_f1": (2 * 4 / (5 + 5) + 2 * 2 / (3 + 3)) / 2,
      "matthews": (4 * 2 - 1 * 1) / (5 * 3 * 5 * 3) ** 0.5})
  assert metrics.regression([1, 2, 3], [1, 2, 4]) == pytest.approx({
      "mse": 1 / 3,
      "pearson": 3 / (2 * 14 / 3) ** 0.5, "spearman": 1.0})
  # ties: ranks 0, 1.5, 1.5, 3 against 0, 1, 2, 3
  assert metrics.regression([5, 6, 6, 9], [1, 2, 3, 4])["spearman"] == (
      pytest.approx(4.5 / (4.5 * 5) ** 0.5))


def test_what_never_varies():
  values, _ = metrics.classification(np.array([0, 1]), np.array([1, 1]), 3)
  assert values == pytest.approx({
      "accuracy": 0.5, "macro_f1": (0 + 2 / 3) / 2, "matthews": 0.0})
  assert metrics.regression([1, 2], [3, 3]) == {
      "pearson": 0, "spearman": 0, "mse": 2.5}


@pytest.mark.parametrize("num_labels", [2, 7])
def test_against_scikit_learn(num_labels):
  sklearn = pytest.importorskip("sklearn.metrics")
  stats = pytest.importorskip("scipy.stats")
  rng = np.random.RandomState(num_labels)
  labels = rng.randint(num_labels, size=500)
  predicted = np.where(rng.rand(500) < 0.6, labels,
                       rng.randint(num_labels, size=500))
  values, confusion = metrics.classification(labels, predicted, num_labels)
  np.testing.assert_array_equal(
      confusion, sklearn.confusion_matrix(labels, predicted))
  expected = {
      "accuracy": sklearn.accuracy_score(labels, predicted),
      "macro_f1": sklearn.f1_score(labels, predicted, average="macro"),
      "matthews": sklearn.matthews_corrcoef(labels, predicted)}
  if num_labels == 2:
    expected["f1"] = sklearn.f1_score(labels, predicted)
  assert values == pytest.approx(expected)
  assert metrics.regression(labels, predicted) == pytest.approx({
      "pearson": stats.pearsonr(labels, predicted)[0],
      "spearman": stats.spearmanr(labels, predicted)[0],
      "mse": sklearn.mean_squared_error(labels, predicted)})


def test_report():
  lines = metrics.report(np.array([[4, 1], [1, 2]]), ["no", "yes"]).split("\n")
  assert lines[2].split() == ["yes", "0.6667", "0.6667", "0.6667", "3"]
  assert lines[-2].split() == ["yes", "1", "2"]


def test_separation_against_all_pairs_and_all_thresholds():
  rng = np.random.RandomState(4)
  for _ in range(5):
    labels = rng.permutation([0] * 9 + [1] * 6)
    scores = rng.randint(5, size=15) / 4.0  # with ties
    found = metrics.separation(labels, scores)
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[labels == 1]
             for b in scores[labels == 0]]
    assert found["auc"] == pytest.approx(np.mean(pairs))
    accuracies = [np.mean((scores >= t) == labels) for t in [*scores, 9.0]]
    assert found["accuracy"] == pytest.approx(max(accuracies))
    assert np.mean((scores >= found["threshold"]) == labels) == (
        pytest.approx(found["accuracy"]))
