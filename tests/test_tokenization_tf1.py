"""Random Unicode: the tokenizers against the slow ones of Hugging Face."""

import json
import os
import random
import re
import unicodedata

import pytest

import tokenization

# Only the tokenizers are wanted; the package must not look for TF 2.
os.environ.setdefault("USE_TF", "0")
transformers = pytest.importorskip("transformers")

VOCAB_FILE = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
    "albert_config", "vocab.txt")

# (first, last) code points; every text mixes a few of these pools.
POOLS = [
    [(0x20, 0x7E)],  # ASCII
    [(0x41, 0x5A), (0x61, 0x7A)],
    [(0x30, 0x39), (0x2C, 0x2E)],
    [(0x80, 0xFF)],  # Latin-1 with its controls
    [(0x100, 0x24F), (0x1E00, 0x1EFF)],  # accented Latin
    [(0x61, 0x7A), (0x300, 0x36F), (0x1AB0, 0x1AFF), (0x20D0, 0x20FF)],
    [(0x370, 0x3FF), (0x1F00, 0x1FFF)],  # Greek, with its final sigma
    [(0x400, 0x52F)],
    [(0x590, 0x6FF), (0x750, 0x77F), (0xFB1D, 0xFDFF)],  # Hebrew, Arabic
    [(0x900, 0xDFF)],  # Indic
    [(0xE00, 0xFFF)],
    [(0x2000, 0x206F)],  # spaces, line separators, marks, format characters
    [(0x2070, 0x2BFF)],  # symbols
    [(0x2E80, 0x303F)],
    [(0x3040, 0x33FF)],
    [(0x3400, 0x4DFF)],
    [(0x4E00, 0x9FFF)],
    [(0xA000, 0xABFF)],
    [(0x1100, 0x11FF), (0xAC00, 0xD7FF)],  # Hangul
    [(0xE000, 0xF8FF), (0xF0000, 0x10FFFF)],  # private use
    [(0xF900, 0xFAFF), (0x2F800, 0x2FA1F)],  # compatibility ideographs
    [(0xFE00, 0xFE6F), (0xFE70, 0xFFFF)],  # full-width forms, noncharacters
    [(0x1F000, 0x1FAFF), (0x200D, 0x200D), (0xFE0F, 0xFE0F)],  # emoji
    [(0x10000, 0x1BFFF)],
    [(0x1D000, 0x1D7FF)],
    [(0x20000, 0x2FFFF)],
    [(0x30000, 0x3FFFF), (0xE0000, 0xE01FF)],  # unassigned, tags
    [(0, 0x1F), (0x7F, 0x9F)],  # control characters
]
SPACES = ("\t\n\r\x0b\x0c\x1c\x1d\x1e\x1f \x85\xa0\u1680\u180e"
          "\u2000\u2003\u2009\u200b\u2028\u2029\u202f\u205f\u3000\ufeff\ufffd")


def random_texts(count, seed):
  """Texts of up to 60 parts; no surrogates and no special tokens."""
  vocab = [token[2:] if token.startswith("##") else token
           for token in tokenization.load_vocab(VOCAB_FILE)
           if not re.match(r"\[[A-Za-z0-9]+\]$", token)]
  rng = random.Random(seed)

  def part(pools):
    kind = rng.random()
    if kind < 0.15:
      return rng.choice(SPACES)
    if kind < 0.3:
      word = rng.choice(vocab)
      return word.upper() if rng.random() < 0.3 else word
    if kind < 0.302:
      return rng.choice("a\u00e9\u3042\u0416") * rng.randint(95, 105)
    first, last = rng.choice(rng.choice(pools))
    return chr(rng.randint(first, last))

  texts = []
  while len(texts) < count:
    pools = rng.sample(POOLS, rng.randint(1, 4))
    text = "".join(part(pools) for _ in range(rng.randint(0, 60)))
    assert not re.search("[\ud800-\udfff]", text)
    if not re.search(r"\[(PAD|UNK|CLS|SEP|MASK)\]", text):
      texts.append(text)
  return texts


def write_vocab(path, texts):
  """The Chinese vocabulary and most characters of `texts`.

  With it few words are unknown, and every cut shows. A quarter of the
  characters is left out, so that some are.
  """
  chars = set()
  for text in texts:
    chars.update(text, unicodedata.normalize("NFD", text.lower()))
  tokens = list(tokenization.load_vocab(VOCAB_FILE))
  known = set(tokens)
  for char in sorted(chars):
    if unicodedata.category(char)[0] not in "CZ" and ord(char) % 4:
      tokens += [t for t in (char, "##" + char) if t not in known]
  path.write_bytes("".join(t + "\n" for t in tokens).encode("utf-8"))
  return str(path)


