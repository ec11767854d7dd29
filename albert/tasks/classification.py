"""The table of classification tasks, and the reader of their files.

A new task is one row of TASKS; docs/fine_tuning.md has an example.
"""

import json
import math
import os
from typing import (
  Any,
  Callable,
  Dict,
  Iterator,
  List,
  NamedTuple,
  Optional,
  Sequence,
  Tuple,
  Union,
)

from absl import logging

from albert.errors import InputError
from albert.files import filesystem
from albert.tasks import label_sets, metrics

Row = Dict[str, Any]
# How to find a value in a row; see Task.
Where = Union[None, str, Tuple[str, ...], Callable[[Row], Any]]


class InputExample(NamedTuple):
  """A text or a pair of texts.

  Attributes:
    id: that of the file, by default the example's number from 0.
    text_a, text_b: `text_b` is None for a single text.
    label: str, or a tuple of them for a multi-label task; None in a test set
      without labels.
    where: file and line, for messages.
    negative: a text dissimilar to `text_a`, if the task has one.
  """
  id: Any
  text_a: str
  text_b: Optional[str]
  label: Any
  where: str = ""
  negative: Optional[str] = None


class Task(NamedTuple):
  """How the files of a task are read.

  Attributes:
    text_a, text_b, label: how to find them in a row: a field, a tuple of
      fields of which the first present one counts, or a function of the row.
      `text_b` is None for single texts.
    labels: None to take those of the training file; empty for regression.
    files: "train" / "dev" / each split to predict -> file names, by preference.
      `.json` and `.jsonl` have one JSON object per line, all others columns
      separated by tabs.
    submissions: split to predict -> name of the file to submit, where {} is the
      name of the task: `.json` for CLUE's format, `.tsv` for GLUE's.
    columns: column names of a tab-separated file without a header; None if
      there always is one.
    keep: returns False for rows to skip.
    rename: label in the file -> label in `labels`, or None if examples with it
      are not for training.
    metric: one of metrics.METRICS, by which the best checkpoint is chosen.
    is_multi_label: whether an example has any number of labels.
    negative: how to find a text dissimilar to `text_a`; None if there is none.
  """
  text_a: Where
  text_b: Where
  label: Where
  labels: Optional[List[str]]
  files: Dict[str, List[str]]
  submissions: Dict[str, str]
  columns: Optional[Sequence[str]]
  keep: Optional[Callable[[Row], bool]]
  rename: Dict[str, Optional[str]]
  metric: str
  is_multi_label: bool = False
  negative: Where = None

  @property
  def is_regression(self) -> bool:
    """Whether labels are numbers."""
    return self.labels == []


def _task(text_a, text_b=None, labels=None, label="label", files=None,
          submissions=None, columns=None, keep=None, rename=None,
          metric="accuracy"):
  return Task(text_a, text_b, label, labels,
              files or _files("{}.json", "{}.tsv", "{}.txt"),
              submissions or {"test": "{}_predict.json"}, columns, keep,
              rename or {}, metric)


def _files(*patterns, **others):
  files = {split: [pattern.format(split) for pattern in patterns]
           for split in ("train", "dev", "test")}
  files.update(others)
  return files


def _two_versions(name):
  """The files and submissions of a task with a new test set in CLUE 1.1."""
  files = _files("{}.json", "{}.tsv", "{}.txt",
                 test=["test.json", "test1.1.json", "test.tsv", "test.txt"])
  return {"files": dict(files, **{"test1.0": ["test1.0.json"]}),
          "submissions": {"test": name + "11_predict.json",
                          "test1.0": name + "10_predict.json"}}


def _mark_spans(row):
  """CLUEWSC: `_` around the noun, `[` and `]` around the pronoun."""
  text, target = row["text"], row["target"]
  marks = []
  for span, left, right in (("span1", "_", "_"), ("span2", "[", "]")):
    start, words = target[span + "_index"], target[span + "_text"]
    if text[start:start + len(words)] != words:
      raise ValueError("%r is not at character %d of the text" % (words, start))
    marks += [(start + len(words), right), (start, left)]
  for position, mark in sorted(marks, key=lambda mark: mark[0], reverse=True):
    text = text[:position] + mark + text[position:]
  return text


