"""Questions with choices: RACE's and C3's files, and their features."""

import array
import collections
import functools
import os
import re

import tensorflow.compat.v1 as tf

import tokenization
from util import filesystem
from util.errors import InputError

NUM_CHOICES = 4

# A question. `part` is what is reported apart: RACE's middle and high, C3's d
# and m. `answer` is the number of the right choice, None where a file does not
# say.
Example = collections.namedtuple(
    "Example", ["id", "part", "passage", "question", "choices", "answer"])


def read_race(data_dir, split):
  """Reads RACE: `split`/{middle,high}/*.txt, each one article in JSON."""
  for part in ("middle", "high"):
    folder = os.path.join(data_dir, split, part)
    paths = tf.io.gfile.glob(os.path.join(folder, "*.txt")) if (
        tf.io.gfile.isdir(folder)) else []
    for path in sorted(paths):
      article = filesystem.read_json(path)
      try:
        questions, options = article["questions"], article["options"]
        letters = article.get("answers") or [None] * len(questions)
        if not len(questions) == len(options) == len(letters):
          raise ValueError("%d questions, %d options, %d answers" % (
              len(questions), len(options), len(letters)))
        name = article.get("id", "%s/%s" % (part, os.path.basename(path)))
        for number, (question, choices, letter) in enumerate(
            zip(questions, options, letters)):
          yield path, Example(
              "%s-%d" % (name, number), part, article["article"], question,
              choices, None if letter is None else list("ABCD").index(letter))
      except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError("%s: not RACE's layout: %s" % (path, error)) from error


def read_c3(data_dir, split):
  """Reads C3: {d,m}-SPLIT.json or c3-{d,m}-SPLIT.json."""
  for part in ("d", "m"):
    for pattern in ("%s-%s.json", "c3-%s-%s.json"):
      path = os.path.join(data_dir, pattern % (part, split))
      if not tf.io.gfile.exists(path):
        continue
      content = filesystem.read_json(path)
      try:
        for lines, questions, name in content:
          passage = "\n".join(lines)
          for number, row in enumerate(questions):
            answer = row.get("answer")
            yield path, Example(
                row.get("id", "%s-%s-%d" % (part, name, number)), part,
                passage, row["question"], row["choice"],
                row["choice"].index(answer) if answer else None)
      except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError("%s: not C3's layout: %s" % (path, error)) from error


READERS = {"race": read_race, "c3": read_c3}


def read_examples(task_name, data_dir, split):
  """Reads a split.

  Returns:
    list of Example, at least one.

  Raises:
    InputError: there are no files, one of them is malformed, or an id occurs
      twice.
  """
  examples, ids = [], set()
  for path, example in READERS[task_name](data_dir, split):
    if not isinstance(example.choices, list) or not all(
        isinstance(text, str) for text in
        [example.passage, example.question] + example.choices):
      raise InputError("%s: question %s has a value that is not text" % (
          path, example.id))
    if not 2 <= len(example.choices) <= NUM_CHOICES:
      raise InputError("%s: question %s has %d choices, not 2 to %d" % (
          path, example.id, len(example.choices), NUM_CHOICES))
    if example.answer is None and split != "test":
      raise InputError("%s: question %s has no answer" % (path, example.id))
    if (example.answer or 0) >= len(example.choices):
      raise InputError("%s: question %s has no choice %s" % (
          path, example.id, "ABCD"[example.answer]))
    if example.id in ids:
      raise InputError("%s: the id %s occurs twice" % (path, example.id))
    ids.add(example.id)
    examples.append(example)
  if not examples:
    raise InputError("%s: no questions of %s for %s there: change --data_dir"
                     % (data_dir, task_name, split))
  return examples


def fill_in(question, choice):
  """Puts a choice into the gap of a question, `_` in RACE, or behind it."""
  if "_" in question:
    return re.sub("_+", lambda _: " %s " % choice, question)
  return "%s %s" % (question, choice)


def feature_maker(tokenizer, max_seq_length, max_query_length):
  """Returns the function that makes the features of an Example, a dict."""
  def tokenize(text):
    return tokenizer.convert_tokens_to_ids(tokenizer.tokenize_plain(text))

  # Shuffled, the questions about a passage are far from each other.
  @functools.lru_cache(maxsize=None)
  def passage_ids(passage):
    return array.array("i", tokenize(passage)[:max_seq_length])

  def make_features(example):
    packed = []
    for choice in example.choices:
      query = tokenize(fill_in(example.question, choice))[-max_query_length:]
      room = max(0, max_seq_length - len(query) - 3)
      packed.append(tokenization.pack_pair(
          tokenizer, passage_ids(example.passage)[:room].tolist(), query,
          max_seq_length))
    length = max(len(ids) for ids, _ in packed)
    packed += [([], [])] * (NUM_CHOICES - len(packed))  # absent choices
    rows = {name: [] for name in ("input_ids", "input_mask", "segment_ids")}
    for ids, segments in packed:
      padding = [0] * (length - len(ids))
      rows["input_ids"] += ids + padding
      rows["input_mask"] += [1] * len(ids) + padding
      rows["segment_ids"] += segments + padding
    return dict(rows, num_choices=len(example.choices),
                label=example.answer or 0)

  return make_features
