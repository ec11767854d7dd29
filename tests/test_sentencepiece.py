"""The SentencePiece tokenizer, worked by hand."""

import difflib
import itertools
import re

import pytest
import sentencepiece
from random_texts import random_texts
from vocabularies import VOCAB_FILE

import tokenization
from albert.errors import InputError


@pytest.fixture(scope="module")
def tiny(spm_file):
  return tokenization.SentencePieceTokenizer(spm_file)


@pytest.fixture(scope="module")
def raw_pieces(spm_file):
  return sentencepiece.SentencePieceProcessor(spm_file).EncodeAsPieces


@pytest.mark.parametrize(
  "text, raw, expected",
  [
    # The word start mark stays where the piece had it.
    ("2000,", ["_2000,"], ["_2000", ","]),
    ("12000,", ["_12000,"], ["_1", "2000", ","]),
    # It is not added where the piece had none ...
    ("in2000,", ["_", "in", "2000,"], ["_", "in", "2000", ","]),
    # ... nor left as a separate piece: "99" alone is "_", "9", "9".
    ("k99,", ["_k", "99,"], ["_k", "9", "9", ","]),
    # No digit before the comma, or no comma after the digit.
    ("dogs,", ["_dogs", ","], ["_dogs", ","]),
    ("2000", ["_2000"], ["_2000"]),
    (",", ["_", ","], ["_", ","]),
  ],
)
def test_comma_behind_a_digit_is_cut_off(raw_pieces, tiny, text, raw, expected):
  assert [
    [piece.replace("\u2581", "_") for piece in cut(text)]
    for cut in (raw_pieces, tiny.tokenize)
  ] == [raw, expected]


def test_text_is_normalised_first(raw_pieces, tiny):
  raw = raw_pieces('cafe "b" fi. we met')
  for text in [
    'cafe "b" fi. we met',
    'Caf\u00e9 "b" FI. We Met',
    ' cafe\u0301\u3000"b" \ufb01.\t\r\nwe  met ',
    '\uff43\uff41\uff46\uff45 "b" fi. we\u2028met',
  ]:
    assert tiny.tokenize(text) == raw, ascii(text)
  assert tiny.tokenize("``b''") == raw_pieces("``b''")  # unchanged
  assert tiny.tokenize("ΟΣ ΣΟ") == raw_pieces("ος σο")
  assert tiny.tokenize("") == tiny.tokenize(" \u3000\n") == []


def test_conversion(tiny):
  assert (tiny.pad_id, tiny.unk_id, tiny.cls_id, tiny.sep_id, tiny.mask_id) == (
    0,
    1,
    2,
    3,
    4,
  )
  every_id = list(range(tiny.vocab_size))
  tokens = tiny.convert_ids_to_tokens(every_id)
  assert tokens[:5] == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
  assert tiny.convert_tokens_to_ids(tokens) == every_id
  assert tiny.convert_tokens_to_ids(["nowhere", "中", "[PAD]"]) == [1, 1, 0]
  assert tiny.convert_tokens_to_ids(tiny.tokenize("2000,")) == [
    tokens.index("\u25812000"),
    tokens.index(","),
  ]
  starts = {"\u25812000": True, "\u2581": True, "2000": False, ",": False}
  assert {token: tiny.is_word_start(token) for token in starts} == starts


def test_create_tokenizer(spm_file, tmp_path):
  for files, lower, cased in (
    ({"vocab_file": VOCAB_FILE}, "hello", "[UNK]"),
    # Both modes strip accents, as in Google's code.
    ({"spm_model_file": spm_file}, "\u2581hello", "\u2581HeLLO"),
  ):
    for case, expected in (({}, lower), ({"do_lower_case": False}, cased)):
      tokenizer = tokenization.create_tokenizer(**files, **case)
      assert "".join(tokenizer.tokenize("HéLLO")) == expected
  with pytest.raises(InputError):
    tokenization.create_tokenizer()
  path = tmp_path / "bad.model"
  for error in (FileNotFoundError, InputError):
    with pytest.raises(error, match=re.escape(str(path))):
      tokenization.SentencePieceTokenizer(str(path))
    path.write_bytes(b"not a model")


def test_a_released_model(real_data):
  released = tokenization.SentencePieceTokenizer(
    str(real_data / "sentencepiece" / "30k-clean.model")
  )
  assert (
    released.pad_id,
    released.unk_id,
    released.cls_id,
    released.sep_id,
    released.mask_id,
  ) == (0, 1, 2, 3, 4)
  # A lone surrogate is dropped.
  assert released.tokenize("a\ud800b") == released.tokenize("ab")
  # It recomposes Hangul.
  for text in ("Seoul (서울특별시) ist", "a\u200b서울특별시 b"):
    tokens, spans = released.tokenize_with_offsets(text)
    first, last = spans[tokens.index("서울특별시")]
    assert text[first:last] == "서울특별시"


def test_tokens_stand_one_after_the_other(tiny, tokenizer):
  for cutter, text in itertools.product(
    (tokenizer, tiny), random_texts(300, 0)
  ):
    tokens, spans = cutter.tokenize_with_offsets(text)
    assert tokens == cutter.tokenize_plain(text)
    assert len(spans) == len(tokens)
    starts = [start for start, _ in spans]
    assert starts == sorted(starts)
    assert all(0 <= start <= end <= len(text) for start, end in spans)


@pytest.mark.parametrize(
  "odd", ["", "\x10", "\ufdfa", "\u2581", "\u1109\u1165", "\u200b"]
)
def test_an_odd_character_moves_no_others(odd, tiny):
  text = " in 2000,  we ``met'' café" * 30 + odd + " 12000, ok " * 30
  tokens, spans = tiny.tokenize_with_offsets(text)
  found = "".join(
    text[start:end]
    for token, (start, end) in zip(tokens, spans)
    if token != "\u2581"
  )
  assert found.replace(odd, "") == "".join(text.replace(odd, "").split())


def test_offsets_take_time_in_proportion_to_the_text(tiny, monkeypatch):
  """Not quadratic, even if a final sigma is lower-cased."""
  work, totals, make = [], [], difflib.SequenceMatcher
  monkeypatch.setattr(
    difflib,
    "SequenceMatcher",
    lambda junk, *texts, **more: (
      work.append(len(texts[0]) * len(texts[1])) or make(junk, *texts, **more)
    ),
  )
  for count in (100, 400):
    tiny.tokenize_with_offsets("in 2000 " * count + "ΑΣ")
    totals.append(sum(work))
    work.clear()
  assert 0 < totals[1] < 5 * totals[0]


def test_texts_that_differ_are_aligned_piece_by_piece():
  """One character becomes three, twenty are deleted."""
  ours = "".join(map(chr, range(0x4E00, 0x4E00 + 1000)))
  theirs = ours[:300] + "xyz" + ours[301:700] + ours[720:]
  origin = [
    i
    for start, end, length in tokenization._aligned(ours, theirs)
    for i in [*range(start, end)][:length]
    + [end - 1] * (length - (end - start))
  ]
  assert origin == [*range(301), 300, 300, *range(301, 700), *range(720, 1000)]
