"""Answer spans: characters to tokens and back, by hand and on real files."""

import itertools
import json

import numpy as np
import pytest
from refusals import refused
from vocabularies import Letters, written
from writing import write

from albert.tasks import squad
from albert.tasks.squad import Answer, Passages

# Answers that are not recovered: with a space at an edge, or that begin or end
# inside a token.
NOT_EXACT = {
  "cmrc2018/cmrc2018_trial.json": {
    "TRIAL_21_QUERY_1",
    "TRIAL_161_QUERY_2",
    "TRIAL_163_QUERY_2",
  },
  "drcd/DRCD_dev.json": {"1180-23-1", "1194-6-3"},
  "squad2/dev-v2.0-small.json": set(),
}


@pytest.mark.parametrize("name", sorted(NOT_EXACT))
def test_gold_answers_come_back(real_data, tokenizer, name):
  """From the targets of the window with the most context."""
  questions = squad.read_questions(str(real_data / name))
  passages = Passages(questions, tokenizer, 512, 128, 64)
  differ = {}
  for number, windows in itertools.groupby(
    passages.windows, lambda window: window.number
  ):
    windows = list(windows)
    question, found = questions[number], None
    for window in windows:
      assert (
        len(passages.input_ids(window))
        == (window.offset + window.count + 1)
        <= 512
      )
      start, end = passages.targets(window)
      if end and passages.has_most_context(window, start, windows):
        found = passages.answer(window, start, end, 0).text
    if question.answers and found != question.answers[0]:
      differ[question.id] = question.answers[0].strip(), found
  assert set(differ) == NOT_EXACT[name]
  assert all(answer in text for answer, text in differ.values())


def passages_of(context, answers, start, length=9, stride=2, query=2):
  return Passages(
    [squad.Question("q", "QRS", context, answers, start)],
    Letters(),
    length,
    stride,
    query,
  )


def test_windows():
  passages = passages_of("abcdefgh", ["de"], 3)
  assert [
    (written(passages.input_ids(window)), *window)
    for window in passages.windows
  ] == [
    ("<QR|%s|" % part, 0, 4, first, 4)
    for first, part in ((0, "abcd"), (2, "cdef"), (4, "efgh"))
  ]
  assert passages.segment_ids(passages.windows[1]) == [0] * 4 + [1] * 5
  # "de" is incomplete in the first and the last window.
  assert [passages.targets(window) for window in passages.windows] == [
    (0, 0),
    (5, 6),
    (0, 0),
  ]
  assert passages.answer(passages.windows[1], 5, 6, 2) == ("de", 2, 3, 5)
  # d has 3 tokens before and 0 after it in the first window, 1 and 2 in the
  # second; the third window lacks it.
  assert [
    passages.has_most_context(window, place, passages.windows)
    for window, place in zip(passages.windows, (7, 5, 3))
  ] == [False, True, False]
  for more, message in (
    (dict(stride=0), "--doc_stride"),
    (dict(length=6, query=3), "q: .*3 tokens .*room"),
  ):
    refused(message, passages_of, "a", [], None, **more)


def test_the_best_answers():
  passages = passages_of("abcdbcgh", [], None)
  predictions = []
  for starts, ends in (
    ({5: 3, 1: 8}, {6: 2}),  # bc; nothing begins in the question
    ({6: 4, 4: 7}, {7: 2}),  # bc; c has more context in the window before
    ({6: 1, 5: 2}, {7: 0}),
  ):  # gh; cgh is longer than two tokens
    scores = np.tile(-9.0 - np.arange(9) / 10, [2, 1])
    for row, values in zip(scores, (starts, ends)):
      row[list(values)] = list(values.values())
    predictions.append({"start": scores[0], "end": scores[1]})
  predictions[1]["start"][0] = -10
  assert squad.find_answers(passages, predictions, 2, 2) == [
    ([Answer("bc", 6.0, 4, 6), Answer("gh", 1.0, 6, 8)], -10 - 9 - 6)
  ]
  (found,) = squad.find_answers(passages, predictions, 2, 3)
  assert [answer.text for answer in found.best] == ["bc", "cgh"]
  nothing = {"start": np.arange(-9.0, 0), "end": np.arange(0.0, -9, -1)}
  assert squad.find_answers(passages, [nothing] * 3, 2, 2) == [
    ([Answer("", 0.0)], -9.0)
  ]
  assert squad.probabilities(
    [Answer("a", 1e4), Answer("b", 1e4 + np.log(3))]
  ) == pytest.approx([0.25, 0.75])


