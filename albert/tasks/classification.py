"""The table of classification tasks and the reader of their files.

A new task is one row of TASKS; docs/fine_tuning.md has an example.
"""

import itertools
import json
import math
import os
import random
from typing import (
  Any,
  Callable,
  Dict,
  List,
  NamedTuple,
  Optional,
  Sequence,
  Tuple,
  Union,
)

from absl import logging

from albert.errors import InputError
from albert.files import filesystem, tables
from albert.files.tables import TableSettings
from albert.tasks import label_sets, metrics
from albert.tasks.data_report import Item

Row = Dict[str, Any]
# How to find a value in a row; see Task.
Where = Union[None, str, Tuple[str, ...], Callable[[Row], Any]]


class InputExample(NamedTuple):
  """A text or a pair of texts.

  Attributes:
    id: from the file; defaults to the index of the example.
    text_a, text_b: `text_b` is None for a single text.
    label: str, or a tuple of str for multi-label tasks; None in a test set
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
    text_a, text_b, label: where to find them in a row: a field, a tuple of
      fields of which the first present one is used, or a function of the row.
      `text_b` is None for single texts.
    labels: None for those in the training file; empty for regression.
    files: "train" / "dev" / each split to predict -> file names, by preference.
      `.json` and `.jsonl` have one JSON object per line, all other files
      columns separated by tabs.
    submissions: split to predict -> name of the submission, where {} is the
      name of the task: `.json` for CLUE's format, `.tsv` for GLUE's.
    columns: column names of a tab-separated file without a header; None if it
      always has one.
    keep: returns False for rows to skip.
    rename: label in the file -> label in `labels`, or None to skip such
      examples in training.
    metric: the one of metrics.METRICS that chooses the best checkpoint.
    is_multi_label: whether an example has any number of labels.
    negative: where to find a text dissimilar to `text_a`; None for none.
    may_be_quoted: whether a .tsv may have quotes as in CSV, unlike GLUE's.
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
  may_be_quoted: bool = True

  @property
  def is_regression(self) -> bool:
    """Whether labels are numbers."""
    return self.labels == []


def _task(
  text_a,
  text_b=None,
  labels=None,
  label="label",
  files=None,
  submissions=None,
  columns=None,
  keep=None,
  rename=None,
  metric="accuracy",
):
  return Task(
    text_a,
    text_b,
    label,
    labels,
    files or _files("{}.json", "{}.tsv", "{}.txt"),
    submissions or {"test": "{}_predict.json"},
    columns,
    keep,
    rename or {},
    metric,
  )


def _files(*patterns, **others):
  files = {
    split: [pattern.format(split) for pattern in patterns]
    for split in ("train", "dev", "test")
  }
  files.update(others)
  return files


def _two_versions(name):
  """The files and submissions of a task with a new test set in CLUE 1.1."""
  files = _files(
    "{}.json",
    "{}.tsv",
    "{}.txt",
    test=["test.json", "test1.1.json", "test.tsv", "test.txt"],
  )
  return {
    "files": dict(files, **{"test1.0": ["test1.0.json"]}),
    "submissions": {
      "test": name + "11_predict.json",
      "test1.0": name + "10_predict.json",
    },
  }


def _mark_spans(row):
  """CLUEWSC: `_` around the noun, `[` and `]` around the pronoun."""
  text, target = row["text"], row["target"]
  marks = []
  for span, left, right in (("span1", "_", "_"), ("span2", "[", "]")):
    start, words = target[span + "_index"], target[span + "_text"]
    if text[start : start + len(words)] != words:
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
_LCQMC = _task(
  ("sentence1", "text_a"),
  ("sentence2", "text_b"),
  _YES_NO,
  columns=_PAIR + ("label",),
  files=_files("{}.txt", "{}.tsv", "{}.json"),
)
_WSC = _task(_mark_spans, None, ["false", "true"], **_two_versions("cluewsc"))

_OWN = _task("text_a", ("text_b", None), label=("label", "score"))


def _own_files(*endings):
  return _files(
    *["{}." + ending + more for more in ("", ".gz") for ending in endings]
  )


def _clue_nli(submission):
  return _task(
    ("sentence1", "premise"),
    ("sentence2", "hypothesis"),
    _NLI,
    files=_files(
      "{}.json",
      train=["train.json"]
      + ["train.%s.json" % size for size in ("50k", "30k", "10k", "3k", "1k")],
      diagnostics=["diagnostics.json", "../diagnostics/test.json"],
    ),
    submissions={"test": submission, "diagnostics": "diagnostics_predict.json"},
    rename={"-": None},
  )  # annotators disagree


def _glue(name, *args, **kwargs):
  return _task(*args, submissions={"test": name + ".tsv"}, **kwargs)._replace(
    may_be_quoted=False
  )


def _mnli(kind):
  return _task(
    *_PAIR,
    _NLI,
    label="gold_label",
    files={
      "train": ["train.tsv"],
      "dev": ["dev_%s.tsv" % kind],
      "test": ["test_matched.tsv"],
      "test_mismatched": ["test_mismatched.tsv"],
      "diagnostic": [
        "diagnostic.tsv",
        "AX.tsv",
        "../diagnostic/diagnostic.tsv",
        "../AX/AX.tsv",
      ],
    },
    submissions={
      "test": "MNLI-m.tsv",
      "test_mismatched": "MNLI-mm.tsv",
      "diagnostic": "AX.tsv",
    },
  )._replace(may_be_quoted=False)


TASKS = {
  # Chinese
  "lcqmc": _LCQMC,
  "lcqmc_pair": _LCQMC,
  "bq": _LCQMC,
  "chnsenticorp": _task("text_a", None, _YES_NO),
  "xnli": _task(
    ("premise", "sentence1"),
    ("hypo", "sentence2"),
    _NLI,
    label=("label", "gold_label"),
    files=_files(
      "{}.tsv",
      "xnli.{}.tsv",
      train=[
        "train.tsv",
        "multinli.train.zh.tsv",
        "multinli/multinli.train.zh.tsv",
      ],
    ),
    keep=lambda row: row.get("language", "zh") == "zh",
    rename={"contradictory": "contradiction"},
  ),
  # CLUE
  "afqmc": _LCQMC._replace(files=_files("{}.json", "{}.txt", "{}.tsv")),
  "tnews": _task(
    "sentence",
    None,
    _numbers(*[n for n in range(100, 117) if n not in (105, 111)]),
    **_two_versions("tnews"),
  ),
  "iflytek": _task("sentence", None, _numbers(*range(119))),
  "cmnli": _clue_nli("{}_predict.json"),
  "ocnli": _clue_nli("{}_50k_predict.json"),
  "csl": _task(lambda row: " ".join(row["keyword"]), "abst", _YES_NO),
  "wsc": _WSC,
  "cluewsc2020": _WSC,
  # GLUE
  "cola": _glue(
    "CoLA",
    "sentence",
    None,
    _YES_NO,
    files=_files("{}.tsv"),
    columns=("source", "label", "judgement", "sentence"),
    metric="matthews",
  ),
  "sst-2": _glue("SST-2", "sentence", None, _YES_NO),
  "mrpc": _glue(
    "MRPC",
    "#1 String",
    "#2 String",
    _YES_NO,
    label="Quality",
    files=_files("{}.tsv", "msr_paraphrase_{}.txt"),
    metric="f1",
  ),
  "qqp": _glue(
    "QQP", "question1", "question2", _YES_NO, label="is_duplicate", metric="f1"
  ),
  "sts-b": _glue("STS-B", *_PAIR, [], label="score", metric="pearson"),
  "mnli": _mnli("matched"),
  "mnli_matched": _mnli("matched"),
  "mnli_mismatched": _mnli("mismatched"),
  "qnli": _glue("QNLI", "question", "sentence", _RTE),
  "rte": _glue("RTE", *_PAIR, _RTE),
  "wnli": _glue("WNLI", *_PAIR, _YES_NO),
  # your own data
  "tsv": _OWN._replace(files=_own_files("tsv", "txt", "csv")),
  "csv": _OWN._replace(files=_own_files("csv", "tsv", "txt")),
  "jsonl": _OWN._replace(files=_own_files("jsonl", "json")),
}


def get_task(
  name: str,
  text_a_field: Optional[str] = None,
  text_b_field: Optional[str] = None,
  label_field: Optional[str] = None,
  labels: Optional[List[str]] = None,
  regression: bool = False,
  several: bool = False,
) -> Task:
  """Returns a task by its case-insensitive name; other arguments override it.

  Raises:
    InputError: there is no such task (the message lists all), or `labels` or
      `several` contradict regression.
  """
  if not name or name.lower() not in TASKS:
    raise InputError(
      "--task_name: unknown task %r; known are %s"
      % (name, ", ".join(sorted(TASKS)))
    )
  changes = {
    "text_a": text_a_field,
    "text_b": text_b_field,
    "label": label_field,
    "labels": labels,
  }
  task = TASKS[name.lower()]._replace(
    **{key: value for key, value in changes.items() if value}
  )
  if several:
    if regression or task.is_regression:
      raise InputError("--multi_label does not apply to numbers")
    return task._replace(metric="micro_f1", is_multi_label=True)
  if not regression:
    return task
  if labels:
    raise InputError("--regression predicts numbers: leave out --labels")
  return task._replace(labels=[], metric="pearson")


def reading(settings: Any) -> Optional[Dict[str, Any]]:
  """Returns the settings of the table that a model folder keeps.

  Args:
    settings: TableSettings with `text_a_field` and `text_b_field`.
  """
  given = {
    "columns": settings.columns,
    "text_a": settings.text_a_field,
    "text_b": settings.text_b_field,
  }
  return {key: value for key, value in given.items() if value} or None


def find_file(task: Task, data_dir: str, split: str) -> str:
  """Returns the path of a split's file.

  Raises:
    InputError: there is no file.
  """
  for path in _existing(task, data_dir, split):
    return path
  raise InputError(
    "no %s file: add %s, or change --data_dir"
    % (
      split,
      " or ".join(os.path.join(data_dir, name) for name in task.files[split]),
    )
  )


def _existing(task, data_dir, split):
  paths = [os.path.join(data_dir, name) for name in task.files[split]]
  return [path for path in paths if filesystem.exists(path)]


def splits_to_predict(task: Task, data_dir: str) -> List[str]:
  """Returns the splits to predict that have a file."""
  return [
    split for split in task.submissions if _existing(task, data_dir, split)
  ]


def read_examples(
  task: Task,
  path: str,
  is_test: bool = False,
  settings: Optional[TableSettings] = None,
) -> List[InputExample]:
  """Reads a file of a task.

  Args:
    task: describes the file.
    path: file to read.
    is_test: whether to predict the file, which may then lack labels and of
      which no row is skipped.
    settings: how to read tables; None for the defaults.

  Returns:
    at least one example. If all labels of a file to predict are the same, they
    are placeholders, and are removed.

  Raises:
    InputError: the file is empty or malformed; the message names the line.
  """
  settings = settings or TableSettings()
  rows = tables.read(
    path,
    settings,
    lambda cells: _columns(task, cells, is_test),
    may_be_quoted=task.may_be_quoted,
  )
  examples: List[InputExample] = []
  skipped = tables.Skipped(path, settings, is_test)
  names, blank = None, False
  for row in rows:
    if row.is_blank:
      blank = True
      continue
    if is_test and blank and examples:
      raise InputError(
        "%s: after a blank line: remove that line, because "
        "leaderboards count rows" % row.where
      )
    try:
      if row.error:
        raise ValueError(row.error)
      if names is None:
        names = _find_columns(task, list(row.values), is_test, path)
      if names.keep and not names.keep(row.values):
        continue
      example = _make_example(
        names, row.values, len(examples), is_test, settings
      )
      if not is_test:
        if example.label is None:
          continue
        _check_label(task, example.label)
      examples.append(example._replace(where=row.where))
    except ValueError as error:
      skipped.add(row.where, error)
  skipped.report(len(examples))
  if not examples:
    raise InputError("%s: has no examples" % path)
  return _without_placeholders(task, examples, path) if is_test else examples


def divide(
  examples: List[Any],
  shares: Dict[str, float],
  seed: int,
  text_of: Callable[[Any], Any] = lambda x: (x.text_a, x.text_b),
  label_of: Callable[[Any], Any] = lambda x: x.label,
  start: float = 0.0,
) -> Dict[str, List[Any]]:
  """Splits examples at random, stratified by label.

  Examples with the same texts stay together; the order is kept.

  Args:
    examples: labelled examples.
    shares: name of a part -> its share.
    seed: random seed.
    text_of, label_of: return the text and the label of an example, hashable.
    start: share of the shuffled examples before the first part; with K parts
      from 0, 1/K, ... on, one each, every example is in one of them.

  Returns:
    the parts, and the rest as "train".

  Raises:
    InputError: a part is empty.
  """
  places: Dict[Any, List[int]] = {}  # of each text
  for place, example in enumerate(examples):
    places.setdefault(text_of(example), []).append(place)
  groups: Dict[Any, List[List[int]]] = {}  # of each label
  for group in places.values():
    groups.setdefault(label_of(examples[group[0]]), []).append(group)
  rng, part_of = random.Random(seed), ["train"] * len(examples)
  for same in groups.values():
    rng.shuffle(same)
    end = start * len(same)
    for name, share in shares.items():
      begin, end = end, end + share * len(same)
      for place in itertools.chain.from_iterable(
        same[round(begin) : round(end)]
      ):
        part_of[place] = name
  parts = {
    name: [example for example, part in zip(examples, part_of) if part == name]
    for name in ("train", *shares)
  }
  for name, part in parts.items():
    if not part:
      raise InputError(
        "%d examples are too few for a %s part" % (len(examples), name)
      )
  return parts


def write_part(
  output_dir: str, name: str, examples: List[InputExample]
) -> None:
  """Writes a part of the training file, for --task_name=jsonl."""
  filesystem.write_lines(
    os.path.join(output_dir, name + ".jsonl"),
    (
      json.dumps(
        {
          key: value
          for key, value in (
            ("id", x.id),
            ("text_a", x.text_a),
            ("text_b", x.text_b),
            ("label", x.label),
          )
          if value is not None
        },
        ensure_ascii=False,
      )
      for x in examples
    ),
  )


def items(examples: List[InputExample]) -> List[Item]:
  """Returns the examples for the report on the data."""
  return [
    Item(
      (x.text_a,) if x.text_b is None else (x.text_a, x.text_b),
      x.label
      if x.label is None or isinstance(x.label, tuple)
      else (str(x.label),),
    )
    for x in examples
  ]


def _columns(task, cells, is_test):
  """Returns the names of the columns of a table with the first row `cells`."""
  try:
    _find_columns(task, cells, is_test)
  except ValueError as error:
    if not task.columns:
      raise ValueError(
        "%s; if the file has no header, name its columns with "
        "--columns=label,text_a" % error
      ) from error
    # A test file without a header may lack the label, its last column.
    lacks_label = is_test and len(cells) == len(task.columns) - 1
    return task.columns[:-1] if lacks_label else task.columns
  return cells


def _find_columns(task, columns, is_test, path=None):
  """Returns the task with its fields replaced by columns of a table.

  Args:
    task: Task.
    columns: names of the table's columns.
    is_test: whether the label may be missing.
    path: the file, to log columns with different names; None not to.

  Raises:
    ValueError: a column is missing, or there are several candidates.
  """
  found = {}
  for field, synonyms, is_needed in (
    ("text_a", tables.TEXT, True),
    ("text_b", tables.SECOND, True),
    ("label", tables.LABEL, not is_test),
  ):
    names = getattr(task, field)
    if names is None or callable(names):
      continue
    names = [names] if isinstance(names, str) else names
    name = tables.find_column(names, columns, synonyms)
    if name is None and None in names:  # optional
      continue
    if name is None and is_needed:
      raise ValueError(
        "no field %s, only %s"
        % (" or ".join(map(repr, names)), ", ".join(map(str, columns)))
      )
    if path and name not in (*names, None):
      logging.info("%s: %s is %s", path, field, name)
    if name:
      found[field] = name
  return task._replace(**found)


def _without_placeholders(task, examples, path):
  examples = metrics.without_placeholders(examples, "label", path)
  for example in examples:
    try:
      if example.label is not None:
        _check_label(task, example.label)
    except ValueError as error:
      raise InputError("%s: %s" % (example.where, error)) from error
  return examples


def _make_example(task, row, number, is_test, settings):
  texts = [
    _find(where, row) for where in (task.text_a, task.text_b, task.negative)
  ]
  for text in texts:
    if text is not None and not (isinstance(text, str) and text.strip()):
      raise ValueError("a text is empty or not a string")
  text_a, text_b, negative = texts
  if text_a is None:
    raise ValueError("the text is missing")
  # GLUE's id is `index`; `idx` in CLUEWSC2020's labelled files is not an id.
  name = (
    row.get(settings.id_field)
    if settings.id_field
    else row.get("id", row.get("index", number))
  )
  return InputExample(
    name,
    text_a,
    text_b,
    _find_label(task, row, is_test, settings),
    negative=negative,
  )


def _find_label(task, row, is_test, settings):
  """Returns None if the label is unknown or annotators disagree."""
  try:
    label = _find(task.label, row)
  except ValueError:
    if not is_test:
      raise
    label = None
  if task.is_multi_label:
    return (
      None
      if label is None
      else tuple(
        task.rename.get(part, part)
        for part in label_sets.split(label, settings.label_separator)
      )
    )
  if isinstance(label, list):
    if len(label) != 1:
      raise ValueError(
        "%d labels %s: several labels per text need "
        "--multi_label" % (len(label), label)
      )
    (label,) = label
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
      raise ValueError(
        "unknown label %r; known are %s" % (part, ", ".join(task.labels))
      )


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
  """Returns the value of a Task's field in a row, or raises a ValueError."""
  if where is None:
    return None
  try:
    if callable(where):
      return where(row)
    names = [where] if isinstance(where, str) else where
    if None in names:
      return next((row[name] for name in names if name in row), None)
    return row[next((name for name in names if name in row), names[0])]
  except (KeyError, TypeError) as error:
    raise ValueError(
      "no field %s, only %s" % (error, ", ".join(row))
    ) from error
