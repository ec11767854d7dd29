"""Fine-tunes ALBERT to extract answers: SQuAD 1.1 and 2.0, CMRC2018, DRCD."""

import dataclasses
import functools
import json
import os
from typing import NamedTuple

from absl import logging

from albert import cli
from albert.errors import InputError
from albert.files import filesystem
from albert.files.records import FeatureSpec
from albert.heads import BeamSpans, Spans
from albert.heads.spans import BEAM_SIZE
from albert.settings import NEEDED, USUAL, from_flags, setting
from albert.tasks import metrics, squad, squad_metrics, submissions
from albert.train import finetuning
from albert.train.settings import FINE_TUNING


class Task(NamedTuple):
  """A data set.

  Attributes:
    rule: str, how it is judged; see squad_metrics.
    has_unanswerable: bool, whether some questions have no answer.
  """
  rule: str
  has_unanswerable: bool


TASKS = {"squad": Task("squad", False), "squad2": Task("squad2", True),
         "cmrc2018": Task("cmrc2018", False),
         "drcd": Task("cmrc2018", False)}


@dataclasses.dataclass(frozen=True)
class AnswerSettings(squad.Limits):
  """Which data, which head, how answers are chosen."""
  task_name: str = setting(
      None, "Data set; default: squad, or squad2 with "
      "--version_2_with_negative.", NEEDED, choices=sorted(TASKS))
  version_2_with_negative: bool = setting(
      False, "The same as --task_name=squad2.")
  null_score_diff_threshold: float = setting(
      None, "What the score of no answer must exceed that of the best by. "
      "Default: as chosen on dev, or else 0.",
      needs="task_name=squad2 and do_predict or version_2_with_negative and "
      "do_predict")
  train_file: str = setting(None, "JSON file, for --do_train.", NEEDED,
      required="do_train", needs="do_train")
  dev_file: str = setting(None, "JSON file, for --do_eval.", NEEDED,
      required="do_eval", needs="do_eval")
  test_file: str = setting(None, "JSON file, for --do_predict.", NEEDED,
                           alias="predict_file",
      required="do_predict", needs="do_predict")
  head: str = setting(
      Spans.name, "BERT's head, or ALBERT's: the end given the start, and "
      "whether there is an answer.", USUAL,
      choices=[Spans.name, BeamSpans.name])
  start_n_top: int = setting(
      BEAM_SIZE[0], "--head=beam: most likely starts to try.",
      needs="head=beam")
  end_n_top: int = setting(
      BEAM_SIZE[1], "--head=beam: most likely ends to try for each start.",
      needs="head=beam")


SETTINGS = (AnswerSettings, *FINE_TUNING)
OLDER_FLAGS = ("train_feature_file", "predict_feature_file",
               "predict_feature_left_file")


def make_features(passages, window):
  """Returns the features of a window, a dict."""
  input_ids = passages.input_ids(window)
  start, end = passages.targets(window)
  return {
      "input_ids": input_ids, "input_mask": [1] * len(input_ids),
      "segment_ids": passages.segment_ids(window),
      "answer_mask": [1] + [0] * (window.offset - 1) + [1] * window.count + [0],
      "start": start, "end": end}


def judge(task, questions, best, null_odds):
  """Returns (dict of results, dict of predictions: id -> text)."""
  answers = {q.id: q.answers for q in questions}
  predictions = {key: found[0].text for key, found in best.items()}
  results = {}
  if task.has_unanswerable:
    each = {key: squad_metrics.scores(task.rule, answers[key], text)
            for key, text in predictions.items()}
    has_answer = {key: bool(golden) for key, golden in answers.items()}
    for i, name in enumerate(("eval_best_exact", "eval_best_f1")):
      results[name], results[name + "_thresh"] = squad_metrics.best_threshold(
          {key: pair[i] for key, pair in each.items()}, null_odds, has_answer)
    results["null_threshold"] = results["eval_best_f1_thresh"]
    predictions = with_nulls(predictions, null_odds, results["null_threshold"])
  return dict(results, **score(task, questions, predictions)), predictions


def score(task, questions, predictions):
  """Returns a dict of results of predictions, a dict: id -> text."""
  results = squad_metrics.evaluate(
      task.rule, {q.id: q.answers for q in questions}, predictions)
  return {"eval_" + name: value for name, value in results.items()}


def with_nulls(predictions, null_odds, threshold):
  """Returns the predictions, empty where the odds are above a threshold."""
  return {key: "" if null_odds[key] > threshold + squad.ROUNDING else text
          for key, text in predictions.items()}


def write_answers(output_dir, prefix, predictions, best, null_odds):
  """Writes PREFIXpredictions.json, PREFIXnbest_predictions.json and odds."""
  nbest = {}
  for key, found in best.items():
    nbest[key] = [{"text": answer.text, "probability": probability}
                  for answer, probability in zip(
                      found, squad.probabilities(found))]
  for name, content in (("predictions", predictions),
                        ("nbest_predictions", nbest),
                        ("null_odds", null_odds)):
    path = os.path.join(output_dir, prefix + name + ".json")
    filesystem.write_text(path, json.dumps(content, ensure_ascii=False,
                                           indent=1) + "\n")
    logging.info("wrote %s", path)


