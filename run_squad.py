"""Fine-tunes ALBERT to extract answers: SQuAD 1.1 and 2.0, CMRC2018, DRCD."""

import collections
import functools
import json
import os

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags, logging

from albert import errors
from albert.errors import InputError
from albert.files import checkpoints, filesystem, outputs
from albert.files.records import FeatureSpec
from albert.heads import heads
from albert.tasks import metrics, squad, squad_metrics, submissions
from albert.train import estimators, finetuning, training

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(finetuning)

# How a data set is judged, and whether some questions have no answer.
Task = collections.namedtuple("Task", ["rule", "has_unanswerable"])
TASKS = {"squad": Task("squad", False), "squad2": Task("squad", True),
         "cmrc2018": Task("cmrc2018", False), "drcd": Task("drcd", False)}

flags.DEFINE_enum("task_name", None, sorted(TASKS), "Data set.",
                  case_sensitive=False)
flags.DEFINE_string("train_file", None, "JSON file, for --do_train.")
flags.DEFINE_string("dev_file", None, "JSON file, for --do_eval.")
flags.DEFINE_string("test_file", None, "JSON file, for --do_predict.")
flags.DEFINE_alias("predict_file", "test_file")
flags.DEFINE_enum("head", "independent", ["independent", "beam"],
                  "BERT's head, or ALBERT's: the end given the start, and "
                  "whether there is an answer.")
flags.DEFINE_integer("max_seq_length", 384,
                     "Maximum tokens of a question and a window.")
flags.DEFINE_integer("max_query_length", 64,
                     "Maximum tokens of a question; the rest is cut off.")
flags.DEFINE_integer("max_answer_length", 30, "Maximum tokens of an answer.")
flags.DEFINE_integer("doc_stride", 128,
                     "Tokens from one window of a passage to the next.")
flags.DEFINE_integer("n_best_size", 20, "Answers per question to write.")
flags.DEFINE_integer("start_n_top", heads.BEAM_SIZE[0],
                     "--head=beam: likeliest starts to try.")
flags.DEFINE_integer("end_n_top", heads.BEAM_SIZE[1],
                     "--head=beam: likeliest ends to try for each start.")

_SPECS = finetuning.SPECS + (
    FeatureSpec("answer_mask", "int", None), FeatureSpec("start", "int", 0),
    FeatureSpec("end", "int", 0))


def _cross_entropy(logits, labels):
  return tf.nn.sparse_softmax_cross_entropy_with_logits(
      logits=logits, labels=labels)


def independent_head(model, features):
  """BERT's head; see estimators.model_fn_builder."""
  start, end = heads.span_logits(model)
  losses = (_cross_entropy(start, features["start"]) +
            _cross_entropy(end, features["end"])) / 2.0
  return _output(losses, {"start": start, "end": end})


def beam_head_builder(has_unanswerable, start_n_top, end_n_top):
  """Returns ALBERT's head; see estimators.model_fn_builder."""

  def head(model, features):
    beam = heads.BeamSpan(model, features["answer_mask"])
    given = beam.end(features["start"][:, tf.newaxis])[:, 0]  # [B, S]
    losses = (_cross_entropy(beam.start, features["start"]) +
              _cross_entropy(given, features["end"])) / 2.0
    if has_unanswerable:
      losses += 0.5 * tf.nn.sigmoid_cross_entropy_with_logits(
          logits=beam.unanswerable,
          labels=tf.cast(tf.equal(features["start"], 0), tf.float32))
    return _output(losses, beam.likeliest(start_n_top, end_n_top))

  return head


def _output(losses, predictions):
  return estimators.HeadOutput(
      losses={"example_loss": tf.reduce_sum(losses)},
      metrics={"example_loss": (losses, tf.ones_like(losses))},
      predictions=predictions)


def make_features(passages, window):
  """Returns the features of a window, a dict."""
  input_ids = passages.input_ids(window)
  start, end = passages.targets(window)
  return {
      "input_ids": input_ids, "input_mask": [1] * len(input_ids),
      "segment_ids": [0] * window.offset + [1] * (window.count + 1),
      "answer_mask": [1] + [0] * (window.offset - 1) + [1] * window.count + [0],
      "start": start, "end": end}


