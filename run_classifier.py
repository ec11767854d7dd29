"""Fine-tunes ALBERT for classification or regression of texts or pairs."""

import collections
import dataclasses
import functools
import os
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
from absl import logging

from albert import cli
from albert.errors import InputError
from albert.files import checkpoints, filesystem, outputs, tables
from albert.files.records import FeatureSpec
from albert.heads import Classifier, MultiLabel, Regression
from albert.heads.base import Head
from albert.heads.classifier import UNITS
from albert.model_folder import ModelFolder
from albert.settings import NEEDED, USUAL, from_flags, setting, warn_if_given
from albert.tasks import (
  classification,
  label_kinds,
  label_sets,
  metrics,
  submissions,
  windows,
)
from albert.tasks.classification import InputExample
from albert.train import finetuning, sweep, teachers
from albert.train.distribution import Workers
from albert.train.settings import FINE_TUNING, TrainSettings

Examples = Dict[str, List[InputExample]]  # by split

_ERRORS = "dev_predictions.tsv"


@dataclasses.dataclass(frozen=True)
class TextSettings(teachers.DistillationSettings, tables.TableSettings):
  """The task and its files."""

  task_name: str = setting(
    None, "Task; see docs/tasks.md.", NEEDED, required=True
  )
  data_dir: str = setting(
    None,
    "Folder with the task's files; see docs/tasks.md.",
    NEEDED,
    required=True,
  )
  text_a_field: str = setting(
    None, "Column or JSON key of the text; default: the task's."
  )
  text_b_field: str = setting(
    None,
    "Column or JSON key of the second text of a pair; default: the task's.",
  )
  label_field: str = setting(
    None, "Column or JSON key of the label; default: the task's."
  )
  labels: list = setting(
    None,
    "The labels of a task without fixed ones; default: those of the "
    "training file or the fine-tuned model.",
  )
  long_text: str = setting(
    None,
    "What to read of texts longer than --max_seq_length: beginning; "
    "beginning and end; or windows, whose logits are averaged. Default: that "
    "of the model, otherwise the beginning.",
    USUAL,
    choices=windows.WAYS,
  )
  max_windows: int = setting(
    None,
    "--long_text=windows: maximum windows per text; default: that of "
    "the model, otherwise %d." % windows.MAX_WINDOWS,
    least=1,
    needs="long_text=windows",
  )
  calibrate: bool = setting(
    False,
    "Whether to calibrate the probabilities with a temperature chosen "
    "on dev; for one label per text.",
    needs="do_eval",
  )
  dev_share: float = setting(
    None,
    "Share of the training file to evaluate on instead of a dev file.",
    USUAL,
    least=0.0,
    most=1.0,
  )
  test_share: float = setting(
    None,
    "Share of the training file to predict instead of a test file.",
    least=0.0,
    most=1.0,
  )
  folds: int = setting(
    None,
    "Cross-validation: train once for each of this many parts of the "
    "training file, evaluating on it; see folds.tsv.",
    least=2,
    demands="do_train and do_eval",
    instead_of="dev_share or test_share",
  )
  fold: int = setting(
    None, "Train only this one of --folds, from 0.", least=0, demands="folds"
  )
  regression: bool = setting(
    False, "Whether the labels are numbers (regression)."
  )
  multi_label: bool = setting(
    False,
    "Whether texts have any number of labels: a|b, or a JSON list.",
    USUAL,
  )
  thresholds: str = setting(
    "one",
    "--multi_label: choose one probability threshold on dev for all "
    "labels, or one per label.",
    choices=label_sets.WAYS,
    needs="do_eval",
  )
  class_weights: str = setting(
    None,
    "Weights of the labels in the training loss: `balanced`, or "
    "`label:weight,...`; the default weight is 1.",
    needs="do_train",
  )
  plain_results: bool = setting(
    False,
    "Write only probabilities to test_results.tsv, without header, "
    "labels and texts.",
  )
  positive_label: str = setting(
    None,
    "Of two labels, the positive one for F1; default: that of the "
    "model, otherwise 1, true, yes or 是, otherwise the rarer one.",
  )
  metric_for_best: str = setting(
    None,
    "Metric that chooses the best checkpoint; default: the task's.",
    choices=metrics.METRICS,
    needs="do_train and do_eval",
  )


