"""What of a long text is read."""

import pytest
from vocabularies import Letters, written

from albert.predict import load
from albert.tasks import long_texts


@pytest.mark.parametrize("way, length, expected", [
    (("head",), 10, "<abcdefgh|"), (("head_tail",), 10, "<abklmnop|"),
    (("head_tail",), 9, "<aijklmn|"),  # a quarter of 7
    (("windows", 2), 10, "<abcdefgh| <ijklmnop|"),
    (("windows", 3), 10, "<abcdefgh| <ijklmnop| <qr|")])
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


def test_a_pair_is_cut_as_a_pair():
  (ids, segments), = long_texts.sequence_maker(Letters(), 10)("abcdefg", "xyz")
  assert (written(ids), segments) == ("<abcd|xyz|", [0] * 6 + [1] * 4)


@pytest.mark.full
def test_windows_are_read(trained):
  """Two of them, of 22 tokens, and nothing behind."""
  model = load(str(trained("windows").best))
  texts = ["北" * 60] + ["北" * place + "安" + "北" * (59 - place)
                        for place in (5, 25, 50)]
  probabilities = [[x.probability for x in found.candidates]
                   for found in model.predict(texts, 3)]
  assert probabilities[3] == pytest.approx(probabilities[0], abs=1e-6)
  for found in probabilities[1:3]:
    assert found != pytest.approx(probabilities[0], abs=1e-4)
  assert [model.is_cut((text,)) for text in ("北" * 44, "北" * 45)] == [
      False, True]
