"""The table of classification tasks and the readers of their files."""

import collections
import os

from errors import InputError

# `text_b` is None for a single text, `label` is None where a test set has none.
InputExample = collections.namedtuple(
    "InputExample", ["text_a", "text_b", "label"])

# A task.
#   read: function of (path, is_test) that returns a list of InputExample.
#   files: dict, "train" / "dev" / "test" -> file names to look for, in order.
#   labels: list of str, or None to take those of the training file.
Task = collections.namedtuple("Task", ["read", "files", "labels"])


def read_rows(path):
  """Yields (line number, columns) of a tab-separated file, without quoting.

  Raises:
    InputError: a line is not UTF-8; the message names file and line.
  """
  with open(path, "rb") as reader:
    for number, line in enumerate(reader, 1):
      try:
        line = line.decode("utf-8-sig" if number == 1 else "utf-8")
      except UnicodeDecodeError as error:
        raise InputError("%s:%d: not UTF-8 (%s)" % (
            path, number, error)) from error
      line = line.rstrip("\r\n")
      if line.strip():
        yield number, line.split("\t")


def _check_texts(path, number, texts):
  if not all(text.strip() for text in texts):
    raise InputError("%s:%d: a text is empty" % (path, number))


def read_pairs(path, is_test):
  """Reads LCQMC's layout: `sentence1 <tab> sentence2 <tab> label`, no header.

  The label may be missing in a test file.
  """
  examples = []
  for number, row in read_rows(path):
    if len(row) != 3 and not (is_test and len(row) == 2):
      raise InputError(
          "%s:%d: expected 3 columns (sentence1, sentence2, label) parted by "
          "tabs, found %d" % (path, number, len(row)))
    _check_texts(path, number, row[:2])
    label = row[2].strip() if len(row) == 3 else None
    examples.append(InputExample(row[0], row[1], label))
  return examples


def read_tsv(path, is_test):
  """Reads a file whose header names `text_a`, `label` and maybe `text_b`.

  Columns may come in any order; others are passed over. A test file needs no
  `label`.
  """
  rows = read_rows(path)
  _, header = next(rows, (1, []))
  needed = ["text_a"] if is_test else ["text_a", "label"]
  for name in needed:
    if name not in header:
      raise InputError(
          "%s:1: the header must name the columns %s (and text_b for pairs), "
          "found: %s" % (path, ", ".join(needed), ", ".join(header) or "none"))
  examples = []
  for number, row in rows:
    if len(row) != len(header):
      raise InputError("%s:%d: expected %d columns parted by tabs, as in the "
                       "header, found %d" % (
                           path, number, len(header), len(row)))
    cells = dict(zip(header, row))
    _check_texts(path, number, [cells[name] for name in ("text_a", "text_b")
                                if name in cells])
    examples.append(InputExample(cells["text_a"], cells.get("text_b"),
                                 cells.get("label")))
  return examples


_TSV_FILES = {split: [split + ".tsv", split + ".txt"]
              for split in ("train", "dev", "test")}
_LCQMC = Task(read_pairs, {split: names[::-1] for split, names
                           in _TSV_FILES.items()}, ["0", "1"])

TASKS = {
    "lcqmc": _LCQMC,
    "lcqmc_pair": _LCQMC,
    "tsv": Task(read_tsv, _TSV_FILES, None),
}


def get_task(name):
  """Returns the Task of a name, in whatever case.

  Raises:
    InputError: there is no such task; the message lists those there are.
  """
  if not name or name.lower() not in TASKS:
    raise InputError("--task_name: unknown task %r; known are %s" % (
        name, ", ".join(sorted(TASKS))))
  return TASKS[name.lower()]


def read_examples(task, data_dir, split):
  """Reads one split of a task.

  Args:
    task: Task.
    data_dir: str.
    split: "train", "dev" or "test".

  Returns:
    list of InputExample, at least one.

  Raises:
    InputError: the file is missing, empty or malformed.
  """
  paths = [os.path.join(data_dir, name) for name in task.files[split]]
  for path in paths:
    if os.path.exists(path):
      examples = task.read(path, split == "test")
      if not examples:
        raise InputError("%s: has no examples" % path)
      return examples
  raise InputError("no %s file: put %s in place, or change --data_dir" % (
      split, " or ".join(paths)))


def label_ids(examples, labels, where):
  """Turns labels into numbers.

  Args:
    examples: list of InputExample.
    labels: list of str, all labels there are.
    where: str, what to call the examples in a message.

  Returns:
    list of int, 0 for an example without a label.

  Raises:
    InputError: a label is not among `labels`.
  """
  numbers = {label: number for number, label in enumerate(labels)}
  for example in examples:
    if example.label is not None and example.label not in numbers:
      raise InputError("%s: unknown label %r of %r; known are %s" % (
          where, example.label, example.text_a, ", ".join(labels)))
  return [numbers.get(example.label, 0) for example in examples]
