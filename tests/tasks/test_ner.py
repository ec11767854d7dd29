"""Files of named entities; characters and tokens; scores."""

import json

import numpy as np
import pytest
from scripting import VOCAB

import tokenization
from albert.errors import InputError
from albert.tasks import metrics, ner
from albert.tasks.ner import Entity, Example

VOCAB_FILE = VOCAB.split("=")[1]
LABELS = ner.labels_of(["b", "a"])


def texts_of(examples, tokenizer=None, length=16, by_character=True, **kwargs):
  return ner.Texts(examples, tokenizer or tokenization.create_tokenizer(
      VOCAB_FILE), LABELS, length, by_character, **kwargs)


@pytest.mark.parametrize("name, count", [
    ("train.json", 10747), ("dev.json", 1343)])
def test_all_entities_of_cluener_come_back(real_data, name, count, caplog):
  examples = ner.read_examples(str(real_data / "cluener" / name),
                               skip_bad_rows=True)
  assert len(examples) == count
  if name == "train.json":  # the one row that cannot be labelled
    assert "skipped 1 bad row(s)" in caplog.text
    assert "train.json:1507: " in caplog.text
    with pytest.raises(InputError, match=":1507: .* overlap; correct it, or"):
      ner.read_examples(str(real_data / "cluener" / name))
  labels = ner.labels_of(entity.kind for example in examples
                         for entity in example.entities)
  assert len(labels) == 21
  tokenizer = tokenization.create_tokenizer(VOCAB_FILE)
  # Few texts fit one window.
  texts = ner.Texts(examples, tokenizer, labels, 24, True)
  assert len(texts.windows) > 2 * count
  one_hot = np.eye(len(labels), dtype=np.int32)
  found = texts.join([one_hot[texts.make_features(window)["label_ids"]]
                      for window in texts.windows])
  assert texts.entities([rows.argmax(-1) for rows in found]) == [
      example.entities for example in examples]
  assert texts.count_inexact() == 0
  if name == "dev.json":  # four begin or end inside a piece of a word
    texts = ner.Texts(examples, tokenizer, labels, 24, by_character=False)
    assert texts.count_inexact() == 4


def entities_in(text, *marked):
  """Returns the Example of a text and the words of its entities, in order."""
  entities, end = [], 0
  for words, kind in marked:
    start = text.index(words, end)
    end = start + len(words)
    entities.append(Entity(start, end, kind))
  return Example(0, text, entities)


MADE = [
    entities_in("  我 在 New York  大学2021年 ", ("New York  大学", "a"),
                ("2021", "b")),
    entities_in("iPhone😀12 Pro，😀👨‍👩‍👧好", ("12 Pro", "a"), ("👨‍👩‍👧", "b")),
    entities_in("北\x00京\u200b市\ufffd的\u3000人", ("北\x00京", "a"),
                ("市", "b"), ("人", "a")),
    entities_in("Cafe\u0301 Zürich ΣΑΣ 가나 İstanbul", ("Cafe\u0301", "a"),
                ("ΣΑΣ", "b"), ("가나", "a"), ("İstanbul", "b")),
    entities_in("甲乙丙丁" * 9, ("丙丁甲" * 1, "a"), ("乙丙", "b")),
    Example(0, "一二三四五六七八九十" * 3, [Entity(1, 27, "a"),
                                  Entity(27, 30, "a")]),
    Example(0, "\u200b\x00", []), Example(0, "空", [])]


@pytest.mark.parametrize("by_character", [True, False])
@pytest.mark.parametrize("length", [5, 8, 64])
@pytest.mark.parametrize("lower", [True, False])
def test_entities_of_made_texts_come_back(by_character, length, lower):
  tokenizer = tokenization.create_tokenizer(VOCAB_FILE, None, lower)
  examples = [example for example in MADE if by_character or "😀" not in
              example.text]  # which the pieces take for part of a word
  texts = texts_of(examples, tokenizer, length, by_character)
  assert texts.entities(texts.label_ids) == [
      example.entities for example in examples]
  one_hot = np.eye(5, dtype=np.int32)
  joined = texts.join([one_hot[texts.make_features(window)["label_ids"]]
                       for window in texts.windows])
  for rows, label_ids in zip(joined, texts.label_ids):
    np.testing.assert_array_equal(rows.argmax(-1), label_ids)
  for window in texts.windows:
    features = texts.make_features(window)
    assert len({len(value) for value in features.values()}) == 1
    assert len(features["input_ids"]) <= length
    assert not features["label_mask"][0] and not features["label_mask"][-1]


def test_entities_of_sentencepiece_come_back(real_data):
  (model,) = (real_data / "sentencepiece").glob("*.model")
  tokenizer = tokenization.create_tokenizer(None, str(model))
  example = entities_in("Angela Merkel besucht  die TU München.",
                        ("Angela Merkel", "a"), ("TU München", "b"))
  for by_character in (True, False):
    texts = texts_of([example], tokenizer, 8, by_character)
    assert texts.entities(texts.label_ids) == [example.entities]


