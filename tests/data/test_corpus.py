"""Reading text files into documents; word segmentation."""

import copy
import gzip
import pickle
import sys

import jieba
import pytest
from random_texts import random_texts
from refusals import refused
from writing import write

import create_pretraining_data
from albert.data import corpus


def words_of(segmenter, tokenizer, line):
  """Returns the words and the tokens of a line."""
  ids, begins, _ = segmenter.segment(line)
  tokens = tokenizer.convert_ids_to_tokens(ids)
  return [
    "".join(tokens[begin:end]).replace("##", "")
    for begin, end in zip(begins, begins[1:] + [len(ids)])
  ], tokens


@pytest.mark.parametrize(
  "line, words",
  [
    ("我们喜欢红烧肉。", ["我们", "喜欢", "红烧肉", "。"]),
    ("他胸有成竹，说", ["他", "胸有成竹", "，", "说"]),
    ("用Python3写", ["用", "python3", "写"]),
    ("a b", ["a", "b"]),
    ("去café吃饭", ["去", "cafe", "吃饭"]),
    ("\ufffd", []),
    ("中\u200b国很大", ["中国", "很大"]),
    ("😀", ["[UNK]"]),
    ("カタカナ😀の" * 1500, ["[UNK]"]),
  ],
)
def test_words_are_jiebas(segmenter, tokenizer, line, words):
  found, tokens = words_of(segmenter, tokenizer, line)
  assert tokens == tokenizer.tokenize(line) == tokenizer.tokenize_plain(line)
  assert found == words


def test_spelled_words_are_those_between_spaces(tokenizer):
  words, tokens = words_of(
    corpus.Segmenter(tokenizer, use_jieba=False),
    tokenizer,
    "unbelievable story",
  )
  assert words == ["unbelievable", "story"] and len(tokens) > 2


@pytest.mark.parametrize(
  "word, line, words",
  [
    ("*ST洱泽", "称*ST洱泽。", ["称", "*st洱泽", "。"]),  # jieba splits at *
    ("Abc Zyx认证", "有Abc Zyx认证的", ["有", "abczyx认证", "的"]),
    ("洱泽·甲乙丙", "喝洱泽·甲乙丙", ["喝", "洱泽·甲乙丙"]),
    ("zyx洱泽壳", "买ZYX洱泽壳。", ["买", "zyx洱泽壳", "。"]),
    ("洱泽丙丁戊", "看洱泽丙丁戊。", ["看", "洱泽丙丁戊", "。"]),
    ("zyx12", "用zyx12plus。", ["用", "zyx12plus", "。"]),
  ],
)  # one token
def test_words_of_a_dictionary(tokenizer, tmp_path, caplog, word, line, words):
  def segmenter(*lines):
    return create_pretraining_data.create_segmenter(
      create_pretraining_data.TextSettings(
        user_dict=write(tmp_path, "words.txt", *lines)
      ),
      tokenizer,
    )

  assert words_of(segmenter(word + " 9999"), tokenizer, line)[0] == words
  assert not caplog.messages
  segmenter("\u200b\u200b 9999", "zyx zyx 9999")
  assert "1 words of the user dictionary" in caplog.text


@pytest.mark.parametrize("has_rjieba", [True, False])
def test_the_word_cutter_is_jieba(has_rjieba, monkeypatch):
  if has_rjieba:
    pytest.importorskip("rjieba")
  else:
    monkeypatch.setitem(sys.modules, "rjieba", None)
  cutter = pickle.loads(pickle.dumps(corpus.WordCutter()))
  for text in (
    "",
    "我来到北京清华大学",
    "他来到了网易杭研大厦",
    "小明毕业于计算所",
    "李小福是创新办主任也是专家",
    "永和服装饰品有限公司",
    "龘龘𠀀丂，龘",
    "a b",
    "3D打印，C++ 1.5% é\t\r\n",
    "去café吃饭😀！",
    "用a-b.c和1.5%的㐀𠀀",
    "-é.9a_",
    *random_texts(2000, 1),
  ):
    assert cutter.cut(text) == jieba.lcut(text)