def differences(ours, theirs, texts):
  """The texts cut differently, with both results; `ascii` shows all of it."""
  found = []
  for text in texts:
    mine, other = ours(text), theirs(text)
    if mine != other:
      found.append((ascii(text), ascii(mine), ascii(other)))
  return found


def slow(tokenizer):
  """The `tokenize` of a slow tokenizer, but for a capital sigma.

  Its `tokenize` lowers one character after another before `_tokenize` lowers
  words, as Google's code does; only in words can a sigma be known as final.
  """

  def tokenize(text):
    if "\u03a3" in unicodedata.normalize("NFKD", text):
      return tokenizer._tokenize(text)
    return tokenizer.tokenize(text)

  return tokenize


def test_random_unicode_lower_case(tmp_path):
  texts = random_texts(10000, seed=1)
  vocab_file = write_vocab(tmp_path / "vocab.txt", texts)
  ours = tokenization.WordPieceTokenizer(vocab_file)
  theirs = transformers.BertTokenizer(vocab_file)
  assert not differences(ours.tokenize, slow(theirs), texts)[:3]


def test_random_unicode_cased(tmp_path):
  texts = random_texts(5000, seed=2)
  vocab_file = write_vocab(tmp_path / "vocab.txt", texts)
  ours = tokenization.WordPieceTokenizer(vocab_file, do_lower_case=False)
  theirs = transformers.BertTokenizer(vocab_file, do_lower_case=False)
  assert not differences(ours.tokenize, theirs.tokenize, texts)[:3]


def test_random_unicode_with_the_chinese_vocabulary():
  texts = random_texts(3000, seed=3)
  ours = tokenization.WordPieceTokenizer(VOCAB_FILE)
  theirs = transformers.BertTokenizer(VOCAB_FILE)
  assert not differences(ours.tokenize, slow(theirs), texts)[:3]
  for text in texts[:300]:
    tokens = ours.tokenize(text)
    assert ours.convert_tokens_to_ids(tokens) == (
        theirs.convert_tokens_to_ids(tokens))


def digit_comma_texts(count, seed):
  rng = random.Random(seed)

  def word():
    digits = rng.choice(["%02d" % rng.randint(0, 99),
                         str(rng.randint(1990, 2020)),
                         str(rng.randint(0, 10**6))])
    return rng.choice(["", "", "x", "(", "/", "-", ",", "Fig", "\u00b2"]) + (
        rng.choice([digits, digits + "," + digits, "%s,000" % digits]) +
        rng.choice([",", ",", ",,", "", ".", "),", ",x", "\u00b2,", "\u0663,"]))

  return [rng.choice(["", " ", "  ", "\u3000"]).join(
      word() for _ in range(rng.randint(1, 6))) for _ in range(count)]


def english_and_chinese_lines(real_data):
  lines = []
  for path in sorted((real_data / "glue").glob("*/train.tsv")):
    lines += path.read_text(encoding="utf-8").split("\n")[:700]
  for line in (real_data / "ocnli" / "dev.json").read_text(
      encoding="utf-8").split("\n")[:500]:
    example = json.loads(line)
    lines += [example["sentence1"], example["sentence2"]]
  return lines


@pytest.mark.parametrize("lower", [True, False])
def test_sentencepiece(real_data, lower):
  model_file = str(real_data / "sentencepiece" / "30k-clean.model")
  ours = tokenization.SentencePieceTokenizer(model_file, do_lower_case=lower)
  theirs = transformers.AlbertTokenizer(model_file, do_lower_case=lower)
  lines = english_and_chinese_lines(real_data)
  assert len(lines) >= 3000
  assert not differences(ours.tokenize, theirs.tokenize, lines)[:3]

  numbers = digit_comma_texts(3000, seed=4)
  assert not differences(ours.tokenize, theirs.tokenize, numbers)[:3]
  assert not differences(
      ours.tokenize, slow(theirs), random_texts(2000, seed=5))[:3]
  for text in numbers[:500]:
    tokens = ours.tokenize(text)
    assert ours.convert_tokens_to_ids(tokens) == (
        theirs.convert_tokens_to_ids(tokens))
