"""Fine-tunes ALBERT for extractive QA: SQuAD 1.1 and 2.0, CMRC2018, DRCD."""

import dataclasses
import functools
import json
import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from absl import logging

from albert import cli
from albert.errors import InputError
from albert.files import filesystem
from albert.files.records import FeatureSpec
from albert.heads import BeamSpans, Spans
from albert.heads.spans import BEAM_SIZE
from albert.model_folder import Tokenizer
from albert.settings import NEEDED, USUAL, from_flags, setting
from albert.tasks import (
  classification,
  metrics,
  squad,
  squad_metrics,
  submissions,
)
from albert.train import finetuning
from albert.train.settings import FINE_TUNING, TrainSettings

Best = Dict[Any, List[squad.Answer]]  # by id, best first


class Task(NamedTuple):
  """A data set.

  Attributes:
    rule: scoring rule; see squad_metrics.
    has_unanswerable: whether some questions have no answer.
  """

  rule: str
  has_unanswerable: bool


TASKS = {
  "squad": Task("squad", False),
  "squad2": Task("squad2", True),
  "cmrc2018": Task("cmrc2018", False),
  "drcd": Task("cmrc2018", False),
}


@dataclasses.dataclass(frozen=True)
class AnswerSettings(squad.Limits):
  """The data set, the head and the choice of answers."""

  task_name: str = setting(
    None,
    "Data set; default: squad, or squad2 with --version_2_with_negative.",
    NEEDED,
    choices=sorted(TASKS),
  )
  version_2_with_negative: bool = setting(False, "Alias of --task_name=squad2.")
  null_score_diff_threshold: float = setting(
    None,
    "Predict no answer if its score exceeds that of the best answer by "
    "more than this. Default: as chosen on dev, otherwise 0.",
    needs="task_name=squad2 and do_predict or version_2_with_negative and "
    "do_predict",
  )
  train_file: str = setting(
    None,
    "JSON file, for --do_train.",
    NEEDED,
    required="do_train or dev_share",
    needs="do_train or dev_share",
  )
  dev_file: str = setting(
    None,
    "JSON file, for --do_eval.",
    NEEDED,
    required="do_eval and not dev_share",
    needs="do_eval",
  )
  dev_share: float = setting(
    None,
    "Share of --train_file to evaluate on instead of --dev_file.",
    USUAL,
    least=0.0,
    most=1.0,
    instead_of="dev_file",
  )
  test_file: str = setting(
    None,
    "JSON file, for --do_predict.",
    NEEDED,
    alias="predict_file",
    required="do_predict",
    needs="do_predict",
  )
  head: str = setting(
    Spans.name,
    "BERT's head, or ALBERT's, which predicts the end given the "
    "start, and answerability.",
    USUAL,
    choices=[Spans.name, BeamSpans.name],
  )
  start_n_top: int = setting(
    BEAM_SIZE[0], "--head=beam: number of starts to try.", needs="head=beam"
  )
  end_n_top: int = setting(
    BEAM_SIZE[1],
    "--head=beam: number of ends to try per start.",
    needs="head=beam",
  )


SETTINGS = (AnswerSettings, *FINE_TUNING)
OLDER_FLAGS = (
  "train_feature_file",
  "predict_feature_file",
  "predict_feature_left_file",
)


def make_features(
  passages: squad.Passages, window: squad.Window
) -> Dict[str, Any]:
  """Returns the features of a window by name."""
  input_ids = passages.input_ids(window)
  start, end = passages.targets(window)
  return {
    "input_ids": input_ids,
    "input_mask": [1] * len(input_ids),
    "segment_ids": passages.segment_ids(window),
    "answer_mask": [1] + [0] * (window.offset - 1) + [1] * window.count + [0],
    "start": start,
    "end": end,
  }


def judge(
  task: Task,
  questions: List[squad.Question],
  best: Best,
  null_odds: Dict[Any, float],
) -> Tuple[Dict[str, float], Dict[Any, str]]:
  """Returns results by name, and predictions by id."""
  answers = {q.id: q.answers or [] for q in questions}
  predictions = {key: found[0].text for key, found in best.items()}
  results = {}
  if task.has_unanswerable:
    each = {
      key: squad_metrics.scores(task.rule, answers[key], text)
      for key, text in predictions.items()
    }
    has_answer = {key: bool(golden) for key, golden in answers.items()}
    for i, name in enumerate(("eval_best_exact", "eval_best_f1")):
      results[name], results[name + "_thresh"] = squad_metrics.best_threshold(
        {key: pair[i] for key, pair in each.items()}, null_odds, has_answer
      )
    results["null_threshold"] = results["eval_best_f1_thresh"]
    predictions = with_nulls(predictions, null_odds, results["null_threshold"])
  return dict(results, **score(task, questions, predictions)), predictions


