r"""Trains ALBERT for sentence vectors whose cosine measures similarity.

    python run_sentence_vectors.py --loss=cosent --task_name=afqmc \
      --data_dir=data/afqmc --init_checkpoint=albert_tiny_starter \
      --output_dir=output/vectors --do_train --do_eval
    python run_sentence_vectors.py --loss=simcse --texts_file=texts.txt \
      --init_checkpoint=albert_tiny_starter --output_dir=output/vectors \
      --do_train

Losses:
  cosent    pairs with scores, or with labels 0 and 1: a pair with a higher
            score gets a higher cosine than one with a lower score
  in_batch  similar pairs: those in the upper half of the scores, or all
            without scores; negatives are the second texts of other pairs and
            a column `negative`
  simcse    texts only: each is paired with itself under different dropout
The dev file has pairs with scores or labels. similarity.py, predict.py,
extract_features.py, export_model.py and convert_to_pytorch.py read the folder
`best`.
"""

import dataclasses
import functools
import itertools
import os
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
from absl import logging

import tokenization
from albert import cli
from albert.errors import InputError
from albert.files import filesystem, tables
from albert.files.records import FeatureSpec
from albert.heads import vectors
from albert.model.config import AlbertConfig
from albert.model_folder import ModelFolder, Tokenizer
from albert.settings import NEEDED, USUAL, from_flags, setting
from albert.tasks import classification, metrics, windows
from albert.tasks.classification import InputExample
from albert.tasks.data_report import Item
from albert.train import finetuning
from albert.train.distribution import Workers
from albert.train.settings import FINE_TUNING, TrainSettings


@dataclasses.dataclass(frozen=True)
class VectorSettings(tables.TableSettings):
  """The texts, the loss and the vectors."""

  loss: str = setting(
    "cosent", "Training loss.", NEEDED, choices=vectors.LOSSES
  )
  task_name: str = setting(
    "tsv", "Task of pairs with files in --data_dir; see docs/tasks.md.", NEEDED
  )
  data_dir: str = setting(
    None,
    "Folder with the task's files.",
    NEEDED,
    required="do_eval or do_predict or not texts_file",
  )
  texts_file: str = setting(
    None,
    "--loss=simcse: texts, one per line; default: those of the training file.",
    USUAL,
    needs="do_train and loss=simcse",
  )
  dev_share: float = setting(
    None,
    "Share of the training file to evaluate on instead of a dev file.",
    USUAL,
    least=0.0,
    most=1.0,
  )
  text_a_field: str = setting(
    None, "Column or JSON key of the text; default: the task's."
  )
  text_b_field: str = setting(
    None, "Column or JSON key of the second text; default: the task's."
  )
  label_field: str = setting(
    None, "Column or JSON key of the score; default: the task's."
  )
  pooling: str = setting(
    None,
    "Vector of a text: the mean over its tokens, including [CLS] and "
    "[SEP], or the vector of [CLS]. Default: that of the model, otherwise "
    "the mean.",
    USUAL,
    choices=["mean", "cls"],
  )
  layer: int = setting(
    None,
    "Layer of the vector: 1 for the first, -1 for the last. Default: "
    "that of the model, otherwise the last.",
  )
  scale: float = setting(
    20.0, "Factor of cosines in the loss: 1 / temperature."
  )
  positive_score: float = setting(
    None,
    "--loss=in_batch: minimum score of similar pairs; default: above "
    "the middle of all scores.",
    needs="do_train and loss=in_batch",
  )
  dropout: float = setting(
    None,
    "Dropout in training; default: 0.1 with --loss=simcse, otherwise "
    "that of the model.",
    least=0.0,
    most=0.9,
  )
  metric_for_best: str = setting(
    "spearman",
    "Metric that chooses the best checkpoint; auc and accuracy "
    "need labels 0 and 1.",
    choices=["spearman", "pearson", "auc", "accuracy"],
    needs="do_train and do_eval",
  )


SETTINGS = (VectorSettings, *FINE_TUNING)