@pytest.mark.parametrize(
  "context, answers, start, targets",
  [
    ("", ["a"], None, [(0, 0)]),
    ("", [], None, [(0, 0)]),
    ("abcd", ["abcd"], 0, [(4, 7)]),
    ("abcde", ["e"], 4, [(0, 0), (6, 6)]),
    ("abcdefgh", ["abcdef"], 0, [(0, 0)] * 3),
  ],
)  # longer than any window
def test_targets(context, answers, start, targets):
  passages = passages_of(context, answers, start)
  assert [passages.targets(window) for window in passages.windows] == targets


@pytest.mark.parametrize(
  "context, answer, start, found",
  [
    ("ab ab", "ab", 3, 3),
    ("ab ab", "ab", 4, 3),
    ("ab ab", "ab", 1, 0),
    ("ab ab", "ab", -1, 0),
    ("ab", "c", 0, None),
    ("ab", "", 0, None),
    ("ab", "b", 99, 1),
  ],
)
def test_where_an_answer_begins(context, answer, start, found):
  assert squad.find_answer(context, answer, start) == found


QUESTION = {"id": "a", "question": "b", "answers": []}


def article(*questions, context="c"):
  return {"data": [{"paragraphs": [{"context": context, "qas": questions}]}]}


@pytest.mark.parametrize(
  "content, message",
  [
    ("{", "not JSON"),
    ({}, "'data', after 0"),
    (article(), "no questions"),
    (article(QUESTION, QUESTION), "id a .*twice"),
    (article(QUESTION, context=None), "question a .*not text"),
    (article(dict(QUESTION, question=None)), "question a .*not text"),
    (article(QUESTION, context="\ud800c"), "question a .*surrogate"),
    (article(dict(QUESTION, answers=[{"text": None}])), "a .*not text"),
    (
      [
        {
          "context_text": "北京",
          "qas": [{"query_id": "a", "query_text": "b", "answers": "北京"}],
        }
      ],
      "'北京' are not a list",
    ),
  ],
)
def test_broken_files_are_named(tmp_path, content, message):
  refused(
    "bad.json: .*" + message,
    squad.read_questions,
    write(tmp_path, "bad.json", content),
  )


WHAT = {"id": "1", "question": "几点？"}
SEVEN = {"text": "七点", "answer_start": "2"}
SHOP = "小店七点开门"


@pytest.mark.parametrize(
  "name, rows",
  [
    (
      "a.json",
      [
        {
          "data": [
            {
              "paragraphs": [
                {
                  "context": SHOP,
                  "qas": [
                    dict(WHAT, answers=[SEVEN], is_impossible="false"),
                    dict(WHAT, id=2, answers=[SEVEN], is_impossible="true"),
                  ],
                }
              ]
            }
          ]
        }
      ],
    ),
    (
      "a.json",
      [
        [
          {
            "context": SHOP,
            "qas": [dict(WHAT, answers=[SEVEN]), dict(WHAT, id=2, answers=[])],
          }
        ]
      ],
    ),
    (
      "a.jsonl",
      [
        dict(
          WHAT,
          id=i,
          context=SHOP,
          answers={"text": ["七点"][i - 1 :], "answer_start": [2][i - 1 :]},
        )
        for i in (1, 2)
      ],
    ),
  ],
)
def test_layouts(name, rows, tmp_path):
  questions = squad.read_questions(write(tmp_path, name, *rows))
  assert questions == [
    ("1", "几点？", SHOP, ["七点"], 2),
    ("2", "几点？", SHOP, [], None),
  ]


def test_answers_that_are_numbers(tmp_path, caplog):
  path = write(
    tmp_path,
    "a.json",
    [
      {
        "context_text": "震级4.9级",
        "qas": [
          {"query_id": "A", "query_text": "几级？", "answers": ["4.9", 4.9]}
        ],
      }
    ],
  )
  with caplog.at_level("INFO", "absl"):
    (question,) = squad.read_questions(path)
  assert (question.answers, question.start) == (["4.9", "4.9"], 2)
  assert "1 questions: 1 with an answer, 0 whose" in caplog.text


def test_a_long_line_is_utf_8(tmp_path):
  for count in range(3):  # at any buffer boundary
    (question,) = squad.read_questions(
      write(
        tmp_path,
        "a.json",
        json.dumps(
          [dict(WHAT, context="a" * count + "小店" * 9999, answers=[])],
          ensure_ascii=False,
        ),
      )
    )
    assert len(question.context) == count + 19998
