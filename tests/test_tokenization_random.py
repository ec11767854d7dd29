"""Random and real text, against Hugging Face's package `tokenizers`."""

import unicodedata

import pytest
from random_texts import differences, random_texts, vocabulary_of
from vocabularies import VOCAB_FILE

import tokenization


def both(vocab_file, lower):
  """Returns our and their function of a text that returns its tokens."""
  import tokenizers
  ours = tokenization.WordPieceTokenizer(vocab_file, do_lower_case=lower)
  theirs = tokenizers.BertWordPieceTokenizer(
      ours.vocab, lowercase=lower, strip_accents=lower)
  theirs._tokenizer.model.max_input_chars_per_word = 200  # theirs is 100
  return ours.tokenize, lambda text: theirs.encode(
      text, add_special_tokens=False).tokens


def is_old(char):
  """Whether Unicode has had it for long, as their tables ask for.

  Of a final sigma they make a plain one, and they drop private use.
  """
  kind = unicodedata.ucd_3_2_0.category(char)
  return kind == unicodedata.category(char) not in ("Cn", "Co") and (
      "\u03a3" not in unicodedata.normalize("NFKD", char))


@pytest.mark.parametrize("lower", [True, False])
def test_random_unicode(tmp_path, lower):
  texts = random_texts(500, 1 + lower, is_old)
  vocab_file = vocabulary_of(tmp_path / "vocab.txt", texts)
  assert not differences(*both(vocab_file, lower), texts)[:3]
  tokens = tokenization.WordPieceTokenizer(vocab_file, lower).tokenize(
      " ".join(texts))
  assert 0.05 < tokens.count("[UNK]") / len(tokens) < 0.3


def test_real_text(real_data):
  """Lines of Chinese and English: up to 5,000, cased and not."""
  for name in ("corpus", "glue"):
    lines = [line for path in sorted((real_data / name).rglob("*.t[xs][tv]"))
             for line in path.read_text(encoding="utf-8").split("\n")]
    lines = lines[::-(-len(lines) // 5000)]
    assert len(lines) > 2500
    for lower in (True, False):
      assert not differences(*both(VOCAB_FILE, lower), lines)[:3]
