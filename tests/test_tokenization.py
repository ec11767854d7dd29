"""Facts about `tokenization.py`, worked by hand."""

import re

import pytest
from vocabularies import SPECIAL, VOCAB_FILE, small_tokenizer, write_vocab

import tokenization
from albert.errors import InputError


@pytest.fixture(scope="module")
def wordpiece():
  return tokenization.WordPieceTokenizer(VOCAB_FILE)


def test_ids_of_the_chinese_vocabulary(wordpiece):
  vocab = tokenization.load_vocab(VOCAB_FILE)
  assert sorted(vocab.values()) == list(range(21128))
  expected = {
      "[PAD]": 0, "[unused1]": 1, "[unused99]": 99, "[UNK]": 100,
      "[CLS]": 101, "[SEP]": 102, "[MASK]": 103, "<S>": 104, "<T>": 105,
      "!": 106, "a": 143, "hello": 8701, "##ing": 8221,
      # Line separators are entries, and do not shift later ids.
      "\u2028": 343, "\u2030": 344, "##\u2028": 13502, "##\u2030": 13503,
      "##\U0001f60e": 21127}
  assert {token: vocab[token] for token in expected} == expected
  assert wordpiece.vocab_size == 21128
  assert (wordpiece.pad_id, wordpiece.unk_id, wordpiece.cls_id,
          wordpiece.sep_id, wordpiece.mask_id) == (0, 100, 101, 102, 103)
  # Conversion looks up whole tokens: it neither lowers nor splits them.
  tokens = ["[CLS]", "中", "##ing", "Hello", "hellohello", "##\u2603"]
  ids = [101, 704, 8221, 100, 100, 100]
  assert wordpiece.convert_tokens_to_ids(tokens) == ids
  assert wordpiece.convert_ids_to_tokens(ids) == tokens[:3] + ["[UNK]"] * 3
  every_id = list(range(21128))
  assert wordpiece.convert_tokens_to_ids(
      wordpiece.convert_ids_to_tokens(every_id)) == every_id
  starts = ["a", "中", "[CLS]", ",", "#"]
  assert all(map(wordpiece.is_word_start, starts))
  assert not any(map(wordpiece.is_word_start, ["##a", "##中"]))


def test_only_a_newline_ends_an_entry(tmp_path):
  separators = "\u2028\u2029\u0085\x0b\x0c\x1c"
  entries = ["a", *separators, *["b" + char for char in separators], "c"]
  path = write_vocab(tmp_path / "v.txt", entries)
  assert list(tokenization.load_vocab(path)) == entries
  (tmp_path / "v.txt").write_bytes(b"a\r\nb")
  assert tokenization.load_vocab(path) == {"a": 0, "b": 1}


