"""Windows over what is longer than a sequence, worked by hand."""

import pytest

from albert.tasks import windows


@pytest.mark.parametrize("num_tokens, room, stride, expected", [
    (0, 4, 2, [(0, 0)]), (1, 4, 2, [(0, 1)]), (4, 4, 2, [(0, 4)]),
    (5, 4, 2, [(0, 4), (2, 3)]), (8, 4, 2, [(0, 4), (2, 4), (4, 4)]),
    (7, 3, 3, [(0, 3), (3, 3), (6, 1)]),
    (7, 3, 99, [(0, 3), (3, 3), (6, 1)]),  # none is left out
    (3, 1, 1, [(0, 1), (1, 1), (2, 1)])])
def test_cut(num_tokens, room, stride, expected):
  assert list(windows.cut(num_tokens, room, stride)) == expected


@pytest.mark.parametrize("first, count, expected", [
    (2, 5, [-1, -1, 0, 1, 2, 1, 0, -1]), (0, 2, [0, 0, -1, -1, -1, -1, -1, -1]),
    (7, 1, [-1, -1, -1, -1, -1, -1, -1, 0])])
def test_context(first, count, expected):
  """Tokens on the side that has fewer, and a little for the length."""
  assert windows.context(0, 99, 1) < windows.context(0, 5, 2)  # but not more
  found = [windows.context(first, count, token) for token in range(8)]
  assert found == pytest.approx([
      least + 0.01 * count if least >= 0 else -1 for least in expected])


def test_rows():
  sequences = [([5, 6, 7], [0, 0, 1]), ([8], [0])]
  assert windows.pack_rows(sequences, 3) == {
      "input_ids": [5, 6, 7, 8, 0, 0, 0, 0, 0],
      "input_mask": [1, 1, 1, 1, 0, 0, 0, 0, 0],
      "segment_ids": [0, 0, 1, 0, 0, 0, 0, 0, 0]}
  assert sequences == [([5, 6, 7], [0, 0, 1]), ([8], [0])]