def candidates(prediction, n_best_size):
  """Yields (start, end, score) of the likeliest spans of a window."""
  if "starts" in prediction:
    for start, start_score, ends, end_scores in zip(
        prediction["starts"], prediction["start_scores"], prediction["ends"],
        prediction["end_scores"]):
      for end, end_score in zip(ends, end_scores):
        yield start, end, start_score + end_score
  else:
    starts, ends = [np.argsort(-prediction[name])[:n_best_size]
                    for name in ("start", "end")]
    for start in starts:
      for end in ends:
        yield start, end, prediction["start"][start] + prediction["end"][end]


def answer(passages, predictions, n_best_size, max_answer_length):
  """Finds the best answers to each question.

  Args:
    passages: squad.Passages.
    predictions: list of dict of arrays, for each window.
    n_best_size: int.
    max_answer_length: int, tokens.

  Returns:
    (dict, id -> list of (text, score) that is not empty, the best first; dict,
    id -> how much more speaks for "no answer" than for the best one)
  """
  found = [{} for _ in passages.questions]
  null_scores = [np.inf] * len(passages.questions)
  windows_of = collections.defaultdict(list)
  for window in passages.windows:
    windows_of[window.number].append(window)
  for window, prediction in zip(passages.windows, predictions):
    number = window.number
    null = prediction["null"] if "null" in prediction else (
        prediction["start"][0] + prediction["end"][0])
    null_scores[number] = min(null_scores[number], float(null))
    for start, end, score in candidates(prediction, n_best_size):
      if (window.offset <= start <= end < window.offset + window.count and
          end - start < max_answer_length and passages.has_most_context(
              window, start, windows_of[number])):
        text = passages.text(window, start, end)
        found[number][text] = max(found[number].get(text, -np.inf),
                                  float(score))
  best = {question.id: sorted(texts.items(), key=lambda item: -item[1])[
      :n_best_size] or [("", 0.0)]
          for question, texts in zip(passages.questions, found)}
  beam = predictions and "null" in predictions[0]
  return best, {question.id: null if beam else null - best[question.id][0][1]
                for question, null in zip(passages.questions, null_scores)}


def judge(task, questions, best, null_odds):
  """Returns (dict of results, dict of predictions: id -> text)."""
  answers = {q.id: q.answers for q in questions}
  predictions = {key: texts[0][0] for key, texts in best.items()}
  results = {}
  if task.has_unanswerable:
    each = {key: squad_metrics.scores(task.rule, answers[key], text)
            for key, text in predictions.items()}
    has_answer = {key: bool(found) for key, found in answers.items()}
    for i, name in enumerate(("eval_best_exact", "eval_best_f1")):
      results[name], results[name + "_thresh"] = squad_metrics.best_threshold(
          {key: pair[i] for key, pair in each.items()}, null_odds, has_answer)
    results["null_threshold"] = results["eval_best_f1_thresh"]
    predictions = with_nulls(predictions, null_odds, results["null_threshold"])
  return dict(results, **score(task, questions, predictions)), predictions


def score(task, questions, predictions):
  """Returns a dict of results of predictions, a dict: id -> text."""
  found = squad_metrics.evaluate(
      task.rule, {q.id: q.answers for q in questions}, predictions)
  return {"eval_" + name: value for name, value in found.items()}


def with_nulls(predictions, null_odds, threshold):
  """Returns the predictions, empty where the odds are above a threshold."""
  return {key: "" if null_odds[key] > threshold else text
          for key, text in predictions.items()}


def write_answers(prefix, predictions, best, null_odds):
  """Writes PREFIXpredictions.json, PREFIXnbest_predictions.json and odds."""
  nbest = {}
  for key, texts in best.items():
    scores = np.array([score for _, score in texts])
    probabilities = np.exp(scores - scores.max())
    probabilities /= probabilities.sum()
    nbest[key] = [{"text": text, "probability": float(probability)}
                  for (text, _), probability in zip(texts, probabilities)]
  for name, content in (("predictions", predictions),
                        ("nbest_predictions", nbest),
                        ("null_odds", null_odds)):
    path = os.path.join(FLAGS.output_dir, prefix + name + ".json")
    filesystem.write_text(path, json.dumps(content, ensure_ascii=False,
                                        indent=1) + "\n")
    logging.info("wrote %s", path)