SETTINGS = (TextSettings, *FINE_TUNING)
OLDER_FLAGS = ("cached_dir",)


def feature_maker(
  make_sequences: Callable[..., List[windows.Encoded]],
  label_ids: Callable[[Any], Any],
  num_windows: Optional[int] = None,
) -> Callable[[Tuple[InputExample, Any]], Dict[str, Any]]:
  """Returns the function that makes the features of (example, target).

  Args:
    make_sequences: see `windows.sequence_maker`.
    label_ids: see `label_kinds.LabelKind`.
    num_windows: maximum sequences per text; None for exactly one.
  """

  def make_features(example_and_target):
    example, target = example_and_target
    sequences = make_sequences(example.text_a, example.text_b)
    features = windows.pack_rows(sequences, num_windows or 1)
    if num_windows:
      features["num_windows"] = len(sequences)
    return dict(features, label_ids=label_ids(target))

  return make_features


def choose_long_text(
  texts: TextSettings, folder: ModelFolder, are_pairs: bool
) -> Dict[str, Any]:
  """Returns the attributes of ModelFolder for reading long texts.

  Raises:
    InputError: the flags contradict the task.
  """
  way = texts.long_text or folder.long_text or windows.HEAD
  if way == windows.HEAD:
    return {}
  if are_pairs:
    raise InputError("--long_text=%s is for single texts, not for pairs" % way)
  if way == windows.HEAD_TAIL:
    return {"long_text": way}
  if texts.regression:
    raise InputError("--long_text=windows is for labels, not for --regression")
  return {
    "long_text": way,
    "max_windows": (
      texts.max_windows or folder.max_windows or windows.MAX_WINDOWS
    ),
  }


def read_examples(
  task: classification.Task,
  names: List[str],
  known_labels: Optional[List[str]],
  texts: TextSettings,
  seed: int,
) -> Tuple[Examples, List[str]]:
  """Reads splits and determines the labels.

  Args:
    task: the task.
    names: splits to read.
    known_labels: labels of the model, if it has any.
    texts: settings of the files.
    seed: for --dev_share and --test_share.

  Returns:
    examples by split, and all labels.
  """
  labels = task.labels
  if labels is None and "train" not in names:
    labels = known_labels
  task = task._replace(labels=labels)
  shares = shares_of(texts)
  wanted = {*names, *(["train"] if labels is None or shares else [])}
  examples = {
    name: classification.read_examples(
      task,
      classification.find_file(task, texts.data_dir, name),
      name in task.submissions,
      texts,
    )
    for name in wanted.difference(shares)
  }
  if shares:
    examples.update(
      classification.divide(
        examples["train"],
        shares,
        seed,
        label_of=lambda x: None if task.is_regression else x.label,
        start=(texts.fold or 0) / (texts.folds or 1),
      )
    )
  if labels is None:
    labels = sorted(
      {label for example in examples["train"] for label in labels_of(example)}
    )
    warn_of_labels(labels, task.is_multi_label)
  return {name: examples[name] for name in names}, labels


def shares_of(texts: TextSettings) -> Dict[str, float]:
  """Returns the share of the training file that each other split takes."""
  if texts.folds:
    return {"dev": 1 / texts.folds}
  return {
    name: share
    for name, share in (("dev", texts.dev_share), ("test", texts.test_share))
    if share
  }


def warn_of_labels(labels: List[str], is_multi_label: bool) -> None:
  """Warns of labels that are probably mistakes."""
  joined = label_sets.joined(labels)
  if joined:
    logging.warning(
      "%d label(s) look like several, such as %r: %s",
      len(joined),
      joined[0],
      "give their --label_separator"
      if is_multi_label
      else "give --multi_label, and --label_separator if it is not |",
    )
  for group in label_sets.alike(labels)[:5]:
    logging.warning(
      "labels that look the same are treated as different: %s",
      ", ".join(map(repr, group)),
    )


def labels_of(example: InputExample) -> Tuple[str, ...]:
  """Returns the labels of an example."""
  if example.label is None:
    return ()
  if isinstance(example.label, tuple):
    return example.label
  return (example.label,)


