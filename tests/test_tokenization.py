"""Facts about `tokenization.py`, worked by hand."""

import os
import re
import subprocess
import sys

import pytest

import tokenization

VOCAB_FILE = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
    "albert_config", "vocab.txt")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write_vocab(path, tokens):
  # "\n" on every system, and U+2028 must not become a line end.
  path.write_bytes("".join(t + "\n" for t in tokens).encode("utf-8"))
  return str(path)


@pytest.fixture(scope="module")
def wordpiece():
  return tokenization.WordPieceTokenizer(VOCAB_FILE)


@pytest.fixture
def make_tokenizer(tmp_path):
  """make_tokenizer(tokens) has the special tokens as ids 0-4, then these."""

  def make(tokens, **kwargs):
    path = write_vocab(tmp_path / "tiny_vocab.txt", SPECIAL + list(tokens))
    return tokenization.WordPieceTokenizer(path, **kwargs)

  return make


@pytest.fixture
def words(make_tokenizer):
  """words(text, alphabet): the words of a text, their pieces glued together.

  The vocabulary is made of single characters, so a word of the alphabet is
  never unknown and what is seen is only where words begin and end.
  """

  def split(text, alphabet="abcdefghi", **kwargs):
    letters = sorted(set(alphabet))
    tokenizer = make_tokenizer(letters + ["##" + c for c in letters], **kwargs)
    result = []
    for token in tokenizer.tokenize(text):
      if token.startswith("##"):
        result[-1] += token[2:]
      else:
        result.append(token)
    return result

  return split


# The vocabulary file.


def test_ids_of_the_chinese_vocabulary():
  vocab = tokenization.load_vocab(VOCAB_FILE)
  assert len(vocab) == 21128
  assert sorted(vocab.values()) == list(range(21128))
  expected = {
      "[PAD]": 0, "[unused1]": 1, "[unused99]": 99, "[UNK]": 100,
      "[CLS]": 101, "[SEP]": 102, "[MASK]": 103, "<S>": 104, "<T>": 105,
      "!": 106, "a": 143, "hello": 8701, "##ing": 8221}
  assert {token: vocab[token] for token in expected} == expected


def test_line_separator_entries_do_not_shift_later_ids():
  vocab = tokenization.load_vocab(VOCAB_FILE)
  assert vocab["\u2028"] == 343
  assert vocab["\u2030"] == 344
  assert vocab["##\u2028"] == 13502
  assert vocab["##\u2030"] == 13503
  assert vocab["##\U0001f60e"] == 21127