def get_task(args: VectorSettings) -> classification.Task:
  """Returns the task, with numbers as labels.

  In-batch training needs no labels: without one, a pair counts as similar.
  """
  task = classification.get_task(
    args.task_name,
    args.text_a_field,
    args.text_b_field,
    args.label_field,
    regression=True,
  )
  if args.loss != "in_batch":
    return task
  names = [task.label] if isinstance(task.label, str) else task.label

  def label(row):
    return next((row[name] for name in names if name in row), "1")

  return task._replace(label=label, negative=lambda row: row.get("negative"))


def split_path(
  args: VectorSettings, task: classification.Task, name: str
) -> str:
  """Returns the path of a split's file."""
  if args.texts_file and name == "train" and args.loss == "simcse":
    return args.texts_file
  return classification.find_file(task, args.data_dir, name)


def read_texts(args: VectorSettings, task: classification.Task) -> List[str]:
  """Returns the texts for simcse, without duplicates."""
  path = split_path(args, task, "train")
  if args.texts_file:
    texts = [line for line in tables.read_lines(path) if line.strip()]
  else:
    texts = [
      text
      for example in classification.read_examples(task, path, settings=args)
      for text in (example.text_a, example.text_b)
      if text is not None
    ]
  texts = list(dict.fromkeys(texts))
  if len(texts) < 2:
    raise InputError("%s: fewer than two texts, nothing to compare" % path)
  return texts


def read_pairs(
  args: VectorSettings, task: classification.Task, name: str
) -> List[InputExample]:
  """Reads the pairs of a split.

  Raises:
    InputError: an example is not a pair, or some have no negative.
  """
  examples = classification.read_examples(
    task, split_path(args, task, name), name == "test", args
  )
  with_negative = sum(example.negative is not None for example in examples)
  for example in examples:
    if example.text_b is None:
      raise InputError("%s: no second text" % example.where)
    if with_negative and example.negative is None:
      raise InputError(
        "%s: no negative, but %d other examples have one"
        % (example.where, with_negative)
      )
  return examples


def alike(
  examples: List[InputExample], least: Optional[float]
) -> List[InputExample]:
  """Returns the similar pairs.

  Args:
    examples: pairs with scores.
    least: minimum score; None for scores above the middle, or all pairs if all
      scores are equal.

  Raises:
    InputError: there are none.
  """
  scores = scores_of(examples)
  middle = 0.5 * (scores.min() + scores.max())
  if least is not None:
    chosen = scores >= least
    if not chosen.any():
      raise InputError("no pair has a score of at least %g" % least)
  else:
    chosen = (scores > middle) | (scores.min() == scores.max())
  logging.info(
    "%d of %d pairs are similar: with a score of at least %g",
    chosen.sum(),
    len(examples),
    scores[chosen].min(),
  )
  return [example for example, is_alike in zip(examples, chosen) if is_alike]


def rows_of(example: Any, count: int) -> List[str]:
  """Returns the first `count` texts of an example.

  Args:
    example: str, or classification.InputExample.
    count: 2 or 3. Only training examples have a third text; it is empty and
      unused in the rest.
  """
  if isinstance(example, str):
    return [example] * count
  return [example.text_a, example.text_b, example.negative or ""][:count]


def feature_maker(
  tokenizer: Tokenizer, max_seq_length: int, count: int
) -> Callable[[Any], Dict[str, Any]]:
  """Returns the function that makes the features of an example.

  Args:
    tokenizer: tokenizer.
    max_seq_length: maximum tokens of a text.
    count: texts per example.
  """
  numbers: Dict[str, int] = {}

  def make_features(example):
    texts = rows_of(example, count)
    features = windows.pack_rows(
      [
        tokenization.encode_texts(tokenizer, text, None, max_seq_length)
        for text in texts
      ],
      count,
    )
    label = getattr(example, "label", None)
    return dict(
      features,
      scores=0.0 if label is None else float(label),
      texts=[numbers.setdefault(text, len(numbers)) for text in texts],
    )

  return make_features