def majority_share(examples: List[InputExample]) -> float:
  """Returns the share of labelled examples with the most frequent label."""
  counts = collections.Counter(
    example.label for example in examples if example.label is not None
  )
  return max(counts.values()) / sum(counts.values())


def warn_of_mean(
  output_dir: str, train: List[InputExample], dev: List[InputExample]
) -> None:
  """Warns if the best checkpoint does not beat the mean-value baseline."""
  mean = np.mean(numbers_of(train))
  error = np.mean(np.subtract(numbers_of(dev), mean) ** 2)
  logging.info(
    "dev: the mean baseline, %g for all examples, has mse %g", mean, error
  )
  best = read_best(output_dir)
  if best and best["eval_mse"] >= error:
    logging.warning(
      "the best checkpoint's mse, %g, does not beat the mean baseline, %g: "
      "it has learnt nothing; try more examples or epochs, or a different "
      "--learning_rate",
      best["eval_mse"],
      error,
    )


def read_best(output_dir: str) -> Dict[str, Any]:
  """Returns the results of the best checkpoint; empty if there is none."""
  return outputs.read_results(
    os.path.join(output_dir, "best", "eval_results.txt")
  )


def warn_of_majority(output_dir: str, examples: List[InputExample]) -> None:
  """Warns if the best checkpoint does not beat the majority baseline."""
  best = read_best(output_dir)
  share = majority_share(examples)
  if best and best["eval_accuracy"] <= share:
    logging.warning(
      "the best checkpoint's accuracy, %.4f, does not beat the majority "
      "baseline, %.4f: it has learnt nothing; try more examples or epochs, "
      "or a different --learning_rate",
      best["eval_accuracy"],
      share,
    )


def check_variety(examples: List[InputExample], labels: List[str]) -> None:
  """Checks that training examples differ in their labels.

  Args:
    examples: training examples.
    labels: all labels; empty for regression.

  Raises:
    InputError: all examples have the same label.
  """
  counts = collections.Counter(
    label for example in examples for label in labels_of(example)
  )
  if labels and not isinstance(examples[0].label, tuple) and len(counts) == 1:
    raise InputError(
      "all %d training examples have the label %s: there is "
      "nothing to learn" % (len(examples), next(iter(counts)))
    )
  for label, count in counts.items():
    if labels and count == len(examples) > 1:
      logging.warning("all training examples have the label %s", label)


def report_labels(
  name: str, examples: List[InputExample], labels: List[str]
) -> None:
  """Logs the majority baseline, and warns of labels without examples."""
  counts = collections.Counter(
    label for example in examples for label in labels_of(example)
  )
  if labels and counts and not isinstance(examples[0].label, tuple):
    logging.info(
      "%s: the majority baseline has accuracy %.4f",
      name,
      majority_share(examples),
    )
  absent = sorted(set(labels) - set(counts))
  if absent and counts:
    logging.warning(
      "%s has no example of %d label(s): %s%s",
      name,
      len(absent),
      ", ".join(absent[:20]),
      ", ..." if len(absent) > 20 else "",
    )


def numbers_of(examples: List[InputExample]) -> List[float]:
  """Returns the labels of a regression task."""
  return [float(x.label) for x in examples if x.label is not None]


def numbers_head(
  settings: TrainSettings, folder: ModelFolder, numbers: List[float]
) -> Head:
  """Returns the head for regression.

  Its units are mean and standard deviation of the training set, unless it
  resumes a checkpoint with different units or none.

  Args:
    settings: settings of the run.
    folder: folder of the model.
    numbers: labels of the training set.
  """
  checkpoint = checkpoints.newest_or_best(settings.run.output_dir) or (
    settings.model.init_checkpoint
    and checkpoints.find_checkpoint(settings.model.init_checkpoint)
  )
  saved = checkpoints.saved_shapes(checkpoint) if checkpoint else {}
  head = Regression.restore(saved, folder)
  if not numbers or (head and UNITS not in saved):
    return head or Regression()
  return Regression((float(np.mean(numbers)), float(np.std(numbers)) or 1.0))


