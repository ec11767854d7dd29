"""ChID: files in both formats, features, and the assignment."""

import numpy as np
import pytest
import scipy.optimize
from refusals import refused
from vocabularies import Letters, written
from writing import write

from albert.tasks import chid, race

IDIOMS = ["画蛇添足", "雪中送炭", "喜上眉梢", "草木皆兵"]
TEXTS = ["甲#idiom000001#乙#idiom000002#丙", "丁#idiom000003#"]
ROW = {"groupID": 1, "candidates": IDIOMS, "content": TEXTS}
ANSWERS = {"#idiom000001#": 2, "#idiom000002#": 0, "#idiom000003#": 3}
FEW = {"id": 1500, "candidates": IDIOMS, "content": "甲#idiom#乙", "answer": 1}


def read(folder, split="train"):
  return race.read_examples(
    chid.find_files, chid.read, "file://%s" % folder, split
  )


def test_both_formats(tmp_path):
  write(tmp_path, "train.json", ROW, dict(ROW, content=["戊#idiom000004#"]))
  write(tmp_path, "train_answer.json", dict(ANSWERS, **{"#idiom000004#": 2}))
  assert read(tmp_path) == [
    (
      "#idiom00000%d#" % number,
      None,
      text,
      "#idiom00000%d#" % number,
      IDIOMS,
      answer,
      group,
    )
    for number, (text, answer, group) in enumerate(
      [
        (TEXTS[0], 2, 1),
        (TEXTS[0], 0, 1),
        (TEXTS[1], 3, 1),
        ("戊#idiom000004#", 2, 2),
      ],
      1,
    )
  ]
  write(tmp_path, "test1.1.json", ROW)
  assert [e.answer for e in read(tmp_path, "test")] == [None] * 3
  assert not chid.find_files(str(tmp_path), "test1.0")
  write(tmp_path, "dev_few_all.json", FEW, dict(FEW, id=7, answer=0))
  assert [e[:6] for e in read(tmp_path, "dev")] == [
    (name, None, "甲#idiom#乙", "#idiom#", IDIOMS, answer)
    for name, answer in ((1500, 1), (7, 0))
  ]
  write(tmp_path, "dev.json", ROW)  # takes precedence
  refused("#idiom000001# has no answer", read, tmp_path, "dev")


@pytest.mark.parametrize(
  "row, message",
  [
    ("[", "not JSON"),
    ([1], "not a JSON object"),
    ({"candidates": IDIOMS}, "'content', only candidates"),
    (dict(ROW, candidates="画蛇添足"), "candidates"),
    (dict(ROW, content=["甲"]), "no blank"),
    (dict(ROW, content=["#idiom000001#", "#idiom000001#"]), "duplicate"),
    (dict(ROW, content=["#idiom%06d#" % i for i in range(5)]), "5 .* 4"),
    (dict(ROW, candidates=IDIOMS[:3]), "#idiom000003#: .*3 is not in 0 to 2"),
    (dict(FEW, content="甲"), "one #idiom#, found 0"),
    (dict(FEW, answer="1"), "#idiom#: .*'1' is not in 0 to 3"),
    (dict(ROW, content=3), "'int'"),
  ],
)
def test_bad_rows_are_named_by_line(tmp_path, row, message):
  write(tmp_path, "train.json", FEW, row)
  write(tmp_path, "train_answer.json", ANSWERS)
  refused("train.json:2: .*" + message, read, tmp_path)


@pytest.mark.parametrize(
  "blank, length, expected",
  [
    (1, 32, ["<abcdwxyzef____|", "<abcdwxef____|"]),
    (2, 32, ["<abcd____efwxyz|", "<abcd____efwx|"]),
    (1, 11, ["<cdwxyzef_|", "<cdwxef_|"]),
    # Room that one side does not need goes to the other.
    (2, 11, ["<___efwxyz|", "<___efwx|"]),
  ],
)
def test_sequences(blank, length, expected):
  example = race.Example(
    "i", None, "abcd#idiom1#ef#idiom2#", "#idiom%d#" % blank, ["wxyz", "wx"], 0
  )
  made = chid.sequence_maker(Letters(), length, 128)(example)
  assert [written(ids) for ids, _ in made] == expected
  assert not any(sum(segments) for _, segments in made)


def test_the_assignment_is_the_best_of_all():
  rng = np.random.RandomState(0)
  for _ in range(100):
    columns = rng.randint(1, 6)
    rows = rng.randint(1, columns + 1)
    scores = np.log(rng.dirichlet([0.3] * columns, size=rows) + 1e-9)
    found = race.assign(scores)
    assert len(set(found)) == rows
    assert scores[np.arange(rows), found].sum() == pytest.approx(
      scores[scipy.optimize.linear_sum_assignment(-scores)].sum()
    )
