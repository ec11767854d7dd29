"""Inputs to predict: arguments, files and pipes."""

import pytest
from refusals import refused
from scripting import streams
from writing import write

from albert.predict import inputs
from albert.predict.command import TextSettings, find_inputs

TEXT, PAIR = ("text",), ("text_a", "text_b")
ASKED, CHOSEN = ("question", "passage"), ("passage", "question", "choices")
IDIOM = ("text", "choices")
JSON = '{"text_b": "乙", "text_a": "甲", "id": 3}\n\n'


def test_what_the_command_line_gives(tmp_path):
  file = {"input_file": write(tmp_path, "a.txt", "甲", "乙")}
  both = {"choices": ["丙", "丁"], "question": "丙"}

  def find(given, texts, fields):
    return [
      item.values for item in find_inputs(TextSettings(**given), texts, fields)
    ]

  for given, texts, fields, found in (
    ({}, ["甲", "乙"], TEXT, ["甲", "乙"]),
    ({}, ["甲", "乙"], PAIR, [("甲", "乙")]),
    (file, [], TEXT, ["甲", "乙"]),
    # A question applies to the whole file.
    (dict(file, question="丙"), [], ASKED, [("丙", "甲\n乙")]),
    ({"question": "丙"}, ["甲", "乙"], ASKED, [("丙", "甲"), ("丙", "乙")]),
    (both, ["甲"], CHOSEN, [("甲", "丙", ["丙", "丁"])]),
  ):
    assert find(given, texts, fields) == found
  for message, given, fields in (
    ("--input_file, not both", file, TEXT),
    ("text_a, text_b: ", {}, PAIR),
    ("--question", {}, ASKED),
    ("--question", {}, CHOSEN),
    ("--choices", {}, IDIOM),
    ("takes text, not --choices", both, TEXT),
    ("takes question, passage, not --choices", both, ASKED),
    ("passage, question, choices: .*--choices", {"question": "乙"}, CHOSEN),
    ("--question", {"choices": ["丙"]}, CHOSEN),
  ):
    refused(message, find, given, ["甲", "乙", "丙"], fields)


def read(folder, name, text, fields, *how):
  with streams(text.encode()):
    return [
      item.values
      for item in inputs.read(name and write(folder, name, text), fields, *how)
    ]


@pytest.mark.parametrize(
  "name, text, fields, found",
  [
    ("a.txt", "{甲\n\n乙\n", TEXT, ["{甲", None, "乙"]),  # one result per line
    ("a.txt", "甲\t乙\n\n", PAIR, [("甲", "乙"), None]),
    ("a.txt", "甲\t乙\t丙\t丁\n", CHOSEN, [("甲", "乙", ["丙", "丁"])]),
    ("a.tsv", "id\ttext_b\ttext_a\n1\t乙\t甲\n", PAIR, [("甲", "乙")]),
    ("a.tsv", "text_a\n甲\n", TEXT, ["甲"]),
    ("a.csv", "id,Review\n1,甲\n2,\n", TEXT, ["甲", None]),
    ("a.csv", "sentence1,sentence2\n甲,乙\n", PAIR, [("甲", "乙")]),
    ("a.jsonl", '{"content": null}\n{"content": "甲"}\n', TEXT, [None, "甲"]),
    ("a.json", JSON, PAIR, [("甲", "乙"), None]),
    ("a.jsonl", JSON, TEXT, ["甲", None]),
    (
      "a.jsonl",
      '{"text": "甲", "choices": ["乙", "丙"]}',
      IDIOM,
      [("甲", ["乙", "丙"])],
    ),
    (None, JSON, PAIR, [("甲", "乙"), None]),
    (None, "甲\n", TEXT, ["甲"]),
  ],
)
def test_files(name, text, fields, found, tmp_path):
  assert read(tmp_path, name, text, fields) == found


@pytest.mark.parametrize(
  "text, found",
  [
    ("note,content\n甲,乙\n", ["甲"]),
    ("text,content\n甲,乙\n", ["甲"]),
    ("1,甲\n0,乙\n", ["甲", "乙"]),
  ],
)  # no header, as in training
def test_a_table_is_read_as_in_training(text, found, tmp_path):
  assert (
    read(
      tmp_path,
      "a.csv",
      text,
      TEXT,
      None,
      {"columns": ["label", "note"], "text_a": "note"},
    )
    == found
  )


@pytest.mark.parametrize(
  "name, text, fields, message",
  [
    ("a.txt", "甲\t乙\n\n甲\n", PAIR, ":3: expected text_a, text_b .*found 1"),
    ("a.txt", "甲\t乙\t丙\n", PAIR, ":1: .*found 3"),
    ("a.txt", "甲\t乙\t丙\n", CHOSEN, ":1: .*found 3"),
    ("a.tsv", "sentence1\tsentence2\n", TEXT, ":1: .*takes one"),
    ("a.tsv", "甲\n乙\n", TEXT, ":1: .*no field text, only 甲; .*--columns"),
    ("a.tsv", "a\ttext_a\tb\n", PAIR, ":1: .*no field text_b, only a, text_a"),
    ("a.tsv", "title\tcontent\n", TEXT, ":1: .*no field text, only title"),
    ("a.tsv", "text\tchoices\n", IDIOM, ": .*JSON"),
    ("a.jsonl", JSON + "[]\n", PAIR, ":3: not a JSON object"),
    ("a.jsonl", JSON + "{}\n", PAIR, ":3: no field text_a, only"),
    (None, "甲\n", PAIR, "standard input:1: "),
  ],
)
def test_bad_files(name, text, fields, message, tmp_path):
  refused((name or "") + message, read, tmp_path, name, text, fields)
