"""Chinese words of a vocabulary stay whole."""

import re

import jieba
import pytest
from vocabularies import VOCAB_FILE, small_tokenizer, write_vocab

import tokenization
from albert.data import corpus

PIECES = list("我爱机器学习算法维生素约翰史密斯网络的15cgd·，b") + [
    "##1", "##5", "##c", "##d", "##g", "##b"]
WORDS = ["机器", "机器学习", "学习算法", "维生素C", "维生素C15", "5g网络",
         "约翰·史密斯"]


@pytest.mark.parametrize("text, expected", [
    ("我爱机器学习算法", ["我", "爱", "机器学习", "算", "法"]),
    ("机器，学习算法机器", ["机器", "，", "学习算法", "机器"]),
    ("机 器\n学习", ["机", "器", "学", "习"]),
    ("机\u200b器\ufffd的", ["机\u200b器", "的"]),  # dropped, and no end
    ("维生素C，维生素c 维生素CD",
     ["维生素C", "，", "维生素c", "维", "生", "素", "C", "D"]),
    ("维生素C的维生素C1", ["维生素C", "的", "维", "生", "素", "C", "1"]),
    ("的维生素C", ["的", "维生素C"]), ("维生素C15", ["维生素C15"]),
    ("15G网络，5G网络5", ["1", "5", "G", "网", "络", "，", "5G网络", "5"]),
    ("B5G网络", ["B", "5", "G", "网", "络"]),
    ("我约翰·史密斯", ["我", "约翰·史密斯"]),
    ("约翰 · 史密斯", list("约翰·史密斯")),
    ("ć机器\u0301b", ["ć", "机器\u0301", "b"]),
])
def test_words(tmp_path, text, expected):
  tokenizer = small_tokenizer(tmp_path, PIECES + WORDS)
  tokens, spans = tokenizer.tokenize_with_offsets(text)
  assert tokens == tokenizer.tokenize_plain(text) == tokenizer.tokenize(text)
  assert [text[start:end] for start, end in spans] == expected
  bare = [re.sub("[\u0301\u200b]", "", part).lower() for part in expected]
  assert [token.lower() for token in tokens if token in WORDS] == [
      part for part in bare if part in map(str.lower, WORDS)]
  assert "[UNK]" not in tokens
  assert all(map(tokenizer.is_word_start, set(tokens) & set(WORDS)))


def test_a_word_has_its_own_id(tmp_path):
  tokenizer = small_tokenizer(tmp_path, PIECES + WORDS)
  for number, word in enumerate(WORDS, 5 + len(PIECES)):
    assert tokenizer.convert_tokens_to_ids(tokenizer.tokenize(word)) == [number]
  assert tokenizer.tokenize("机器[MASK]学习") == ["机器", "[MASK]", "学", "习"]
  cased = small_tokenizer(tmp_path, PIECES + WORDS + ["C"],
                          do_lower_case=False)
  assert cased.tokenize("维生素C，维生素c") == ["维生素C", "，", *"维生素c"]


def test_what_is_no_word(tmp_path):
  tokenizer = small_tokenizer(tmp_path, PIECES + [
      "##机器", "...", "<S>", "c·d", "。", ".", "[unused1]", "cdg"])
  assert tokenizer.words == {}
  assert tokenizer.tokenize("机器...c·d cdg cdgd") == (
      "机 器 . . . c · d cdg cdg ##d".split())
  assert tokenization.WordPieceTokenizer(VOCAB_FILE).words == {}


def test_whole_words_are_jiebas_and_hold_the_vocabularys(tmp_path):
  """A word of the vocabulary that jieba cuts joins the words around the cut."""
  words = ["究生", "起源", "他一", "六点半，闹", "Café里"]
  assert jieba.lcut("研究生命起源") == ["研究", "生命", "起源"]
  old = tokenization.WordPieceTokenizer(VOCAB_FILE)
  tokenizer = tokenization.WordPieceTokenizer(
      write_vocab(tmp_path / "vocab.txt", list(old.vocab) + words))
  segmenter = corpus.Segmenter(tokenizer, use_jieba=True)

  def cut(line):
    ids, begins, _ = segmenter.segment(line)
    tokens = tokenizer.convert_ids_to_tokens(ids)
    return [tokens[begin:end] for begin, end in zip(
        begins, begins[1:] + [len(ids)])]

  assert cut("研究生命起源") == [["研", "究生", "命"], ["起源"]]
  assert cut("去caf\u00e9里看") == [["去"], ["Café里"], ["看"]]
  # Where there are no such words, nothing changes.
  line = "今天天气很好，我们去公园。"
  assert segmenter.segment(line) == corpus.Segmenter(old, True).segment(line)
