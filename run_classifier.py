"""Fine-tunes ALBERT to classify texts or pairs of texts, or to rate them."""

import collections
import dataclasses
import os

import numpy as np
from absl import flags, logging

from albert import cli
from albert.errors import InputError
from albert.files import checkpoints, filesystem, outputs
from albert.files.records import FeatureSpec
from albert.heads import Classifier, MultiLabel, Regression
from albert.heads.classifier import UNITS
from albert.settings import NEEDED, USUAL, from_flags, setting
from albert.tasks import (
    classification,
    label_kinds,
    label_sets,
    labelling,
    long_texts,
    metrics,
    submissions,
    windows,
)
from albert.train import finetuning, teachers
from albert.train.settings import FINE_TUNING


@dataclasses.dataclass(frozen=True)
class TextSettings(teachers.DistillationSettings):
  """Which task, and how its files are read."""
  task_name: str = setting(None, "Task; see docs/tasks.md.", NEEDED)
  data_dir: str = setting(
      None, "Folder with the task's files; see docs/tasks.md.", NEEDED)
  text_a_field: str = setting(
      None, "Column or JSON key of the text, where it is not the task's own.")
  text_b_field: str = setting(
      None, "Column or JSON key of the second text of a pair, where it is not "
      "the task's own.")
  label_field: str = setting(
      None, "Column or JSON key of the label, where it is not the task's own.")
  labels: list = setting(
      None, "The labels, for a task that takes them from the training file or "
      "the fine-tuned model.")
  long_text: str = setting(
      None, "What is taken of a text longer than --max_seq_length: its "
      "beginning; beginning and end; windows, whose logits are averaged. "
      "Default: as the model has it, or else the beginning.", USUAL,
      choices=long_texts.WAYS)
  max_windows: int = setting(
      None, "--long_text=windows: windows of a text at most; default: as the "
      "model has it, or else %d." % long_texts.MAX_WINDOWS, least=1)
  regression: bool = setting(
      False, "Whether the labels of the task are numbers to predict.")
  multi_label: bool = setting(
      False, "Whether a text has several labels, or none: a|b, or a JSON list.",
      USUAL)
  thresholds: str = setting(
      "one", "--multi_label: what a probability must exceed, chosen on dev: "
      "one for all labels, or one for each.", choices=label_sets.WAYS)
  class_weights: str = setting(
      None, "Weights of the labels in the training loss: `balanced`, or "
      "`label:weight,...`, where others weigh 1.")
  skip_bad_rows: bool = setting(
      False, "Skip and count the bad rows of the training and dev files; in "
      "the test file, they are errors.")
  plain_results: bool = setting(
      False, "Write test_results.tsv with probabilities alone, without a "
      "header, labels and texts.")
  positive_label: str = setting(
      None, "Which of two labels F1 is of; default: as the model has it, or "
      "else 1, true, yes or 是, or else the rarer one.")
  metric_for_best: str = setting(
      None, "What the best checkpoint is best by; default: as the task is "
      "judged.", choices=metrics.METRICS)


SETTINGS = (TextSettings, *FINE_TUNING)
OLDER_FLAGS = ("cached_dir",)


def feature_maker(make_sequences, label_ids, num_windows=None):
  """Returns the function that makes the features of an example.

  Args:
    make_sequences: see `long_texts.sequence_maker`.
    label_ids: function of a target, see `label_kinds`.
    num_windows: int, sequences of a text at most, or None for always one.
  """
  def make_features(example_and_target):
    example, target = example_and_target
    sequences = make_sequences(example.text_a, example.text_b)
    features = windows.pack_rows(sequences, num_windows or 1)
    if num_windows:
      features["num_windows"] = len(sequences)
    return dict(features, label_ids=label_ids(target))

  return make_features


