"""BERT's WordPiece and character rules, worked by hand."""

import itertools
import re
import string
import unicodedata

import pytest
import tokenizers
from random_texts import differences, random_texts, unchanged, vocabulary_of
from refusals import refused
from vocabularies import VOCAB_FILE, Letters, small_tokenizer, write_vocab

import tokenization
from albert import characters
from albert.data import corpus
from albert.errors import InputError


def test_ids_of_the_chinese_vocabulary(tokenizer):
  vocab = tokenization.load_vocab(VOCAB_FILE)
  assert sorted(vocab.values()) == list(range(21128))
  expected = {
    "[PAD]": 0,
    "[unused1]": 1,
    "[unused99]": 99,
    "[UNK]": 100,
    "[CLS]": 101,
    "[SEP]": 102,
    "[MASK]": 103,
    "<S>": 104,
    "<T>": 105,
    "!": 106,
    "a": 143,
    "hello": 8701,
    "##ing": 8221,
    # Line separators are entries and do not shift later ids.
    "\u2028": 343,
    "\u2030": 344,
    "##\u2028": 13502,
    "##\u2030": 13503,
    "##\U0001f60e": 21127,
  }
  assert {token: vocab[token] for token in expected} == expected
  assert tokenizer.vocab_size == 21128
  assert (
    tokenizer.pad_id,
    tokenizer.unk_id,
    tokenizer.cls_id,
    tokenizer.sep_id,
    tokenizer.mask_id,
  ) == (0, 100, 101, 102, 103)
  # Conversion looks up whole tokens without lower-casing or splitting them.
  tokens = ["[CLS]", "中", "##ing", "Hello", "hellohello", "##\u2603"]
  ids = [101, 704, 8221, 100, 100, 100]
  assert tokenizer.convert_tokens_to_ids(tokens) == ids
  assert tokenizer.convert_ids_to_tokens(ids) == tokens[:3] + ["[UNK]"] * 3
  every_id = list(range(21128))
  assert (
    tokenizer.convert_tokens_to_ids(tokenizer.convert_ids_to_tokens(every_id))
    == every_id
  )
  assert [
    token
    for token in ["a", "中", "[CLS]", ",", "#", "##a", "##中"]
    if not tokenizer.is_word_start(token)
  ] == ["##a", "##中"]


def test_only_a_newline_ends_an_entry(tmp_path):
  entries = ["a", *"\u2028\u2029\u0085\x0b\x0c\x1c", "b\u2028", "c"]
  path = write_vocab(tmp_path / "v.txt", entries)
  assert list(tokenization.load_vocab(path)) == entries
  (tmp_path / "v.txt").write_bytes(b"a\r\nb")
  assert tokenization.load_vocab(path) == {"a": 0, "b": 1}


