"""Teachers: their logits, and how training reads them."""

import collections
import random

import numpy as np
import pytest
from given_outputs import Engine, counts
from reading import features, read_json
from refusals import refused
from scripting import call_main, results
from trained_models import CITIES, command
from vocabularies import small_tokenizer
from writing import write

from albert.export import pytorch
from albert.model_folder import FolderSettings
from albert.model_folder import load as load_folder
from albert.predict import load
from albert.tasks import entity_files, ner
from albert.train import finetuning, loop, teachers

BIO = ["O", "B-x", "I-x"]
TEXTS = [("甲甲乙", None), ("丙", None)]


@pytest.fixture
def engines(tmp_path, monkeypatch):
  def engine(output, head, labels=(), pairs=False, **described):
    return Engine(
      small_tokenizer(tmp_path, [*"甲乙丙丁戊己庚辛壬癸", "ab"]),
      collections.defaultdict(lambda: output),
      head=head,
      labels=list(labels),
      pairs=pairs,
      **described,
    )

  engines = {
    "one": engine(counts, "classifier", "abc"),
    "turned": engine(lambda *x: counts(*x) * [10, 20, 30], "classifier", "cab"),
    "several": engine(counts, "multi_label", "abc"),
    "numbers": engine(lambda ids, *_: ids.sum(1) / 4, "regression", pairs=True),
    "vectors": engine(None, "sentence_vector", pooling="mean", layer=-1),
    "entities": engine(
      lambda ids, *_: ids[..., None] * [1, 2, 3],
      "token_labels",
      BIO[::-1],
      pairs=None,
      crf=False,
      by_character=False,
    ),
  }
  monkeypatch.setattr(teachers.engines, "load", lambda _, path: engines[path])
  return engines


def taught(paths, kind, labels, texts):
  """Returns the features of texts; the first text is labelled."""
  split = teachers.teach_texts(
    finetuning.Split(texts, lambda text: {"text": text}),
    teachers.DistillationSettings(teacher=paths),
    kind,
    labels,
    texts,
    [True] + [False] * len(texts[1:]),
  )
  rows = list(map(split.make_features, split.examples))
  assert [row["text"] for row in rows] == texts
  return {
    spec.name: np.array([row[spec.name] for row in rows]).tolist()
    for spec in split.more_specs
  }


@pytest.mark.parametrize(
  "paths, kind, texts, expected",
  [
    # Matched by name: b, c, a.
    (["one"], "label", TEXTS, [[1, 0, 2], [0, 1, 0]]),
    (["one", "turned"], "label", TEXTS, [[0.5, 10, 11], [15, 0.5, 0]]),
    (["several"], "labels", TEXTS, [[1, 0, 2], [0, 1, 0]]),
    # [CLS] 2, [SEP] 3, 甲 5, 乙 6
    (
      ["numbers"],
      "score",
      [("甲", "乙"), ("乙", "乙甲")],
      [[(2 + 5 + 3 + 6 + 3) / 4], [(2 + 6 + 3 + 6 + 5 + 3) / 4]],
    ),
  ],
)
def test_logits_of_texts(engines, paths, kind, texts, expected):
  assert taught(
    paths, kind, [] if kind == "score" else ["b", "c", "a"], texts
  ) == {"teacher_logits": expected, "is_labelled": [1, 0]}


def test_tokens_that_are_cut_alike():
  scores = np.arange(10.0).reshape([5, 2])
  #             甲      ab      乙      丙, in two pieces
  theirs = np.array([[0, 1], [1, 3], [3, 4], [4, 5], [4, 5]])
  ours = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [4, 5], [4, 5]])
  np.testing.assert_array_equal(
    teachers.match(ours, theirs, scores),
    scores[[0, 0, 0, 2, 3, 4, 0]]
    + np.array([[0], [np.nan], [np.nan], [0], [0], [0], [np.nan]]),
  )


def test_entities(engines):
  examples = [
    entity_files.Example(0, "甲乙ab丙丁戊己", []),
    entity_files.Example(1, "癸", None),
  ]
  # By character, while the teacher has words; in windows of 4.
  texts = ner.Texts(examples, engines["one"].tokenizer, BIO, 6, True)
  split = teachers.teach_tokens(
    finetuning.Split(texts.windows, texts.make_features),
    teachers.DistillationSettings(teacher=["entities"]),
    texts,
  )
  rows = list(map(split.make_features, split.examples))
  assert [row["is_labelled"] for row in rows] == [1, 1, 1, 0]
  each = [
    np.concatenate([row["teacher_logits"], row["teacher_mask"]])
    .reshape([4, -1])
    .T
    for row in rows
  ]
  assert [len(x) for x in each] == [len(row["input_ids"]) for row in rows]
  found = texts.join(each)
  known = [[5, 1], [6, 1], [0, 0], [0, 0], [8 - 1, 1], [8, 1], [9, 1], [10, 1]]
  assert [rows.tolist() for rows in found] == [
    [[3 * i, 2 * i, i, mask] for i, mask in ids] for ids in (known, [[14, 1]])
  ]