def choose_long_text(texts, folder, are_pairs):
  """Returns what is taken of long texts, a dict for the model's folder.

  Args:
    texts: TextSettings.
    folder: ModelFolder.
    are_pairs: bool.

  Raises:
    InputError: it does not go with the task.
  """
  way = texts.long_text or folder.more.get("long_text", long_texts.HEAD)
  if way == long_texts.HEAD:
    return {}
  if are_pairs:
    raise InputError("--long_text=%s is for single texts, not for pairs" % way)
  if way == long_texts.HEAD_TAIL:
    return {"long_text": way}
  if texts.regression:
    raise InputError("--long_text=windows is for labels, not for --regression")
  return {"long_text": way, "max_windows": texts.max_windows or folder.more.get(
      "max_windows", long_texts.MAX_WINDOWS)}


def read_examples(task, names, known_labels, texts):
  """Reads splits, and finds out what the labels are.

  Args:
    task: classification.Task.
    names: list of str, the splits.
    known_labels: list of str, those of the model, or None.
    texts: TextSettings.

  Returns:
    (dict, name -> list of classification.InputExample; list of labels)
  """
  labels = task.labels
  if labels is None and "train" not in names:
    labels = known_labels
  task = task._replace(labels=labels)
  examples = {
      name: classification.read_examples(
          task, classification.find_file(task, texts.data_dir, name),
          name in task.submissions, texts.skip_bad_rows)
      for name in {*names, *(["train"] if labels is None else [])}}
  if labels is None:
    labels = sorted({label for example in examples["train"]
                     for label in labels_of(example)})
  return {name: examples[name] for name in names}, labels


def labels_of(example):
  """Returns the labels of a classification.InputExample, a tuple of str."""
  return example.label if isinstance(example.label, tuple) else (
      () if example.label is None else (example.label,))


def majority_share(examples):
  """Returns the share of the labelled examples with the most frequent label."""
  counts = collections.Counter(
      example.label for example in examples if example.label is not None)
  return max(counts.values()) / sum(counts.values())


def warn_of_mean(output_dir, train, dev):
  """Warns where the best checkpoint is no better than one number for all.

  Args:
    output_dir: str.
    train, dev: list of classification.InputExample.
  """
  mean = np.mean(numbers_of(train))
  error = np.mean((numbers_of(dev) - mean)**2)
  logging.info("dev: the mean of the training set, %g, for all examples has "
               "mse %g", mean, error)
  best = read_best(output_dir)
  if best and best["eval_mse"] >= error:
    logging.warning(
        "the best checkpoint's mse, %g, is not below %g, which the mean of the "
        "training set for all examples has: it has learnt nothing; more "
        "examples or epochs, or a different --learning_rate, may help",
        best["eval_mse"], error)


def read_best(output_dir):
  """Returns the results of the best checkpoint, empty where there is none."""
  return outputs.read_results(
      os.path.join(output_dir, "best", "eval_results.txt"))


def warn_of_majority(output_dir, examples):
  """Warns where the best checkpoint is no better than one label for all."""
  best = read_best(output_dir)
  share = majority_share(examples)
  if best and best["eval_accuracy"] <= share:
    logging.warning(
        "the best checkpoint's accuracy, %.4f, is not above %.4f, which the "
        "most frequent label for all examples has: it has learnt nothing; more "
        "examples or epochs, or a different --learning_rate, may help",
        best["eval_accuracy"], share)


def check_variety(examples, labels):
  """Refuses training examples that are all alike.

  Args:
    examples: list of classification.InputExample.
    labels: list of str, all that there are; empty for numbers.

  Raises:
    InputError: all have one and the same label.
  """
  counts = collections.Counter(
      label for example in examples for label in labels_of(example))
  if labels and not isinstance(examples[0].label, tuple) and len(counts) == 1:
    raise InputError("all %d training examples have the label %s: there is "
                     "nothing to learn" % (len(examples), *counts))
  for label, count in counts.items():
    if labels and count == len(examples) > 1:
      logging.warning("all training examples have the label %s", label)


