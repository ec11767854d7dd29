"""Single characters, as BERT's tokenization treats them."""

import string

import pytest

from albert import characters


@pytest.mark.parametrize("first, last", [
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF),
    (0x2A700, 0x2CEAF), (0x2F800, 0x2FA1F)])
def test_the_blocks_of_ideographs(first, last):
  codes = first - 1, first, last, last + 1
  assert [characters.is_chinese(chr(code)) for code in codes] == [
      False, True, True, False]
  # Ideographic zero, kana, bopomofo, hangul, full-width forms, letters.
  assert not any(map(characters.is_chinese, "〇あアㄅ가０Ａa1,"))


@pytest.mark.parametrize("chars, cleaned", [
    (" \t\n\r\u00a0\u1680\u2003\u2009\u202f\u205f\u3000", " "),
    # Control and format characters.
    ("\x00\x07\x0b\x0c\x1b\x1c\x1f\x7f\x85\u00ad\u200b\u200d\u200e\u2060\ufeff"
     "\ufffd\U000e0041", ""),
    # Kept, as what is not assigned and private use are; two of them end lines,
    # and split later.
    ("a中é,$\u0301\u2028\u2029\uffff\ue000\U000f0000", None)])
def test_white_space_and_what_is_dropped(chars, cleaned):
  assert {char: characters.clean(char) for char in chars} == {
      char: char if cleaned is None else cleaned for char in chars}


def test_punctuation():
  """All of ASCII's symbols, though Unicode calls $+<=>^`|~ none."""
  assert [char for char in map(chr, range(128)) if characters.is_punctuation(
      char)] == sorted(string.punctuation)
  assert all(map(characters.is_punctuation, "¡·—…“”、。《》！，：？・"))
  assert not any(map(characters.is_punctuation, "€£×°→＄＋～a1中 "))


def test_what_is_a_token_by_itself():
  isolated = {"a": "a", "1": "1", "é": "é", "가": "가", "€": "€", "中": " 中 ",
              ",": " , ", "$": " $ ", "。": " 。 ", "\u2028": " \u2028 "}
  assert {char: characters.isolate(char) for char in isolated} == isolated
  assert characters.isolate("\u0301") == "\u0301"
  isolated["\u0301"] = isolated["\u0941"] = ""  # accents: Mn
  isolated["\u093f"] = "\u093f"  # a vowel sign that takes room: Mc
  assert {char: characters.isolate_and_strip_accent(char)
          for char in isolated} == isolated


def test_a_table_asks_once_for_each_character():
  asked = []
  table = characters.Table(lambda char: asked.append(char) or char * 2)
  assert "aba".translate(table) + "ab".translate(table) == "aabbaaaabb"
  assert asked == ["a", "b"]
