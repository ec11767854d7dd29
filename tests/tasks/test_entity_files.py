"""Files of named entities: reading and writing both layouts; bad rows."""

import json
import random
import re

import pytest
from refusals import refused
from writing import write

from albert.files.tables import ReadSettings
from albert.tasks import entity_files
from albert.tasks.entity_files import Example, read_examples


def test_cluener_layout(tmp_path):
  row = {
    "text": "李小明在北京北京",
    "label": {
      "name": {"李小明": [[0, 2]]},
      "address": {"北京": [[6, 7], [4, 5]]},
    },
  }
  lines = [json.dumps(dict(row, **more)) + "\r\n" for more in ({}, {"id": 7})]
  path = write(tmp_path, "train.json", "\ufeff" + "\n".join(lines))
  entities = [(0, 3, "name"), (4, 6, "address"), (6, 8, "address")]
  examples = read_examples(path)
  assert examples == [Example(name, row["text"], entities) for name in (0, 7)]
  assert entity_files.submission(examples[1], entities) == {
    "id": 7,
    "label": {
      "name": {"李小明": [[0, 2]]},
      "address": {"北京": [[4, 5], [6, 7]]},
    },
  }
  assert entity_files.with_offsets(examples[0], entities)["entities"][0] == {
    "kind": "name",
    "start": 0,
    "end": 3,
    "text": "李小明",
  }
  path = write(tmp_path, "test.json", {"id": 3, "text": "a"})
  assert read_examples(path, True) == [Example(3, "a", None)]


# Tags of single-row entities; of the first, inner and last row of longer ones:
# BIO, BIOES, BILOU, BMES, BMEO.
@pytest.mark.parametrize(
  "only, first, inner, last, mark",
  [tuple(letters) for letters in "BBII- SBIE- UBIL_ SBME- BBME-".split()],
)
def test_columns(only, first, inner, last, mark, tmp_path):
  """The scheme is detected; characters are joined without changes."""

  def tags_of(length, entities):
    tags = ["O"] * length
    for start, end, kind in entities:
      letters = (
        only if end - start == 1 else (first + inner * (end - start - 2) + last)
      )
      tags[start:end] = [letter + mark + kind for letter in letters]
    return tags

  text, rng, every = "甲 AB9\u2028乙" * 4, random.Random(0), []
  for _ in range(100):
    entities, end = [], 0
    while end < 20:
      start = end + rng.choice([0, 0, 1, 4])
      end = start + rng.randint(1, 4)
      entities.append((start, end, rng.choice("abc")))
    every.append(entities)
  path = write(
    tmp_path,
    "train.txt",
    "\n\n\n".join(
      "\n".join(map("%s\tx\t%s".__mod__, zip(text, tags_of(28, x))))
      for x in every
    ),
  )
  assert read_examples(path) == [
    Example(number, text, x) for number, x in enumerate(every)
  ]


def cluener(text="甲乙丙", **label):
  return json.dumps({"text": text, "label": label})


@pytest.mark.parametrize(
  "content, message",
  [
    ("{", "1: .*--skip_bad_rows"),
    ('\n{"a": 1}', '2: .*"text"'),
    ('{"text": "\\ud83d", "label": {}}', "1: .*surrogates"),
    ('{"text": "甲"}', "1: .*labels are missing"),
    (cluener(" "), "1: .*empty"),
    (cluener(x={"乙丙": [[1, 3]]}), "1: .*1 to 3 .*'乙丙'"),
    (cluener(x={"乙": [[-2, -2]]}), "1: .*-2 to -2 .*'乙'"),
    (cluener(x={"甲": [[1, 1]]}), "1: .*1 to 1 .*'甲'"),
    (cluener(x={"甲": [0, 0]}), "1: 'label': .*CLUENER"),
    (cluener(x={"甲乙": [[0, 1]]}, y={"乙": [[1, 1]]}), "1: '甲乙' and '乙'"),
    ("", " .*no texts"),
    ("甲 O\n\n乙 X-a\n", "3: .*'X-a'"),
    ("甲 B\n", " .*word segmentation"),
    ("甲 O\n乙\n", "2: .*2 col.*found 1"),
    ("小0 B-a\n明1 I-a\n", " .*小0.*WeiboNER: .*sed"),
    ("李 PER-B\n明 PER-I\n在 O\n", " .*PER-B.* B-PER"),
    ('{"text": "甲", "entities": [5]}', "1: .*CLUENER.*doccano.*Label Studio"),
    ('["甲", {"entities": []}]', ".*CLUENER.*doccano"),
    ('{"tokens": ["甲"], "ner_tags": [1]}', "1: tags are numbers"),
    ("甲\n", "1: .*labels are missing"),
    ("甲 B-a\n乙 O\n\n丙 S-a\n", "2: .*type a .*end"),
    ("甲 B-a\n乙 M-a\n\n丙 B-a\n丙 E-a\n", "2: .*type a .*end .*O"),
    ("甲 B-a\n乙 I-a\n丙 M-a\n", r"3: .*M- and I- \(line 2\)"),
  ],
)
def test_bad_rows_are_named(tmp_path, content, message):
  name = "a.json" if content.lstrip()[:1] in ("", "{", "[") else "a.txt"
  refused(
    "%s:?%s" % (name, message), read_examples, write(tmp_path, name, content)
  )


