"""Random Unicode: our tokenizers against the slow ones of Transformers.

Those follow Google's code and use the same Unicode tables.
"""

import os
import random

import pytest
from random_texts import differences, random_texts, unchanged, vocabulary_of

import tokenization
from albert import characters

pytestmark = pytest.mark.full


@pytest.fixture
def transformers(monkeypatch):
  # Only tokenizers are needed: the package must not look for TF 2.
  monkeypatch.setitem(os.environ, "USE_TF", "0")
  return pytest.importorskip("transformers")


# Characters in this interpreter's Unicode version.
is_old = unchanged(characters.category)


@pytest.mark.parametrize("lower", [True, False])
def test_random_unicode(transformers, tmp_path, lower):
  texts = random_texts(3000, lower, is_old)
  vocab_file = vocabulary_of(tmp_path / "vocab.txt", texts)
  ours = tokenization.WordPieceTokenizer(vocab_file, do_lower_case=lower)
  theirs = transformers.BertTokenizer(vocab_file, do_lower_case=lower)
  theirs.wordpiece_tokenizer.max_input_chars_per_word = 200  # theirs is 100
  assert not differences(ours.tokenize, theirs.tokenize, texts)[:3]


@pytest.mark.parametrize("lower", [True, False])
def test_sentencepiece(transformers, real_data, lower):
  model_file = str(real_data / "sentencepiece" / "30k-clean.model")
  ours = tokenization.SentencePieceTokenizer(model_file, do_lower_case=lower)
  theirs = transformers.AlbertTokenizer(model_file, do_lower_case=lower)
  rng = random.Random(4)
  numbers = [
    "".join(
      rng.choices(
        [
          *"0123456789,,,,,,x(/-.) \u3000\u00b2\u0663",
          "20",
          "19",
          ",000",
          "Fig",
        ],
        k=rng.randint(1, 20),
      )
    )
    for _ in range(2000)
  ]
  assert not differences(
    ours.tokenize, theirs.tokenize, numbers + random_texts(1000, 5, is_old)
  )[:3]
  tokens = ours.tokenize(" ".join(numbers))
  assert ours.convert_tokens_to_ids(tokens) == theirs.convert_tokens_to_ids(
    tokens
  )
