"""Distillation: a student learns the logits of teachers, fine-tuned models.

A teacher reads text, like predict.py, so its size, vocabulary, length and
variable layout may differ. Its logits are computed once, before training, and
become features of the training records; the loss is in
albert/heads/distilled.py.
"""

import contextlib
import dataclasses
import os
import tempfile
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
from absl import logging

from albert.errors import InputError
from albert.export import pytorch
from albert.files import filesystem, tables
from albert.files.records import FeatureSpec
from albert.heads import distilled
from albert.heads.base import Head
from albert.predict import engines, predictors
from albert.predict.tagger import Tagger
from albert.settings import setting
from albert.tasks import ner
from albert.train.finetuning import Split

# The kind of task, by the `kind` of its predictor.
_KINDS = {
  "label": "one label",
  "labels": "several labels",
  "score": "numbers",
  "entities": "entities",
}


@dataclasses.dataclass(frozen=True)
class DistillationSettings:
  """Distillation from teachers."""

  teacher: list = setting(
    None,
    "Folder of a fine-tuned model, ours or from transformers, whose "
    "logits the model learns; of several, separated by commas, their mean.",
    needs="do_train",
  )
  distill_weight: float = setting(
    0.5,
    "--teacher: its share of the loss of labelled texts, above 0, at most 1.",
    needs="teacher",
  )
  temperature: float = setting(
    2.0, "--teacher: divisor of the logits before comparison.", needs="teacher"
  )
  unlabelled_file: str = setting(
    None,
    "--teacher: more training texts, without labels: one per line, or "
    "a pair separated by a tab.",
    demands="teacher or not do_train",
    needs="do_train",
  )


def check(args: DistillationSettings) -> None:
  """Raises an InputError for a number out of range."""
  if not 0 < args.distill_weight <= 1:
    raise InputError(
      "--distill_weight=%g: must be greater than 0 and at "
      "most 1, such as 0.5" % args.distill_weight
    )
  if not 0 < args.temperature < np.inf:
    raise InputError(
      "--temperature=%g: must be greater than 0, such as 2" % args.temperature
    )


def head_for(head: Any, args: DistillationSettings) -> Head:
  """Returns the head, which has `logits`, with distillation if requested."""
  if not args.teacher:
    return head
  return distilled.Distilled(head, args.distill_weight, args.temperature)


def read_unlabelled(
  path: Optional[str], are_pairs: bool
) -> List[Tuple[str, Optional[str]]]:
  """Reads --unlabelled_file, skipping blank lines.

  Args:
    path: None for no texts.
    are_pairs: whether the task's texts are pairs.

  Raises:
    InputError: the file has no texts, or a line does not fit the task.
  """
  found: List[Tuple[str, Optional[str]]] = []
  for number, line in enumerate(tables.read_lines(path) if path else [], 1):
    cells = line.split("\t")
    if not line.strip():
      continue
    if len(cells) != 1 + are_pairs or not all(map(str.strip, cells)):
      raise InputError(
        "%s:%d: expected %s, found %d column(s)"
        % (
          path,
          number,
          "two texts separated by a tab"
          if are_pairs
          else "one text without a tab",
          len(cells),
        )
      )
    found.append((cells[0], cells[1] if are_pairs else None))
  if path and not found:
    raise InputError("%s: has no texts" % path)
  return found


def unlabelled_files(args: DistillationSettings, name: str) -> List[str]:
  """Returns the paths of the unlabelled texts of a split."""
  return [path for path in [args.unlabelled_file] if path and name == "train"]


def teach_texts(
  split: Split,
  args: DistillationSettings,
  kind: str,
  labels: List[str],
  texts: List[Tuple[str, Optional[str]]],
  is_labelled: Sequence[bool],
) -> Split:
  """Adds the features of a teacher to a Split of texts or pairs.

  Args:
    split: the examples.
    args: the teachers.
    kind: kind of predictions the task needs; see predictors.Predictor.
    labels: L labels of the task; empty for regression.
    texts: text, or pair, of each example.
    is_labelled: whether each example has a label.

  Raises:
    InputError: a teacher cannot be read, or does not fit the task.
  """
  are_pairs = texts[0][1] is not None
  inputs: List[Any] = list(texts) if are_pairs else [text for text, _ in texts]
  found = []
  for teacher in _load(args.teacher, kind, labels, are_pairs):
    started = time.monotonic()
    logits = teacher.logits(inputs).reshape([len(texts), -1])
    found.append(_in_order(logits, teacher.labels, labels))
    _log_rate(texts, started)
  logits = np.mean(found, 0)  # [N, L]

  def make_features(numbered):
    number, example = numbered
    return dict(
      split.make_features(example),
      **{
        distilled.LOGITS: logits[number].tolist(),
        distilled.IS_LABELLED: int(is_labelled[number]),
      },
    )

  return split._replace(
    examples=list(enumerate(split.examples)),
    make_features=make_features,
    more_specs=[
      FeatureSpec(distilled.LOGITS, "float", logits.shape[1]),
      FeatureSpec(distilled.IS_LABELLED, "int", 0),
    ],
  )