def _numbers(*numbers):
  return [str(number) for number in numbers]


_YES_NO = _numbers(0, 1)
_NLI = ["contradiction", "entailment", "neutral"]
_RTE = ["entailment", "not_entailment"]
_PAIR = ("sentence1", "sentence2")
_LCQMC = _task(("sentence1", "text_a"), ("sentence2", "text_b"), _YES_NO,
               columns=_PAIR + ("label",),
               files=_files("{}.txt", "{}.tsv", "{}.json"))
_WSC = _task(_mark_spans, None, ["false", "true"], **_two_versions("cluewsc"))


def _clue_nli(submission):
  return _task(
      ("sentence1", "premise"), ("sentence2", "hypothesis"), _NLI,
      files=_files("{}.json", train=["train.json"] + [
          "train.%s.json" % size for size in ("50k", "30k", "10k", "3k", "1k")],
                   diagnostics=["diagnostics.json",
                                "../diagnostics/test.json"]),
      submissions={"test": submission,
                   "diagnostics": "diagnostics_predict.json"},
      rename={"-": None})  # annotators disagree


def _glue(name, *args, **kwargs):
  return _task(*args, submissions={"test": name + ".tsv"}, **kwargs)


def _mnli(kind):
  return _task(*_PAIR, _NLI, label="gold_label", files={
      "train": ["train.tsv"], "dev": ["dev_%s.tsv" % kind],
      "test": ["test_matched.tsv"],
      "test_mismatched": ["test_mismatched.tsv"],
      "diagnostic": ["diagnostic.tsv", "AX.tsv",
                     "../diagnostic/diagnostic.tsv", "../AX/AX.tsv"]},
               submissions={"test": "MNLI-m.tsv",
                            "test_mismatched": "MNLI-mm.tsv",
                            "diagnostic": "AX.tsv"})


TASKS = {
    # Chinese
    "lcqmc": _LCQMC,
    "lcqmc_pair": _LCQMC,
    "bq": _LCQMC,
    "chnsenticorp": _task("text_a", None, _YES_NO),
    "xnli": _task(
        ("premise", "sentence1"), ("hypo", "sentence2"), _NLI,
        label=("label", "gold_label"),
        files=_files("{}.tsv", "xnli.{}.tsv", train=[
            "train.tsv", "multinli.train.zh.tsv",
            "multinli/multinli.train.zh.tsv"]),
        keep=lambda row: row.get("language", "zh") == "zh",
        rename={"contradictory": "contradiction"}),
    # CLUE
    "afqmc": _LCQMC._replace(files=_files("{}.json", "{}.txt", "{}.tsv")),
    "tnews": _task("sentence", None, _numbers(
        *[n for n in range(100, 117) if n not in (105, 111)]),
                   **_two_versions("tnews")),
    "iflytek": _task("sentence", None, _numbers(*range(119))),
    "cmnli": _clue_nli("{}_predict.json"),
    "ocnli": _clue_nli("{}_50k_predict.json"),
    "csl": _task(lambda row: " ".join(row["keyword"]), "abst", _YES_NO),
    "wsc": _WSC,
    "cluewsc2020": _WSC,
    # GLUE
    "cola": _glue("CoLA", "sentence", None, _YES_NO, files=_files("{}.tsv"),
                  columns=("source", "label", "judgement", "sentence"),
                  metric="matthews"),
    "sst-2": _glue("SST-2", "sentence", None, _YES_NO),
    "mrpc": _glue("MRPC", "#1 String", "#2 String", _YES_NO, label="Quality",
                  files=_files("{}.tsv", "msr_paraphrase_{}.txt"),
                  metric="f1"),
    "qqp": _glue("QQP", "question1", "question2", _YES_NO, label="is_duplicate",
                 metric="f1"),
    "sts-b": _glue("STS-B", *_PAIR, [], label="score", metric="pearson"),
    "mnli": _mnli("matched"),
    "mnli_matched": _mnli("matched"),
    "mnli_mismatched": _mnli("mismatched"),
    "qnli": _glue("QNLI", "question", "sentence", _RTE),
    "rte": _glue("RTE", *_PAIR, _RTE),
    "wnli": _glue("WNLI", *_PAIR, _YES_NO),
    # your own data
    "tsv": _task("text_a", lambda row: row.get("text_b"),
                 label=("label", "score"), files=_files("{}.tsv", "{}.txt")),
    "jsonl": _task("text_a", lambda row: row.get("text_b"),
                   label=("label", "score"),
                   files=_files("{}.jsonl", "{}.json")),
}


