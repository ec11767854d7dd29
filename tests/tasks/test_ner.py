"""Named entities: from characters to tokens and back."""

import re

import numpy as np
import pytest
from refusals import refused
from vocabularies import VOCAB_FILE, Letters, written

import tokenization
from albert.files.tables import ReadSettings
from albert.tasks import entity_files, ner
from albert.tasks.entity_files import Entity, Example

LABELS = ner.labels_of(["b", "a"])


def texts_of(examples, tokenizer=None, length=16, by_character=True, **kwargs):
  return ner.Texts(
    examples,
    tokenizer or tokenization.create_tokenizer(VOCAB_FILE),
    LABELS,
    length,
    by_character,
    **kwargs,
  )


def join_labels(texts):
  """Returns the token labels of each text, merged from its windows."""
  one_hot = np.eye(len(texts.labels), dtype=np.int32)
  return [
    rows.argmax(-1)
    for rows in texts.join(
      [
        one_hot[texts.make_features(window)["label_ids"]]
        for window in texts.windows
      ]
    )
  ]


def test_all_entities_of_cluener_come_back(real_data, tokenizer, caplog):
  path = str(real_data / "cluener" / "train.json")
  examples = entity_files.read_examples(
    path, settings=ReadSettings(skip_bad_rows=True)
  )
  assert len(examples) == 10747 and "skipped 1 " in caplog.text
  refused(":1507: .* overlap", entity_files.read_examples, path)
  examples = examples[::4] + entity_files.read_examples(
    str(real_data / "cluener" / "dev.json")
  )
  labels = ner.labels_of(
    entity.kind for example in examples for entity in example.entities
  )
  assert len(labels) == 21
  # Few texts fit into one window.
  texts = ner.Texts(examples, tokenizer, labels, 24, True)
  assert len(texts.windows) > 2 * len(examples)
  assert texts.entities(join_labels(texts)) == [
    example.entities for example in examples
  ]
  assert texts.count_inexact() == 0
  # In dev.json, four entities begin or end inside a word piece.
  texts = ner.Texts(examples[-1343:], tokenizer, labels, 24, False)
  assert texts.count_inexact() == 4


def entities_in(marked):
  """Returns the Example of a text that marks entities of kind x as <...>x."""
  text, entities = "", []
  for before, words, kind in re.findall("([^<]*)(?:<(.*?)>(.))?", marked):
    text += before + words
    if kind:
      entities.append(Entity(len(text) - len(words), len(text), kind))
  return Example(0, text, entities)


MADE = list(
  map(
    entities_in,
    [
      "  我 在 <New York  大学>a<2021>b年 ",
      "iPhone😀<12 Pro>a，😀<👨‍👩‍👧>b好",
      "<北\x00京>a\u200b<市>b\ufffd的\u3000<人>a",
      "<Cafe\u0301>a Zürich <ΣΑΣ>b <가나>a <İstanbul>b",
      "甲乙<丙丁甲>a<乙丙>b" + "丁甲乙丙" * 7,
      "一<%s七>a<八九十>a" % ("二三四五六七八九十一" * 2 + "二三四五六"),
      "\u200b\x00",
      "空",
    ],
  )
)


@pytest.mark.parametrize(
  "by_character, length, lower",
  [(True, 5, True), (True, 64, False), (False, 8, True), (False, 5, False)],
)
def test_entities_of_made_texts_come_back(by_character, length, lower):
  tokenizer = tokenization.create_tokenizer(VOCAB_FILE, None, lower)
  examples = [
    example for example in MADE if by_character or "😀" not in example.text
  ]  # part of a word in WordPiece
  texts = texts_of(examples, tokenizer, length, by_character)
  assert texts.entities(texts.label_ids) == [
    example.entities for example in examples
  ]
  for joined, label_ids in zip(join_labels(texts), texts.label_ids):
    np.testing.assert_array_equal(joined, label_ids)
  for window in texts.windows:
    features = texts.make_features(window)
    assert len({len(value) for value in features.values()}) == 1
    assert len(features["input_ids"]) <= length
    assert not features["label_mask"][0] and not features["label_mask"][-1]


def test_a_token_that_an_entity_begins_or_ends_in_belongs_to_it():
  example = entities_in("<第3>a<d厅>b")
  texts = texts_of([example], by_character=False)
  assert texts.spans[0].tolist() == [[0, 1], [1, 3], [3, 4]]
  assert [LABELS[i] for i in texts.label_ids[0]] == ["B-a", "I-a", "B-b"]
  assert texts.entities(texts.label_ids)[0] == [(0, 3, "a"), (3, 4, "b")]
  assert texts.count_inexact() == 2
  assert texts_of([example]).count_inexact() == 0


def test_each_token_is_decided_where_it_has_most_context():
  texts = texts_of([entities_in("abc<de>afgh")], Letters(), 6, doc_stride=2)
  rows = [texts.make_features(window) for window in texts.windows]
  assert [written(row["input_ids"]) for row in rows] == [
    "<abcd|",
    "<cdef|",
    "<efgh|",
  ]
  # d is the third of four in the first window, the second in the second.
  assert [row["label_mask"] for row in rows] == [
    [0, 1, 1, 1, 0, 0],
    [0, 0, 1, 1, 0, 0],
    [0, 0, 1, 1, 1, 0],
  ]
  assert [row["label_ids"] for row in rows] == [
    [0, 0, 0, 0, 1, 0],
    [0, 0, 1, 2, 0, 0],
    [0, 2, 0, 0, 0, 0],
  ]
  # A long text of many windows.
  texts = texts_of([entities_in("a" * 50000)], Letters(), 34)
  assert sum(sum(w.decides) for w in texts.windows) == 50000
  for bad in (dict(length=2), dict(length=6, doc_stride=0)):
    refused(
      "--max_seq_length .* 3", texts_of, [entities_in("ab")], Letters(), **bad
    )
