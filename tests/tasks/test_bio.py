"""The best label sequence, against brute force."""

import itertools

import numpy as np
import pytest
from refusals import refused

from albert.tasks import bio


@pytest.mark.parametrize("length", range(6))
def test_the_best_of_all_sequences(length):
  """Ties: the smallest label numbers, compared from the end."""
  rng = np.random.RandomState(length)
  every = np.array(list(itertools.product(range(4), repeat=length)), int)[
    :, ::-1
  ]
  ties = 0
  for number in range(40):
    scores, transitions, starts = [
      rng.randint(2, size=size) if number % 2 else rng.normal(size=size)
      for size in ([length, 4], [4, 4], [4])
    ]
    totals = (
      starts[every[:, :1]].sum(1)
      + scores[range(length), every].sum(1)
      + transitions[every[:, :-1], every[:, 1:]].sum(1)
    )
    ties += np.sum(totals == totals.max()) > 1
    found = bio.best_sequence(scores, transitions, starts)
    np.testing.assert_array_equal(found, every[totals.argmax()])
    assert found.dtype == np.int32
  assert ties > 5 or not length


def test_i_follows_b_or_i_of_its_own_kind_alone():
  labels = ["O", "B-a", "I-a", "B-b", "I-b"]
  follows, starts = bio.forbidden(labels)
  assert follows.dtype == starts.dtype == np.float32
  assert (starts == [0, 0, -1e4, 0, -1e4]).all()
  assert {(labels[i], labels[j]) for i, j in zip(*np.nonzero(follows))} == {
    (before, label)
    for before in labels
    for label in ("I-a", "I-b")
    if before[2:] != label[2:]
  }
  refused("'S-a'.*BIO", bio.forbidden, ["O", "S-a"])