@pytest.mark.parametrize(
    "separator", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c"])
def test_only_a_newline_ends_an_entry(tmp_path, separator):
  path = write_vocab(tmp_path / "v.txt", ["a", separator, "b" + separator, "c"])
  assert tokenization.load_vocab(path) == {
      "a": 0, separator: 1, "b" + separator: 2, "c": 3}


def test_vocabulary_without_a_newline_at_its_end(tmp_path):
  path = tmp_path / "v.txt"
  path.write_bytes(b"a\nb")
  assert tokenization.load_vocab(str(path)) == {"a": 0, "b": 1}


@pytest.mark.parametrize("load", [
    tokenization.load_vocab, tokenization.WordPieceTokenizer,
    tokenization.SentencePieceTokenizer])
def test_missing_file_is_named(tmp_path, load):
  path = str(tmp_path / "not_here")
  with pytest.raises(FileNotFoundError, match=re.escape(path)):
    load(path)


def test_bad_vocabulary_is_named(tmp_path):
  path = tmp_path / "bad_vocab.txt"
  for content, reason in [
      (b"", "empty"), (b"a\nb\na\n", "'a'"), (b"a\n\xff\xfe\n", "UTF-8")]:
    path.write_bytes(content)
    with pytest.raises(ValueError, match=reason) as error:
      tokenization.load_vocab(str(path))
    assert str(path) in str(error.value)


def test_duplicate_entry_is_shown_with_both_lines(tmp_path):
  path = write_vocab(tmp_path / "v.txt", ["a", "b", "c", "b"])
  with pytest.raises(ValueError, match="'b'") as error:
    tokenization.load_vocab(path)
  numbers = re.findall(r"\d+", str(error.value).replace(path, ""))
  assert numbers == ["4", "2"]


def test_vocabulary_without_a_special_token_is_refused(tmp_path):
  path = write_vocab(
      tmp_path / "v.txt", [t for t in SPECIAL if t != "[MASK]"] + ["a"])
  with pytest.raises(ValueError, match=re.escape("[MASK]")) as error:
    tokenization.WordPieceTokenizer(path)
  assert path in str(error.value)


def test_bad_sentencepiece_model_is_named(tmp_path):
  path = tmp_path / "bad.model"
  path.write_bytes(b"not a model")
  with pytest.raises(ValueError, match=re.escape(str(path))):
    tokenization.SentencePieceTokenizer(str(path))


# Words.


def test_chinese_characters_are_words_of_their_own(words):
  alphabet = "ab\u535a\u63a8"
  assert words("ab\u535a\u63a8ba", alphabet) == ["ab", "\u535a", "\u63a8", "ba"]


@pytest.mark.parametrize("codepoint", [
    0x3400, 0x4DB5, 0x4E00, 0x9FA5, 0x20000, 0x2A6D6, 0x2A700, 0x2B734,
    0x2B740, 0x2B81D, 0x2B820, 0x2CEA1, 0xF900, 0xFAD9, 0x2F800, 0x2FA1D])
def test_ideographs_of_every_block_are_cut_out(words, codepoint):
  for lower in (True, False):
    assert words("a%sb" % chr(codepoint), do_lower_case=lower) == [
        "a", "[UNK]", "b"]


@pytest.mark.parametrize("codepoint", [
    0x3007,  # ideographic zero is a number to Unicode, outside the blocks
    0x3042, 0x30A2, 0x3105,  # hiragana, katakana, bopomofo
    0xAC00, 0xD7A3,  # hangul
    0x33FF, 0x4DC0, 0xA000, 0x2CEB0,  # the neighbours of the blocks
    0xFF10, 0xFF21])  # full-width forms
def test_other_east_asian_characters_stay_in_the_word(words, codepoint):
  assert words("a%sb c" % chr(codepoint)) == ["[UNK]", "c"]


def test_compatibility_ideograph_becomes_the_unified_one(words):
  # U+F900 is canonically equivalent to U+8C48; accents go by way of NFD.
  assert words("\uf900", "\u8c48\uf900") == ["\u8c48"]
  assert words("\uf900", "\u8c48\uf900", do_lower_case=False) == ["\uf900"]


def test_full_width_letters_are_lowered_but_not_folded(words):
  assert words("\uff21\uff22A", "\uff41\uff42ab") == ["\uff41\uff42a"]


def test_accents_are_stripped_in_both_spellings(words):
  assert words("\u00c0\u00c9\u00ef\u00f4\u00fc", "aeiou") == ["aeiou"]
  assert words("A\u0300E\u0301i\u0308o\u0302u\u0308", "aeiou") == ["aeiou"]
  # Two marks on one letter (Vietnamese), and the Turkish dotted capital.
  assert words("\u1ebe\u0130", "ei") == ["ei"]


def test_final_sigma_is_lowered_as_python_does(words):
  # As Google's BERT; Hugging Face's tokenizers write a plain sigma.
  assert words("\u039f\u03a3 \u03a3\u039f", "\u03bf\u03c3\u03c2") == [
      "\u03bf\u03c2", "\u03c3\u03bf"]


def test_letters_that_have_no_accent_stay(words):
  assert words("\u00df\u00f8\u0131", "\u00df\u00f8\u0131") == [
      "\u00df\u00f8\u0131"]


def test_spacing_marks_stay(words):
  # Devanagari "ki": the vowel sign is Mc, only Mn is an accent.
  assert words("\u0915\u093f", "\u0915\u093f") == ["\u0915\u093f"]
  assert words("\u0915\u0941", "\u0915\u0941") == ["\u0915"]


def test_cased_mode_keeps_case_and_accents(words):
  alphabet = "HhLlo\u00c4\u00e4a\u0308"
  assert words("H\u00c4Llo", alphabet, do_lower_case=False) == ["H\u00c4Llo"]
  assert words("ha\u0308", alphabet, do_lower_case=False) == ["ha\u0308"]
  assert words("H\u00c4Llo", alphabet) == ["hallo"]


def test_control_characters_vanish(words):
  for char in [
      "\x00", "\x07", "\x0b", "\x0c", "\x1b", "\x1c", "\x1f", "\x7f", "\x85",
      "\u00ad", "\u200b", "\u200d", "\u200e", "\u2060", "\ufeff",
      "\ufffd", "\uffff", "\ue000", "\U000f0000", "\U000e0041"]:
    assert words("a%sb" % char) == ["ab"], ascii(char)


def test_white_space_separates(words):
  for char in [" ", "\t", "\n", "\r", "\u00a0", "\u1680", "\u2003", "\u2009",
               "\u202f", "\u205f", "\u3000", "\u2028", "\u2029"]:
    text = char + "a" + char * 2 + "b" + char
    assert words(text) == ["a", "b"], ascii(char)
    assert words(text, do_lower_case=False) == ["a", "b"], ascii(char)


def test_nothing_gives_nothing(words):
  for text in ["", " ", " \t\r\n\u3000\u2028", "\x00\u200b\ufffd"]:
    assert words(text) == []


def test_every_punctuation_mark_is_a_word(words):
  # ASCII counts as a whole, though Unicode calls $+<=>^`|~ symbols.
  marks = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
  marks += "\u00a1\u00b7\u2014\u2026\u201c\u201d\u3001\u3002\u300a\u300b"
  marks += "\uff01\uff0c\uff1a\uff1f\u30fb"
  assert words("a" + "b".join(marks), "ab" + marks) == (
      ["a"] + list("b".join(marks)))
  assert words(marks, marks, do_lower_case=False) == list(marks)


def test_other_symbols_stay_in_the_word(words):
  symbols = "\u20ac\u00a3\u00d7\u00b0\u2192\uff04\uff0b\uff5e"
  assert words("a%sb" % symbols, "ab" + symbols) == ["a%sb" % symbols]


# Pieces.


def test_longest_piece_first(make_tokenizer):
  tokenizer = make_tokenizer(
      ["want", "##want", "##ed", "wa", "un", "runn", "##ing", ",", "##n"])
  assert tokenizer.tokenize("UNwant\u00e9d,running") == [
      "un", "##want", "##ed", ",", "runn", "##ing"]
  # One piece that is not there makes the whole word unknown, not its rest.
  assert tokenizer.tokenize("unwantedX running") == ["[UNK]", "runn", "##ing"]
  # Greedy: "want" is taken, though "wa" + "##n" would leave no better end.
  assert tokenizer.tokenize("wantn wan") == ["want", "##n", "wa", "##n"]


def test_a_continuation_does_not_begin_a_word(make_tokenizer):
  tokenizer = make_tokenizer(["a", "##b", "c"])
  assert tokenizer.tokenize("ab b ac") == ["a", "##b", "[UNK]", "[UNK]"]


def test_hundred_characters_is_the_longest_word(make_tokenizer):
  tokenizer = make_tokenizer(["a", "##a", ",", "\u4e2d"])
  assert tokenizer.tokenize("a" * 100) == ["a"] + ["##a"] * 99
  assert tokenizer.tokenize("a" * 101) == ["[UNK]"]
  # Counted after accents are gone, and by word, not by text.
  assert tokenizer.tokenize("\u00e1" * 100) == ["a"] + ["##a"] * 99
  assert tokenizer.tokenize("a" * 60 + "," + "a" * 60) == (
      ["a"] + ["##a"] * 59 + [","] + ["a"] + ["##a"] * 59)
  assert tokenizer.tokenize("\u4e2d" * 150) == ["\u4e2d"] * 150


def test_special_tokens_in_text_stay_whole(make_tokenizer):
  tokenizer = make_tokenizer(["a", "b", "[", "]", "sep", "mask", "unused1"])
  for token in SPECIAL:
    assert tokenizer.tokenize("A %s b" % token) == ["a", token, "b"]
    assert tokenizer.tokenize("a%sb" % token) == ["a", token, "b"]
    assert tokenizer.tokenize(token + token) == [token, token]
  assert tokenizer.tokenize("[sep] [ MASK ] [unused1]") == [
      "[", "sep", "]", "[", "mask", "]", "[", "unused1", "]"]
  assert tokenizer.tokenize_plain("a[MASK]b") == ["a", "[", "mask", "]", "b"]


def test_chinese_sentence(wordpiece):
  tokens = wordpiece.tokenize("\u6211\u7231Hello, \u4e2d\u56fd playing\u3002")
  assert tokens == ["\u6211", "\u7231", "hello", ",", "\u4e2d", "\u56fd",
                    "play", "##ing", "\u3002"]
  assert wordpiece.convert_tokens_to_ids(tokens) == [
      2769, 4263, 8701, 117, 704, 1744, 8942, 8221, 511]


# Ids.


def test_special_ids(wordpiece):
  assert wordpiece.vocab_size == 21128
  assert (wordpiece.pad_id, wordpiece.unk_id, wordpiece.cls_id,
          wordpiece.sep_id, wordpiece.mask_id) == (0, 100, 101, 102, 103)


def test_conversion_both_ways(wordpiece):
  tokens = ["[CLS]", "\u4e2d", "##ing", "[unused1]", "##\U0001f60e"]
  ids = [101, 704, 8221, 1, 21127]
  assert wordpiece.convert_tokens_to_ids(tokens) == ids
  assert wordpiece.convert_ids_to_tokens(ids) == tokens
  every_id = list(range(21128))
  assert wordpiece.convert_tokens_to_ids(
      wordpiece.convert_ids_to_tokens(every_id)) == every_id


def test_unknown_token_has_the_unknown_id(wordpiece):
  # Conversion looks up whole tokens: it neither lowers nor splits them.
  tokens = ["hello", "Hello", "hellohello", "##\u2603\u2603"]
  assert wordpiece.convert_tokens_to_ids(tokens) == [8701, 100, 100, 100]


def test_word_starts(wordpiece):
  starts = {"a": True, "\u4e2d": True, "[CLS]": True, "[MASK]": True, ",": True,
            "#": True, "##a": False, "##\u4e2d": False}
  assert {token: wordpiece.is_word_start(token) for token in starts} == starts


# Pairs.


@pytest.mark.parametrize("a, b, max_length, expected", [
    ([1, 2, 3, 4], [5, 6], 6, ([1, 2, 3, 4], [5, 6])),
    ([1, 2, 3, 4], [5, 6], 5, ([1, 2, 3], [5, 6])),
    ([1, 2, 3, 4], [5, 6], 4, ([1, 2], [5, 6])),
    ([1, 2, 3, 4], [5, 6], 3, ([1, 2], [5])),  # a tie: b loses
    ([1, 2, 3, 4], [5, 6], 1, ([1], [])),
    ([1, 2, 3, 4], [5, 6], 0, ([], [])),
    ([1, 2], [3, 4, 5, 6], 3, ([1, 2], [3])),
    ([], [3, 4, 5], 2, ([], [3, 4])),
    ([1, 2, 3], [], 2, ([1, 2], [])),
    ([1, 2, 3], None, 3, ([1, 2, 3], None)),
    ([1, 2, 3], None, 2, ([1, 2], None)),
    ([1, 2, 3], None, 0, ([], None)),
])
def test_truncate_pair(a, b, max_length, expected):
  given = list(a), b and list(b)
  assert tokenization.truncate_pair(a, b, max_length) == expected
  assert (a, b) == given  # the caller's lists are left alone


def test_truncate_pair_takes_one_item_after_another():
  for length_a in range(7):
    for length_b in range(7):
      for max_length in range(length_a + length_b + 2):
        a, b = list(range(length_a)), list(range(100, 100 + length_b))
        kept_a, kept_b = tokenization.truncate_pair(a, b, max_length)
        while len(a) + len(b) > max_length:
          (a if len(a) > len(b) else b).pop()
        assert (kept_a, kept_b) == (a, b)


@pytest.mark.parametrize("a, b, length, input_ids, segment_ids", [
    ([7, 8], [9], 10, [2, 7, 8, 3, 9, 3], [0, 0, 0, 0, 1, 1]),
    ([7, 8], [9], 6, [2, 7, 8, 3, 9, 3], [0, 0, 0, 0, 1, 1]),
    ([7, 8], [9], 5, [2, 7, 3, 9, 3], [0, 0, 0, 1, 1]),
    ([7, 8], [9], 4, [2, 7, 3, 3], [0, 0, 0, 1]),
    ([7, 8], [9], 3, [2, 3, 3], [0, 0, 1]),
    ([], [9], 4, [2, 3, 9, 3], [0, 0, 1, 1]),
    ([7, 8], None, 4, [2, 7, 8, 3], [0, 0, 0, 0]),
    ([7, 8], None, 3, [2, 7, 3], [0, 0, 0]),
    ([7, 8], None, 2, [2, 3], [0, 0]),
    ([], None, 2, [2, 3], [0, 0]),
])
def test_pack_pair(make_tokenizer, a, b, length, input_ids, segment_ids):
  tokenizer = make_tokenizer(["a", "b"])  # [CLS] is 2, [SEP] is 3
  packed = tokenization.pack_pair(tokenizer, a, b, length)
  assert tuple(packed) == (input_ids, segment_ids)


@pytest.mark.parametrize("text, expected", [
    ("在2018年Café!", ["在", "2018", "年", "Café", "!"]),
    (" cafe\u0301 x", ["cafe\u0301", "x"]),  # an accent of its own
    ("ＡＢ\u00a0中", ["Ａ", "Ｂ", "中"]),
    ("ΟΔΟΣ", ["Ο", "Δ", "Ο", "Σ"]),
    ("a\ufffdb", ["a\ufffdb"]),  # one token, of which a part was dropped
    ("\u0130x", ["\u0130", "x"]),  # lower case is two characters
    ("", []), (" \t", []),
])
def test_where_tokens_stand(wordpiece, text, expected):
  tokens, spans = wordpiece.tokenize_with_offsets(text)
  assert tokens == wordpiece.tokenize_plain(text)
  assert [text[start:end] for start, end in spans] == expected


def test_no_tensorflow_is_needed():
  done = subprocess.run(
      [sys.executable, "-c", "import sys; sys.modules['tensorflow'] = None\n"
       "import tokenization\n"
       "tokenizer = tokenization.create_tokenizer(%r)\n"
       "assert tokenizer.tokenize('好') == ['好']" % VOCAB_FILE],
      cwd=os.path.dirname(tokenization.__file__), stderr=subprocess.PIPE)
  assert not done.returncode, done.stderr.decode()