def teach_tokens(
  split: Split, args: DistillationSettings, texts: ner.Texts
) -> Split:
  """Adds the features of a teacher to a Split of windows of NER texts.

  Args:
    split: its examples are `texts.windows`.
    args: the teachers.
    texts: texts; those with entities None are labelled by the teacher only.

  Raises:
    InputError: a teacher cannot be read, or does not fit the task.
  """
  labels, found = texts.labels, []
  for teacher in _load(args.teacher, "entities", labels, False):
    started = time.monotonic()
    theirs, scores = teacher.scores([x.text for x in texts.examples])
    found.append(
      [
        _in_order(match(*row), teacher.labels, labels)
        for row in zip(texts.spans, theirs.spans, scores)
      ]
    )
    _log_rate(texts.examples, started)
  logits = [np.mean(rows, 0) for rows in zip(*found)]  # N times [tokens, L]
  known = [~np.isnan(rows[:, 0]) for rows in logits]
  logging.info(
    "the teacher has %.2f%% of the tokens; it tokenizes the rest differently",
    100.0 * np.mean(np.concatenate(known)),
  )

  def make_features(window):
    inside = slice(window.first, window.first + len(window.decides))
    rows = np.nan_to_num(logits[window.number][inside])
    is_labelled = texts.examples[window.number].entities is not None
    # [CLS] and [SEP] have no logits.
    return dict(
      split.make_features(window),
      **{
        distilled.LOGITS: np.pad(rows.T, [[0, 0], [1, 1]], "constant")
        .ravel()
        .tolist(),
        distilled.TOKENS: [0, *map(int, known[window.number][inside]), 0],
        distilled.IS_LABELLED: int(is_labelled),
      },
    )

  return split._replace(
    make_features=make_features,
    more_specs=[
      FeatureSpec(distilled.LOGITS, "float", None, rows=len(labels)),
      FeatureSpec(distilled.TOKENS, "int", None),
      FeatureSpec(distilled.IS_LABELLED, "int", 0),
    ],
  )


def match(
  spans: np.ndarray, their_spans: np.ndarray, scores: np.ndarray
) -> np.ndarray:
  """Maps scores of a teacher's tokens to the tokens of the task.

  Args:
    spans: int [tokens, 2], start and end of each token.
    their_spans: int [their tokens, 2], the same for the teacher.
    scores: float [their tokens, L].

  Returns:
    float [tokens, L]; NaN if the teacher has no such token.
  """
  places = {key: place for place, key in enumerate(_keys(their_spans))}
  extended = np.concatenate([scores, np.full([1, scores.shape[1]], np.nan)])
  return extended[[places.get(key, -1) for key in _keys(spans)]]


def _load(paths, kind, labels, are_pairs):
  """Returns the predictors of the teachers, each of which fits the task."""
  teachers = []
  for path in paths:
    with contextlib.ExitStack() as stack:
      folder, config = path, os.path.join(path, "config.json")
      if filesystem.exists(config) and "model_type" in filesystem.read_json(
        config
      ):  # from transformers
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        pytorch.read_folder(path, folder)
      engine = engines.load("tensorflow", folder)
      if engine.folder.pairs is None:  # unknown in transformers folders
        engine.folder = dataclasses.replace(engine.folder, pairs=are_pairs)
      _check_fits(path, engine.folder, kind, labels, are_pairs)
      teachers.append(
        Tagger(engine) if kind == "entities" else predictors.of_engine(engine)
      )
  return teachers


def _check_fits(path, folder, kind, labels, are_pairs):
  """Raises an InputError if a teacher does not fit the task."""
  found = "cosines" if folder.vector else predictors.class_for(folder).kind
  if (found, folder.pairs) != (kind, are_pairs):
    raise InputError(
      "--teacher=%s predicts %s of %s, the task has %s of %s"
      % (
        path,
        _KINDS.get(found, found),
        _texts(folder.pairs),
        _KINDS[kind],
        _texts(are_pairs),
      )
    )
  known = folder.labels or []
  lacking, more = [
    sorted(set(a) - set(b)) for a, b in ((labels, known), (known, labels))
  ]
  problems = []
  if lacking:
    problems.append("it lacks " + ", ".join(lacking))
  if more:
    problems.append("only it has " + ", ".join(more))
  if problems:
    raise InputError(
      "--teacher=%s has different labels from the task: %s"
      % (path, "; ".join(problems))
    )


def _texts(are_pairs):
  return "pairs" if are_pairs else "single texts"


def _in_order(logits, theirs, labels):
  """Reorders a teacher's logits [N, L] by the task's `labels`."""
  if not labels:
    return logits
  return logits[:, [theirs.index(label) for label in labels]]


def _keys(spans):
  """Returns unique keys of tokens, as one character can be several tokens."""
  keys: List[Tuple[int, ...]] = []
  counts: Dict[Tuple[int, ...], int] = {}
  for span in map(tuple, spans.tolist()):
    counts[span] = counts.get(span, 0) + 1
    keys.append((*span, counts[span]))
  return keys


def _log_rate(texts, started):
  logging.info(
    "the teacher has read %d texts, %.1f a second",
    len(texts),
    len(texts) / (time.monotonic() - started),
  )