def test_bad_rows_can_be_left_out_but_not_of_a_test_file(tmp_path, caplog):
  good, bad = '{"text": "甲", "label": {}}\n', '{"text": 5, "label": {}}\n'
  path = write(tmp_path, "a.json", bad + good + bad)
  settings = ReadSettings(skip_bad_rows=True, max_bad_rows=0.7)
  assert read_examples(path, settings=settings) == [Example(0, "甲", [])]
  assert "skipped 2 " in caplog.text
  refused("a.json:1: ", read_examples, path, True, settings)
  refused(
    "1 of 2 .*no labels",
    read_examples,
    write(tmp_path, "test.json", good + '{"text": "乙"}\n'),
    True,
  )
  # A test file without any entity is unlabelled.
  path = write(tmp_path, "test.txt", "甲 O\n\n乙 O\n")
  for is_test, entities in ((False, []), (True, None)):
    assert [x.entities for x in read_examples(path, is_test)] == [entities] * 2


CONLL = """-DOCSTART- -X- O O

Anna NNP I-NP I-PER
lives VBZ I-VP O
in IN I-PP O
New NNP I-NP I-LOC
York NNP I-NP I-LOC

Bob NNP I-NP I-PER
Eve NNP B-NP B-PER
"""
PER = [(0, 2, "PER")]
ONE = [("李明在", PER)]


@pytest.mark.parametrize(
  "name, content, expected",
  [
    (
      "a.txt",
      CONLL,
      [
        ("Anna lives in New York", [(0, 4, "PER"), (14, 22, "LOC")]),
        ("Bob Eve", [(0, 3, "PER"), (4, 7, "PER")]),
      ],
    ),
    (
      "dev.bio",
      "Angela B-a\nMerkel I-a\nvisits O\n7 O\nuniversities O\n, O\n"
      "TU B-b\nin O\n北京 B-b\nC O\nB O\nA O\n7 O\n",
      [
        (
          "Angela Merkel visits 7 universities,TU in北京CBA7",
          [(0, 13, "a"), (36, 38, "b"), (41, 43, "b")],
        )
      ],
    ),
    ("a.txt", "New York\tB-a\nis\tO\n", [("New York is", [(0, 8, "a")])]),
    (
      "a.txt",
      "李 明 在\tB-PER I-PER O\n李 在\tB-PER O\n",
      [("李明在", PER), ("李在", [(0, 1, "PER")])],
    ),
    ("a.txt", "word tag\n李 B-PER\n明 I-PER\n", [("李明", PER)]),
    (
      "a.txt",
      "甲 O\n李 E-PER\n明 S-PER\n",
      [("甲李明", [(1, 2, "PER"), (2, 3, "PER")])],
    ),
    (
      "test.txt",
      "今天天气好\n李明来了\n",
      [("今天天气好", None), ("李明来了", None)],
    ),
    ("test.txt", "李\n明\n\n在\n", [("李明", None), ("在", None)]),
    (
      "a.jsonl",
      {
        "text": "李明在",
        "entities": [
          {"id": 1, "label": "PER", "start_offset": 0, "end_offset": 2}
        ],
      },
      ONE,
    ),
    ("a.jsonl", {"text": "李明在", "label": [[0, 2, "PER"]]}, ONE),
    (
      "a.json",
      [
        {
          "text": "李明在",
          "label": [{"start": 0, "end": 2, "text": "李明", "labels": ["PER"]}],
        }
      ],
      ONE,
    ),
    (
      "a.json",
      [
        {
          "data": {"text": "李明在"},
          "annotations": [
            {
              "result": [
                {"value": {"start": 0, "end": 2, "labels": ["PER"]}},
                {"value": {"choices": ["x"]}},
              ]
            }
          ],
        }
      ],
      ONE,
    ),
    (
      "a.jsonl",
      {"tokens": ["李", "明", "在"], "tags": ["B-PER", "I-PER", "O"]},
      ONE,
    ),
    (
      "a.jsonl",
      {
        "text": "李明在",
        "entities": [{"kind": "PER", "start": 0, "end": 2, "text": "李明"}],
      },
      ONE,
    ),
  ],
)
def test_what_tools_export(name, content, expected, tmp_path, caplog):
  caplog.set_level("INFO", "absl")
  examples = read_examples(write(tmp_path, name, content), name[:4] == "test")
  assert [example[1:] for example in examples] == expected
  for said in ("a.txt: 4 columns", "a.txt: 3 entities .*I- .*line 3"):
    assert bool(re.search(said, caplog.text)) == (content is CONLL)
