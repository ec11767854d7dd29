"""Characters as BERT's tokenization treats them."""

import functools
import unicodedata


class Table(dict):
  """A table for `str.translate`, filled as characters turn up."""

  def __init__(self, replacement):
    super().__init__()
    self._replacement = replacement

  def __missing__(self, codepoint):
    value = self._replacement(chr(codepoint))
    self[codepoint] = value
    return value


def clean(char):
  """Drops control characters and makes every kind of space a space."""
  if char in "\t\n\r" or unicodedata.category(char) == "Zs":
    return " "
  if char == "\ufffd" or unicodedata.category(char).startswith("C"):
    return ""
  return char


def isolate(char):
  """Puts spaces around what is a token by itself."""
  return char if is_joined(char) else " %s " % char


def isolate_and_strip_accent(char):
  return "" if unicodedata.category(char) == "Mn" else isolate(char)


def is_chinese(char):
  """Whether `char` is a CJK ideograph (no kana, no hangul), as BERT counts."""
  code = ord(char)
  return (0x4E00 <= code <= 0x9FFF or 0x3400 <= code <= 0x4DBF or
          0x20000 <= code <= 0x2A6DF or 0x2A700 <= code <= 0x2CEAF or
          0xF900 <= code <= 0xFAFF or 0x2F800 <= code <= 0x2FA1F)


def is_punctuation(char):
  """Whether BERT splits at `char`: Unicode's P* and ASCII's symbols."""
  code = ord(char)
  return (33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or
          123 <= code <= 126 or unicodedata.category(char).startswith("P"))


@functools.lru_cache(maxsize=None)  # there are 1,114,112 characters
def is_joined(char):
  """Whether `char` makes one basic token with neighbours of its kind."""
  return not (is_chinese(char) or is_punctuation(char) or char.isspace())