def report_examples(name, examples, labels):
  """Logs how many examples of each label there are."""
  counts = collections.Counter(
      label for example in examples for label in labels_of(example))
  logging.info("%s: %d examples%s", name, len(examples), "; labels: " +
               ", ".join("%s %d" % item for item in counts.most_common(20))
               if labels and counts else "")
  if labels and counts and not isinstance(examples[0].label, tuple):
    logging.info("%s: the most frequent label is that of %.4f of the examples",
                 name, majority_share(examples))
  absent = sorted(set(labels) - set(counts))
  if absent and counts:
    logging.warning("%s has no example of %d label(s): %s%s", name, len(absent),
                    ", ".join(absent[:20]), ", ..." * (len(absent) > 20))


def numbers_of(examples):
  """Returns the numbers that classification.InputExample have for labels."""
  return [float(x.label) for x in examples if x.label is not None]


def numbers_head(settings, folder, numbers):
  """Returns the head for numbers.

  Its units are those of the training set, unless it goes on with a checkpoint
  that has others, or weights that give the units of the data.

  Args:
    settings: TrainSettings.
    folder: ModelFolder.
    numbers: list of float, the training set's.
  """
  checkpoint = checkpoints.newest_or_best(settings.run.output_dir) or (
      settings.model.init_checkpoint and
      checkpoints.find_checkpoint(settings.model.init_checkpoint))
  saved = checkpoints.saved_shapes(checkpoint) if checkpoint else {}
  head = Regression.restore(saved, folder)
  if not numbers or (head and UNITS not in saved):
    return head or Regression()
  return Regression((np.mean(numbers), np.std(numbers) or 1.0))


def choose_positive(texts, folder, labels, examples, is_multi_label):
  """Returns the label that F1 is of, None where there is no such metric.

  Args:
    texts: TextSettings.
    folder: ModelFolder.
    labels: list of str, all that there are.
    examples: dict, name of a split -> list of classification.InputExample.
    is_multi_label: bool.
  """
  if is_multi_label or len(labels) != 2 and not texts.positive_label:
    return None
  first = next(iter(examples.values()))  # of training, where it is there
  kept = folder.more.get("positive_label")  # maybe of a model of other labels
  positive = label_kinds.positive_label(
      labels, collections.Counter(example.label for example in first),
      texts.positive_label or (kept if kept in labels else None))
  logging.info("f1 is of the label %s (--positive_label)", positive)
  return positive


def score(kind, logits, targets):
  """Returns (dict of results, report or None) of a split's predictions."""
  results, report = kind.score(logits, targets)
  results = {"eval_" + name: value for name, value in results.items()}
  return dict(results, loss=results["eval_loss"]), report


def write_predictions(output_dir, name, submission, examples, values, kind,
                      plain_results):
  """Writes `NAME_results.tsv` and the submission of a split."""
  path = os.path.join(output_dir, name + "_results.tsv")
  rows, answers = [["%.8f" % value for value in row] for row in values], (
      kind.answers(values))
  if not plain_results:
    texts = [[x.text_a] + [x.text_b] * (x.text_b is not None) for x in examples]
    header = ["label", *kind.labels] if kind.labels else ["score"]
    rows = [header + ["text_a", "text_b"][:len(texts[0])]] + [
        [answer] * bool(kind.labels) + row + text
        for answer, row, text in zip(answers, rows, texts)]
  filesystem.write_text(path, "".join(
      "\t".join(" ".join(cell.split()) for cell in row) + "\n"
      for row in rows))
  logging.info("%s: %s of each text", path,
               "label and probabilities" if kind.labels else "the number")
  path = os.path.join(output_dir, submission)
  word = submissions.glue_columns if submission.endswith(".tsv") else (
      submissions.clue_lines)
  filesystem.write_text(path, word([example.id for example in examples],
                                   answers))
  logging.info("%s: the label of each id", path)