def read_passages(flag, tokenizer):
  """Reads the file of a flag."""
  errors.require_flags(flag)
  path = FLAGS[flag].value
  questions = squad.read_questions(path)
  if flag == "test_file":
    questions = metrics.without_placeholders(questions, "answers", path)
  else:
    unknown = [q.id for q in questions if q.answers is None]
    if unknown:
      raise InputError("%s: %d question(s) without \"answers\", the first: %s"
                       % (path, len(unknown), unknown[0]))
  if flag == "train_file":
    lost = [q.id for q in questions if q.answers and q.start is None]
    if lost:
      logging.warning("%s: left out %d question(s) whose answer is not in "
                      "the passage: %s", path, len(lost), ", ".join(lost))
    questions = [q for q in questions if q.start is not None or not q.answers][
        :FLAGS.max_train_examples]
  passages = squad.Passages(
      questions, tokenizer, FLAGS.max_seq_length, FLAGS.doc_stride,
      FLAGS.max_query_length)
  logging.info("%s: %d questions, %d windows", path, len(questions),
               len(passages.windows))
  return passages


def main():
  errors.require_flags("task_name", "output_dir")
  task = TASKS[FLAGS.task_name]
  workers, model = finetuning.start(FLAGS)
  training.warn_of_idle_flags(FLAGS, [
      (["train_file"], FLAGS.do_train, "--do_train", False),
      (["dev_file"], FLAGS.do_eval, "--do_eval", False),
      (["test_file"], FLAGS.do_predict, "--do_predict", False),
      (["start_n_top", "end_n_top"], FLAGS.head == "beam", "--head=beam",
       False)])
  passages = {name: read_passages(name + "_file", model.tokenizer)
              for name in finetuning.wanted_splits(FLAGS, workers)}
  files = finetuning.prepare_output_dir(
      FLAGS, workers, model,
      {"task_name": FLAGS.task_name, "head": FLAGS.head})
  head = independent_head if FLAGS.head == "independent" else (
      beam_head_builder(task.has_unanswerable, FLAGS.start_n_top,
                        FLAGS.end_n_top))
  runner = finetuning.Runner(
      FLAGS, workers, model.config, head, _SPECS,
      {name: finetuning.Split(found.windows,
                              functools.partial(make_features, found))
       for name, found in passages.items()})
  passages.pop("train", None)  # the runner keeps it until it is written

  def predict(name, checkpoint):
    return answer(passages[name], runner.predict(name, checkpoint),
                  FLAGS.n_best_size, FLAGS.max_answer_length)

  def evaluate(checkpoint):
    best, null_odds = predict("dev", checkpoint)
    results, predictions = judge(task, passages["dev"].questions, best,
                                 null_odds)
    write_answers("dev_", predictions, best, null_odds)
    return dict(results, global_step=checkpoints.step_of(checkpoint))

  def write_test(name, checkpoint):
    best, null_odds = predict(name, checkpoint)
    predictions = {key: texts[0][0] for key, texts in best.items()}
    if task.has_unanswerable:
      predictions = with_nulls(predictions, null_odds,
                               null_threshold(checkpoint))
    write_answers("", predictions, best, null_odds)
    questions = passages[name].questions
    filesystem.write_text(
        os.path.join(FLAGS.output_dir, FLAGS.task_name + "_predict.json"),
        submissions.clue_object(predictions, predictions.values()))
    outputs.write_test_scores(
        FLAGS.output_dir, name, [q.answers for q in questions],
        lambda rows: (score(task, [questions[i] for i in rows], predictions),
                      None))

  runner.run(evaluate, "eval_f1", files, write_test)


def null_threshold(checkpoint):
  """Returns what was found on dev for a checkpoint, else 0.

  Args:
    checkpoint: str, or None for --init_checkpoint, which this run may have
      evaluated.
  """
  folders = [os.path.dirname(checkpoint)] if checkpoint else (
      [FLAGS.output_dir] * FLAGS.do_eval +
      [os.path.dirname(checkpoints.find_checkpoint(FLAGS.init_checkpoint))])
  for folder in folders:
    results = outputs.read_results(os.path.join(folder, "eval_results.txt"))
    if "null_threshold" in results and (not checkpoint or (
        results["global_step"] == checkpoints.step_of(checkpoint))):
      return results["null_threshold"]
  logging.warning("no null threshold from --do_eval: taking 0")
  return 0.0


if __name__ == "__main__":
  errors.run(main)
