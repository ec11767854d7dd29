"""Random Unicode, for comparing tokenizers."""

import random
import re
import unicodedata

from vocabularies import VOCAB_FILE, write_vocab

import tokenization

SPACES = (
  "\t\n\r\x0b\x0c\x1c\x1d\x1e\x1f \x85\xa0\u1680\u180e"
  "\u2000\u2003\u2009\u200b\u2028\u2029\u202f\u205f\u3000\ufeff\ufffd"
)


def random_texts(count, seed, is_wanted=lambda char: True):
  """Returns texts of up to 60 parts, without surrogates and special tokens."""
  vocab = [
    token[2:] if token.startswith("##") else token
    for token in tokenization.load_vocab(VOCAB_FILE)
    if not re.match(r"\[[A-Za-z0-9]+\]$", token)
  ]
  rng = random.Random(seed)

  def block():
    """The start of a block of 256 code points, mostly scripts or symbols."""
    return 256 * rng.choice(
      [
        0,
        rng.randrange(0x32),
        rng.randrange(0x32),
        rng.randrange(0x100),
        rng.randrange(0x320),
        rng.choice([0xE00, 0xFFF, 0x10FF]),
      ]
    )

  def part(blocks):
    kind = rng.random()
    if kind < 0.15:
      return rng.choice(SPACES)
    if kind < 0.3:
      word = rng.choice(vocab)
      return word.upper() if rng.random() < 0.3 else word
    if kind < 0.302:
      return rng.choice("a\u00e9\u3042\u0416") * rng.randint(195, 205)
    return chr(rng.choice(blocks) + rng.randrange(256))

  texts = []
  while len(texts) < count:
    blocks = [block() for _ in range(rng.randint(1, 4))]
    text = "".join(part(blocks) for _ in range(rng.randint(0, 60)))
    text = "".join(filter(is_wanted, text))
    if not re.search("[\ud800-\udfff]|\\[(PAD|UNK|CLS|SEP|MASK)\\]", text):
      texts.append(text)
  return texts


def unchanged(category):
  """Returns a predicate: whether a character's category is the same here.

  False for unassigned and private-use characters, which other tokenizers drop,
  and for sigmas: they lower a final sigma to a plain one.
  """
  return lambda char: (
    category(char) == unicodedata.category(char) not in ("Cn", "Co")
    and "\u03a3" not in unicodedata.normalize("NFKD", char)
  )


def vocabulary_of(path, texts):
  """Writes the Chinese vocabulary plus three of four characters of `texts`, so
  that every split shows and some words are unknown."""
  text = "".join(texts)
  chars = [
    char
    for char in {*text, *unicodedata.normalize("NFD", text.lower())}
    if unicodedata.category(char)[0] not in "CZ" and ord(char) % 4
  ]
  return write_vocab(
    path,
    dict.fromkeys(
      [
        *tokenization.load_vocab(VOCAB_FILE),
        *chars,
        *("##" + char for char in chars),
      ]
    ),
  )


def differences(ours, theirs, texts):
  """Returns (text, ours, theirs) of texts split differently, in ASCII."""
  return [
    tuple(map(ascii, row))
    for row in zip(texts, map(ours, texts), map(theirs, texts))
    if row[1] != row[2]
  ]
