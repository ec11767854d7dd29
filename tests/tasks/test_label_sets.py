"""Multi-label classification: files, thresholds, flags."""

import numpy as np
import pytest
from scripting import fail
from trained_models import command

from albert.tasks import label_sets


@pytest.mark.parametrize(
  "value, labels",
  [
    ("a|b", ("a", "b")),
    (" a | b ", ("a", "b")),
    ("", ()),
    ("|", ()),
    ('["a|b", "c"]', ("a|b", "c")),
    (["a", 1], ("a", "1")),
    ([], ()),
    ("a|a", ("a",)),
    ("[1, 0, 0]", None),
    ("1|0|0|1", None),
    ([True, False], None),
    ("0|1", ("0", "1")),
    ("[1, [2]]", None),
    ("[a", None),
    (5, None),
    ({"a": 1}, None),
  ],
)
def test_labels_in_files(value, labels):
  try:
    found = label_sets.split(value)
  except ValueError:
    found = None
  assert found == labels


def test_no_threshold_is_better():
  def f1(claimed, truth):
    return 2.0 * (claimed & truth).sum() / max(claimed.sum() + truth.sum(), 1)

  rng = np.random.RandomState(3)
  probabilities = rng.randint(1, 20, [40, 5]) / 20.0  # with ties
  truth = rng.randint(0, 2, probabilities.shape)
  one = label_sets.choose_thresholds(probabilities, truth, "one")
  assert len(one) == 5 and len(set(one)) == 1
  each = label_sets.choose_thresholds(probabilities, truth, "each")
  for p, y, threshold in [(probabilities, truth == 1, one[0])] + list(
    zip(probabilities.T, truth.T == 1, each)
  ):
    assert f1(p > threshold, y) == pytest.approx(
      max(f1(p > t, y) for t in np.arange(0, 41) / 40.0)
    )
    # Rounding cannot move a probability across it.
    assert np.abs(p - threshold).min() > 0.01
  assert (
    label_sets.choose_thresholds(probabilities, np.zeros_like(truth), "each")
    == [0.5] * 5
  )


@pytest.mark.slow
def test_what_does_not_go_together(tmp_path):
  for message, kind, *more in (
    ("--multi_label .*numbers", "numbers", "--multi_label"),
    ("--class_weights .*--multi_label", "several", "--class_weights=balanced"),
    (
      "--metric_for_best=acc",
      "several",
      "--do_eval",
      "--metric_for_best=accuracy",
    ),
    ("train.tsv:3: .*'北京'.* 上海, 西安", "several", "--labels=上海,西安"),
    ("--long_text=windows .*labels", "numbers", "--long_text=windows"),
  ):
    fail(message, *command(tmp_path, kind, "--do_train", *more))


def test_labels_that_look_like_several_or_the_same():
  assert label_sets.joined(
    ["外观", "价格", "外观,价格", "a/b", "价格、外观"]
  ) == ["价格、外观", "外观,价格"]
  assert label_sets.alike(
    ["A", "a", "Ａ", "b c", "bc", "1", "1.0", "10", "d"]
  ) == [("1", "1.0"), ("A", "a", "Ａ"), ("b c", "bc")]
