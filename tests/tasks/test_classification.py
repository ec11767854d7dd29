"""Readers of task files: formats, errors."""

import json
import re

import pytest
from refusals import refused
from writing import write

from albert.files.tables import TableSettings
from albert.tasks import classification
from albert.tasks.classification import InputExample, get_task


def read(folder, task, content, split="train", **kwargs):
  """Reads a file of a text or JSON rows; returns examples without `where`."""
  rows = [content] if isinstance(content, str) else content
  url = write(
    folder,
    split + (".json" if rows is content or content[0] in "{[" else ".tsv"),
    *rows,
  )
  task = get_task(task) if isinstance(task, str) else task
  examples = classification.read_examples(task, url, split == "test", **kwargs)
  assert all(example.where.startswith(url + ":") for example in examples)
  return [example._replace(where="") for example in examples]


PAIR = {"sentence1": "甲", "sentence2": "乙"}
ROWS = '甲\t乙\t1\r\n丙"\t丁\t0\n'
NUMBERED = "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t"


@pytest.mark.parametrize(
  "task, content, expected",
  [
    ("LCQMC", "\ufeff" + ROWS, ("甲", "乙", "1")),
    ("bq", "text_a\ttext_b\tlabel\n" + ROWS, ("甲", "乙", "1")),
    ("tsv", "label\ttext_a\nx\t甲\n", ("甲", None, "x")),
    (
      "xnli",
      "premise\thypo\tlabel\n甲\t乙\tcontradictory\n",
      ("甲", "乙", "contradiction"),
    ),
    (
      "xnli",
      "language\tgold_label\tx\tsentence1\tsentence2\n"
      "en\tneutral\tx\ta\tb\nzh\tneutral\tx\t甲\t乙\n",
      ("甲", "乙", "neutral"),
    ),
    ("cola", "gj04\t0\t*\tA b.\n", ("A b.", None, "0")),
    ("sst-2", "sentence\tlabel\nA \t1\n", ("A ", None, "1")),
    ("mrpc", "\ufeffQuality\t#1 String\t#2 String\n1\ta\tb", ("a", "b", "1")),
    (
      "qqp",
      "question1\tqid1\tquestion2\tis_duplicate\na\t1\tb\t0",
      ("a", "b", "0"),
    ),
    ("STS-B", "kind\tsentence1\tsentence2\tscore\nx\ta\tb\t4", ("a", "b", "4")),
    (
      "mnli",
      "index\tsentence1\tsentence2\tlabel1\tgold_label\n0\ta\tb\tx\tneutral",
      ("a", "b", "neutral"),
    ),
    (
      "qnli",
      "question\tsentence\tlabel\na\tb\tentailment",
      ("a", "b", "entailment"),
    ),
    ("rte", NUMBERED + "not_entailment", ("a", "b", "not_entailment")),
    ("wnli", NUMBERED + "1", ("a", "b", "1")),
  ],
)
def test_columns(tmp_path, task, content, expected):
  example, *others = read(tmp_path, task, content)
  assert example[1:4] == expected
  assert others == [InputExample(1, '丙"', "丁", "0")] * content.endswith(ROWS)


def span(start, words, other_start, other_words):
  return {
    "span1_index": start,
    "span1_text": words,
    "span2_index": other_start,
    "span2_text": other_words,
  }


@pytest.mark.parametrize(
  "name, row, expected",
  [
    ("afqmc", dict(PAIR, label="0"), ("甲", "乙", "0")),
    ("tnews", {"label": "116", "sentence": "甲"}, ("甲", None, "116")),
    ("iflytek", {"label": 118, "sentence": "甲"}, ("甲", None, "118")),
    ("cmnli", dict(PAIR, label="neutral"), ("甲", "乙", "neutral")),
    (
      "csl",
      {"id": 0, "abst": "甲", "keyword": ["乙", "丙"], "label": "1"},
      ("乙 丙", "甲", "1"),
    ),
    (
      "wsc",
      {
        "target": span(3, "老鼠", 8, "它"),
        "idx": 5,
        "label": "true",
        "text": "一只大老鼠跑了,它走了",
      },
      ("一只大_老鼠_跑了,[它]走了", None, "true"),
    ),
    (
      "cluewsc2020",
      {"target": span(2, "乙", 0, "甲"), "label": "false", "text": "甲,乙"},
      ("[甲],_乙_", None, "false"),
    ),
  ],
)
def test_clue(tmp_path, name, row, expected):
  assert read(tmp_path, name, [row]) == [InputExample(0, *expected)]
  test_row = dict(row, id=17)
  del test_row["label"]
  assert read(tmp_path, name, [test_row], "test") == [
    InputExample(17, *expected[:2], label=None)
  ]


@pytest.mark.parametrize(
  "task, content, name",
  [
    ("lcqmc_pair", "甲\t乙", 0),
    ("tsv", "text_b\tid\ttext_a\n乙\t7\t甲", "7"),
    ("rte", "index\tsentence1\tsentence2\n8\t甲\t乙", "8"),
  ],
)
def test_columns_to_predict(tmp_path, task, content, name):
  assert read(tmp_path, task, content, "test") == [
    InputExample(name, "甲", "乙", None)
  ]


