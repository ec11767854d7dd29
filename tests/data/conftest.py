"""Fixtures: the vocabulary of the project, and jieba with it."""

import pytest
from scripting import ROOT

import tokenization
from albert.data import corpus


@pytest.fixture(scope="module")
def tokenizer():
  return tokenization.WordPieceTokenizer(
      str(ROOT / "albert_config" / "vocab.txt"))


@pytest.fixture(scope="module")
def segmenter(tokenizer):
  return corpus.Segmenter(tokenizer, use_jieba=True)
