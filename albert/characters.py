"""Character classes and normalization of BERT's tokenization.

Python's Unicode version varies: 11 in Python 3.7, 14 in Python 3.11. To make
tokens independent of it, the tables below have the changes from Unicode 11 to
14; tests/make_unicode_table.py prints them.

Tests: tests/test_tokenization.py.
"""

import functools
import unicodedata
from typing import Callable


def _codes(ranges):
  """Returns the code points of text such as "898-89f b55"."""
  codes = []
  for part in ranges.split():
    bounds = [int(bound, 16) for bound in part.split("-")]
    codes += range(bounds[0], bounds[-1] + 1)
  return codes


def _texts(pairs):
  """Returns dict, code point -> str, of text such as "32ff:4ee4,548c"."""
  return {
    int(code, 16): "".join(chr(int(x, 16)) for x in codes.split(","))
    for code, codes in (pair.split(":") for pair in pairs.split())
  }


_CATEGORIES = {
  code: category
  for category, ranges in (
    (
      "Mn",
      "898-89f 8ca-8d2 b55 c3c d81 eba 180f 1abf-1ace 1dfa a82c a9bd "
      "10eab-10eac 10f82-10f85 11070 11073-11074 110c2 111cf "
      "1193b-1193c 1193e 11943 119d4-119d7 119da-119db 119e0 16f4f "
      "16fe4 1cf00-1cf2d 1cf30-1cf46 1e130-1e136 1e2ae 1e2ec-1e2ef",
    ),
    ("Cf", "890-891 13430-13438"),
    (
      "Po",
      "61d c77 1b7d-1b7e 2e4f 2e52-2e5d 10ead 10f86-10f89 1145a 116b9 "
      "11944-11946 119e2 11fff 12ff1-12ff2 16fe2",
    ),
    ("So", "166d 1734"),
  )
  for code in _codes(ranges)
}
_COMBINING = frozenset(
  _codes(
    "898-89f 8ca-8d2 c3c eba 1715 1abf-1ace 1dfa a82c 10eab-10eac "
    "10f82-10f85 11070 1193d-1193e 11943 119e0 16ff0-16ff1 1e130-1e136 1e2ae "
    "1e2ec-1e2ef"
  )
)
_LOWER = _texts(
  "2c2f:2c5f a7ba:a7bb a7bc:a7bd a7be:a7bf a7c0:a7c1 a7c2:a7c3 a7c4:a794 "
  "a7c5:282 a7c6:1d8e a7c7:a7c8 a7c9:a7ca a7d0:a7d1 a7d6:a7d7 a7d8:a7d9 "
  "a7f5:a7f6 10570:10597 10571:10598 10572:10599 10573:1059a 10574:1059b "
  "10575:1059c 10576:1059d 10577:1059e 10578:1059f 10579:105a0 1057a:105a1 "
  "1057c:105a3 1057d:105a4 1057e:105a5 1057f:105a6 10580:105a7 10581:105a8 "
  "10582:105a9 10583:105aa 10584:105ab 10585:105ac 10586:105ad 10587:105ae "
  "10588:105af 10589:105b0 1058a:105b1 1058c:105b3 1058d:105b4 1058e:105b5 "
  "1058f:105b6 10590:105b7 10591:105b8 10592:105b9 10594:105bb 10595:105bc"
)
_DECOMPOSED = {
  "NFD": _texts("11938:11935,11930"),
  "NFKD": _texts(
    "32ff:4ee4,548c a7f2:43 a7f3:46 a7f4:51 ab69:28d 10781:2d0 10782:2d1 "
    "10783:e6 10784:299 10785:253 10787:2a3 10788:ab66 10789:2a5 1078a:2a4 "
    "1078b:256 1078c:257 1078d:1d91 1078e:258 1078f:25e 10790:2a9 10791:264 "
    "10792:262 10793:260 10794:29b 10795:127 10796:29c 10797:267 10798:284 "
    "10799:2aa 1079a:2ab 1079b:26c 1079c:1df04 1079d:a78e 1079e:26e "
    "1079f:1df05 107a0:28e 107a1:1df06 107a2:f8 107a3:276 107a4:277 107a5:71 "
    "107a6:27a 107a7:1df08 107a8:27d 107a9:27e 107aa:280 107ab:2a8 107ac:2a6 "
    "107ad:ab67 107ae:2a7 107af:288 107b0:2c71 107b2:28f 107b3:2a1 107b4:2a2 "
    "107b5:298 107b6:1c0 107b7:1c1 107b8:1c2 107b9:1df0a 107ba:1df1e "
    "11938:11935,11930 1f16c:4d,52 1fbf0:30 1fbf1:31 1fbf2:32 1fbf3:33 "
    "1fbf4:34 1fbf5:35 1fbf6:36 1fbf7:37 1fbf8:38 1fbf9:39"
  ),
}


def category(char: str) -> str:
  """Returns the general category; exact for those that matter to BERT."""
  return _CATEGORIES.get(ord(char)) or unicodedata.category(char)


def is_combining(char: str) -> bool:
  return ord(char) in _COMBINING or bool(unicodedata.combining(char))


def lower(text: str) -> str:
  return text.lower().translate(_LOWER)


def decompose(text: str, form: str) -> str:
  """Returns `text` in the normalization form "NFD" or "NFKD"."""
  # The parameter is a Literal, which Python 3.7 lacks.
  plain = unicodedata.normalize(form, text)  # type: ignore[arg-type]
  return plain.translate(_DECOMPOSED[form])


class Table(dict):
  """A lazily filled table for `str.translate`.

  Args:
    replacement: returns the text that replaces a character.
  """

  def __init__(self, replacement: Callable[[str], str]):
    super().__init__()
    self._replacement = replacement

  def __missing__(self, codepoint):
    value = self._replacement(chr(codepoint))
    self[codepoint] = value
    return value


def clean(char: str) -> str:
  """Drops control and format characters; replaces white space with spaces."""
  if char in "\t\n\r" or category(char) == "Zs":
    return " "
  if char == "\ufffd" or category(char) in ("Cc", "Cf"):
    return ""
  return char


def isolate(char: str) -> str:
  """Puts spaces around a character that is a token by itself."""
  return char if is_joined(char) else " %s " % char


def isolate_and_strip_accent(char: str) -> str:
  return "" if category(char) == "Mn" else isolate(char)


def is_chinese(char: str) -> bool:
  """Returns whether BERT treats `char` as Chinese: ideographs, not kana."""
  code = ord(char)
  return (
    0x4E00 <= code <= 0x9FFF
    or 0x3400 <= code <= 0x4DBF
    or 0x20000 <= code <= 0x2A6DF
    or 0x2A700 <= code <= 0x2CEAF
    or 0xF900 <= code <= 0xFAFF
    or 0x2F800 <= code <= 0x2FA1F
  )


def is_punctuation(char: str) -> bool:
  """Returns whether BERT splits at `char`: Unicode's P* and ASCII symbols."""
  code = ord(char)
  return (
    33 <= code <= 47
    or 58 <= code <= 64
    or 91 <= code <= 96
    or 123 <= code <= 126
    or category(char).startswith("P")
  )


@functools.lru_cache(maxsize=None)  # at most 1,114,112 characters
def is_joined(char: str) -> bool:
  """Returns whether `char` and its neighbours can form one basic token."""
  return not (is_chinese(char) or is_punctuation(char) or char.isspace())