def choose_positive(
  texts: TextSettings,
  folder: ModelFolder,
  labels: List[str],
  examples: Examples,
) -> Optional[str]:
  """Returns the label that F1 is computed for, None without F1."""
  if len(labels) != 2 and not texts.positive_label:
    return None
  first = next(iter(examples.values()))  # "train", if there is one
  kept = folder.positive_label  # possibly of a model with other labels
  positive = label_kinds.positive_label(
    labels,
    collections.Counter(example.label for example in first),
    texts.positive_label or (kept if kept in labels else None),
  )
  logging.info("f1 is for the label %s (--positive_label)", positive)
  return positive


def write_predictions(
  output_dir: str,
  name: str,
  submission: str,
  examples: List[InputExample],
  values: np.ndarray,
  kind: label_kinds.LabelKind,
  plain_results: bool,
) -> None:
  """Writes `NAME_results.tsv` and the submission of a split."""
  path = os.path.join(output_dir, name + "_results.tsv")
  answers = kind.answers(values)
  are_pairs = examples[0].text_b is not None

  def rows():
    if not plain_results:
      yield [
        *(["label", *kind.labels] if kind.labels else ["score"]),
        *["text_a", "text_b"][: 1 + are_pairs],
      ]
    for answer, row, x in zip(answers, values, examples):
      numbers = ["%.8f" % value for value in row]
      yield (
        numbers
        if plain_results
        else [
          *([answer] if kind.labels else []),
          *numbers,
          x.text_a,
          *([x.text_b] if are_pairs else []),
        ]
      )

  filesystem.write_table(path, rows())
  logging.info(
    "%s: %s of each text",
    path,
    "label and probabilities" if kind.labels else "the number",
  )
  path = os.path.join(output_dir, submission)
  word = submissions.clue_lines
  if submission.endswith(".tsv"):
    word = submissions.glue_columns
  filesystem.write_lines(
    path, word((example.id for example in examples), answers)
  )
  logging.info("%s: the label of each id", path)


def write_errors(
  output_dir: str,
  examples: List[InputExample],
  values: np.ndarray,
  targets: List[Any],
  kind: label_kinds.LabelKind,
) -> None:
  """Writes `dev_predictions.tsv`: the labelled examples, worst first."""
  errors, answers = kind.errors(values, targets), kind.answers(values)

  def rows():
    yield ["id", "label", "prediction", "error", "text_a", "text_b"]
    for i in np.argsort(-errors, kind="stable"):
      x = examples[i]
      yield [
        x.id,
        label_sets.join(x.label) if isinstance(x.label, tuple) else x.label,
        answers[i],
        "%.4f" % errors[i],
        x.text_a,
        x.text_b or "",
      ]

  filesystem.write_table(os.path.join(output_dir, _ERRORS), rows())


def mistakes(
  examples: List[InputExample],
  targets: Sequence[int],
  predicted: Sequence[int],
  labels: List[str],
) -> str:
  """Lists the most frequent pairs of true and predicted label, 50 at most.

  Args:
    examples: N labelled examples.
    targets, predicted: N indices of labels.
    labels: all labels.

  Returns:
    lines of true label, predicted label, count and the first such texts.
  """
  counts: Dict[Tuple[int, int], int] = collections.Counter()
  first: Dict[Tuple[int, int], InputExample] = {}
  for example, pair in zip(examples, zip(targets, predicted)):
    if pair[0] != pair[1]:
      counts[pair] += 1
      first.setdefault(pair, example)
  order = sorted(counts, key=lambda pair: -counts[pair])[:50]
  lines = ["", "most frequent mistakes: label, prediction, count, example"]
  for true, found in order:
    example = first[true, found]
    lines.append(
      filesystem.table_line(
        [
          labels[true],
          labels[found],
          counts[true, found],
          example.text_a,
          example.text_b or "",
        ]
      ).rstrip()
    )
  return "\n".join(lines) + "\n"


