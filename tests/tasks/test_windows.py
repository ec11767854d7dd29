"""Windows over long texts, worked by hand."""

import pytest
from vocabularies import Letters, written

from albert.tasks import windows


@pytest.mark.parametrize(
  "num_tokens, room, stride, expected",
  [
    (0, 4, 2, [(0, 0)]),
    (1, 4, 2, [(0, 1)]),
    (4, 4, 2, [(0, 4)]),
    (5, 4, 2, [(0, 4), (2, 3)]),
    (8, 4, 2, [(0, 4), (2, 4), (4, 4)]),
    (7, 3, 3, [(0, 3), (3, 3), (6, 1)]),
    (7, 3, 99, [(0, 3), (3, 3), (6, 1)]),  # no gaps
    (3, 1, 1, [(0, 1), (1, 1), (2, 1)]),
  ],
)
def test_cut(num_tokens, room, stride, expected):
  assert list(windows.cut(num_tokens, room, stride)) == expected


@pytest.mark.parametrize(
  "first, count, expected",
  [
    (2, 5, [-1, -1, 0, 1, 2, 1, 0, -1]),
    (0, 2, [0, 0, -1, -1, -1, -1, -1, -1]),
    (7, 1, [-1, -1, -1, -1, -1, -1, -1, 0]),
  ],
)
def test_context(first, count, expected):
  """Tokens on the shorter side, plus a little for the window's length."""
  assert windows.context(0, 99, 1) < windows.context(0, 5, 2)  # a tie-breaker
  found = [windows.context(first, count, token) for token in range(8)]
  assert found == pytest.approx(
    [least + 0.01 * count if least >= 0 else -1 for least in expected]
  )


TEXT = "abcdefghijklmnopqr"


@pytest.mark.parametrize(
  "way, length, text, expected",
  [
    (("head",), 10, TEXT, "<abcdefgh|"),
    (("head_tail",), 10, TEXT[:16], "<abklmnop|"),
    (("head_tail",), 9, TEXT[:14], "<abjklmn|"),
    # As in the paper.
    (
      ("head_tail",),
      512,
      "a" * 500 + "b" * 500,
      "<%s%s|" % ("a" * 128, "b" * 382),
    ),
    (("windows", 2), 10, TEXT, "<abcdefgh| <ijklmnop|"),
    (("windows", 3), 10, TEXT, "<abcdefgh| <ijklmnop| <klmnopqr|"),
    (("windows", 3), 9, TEXT, "<abcdefg| <hijklmn| <lmnopqr|"),
    (("windows", 3), 8, TEXT, "<abcdef| <ghijkl| <mnopqr|"),
    (("windows", 9), 15, TEXT, "<abcdefghijklm| <nopqr|"),
  ],
)
def test_what_is_kept(way, length, text, expected):
  make = windows.sequence_maker(Letters(), length, *way)
  for given, wanted in (
    (text, expected),
    ("", "<|"),
    ("ab", "<ab|"),
    (text[: length - 2], "<%s|" % text[: length - 2]),
  ):
    found = make(given)
    assert " ".join(written(ids) for ids, _ in found) == wanted
    assert not any(map(any, (segments for _, segments in found)))


def test_a_pair_is_cut_as_a_pair():
  ((ids, segments),) = windows.sequence_maker(Letters(), 10)("abcdefg", "xyz")
  assert (written(ids), segments) == ("<abcd|xyz|", [0] * 6 + [1] * 4)
