"""Leaderboard submissions and scores of labelled files, without training."""

import json

import pytest
from scripting import results, succeed
from writing import write

pytestmark = pytest.mark.slow

PAIR = {"sentence1": "甲", "sentence2": "乙"}
CHOICES = ["一", "二", "三"]


def one_hot(size, *hot):
  """Rows of logits; `hot`: the argmax of each."""
  return [{"logits": [float(i == k) for i in range(size)]} for k in hot]


def chosen(*rows):
  return [{"log_probabilities": list(row)} for row in rows]


def spans(*places):
  """Logits of [CLS] 子 [SEP] 甲 乙 丙 丁 [SEP] with argmax (start, end)."""
  return [
    {
      name: [float(i == place + 3) for i in range(8)]
      for name, place in zip(("start", "end"), pair)
    }
    for pair in places
  ]


def squad(*answers):
  return [
    {
      "data": [
        {
          "paragraphs": [
            {
              "context": "甲乙丙丁",
              "qas": [
                {
                  "id": "TEST_%d_QUERY_0" % i,
                  "question": "子",
                  "answers": texts
                  and [{"text": text, "answer_start": -1} for text in texts],
                }
                for i, texts in enumerate(answers)
              ],
            }
          ]
        }
      ]
    }
  ]


def clue(*answers):
  return "".join(
    '{"id": %s, "label": %s}\n' % tuple(map(json.dumps, answer))
    for answer in answers
  )


def glue(*answers):
  return "index\tprediction\n" + "".join("%d\t%s\n" % x for x in answers)


def by_id(*answers):
  return "{\n %s\n}\n" % ",\n ".join('"%s": %s' % x for x in answers)


