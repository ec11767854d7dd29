"""What of a long text is read."""

import pytest
from vocabularies import Letters, written

from albert.tasks import long_texts


@pytest.mark.parametrize("way, length, expected", [
    (("head",), 10, "<abcdefgh|"), (("head_tail",), 10, "<abklmnop|"),
    (("head_tail",), 9, "<abjklmn|"),
    (("windows", 2), 10, "<abcdefgh| <ijklmnop|"),
    (("windows", 3), 10, "<abcdefgh| <ijklmnop| <klmnopqr|"),
    (("windows", 3), 9, "<abcdefg| <hijklmn| <lmnopqr|"),
    (("windows", 3), 8, "<abcdef| <ghijkl| <mnopqr|"),
    (("windows", 9), 15, "<abcdefghijklm| <nopqr|")])
def test_what_is_kept(way, length, expected):
  text = "abcdefghijklmnopqr"
  if way == ("head_tail",):
    text = text[:2 * length - 4]
  make = long_texts.sequence_maker(Letters(), length, *way)
  for given, wanted in ((text, expected), ("", "<|"), ("ab", "<ab|"),
                        (text[:length - 2], "<%s|" % text[:length - 2])):
    found = make(given)
    assert " ".join(written(ids) for ids, _ in found) == wanted
    assert not any(map(any, (segments for _, segments in found)))


def test_beginning_and_end_of_512():
  """As in the paper."""
  text = "a" * 500 + "b" * 500
  (ids, _), = long_texts.sequence_maker(Letters(), 512, "head_tail")(text)
  assert written(ids) == "<" + "a" * 128 + "b" * 382 + "|"


def test_a_pair_is_cut_as_a_pair():
  (ids, segments), = long_texts.sequence_maker(Letters(), 10)("abcdefg", "xyz")
  assert (written(ids), segments) == ("<abcd|xyz|", [0] * 6 + [1] * 4)
