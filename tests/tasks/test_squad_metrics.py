"""SQuAD and CMRC metrics, worked by hand and by brute force."""

import random

import pytest

import run_squad
from albert.tasks import squad_metrics
from albert.tasks.squad_metrics import cmrc_tokens, scores, squad_tokens


def test_normalization():
  assert squad_tokens("The  Cat, an a-b's A!") == ["cat", "abs"]
  assert cmrc_tokens("在2018年，ALBERT base（谷歌）") == [
    "在",
    "2018",
    "年",
    "albert",
    "base",
    "谷",
    "歌",
  ]
  # Punctuation is removed without splitting the text around it.
  assert cmrc_tokens("1997～1998年，T-92") == ["19971998", "年", "t92"]
  # The published list has "……" as one entry, which no character equals.
  assert cmrc_tokens("中文……") == ["中", "文", "……"]


@pytest.mark.parametrize(
  "text, tokens",
  [
    ("3.14.", "3.14 ."),
    ("6,476 km", "6,476 km"),
    ("a, b", "a , b"),
    ("in the u.s.", "in the u.s ."),
    ("dr. no, m.d.", "dr. no , m.d ."),
    ("etc...", "etc ..."),
    ("he said (ok).", "he said ( ok ) ."),
    ("isn't john's", "is n't john 's"),
    ("it's p.m.", "it 's p.m ."),
    ("we'll they've", "we 'll they 've"),
    ("boys' toys", "boys ' toys"),
    ("o'neil rock'n'roll", "o'neil rock'n'roll"),
    ("vs. the", "vs. the"),
    ("$5 (50%)", "$ 5 ( 50 % )"),
    ("[1] {2}; #tag", "[ 1 ] { 2 } ; # tag"),
    ('"a" & b', '" a " & b'),
    ("2–3", "2–3"),
  ],
)
def test_what_is_not_chinese_is_cut_as_english(text, tokens):
  """As in NLTK 3.9.1."""
  assert cmrc_tokens(text) == tokens.split()


@pytest.mark.parametrize(
  "rule, answers, prediction, exact, f1",
  [
    ("squad", ["the cat"], "A cat.", 1, 1),
    ("squad", ["black cat", "dog"], "cat", 0, 2 * 1 / (2 + 1)),
    ("squad", ["b b c"], "b b b", 0, 2 * 2 / 6),
    ("squad2", [], "", 1, 1),
    ("squad2", [], "cat", 0, 0),
    ("squad2", ["the", "cat"], "", 0, 0),
    # The only answer is empty after normalization.
    (run_squad.TASKS["squad2"].rule, ["the"], "", 1, 1),
    (run_squad.TASKS["squad"].rule, ["the"], "an", 1, 0),
    ("cmrc2018", ["《红楼梦》"], "红楼梦", 1, 1),
    ("cmrc2018", ["红楼梦第一回"], "第一红楼梦回", 0, 2 * 3 / 12),
    ("cmrc2018", ["2018年"], "2018", 0, 2 * 1 / 3),
    ("cmrc2018", ["中文……"], "中文", 0, 2 * 2 / 5),
    *(("cmrc2018", *case, 0, 0) for case in ((["3.14"], "3"), (["红"], "西"))),
    ("cmrc2018", ["段落里的答案"], "段落里的答案就在这里", 0, 2 * 6 / (6 + 10)),
    # Published DRCD scores ignore punctuation, like CMRC2018's.
    *(
      (run_squad.TASKS["drcd"].rule, [answer], found, 1, 1)
      for answer, found in (("《書》", "書"), ("茶。", "茶"))
    ),
  ],
)
def test_scores(rule, answers, prediction, exact, f1):
  assert scores(rule, answers, prediction) == pytest.approx((exact, f1))


def test_averages_and_parts():
  found = squad_metrics.evaluate(
    "squad2",
    {"a": ["cat"], "b": ["black dog"], "c": [], "d": ["x"]},
    {"a": "cat", "b": "dog", "c": "bird"},
  )
  assert found == pytest.approx(
    {
      "exact": 25,
      "f1": 100 * (1 + 2 / 3) / 4,
      "total": 4,
      "HasAns_exact": 100 / 3,
      "HasAns_f1": 100 * (1 + 2 / 3) / 3,
      "HasAns_total": 3,
      "NoAns_exact": 0,
      "NoAns_f1": 0,
      "NoAns_total": 1,
    }
  )
  assert set(squad_metrics.evaluate("squad", {"a": ["x"]}, {})) == {
    "exact",
    "f1",
    "total",
  }


def test_the_best_threshold_is_that_of_brute_force():
  def mean_at(threshold):
    return (
      100.0
      * sum(
        float(not has_answer[key])
        if null_scores[key] > threshold
        else values[key]
        for key in values
      )
      / len(values)
    )

  rng = random.Random(0)
  for _ in range(200):
    keys = range(rng.randint(1, 12))
    has_answer = {key: rng.random() < 0.6 for key in keys}
    values = {
      key: rng.choice([0.0, 0.5 * has_answer[key], 1.0]) for key in keys
    }
    null_scores = {key: float(rng.randint(-3, 3)) for key in keys}
    best, threshold = squad_metrics.best_threshold(
      values, null_scores, has_answer
    )
    assert best == pytest.approx(max(map(mean_at, range(-5, 5))))
    assert mean_at(threshold) == pytest.approx(best)