def score(
  task: Task, questions: List[squad.Question], predictions: Dict[Any, str]
) -> Dict[str, float]:
  """Returns the results of predictions by name."""
  results = squad_metrics.evaluate(
    task.rule, {q.id: q.answers or [] for q in questions}, predictions
  )
  return {"eval_" + name: value for name, value in results.items()}


def with_nulls(
  predictions: Dict[Any, str], null_odds: Dict[Any, float], threshold: float
) -> Dict[Any, str]:
  """Returns the predictions, empty if the null odds exceed a threshold."""
  return {
    key: "" if null_odds[key] > threshold + squad.ROUNDING else text
    for key, text in predictions.items()
  }


def write_answers(
  output_dir: str,
  prefix: str,
  predictions: Dict[Any, str],
  best: Best,
  null_odds: Dict[Any, float],
) -> None:
  """Writes PREFIXpredictions.json, PREFIXnbest_predictions.json and odds."""
  nbest = {}
  for key, found in best.items():
    nbest[key] = [
      {"text": answer.text, "probability": probability}
      for answer, probability in zip(found, squad.probabilities(found))
    ]
  for name, content in (
    ("predictions", predictions),
    ("nbest_predictions", nbest),
    ("null_odds", null_odds),
  ):
    path = os.path.join(output_dir, prefix + name + ".json")
    filesystem.write_text(
      path, json.dumps(content, ensure_ascii=False, indent=1) + "\n"
    )
    logging.info("wrote %s", path)


def file_of(args: AnswerSettings, name: str) -> str:
  """Returns the file of a split."""
  is_part = args.dev_share and name == "dev"
  return args.train_file if is_part else getattr(args, name + "_file")


def read_passages(
  args: AnswerSettings, settings: TrainSettings, name: str, tokenizer: Tokenizer
) -> squad.Passages:
  """Reads the file of a split."""
  path = file_of(args, name)
  questions = squad.read_questions(path)
  if args.dev_share and name != "test":
    questions = classification.divide(
      questions,
      {"dev": args.dev_share},
      settings.run.random_seed,
      lambda q: q.context,
      lambda q: bool(q.answers),
    )[name]
  if name == "test":
    questions = metrics.without_placeholders(questions, "answers", path)
  else:
    unknown = [q.id for q in questions if q.answers is None]
    if unknown:
      raise InputError(
        '%s: %d question(s) without "answers", the first: %s'
        % (path, len(unknown), unknown[0])
      )
  if name == "train":
    lost = [q.id for q in questions if q.answers and q.start is None]
    if lost:
      logging.warning(
        "%s: skipped %d question(s) whose answer is not in the passage: %s",
        path,
        len(lost),
        ", ".join(lost),
      )
    questions = finetuning.limited(
      [q for q in questions if q.start is not None or not q.answers], settings
    )
  passages = squad.Passages(
    questions,
    tokenizer,
    settings.data.max_seq_length,
    args.doc_stride,
    args.max_query_length,
  )
  logging.info(
    "%s: %d questions, %d windows", path, len(questions), len(passages.windows)
  )
  return passages


def find_task(args: AnswerSettings) -> AnswerSettings:
  """Returns the settings with the task's name."""
  if (
    args.task_name
    and args.version_2_with_negative
    and (args.task_name != "squad2")
  ):
    raise InputError(
      "--version_2_with_negative contradicts --task_name=%s" % args.task_name
    )
  name = args.task_name or (
    "squad2" if args.version_2_with_negative else "squad"
  )
  if not args.task_name:
    logging.info("no --task_name, using %s", name)
  return dataclasses.replace(args, task_name=name)


def null_threshold(checkpoint: Optional[str], settings: TrainSettings) -> float:
  """Returns the null threshold chosen on dev for a checkpoint, otherwise 0."""
  found = finetuning.dev_result("null_threshold", checkpoint, settings)
  if found is None:
    logging.warning("no null threshold from --do_eval, using 0")
  return found or 0.0


