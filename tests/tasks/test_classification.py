"""Readers of task files: what they read, and how they refuse."""

import json
import logging

import pytest

from albert import errors
from albert.tasks import classification, labelling
from albert.tasks.classification import InputExample


def read(tmp_path, name, content, split="train", suffix="tsv", **kwargs):
  path = tmp_path / ("%s.%s" % (split, suffix))
  path.write_bytes(content.encode())
  examples = classification.read_examples(
      classification.get_task(name), "file://%s" % path, split == "test",
      **kwargs)
  assert all(example.where.startswith("file://%s:" % path)
             for example in examples)
  return [example._replace(where="") for example in examples]


def read_json(tmp_path, name, *rows, **kwargs):
  return read(tmp_path, name, "\n".join(map(json.dumps, rows)), suffix="json",
              **kwargs)


def test_pairs_without_and_with_a_header(tmp_path):
  content = "甲\t乙\t1\r\n丙\"\t丁\t0\n"
  expected = [InputExample(0, "甲", "乙", "1"),
              InputExample(1, "丙\"", "丁", "0")]
  assert read(tmp_path, "LCQMC", "\ufeff" + content) == expected
  assert read(tmp_path, "bq", "text_a\ttext_b\tlabel\n" + content) == expected
  assert read(tmp_path, "lcqmc_pair", "甲\t乙\n", "test") == [
      InputExample(0, "甲", "乙", None)]


def test_a_negative_is_read_where_a_task_has_one(tmp_path):
  row = {"sentence": "甲", "label": 100, "negative": 0.3}  # some other column
  assert read_json(tmp_path, "tnews", row)[0].negative is None
  task = classification.get_task("tsv")._replace(negative="negative")
  path = tmp_path / "train.tsv"
  path.write_text("text_a\ttext_b\tlabel\tnegative\n甲\t乙\t1\t丙\n",
                  encoding="utf-8")
  assert classification.read_examples(task, str(path))[0].negative == "丙"


def test_columns_are_named_by_the_header(tmp_path):
  assert read(tmp_path, "tsv", "label\tid\ttext_a\nx\t7\t甲\n") == [
      InputExample("7", "甲", None, "x")]
  assert read(tmp_path, "tsv", "text_b\ttext_a\n乙\t甲\n", "test") == [
      InputExample(0, "甲", "乙", None)]


def test_fields_of_ones_own(tmp_path):
  path = tmp_path / "train.jsonl"
  path.write_text('{"title": "a", "body": "b", "class": 3}\n')
  task = classification.get_task("jsonl", "title", "body", "class", ["1", "3"])
  assert classification.read_examples(task, str(path)) == [
      InputExample(0, "a", "b", "3", "%s:1" % path)]


@pytest.mark.parametrize("name, row, expected", [
    ("afqmc", {"sentence1": "甲", "sentence2": "乙", "label": "0"},
     ("甲", "乙", "0")),
    ("tnews", {"label": "116", "label_desc": "d", "sentence": "甲",
               "keywords": ""}, ("甲", None, "116")),
    ("iflytek", {"label": 118, "label_des": "d", "sentence": "甲"},
     ("甲", None, "118")),
    ("cmnli", {"sentence1": "甲", "sentence2": "乙", "label": "neutral"},
     ("甲", "乙", "neutral")),
    ("csl", {"id": 0, "abst": "甲", "keyword": ["乙", "丙"], "label": "1"},
     ("乙 丙", "甲", "1")),
    ("wsc", {"target": {
        "span1_index": 3, "span1_text": "老鼠", "span2_index": 8,
        "span2_text": "它"}, "idx": 5, "label": "true",
             "text": "一只大老鼠跑了,它走了"},
     ("一只大_老鼠_跑了,[它]走了", None, "true")),
    ("cluewsc2020", {"target": {
        "span1_index": 2, "span1_text": "乙", "span2_index": 0,
        "span2_text": "甲"}, "label": "false", "text": "甲,乙"},
     ("[甲],_乙_", None, "false")),
])
def test_clue(tmp_path, name, row, expected):
  assert read_json(tmp_path, name, row) == [InputExample(0, *expected)]
  test_row = dict(row, id=17)
  del test_row["label"]
  assert read_json(tmp_path, name, test_row, split="test") == [
      InputExample(17, *expected[:2], label=None)]


def test_the_example_of_the_readme(tmp_path):
  task = classification._task("title", "body", ["bad", "good"], label="stars",
                     rename={"1": "bad", "2": "bad", "3": None, "4": "good",
                             "5": "good"}, metric="f1")
  path = tmp_path / "train.json"
  path.write_text("".join(json.dumps(
      {"title": "a", "body": "b", "stars": n}) + "\n" for n in (5, 3, 1)))
  assert [e.label for e in classification.read_examples(task, str(path))] == [
      "good", "bad"]


def test_no_agreement_on_a_label_is_no_example(tmp_path):
  row = {"sentence1": "甲", "sentence2": "乙", "label": "-"}
  assert len(read_json(tmp_path, "ocnli", row, dict(
      row, label="entailment"))) == 1