@pytest.mark.parametrize(
  "name, value",
  [("distill_weight", 0.0), ("distill_weight", 1.5), ("temperature", -1.0)],
)
def test_flags(name, value):
  refused(
    "--%s=%g: " % (name, value),
    teachers.check,
    teachers.DistillationSettings(teacher=["x"], **{name: value}),
  )


@pytest.mark.parametrize(
  "paths, kind, labels, pairs, message",
  [
    (
      ["one", "several"],
      "label",
      "abc",
      False,
      "=several .*several labels .* one label",
    ),
    (["one", "numbers"], "label", "abc", False, "=numbers .*numbers of pairs"),
    (["numbers"], "score", "", False, "=numbers .*pairs, .* of single texts"),
    (["vectors"], "score", "", True, "=vectors .*cosines"),
    (["one"], "label", "abd", False, "=one .*lacks d; .* has c"),
    (["one"], "entities", BIO, False, "=one .* entities"),
    (
      ["entities"],
      "entities",
      ["O", "B-y", "I-y"],
      None,
      "=entities .*lacks B-y, I-y; .* has B-x, I-x",
    ),
  ],
)
def test_teachers_of_something_else(
  engines, paths, kind, labels, pairs, message
):
  refused(
    "--teacher" + message, teachers._load, paths, kind, list(labels), pairs
  )


def test_texts_without_labels(tmp_path):
  def read(content, are_pairs):
    return teachers.read_unlabelled(
      write(tmp_path, "texts.txt", content), are_pairs
    )

  assert teachers.read_unlabelled(None, True) == []
  assert read("丁丁\n\n庚己\n", False) == [("丁丁", None), ("庚己", None)]
  assert read("丁\t庚\n", True) == [("丁", "庚")]
  for content, are_pairs, message in (
    ("\n\n", False, ": "),
    ("甲\n乙\t丙\n", False, ":2: .*one .*2 col"),
    ("甲\n", True, ":1: .*two .*1 col"),
    ("甲\t \n", True, ":1: "),
  ):
    refused("texts.txt" + message, read, content, are_pairs)


def train(teacher, kind, folder, *args):
  """Trains on six texts and two unlabelled ones; returns the records."""
  call_main(
    *command(
      folder,
      kind,
      "--do_train",
      "--teacher=%s" % teacher.best,
      "--max_train_examples=6",
      "--max_seq_length=32",
      "--num_train_epochs=1",
      "--random_seed=7",
      "--unlabelled_file=" + write(folder, "texts.txt", "丁丁", "", "庚己"),
      *args,
    )
  )
  return features(folder / "out" / "train.tf_record")


@pytest.mark.slow
def test_records_of_a_teacher(trained, tmp_path, monkeypatch):
  teacher = trained("labels")
  monkeypatch.setattr(
    loop, "train_and_evaluate", lambda *args: args[3](0)
  )  # input_fn_at
  rows = train(teacher, "labels", tmp_path)
  # Sampled by --random_seed, in their order.
  texts = [
    teacher.inputs[i] for i in sorted(random.Random(7).sample(range(9), 6))
  ]
  model = load(str(teacher.best))
  expected = model.logits(texts + ["丁丁", "庚己"])[
    :,
    list(
      map(
        model.labels.index, read_json(tmp_path / "out" / "task.json")["labels"]
      )
    ),
  ]
  assert [row["number"] for row in rows] == [[i] for i in range(8)]
  assert sum(row["is_labelled"][0] for row in rows) == 6
  np.testing.assert_allclose(
    [row["teacher_logits"] for row in rows], expected, atol=1e-4
  )


@pytest.mark.full
def test_training_on_a_teachers_entities(trained, tmp_path):
  rows = train(trained("entities"), "crf", tmp_path, "--do_eval")
  assert sum(row["is_labelled"] == [0] for row in rows) == 2 < len(rows)
  for row in rows:
    length = len(row["input_ids"])
    assert row["teacher_mask"] == [0, *[1] * (length - 2), 0]
    assert len(row["teacher_logits"]) == 3 * length
  assert results(tmp_path / "out" / "best")["eval_loss"] > 0


@pytest.mark.slow
def test_a_folder_of_transformers(trained, tmp_path):
  ours = str(trained("labels").best)
  pytorch.write_folder(load_folder(FolderSettings(), ours), str(tmp_path))
  found, expected = [
    taught([path], "label", CITIES, [("他在北京", None)])["teacher_logits"]
    for path in (str(tmp_path), ours)
  ]
  np.testing.assert_allclose(found, expected, atol=1e-4)
