"""From characters to tokens and back, on the real files."""

import itertools
import json

import pytest
import scripting

import tokenization
from albert.errors import InputError
from albert.tasks import squad
from albert.tasks.squad import Passages

VOCAB_FILE = str(scripting.ROOT / "albert_config" / "vocab.txt")
SPACE = "the file's answer has a space at its edge"
INSIDE = "the file's answer begins or ends inside a token"
# Answers that do not come back, and why.
NOT_EXACT = {
    "cmrc2018/cmrc2018_trial.json": {
        "TRIAL_21_QUERY_1": SPACE, "TRIAL_161_QUERY_2": SPACE,
        "TRIAL_163_QUERY_2": SPACE, "TRIAL_749_QUERY_0": INSIDE},
    "drcd/DRCD_dev.json": {
        "1180-23-1": INSIDE, "1194-6-3": INSIDE, "2501-1-4": INSIDE},
    "squad2/dev-v2.0-small.json": {},
}


@pytest.mark.parametrize("name", sorted(NOT_EXACT))
@pytest.mark.parametrize("lower", [False, True])
def test_gold_answers_come_back(real_data, name, lower):
  questions, found = through_windows(
      real_data / name, tokenization.create_tokenizer(VOCAB_FILE, None, lower))
  differ, absent = {}, set()
  for question, text in zip(questions, found):
    if question.answers and question.start is None:
      absent.add(question.id)
    elif question.answers and text != question.answers[0]:
      differ[question.id] = (question.answers[0], text)
  print(absent, differ)
  assert set(differ) <= set(NOT_EXACT[name])
  assert not absent
  for key, (answer, text) in differ.items():
    reason = SPACE if answer.strip() == text else INSIDE
    assert NOT_EXACT[name][key] == reason
    assert answer.strip() in text


def test_gold_answers_come_back_from_sentencepiece(real_data):
  (model,) = (real_data / "sentencepiece").glob("*.model")
  questions, found = through_windows(
      real_data / "squad2" / "dev-v2.0-small.json",
      tokenization.create_tokenizer(None, "file://%s" % model))
  assert [text for text in found if text] == [
      question.answers[0] for question in questions if question.answers]


def through_windows(path, tokenizer):
  """Returns the questions, and the text between the targets of their windows.

  Of several windows, that with the most context around the answer's first
  token counts.
  """
  questions = squad.read_questions(str(path))
  passages = Passages(questions, tokenizer, 512, 128, 64)
  found = [None] * len(questions)
  for number, windows in itertools.groupby(
      passages.windows, lambda window: window.number):
    windows = list(windows)
    for window in windows:
      assert len(passages.input_ids(window)) == (
          window.offset + window.count + 1) <= 512
      start, end = passages.targets(window)
      if end and passages.has_most_context(window, start, windows):
        found[number] = passages.answer(window, start, end, 0).text
  return questions, found


class Letters:
  """A tokenizer whose tokens are the characters, for cases worked by hand."""
  cls_id, sep_id = 1, 2

  def tokenize_plain(self, text):
    return list(text)

  def tokenize_with_offsets(self, text):
    return list(text), [(i, i + 1) for i in range(len(text))]

  def convert_tokens_to_ids(self, tokens):
    return [ord(token) for token in tokens]


def passages_of(context, answers, start, length=9, stride=2, query=2):
  return Passages([squad.Question("q", "QQQ", context, answers, start)],
                  Letters(), length, stride, query)


def test_windows():
  passages = passages_of("abcdefgh", ["de"], 3)
  ids = [1, 81, 81, 2]
  assert [(passages.input_ids(window), *window) for window in
          passages.windows] == [
              (ids + [ord(c) for c in part] + [2], 0, 4, first, len(part))
              for first, part in ((0, "abcd"), (2, "cdef"), (4, "efgh"))]
  # "de" is cut off in the first window and in the last.
  assert [passages.targets(window) for window in passages.windows] == [
      (0, 0), (5, 6), (0, 0)]
  assert passages.answer(passages.windows[1], 5, 6, 2) == ("de", 2, 3, 5)
  # d has 3 tokens left and 0 right of it in the first window, 1 and 2 in the
  # second, and is not in the third.
  assert [passages.has_most_context(window, place, passages.windows)
          for window, place in zip(passages.windows, (7, 5, 3))] == [
              False, True, False]


@pytest.mark.parametrize("context, answers, start, targets", [
    ("", ["a"], None, [(0, 0)]),
    ("", [], None, [(0, 0)]),
    ("abcd", ["abcd"], 0, [(4, 7)]),
    ("abcde", ["e"], 4, [(0, 0), (6, 6)]),
    ("abcdefgh", ["abcdef"], 0, [(0, 0)] * 3),  # longer than any window
])
def test_targets(context, answers, start, targets):
  passages = passages_of(context, answers, start)
  assert [passages.targets(window) for window in passages.windows] == targets


@pytest.mark.parametrize("context, answer, start, found", [
    ("ab ab", "ab", 3, 3), ("ab ab", "ab", 4, 3), ("ab ab", "ab", 1, 0),
    ("ab ab", "ab", -1, 0), ("ab", "c", 0, None), ("ab", "", 0, None),
    ("ab", "b", 99, 1)])
def test_where_an_answer_begins(context, answer, start, found):
  assert squad.find_answer(context, answer, start) == found


QUESTION = {"id": "a", "question": "b", "answers": []}


def article(*questions, context="c"):
  return {"data": [{"paragraphs": [{"context": context, "qas": questions}]}]}


@pytest.mark.parametrize("content, message", [
    ("{", "not JSON"),
    ({}, "not SQuAD's .*: 'data', after 0 question"),
    (article(), "has no questions"),
    (article(QUESTION, QUESTION), "the id a occurs twice"),
    (article(QUESTION, context=None), "question a has a value that"),
    (article(dict(QUESTION, question=None)), "question a has a value that"),
    (article(QUESTION, context="\ud800c"), "question a has half of a surro"),
    (article(dict(QUESTION, answers=[{"text": 5}])), "question a has a value"),
    ([{"context_text": "北京", "qas": [
        {"query_id": "a", "query_text": "b", "answers": "北京"}]}],
     "not SQuAD's or CMRC2018's .*: question a has a value that is not text"),
])
def test_broken_files_are_named(tmp_path, content, message):
  path = tmp_path / "bad.json"
  path.write_text(content if isinstance(content, str) else json.dumps(content))
  with pytest.raises(InputError, match="bad.json: .*" + message):
    squad.read_questions("file://%s" % path)


def test_a_question_that_leaves_no_room():
  with pytest.raises(InputError, match="q: its 3 tokens leave no room"):
    passages_of("a", [], None, length=6, query=3)