def score(
  labels: np.ndarray, cosines: np.ndarray, threshold: Optional[float] = None
) -> Dict[str, float]:
  """Compares cosines [N] with scores [N]; names begin with `eval_`.

  Args:
    labels: scores, or labels 0 and 1.
    cosines: predictions.
    threshold: for the accuracy of labels 0 and 1; None for the best one.
  """
  results = metrics.regression(labels, cosines)
  del results["mse"]
  if set(labels) == {0.0, 1.0}:
    results.update(metrics.separation(labels, cosines))
    if threshold is not None:
      results.update(
        accuracy=float(np.mean((cosines >= threshold) == labels)),
        threshold=threshold,
      )
  return {"eval_" + name: value for name, value in results.items()}


def describe_negatives(
  settings: TrainSettings, workers: Workers, args: VectorSettings
) -> None:
  """Logs how many pairs each pair is compared with in training."""
  batch, device = settings.batch, settings.device
  shares = batch.gradient_accumulation_steps * (
    device.num_tpu_cores if device.use_tpu else device.num_gpus
  )
  whole = ""
  if shares * workers.size > 1:
    whole = ", not of the whole batch of %d" % (
      batch.train_batch_size * workers.size
    )
  logging.info(
    "%s: each pair is compared with those of the same %d%s",
    args.loss,
    batch.train_batch_size // shares,
    whole,
  )
  if batch.train_batch_size // shares < 2:
    raise InputError(
      "one example has nothing to be compared with: increase --train_batch_size"
    )


def read_examples(
  args: VectorSettings, names: List[str], seed: int
) -> Dict[str, List[Any]]:
  """Returns the examples by split.

  Args:
    args: settings of the task.
    names: the splits.
    seed: of --dev_share.

  Raises:
    InputError: a file does not fit the loss or --metric_for_best.
  """
  task = get_task(args)
  examples: Dict[str, List[Any]] = {}
  if args.dev_share and names != ["test"]:  # even if one is read
    if args.loss == "simcse":
      raise InputError(
        "--dev_share: --loss=simcse trains on all texts: give a dev file"
      )
    pairs = read_pairs(args, task, "train")
    classes = len({x.label for x in pairs}) <= 2
    parts = classification.divide(
      pairs,
      {"dev": args.dev_share},
      seed,
      label_of=lambda x: x.label if classes else None,
    )
    examples = {name: parts[name] for name in names if name in parts}
  for name in names:
    if name == "train" and args.loss == "simcse":
      examples[name] = read_texts(args, task)
    elif name not in examples:
      examples[name] = read_pairs(args, task, name)
  if "train" in examples and args.loss == "in_batch":
    examples["train"] = alike(examples["train"], args.positive_score)
  if (
    args.metric_for_best in ("auc", "accuracy")
    and "dev" in examples
    and (set(scores_of(examples["dev"])) != {0.0, 1.0})
  ):
    raise InputError(
      "--metric_for_best=%s needs labels 0 and 1" % args.metric_for_best
    )
  return examples


def scores_of(examples: List[InputExample]) -> np.ndarray:
  """Returns the scores of classification.InputExamples, float64 [N]."""
  return np.array([float(example.label) for example in examples])


def with_dropout(config: AlbertConfig, args: VectorSettings) -> AlbertConfig:
  """Returns the configuration for training.

  Raises:
    InputError: simcse would have no dropout.
  """
  rate = args.dropout
  if rate is None and args.loss == "simcse":
    rate = 0.1
  if rate is not None:
    config = AlbertConfig.from_dict(
      dict(
        config.to_dict(),
        hidden_dropout_prob=rate,
        attention_probs_dropout_prob=rate,
      )
    )
  if args.loss == "simcse" and not config.hidden_dropout_prob:
    raise InputError(
      "--loss=simcse needs --dropout: without it, both vectors "
      "of a text are the same"
    )
  return config


def report_items(rows: List[Any]) -> List[Item]:
  """Returns the examples, or texts, for the report on the data."""
  if isinstance(rows[0], str):
    return [Item((text,), None) for text in rows]
  return classification.items(rows)