def get_task(name: str, text_a_field: Optional[str] = None,
             text_b_field: Optional[str] = None,
             label_field: Optional[str] = None,
             labels: Optional[List[str]] = None, regression: bool = False,
             several: bool = False) -> Task:
  """Returns a task by its case-insensitive name; other arguments override it.

  Raises:
    InputError: there is no such task (the message lists all), or `labels` or
      `several` contradict regression.
  """
  if not name or name.lower() not in TASKS:
    raise InputError("--task_name: unknown task %r; known are %s" % (
        name, ", ".join(sorted(TASKS))))
  changes = {"text_a": text_a_field, "text_b": text_b_field,
             "label": label_field, "labels": labels}
  task = TASKS[name.lower()]._replace(**{
      key: value for key, value in changes.items() if value})
  if several:
    if regression or task.is_regression:
      raise InputError("--multi_label does not go with numbers")
    return task._replace(metric="micro_f1", is_multi_label=True)
  if not regression:
    return task
  if labels:
    raise InputError("--regression: there are numbers instead of --labels")
  return task._replace(labels=[], metric="pearson")


def find_file(task: Task, data_dir: str, split: str) -> str:
  """Returns the path of a split's file.

  Raises:
    InputError: there is no file.
  """
  for path in _existing(task, data_dir, split):
    return path
  raise InputError("no %s file: add %s, or change --data_dir" % (
      split, " or ".join(os.path.join(data_dir, name)
                         for name in task.files[split])))


def _existing(task, data_dir, split):
  paths = [os.path.join(data_dir, name) for name in task.files[split]]
  return [path for path in paths if filesystem.exists(path)]


def splits_to_predict(task: Task, data_dir: str) -> List[str]:
  """Returns the splits to predict that have a file."""
  return [split for split in task.submissions
          if _existing(task, data_dir, split)]


def read_examples(task: Task, path: str, is_test: bool = False,
                  skip_bad_rows: bool = False) -> List[InputExample]:
  """Reads a file of a task.

  Args:
    task: describes the file.
    path: file to read.
    is_test: whether the file is to be predicted and may lack labels.
    skip_bad_rows: whether to skip and count bad rows instead of raising an
      error; not in a file to predict, which needs an answer for every row.

  Returns:
    at least one example. If all labels of a file to predict are the same, they
    are placeholders and removed.

  Raises:
    InputError: the file is empty or malformed; the message names the line.
  """
  if path.endswith((".json", ".jsonl")):
    read = read_json_lines(path)
  else:
    read = _read_columns(task, path, is_test)
  examples: List[InputExample] = []
  bad, last = [], None
  for number, row in read:
    try:
      if isinstance(row, ValueError):
        raise row
      if is_test and last and number > last + 1:
        raise ValueError("there is a blank line before it: remove that, since "
                         "boards count rows")
      last = number
      if task.keep and not task.keep(row):
        continue
      example = _make_example(task, row, len(examples), is_test)
      if not is_test:
        if example.label is None:
          continue
        _check_label(task, example.label)
      examples.append(example._replace(where="%s:%d" % (path, number)))
    except ValueError as error:
      message = "%s:%d: %s" % (path, number, error)
      if is_test or not skip_bad_rows:
        raise InputError(message) from error
      bad.append(message)
  if bad:
    logging.warning("%s: skipped %d bad row(s), the first: %s", path, len(bad),
                    bad[0])
  if not examples:
    raise InputError("%s: has no examples" % path)
  return _without_placeholders(task, examples, path) if is_test else examples