class AnswerTask(finetuning.Task):
  """Questions whose answers are spans of a passage.

  Args:
    args: settings of the task.
    settings: settings of the run.
    passages: passages by split.
  """

  metric = "eval_f1"
  has_windows = True
  label_specs = (FeatureSpec("start", "int", 0), FeatureSpec("end", "int", 0))
  specs = finetuning.SPECS + (FeatureSpec("answer_mask", "int", None),)

  def __init__(
    self,
    args: AnswerSettings,
    settings: TrainSettings,
    passages: Dict[str, squad.Passages],
  ):
    self._args = args
    self._settings = settings
    self._task = task = TASKS[args.task_name]
    # Without "train", so that its passages are freed once they are written.
    self._passages = {
      name: split for name, split in passages.items() if name != "train"
    }
    self.head = (
      Spans()
      if args.head == Spans.name
      else BeamSpans(task.has_unanswerable, args.start_n_top, args.end_n_top)
    )
    self.description = {
      "task_name": args.task_name,
      "has_unanswerable": task.has_unanswerable,
    }
    self.splits = {
      name: finetuning.Split(
        split.windows,
        functools.partial(make_features, split),
        has_labels=name == "train",
        paths=[file_of(args, name)],
        items=functools.partial(squad.items, split.questions),
      )
      for name, split in passages.items()
    }

  def begin(self, output_dir: str) -> None:
    """See finetuning.Task."""
    if self._args.dev_share and "dev" in self._passages:
      filesystem.write_json(
        os.path.join(output_dir, "dev.json"),
        squad.to_json(self._passages["dev"].questions),
      )

  def decode(
    self, name: str, outputs: finetuning.Outputs, checkpoint: Optional[str]
  ) -> Tuple[Dict[Any, str], Best, Dict[Any, float]]:
    """Returns the answer, the best answers and the null odds by id."""
    found = squad.find_answers(
      self._passages[name],
      [dict(zip(outputs, row)) for row in zip(*outputs.values())],
      self._args.n_best_size,
      self._args.max_answer_length,
    )
    ids = [question.id for question in self._passages[name].questions]
    best = dict(zip(ids, (each.best for each in found)))
    null_odds = dict(zip(ids, (each.null_odds for each in found)))
    predictions = {key: answers[0].text for key, answers in best.items()}
    if self._task.has_unanswerable and name != "dev":
      threshold = self._args.null_score_diff_threshold
      if threshold is None:
        threshold = null_threshold(checkpoint, self._settings)
      predictions = with_nulls(predictions, null_odds, threshold)
    return predictions, best, null_odds

  def targets(self, name: str) -> List[Any]:
    """See finetuning.Task."""
    return [question.answers for question in self._passages[name].questions]

  def score(
    self, name: str, predictions: Any, rows: Sequence[int]
  ) -> Tuple[Dict[str, float], Optional[str]]:
    """See finetuning.Task."""
    questions = self._passages[name].questions
    return score(self._task, [questions[i] for i in rows], predictions[0]), None

  def evaluate(
    self, predictions: Any, output_dir: str
  ) -> Tuple[Dict[str, float], Optional[str]]:
    """See finetuning.Task."""
    _, best, null_odds = predictions
    results, texts = judge(
      self._task, self._passages["dev"].questions, best, null_odds
    )
    write_answers(output_dir, "dev_", texts, best, null_odds)
    return results, None

  def write(
    self,
    name: str,
    predictions: Any,
    output_dir: str,
    checkpoint: Optional[str],
  ) -> None:
    """See finetuning.Task."""
    write_answers(output_dir, "", *predictions)
    filesystem.write_lines(
      os.path.join(output_dir, self._args.task_name + "_predict.json"),
      submissions.clue_object(predictions[0], predictions[0].values()),
    )


def main() -> None:
  args = find_task(from_flags(AnswerSettings))
  settings, workers, folder = finetuning.start(default_length=384)
  tokenizer = folder.create_tokenizer()
  passages = {
    name: read_passages(args, settings, name, tokenizer)
    for name in finetuning.wanted_splits(settings, workers)
  }
  finetuning.run(
    AnswerTask(args, settings, passages), settings, workers, folder
  )


if __name__ == "__main__":
  cli.run(main, SETTINGS, older_flags=OLDER_FLAGS)