def test_labels_of_a_file_to_predict(tmp_path, caplog):
  """None where all are the same, or where there is no agreement."""
  def labels(name, *rows):
    return [example.label for example in read_json(
        tmp_path, name, *[dict(row, sentence="甲", sentence1="甲",
                               sentence2="乙") for row in rows], split="test")]

  assert labels("tnews", {"label": "100"}, {"label": 101}, {}) == [
      "100", "101", None]
  assert labels("ocnli", {"label": "-"}, {"label": "neutral"},
                {"label": None}) == [None, "neutral", None]
  with caplog.at_level(logging.INFO):
    assert labels("afqmc", {"label": "0"}, {"label": "0"}) == [None, None]
    assert labels("tnews", {"label": -1}, {"label": -1}) == [None, None]
  assert "test.json: '0' in all rows is taken for a placeholder" in caplog.text
  with pytest.raises(errors.InputError, match=(
      "test.json:2: unknown label '-1'; known are 100, ")):
    labels("tnews", {"label": "100"}, {"label": -1})


def test_xnli_in_its_two_layouts(tmp_path):
  assert read(tmp_path, "xnli", "premise\thypo\tlabel\n甲\t乙\tcontradictory\n"
             ) == [InputExample(0, "甲", "乙", "contradiction")]
  assert read(tmp_path, "xnli",
              "language\tgold_label\tx\tsentence1\tsentence2\n"
              "en\tneutral\tx\ta\tb\nzh\tneutral\tx\t甲\t乙\n", "dev") == [
                  InputExample(0, "甲", "乙", "neutral")]


@pytest.mark.parametrize("name, content, expected", [
    ("cola", "gj04\t0\t*\tA b.\n", ("A b.", None, "0")),
    ("sst-2", "sentence\tlabel\nA \t1\n", ("A ", None, "1")),
    ("mrpc", "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
     "1\t2\t3\ta\tb\n", ("a", "b", "1")),
    ("qqp", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
     "0\t1\t2\ta\tb\t0\n", ("a", "b", "0")),
    ("STS-B", "index\tgenre\tsentence1\tsentence2\tscore\n0\tx\ta\tb\t4.25\n",
     ("a", "b", "4.25")),
    ("mnli", "index\tsentence1\tsentence2\tlabel1\tgold_label\n"
     "0\ta\tb\tx\tneutral\n", ("a", "b", "neutral")),
    ("qnli", "index\tquestion\tsentence\tlabel\n0\ta\tb\tentailment\n",
     ("a", "b", "entailment")),
    ("rte", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tnot_entailment\n",
     ("a", "b", "not_entailment")),
    ("wnli", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t1\n",
     ("a", "b", "1")),
])
def test_glue(tmp_path, name, content, expected):
  (example,) = read(tmp_path, name, content)
  assert example[1:4] == expected


def test_glue_test_files_have_an_index(tmp_path):
  assert read(tmp_path, "cola", "index\tsentence\n8\tA b.\n", "test") == [
      InputExample("8", "A b.", None, None)]


@pytest.mark.parametrize("name, content, message", [
    ("lcqmc", "甲\t乙\t1\n甲\t乙\n", r":2: expected 3 columns .*, found 2"),
    ("lcqmc", "甲\t \t1\n", r":1: a text is empty"),
    ("lcqmc", "甲\t乙\t2\n", r":1: unknown label '2'; known are 0, 1"),
    ("lcqmc", "\n", ": has no examples"),
    ("tsv", "甲\t1\n", ":1: the header has no field 'text_a', only 甲"),
    ("tsv", "text_a\tlabel\n甲\t1\n乙\n", ":3: expected 2 columns"),
    ("tsv", "text_a\tlabel\tlabel\n甲\t1\t1\n", ":1: .* a column twice"),
    ("sts-b", "sentence1\tsentence2\tscore\na\tb\tx\n",
     ":2: the label 'x' is not a number"),
    ("sts-b", "sentence1\tsentence2\tscore\na\tb\tnan\n",
     ":2: the label 'nan' is not a number"),
])
def test_broken_files_are_named_by_line(tmp_path, name, content, message):
  with pytest.raises(errors.InputError, match="train.tsv" + message):
    read(tmp_path, name, content)


@pytest.mark.parametrize("name, content, message", [
    ("tnews", '{"sentence": "a", "label": "100"}\n{"label"', ":2: not JSON"),
    ("tnews", '[1]', ":1: not a JSON object"),
    ("tnews", '{"label": "100"}', ":1: no field 'sentence', only label"),
    ("tnews", '{"sentence": 3, "label": "100"}', ":1: a text is empty or no"),
    ("tnews", '{"sentence": "a"}', ":1: no field 'label', only sentence"),
    ("wsc", '{"text": "ab", "label": "true", "target": {"span1_index": 0, '
     '"span1_text": "b", "span2_index": 1, "span2_text": "b"}}',
     ":1: 'b' is not at character 0"),
    ("wsc", '{"text": "ab", "label": "true"}', ":1: no field 'target'"),
    ("jsonl", '{"text_a": "a", "label": null}', ":1: the label is empty"),
    ("jsonl", '{"text_a": "a", "label": " "}', ":1: the label is empty"),
])
def test_broken_json_is_named_by_line(tmp_path, name, content, message):
  with pytest.raises(errors.InputError, match="train.json" + message):
    read(tmp_path, name, content, suffix="json")