@pytest.mark.parametrize("content, message", [
    (None, ""), (b"", ": .*empty"), (b"a\n\xff\xfe\n", ".*UTF-8"),
    (b"a\nb\nc\nb\n", ":4: .*'b'.* 2"),
    (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", r": .*\[MASK\]")])
def test_a_bad_vocabulary_is_named(tmp_path, content, message):
  path = tmp_path / "v.txt"
  if content is not None:
    path.write_bytes(content)
  with pytest.raises(FileNotFoundError if content is None else InputError,
                     match=re.escape(str(path)) + message):
    tokenization.WordPieceTokenizer(str(path))


@pytest.mark.parametrize("text, alphabet, expected, cased", [
    ("ab博推ba", "ab博推", "ab 博 推 ba", "ab 博 推 ba"),
    ("aアb あc", "abcアあ", "aアb あc", "aアb あc"),
    # U+F900 is canonically equivalent to U+8C48; accents go by way of NFD.
    ("\uf900", "\u8c48\uf900", "\u8c48", "\uf900"),
    # Full-width letters are lowered but not folded.
    ("ＡＢA", "ＡＢAａｂa", "ａｂa", "ＡＢA"),
    # Accents in both spellings, two on one letter, the Turkish dotted capital.
    ("ÀÉïôü A\u0300E\u0301i\u0308", "aeiou", "aeiou aei", "[UNK] [UNK]"),
    ("\u1ebe\u0130", "ei", "ei", "[UNK]"),
    ("HÄLlo ha\u0308", "HhLlaoÄä\u0308", "hallo ha", "HÄLlo ha\u0308"),
    # As Google's BERT; Hugging Face's tokenizers write a plain sigma.
    ("ΟΣ ΣΟ", "οσςΟΣ", "ος σο", "ΟΣ ΣΟ"),
    ("ßøı", "ßøı", "ßøı", "ßøı"),  # these have no accent
    # Devanagari "ki" and "ku": of vowel signs, Mn is an accent and Mc is not.
    ("\u0915\u093f \u0915\u0941", "\u0915\u093f\u0941",
     "\u0915\u093f \u0915", "\u0915\u093f \u0915\u0941"),
    ("a\x00b\u200bc \ufffd", "abc", "abc", "abc"),
    ("\u3000a\t\u2028b\r\n", "ab", "a b", "a b"),
    ("a,b$c。€d", "abcd,$。€", "a , b $ c 。 €d", "a , b $ c 。 €d"),
    (" \t\r\n\u3000\x00\u200b", "a", "", ""), ("", "a", "", "")])
def test_words(tmp_path, text, alphabet, expected, cased):
  """The vocabulary is single characters: no word of these is unknown."""
  letters = sorted(set(alphabet))
  for lower, words in ((True, expected), (False, cased)):
    tokenizer = small_tokenizer(
        tmp_path, letters + ["##" + char for char in letters],
        do_lower_case=lower)
    found = " ".join(tokenizer.tokenize(text)).replace(" ##", "")
    assert found == words, ascii(found)


@pytest.mark.parametrize("text, expected", [
    ("UNwantéd,running", "un ##want ##ed , runn ##ing"),
    # One piece that is not there makes the whole word unknown, not its rest.
    ("unwantedX running", "[UNK] runn ##ing"),
    # Greedy: "want" is taken, though "wa" + "##n" would leave no better end.
    ("wantn wan", "want ##n wa ##n"),
    # A continuation does not begin a word.
    ("ed una", "[UNK] [UNK]")])
def test_longest_piece_first(tmp_path, text, expected):
  tokenizer = small_tokenizer(tmp_path, (
      "want ##want ##ed wa un runn ##ing , ##n a").split())
  assert tokenizer.tokenize(text) == expected.split()


def test_two_hundred_characters_is_the_longest_word(tmp_path):
  tokenizer = small_tokenizer(tmp_path, ["a", "##a", ",", "中"])
  assert tokenizer.tokenize("a" * 201) == ["[UNK]"]
  # Counted after accents are gone, and by word, not by text.
  long = ["a"] + ["##a"] * 199
  assert tokenizer.tokenize("á" * 200 + "," + "a" * 200) == long + [","] + long
  assert tokenizer.tokenize("中" * 250) == ["中"] * 250


@pytest.mark.parametrize("text, alphabet, expected, cased", [
    # Private use, unassigned in any Unicode, and a newer emoji stay.
    ("a\ue000b \U000e1000 \U0001fae0", "ab", "[UNK] [UNK] [UNK]",
     "[UNK] [UNK] [UNK]"),
    # Newer than Python 3.7: a mark, a format character, a capital, punctuation,
    # a letter of two parts.
    ("a\u0898b", "ab\u0898", "ab", "a\u0898b"),
    ("a\u0890b", "ab", "ab", "ab"),
    ("\ua7c7", "\ua7c7\ua7c8", "\ua7c8", "\ua7c7"),
    ("a\u2e52b", "ab\u2e52", "a \u2e52 b", "a \u2e52 b"),
    ("\U00011938", "\U00011935\U00011930\U00011938",
     "\U00011935\U00011930", "\U00011938")])
def test_tokens_do_not_depend_on_the_interpreter(
    tmp_path, text, alphabet, expected, cased):
  test_words(tmp_path, text, alphabet, expected, cased)


def test_special_tokens_in_text_stay_whole(tmp_path):
  tokenizer = small_tokenizer(tmp_path, "a b [ ] sep mask unused1".split())
  for token in SPECIAL:
    assert tokenizer.tokenize("A %s b" % token) == ["a", token, "b"]
    assert tokenizer.tokenize("a%sb" % token) == ["a", token, "b"]
    assert tokenizer.tokenize(token + token) == [token, token]
  assert tokenizer.tokenize("[sep] [ MASK ] [unused1]") == (
      "[ sep ] [ mask ] [ unused1 ]".split())
  assert tokenizer.tokenize_plain("a[MASK]b") == "a [ mask ] b".split()


@pytest.mark.parametrize("text, tokens, expected", [
    ("我爱Hello, playing。", "我 爱 hello , play ##ing 。",
     ["我", "爱", "Hello", ",", "play", "ing", "。"]),
    ("在2018年Café!", None, ["在", "2018", "年", "Café", "!"]),
    (" cafe\u0301 x", "cafe x", ["cafe\u0301", "x"]),  # an accent of its own
    ("a\u0898\u0941b", "ab", ["a\u0898\u0941b"]),
    ("我\u0941", "我", ["我\u0941"]),  # what does not combine, too
    ("ＡＢ\u00a0中", "ａ ##ｂ 中", ["Ａ", "Ｂ", "中"]),
    ("ΟΔΟΣ", None, ["Ο", "Δ", "Ο", "Σ"]),
    ("a\ufffdb", "ab", ["a\ufffdb"]),  # of one token, a part was dropped
    ("\u0130x", None, ["\u0130", "x"]),  # lower case is two characters
    ("", "", []), (" \t", "", []),
])
def test_where_tokens_stand(wordpiece, text, tokens, expected):
  found, spans = wordpiece.tokenize_with_offsets(text)
  assert found == wordpiece.tokenize_plain(text)
  assert tokens is None or found == tokens.split()
  assert [text[start:end] for start, end in spans] == expected


def test_an_accent_that_stays_stands_alone(tmp_path):
  tokenizer = small_tokenizer(tmp_path, ["e", "##\u0301"], do_lower_case=False)
  assert tokenizer.tokenize_with_offsets("e\u0301") == (
      ["e", "##\u0301"], [(0, 1), (1, 2)])


def test_pairs_are_cut_one_item_after_another():
  """The longer one loses its end; of two as long, the second."""
  for length_a in range(6):
    for length_b in range(6):
      for most in range(length_a + length_b + 2):
        a, b = list(range(length_a)), list(range(100, 100 + length_b))
        given = list(a), list(b)
        found = tokenization.truncate_pair(a, b, most)
        assert (a, b) == given  # the caller's lists are left alone
        while len(a) + len(b) > most:
          (a if len(a) > len(b) else b).pop()
        assert found == (a, b)
  assert tokenization.truncate_pair([1, 2, 3], None, 2) == ([1, 2], None)
  assert tokenization.truncate_pair([1, 2, 3], None, -1) == ([], None)


@pytest.mark.parametrize("a, b, length, input_ids, segment_ids", [
    ([7, 8], [9], 6, [2, 7, 8, 3, 9, 3], [0, 0, 0, 0, 1, 1]),
    ([7, 8], [9], 5, [2, 7, 3, 9, 3], [0, 0, 0, 1, 1]),
    ([7, 8], [9], 3, [2, 3, 3], [0, 0, 1]),
    ([], [9], 4, [2, 3, 9, 3], [0, 0, 1, 1]),
    ([7, 8], None, 4, [2, 7, 8, 3], [0, 0, 0, 0]),
    ([7, 8], None, 3, [2, 7, 3], [0, 0, 0]), ([], None, 2, [2, 3], [0, 0])])
def test_pack_pair(tmp_path, a, b, length, input_ids, segment_ids):
  tokenizer = small_tokenizer(tmp_path, ["a", "b"])  # [CLS] is 2, [SEP] is 3
  assert tokenization.pack_pair(tokenizer, a, b, length) == (
      input_ids, segment_ids)


def test_a_text_of_unknown_words_is_warned_of(caplog):
  for count, warned in ((1, False), (2, True)):
    caplog.clear()
    tokenization.warn_of_unknown("the text", count, 100)
    assert ("2.0% of the tokens of the text" in caplog.text) == warned