@pytest.mark.parametrize(
  "content, message",
  [
    (None, ""),
    (b"", ": .*empty"),
    (b"a\n\xff\xfe\n", ".*UTF-8"),
    (b"a\nb\nc\nb\n", ":4: .*'b'.* 2"),
    (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", r": .*\[MASK\]"),
  ],
)
def test_a_bad_vocabulary_is_named(tmp_path, content, message):
  path = tmp_path / "v.txt"
  if content is not None:
    path.write_bytes(content)
  with pytest.raises(
    FileNotFoundError if content is None else InputError,
    match=re.escape(str(path)) + message,
  ):
    tokenization.WordPieceTokenizer(str(path))


def test_a_file_that_is_too_large(tmp_path, monkeypatch):
  monkeypatch.setattr(tokenization, "_MOST_BYTES", 1 << 20)
  path = tmp_path / "v.txt"
  path.write_text("a" * (1 << 20))
  assert tokenization.load_vocab(str(path))
  path.write_text("a" * ((1 << 20) + 1))
  for make in (tokenization.load_vocab, tokenization.SentencePieceTokenizer):
    refused("too large, more than 1 MB", make, str(path))


@pytest.mark.parametrize(
  "text, alphabet, expected, cased",
  [
    ("ab博推ba", "ab博推", "ab 博 推 ba", "ab 博 推 ba"),
    ("aアb あc", "abcアあ", "aアb あc", "aアb あc"),
    # U+F900 is canonically equivalent to U+8C48; accents are stripped via NFD.
    ("\uf900", "\u8c48\uf900", "\u8c48", "\uf900"),
    # Full-width letters are lower-cased, not folded to ASCII.
    ("ＡＢA", "ＡＢAａｂa", "ａｂa", "ＡＢA"),
    # Composed and decomposed accents, two on one letter, the Turkish dotted I.
    ("ÀÉïôü A\u0300E\u0301i\u0308", "aeiou", "aeiou aei", "[UNK] [UNK]"),
    ("\u1ebe\u0130", "ei", "ei", "[UNK]"),
    ("HÄLlo ha\u0308", "HhLlaoÄä\u0308", "hallo ha", "HÄLlo ha\u0308"),
    # As in Google's BERT; Hugging Face's tokenizers use a plain sigma.
    ("ΟΣ ΣΟ", "οσςΟΣ", "ος σο", "ΟΣ ΣΟ"),
    ("ßøı", "ßøı", "ßøı", "ßøı"),  # these have no accent
    # Devanagari "ki" and "ku": vowel signs in Mn are stripped, in Mc kept.
    (
      "\u0915\u093f \u0915\u0941",
      "\u0915\u093f\u0941",
      "\u0915\u093f \u0915",
      "\u0915\u093f \u0915\u0941",
    ),
    ("\u3000a\t\u2028b\r\n", "ab", "a b", "a b"),
    ("a,b$c。€d", "abcd,$。€", "a , b $ c 。 €d", "a , b $ c 。 €d"),
    # Private use, unassigned characters and a newer emoji are kept.
    ("a\ue000b \U000e1000 \U0001fae0", "ab", *["[UNK] [UNK] [UNK]"] * 2),
    # Newer than Python 3.7: a mark, a format character, a capital, punctuation,
    # a letter that decomposes.
    ("a\u0898b", "ab\u0898", "ab", "a\u0898b"),
    ("a\u0890b", "ab", "ab", "ab"),
    ("\ua7c7", "\ua7c7\ua7c8", "\ua7c8", "\ua7c7"),
    ("a\u2e52b", "ab\u2e52", "a \u2e52 b", "a \u2e52 b"),
    (
      "\U00011938",
      "\U00011935\U00011930\U00011938",
      "\U00011935\U00011930",
      "\U00011938",
    ),
  ],
)
def test_words(tmp_path, text, alphabet, expected, cased):
  """The vocabulary is `alphabet`, as single characters."""
  letters = sorted(set(alphabet))
  for lower, words in ((True, expected), (False, cased)):
    tokenizer = small_tokenizer(
      tmp_path, letters + ["##" + char for char in letters], do_lower_case=lower
    )
    found = " ".join(tokenizer.tokenize(text)).replace(" ##", "")
    assert found == words, ascii(found)


@pytest.mark.parametrize(
  "text, expected",
  [
    ("UNwantéd,running", "un ##want ##ed , runn ##ing"),
    # A missing piece makes the whole word unknown, not just the rest.
    ("unwantedX running", "[UNK] runn ##ing"),
    # Greedy longest match first.
    ("wantn wan", "want ##n wa ##n"),
    # A ## piece does not begin a word.
    ("ed unwa", "[UNK] [UNK]"),
    # Words have at most 200 characters after accents are stripped; the text may
    # have more.
    pytest.param("a" * 201, "[UNK]", id="201"),
    pytest.param(
      "á" * 200 + "," + "a" * 200,
      " , ".join(["a" + " ##a" * 199] * 2),
      id="200",
    ),
    pytest.param("中" * 250, "中 " * 250, id="ideographs"),
    # Only special tokens stay whole.
    (
      "A[PAD] A[UNK][CLS]A[SEP] [MASK]A",
      "a [PAD] a [UNK] [CLS] a [SEP] [MASK] a",
    ),
    ("[sep] [ MASK ] [unused1]", "[ sep ] [ mask ] [ unused1 ]"),
  ],
)
def test_pieces(tmp_path, text, expected):
  tokenizer = small_tokenizer(
    tmp_path,
    (
      "want ##want ##ed wa un runn ##ing , ##n a ##a 中 [ ] sep mask unused1"
    ).split(),
  )
  assert tokenizer.tokenize(text) == expected.split()


@pytest.mark.parametrize(
  "text, tokens, expected",
  [
    (
      "我爱Hello, playing。",
      "我 爱 hello , play ##ing 。",
      ["我", "爱", "Hello", ",", "play", "ing", "。"],
    ),
    ("在2018年Café!", None, ["在", "2018", "年", "Café", "!"]),
    (" cafe\u0301 x", "cafe x", ["cafe\u0301", "x"]),  # a combining accent
    ("a\u0898\u0941b", "ab", ["a\u0898\u0941b"]),
    ("我\u0941", "我", ["我\u0941"]),  # of combining class 0
    ("ＡＢ\u00a0中", "ａ ##ｂ 中", ["Ａ", "Ｂ", "中"]),
    ("ΟΔΟΣ", None, ["Ο", "Δ", "Ο", "Σ"]),
    ("a\ufffdb", "ab", ["a\ufffdb"]),  # a dropped character in a token
    ("\u0130x", None, ["\u0130", "x"]),  # two characters in lower case
    ("", "", []),
    (" \t", "", []),
  ],
)
def test_where_tokens_stand(tokenizer, text, tokens, expected):
  found, spans = tokenizer.tokenize_with_offsets(text)
  assert found == tokenizer.tokenize_plain(text)
  assert tokens is None or found == tokens.split()
  assert [text[start:end] for start, end in spans] == expected


def test_an_accent_that_stays_stands_alone(tmp_path):
  tokenizer = small_tokenizer(tmp_path, ["e", "##\u0301"], do_lower_case=False)
  assert tokenizer.tokenize_with_offsets("e\u0301") == (
    ["e", "##\u0301"],
    [(0, 1), (1, 2)],
  )


def test_pairs_are_cut_one_item_after_another():
  """The longer one loses its last item; of equal lengths, the second."""
  for length_a, length_b, most in itertools.product(
    range(6), range(6), range(12)
  ):
    a, b = list(range(length_a)), list(range(100, 100 + length_b))
    found = tokenization.truncate_pair(a, b, most)
    # The inputs are not modified.
    assert (len(a), len(b)) == (length_a, length_b)
    while len(a) + len(b) > most:
      (a if len(a) > len(b) else b).pop()
    assert found == (a, b)
  assert tokenization.truncate_pair([1, 2, 3], None, 2) == ([1, 2], None)
  assert tokenization.truncate_pair([1, 2, 3], None, -1) == ([], None)


@pytest.mark.parametrize(
  "a, b, length, input_ids, segment_ids",
  [
    ([7, 8], [9], 6, [1, 7, 8, 2, 9, 2], [0, 0, 0, 0, 1, 1]),
    ([7, 8], [9], 5, [1, 7, 2, 9, 2], [0, 0, 0, 1, 1]),
    ([7, 8], [9], 3, [1, 2, 2], [0, 0, 1]),
    ([], [9], 4, [1, 2, 9, 2], [0, 0, 1, 1]),
    ([7, 8], None, 4, [1, 7, 8, 2], [0, 0, 0, 0]),
    ([7, 8], None, 3, [1, 7, 2], [0, 0, 0]),
    ([], None, 2, [1, 2], [0, 0]),
  ],
)
def test_pack_pair(a, b, length, input_ids, segment_ids):
  assert tokenization.pack_pair(Letters(), a, b, length) == (
    input_ids,
    segment_ids,
  )


def test_a_text_of_unknown_words_is_warned_of(caplog):
  for count, warned in ((1, False), (2, True)):
    caplog.clear()
    tokenization.warn_of_unknown("the text", count, 100)
    assert ("2.0% of the tokens of the text" in caplog.text) == warned


def test_the_blocks_of_ideographs():
  assert list(filter(characters.is_chinese, map(chr, range(0x110000)))) == [
    chr(code)
    for first, last in (
      (0x3400, 0x4DBF),
      (0x4E00, 0x9FFF),
      (0xF900, 0xFAFF),
      (0x20000, 0x2A6DF),
      (0x2A700, 0x2CEAF),
      (0x2F800, 0x2FA1F),
    )
    for code in range(first, last + 1)
  ]


@pytest.mark.parametrize(
  "chars, cleaned",
  [
    (" \t\n\r\u00a0\u1680\u2003\u2009\u202f\u205f\u3000", " "),
    # Control and format characters.
    (
      "\x00\x07\x0b\x0c\x1b\x1c\x1f\x7f\x85\u00ad\u200b\u200d\u200e\u2060\ufeff"
      "\ufffd\U000e0041",
      "",
    ),
    # Kept, like unassigned and private-use characters; two of them are line
    # ends that split words later.
    ("a中é,$\u0301\u2028\u2029\uffff\ue000\U000f0000", None),
  ],
)
def test_white_space_and_what_is_dropped(chars, cleaned):
  assert {char: characters.clean(char) for char in chars} == {
    char: char if cleaned is None else cleaned for char in chars
  }


def test_punctuation():
  """All ASCII symbols, although $+<=>^`|~ are not punctuation in Unicode."""
  assert [
    char for char in map(chr, range(128)) if characters.is_punctuation(char)
  ] == sorted(string.punctuation)
  assert all(map(characters.is_punctuation, "¡·—…“”、。《》！，：？・"))
  assert not any(map(characters.is_punctuation, "€£×°→＄＋～a1中 "))


def test_a_table_asks_once_for_each_character():
  asked = []
  table = characters.Table(lambda char: asked.append(char) or char * 2)
  assert "aba".translate(table) + "ab".translate(table) == "aabbaaaabb"
  assert asked == ["a", "b"]


PIECES = list("我爱机器学习算法维生素约翰史密斯网络的15cgd·，b") + [
  "##1",
  "##5",
  "##c",
  "##d",
  "##g",
  "##b",
]
WORDS = "机器 机器学习 学习算法 维生素C 维生素C15 5g网络 约翰·史密斯".split()


@pytest.mark.parametrize(
  "text, expected",
  [
    ("我爱机器学习算法", ["我", "爱", "机器学习", "算", "法"]),
    ("机器，学习算法机器", ["机器", "，", "学习算法", "机器"]),
    ("机 器\n学习", ["机", "器", "学", "习"]),
    ("机\u200b器\ufffd的", ["机\u200b器", "的"]),  # dropped, no boundary
    ("维生素C，维生素c 维生素CD", ["维生素C", "，", "维生素c", *"维生素CD"]),
    ("维生素C的维生素C1", ["维生素C", *"的维生素C1"]),
    ("的维生素C", ["的", "维生素C"]),
    ("维生素C15", ["维生素C15"]),
    ("15G网络，5G网络5", [*"15G网络，", "5G网络", "5"]),
    ("B5G网络", [*"B5G网络"]),
    ("我约翰·史密斯", ["我", "约翰·史密斯"]),
    ("约翰 · 史密斯", [*"约翰·史密斯"]),
    ("ć机器\u0301b", ["ć", "机器\u0301", "b"]),
  ],
)
def test_words_of_a_vocabulary(tmp_path, text, expected):
  tokenizer = small_tokenizer(tmp_path, PIECES + WORDS)
  tokens, spans = tokenizer.tokenize_with_offsets(text)
  assert tokens == tokenizer.tokenize_plain(text) == tokenizer.tokenize(text)
  assert [text[start:end] for start, end in spans] == expected
  assert [token.replace("##", "").lower() for token in tokens] == [
    re.sub("[\u0301\u200b]", "", unicodedata.normalize("NFD", part.lower()))
    for part in expected
  ]
  assert all(map(tokenizer.is_word_start, set(tokens) & set(WORDS)))


def test_a_word_has_its_own_id(tmp_path):
  tokenizer = small_tokenizer(tmp_path, PIECES + WORDS)
  for number, word in enumerate(WORDS, 5 + len(PIECES)):
    assert tokenizer.convert_tokens_to_ids(tokenizer.tokenize(word)) == [number]
  assert tokenizer.tokenize("机器[MASK]学习") == ["机器", "[MASK]", "学", "习"]
  cased = small_tokenizer(tmp_path, PIECES + WORDS, do_lower_case=False)
  assert cased.tokenize("维生素C，维生素c") == ["维生素C", "，", *"维生素c"]


def test_what_is_no_word(tmp_path, tokenizer):
  own = small_tokenizer(
    tmp_path,
    PIECES + ["##机器", "...", "<S>", "c·d", "。", ".", "[unused1]", "cdg"],
  )
  assert own.words == tokenizer.words == {}
  assert own.tokenize("机器...c·d cdg cdgd") == (
    "机 器 . . . c · d cdg cdg ##d".split()
  )


def test_whole_words_are_jiebas_and_hold_the_vocabularys(tmp_path):
  """A vocabulary word that jieba splits merges the words around the split."""
  tokenizer = tokenization.WordPieceTokenizer(
    write_vocab(
      tmp_path / "vocab.txt",
      [
        *tokenization.load_vocab(VOCAB_FILE),
        "究生",
        "起源",
        "六点半，闹",
        "Café里",
      ],
    )
  )
  for line, words in (  # jieba: 研究 生命 起源
    ("研究生命起源", [["研", "究生", "命"], ["起源"]]),
    ("去caf\u00e9里看", [["去"], ["Café里"], ["看"]]),
  ):
    ids, begins, _ = corpus.Segmenter(tokenizer, use_jieba=True).segment(line)
    tokens = tokenizer.convert_ids_to_tokens(ids)
    assert [
      tokens[begin:end] for begin, end in zip(begins, [*begins[1:], None])
    ] == words


@pytest.mark.parametrize("lower", [True, False])
def test_random_unicode(tmp_path, lower):
  """Only old characters: Hugging Face's Unicode tables are older."""
  texts = random_texts(
    500, 1 + lower, unchanged(unicodedata.ucd_3_2_0.category)
  )
  ours = tokenization.WordPieceTokenizer(
    vocabulary_of(tmp_path / "vocab.txt", texts), lower
  )
  theirs = tokenizers.BertWordPieceTokenizer(
    ours.vocab, lowercase=lower, strip_accents=lower
  )
  theirs._tokenizer.model.max_input_chars_per_word = 200  # theirs is 100
  assert not differences(
    ours.tokenize,
    lambda text: theirs.encode(text, add_special_tokens=False).tokens,
    texts,
  )[:3]
  tokens = ours.tokenize(" ".join(texts))
  assert 0.05 < tokens.count("[UNK]") / len(tokens) < 0.3


def test_tokens_that_are_no_text():
  tokens = [
    "[unused1]",
    "[UNK]",
    "[MASK]",
    "<unk>",
    "<s>",
    "甲",
    "##ing",
    "[",
    "<",
  ]
  assert [bool(tokenization.NO_TEXT.match(token)) for token in tokens] == [
    True
  ] * 5 + [False] * 4