class VectorTask(finetuning.Task):
  """Texts whose cosines should match their scores.

  Args:
    args: settings of the task.
    settings: settings of the run.
    folder: folder of the model.
    examples: examples by split.
  """

  def __init__(
    self,
    args: VectorSettings,
    settings: TrainSettings,
    folder: ModelFolder,
    examples: Dict[str, List[Any]],
  ):
    self._settings = settings
    self._examples = examples
    self._dev_share = args.dev_share
    count = 2
    if (
      args.loss == "in_batch"
      and "train" in examples
      and (examples["train"][0].negative is not None)
    ):
      count = 3
    make_features = feature_maker(
      folder.create_tokenizer(), settings.data.max_seq_length, count
    )
    self.head = vectors.Likeness(
      args.loss, args.scale, args.pooling, args.layer
    )
    self.metric = "eval_" + args.metric_for_best
    self.label_specs = [
      FeatureSpec("texts", "int", count),
      FeatureSpec("scores", "float", 0),
    ]
    self.specs = finetuning.with_rows(count)
    self.description = {
      "task_name": args.task_name.lower(),
      "pooling": args.pooling,
      "layer": args.layer,
      "reading": classification.reading(args),
    }
    self.splits = {
      name: finetuning.Split(
        rows,
        make_features,
        has_labels=name == "train",
        paths=[
          split_path(
            args,
            get_task(args),
            "train" if (args.dev_share and name == "dev") else name,
          )
        ],
        items=functools.partial(report_items, rows),
      )
      for name, rows in examples.items()
    }

  def begin(self, output_dir: str) -> None:
    """See finetuning.Task."""
    if self._dev_share and "dev" in self._examples:
      classification.write_part(output_dir, "dev", self._examples["dev"])

  def decode(
    self, name: str, outputs: finetuning.Outputs, checkpoint: Optional[str]
  ) -> Tuple[np.ndarray, Optional[float]]:
    """Returns cosines, float [N], and the threshold from dev, if any."""
    threshold = None
    if name != "dev":
      threshold = finetuning.dev_result(
        "eval_threshold", checkpoint, self._settings
      )
    return np.array(outputs["cosines"], np.float64), threshold

  def targets(self, name: str) -> List[Any]:
    """See finetuning.Task."""
    return [example.label for example in self._examples[name]]

  def score(
    self, name: str, predictions: Any, rows: Sequence[int]
  ) -> Tuple[Dict[str, float], Optional[str]]:
    """See finetuning.Task."""
    cosines, threshold = predictions
    examples = [self._examples[name][i] for i in rows]
    return score(scores_of(examples), cosines[rows], threshold), None

  def write(
    self,
    name: str,
    predictions: Any,
    output_dir: str,
    checkpoint: Optional[str],
  ) -> None:
    """See finetuning.Task."""
    path = os.path.join(output_dir, name + "_results.tsv")
    filesystem.write_table(
      path,
      itertools.chain(
        [("score", "text_a", "text_b")],
        (
          ("%.8f" % cosine, x.text_a, x.text_b)
          for cosine, x in zip(predictions[0], self._examples[name])
        ),
      ),
    )
    logging.info("%s: the cosine of each pair", path)


def main() -> None:
  args = from_flags(VectorSettings)
  settings, workers, folder = finetuning.start(default_length=64)
  trains = settings.run.do_train
  pooling, layer = folder.vector or ("mean", -1)
  args = dataclasses.replace(
    args,
    pooling=args.pooling or pooling,
    layer=layer if args.layer is None else args.layer,
  )
  last = folder.config.num_hidden_layers
  if not -last <= args.layer <= last or args.layer == 0:
    raise InputError(
      "--layer=%d: the model has layers 1 to %d" % (args.layer, last)
    )
  with_dropout(folder.config, args)  # fails early
  examples = read_examples(
    args, finetuning.wanted_splits(settings, workers), settings.run.random_seed
  )
  if trains:
    examples["train"] = finetuning.limited(examples["train"], settings)
    describe_negatives(settings, workers, args)
  finetuning.run(
    VectorTask(args, settings, folder, examples),
    settings,
    workers,
    dataclasses.replace(folder, config=with_dropout(folder.config, args)),
  )


if __name__ == "__main__":
  cli.run(main, SETTINGS)