def check_pairs(folder: ModelFolder, examples: Examples, trains: bool) -> bool:
  """Returns whether the examples are pairs.

  Raises:
    InputError: only some are, or the model was trained on the other kind.
  """
  pairs = {
    name: sum(example.text_b is not None for example in rows)
    for name, rows in examples.items()
  }
  for name, rows in examples.items():
    if any(pairs.values()) and pairs[name] < len(rows):
      raise InputError(
        "%s: %d of %d examples have no second text: either all or none may "
        "be pairs" % (name, len(rows) - pairs[name], len(rows))
      )
  are_pairs = any(pairs.values())
  if not trains and folder.pairs not in (None, are_pairs):
    raise InputError(
      "%s: the model was trained on %s"
      % (
        folder.where,
        "single texts, not on pairs"
        if are_pairs
        else "pairs, not on single texts",
      )
    )
  return are_pairs


def check_labels(folder: ModelFolder, labels: List[str], trains: bool) -> None:
  """Warns if the model was fine-tuned with different labels.

  Raises:
    InputError: it was, and is not trained now.
  """
  known = folder.labels
  if known is not None and known != labels:
    message = "%s has the labels %s, not %s" % (
      folder.where,
      ", ".join(known) or "(numbers)",
      ", ".join(labels) or "(numbers)",
    )
    if not trains:
      raise InputError(message)
    logging.warning(message)


def check_metric(
  metric: str, task: classification.Task, labels: List[str]
) -> None:
  """Raises an InputError for a metric that does not fit the labels."""
  if task.is_regression:
    fits = metric in ("pearson", "spearman")
  elif task.is_multi_label:
    fits = metric in ("micro_f1", "macro_f1", "exact")
  else:
    fits = metric not in ("pearson", "spearman", "micro_f1", "exact") and (
      metric != "f1" or len(labels) == 2
    )
  if not fits:
    raise InputError(
      "--metric_for_best=%s does not apply to %s"
      % (metric, "numbers" if task.is_regression else "%d labels" % len(labels))
    )


def create_kind(
  texts: TextSettings,
  folder: ModelFolder,
  task: classification.Task,
  examples: Examples,
  labels: List[str],
) -> label_kinds.LabelKind:
  """Returns the kind of the labels; see TextTask."""
  if task.is_multi_label:
    most = max(
      (len(x.label or ()) for x in examples.get("train", [])), default=1
    )
    return label_kinds.SeveralLabels(
      labels, None if "train" in examples else folder.thresholds, max(1, most)
    )
  positive = choose_positive(texts, folder, labels, examples)
  if not labels:
    return label_kinds.Numbers()
  return label_kinds.OneLabel(labels, positive)


def create_head(
  texts: TextSettings,
  settings: TrainSettings,
  folder: ModelFolder,
  kind: label_kinds.LabelKind,
  examples: Examples,
  num_windows: Optional[int],
) -> Head:
  """Returns the head on top of the encoder; see TextTask.

  Raises:
    InputError: --class_weights are malformed or do not fit the labels.
  """
  labels, train = kind.labels, examples.get("train", [])
  if isinstance(kind, label_kinds.SeveralLabels):
    if texts.class_weights:
      raise InputError("--class_weights does not apply to --multi_label")
    return MultiLabel(len(labels), num_windows=num_windows)
  if not labels:
    return numbers_head(settings, folder, numbers_of(train))
  class_weights = None
  if texts.class_weights and train:
    class_weights = label_kinds.class_weights(
      texts.class_weights, labels, kind.targets(train)
    )
    logging.info(
      "weights of the labels: %s",
      ", ".join("%s %.4g" % pair for pair in zip(labels, class_weights)),
    )
  return Classifier(len(labels), class_weights, num_windows)