def check_pairs(folder, examples, trains):
  """Returns whether the examples are pairs.

  Args:
    folder: ModelFolder.
    examples: dict, name -> list of classification.InputExample.
    trains: bool.

  Raises:
    InputError: some are, or the model is to predict what it was not trained on.
  """
  pairs = {name: sum(example.text_b is not None for example in rows)
           for name, rows in examples.items()}
  for name, rows in examples.items():
    if any(pairs.values()) and pairs[name] < len(rows):
      raise InputError(
          "%s: %d of %d examples have no second text, but others have one" % (
              name, len(rows) - pairs[name], len(rows)))
  are_pairs = any(pairs.values())
  if not trains and folder.pairs not in (None, are_pairs):
    raise InputError("%s: the model was trained on %s" % (
        folder.where, "single texts, not on pairs" if are_pairs else
        "pairs, not on single texts"))
  return are_pairs


def check_labels(folder, labels, trains):
  """Warns where the checkpoint was fine-tuned for other labels.

  Raises:
    InputError: and there is no training to change that.
  """
  known = folder.labels
  if known is not None and known != labels:
    message = "%s knows the labels %s, not %s" % (
        folder.where, ", ".join(known) or "(numbers)",
        ", ".join(labels) or "(numbers)")
    if not trains:
      raise InputError(message)
    logging.warning(message)