def _without_placeholders(task, examples, path):
  examples = metrics.without_placeholders(examples, "label", path)
  for example in examples:
    try:
      if example.label is not None:
        _check_label(task, example.label)
    except ValueError as error:
      raise InputError("%s: %s" % (example.where, error)) from error
  return examples


def _make_example(task, row, number, is_test):
  texts = [_find(where, row)
           for where in (task.text_a, task.text_b, task.negative)]
  for text in texts:
    if text is not None and not (isinstance(text, str) and text.strip()):
      raise ValueError("a text is empty or not a string")
  text_a, text_b, negative = texts
  # GLUE's id is `index`; `idx` in CLUEWSC2020's labelled files is not an id.
  return InputExample(row.get("id", row.get("index", number)), text_a, text_b,
                      _find_label(task, row, is_test),
                      negative=negative)


def _find_label(task, row, is_test):
  """Returns None if the label is unknown or annotators disagree."""
  try:
    label = _find(task.label, row)
  except ValueError:
    if not is_test:
      raise
    label = None
  if task.is_multi_label:
    return None if label is None else tuple(
        task.rename.get(part, part) for part in label_sets.split(label))
  label = "" if label is None else str(label).strip()
  if not label:
    if is_test:
      return None
    raise ValueError("the label is empty")
  return task.rename.get(label, label)


def _check_label(task, label):
  if task.is_regression:
    _number(label)
  for part in label if task.is_multi_label else [label]:
    if task.labels and part not in task.labels:
      raise ValueError("unknown label %r; known are %s" % (
          part, ", ".join(task.labels)))


def _number(text):
  """Returns a finite float, or raises a ValueError."""
  try:
    number = float(text)
  except ValueError:
    number = math.nan
  if not math.isfinite(number):
    raise ValueError("the label %r is not a number" % text)
  return number


def _find(where, row):
  """Returns the value a Task's field points to, or raises a ValueError."""
  if where is None:
    return None
  try:
    if callable(where):
      return where(row)
    names = [where] if isinstance(where, str) else where
    return row[next((name for name in names if name in row), names[0])]
  except (KeyError, TypeError) as error:
    raise ValueError(
        "no field %s, only %s" % (error, ", ".join(row))) from error


def _read_lines(path):
  """Yields (line number, text or ValueError) of all lines but blank ones."""
  with filesystem.open_binary(path) as reader:
    for number, line in enumerate(reader, 1):
      try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
      except UnicodeDecodeError as error:
        yield number, ValueError("not UTF-8 (%s); %s" % (
            error, filesystem.CONVERT))
        continue
      if text.strip():
        yield number, text.rstrip("\r\n")


def read_json_lines(path: str) -> Iterator[Tuple[int, Union[Row, ValueError]]]:
  """Yields (line number, object or ValueError) of all lines but blank ones."""
  for number, line in _read_lines(path):
    if isinstance(line, ValueError):
      yield number, line
      continue
    try:
      row = json.loads(line)
    except ValueError as error:
      yield number, ValueError("not JSON (%s)" % error)
      continue
    yield number, row if isinstance(row, dict) else (
        ValueError("not a JSON object"))


def _read_columns(task, path, is_test):
  """Yields (line number, row or ValueError); quotes have no meaning."""
  names = None
  for number, line in _read_lines(path):
    if isinstance(line, ValueError):
      yield number, line
      continue
    cells = line.split("\t")
    if names is None:
      try:
        header = dict(zip(cells, cells))
        _find(task.text_a, header)
        if not is_test:
          _find(task.label, header)
      except ValueError as error:
        if not task.columns:
          raise InputError("%s:%d: the header has %s" % (
              path, number, error)) from error
        names = task.columns
      else:
        if len(header) < len(cells):
          raise InputError("%s:%d: the header names a column twice: %s" % (
              path, number, ", ".join(cells)))
        names = cells
        continue
    expected = names
    # A test file without a header may lack the label, its last column.
    if is_test and names is task.columns and len(cells) < len(names):
      expected = names[:-1]
    if len(cells) == len(expected):
      yield number, dict(zip(expected, cells))
    else:
      yield number, ValueError("expected %d columns separated by tabs (%s), "
                               "found %d" % (len(names), ", ".join(names),
                                       len(cells)))