def test_fields_of_ones_own(tmp_path):
  task = get_task("jsonl", "title", "body", "class", ["1", "3"])
  row = {"title": "a", "body": "b", "class": 3}
  assert read(tmp_path, task, [row]) == [InputExample(0, "a", "b", "3")]
  # As in docs/fine_tuning.md.
  task = classification._task(
    "title",
    "body",
    ["bad", "good"],
    label="stars",
    rename={"1": "bad", "2": "bad", "3": None, "4": "good", "5": "good"},
  )
  assert [
    x.label
    for x in read(tmp_path, task, [dict(row, stars=n) for n in (5, 3, 1)])
  ] == ["good", "bad"]
  # Negatives are read if the task has them.
  assert (
    read(
      tmp_path, "tnews", [{"sentence": "甲", "label": 100, "negative": 0.3}]
    )[0].negative
    is None
  )
  task = get_task("tsv")._replace(negative="negative")
  assert (
    read(tmp_path, task, "text_a\tlabel\tnegative\n甲\t1\t丙\n")[0].negative
    == "丙"
  )
  settings = TableSettings(
    columns=["label", "text_a"], id_field="label", label_separator="、"
  )
  assert [
    x[:4]
    for x in read(
      tmp_path,
      get_task("tsv", several=True),
      "好、坏\t甲\n坏\t乙\n",
      settings=settings,
    )
  ] == [("好、坏", "甲", None, ("好", "坏")), ("坏", "乙", None, ("坏",))]


def test_labels_of_a_file_to_predict(tmp_path):
  """None if all labels are the same, or if annotators disagree."""

  def labels(name, *rows, split="test"):
    return [
      x.label
      for x in read(
        tmp_path,
        name,
        [dict(PAIR, sentence="甲", text_a="甲", **row) for row in rows],
        split,
      )
    ]

  assert labels("tnews", {"label": "100"}, {"label": 101}, {}) == [
    "100",
    "101",
    None,
  ]
  assert labels(
    "ocnli", {"label": "-"}, {"label": "neutral"}, {"label": None}
  ) == [None, "neutral", None]
  assert labels(
    "ocnli", {"label": "-"}, {"label": "neutral"}, split="train"
  ) == ["neutral"]
  for empty in (None, "", " "):
    assert labels("jsonl", {"label": "1"}, {"label": empty}) == ["1", None]
  assert labels("afqmc", {"label": "0"}, {"label": "0"}) == [None, None]
  assert labels("tnews", {"label": -1}, {"label": -1}) == [None, None]
  refused(
    "test.json:2: .*'-1'.* 100, ",
    labels,
    "tnews",
    {"label": "100"},
    {"label": -1},
  )


@pytest.mark.parametrize(
  "task, content, message",
  [
    ("lcqmc", "甲\t乙\t1\n甲\t乙\n", ":2: .*3 columns .*2"),
    ("lcqmc", "甲\t \t1\n", ":1: .*empty"),
    ("lcqmc", "甲\t乙\t2\n", ":1: .*'2'.* 0, 1"),
    ("lcqmc", "\n", ": .*no examples"),
    ("tsv", "好\t甲\n", ":1: .*'text_a', only 好, 甲; .*--columns="),
    ("csv", "title\tcontent\tlabel\n甲\t乙\t1\n", ":1: .*only title, content"),
    *(
      (
        "sts-b",
        "sentence1\tsentence2\tscore\na\tb\t%s\n" % number,
        ":2: .*'%s'.*number" % number,
      )
      for number in ("x", "nan")
    ),
    ("tnews", "[1]", ", row 1: not a JSON object"),
    ("tnews", '{"label": "100"}', ":1: .*'sentence', only label"),
    ("tnews", '{"sentence": 3, "label": "100"}', ":1: .*empty or not"),
    ("tnews", '{"sentence": "a"}', ":1: .*'label', only sentence"),
    (
      "wsc",
      json.dumps(
        {"text": "ab", "label": "true", "target": span(0, "b", 1, "b")}
      ),
      ":1: 'b' .*character 0",
    ),
    ("wsc", '{"text": "ab", "label": "true"}', ":1: .*'target'"),
    *(
      ("jsonl", '{"text": "a", "label": %s}' % label, ":1: the label is empty")
      for label in ("null", '" "', "NaN")
    ),
    ("jsonl", '{"text": null, "label": 1}', ":1: .*text is missing"),
    ("jsonl", '{"text": "甲", "label": ["a", "b"]}', ":1: .*--multi_label"),
  ],
)
def test_broken_files_are_named_by_line(tmp_path, task, content, message):
  refused(r"train\.(json|tsv)" + message, read, tmp_path, task, content)


