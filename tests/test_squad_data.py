"""From characters to tokens and back, on the real files."""

import itertools

import pytest
import scripting

import squad_data
import tokenization
from squad_data import Passages

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
      tokenization.create_tokenizer(None, str(model)))
  assert [text for text in found if text] == [
      question.answers[0] for question in questions if question.answers]


def through_windows(path, tokenizer):
  """Returns the questions, and the text between the targets of their windows.

  Of several windows, that with the most context around the answer's first
  token counts.
  """
  questions = squad_data.read_questions(str(path))
  passages = Passages(questions, tokenizer, 512, 128, 64)
  found = [None] * len(questions)
  for number, windows in itertools.groupby(
      passages.windows, lambda window: window.number):
    windows = list(windows)
    for window in windows:
      assert len(window.input_ids) == len(window.segment_ids) <= 512
      start, end = passages.targets(window)
      if end and passages.has_most_context(window, start, windows):
        found[number] = passages.text(window, start, end)
  return questions, found