class TextTask(finetuning.Task):
  """Texts, or pairs of texts, with labels or numbers.

  Args:
    texts: settings of the task.
    settings: settings of the run.
    folder: folder of the model.
    task: the task.
    examples: examples by split.
    labels: all labels; empty for regression.
    are_pairs: whether the examples are pairs.
  """

  def __init__(
    self,
    texts: TextSettings,
    settings: TrainSettings,
    folder: ModelFolder,
    task: classification.Task,
    examples: Examples,
    labels: List[str],
    are_pairs: bool,
  ):
    self._flags, self._settings = texts, settings
    self._temperature = folder.calibration_temperature
    self._task = task
    self._kind = kind = create_kind(texts, folder, task, examples, labels)
    more = choose_long_text(texts, folder, are_pairs)
    num_windows = more.get("max_windows")
    head = create_head(texts, settings, folder, kind, examples, num_windows)
    if texts.unlabelled_file and "train" in examples:
      examples = dict(
        examples,
        train=examples["train"]
        + [
          classification.InputExample(None, *pair, None)
          for pair in teachers.read_unlabelled(texts.unlabelled_file, are_pairs)
        ],
      )
    self._examples = examples
    self._targets = {
      name: kind.targets(rows) for name, rows in examples.items()
    }
    self.head = teachers.head_for(head, texts)
    self.metric = "eval_" + (texts.metric_for_best or task.metric)
    self.label_specs = [FeatureSpec("label_ids", *kind.feature)]
    if num_windows:
      self.has_windows = True
      self.specs = [
        *finetuning.with_rows(num_windows),
        FeatureSpec("num_windows", "int", 0),
      ]
    self.description = dict(
      more,
      task_name=texts.task_name.lower(),
      labels=labels,
      pairs=are_pairs,
      positive_label=kind.positive,
      reading=classification.reading(texts),
    )
    self.reports = [_ERRORS]
    if labels:
      self.reports.append("eval_report.txt")
    if task.is_multi_label:
      self.reports.append("thresholds.json")
    make_features = feature_maker(
      windows.sequence_maker(
        folder.create_tokenizer(), settings.data.max_seq_length, **more
      ),
      kind.label_ids,
      num_windows,
    )
    self.splits = {
      name: finetuning.Split(
        list(zip(rows, self._targets[name])),
        make_features,
        has_labels=name == "train",
        paths=[
          classification.find_file(
            task, texts.data_dir, "train" if name in shares_of(texts) else name
          ),
          *teachers.unlabelled_files(texts, name),
        ],
        items=functools.partial(classification.items, rows),
      )
      for name, rows in examples.items()
    }
    if texts.teacher and "train" in examples:
      self.splits["train"] = teachers.teach_texts(
        self.splits["train"],
        texts,
        kind.result,
        labels,
        [(x.text_a, x.text_b) for x in examples["train"]],
        [x.label is not None for x in examples["train"]],
      )

  def begin(self, output_dir: str) -> None:
    """See finetuning.Task."""
    for name in {*shares_of(self._flags)}.intersection(self._examples):
      classification.write_part(output_dir, name, self._examples[name])

  def decode(
    self, name: str, outputs: finetuning.Outputs, checkpoint: Optional[str]
  ) -> np.ndarray:
    """Returns logits, float [N, L]."""
    path = checkpoint and os.path.join(
      os.path.dirname(checkpoint), "thresholds.json"
    )
    if name == "dev":
      pass  # evaluate() chooses
    elif isinstance(self._kind, label_kinds.OneLabel):
      self._kind.temperature = (
        finetuning.dev_result(
          "calibration_temperature", checkpoint, self._settings
        )
        if checkpoint
        else self._temperature
      ) or 1.0
    elif isinstance(self._kind, label_kinds.SeveralLabels) and (
      path and filesystem.exists(path)
    ):
      self._kind.thresholds = filesystem.read_json(path)
    return np.array(outputs["logits"])

  def targets(self, name: str) -> List[Any]:
    """See finetuning.Task."""
    return [example.label for example in self._examples[name]]

  def score(
    self, name: str, predictions: np.ndarray, rows: Sequence[int]
  ) -> Tuple[Dict[str, float], Optional[str]]:
    """See finetuning.Task."""
    targets = [self._targets[name][i] for i in rows]
    results, report = self._kind.score(predictions[rows], targets)
    if isinstance(self._kind, label_kinds.OneLabel):
      report = (report or "") + mistakes(
        [self._examples[name][i] for i in rows],
        targets,
        predictions[rows].argmax(-1),
        self._kind.labels,
      )
    results = {"eval_" + key: value for key, value in results.items()}
    return dict(results, loss=results["eval_loss"]), report

  def evaluate(
    self, predictions: np.ndarray, output_dir: str
  ) -> Tuple[Dict[str, float], Optional[str]]:
    """See finetuning.Task."""
    if isinstance(self._kind, label_kinds.SeveralLabels):
      self._kind.choose_thresholds(
        predictions, self._targets["dev"], self._flags.thresholds
      )
      filesystem.write_json(
        os.path.join(output_dir, "thresholds.json"), self._kind.thresholds
      )
    more = {}
    if isinstance(self._kind, label_kinds.OneLabel) and self._flags.calibrate:
      self._kind.temperature = more["calibration_temperature"] = (
        metrics.best_temperature(predictions, self._targets["dev"])
      )
    write_errors(
      output_dir,
      self._examples["dev"],
      self._kind.values(predictions),
      self._targets["dev"],
      self._kind,
    )
    results, report = super().evaluate(predictions, output_dir)
    return dict(results, **more), report

  def write(
    self,
    name: str,
    predictions: np.ndarray,
    output_dir: str,
    checkpoint: Optional[str],
  ) -> None:
    """See finetuning.Task."""
    submission = self._task.submissions[name].format(
      self._flags.task_name.lower()
    )
    write_predictions(
      output_dir,
      name,
      submission,
      self._examples[name],
      self._kind.values(predictions),
      self._kind,
      self._flags.plain_results,
    )