MNLI = ["index\tsentence1\tsentence2", "0\ta\tb", '1\ta "b\tc']
C3 = [
  [
    [
      ["甲"],
      [
        {"question": "乙", "choice": CHOICES[:count], "id": name}
        for name, count in rows
      ],
      "x",
    ]
    for rows in ([(4, 2), (3, 3)], [(9, 2)])
  ]
]
OF_C3 = chosen([-2, -1, -1e9], [-3, -2, -1], [-1, -2, -1e9])
CHID = [
  {
    "groupID": 3,
    "candidates": CHOICES,
    "content": ["甲#idiom000007#乙", "丙#idiom000002#丁#idiom000003#"],
  }
]
# Independently, the first and second blank would both get 1.
OF_CHID = chosen([-3, -1, -9], [-3.5, -1, -9], [-1, -2, -3])
OF_FIVE = chosen(
  [-1, -2, -3], [-3, -2, -1], [-1, -2, -3], [-1, -2, -3], [-3, -2, -1]
)
FAKE = ["FAKE_ANSWER_1", "FAKE_ANSWER_2"]
SQUAD = (
  {"test.json": squad(["甲乙"], ["丙丁", "丙"], ["乙"], None)},
  {"test": spans((0, 1), (3, 3), (1, 2), (0, 3))},
  {
    "predictions.json": by_id(
      *(
        ("TEST_%d_QUERY_0" % i, '"%s"' % text)
        for i, text in enumerate(("甲乙", "丁", "乙丙", "甲乙丙丁"))
      )
    )
  },
  {"exact": 100 / 3, "f1": 100 * (1 + 2 / 3 + 2 / 3) / 3, "total": 3},
)
# Script -> (task, files, predictions by split, files written, scores).
CASES = {
  "run_classifier": [
    (
      "ocnli",
      {
        "test.json": [dict(PAIR, id=i, label="-") for i in range(3)],
        # One folder up, as in GLUE and CLUE archives.
        "../diagnostics/test.json": [
          {"index": 7, "premise": "甲", "hypothesis": "乙"}
        ],
      },
      {"test": one_hot(3, 2, 1, 0), "diagnostics": one_hot(3, 1)},
      {
        "ocnli_50k_predict.json": clue(
          (0, "neutral"), (1, "entailment"), (2, "contradiction")
        ),
        "diagnostics_predict.json": clue((7, "entailment")),
      },
      None,
    ),
    (
      "mnli",
      {
        "test_matched.tsv": MNLI,
        "test_mismatched.tsv": MNLI,
        "../diagnostic/diagnostic.tsv": MNLI,
      },
      {
        "test": one_hot(3, 2, 0),
        "test_mismatched": one_hot(3, 1, 2),
        "diagnostic": one_hot(3, 0, 1),
      },
      {
        "MNLI-m.tsv": glue((0, "neutral"), (1, "contradiction")),
        "MNLI-mm.tsv": glue((0, "entailment"), (1, "neutral")),
        "AX.tsv": glue((0, "contradiction"), (1, "entailment")),
      },
      None,
    ),
    (
      "sts-b",
      {"test.tsv": MNLI},
      {"test": [{"logits": [4.0626]}, {"logits": [0.5]}]},
      {"STS-B.tsv": glue((0, "4.063"), (1, "0.500"))},
      None,
    ),
    (
      "ocnli",
      {
        "test.json": [
          dict(PAIR, label=label) for label in ("-", "neutral", "entailment")
        ]
      },  # "-" is not scored
      {"test": one_hot(3, 0, 2, 0)},
      {
        "ocnli_50k_predict.json": clue(
          (0, "contradiction"), (1, "neutral"), (2, "contradiction")
        )
      },
      {"accuracy": 1 / 2},
    ),
    (
      "afqmc",
      {"test.json": [dict(PAIR, label="0")] * 2},
      {"test": one_hot(2, 0, 1)},
      {"afqmc_predict.json": clue((0, "0"), (1, "1"))},
      None,
    ),
  ],
  "run_race": [
    (
      "c3",
      {"test1.1.json": C3, "test1.0.json": C3},
      {"test": OF_C3, "test1.0": OF_C3[::-1]},
      {
        "c311_predict.json": clue((4, 1), (3, 2), (9, 0)),
        "c310_predict.json": clue((4, 0), (3, 2), (9, 1)),
      },
      None,
    ),
    (
      "chid",
      {"test1.1.json": CHID, "test1.0.json": CHID},
      {"test": OF_CHID, "test1.0": OF_CHID[::-1]},
      {
        name: by_id(
          *zip(("#idiom000007#", "#idiom000002#", "#idiom000003#"), answers)
        )
        for name, answers in (
          ("chid11_predict.json", (0, 1, 2)),
          ("chid10_predict.json", (2, 1, 0)),
        )
      },
      None,
    ),
    (
      "chid",
      {
        "test.json": [
          {"id": name, "candidates": CHOICES[:2], "content": "甲#idiom#"}
          for name in (8, 2)
        ]
      },
      {"test": chosen(*[[-1, -2]] * 2)},
      {"chid11_predict.json": by_id((8, 0), (2, 0))},
      None,
    ),
    (
      "race",
      {
        "test/%s/1.txt" % part: [
          {
            "id": part,
            "article": "a",
            "questions": ["b"] * len(answers),
            "answers": list(answers),
            "options": [CHOICES] * len(answers),
          }
        ]
        for part, answers in (("middle", "AB"), ("high", "ABC"))
      },
      {"test": OF_FIVE},
      {
        "race_predict.json": clue(
          ("middle-0", 0),
          ("middle-1", 2),
          ("high-0", 0),
          ("high-1", 0),
          ("high-2", 2),
        )
      },
      {"accuracy": 3 / 5, "accuracy_middle": 1 / 2, "accuracy_high": 2 / 3},
    ),
    (
      "chid",
      {
        "test.json": [
          {"candidates": CHOICES, "content": content}
          for content in (["#idiom1##idiom2#"], ["#idiom3#"])
        ],
        "test_answer.json": [{"#idiom1#": 0, "#idiom2#": 1, "#idiom3#": 1}],
      },
      {"test": OF_FIVE[:3]},
      {},
      {"accuracy": 1 / 3},
    ),
  ],
  "run_squad": [
    # Placeholders and questions without answers are not scored.
    (
      "cmrc2018",
      {"test.json": squad(FAKE, FAKE)},
      {"test": spans((0, 1), (3, 3))},
      {
        "cmrc2018_predict.json": by_id(
          ("TEST_0_QUERY_0", '"甲乙"'), ("TEST_1_QUERY_0", '"丁"')
        )
      },
      None,
    ),
    ("drcd", *SQUAD),
    ("cmrc2018", *SQUAD),
  ],
}


@pytest.mark.parametrize(
  "script, said",
  [
    ("run_classifier", "test.json: '0' in all rows"),
    ("run_race", ""),
    ("run_squad", "placeholder and not scored"),
  ],
)
def test_files(script, said, tmp_path):
  commands, folders = [], []
  for task, files, predictions, *_ in CASES[script]:
    folder = tmp_path / str(len(folders))
    for name, rows in files.items():
      write(folder / "set", name, *rows)
    folders.append(folder / "out")
    folders[-1].mkdir()
    given = (
      {"test_file": "set/test.json"}
      if script == "run_squad"
      else {"data_dir": "set"}
    )
    commands.append(
      {
        "predictions": predictions,
        "flags": {
          "task_name": task,
          **{
            name: "file://%s/%s" % (folder, path)
            for name, path in dict(given, output_dir="out").items()
          },
        },
      }
    )
  write(tmp_path, "cases.json", commands)
  _, log = succeed(
    "tests/given_predictions.py", script, tmp_path / "cases.json"
  )
  assert said in log
  for out, (_, _, predictions, submissions, scores) in zip(
    folders, CASES[script]
  ):
    found = {path.name: path.read_text("utf-8") for path in out.iterdir()}
    if script == "run_classifier":
      for split, rows in predictions.items():
        assert len(found[split + "_results.tsv"].splitlines()) == 1 + len(rows)
    assert submissions.items() <= found.items()
    assert ("test_results.txt" in found) == bool(scores)
    if scores:
      scored = results(out, "test_results.txt")
      assert {name: scored["eval_" + name] for name in scores} == (
        pytest.approx(scores)
      )