def test_frequencies_of_words_are_jiebas(monkeypatch):
  pytest.importorskip("rjieba")
  words = {"家公": 1000000, "清华大": 5, "来到北": None, "新大洱厦": 3}
  for name in ("FREQ", "total"):
    monkeypatch.setattr(jieba.dt, name, copy.copy(getattr(jieba.dt, name)))
  for word, frequency in words.items():
    jieba.add_word(word, frequency)
  cutter = corpus.WordCutter(list(words))
  for text in ("一家公司", "来到北京清华大学", "一座新大洱厦"):
    assert cutter.cut(text) == jieba.lcut(text)


@pytest.mark.parametrize("name", ["lctt_zh.txt", "laws_zh.txt"])
def test_words_and_ids_of_real_text(name, segmenter, tokenizer, real_data):
  cutter = corpus.WordCutter()
  with open(str(real_data / "corpus" / name), encoding="utf-8") as reader:
    lines = [line for _, line in zip(range(20000), reader)]
  for line in lines[::10]:
    assert cutter.cut(line) == jieba.lcut(line)
    ids, begins, _ = segmenter.segment(line)
    assert ids == tokenizer.convert_tokens_to_ids(
      tokenizer.tokenize_plain(line)
    ), line
    assert begins == sorted(set(begins)) and begins[:1] == [0][: len(ids)]
    # A word is one or more of jieba's.
    words = [word for word in jieba.cut(tokenizer.clean(line)) if word.strip()]
    assert len(begins) <= min(len(words), len(ids))


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("extra", [-1, 0, 1, corpus.LONGEST_LINE])
def test_a_long_last_line_is_read(tmp_path, extra, end):
  text = "好" * (corpus.LONGEST_LINE + extra)
  (document,) = corpus.TextReader(
    [write(tmp_path, "a.txt", "开头\n" + text + end)]
  ).documents()
  assert document[0] == "开头" and "".join(document[1:]) == text


def test_short_documents_do_not_make_large_shards(tmp_path):
  path = write(tmp_path, "chat.txt", "好。\n行。\n\n" * 3000)
  assert [
    len(shard)
    for shard in corpus.TextReader([path], shard_characters=256 * 1000).shards()
  ] == [1000] * 3


def test_documents_end_at_blank_lines_and_file_ends(tmp_path):
  long_line = "，".join("第%d个词" % i for i in range(60000))
  path = write(
    tmp_path,
    "a.txt",
    "\ufeff开头\r",
    "\udcff\udcfe\r",
    "繁體字 and English 😀\r",
    " \u200b\0\r\n",
    "三\u200b。\n",
    long_line,
  )
  (tmp_path / "b.txt.gz").write_bytes(gzip.compress("压缩的".encode()))
  reader = corpus.TextReader([path, str(tmp_path / "b.txt.gz")])
  documents = list(reader.documents())
  assert documents[:2] == [
    ["开头", "\ufffd\ufffd", "繁體字 and English 😀"],
    ["三\u200b。"],
  ]
  assert documents[-1] == ["压缩的"]
  assert reader.counts["invalid_bytes"] == 2
  both = [corpus.TextReader([path]) for _ in range(2)]
  list(zip(*(one.documents() for one in both)))  # interleaved
  assert [one.counts["invalid_bytes"] for one in both] == [2, 2]
  assert reader.counts["documents"] == 4
  assert not reader.counts["repeated_documents"]
  twice = corpus.TextReader([path, path])
  list(twice.documents())
  assert twice.counts["repeated_documents"] == len(documents) - 1
  pieces = documents[2:-1]
  assert "".join("".join(piece) for piece in pieces) == long_line
  assert all(line.endswith("，") for piece in pieces for line in piece[:-1])