def train(
  texts: TextSettings,
  settings: TrainSettings,
  workers: Workers,
  folder: ModelFolder,
) -> None:
  """Trains, evaluates and predicts; see finetuning.start."""
  trains = settings.run.do_train
  task = classification.get_task(
    texts.task_name,
    texts.text_a_field,
    texts.text_b_field,
    texts.label_field,
    texts.labels,
    texts.regression,
    texts.multi_label or not trains and folder.head == MultiLabel.name,
  )
  if not task.is_multi_label:
    warn_if_given("thresholds", "--multi_label")
  else:
    warn_if_given("positive_label", "one label per text")
  if task.is_regression:
    warn_if_given("temperature", "labels")
  teachers.check(texts)
  to_predict = (
    ["test"]
    if texts.test_share
    else (classification.splits_to_predict(task, texts.data_dir))
  )
  examples, labels = read_examples(
    task,
    finetuning.wanted_splits(settings, workers, to_predict),
    folder.labels,
    texts,
    settings.run.random_seed,
  )
  if trains:
    examples["train"] = finetuning.limited(examples["train"], settings)
    check_variety(examples["train"], labels)
  check_metric(texts.metric_for_best or task.metric, task, labels)
  are_pairs = check_pairs(folder, examples, trains)
  check_labels(folder, labels, trains)
  for name, rows in examples.items():
    report_labels(name, rows, labels)
  finetuning.run(
    TextTask(texts, settings, folder, task, examples, labels, are_pairs),
    settings,
    workers,
    folder,
  )
  if trains and "dev" in examples and not task.is_multi_label:
    if labels:
      warn_of_majority(settings.run.output_dir, examples["dev"])
    else:
      warn_of_mean(settings.run.output_dir, examples["train"], examples["dev"])


def cross_validate(
  texts: TextSettings,
  settings: TrainSettings,
  workers: Workers,
  folder: ModelFolder,
) -> None:
  """Trains with each of --folds as dev set; writes `folds.tsv`."""
  output_dir, results = settings.run.output_dir, []
  if texts.fold is not None and texts.fold >= texts.folds:
    raise InputError("--fold=%d: must be less than --folds" % texts.fold)
  for fold in range(texts.folds) if texts.fold is None else [texts.fold]:
    run = dataclasses.replace(
      settings.run, output_dir=os.path.join(output_dir, "fold_%d" % fold)
    )
    train(
      dataclasses.replace(texts, fold=fold),
      dataclasses.replace(settings, run=run),
      workers,
      folder,
    )
    results.append((fold, read_best(run.output_dir)))
  if texts.fold is None and not (workers.rank or settings.data.check_data):
    names = sweep.metric_names([values for _, values in results])
    table = [["fold", *names, "global_step"], *sweep.rows_of(results, names)]
    path = os.path.join(output_dir, "folds.tsv")
    filesystem.write_table(path, table)
    logging.info("%s:\n%s", path, sweep.aligned(table))


def main() -> None:
  texts = from_flags(TextSettings)
  (cross_validate if texts.folds else train)(
    texts, *finetuning.start(default_length=128)
  )


if __name__ == "__main__":
  cli.run(main, SETTINGS, older_flags=OLDER_FLAGS)
