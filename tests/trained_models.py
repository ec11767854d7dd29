"""A small fine-tuned model of every kind, and its training data.

Texts have different lengths, so that batches differ. The fixture `trained` of
conftest.py trains each model once for all tests.
"""

import json
import pathlib
import re
from typing import Callable, List, NamedTuple

from scripting import SIZES, VOCAB, succeed

CITIES = ["北京", "上海", "西安"]
NAMES = "甲乙丙丁戊己庚辛壬"
LENGTH = 24  # max_seq_length
LIMITS = {"max_query_length": 8, "doc_stride": 4}


class Kind(NamedTuple):
  """How a model is trained."""

  script: str
  task: str
  file: str  # file name of a split, {}
  # Returns (inputs for `predict`, text of the labelled file); all splits are
  # the same.
  make: Callable
  flags: List[str] = []


class Trained(NamedTuple):
  """A trained model with its evaluation and test predictions."""

  folder: pathlib.Path  # task files and `small.json`
  out: pathlib.Path  # --output_dir
  inputs: list  # rows of the test file, for `predict`

  @property
  def best(self):
    return self.out / "best"


def tsv(*rows):
  return "".join("\t".join(row) + "\n" for row in rows)


def texts(name, *labels):
  inputs = [
    "第%d天在%s%s" % (i, CITIES[i % 3], "，很好" * (i % 4)) for i in range(9)
  ]
  return inputs, tsv(("text_a", name), *zip(inputs, labels * 3))


def pairs():
  inputs = [
    (
      "他在%s" % CITIES[i % 3],
      "%s在第%d天%s" % (CITIES[i % 2], i, "，很好" * (i % 4)),
    )
    for i in range(9)
  ]
  return inputs, tsv(
    ("text_a", "text_b", "label"),
    *(pair + (str(i % 2),) for i, pair in enumerate(inputs)),
  )


def entities():
  inputs = [
    "他在%s，她在%s" % (CITIES[i % 3], CITIES[i % 2]) * (1 + i)
    for i in range(9)
  ]  # some longer than a window
  return inputs, "".join(
    json.dumps(
      {
        "text": text,
        "label": {
          "city": {
            city: [[x.start(), x.end() - 1] for x in re.finditer(city, text)]
            for city in CITIES
            if city in text
          }
        },
      }
    )
    + "\n"
    for text in inputs
  )


def answers():
  inputs = [
    (
      "谁在第%d天？" % i if i % 4 else "谁？",
      "第%d天是%s的%s。" % (i, name, CITIES[i % 3]) * (1 + i % 4),
    )
    for i, name in enumerate(NAMES)
  ]
  paragraphs = [
    {
      "context": passage,
      "qas": [
        {
          "id": str(i),
          "question": question,
          "is_impossible": i % 3 == 0,
          "answers": [{"text": NAMES[i], "answer_start": 4}] * bool(i % 3),
        }
      ],
    }
    for i, (question, passage) in enumerate(inputs)
  ]
  return inputs, json.dumps({"data": [{"paragraphs": paragraphs}]})


def choices():
  inputs = [
    (
      "甲：第%d天" % i * (i % 2) + "去%s。" % CITIES[i % 3],
      "去哪里？",
      CITIES[: 2 + i % 2],
    )
    for i in range(9)
  ]
  return inputs, json.dumps(
    [
      [
        [passage],
        [dict(question=question, choice=options, answer=options[i % 2])],
        str(i),
      ]
      for i, (passage, question, options) in enumerate(inputs)
    ]
  )


def idioms():
  inputs = [
    (
      "第%d天他#idiom%d1#，她#idiom%d2#。" % (i, i, i),
      ["画蛇添足", "雪中送炭", "一心一意"],
    )
    for i in range(9)
  ]
  return inputs, "".join(
    json.dumps({"content": [text], "candidates": options}) + "\n"
    for text, options in inputs
  )


_TSV = ("run_classifier.py", "tsv", "{}.tsv")
_NER = ("run_ner.py", "file", "{}.json", entities)
_SQUAD = ("run_squad.py", "squad2", "{}.json", answers)
KINDS = {
  "labels": Kind(*_TSV, lambda: texts("label", *CITIES)),
  "several": Kind(
    *_TSV, lambda: texts("label", "", "北京", "北京|上海"), ["--multi_label"]
  ),
  "windows": Kind(
    *_TSV,
    lambda: texts("label", *CITIES),
    ["--long_text=windows", "--max_windows=2"],
  ),
  "pairs": Kind(*_TSV, pairs),
  "cosines": Kind("run_sentence_vectors.py", "tsv", "{}.tsv", pairs),
  "numbers": Kind(
    *_TSV, lambda: texts("score", "1000", "1500", "2000"), ["--regression"]
  ),
  "entities": Kind(*_NER),
  "crf": Kind(*_NER, ["--crf"]),
  "spans": Kind(*_SQUAD),
  "beam": Kind(*_SQUAD, ["--head=beam"]),
  "choices": Kind("run_race.py", "c3", "d-{}.json", choices),
  "idioms": Kind("run_race.py", "chid", "{}.json", idioms),
}


def write_files(folder, name):
  """Writes the training data; returns (inputs, data flags)."""
  kind = KINDS[name]
  inputs, content = kind.make()
  (folder / "small.json").write_text(
    json.dumps(dict(SIZES, num_hidden_layers=1, max_position_embeddings=32))
  )
  files = {
    split: folder / kind.file.format(split)
    for split in ("train", "dev", "test")
  }
  for path in files.values():
    path.write_text(content, encoding="utf-8")
    if kind.task == "chid":
      path.with_name(path.stem + "_answer.json").write_text(
        json.dumps(
          {
            "#idiom%d%d#" % (i, j): (i + j) % 3
            for i in range(9)
            for j in (1, 2)
          }
        )
      )
    elif kind.task == "c3":
      (folder / path.name.replace("d-", "m-")).write_text(content)
  if kind.script != "run_squad.py":
    return inputs, ["--data_dir=%s" % folder]
  return inputs, [
    *("--%s_file=%s" % item for item in files.items()),
    *("--%s=%d" % item for item in LIMITS.items()),
  ]


def command(folder, name, *args):
  """Writes the training data; returns a command that reads it."""
  kind, (_, data) = KINDS[name], write_files(folder, name)
  return [
    kind.script,
    "--task_name=" + kind.task,
    VOCAB,
    *data,
    *kind.flags,
    "--bert_config_file=%s" % (folder / "small.json"),
    "--max_seq_length=%d" % LENGTH,
    "--train_batch_size=4",
    "--output_dir=%s" % (folder / "out"),
    *args,
  ]


def train(folder, name):
  """Trains, evaluates and predicts, in this process."""
  succeed(
    *command(
      folder,
      name,
      "--do_train",
      "--do_eval",
      "--do_predict",
      "--num_train_epochs=2",
      "--learning_rate=3e-3",
      "--save_checkpoints_steps=200",
    )
  )