def test_bad_rows_are_skipped_and_counted(tmp_path, caplog):
  content = "甲\t乙\t1\n甲\t乙\n\n丙\t丁\t7\n丙\t丁\t0\n"
  with caplog.at_level(logging.WARNING):
    examples = read(tmp_path, "lcqmc", content, skip_bad_rows=True)
  assert [e.label for e in examples] == ["1", "0"]
  assert [e.id for e in examples] == [0, 1]
  assert "skipped 2 bad row(s), the first: " in caplog.text
  assert "train.tsv:2" in caplog.text


@pytest.mark.parametrize("label", ["null", '""', '" "'])
def test_an_empty_label_to_predict_is_none(tmp_path, label):
  content = '{"text_a": "a", "label": "1"}\n{"text_a": "a", "label": %s}' % (
      label)
  examples = read(tmp_path, "jsonl", content, "test", suffix="json")
  assert [example.label for example in examples] == ["1", None]


def test_no_row_of_a_file_to_predict_is_skipped(tmp_path):
  with pytest.raises(errors.InputError, match="test.tsv:2: expected 3 columns"):
    read(tmp_path, "lcqmc", "甲\t乙\n甲\n丙\t丁\n", "test",
         skip_bad_rows=True)


def test_not_utf8(tmp_path):
  path = tmp_path / "train.tsv"
  path.write_bytes("甲\t乙\t1\n".encode("gbk"))
  with pytest.raises(errors.InputError, match="train.tsv:1: not UTF-8"):
    classification.read_examples(classification.get_task("lcqmc"), str(path))


def test_unknown_task_missing_file_unknown_label(tmp_path):
  with pytest.raises(errors.InputError, match="unknown task 'x'.*lcqmc.*tsv"):
    classification.get_task("x")
  with pytest.raises(errors.InputError, match="dev.txt or .*dev.tsv or "):
    classification.find_file(
        classification.get_task("lcqmc"), str(tmp_path), "dev")
  (tmp_path / "train.3k.json").write_text("")
  assert classification.find_file(
      classification.get_task("ocnli"), "file://%s" % tmp_path, "train") == (
          "file://%s/train.3k.json" % tmp_path)
  examples = [InputExample(0, "甲", None, "b", "dev.tsv:7"),
              InputExample(1, "甲", None, None)]
  assert labelling.label_ids(examples, ["a", "b"]) == [1, 0]
  with pytest.raises(errors.InputError, match="dev.tsv:7: unknown label 'b'; "
                     "known are a$"):
    labelling.label_ids(examples, ["a"])
  assert labelling.label_ids([InputExample(0, "a", "b", "4.5")], []) == [4.5]


@pytest.mark.parametrize("column", ["label", "score"])
def test_numbers_of_ones_own(tmp_path, column):
  task = classification.get_task("tsv", regression=True)
  assert task.is_regression and task.metric == "pearson"
  path = tmp_path / "train.tsv"
  path.write_text("text_a\t%s\na\t-1.5\nb\t2e1\n" % column)
  examples = classification.read_examples(task, str(path))
  assert labelling.label_ids(examples, []) == [-1.5, 20.0]
  path.write_text("text_a\t%s\na\t1\nb\tmany\n" % column)
  with pytest.raises(errors.InputError, match="train.tsv:3: the label 'many' "
                     "is not a number"):
    classification.read_examples(task, str(path))
  with pytest.raises(errors.InputError, match="instead of --labels"):
    classification.get_task("tsv", labels=["1"], regression=True)


def test_class_weights():
  targets = [0] * 6 + [1] * 3 + [2]
  labels = ["a", "b:c", "d"]
  weights = labelling.class_weights("balanced", labels, targets)
  assert weights == pytest.approx([10 / 18, 10 / 9, 10 / 3])
  weights = labelling.class_weights("d:4,b:c:.5", labels, targets)
  # As given, the mean weight is (6 + 1.5 + 4) / 10.
  assert weights == pytest.approx([1 / 1.15, 0.5 / 1.15, 4 / 1.15])
  assert sum(weights[target] for target in targets) == pytest.approx(10)


@pytest.mark.parametrize("text, labels, message", [
    ("c:1", ["a", "b"], "unknown label 'c' of 'c:1'; known are a, b"),
    ("a", ["a", "b"], "unknown label '' of 'a'; known are a, b"),
    ("a:0", ["a", "b"], "the weight of 'a:0' is not a positive number"),
    ("a:x", ["a", "b"], "the weight of 'a:x' is not a positive number"),
    ("balanced", [], "the labels of this task are numbers")])
def test_class_weights_that_make_no_sense(text, labels, message):
  with pytest.raises(errors.InputError, match="--class_weights: " + message):
    labelling.class_weights(text, labels, [0, 1])