@pytest.mark.parametrize(
  "more, documents",
  [
    ({}, ["ab", "c", "de", "f", "g"]),
    ({"paragraphs": 2}, ["abc", "de", "fg"]),
    ({"paragraphs": 9}, ["abcde", "fg"]),
    ({"paragraphs": 9, "document_characters": 2}, ["ab", "cd", "e", "fg"]),
    ({"document_characters": 1}, list("abcdefg")),
  ],
)
def test_where_documents_end(tmp_path, more, documents):
  paths = [
    write(tmp_path, name, *lines)
    for name, lines in (
      ("1", ["a", "b", "", "", "c", "", "d", "e"]),
      ("2", ["f", "", "g", ""]),
    )
  ]
  reader = corpus.TextReader(paths, **more)
  assert ["".join(lines) for lines in reader.documents()] == documents
  assert reader.counts["documents"] == len(documents)


def test_lines_of_the_heldout_text(tmp_path):
  long, other = "这一行有十个汉字了。", "这一行也有十个汉字。"
  path = write(tmp_path, "text", long, "短", "", other, "", " " + long)
  reader = corpus.TextReader(
    [path], heldout=[write(tmp_path, "heldout", "短", long + "\r")]
  )
  list(reader.documents())
  assert reader.counts["heldout_lines"] == 2


def test_a_share_of_the_documents_is_held_out(tmp_path):
  """Also of documents longer than a shard, and of equal ones."""
  texts = [
    "第%d篇。\n%s" % (number, "很长。\n" * number * (number % 9 == 0))
    for number in (*range(500), *range(100))
  ]
  path = write(tmp_path, "text", "\n\n".join(texts))

  def read(share, **more):
    reader = corpus.TextReader([path], 300, heldout_share=share, **more)
    pieces = ["".join(lines) for lines in reader.documents()]
    return pieces, (
      reader.counts["documents"],
      reader.counts["other_documents"],
    )

  (train, counts), (heldout, others), (whole, _) = (
    read(0.2),
    read(0.2, only_heldout=True),
    read(0.0),
  )
  assert sorted(train + heldout) == sorted(whole) and counts == others[::-1]
  assert 80 < others[0] < 160 and sum(counts) == 600
  titles = [
    {piece.split("。")[0] for piece in part} - {"很长"}
    for part in (train, heldout)
  ]
  assert not titles[0] & titles[1] and len(titles[0] | titles[1]) == 500
  assert set(heldout) < set(read(0.5, only_heldout=True)[0])


def test_documents_of_wikiextractor(tmp_path):
  texts = ["标题\n\n第一段。\n第二段。\n", "又一篇。"]
  expected = [["标题", "第一段。", "第二段。"], ["又一篇。"]]
  tagged = write(
    tmp_path,
    "a.txt",
    *(
      '<doc id="1" url="x" title="y">\n%s\n</doc>' % text.replace("\n\n", "\n")
      for text in texts
    ),
  )
  lines = write(tmp_path, "wiki_00", *({"text": x, "url": "x"} for x in texts))
  array = write(tmp_path, "a.json", [{"text": x} for x in texts])
  for path, field in ((tagged, None), (lines, "text"), (array, "text")):
    reader = corpus.TextReader([path], text_field=field)
    assert list(reader.documents()) == expected
    assert reader.counts["documents"] == 2
  refused(
    "wiki_00:1: no text 'body', only text, url",
    list,
    corpus.TextReader([lines], text_field="body").documents(),
  )


@pytest.mark.parametrize(
  "content, is_text",
  [
    ("今天天气好。\n", True),
    ("\ufeff[1] 参考文献\n", True),
    ("{x}\n", True),
    ("<b>好</b>\n", True),
    ("", True),
    ('{"id": 1, "text": "好"}\n', False),
    ('\n[{"a": 1}]', False),
    ("<doc id=1>\n好\n</doc>\n", True),
    ("<!DOCTYPE html>", False),
    ("id,text\n1,好\n", False),
    ("Title, or id, text\n", True),
    ("text\n", False),
  ],
)
def test_what_is_no_text(content, is_text, tmp_path):
  for name, made in (
    ("a.txt", content.encode()),
    ("a.gz", gzip.compress(content.encode())),
  ):
    (tmp_path / name).write_bytes(made)
    if is_text:
      corpus.check_is_text(str(tmp_path / name))
    else:
      refused(
        name + ": not plain text", corpus.check_is_text, str(tmp_path / name)
      )
