"""Files of named entities: both layouts, read and written; bad rows."""

import json

import pytest

from albert.errors import InputError
from albert.tasks import entity_files
from albert.tasks.entity_files import Example


def write(tmp_path, name, content):
  (tmp_path / name).write_text(content, encoding="utf-8")
  return "file://%s" % (tmp_path / name)


def test_cluener_layout(tmp_path):
  row = {"text": "李小明在北京北京", "label": {
      "name": {"李小明": [[0, 2]]}, "address": {"北京": [[6, 7], [4, 5]]}}}
  lines = [json.dumps(dict(row, **more)) + "\r\n" for more in ({}, {"id": 7})]
  path = write(tmp_path, "train.json", "\ufeff" + "\n".join(lines))
  entities = [(0, 3, "name"), (4, 6, "address"), (6, 8, "address")]
  examples = entity_files.read_examples(path)
  assert examples == [Example(0, row["text"], entities),
                      Example(7, row["text"], entities)]
  assert entity_files.submission(examples[1], entities) == {
      "id": 7, "label": {"name": {"李小明": [[0, 2]]},
                         "address": {"北京": [[4, 5], [6, 7]]}}}
  assert entity_files.with_offsets(examples[0], entities)["entities"][0] == {
      "kind": "name", "start": 0, "end": 3, "text": "李小明"}
  assert entity_files.marked(row["text"], entities) == (
      "[李小明](name)在[北京](address)[北京](address)")
  path = write(tmp_path, "test.json", '{"id": 3, "text": "a"}\n')
  assert entity_files.read_examples(path, True) == [Example(3, "a", None)]


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
  assert entity_files.read_examples(path) == [
      Example(number, "甲 AB9\u2028乙", kinds) for number in range(2)]


def test_words_of_columns(tmp_path):
  path = write(tmp_path, "dev.bio", "\n".join([
      "Angela B-a", "Merkel I-a", "visits O", "7 O", "universities O", ", O",
      "TU B-b", "in O", "北京 B-b", "C O", "B O", "A O", "7 O"]) + "\n")
  (example,) = entity_files.read_examples(path)
  assert example.text == "Angela Merkel visits 7 universities,TU in北京CBA7"
  assert [example.text[start:end] for start, end, _ in example.entities] == [
      "Angela Merkel", "TU", "北京"]
  path = write(tmp_path, "test.txt", "甲\n乙\n\n丙\n")
  assert entity_files.read_examples(path, True) == [
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
    entity_files.read_examples(path)


def test_bad_rows_can_be_left_out_but_not_of_a_test_file(tmp_path, caplog):
  good, bad = '{"text": "甲", "label": {}}\n', '{"text": 5, "label": {}}\n'
  path = write(tmp_path, "a.json", bad + good + bad)
  assert entity_files.read_examples(path, skip_bad_rows=True) == [
      Example(0, "甲", [])]
  assert "skipped 2 bad row(s), the first: file:" in caplog.text
  with pytest.raises(InputError, match='a.json:1: .*"text"; correct it$'):
    entity_files.read_examples(path, True, skip_bad_rows=True)
  path = write(tmp_path, "test.json", good + '{"text": "乙"}\n')
  with pytest.raises(InputError, match="1 of 2 texts have no labels"):
    entity_files.read_examples(path, True)


def test_a_test_file_without_entities_has_no_labels(tmp_path):
  path = write(tmp_path, "test.txt", "甲 O\n\n乙 O\n")
  for is_test, entities in ((False, []), (True, None)):
    assert [example.entities for example in entity_files.read_examples(
        path, is_test)] == [entities, entities]
