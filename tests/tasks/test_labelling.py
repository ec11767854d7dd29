"""Labels as numbers, and their weights, worked by hand."""

import pytest

from albert.errors import InputError
from albert.tasks import labelling
from albert.tasks.classification import InputExample


def test_a_label_that_is_not_known():
  """Of those that are: see test_label_kinds.py."""
  with pytest.raises(InputError, match="dev.tsv:8: .*'b'.* a, c$"):
    labelling.label_ids([
        InputExample(0, "甲", None, label, "dev.tsv:%d" % line)
        for line, label in ((7, "a"), (8, "b"))], ["a", "c"])


@pytest.mark.parametrize("text, expected", [
    ("balanced", [10 / 18, 10 / 9, 10 / 3]),
    # As given, the mean weight is (6 + 1.5 + 4) / 10, and (12 + 3 + 1) / 10.
    ("d:4,b:c:.5", [1 / 1.15, 0.5 / 1.15, 4 / 1.15]),
    ("a:2", [2 / 1.6, 1 / 1.6, 1 / 1.6])])
def test_class_weights(text, expected):
  targets = [0] * 6 + [1] * 3 + [2]
  weights = labelling.class_weights(text, ["a", "b:c", "d"], targets)
  assert weights == pytest.approx(expected)
  assert sum(weights[target] for target in targets) == pytest.approx(10)


def test_a_class_that_never_occurs():
  """It weighs as one that occurs once, and the others as without it."""
  assert labelling.class_weights("balanced", ["a", "b"], [0, 0, 0, 0]) == (
      pytest.approx([1.0, 4.0]))


@pytest.mark.parametrize("text, labels, message", [
    ("c:1", "ab", "'c' of 'c:1'.* a, b"), ("a", "ab", "'' of 'a'.* a, b"),
    ("a:0", "ab", "'a:0'.*positive"), ("a:-1", "ab", "'a:-1'.*positive"),
    ("a:x", "ab", "'a:x'.*positive"), ("a:1,,", "ab", "'' of ''"),
    ("balanced", "", "numbers")])
def test_class_weights_that_make_no_sense(text, labels, message):
  with pytest.raises(InputError, match="--class_weights: .*" + message):
    labelling.class_weights(text, list(labels), [0, 1])