def test_bad_rows_are_skipped_and_counted(tmp_path, caplog):
  content = "甲\t乙\t1\n甲\t乙\n\n丙\t丁\t7\n丙\t丁\t0\n"
  examples = read(
    tmp_path,
    "lcqmc",
    content,
    settings=TableSettings(skip_bad_rows=True, max_bad_rows=0.5),
  )
  assert [(x.id, x.label) for x in examples] == [(0, "1"), (1, "0")]
  assert re.search("skipped 2 .*train.tsv:2", caplog.text)
  refused(
    "train.tsv: 2 of 4 rows are bad.*--max_bad_rows=0.1.*train.tsv:2",
    read,
    tmp_path,
    "lcqmc",
    content,
    settings=TableSettings(skip_bad_rows=True),
  )


@pytest.mark.parametrize("task", ["lcqmc", "tnews", "csl", "wsc", "ocnli"])
def test_no_row_of_a_file_to_predict_is_left_out(tmp_path, task):
  row = (
    json.dumps(
      dict(
        PAIR,
        sentence="甲",
        abst="甲",
        keyword=["乙"],
        text=("甲乙"),
        target=span(0, "甲", 1, "乙"),
      )
    )
    + "\n"
  )
  assert len(read(tmp_path, task, row + "\n", "test")) == 1
  for content, message in (
    (row + row[:9], ":2: not JSON"),
    (row + "{}\n" + row, ":2: no field"),
    (row + "\n" + row, ":3: .*blank line"),
  ):
    refused(
      "test.json" + message,
      read,
      tmp_path,
      task,
      content,
      "test",
      settings=TableSettings(skip_bad_rows=True),
    )


def test_files_of_a_task(tmp_path):
  task, url = get_task("OCNLI"), "file://%s" % tmp_path
  refused(
    "train.json or .*train.50k.json or ",
    classification.find_file,
    task,
    str(tmp_path),
    "train",
  )
  for name in ("train.3k.json", "train.10k.json", "test.json"):
    write(tmp_path, name)
  assert classification.find_file(task, url, "train") == (
    url + "/train.10k.json"
  )
  assert classification.splits_to_predict(task, url) == ["test"]
  for task in classification.TASKS.values():
    assert set(task.files) == {"train", "dev"} | set(task.submissions)


@pytest.mark.parametrize("column", ["label", "score"])
def test_numbers_of_ones_own(tmp_path, column):
  task = get_task("tsv", regression=True)
  assert task.is_regression and task.metric == "pearson"
  examples = read(tmp_path, task, "text_a\t%s\na\t-1.5\nb\t2e1\n" % column)
  assert [x.label for x in examples] == ["-1.5", "2e1"]
  refused(
    "--regression .*--labels", get_task, "tsv", labels=["1"], regression=True
  )


@pytest.mark.parametrize(
  "name, content, expected",
  [
    ("a.csv", 'id,label,review\n7,1,"大,好"\n', [("大,好", None, "1")]),
    ("a.csv", "sentence1,sentence2,label\n甲,乙,1\n", [("甲", "乙", "1")]),
    ("a.tsv", "类别\t内容\n好\t甲\n", [("甲", None, "好")]),
    ("a.jsonl", '{"content": "甲", "label": ["好"]}\n', [("甲", None, "好")]),
    (
      "a.jsonl",
      '{"text": "甲", "label": 1}\n{"text": "乙", "label": 0, '
      '"text_b": "丙"}\n',
      [("甲", None, "1"), ("乙", "丙", "0")],
    ),
    ("test.tsv", "text\n甲\n", [("甲", None, None)]),
  ],
)
def test_columns_of_other_names(name, content, expected, tmp_path, caplog):
  path = write(tmp_path, name, content)
  with caplog.at_level("INFO", "absl"):
    examples = classification.read_examples(
      get_task("csv"), path, name == "test.tsv"
    )
  assert [example[1:4] for example in examples] == expected
  assert ("%s: text_a is " % name in caplog.text) == ("text_a" not in content)


def test_parts_have_the_labels_of_the_whole_and_share_no_text():
  examples = [
    InputExample(i, "text %d" % (i % 90), None, "ab"[i % 10 == 0])
    for i in range(180)
  ]
  shares = {"dev": 0.2, "test": 0.1}
  parts = classification.divide(examples, shares, 1)
  assert {
    name: [sum(x.label == label for x in part) for label in "ab"]
    for name, part in parts.items()
  } == {"train": [114, 12], "dev": [32, 4], "test": [16, 2]}
  texts = [{x.text_a for x in part} for part in parts.values()]
  assert len(set.union(*texts)) == sum(map(len, texts)) == 90
  assert all(part == sorted(part) for part in parts.values())
  assert parts == classification.divide(examples, shares, 1)
  assert parts != classification.divide(examples, shares, 2)
  folds = [
    classification.divide(examples, {"dev": 0.2}, 1, start=k / 5)["dev"]
    for k in range(5)
  ]
  assert sorted(sum(folds, [])) == examples
  assert [len(fold) for fold in folds] == [36] * 5
  refused(
    "180 examples are too few for a dev part",
    classification.divide,
    examples,
    {"dev": 0.001},
    1,
  )
  numbers = [x._replace(label=str(x.id)) for x in examples]
  assert (
    len(
      classification.divide(numbers, {"dev": 0.1}, 1, label_of=lambda x: None)[
        "dev"
      ]
    )
    == 18
  )
