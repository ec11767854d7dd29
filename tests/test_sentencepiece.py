"""Facts about the SentencePiece tokenizer, worked by hand."""

import random
import subprocess
import sys

import pytest
from test_tokenization import VOCAB_FILE, wordpiece  # noqa: F401

import tokenization


@pytest.fixture(scope="module")
def spm_file(tmp_path_factory):
  """A model whose pieces include "_2000,", "_12000," and "99," (_: U+2581)."""
  prefix = str(tmp_path_factory.mktemp("spm") / "tiny")
  text = ["in 2000, we met", "by 12000, they left", "2000 2000 dogs",
          "2000, 2000, 12000, 2000 cats", "k99, m99, p99, r99,",
          'he had 3 dogs "b" c', "cafe fi."]
  text_file = prefix + ".txt"
  with open(text_file, "w", encoding="utf-8") as writer:
    writer.write("\n".join(text * 20) + "\n")
  flags = (
      "--input=%s --model_prefix=%s --model_type=bpe --vocab_size=70 "
      "--user_defined_symbols=[CLS],[SEP],[MASK] --pad_id=0 --pad_piece=<pad> "
      "--unk_id=1 --bos_id=-1 --eos_id=-1 --hard_vocab_limit=false "
      "--minloglevel=2" % (text_file, prefix))
  # A process of its own: training (not loading) crashes beside TF 1.15.
  subprocess.run(
      [sys.executable, "-c", "import sentencepiece, sys; "
       "sentencepiece.SentencePieceTrainer.Train(sys.argv[1])", flags],
      check=True)
  return prefix + ".model"


@pytest.fixture(scope="module")
def tiny_spm(spm_file):
  return tokenization.SentencePieceTokenizer(spm_file)


def raw_pieces(spm_file, text):
  import sentencepiece
  model = sentencepiece.SentencePieceProcessor()
  model.Load(spm_file)
  return model.EncodeAsPieces(text)