def test_a_token_that_an_entity_begins_or_ends_in_belongs_to_it():
  example = entities_in("第3d厅", ("第3", "a"), ("d厅", "b"))
  texts = texts_of([example], by_character=False)
  assert texts.spans[0].tolist() == [[0, 1], [1, 3], [3, 4]]
  assert [LABELS[i] for i in texts.label_ids[0]] == ["B-a", "I-a", "B-b"]
  assert texts.entities(texts.label_ids)[0] == [(0, 3, "a"), (3, 4, "b")]
  assert texts.count_inexact() == 2
  assert texts_of([example]).count_inexact() == 0


class Letters:
  """A tokenizer whose tokens are the characters, for cases worked by hand."""
  cls_id, sep_id = 1, 2

  def tokenize_plain(self, text):
    return list(text)

  def convert_tokens_to_ids(self, tokens):
    return [ord(token) for token in tokens]


def test_each_token_is_decided_where_it_has_most_context():
  texts = texts_of([Example("x", "abcdefgh", [Entity(3, 5, "a")])], Letters(),
                   6, doc_stride=2)
  rows = [texts.make_features(window) for window in texts.windows]
  assert ["".join(map(chr, row["input_ids"][1:-1])) for row in rows] == [
      "abcd", "cdef", "efgh"]
  # d is third of four in the first window and second in the second.
  assert [row["label_mask"] for row in rows] == [
      [0, 1, 1, 1, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 1, 1, 1, 0]]
  assert [row["label_ids"] for row in rows] == [
      [0, 0, 0, 0, 1, 0], [0, 0, 1, 2, 0, 0], [0, 2, 0, 0, 0, 0]]
  # A long text takes no longer than its windows.
  texts = texts_of([Example("x", "a" * 50000, [])], Letters(), 34)
  assert sum(sum(w.decides) for w in texts.windows) == 50000
  for bad in (dict(length=2), dict(length=6, doc_stride=0)):
    with pytest.raises(InputError, match="max_seq_length must be at least 3"):
      texts_of([Example("x", "ab", [])], Letters(), **bad)


def write(tmp_path, name, content):
  (tmp_path / name).write_text(content, encoding="utf-8")
  return "file://%s" % (tmp_path / name)


def test_cluener_layout(tmp_path):
  row = {"text": "李小明在北京北京", "label": {
      "name": {"李小明": [[0, 2]]}, "address": {"北京": [[6, 7], [4, 5]]}}}
  lines = [json.dumps(dict(row, **more)) + "\r\n" for more in ({}, {"id": 7})]
  path = write(tmp_path, "train.json", "\ufeff" + "\n".join(lines))
  entities = [(0, 3, "name"), (4, 6, "address"), (6, 8, "address")]
  examples = ner.read_examples(path)
  assert examples == [Example(0, row["text"], entities),
                      Example(7, row["text"], entities)]
  assert ner.submission(examples[1], entities) == {
      "id": 7, "label": {"name": {"李小明": [[0, 2]]},
                         "address": {"北京": [[4, 5], [6, 7]]}}}
  assert ner.with_offsets(examples[0], entities)["entities"][0] == {
      "kind": "name", "start": 0, "end": 3, "text": "李小明"}
  assert ner.marked(row["text"], entities) == (
      "[李小明](name)在[北京](address)[北京](address)")
  path = write(tmp_path, "test.json", '{"id": 3, "text": "a"}\n')
  assert ner.read_examples(path, True) == [Example(3, "a", None)]


# Entities of one, two and three rows, two in a row.
SCHEMES = {
    "BIO": "B-a I-a B-a B-b I-b I-b O",
    "BIOES": "B-a E-a S-a B-b I-b E-b O",
    "BILOU": "B_a L_a U_a B_b I_b L_b O",
    "BMES": "B-a E-a S-a B-b M-b E-b O",
    "BMEO": "B-a E-a B-a B-b M-b E-b O",
}


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_columns(scheme, tmp_path):
  """The scheme follows from the file; characters are put together as is."""
  tags = SCHEMES[scheme].split()
  rows = "".join("%s\tx %s\n" % pair for pair in zip("甲 AB9\u2028乙", tags))
  path = write(tmp_path, "train.txt",
               "-DOCSTART- -X- O\n\n%s\n\n%s" % (rows, rows.strip("\n")))
  kinds = [(0, 2, "a"), (2, 3, "a"), (3, 6, "b")]
  assert ner.read_examples(path) == [
      Example(number, "甲 AB9\u2028乙", kinds) for number in range(2)]


def test_words_of_columns(tmp_path):
  path = write(tmp_path, "dev.bio", "\n".join([
      "Angela B-a", "Merkel I-a", "visits O", "7 O", "universities O", ", O",
      "TU B-b", "in O", "北京 B-b", "C O", "B O", "A O", "7 O"]) + "\n")
  (example,) = ner.read_examples(path)
  assert example.text == "Angela Merkel visits 7 universities,TU in北京CBA7"
  assert [example.text[start:end] for start, end, _ in example.entities] == [
      "Angela Merkel", "TU", "北京"]
  path = write(tmp_path, "test.txt", "甲\n乙\n\n丙\n")
  assert ner.read_examples(path, True) == [
      Example(0, "甲乙", None), Example(1, "丙", None)]


