"""Fixtures: the vocabulary of the project, and jieba with it."""

import pytest
from vocabularies import VOCAB_FILE

import tokenization
from albert.data import corpus


@pytest.fixture(scope="module")
def tokenizer():
  return tokenization.WordPieceTokenizer(VOCAB_FILE)


@pytest.fixture(scope="module")
def segmenter(tokenizer):
  return corpus.Segmenter(tokenizer, use_jieba=True)