def test_sentencepiece_special_ids(tiny_spm):
  assert (tiny_spm.pad_id, tiny_spm.unk_id, tiny_spm.cls_id, tiny_spm.sep_id,
          tiny_spm.mask_id) == (0, 1, 2, 3, 4)
  assert tiny_spm.convert_ids_to_tokens([0, 1, 2, 3, 4]) == [
      "<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]


@pytest.mark.parametrize("text, raw, expected", [
    # The word start stays where the piece had it.
    ("2000,", ["_2000,"], ["_2000", ","]),
    ("12000,", ["_12000,"], ["_1", "2000", ","]),
    # It is not invented where the piece had none ...
    ("in2000,", ["_", "in", "2000,"], ["_", "in", "2000", ","]),
    # ... nor left over as a piece of its own: "99" alone is "_", "9", "9".
    ("k99,", ["_k", "99,"], ["_k", "9", "9", ","]),
    # No digit before the comma, or no comma behind the digit.
    ("dogs,", ["_dogs", ","], ["_dogs", ","]),
    ("2000", ["_2000"], ["_2000"]),
    (",", ["_", ","], ["_", ","]),
])
def test_comma_behind_a_digit_is_cut_off(
    spm_file, tiny_spm, text, raw, expected):
  raw, expected = ([piece.replace("_", "\u2581") for piece in pieces]
                   for pieces in (raw, expected))
  assert raw_pieces(spm_file, text) == raw
  assert tiny_spm.tokenize(text) == expected


def test_sentencepiece_text_is_normalised_first(spm_file, tiny_spm):
  raw = raw_pieces(spm_file, 'cafe "b" fi. we met')
  for text in ['cafe "b" fi. we met',
               "Caf\u00e9 ``b'' FI. We Met",
               " cafe\u0301\u3000``b`` \ufb01.\t\r\nwe  met ",
               "\uff43\uff41\uff46\uff45 ''b'' fi. we\u2028met"]:
    assert tiny_spm.tokenize(text) == raw, ascii(text)
  assert tiny_spm.tokenize("") == []
  assert tiny_spm.tokenize(" \u3000\n") == []


def test_sentencepiece_cased(spm_file):
  tokenizer = tokenization.SentencePieceTokenizer(spm_file, do_lower_case=False)
  # Accents go in both modes, as Google's code has it.
  assert "".join(tokenizer.tokenize("We M\u00e9t")) == "\u2581We\u2581Met"


def test_sentencepiece_conversion(tiny_spm):
  every_id = list(range(tiny_spm.vocab_size))
  tokens = tiny_spm.convert_ids_to_tokens(every_id)
  assert len(set(tokens)) == tiny_spm.vocab_size
  assert tiny_spm.convert_tokens_to_ids(tokens) == every_id
  assert tiny_spm.convert_tokens_to_ids(["nowhere", "\u4e2d"]) == [1, 1]
  assert tiny_spm.convert_tokens_to_ids(
      tiny_spm.tokenize("2000,")) == [
          tokens.index("\u25812000"), tokens.index(",")]


def test_sentencepiece_word_starts(tiny_spm):
  mark = "\u2581"
  starts = {mark + "2000": True, mark: True, "2000": False, ",": False}
  assert {token: tiny_spm.is_word_start(token) for token in starts} == starts


def test_create_tokenizer(spm_file):
  tokenizer = tokenization.create_tokenizer(vocab_file=VOCAB_FILE)
  assert isinstance(tokenizer, tokenization.WordPieceTokenizer)
  assert tokenizer.tokenize("HELLO") == ["hello"]
  tokenizer = tokenization.create_tokenizer(
      vocab_file=VOCAB_FILE, do_lower_case=False)
  assert tokenizer.tokenize("HELLO") != ["hello"]
  tokenizer = tokenization.create_tokenizer(spm_model_file=spm_file)
  assert isinstance(tokenizer, tokenization.SentencePieceTokenizer)
  assert "".join(tokenizer.tokenize("HE")) == "\u2581he"
  tokenizer = tokenization.create_tokenizer(
      spm_model_file=spm_file, do_lower_case=False)
  assert "".join(tokenizer.tokenize("HE")) == "\u2581HE"
  with pytest.raises(ValueError):
    tokenization.create_tokenizer()


def test_real_sentencepiece_model(real_data):
  tokenizer = tokenization.create_tokenizer(
      spm_model_file=str(real_data / "sentencepiece" / "30k-clean.model"))
  assert tokenizer.vocab_size == 30000
  assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id,
          tokenizer.sep_id, tokenizer.mask_id) == (0, 1, 2, 3, 4)
  assert tokenizer.convert_ids_to_tokens(range(5)) == [
      "<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
  assert tokenizer.tokenize("2014,") == ["\u25812014", ","]
  assert tokenizer.convert_tokens_to_ids(["no such piece"]) == [1]


def random_text(rng):
  return "".join(chr(rng.choice([
      32, rng.randrange(32, 0x250), rng.randrange(0x300, 0x400),
      rng.randrange(0x2000, 0x3100), rng.randrange(0x4E00, 0x4F00),
      rng.randrange(0xFF00, 0xFFEF)])) for _ in range(rng.randrange(40)))


@pytest.mark.parametrize("name", ["wordpiece", "tiny_spm"])
def test_tokens_stand_one_after_the_other(name, request):
  tokenizer = request.getfixturevalue(name)
  rng = random.Random(0)
  for _ in range(2000):
    text = random_text(rng)
    tokens, spans = tokenizer.tokenize_with_offsets(text)
    assert tokens == tokenizer.tokenize_plain(text)
    assert len(spans) == len(tokens)
    for (start, end), following in zip(
        spans, [start for start, _ in spans[1:]] + [len(text)]):
      assert 0 <= start <= end <= len(text)
      assert start <= following


@pytest.mark.parametrize("text", [
    "Seoul (서울특별시) ist", "a\u200b서울특별시 b"])
def test_hangul_stands_where_it_does(real_data, text):
  tokenizer = tokenization.create_tokenizer(
      spm_model_file=str(real_data / "sentencepiece" / "30k-clean.model"))
  tokens, spans = tokenizer.tokenize_with_offsets(text)
  first, last = spans[tokens.index("서울특별시")]
  assert text[first:last] == "서울특별시"


def test_half_of_a_surrogate_pair_is_no_text(real_data):
  tokenizer = tokenization.create_tokenizer(
      spm_model_file=str(real_data / "sentencepiece" / "30k-clean.model"))
  assert tokenizer.tokenize("a\ud800b") == tokenizer.tokenize("ab")


def test_where_sentencepiece_tokens_stand(tiny_spm):
  text = " in 2000,  we ``met'' café 12000, ok"
  tokens, spans = tiny_spm.tokenize_with_offsets(text)
  assert tokens == tiny_spm.tokenize_plain(text)
  assert len(tokens) > 10
  assert "".join(
      text[start:end] for token, (start, end) in zip(tokens, spans)
      if token != "\u2581") == "".join(text.split())