def cluener(text="甲乙丙", **label):
  return json.dumps({"text": text, "label": label})


@pytest.mark.parametrize("name, content, message", [
    ("a.json", "{", "a.json:1: .*; correct it, or leave such rows out with"),
    ("a.json", "\n[]", 'a.json:2: not a JSON object with a "text"'),
    ("a.json", '{"text": "\\ud83d", "label": {}}', "a.json:1: .*surrogates"),
    ("a.json", '{"text": "甲"}', "a.json:1: the labels are missing"),
    ("a.json", cluener(" "), "a.json:1: the text is empty"),
    ("a.json", cluener(x={"乙丙": [[1, 3]]}), "1 to 3 of .* are not '乙丙'"),
    ("a.json", cluener(x={"乙": [[-2, -2]]}), "-2 to -2 of .* are not '乙'"),
    ("a.json", cluener(x={"甲": [[1, 1]]}), "1 to 1 of .* are not '甲'"),
    ("a.json", cluener(x={"甲": [0, 0]}), '"label" is not {kind: {entity'),
    ("a.json", cluener(x={"甲乙": [[0, 1]]}, y={"乙": [[1, 1]]}),
     "a.json:1: '甲乙' and '乙' overlap"),
    ("a.json", "", "a.json: has no texts"),
    ("a.txt", "甲 O\n\n乙 X-a\n", "a.txt:3: unknown tag 'X-a': tags are O, or"),
    ("a.txt", "甲 B\n", "a.txt:1: unknown tag 'B'"),
    ("a.txt", "甲 O\n乙\n", "a.txt:2: unknown tag ''"),
    ("a.txt", "甲\n", "a.txt:1: the labels are missing"),
    ("a.txt", "甲 O\n乙 I-a\n", "a.txt:2: I-a without B-a before it"),
    ("a.txt", "甲 B-a\n乙 I-b\n", "a.txt:2: I-b without B-b before it"),
    ("a.txt", "甲 O\n乙 E-a\n", "a.txt:2: E-a without B-a before it"),
    ("a.txt", "甲 S-a\n乙 E-a\n", "a.txt:2: E-a without B-a before it"),
    ("a.txt", "甲 B-a\n乙 E-a\n丙 I-a\n", "a.txt:3: I-a without B-a"),
    ("a.txt", "甲 B-a\n乙 O\n\n丙 S-a\n", "a.txt:2: .* kind a has no end"),
    ("a.txt", "甲 B-a\n乙 M-a\n\n丙 B-a\n丙 E-a\n",
     "a.txt:2: an entity of kind a has no end before O"),
    ("a.txt", "甲 B-a\n乙 I-a\n丙 M-a\n",
     r"a.txt:3: tags of two schemes, M- and I- \(line 2\): use one"),
])
def test_bad_rows_are_named(tmp_path, name, content, message):
  path = write(tmp_path, name, content)
  with pytest.raises(InputError, match=message):
    ner.read_examples(path)


def test_bad_rows_can_be_left_out_but_not_of_a_test_file(tmp_path, caplog):
  good, bad = '{"text": "甲", "label": {}}\n', '{"text": 5, "label": {}}\n'
  path = write(tmp_path, "a.json", bad + good + bad)
  assert ner.read_examples(path, skip_bad_rows=True) == [Example(0, "甲", [])]
  assert "skipped 2 bad row(s), the first: file:" in caplog.text
  with pytest.raises(InputError, match='a.json:1: .*"text"; correct it$'):
    ner.read_examples(path, True, skip_bad_rows=True)
  path = write(tmp_path, "test.json", good + '{"text": "乙"}\n')
  with pytest.raises(InputError, match="1 of 2 texts have no labels"):
    ner.read_examples(path, True)


def test_a_test_file_without_entities_has_no_labels(tmp_path):
  path = write(tmp_path, "test.txt", "甲 O\n\n乙 O\n")
  assert [x.entities for x in ner.read_examples(path)] == [[], []]
  assert [x.entities for x in ner.read_examples(path, True)] == [None, None]


def test_scores():
  true = [[Entity(0, 2, "a"), Entity(3, 4, "b")], [Entity(0, 1, "a")], []]
  claimed = [[Entity(0, 2, "a"), Entity(3, 4, "a")], [Entity(0, 1, "a")],
             [Entity(0, 2, "c")]]
  found, report = metrics.entities(true, claimed)
  assert found == {"precision": 0.5, "recall": 2 / 3, "f1": 4 / 7}
  assert [line.split() for line in report.splitlines()] == [
      ["kind", "precision", "recall", "f1", "entities"],
      ["a", "0.6667", "1.0000", "0.8000", "2"],
      ["b", "0.0000", "0.0000", "0.0000", "1"],
      ["c", "0.0000", "0.0000", "0.0000", "0"],
      ["all", "0.5000", "0.6667", "0.5714", "3"]]
  assert metrics.entities([[]], [[]])[0] == dict.fromkeys(found, 0.0)