def read_passages(args, settings, name, tokenizer):
  """Reads the file of a split; returns squad.Passages."""
  path = getattr(args, name + "_file")
  questions = squad.read_questions(path)
  if name == "test":
    questions = metrics.without_placeholders(questions, "answers", path)
  else:
    unknown = [q.id for q in questions if q.answers is None]
    if unknown:
      raise InputError("%s: %d question(s) without \"answers\", the first: %s"
                       % (path, len(unknown), unknown[0]))
  if name == "train":
    lost = [q.id for q in questions if q.answers and q.start is None]
    if lost:
      logging.warning("%s: left out %d question(s) whose answer is not in "
                      "the passage: %s", path, len(lost), ", ".join(lost))
    questions = finetuning.limited(
        [q for q in questions if q.start is not None or not q.answers],
        settings)
  passages = squad.Passages(
      questions, tokenizer, settings.data.max_seq_length, args.doc_stride,
      args.max_query_length)
  logging.info("%s: %d questions, %d windows", path, len(questions),
               len(passages.windows))
  return passages


def find_task(args):
  """Returns the settings with the task's name."""
  if args.task_name and args.version_2_with_negative and (
      args.task_name != "squad2"):
    raise InputError("--version_2_with_negative contradicts --task_name=%s" %
                     args.task_name)
  name = args.task_name or (
      "squad2" if args.version_2_with_negative else "squad")
  if not args.task_name:
    logging.info("no --task_name: %s", name)
  return dataclasses.replace(args, task_name=name)


def null_threshold(checkpoint, settings):
  """Returns what was found on dev for a checkpoint, else 0: float."""
  found = finetuning.dev_result("null_threshold", checkpoint, settings)
  if found is None:
    logging.warning("no null threshold from --do_eval: taking 0")
  return found or 0.0


class AnswerTask(finetuning.Task):
  """Questions whose answers are part of a passage.

  Args:
    args: AnswerSettings.
    settings: TrainSettings.
    passages: dict, name of a split -> squad.Passages.
  """
  metric = "eval_f1"
  label_specs = (FeatureSpec("start", "int", 0), FeatureSpec("end", "int", 0))
  specs = finetuning.SPECS + (FeatureSpec("answer_mask", "int", None),)

  def __init__(self, args, settings, passages):
    self._args = args
    self._settings = settings
    self._task = task = TASKS[args.task_name]
    # Those of training are let go once they are written.
    self._passages = {name: split for name, split in passages.items()
                      if name != "train"}
    self.head = Spans() if args.head == Spans.name else BeamSpans(
        task.has_unanswerable, args.start_n_top, args.end_n_top)
    self.description = {"task_name": args.task_name,
                        "has_unanswerable": task.has_unanswerable}
    self.splits = {
        name: finetuning.Split(
            split.windows, functools.partial(make_features, split),
            has_labels=name == "train", paths=[getattr(args, name + "_file")])
        for name, split in passages.items()}

  def decode(self, name, rows, checkpoint):
    """Returns (the answer, the best answers, the odds of there being none) of
    each question: dicts by id."""
    found = squad.find_answers(
        self._passages[name], rows, self._args.n_best_size,
        self._args.max_answer_length)
    ids = [question.id for question in self._passages[name].questions]
    best = dict(zip(ids, (each.best for each in found)))
    null_odds = dict(zip(ids, (each.null_odds for each in found)))
    predictions = {key: answers[0].text for key, answers in best.items()}
    if self._task.has_unanswerable and name != "dev":
      threshold = self._args.null_score_diff_threshold
      predictions = with_nulls(
          predictions, null_odds, null_threshold(checkpoint, self._settings)
          if threshold is None else threshold)
    return predictions, best, null_odds

  def targets(self, name):
    return [question.answers for question in self._passages[name].questions]

  def score(self, name, predictions, rows):
    questions = self._passages[name].questions
    return score(self._task, [questions[i] for i in rows],
                 predictions[0]), None

  def evaluate(self, predictions, output_dir):
    _, best, null_odds = predictions
    results, texts = judge(
        self._task, self._passages["dev"].questions, best, null_odds)
    write_answers(output_dir, "dev_", texts, best, null_odds)
    return results, None

  def write(self, name, predictions, output_dir, checkpoint):
    write_answers(output_dir, "", *predictions)
    filesystem.write_text(
        os.path.join(output_dir, self._args.task_name + "_predict.json"),
        submissions.clue_object(predictions[0], predictions[0].values()))


def main():
  args = find_task(from_flags(AnswerSettings))
  settings, workers, folder = finetuning.start(default_length=384)
  tokenizer = folder.create_tokenizer()
  passages = {name: read_passages(args, settings, name, tokenizer)
              for name in finetuning.wanted_splits(settings, workers)}
  finetuning.run(
      AnswerTask(args, settings, passages), settings, workers, folder)


if __name__ == "__main__":
  cli.run(main, SETTINGS, older_flags=OLDER_FLAGS)
