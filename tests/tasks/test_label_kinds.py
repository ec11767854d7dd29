"""Kinds of labels: targets, answers and scores, worked by hand."""

import numpy as np
import pytest
from refusals import refused

from albert.tasks import label_kinds, label_sets
from albert.tasks.classification import InputExample


def test_errors_and_confidence():
  kind = label_kinds.OneLabel(["a", "b", "c"])
  probabilities = np.array(
    [[0.5, 0.25, 0.25], [0.1, 0.2, 0.7], [0.8, 0.1, 0.1]]
  )
  logits = (np.log(probabilities) + 3).astype(np.float32)
  np.testing.assert_allclose(
    kind.errors(probabilities, [1, 2, 0]), [0.75, 0.3, 0.2]
  )
  results, report = kind.score(logits, np.array([1, 2, 0]))
  # The prediction at 0.5 is wrong, those at 0.7 and 0.8 are right.
  assert results["calibration_error"] == pytest.approx((0.5 + 0.3 + 0.2) / 3)
  assert "0.70    0.6667    1.0000" in report and "0.90  " not in report
  numbers = label_kinds.Numbers()
  assert list(numbers.errors(np.array([[1.0], [2.0]]), [1, 4])) == [0, 2]


@pytest.mark.parametrize(
  "labels, counts, chosen, positive",
  [
    ("垃圾 正常", {"垃圾": 10, "正常": 90}, None, "垃圾"),
    ("垃圾 正常", {"垃圾": 90, "正常": 10}, None, "正常"),
    ("bad good", {"bad": 5, "good": 5}, None, "good"),
    ("bad good", {"bad": 5}, None, "good"),
    ("0 1", {"0": 1}, None, "1"),
    ("True False", {"True": 9}, None, "True"),
    ("是 否", {}, None, "是"),
    ("0 1", {}, "0", "0"),
    ("0 1", {}, "2", None),
    ("a b c", {}, "a", None),
  ],
)
def test_which_label_is_positive(labels, counts, chosen, positive):
  args = labels.split(), counts, chosen
  if positive:
    assert label_kinds.positive_label(*args) == positive
  else:
    refused("--positive_label=%s " % chosen, label_kinds.positive_label, *args)


def test_f1_is_of_the_positive_label():
  logits = np.array([[0.0, 1.0]] * 10)  # both 垃圾 are missed
  for positive, f1 in (("垃圾", 0.0), ("正常", 2 * 8 / 18)):
    results, report = label_kinds.OneLabel(["垃圾", "正常"], positive).score(
      logits, (np.arange(10) > 1).astype(int)
    )
    assert results["f1"] == pytest.approx(f1)
    assert report.endswith("\nf1 is for the label %s\n" % positive)


def test_great_logits_do_not_overflow():
  logits = np.array([[1e4, -1e4], [3e38, 0]], np.float32)
  found = label_kinds.log_softmax(logits)
  np.testing.assert_array_equal(np.exp(found), [[1, 0]] * 2)
  np.testing.assert_array_equal(found[0], [0, -2e4])
  assert logits[0, 0] == 1e4  # the input is not modified
  kind = label_kinds.SeveralLabels(["a", "b"])
  np.testing.assert_array_equal(kind.values(logits), [[1, 0], [1, 0.5]])
  assert kind.score(logits[:1], [(1,)])[0]["loss"] == 1e4


def test_several_labels():
  kind = label_kinds.SeveralLabels(["a", "b", "c"], most=2)
  assert (kind.result, kind.feature) == ("labels", ("int", 2))
  assert kind.targets(
    [InputExample(0, "甲", None, labels) for labels in (("c", "a"), None, ())]
  ) == [(2, 0), (), ()]
  assert list(map(kind.label_ids, [(2, 0), (1,), ()])) == [
    [2, 0],
    [1, 3],
    [3, 3],
  ]
  logits = np.log([[3.0, 1 / 3, 1.0], [1.0, 4.0, 9.0]]).astype(np.float32)
  probabilities = np.array([[0.75, 0.25, 0.5], [0.5, 0.8, 0.9]])
  np.testing.assert_allclose(kind.values(logits), probabilities, rtol=1e-6)
  np.testing.assert_allclose(
    kind.errors(probabilities, [(0,), (0, 1)]), [1.0, 1.6]
  )
  # A probability equal to its threshold does not exceed it.
  assert kind.answers(probabilities) == ["a", "b|c"]
  truth = [(0, 1), (1, 2)]
  results, report = kind.score(logits, truth)
  assert report.splitlines()[2].split() == [
    "b",
    "1.0000",
    "0.5000",
    "0.6667",
    "2",
  ]
  assert results == pytest.approx(
    {
      "micro_f1": 2 * 3 / (3 + 4),
      "exact": 0.5,
      "macro_f1": (1 + 2 / 3 + 1) / 3,
      "loss": -np.log(0.75 * 0.25 * 0.5 * 0.5 * 0.8 * 0.9) / 6,
    },
    rel=1e-6,
  )
  kind.choose_thresholds(logits, truth, "each")
  assert kind.thresholds == pytest.approx({"a": 0.625, "b": 0.125, "c": 0.7})
  assert kind.answers(probabilities) == ["a|b", "b|c"]
  assert kind.score(logits, truth)[0]["exact"] == 1
  assert label_kinds.SeveralLabels(["a", "b"], {"a": 0.2, "b": 0.9}).answers(
    [[0.3, 0.8]]
  ) == ["a"]


@pytest.mark.parametrize(
  "find, labels, message",
  [
    (label_kinds.label_ids, ("a", "b"), "'b'.* a, c$"),
    (label_sets.targets, (("a",), ("a", "b")), "'b' .*--labels"),
  ],
)
def test_a_label_that_is_not_known(find, labels, message):
  refused(
    "^dev.tsv:8: .*" + message,
    find,
    [
      InputExample(0, "甲", None, label, "dev.tsv:%d" % line)
      for line, label in enumerate(labels, 7)
    ],
    ["a", "c"],
  )


@pytest.mark.parametrize(
  "text, counts, expected",
  [
    ("balanced", [6, 3, 1], [10 / 18, 10 / 9, 10 / 3]),
    # An absent class weighs like a single example; others are unaffected.
    ("balanced", [4, 0], [1, 4]),
    # Before scaling, the mean weight is (6 + 1.5 + 4) / 10; (12 + 3 + 1) / 10.
    ("d:4,b:c:.5", [6, 3, 1], [1 / 1.15, 0.5 / 1.15, 4 / 1.15]),
    ("a:2", [6, 3, 1], [2 / 1.6, 1 / 1.6, 1 / 1.6]),
  ],
)
def test_class_weights(text, counts, expected):
  targets = np.repeat(range(len(counts)), counts)
  weights = label_kinds.class_weights(
    text, ["a", "b:c", "d"][: len(counts)], targets
  )
  assert weights == pytest.approx(expected)
  assert np.take(weights, targets).mean() == pytest.approx(1)


@pytest.mark.parametrize(
  "text, message",
  [
    ("c:1", "'c' of 'c:1'.* a, b"),
    ("a", "'' of 'a'.* a, b"),
    *(
      ("a:" + weight, "'a:%s'.*positive" % weight)
      for weight in "0 -1 x".split()
    ),
    ("a:1,,", "'' of ''"),
    (None, "numbers"),
  ],
)
def test_class_weights_that_make_no_sense(text, message):
  refused(
    "--class_weights: .*" + message,
    label_kinds.class_weights,
    text or "balanced",
    ["a", "b"] if text else [],
    [0, 1],
  )