def main():
  cli.require_flags(flags.FLAGS, "task_name", "data_dir", "output_dir")
  texts = from_flags(TextSettings, flags.FLAGS)
  settings, workers, folder = finetuning.start(flags.FLAGS, default_length=128)
  trains, evaluates = settings.run.do_train, settings.run.do_eval
  task = classification.get_task(
      texts.task_name, texts.text_a_field, texts.text_b_field,
      texts.label_field, texts.labels, texts.regression,
      texts.multi_label or not trains and folder.head == MultiLabel.name)
  cli.warn_of_idle_flags(
      flags.FLAGS,
      (["metric_for_best"], trains and evaluates, "--do_train and --do_eval"),
      (["class_weights"], trains, "--do_train"),
      (["skip_bad_rows"], trains or evaluates, "--do_train or --do_eval"),
      (["thresholds"], task.is_multi_label and evaluates,
       "--multi_label and --do_eval"),
      (["temperature"], not task.is_regression, "labels"),
      (["positive_label"], not task.is_multi_label, "one label to a text"),
      (["max_windows"], texts.long_text == long_texts.WINDOWS,
       "--long_text=windows"))
  teachers.check(flags.FLAGS, texts, trains)
  examples, labels = read_examples(
      task, finetuning.wanted_splits(
          settings, workers,
          classification.splits_to_predict(task, texts.data_dir)),
      folder.labels, texts)
  if trains:
    examples["train"] = finetuning.limited(examples["train"], settings)
    check_variety(examples["train"], labels)
  metric = texts.metric_for_best or task.metric
  if (metric in ("pearson", "spearman")) != task.is_regression or (
      metric == "f1" and len(labels) != 2) or (
          metric not in ("micro_f1", "macro_f1", "exact")
          if task.is_multi_label else metric in ("micro_f1", "exact")):
    raise InputError("--metric_for_best=%s does not go with %s" % (
        metric, "numbers" if task.is_regression else
        "%d labels" % len(labels)))
  are_pairs = check_pairs(folder, examples, trains)
  check_labels(folder, labels, trains)
  positive = choose_positive(
      texts, folder, labels, examples, task.is_multi_label)
  if task.is_multi_label:
    kind = label_kinds.SeveralLabels(
        labels, None if trains else folder.more.get("thresholds"))
  else:
    kind = label_kinds.OneLabel(labels, positive) if (
        labels) else label_kinds.Numbers()
  targets = {name: kind.targets(rows) for name, rows in examples.items()}
  for name, rows in examples.items():
    report_examples(name, rows, labels)
  class_weights = None
  if texts.class_weights and task.is_multi_label:
    raise InputError("--class_weights does not go with --multi_label")
  if texts.class_weights and trains:
    class_weights = labelling.class_weights(
        texts.class_weights, labels, targets["train"])
    logging.info("weights of the labels: %s", ", ".join(
        "%s %.4g" % pair for pair in zip(labels, class_weights)))
  if trains and texts.unlabelled_file:
    examples["train"] += [
        classification.InputExample(None, *pair, None)
        for pair in teachers.read_unlabelled(texts.unlabelled_file, are_pairs)]
    targets["train"] = kind.targets(examples["train"])
  more = choose_long_text(texts, folder, are_pairs)
  num_windows = more.get("max_windows")
  if task.is_multi_label:
    head = MultiLabel(len(labels), num_windows=num_windows)
  else:
    head = Classifier(len(labels), class_weights, num_windows) if (
        labels) else numbers_head(settings, folder, numbers_of(
            examples["train"] if trains else []))
  make_features = feature_maker(long_texts.sequence_maker(
      folder.create_tokenizer(), settings.data.max_seq_length, **more),
                                kind.label_ids, num_windows)
  specs = finetuning.SPECS
  if num_windows:
    specs = [spec if spec.length == 0 else spec._replace(rows=num_windows)
             for spec in specs] + [FeatureSpec("num_windows", "int", 0)]
  splits = {name: finetuning.Split(list(zip(rows, targets[name])),
                                   make_features, has_labels=name == "train",
                                   paths=[classification.find_file(
                                       task, texts.data_dir, name),
                                          *teachers.unlabelled_files(
                                              texts, name)])
            for name, rows in examples.items()}
  if texts.teacher and trains:
    splits["train"] = teachers.teach_texts(
        splits["train"], texts, kind.result, labels,
        [(x.text_a, x.text_b) for x in examples["train"]],
        [x.label is not None for x in examples["train"]])
  runner = finetuning.Runner(
      settings, workers, dataclasses.replace(
          folder, task_name=texts.task_name.lower(), head=head.name,
          labels=labels, pairs=are_pairs, more=dict(
              more, **{"positive_label": positive} if positive else {}),
          max_seq_length=settings.data.max_seq_length),
      teachers.head_for(head, texts), [FeatureSpec("label_ids", *kind.feature)],
      splits, specs)

  def predict(name, checkpoint):
    return np.array([row["logits"] for row in runner.predict(name, checkpoint)])

  def evaluate(checkpoint):
    logits = predict("dev", checkpoint)
    if task.is_multi_label:
      kind.choose_thresholds(logits, targets["dev"], texts.thresholds)
      filesystem.write_json(
          os.path.join(runner.output_dir, "thresholds.json"), kind.thresholds)
    results, report = score(kind, logits, targets["dev"])
    if report:
      filesystem.write_text(os.path.join(runner.output_dir, "eval_report.txt"),
                            report)
    return dict(results, global_step=checkpoints.step_of(checkpoint))

  def write_test(name, checkpoint):
    logits = predict(name, checkpoint)
    path = checkpoint and os.path.join(os.path.dirname(checkpoint),
                                       "thresholds.json")
    if task.is_multi_label and path and filesystem.exists(path):
      kind.thresholds = filesystem.read_json(path)  # the best checkpoint's
    write_predictions(
        runner.output_dir, name,
        task.submissions[name].format(texts.task_name.lower()), examples[name],
        kind.values(logits), kind, texts.plain_results)
    outputs.write_test_scores(
        runner.output_dir, name, [example.label for example in examples[name]],
        lambda rows: score(kind, logits[rows],
                           [targets[name][i] for i in rows]),
        checkpoint)

  runner.run(evaluate, "eval_" + metric, write_test,
             ["eval_report.txt"] * bool(labels) +
             ["thresholds.json"] * task.is_multi_label)
  if trains and "dev" in examples and not task.is_multi_label:
    if labels:
      warn_of_majority(settings.run.output_dir, examples["dev"])
    else:
      warn_of_mean(settings.run.output_dir, examples["train"], examples["dev"])


if __name__ == "__main__":
  cli.run(main, SETTINGS, older_flags=OLDER_FLAGS)
