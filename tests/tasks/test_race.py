"""Multiple choice: files and features."""

import numpy as np
import pytest
from refusals import refused
from scripting import results, succeed
from trained_models import command
from vocabularies import Letters, written
from writing import write

from albert.tasks import race


@pytest.mark.full
def test_a_small_model_learns_to_choose(tmp_path):
  succeed(
    *command(
      tmp_path,
      "choices",
      "--do_train",
      "--do_eval",
      "--train_batch_size=6",
      "--learning_rate=3e-3",
      "--num_train_epochs=60",
      "--save_checkpoints_steps=1000",
    )
  )
  found = results(tmp_path / "out")
  assert [found["eval_accuracy" + part] for part in ("", "_d", "_m")] == [1] * 3


def test_gaps():
  assert race.fill_in("It is _ .", "a\\1") == "It is  a\\1  ."
  assert race.fill_in("他____了", "走") == "他 走 了"
  assert race.fill_in("What?", "a") == "What? a"


def test_sequences():
  example = race.Example("i", None, "abcdefgh", "pq_", ["x", "yz"], 1)

  def rows(length, query_length, num_choices=2):
    packed = race.sequence_maker(Letters(), length, query_length)(example)
    features, again = [
      race.pack_choices(packed, example, num_choices) for _ in range(2)
    ]  # `packed` is not modified
    assert features == again
    assert (features["num_choices"], features["label"]) == (2, 1)
    return [
      [
        written(x) if name == "input_ids" else "".join(map(str, x))
        for x in np.split(np.array(features[name]), num_choices)
      ]
      for name in ("input_ids", "segment_ids", "input_mask")
    ]

  assert rows(20, 9) == [
    ["<abcdefgh|pq x |\0", "<abcdefgh|pq yz |"],
    ["00000000001111110", "00000000001111111"],
    ["11111111111111110", "11111111111111111"],
  ]
  assert rows(11, 4, 3)[0] == ["<abcd|q x |", "<abcd| yz |", "\0" * 11]
  assert rows(6, 4)[0] == ["<|q x|", "<| yz|"]


ROW = {"question": "b", "choice": ["a", "b"], "answer": "a"}
ARTICLE = {
  "article": "a",
  "questions": ["b", "c"],
  "answers": ["A", "B"],
  "options": [["d", "e", "f"], ["g", "h"]],
}


def read(folder, task, split="train"):
  find, read = [getattr(race, verb + task) for verb in ("find_", "read_")]
  return race.read_examples(find, read, "file://%s" % folder, split)


def test_files(tmp_path):
  for name, content in (
    ("test/high/2.txt", ARTICLE),
    ("test/high/1.txt", dict(ARTICLE, id="h")),
    ("test/middle/1.txt", dict(ARTICLE, answers=None)),
    ("c3-m-dev.json", [[["甲", "乙"], [ROW, dict(ROW, id=7)], "x"]]),
    ("c3-d-test.json", []),
    ("test1.1.json", []),
  ):
    write(tmp_path, name, content)
  examples = read(tmp_path, "race", "test")
  assert examples == [
    race.Example(
      name + "-%d" % i,
      part,
      "a",
      "bc"[i],
      ARTICLE["options"][i],
      i if part == "high" else None,
    )
    for name, part in zip(
      ("middle/1.txt", "h", "high/2.txt"), ("middle", "high", "high")
    )
    for i in range(2)
  ]
  first = race.Example("m-x-0", "m", "甲\n乙", "b", ["a", "b"], 0)
  assert read(tmp_path, "c3", "dev") == [first, first._replace(id=7)]
  # CLUE's single file takes precedence over the files of the two parts.
  assert race.find_c3(str(tmp_path), "test") == [
    (str(tmp_path / "test1.1.json"), None)
  ]


@pytest.mark.parametrize(
  "task, content, message",
  [
    ("c3", None, "no questions for train"),
    ("c3", "[", "d-train.json: not JSON"),
    ("c3", ["abc"], "d-train.json: not C3's"),
    ("c3", [[["a"], [{"question": "b"}], "c"]], "not C3's.*'choice'"),
    ("c3", [[["a"], [dict(ROW, choice=["a"])], "c"]], "d-c-0 .*fewer than 2"),
    ("c3", [[["a"], [dict(ROW, answer=None)], "c"]], "d-c-0 has no answer"),
    ("c3", [[["a"], [dict(ROW, question=None)], "c"]], "d-c-0 .*not text"),
    ("c3", [[["a"], [ROW], "c"], [["b"], [ROW], "c"]], "d-c-0 .*twice"),
    ("race", dict(ARTICLE, answers=["A", "C"]), "1.txt-1 has no choice C"),
    ("race", dict(ARTICLE, answers=["A"]), "1.txt: .*2 q.* 2 o.* 1 a"),
    ("race", dict(ARTICLE, answers=["AB", "A"]), "1.txt: not RACE's.*'AB'"),
    ("race", dict(ARTICLE, options=["def", ["g", "h"]]), "1.txt-0 .*not text"),
    ("race", [ARTICLE], "1.txt: not RACE's"),
  ],
)
def test_broken_files_are_named(tmp_path, task, content, message):
  if content:
    write(
      tmp_path,
      {"c3": "d-train.json", "race": "train/high/1.txt"}[task],
      content,
    )
  refused(message, read, tmp_path, task)
