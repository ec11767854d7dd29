r"""Trains ALBERT to make vectors whose cosine tells how alike two texts are.

    python run_sentence_vectors.py --loss=cosent --task_name=afqmc \
      --data_dir=data/afqmc --init_checkpoint=albert_tiny_starter \
      --output_dir=output/vectors --do_train --do_eval
    python run_sentence_vectors.py --loss=simcse --texts_file=texts.txt \
      --init_checkpoint=albert_tiny_starter --output_dir=output/vectors \
      --do_train

What is learnt from:
  cosent    pairs with scores, or with labels 0 and 1: a pair with a greater
            score gets a greater cosine than one with a lesser score
  in_batch  pairs that are alike: those of the upper half of the scores, or all
            where there are none; each second text against those of the other
            pairs, and against a column `negative`
  simcse    texts alone: each with itself, by different dropout, against others
The dev file has pairs with scores or labels. similarity.py, predict.py,
extract_features.py, export_model.py and convert_to_pytorch.py take the folder
`best`.
"""

import dataclasses
import os

import numpy as np
from absl import logging

import tokenization
from albert import cli
from albert.errors import InputError
from albert.files import filesystem
from albert.files.records import FeatureSpec
from albert.heads import vectors
from albert.model.config import AlbertConfig
from albert.settings import NEEDED, USUAL, from_flags, setting
from albert.tasks import classification, metrics, windows
from albert.train import finetuning
from albert.train.settings import FINE_TUNING


@dataclasses.dataclass(frozen=True)
class VectorSettings:
  """Which texts, and how their vectors are trained."""
  loss: str = setting("cosent", "What is learnt from.", NEEDED,
                      choices=vectors.LOSSES)
  task_name: str = setting(
      "tsv", "Task of pairs, whose files --data_dir has; see docs/tasks.md.",
      NEEDED)
  data_dir: str = setting(None, "Folder with the task's files.", NEEDED,
      required="do_eval or do_predict or not texts_file")
  texts_file: str = setting(
      None, "--loss=simcse: texts, one a line; default: those of the training "
      "file.", USUAL, needs="do_train and loss=simcse")
  text_a_field: str = setting(
      None, "Column or JSON key of the text, where it is not the task's own.")
  text_b_field: str = setting(
      None, "Column or JSON key of the second text, where it is not the task's "
      "own.")
  label_field: str = setting(
      None, "Column or JSON key of the score, where it is not the task's own.")
  pooling: str = setting(
      None, "The vector of a text: the mean of its tokens' vectors, [CLS] "
      "and [SEP] included, or the vector of [CLS]. Default: as the model was "
      "trained, or else the mean.", USUAL, choices=["mean", "cls"])
  layer: int = setting(
      None, "Of which layer: 1 for the first, -1 for the last. Default: as the "
      "model was trained, or else the last.")
  scale: float = setting(
      20.0, "What cosines are multiplied by in the loss: 1 / temperature.")
  positive_score: float = setting(
      None, "--loss=in_batch: the least score of pairs that are alike; "
      "default: what is above the middle of all scores.",
      needs="do_train and loss=in_batch")
  dropout: float = setting(
      None, "Dropout in training; default: 0.1 with --loss=simcse, else as the "
      "model has it.", least=0.0, most=0.9)
  metric_for_best: str = setting(
      "spearman", "What the best checkpoint is best by; auc and accuracy are "
      "of labels 0 and 1.",
      choices=["spearman", "pearson", "auc", "accuracy"],
      needs="do_train and do_eval")


SETTINGS = (VectorSettings, *FINE_TUNING)


def get_task(args):
  """Returns the classification.Task, whose labels are numbers.

  Pairs of in-batch training need no labels: those without are alike.
  """
  task = classification.get_task(
      args.task_name, args.text_a_field, args.text_b_field, args.label_field,
      regression=True)
  if args.loss != "in_batch":
    return task
  names = [task.label] if isinstance(task.label, str) else task.label
  return task._replace(
      label=lambda row: next((row[name] for name in names if name in row), "1"),
      negative=lambda row: row.get("negative"))


def split_path(args, task, name):
  """Returns the path of the file that a split is read from."""
  return args.texts_file if (
      args.texts_file and name == "train" and args.loss == "simcse") else (
          classification.find_file(task, args.data_dir, name))


def read_texts(args, task):
  """Returns the texts to train on without scores, each once, a list of str."""
  path = split_path(args, task, "train")
  if args.texts_file:
    texts = [line for line in filesystem.read_lines(path) if line.strip()]
  else:
    texts = [text for example in classification.read_examples(task, path)
             for text in (example.text_a, example.text_b)]
  texts = list(dict.fromkeys(texts))
  if len(texts) < 2:
    raise InputError("%s: fewer than two texts, which are compared with one "
                     "another" % path)
  return texts


def read_pairs(args, task, name):
  """Returns the examples of a split, all of them pairs.

  Raises:
    InputError: one is not, or some have no negative.
  """
  examples = classification.read_examples(
      task, split_path(args, task, name), is_test=name == "test")
  with_negative = sum(example.negative is not None for example in examples)
  for example in examples:
    if example.text_b is None:
      raise InputError("%s: there is no second text" % example.where)
    if with_negative and example.negative is None:
      raise InputError("%s: there is no negative, but %d others have one" % (
          example.where, with_negative))
  return examples


def alike(examples, least):
  """Returns the examples whose scores are those of texts that are alike.

  Args:
    examples: list of classification.InputExample.
    least: float, or None for more than the middle, or all if all are the same.

  Raises:
    InputError: there are none.
  """
  scores = scores_of(examples)
  middle = 0.5 * (scores.min() + scores.max())
  chosen = scores >= least if least is not None else (
      (scores > middle) | (scores.min() == scores.max()))
  if not chosen.any():
    raise InputError("no pair has a score of at least %g" % least)
  logging.info("%d of %d pairs are alike: with a score of %g or more",
               chosen.sum(), len(examples), scores[chosen].min())
  return [example for example, is_alike in zip(examples, chosen) if is_alike]


def rows_of(example, count):
  """Returns the texts of an example, `count` of them.

  Args:
    example: str, or classification.InputExample.
    count: int, 2 or 3. Only training examples have a third text; what others
      have in its place is not looked at.
  """
  if isinstance(example, str):
    return [example] * count
  return [example.text_a, example.text_b, example.negative or ""][:count]


def feature_maker(tokenizer, max_seq_length, count):
  """Returns the function that makes the features of an example.

  Args:
    tokenizer: of tokenization.py.
    max_seq_length: int.
    count: int, texts of an example.
  """
  numbers = {}

  def make_features(example):
    texts = rows_of(example, count)
    features = windows.pack_rows([tokenization.encode_texts(
        tokenizer, text, None, max_seq_length) for text in texts], count)
    label = getattr(example, "label", None)
    return dict(
        features, scores=0.0 if label is None else float(label),
        texts=[numbers.setdefault(text, len(numbers)) for text in texts])

  return make_features


def score(labels, cosines, threshold=None):
  """Compares cosines with scores: dict of results, `eval_` before their names.

  Args:
    labels, cosines: float [N].
    threshold: float, what the accuracy of labels 0 and 1 is taken at, or None
      for where it is best.
  """
  results = metrics.regression(labels, cosines)
  del results["mse"]
  if set(labels) == {0.0, 1.0}:
    results.update(metrics.separation(labels, cosines))
    if threshold is not None:
      results.update(accuracy=float(np.mean((cosines >= threshold) == labels)),
                     threshold=threshold)
  return {"eval_" + name: value for name, value in results.items()}


def describe_negatives(settings, workers, args):
  """Logs what each pair is compared with in training."""
  batch, device = settings.batch, settings.device
  shares = batch.gradient_accumulation_steps * (
      device.num_tpu_cores if device.use_tpu else device.num_gpus)
  logging.info(
      "%s: each pair is compared with those of the same %d%s", args.loss,
      batch.train_batch_size // shares,
      ", not of the whole batch of %d" % (
          batch.train_batch_size * workers.size) * (
              shares * workers.size > 1))
  if batch.train_batch_size // shares < 2:
    raise InputError("one example at a time has nothing to be compared with: "
                     "give a greater --train_batch_size")


def read_examples(args, names):
  """Returns the examples of splits: dict, name -> list.

  Args:
    args: VectorSettings.
    names: list of str.

  Raises:
    InputError: a file does not go with the loss, or with --metric_for_best.
  """
  task = get_task(args)
  examples = {
      name: read_texts(args, task) if name == "train" and args.loss == "simcse"
      else read_pairs(args, task, name) for name in names}
  if "train" in examples and args.loss == "in_batch":
    examples["train"] = alike(examples["train"], args.positive_score)
  if args.metric_for_best in ("auc", "accuracy") and "dev" in examples and (
      set(scores_of(examples["dev"])) != {0.0, 1.0}):
    raise InputError("--metric_for_best=%s needs labels 0 and 1" %
                     args.metric_for_best)
  return examples


def scores_of(examples):
  """Returns the scores of classification.InputExamples, float64 [N]."""
  return np.array([float(example.label) for example in examples])


def with_dropout(config, args):
  """Returns the AlbertConfig to train with.

  Raises:
    InputError: simcse would have no dropout.
  """
  rate = args.dropout
  if rate is None and args.loss == "simcse":
    rate = 0.1
  if rate is not None:
    config = AlbertConfig.from_dict(dict(
        config.to_dict(), hidden_dropout_prob=rate,
        attention_probs_dropout_prob=rate))
  if args.loss == "simcse" and not config.hidden_dropout_prob:
    raise InputError("--loss=simcse needs --dropout, which makes two vectors "
                     "of a text different")
  return config


class VectorTask(finetuning.Task):
  """Texts whose vectors' cosines are to be as their scores.

  Args:
    args: VectorSettings.
    settings: TrainSettings.
    folder: ModelFolder.
    examples: dict, name of a split -> list of classification.InputExample.
  """

  def __init__(self, args, settings, folder, examples):
    self._settings = settings
    self._examples = examples
    count = 2 + (args.loss == "in_batch" and "train" in examples and
                 examples["train"][0].negative is not None)
    make_features = feature_maker(
        folder.create_tokenizer(), settings.data.max_seq_length, count)
    self.head = vectors.Likeness(
        args.loss, args.scale, args.pooling, args.layer)
    self.metric = "eval_" + args.metric_for_best
    self.label_specs = [FeatureSpec("texts", "int", count),
                        FeatureSpec("scores", "float", 0)]
    self.specs = finetuning.with_rows(count)
    self.description = {"task_name": args.task_name.lower(),
                        "pooling": args.pooling, "layer": args.layer}
    self.splits = {
        name: finetuning.Split(
            rows, make_features, has_labels=name == "train",
            paths=[split_path(args, get_task(args), name)])
        for name, rows in examples.items()}

  def decode(self, name, rows, checkpoint):
    """Returns (cosines, float [N]; the threshold from dev, or None)."""
    threshold = None if name == "dev" else finetuning.dev_result(
        "eval_threshold", checkpoint, self._settings)
    return np.array([row["cosines"] for row in rows], np.float64), threshold

  def targets(self, name):
    return [example.label for example in self._examples[name]]

  def score(self, name, predictions, rows):
    cosines, threshold = predictions
    examples = [self._examples[name][i] for i in rows]
    return score(scores_of(examples), cosines[rows], threshold), None

  def write(self, name, predictions, output_dir, checkpoint):
    path = os.path.join(output_dir, name + "_results.tsv")
    filesystem.write_text(path, "score\ttext_a\ttext_b\n" + "".join(
        "%.8f\t%s\t%s\n" % (cosine, *[
            " ".join(text.split()) for text in (x.text_a, x.text_b)])
        for cosine, x in zip(predictions[0], self._examples[name])))
    logging.info("%s: the cosine of each pair", path)


def main():
  args = from_flags(VectorSettings)
  settings, workers, folder = finetuning.start(default_length=64)
  trains = settings.run.do_train
  pooling, layer = folder.vector or ("mean", -1)
  args = dataclasses.replace(
      args, pooling=args.pooling or pooling,
      layer=layer if args.layer is None else args.layer)
  last = folder.config.num_hidden_layers
  if not -last <= args.layer <= last or args.layer == 0:
    raise InputError("--layer=%d: the model has layers 1 to %d" % (
        args.layer, last))
  with_dropout(folder.config, args)  # its error comes first
  examples = read_examples(args, finetuning.wanted_splits(settings, workers))
  if trains:
    examples["train"] = finetuning.limited(examples["train"], settings)
    describe_negatives(settings, workers, args)
  for name, rows in examples.items():
    logging.info("%s: %d examples", name, len(rows))
  finetuning.run(
      VectorTask(args, settings, folder, examples), settings, workers,
      dataclasses.replace(folder, config=with_dropout(folder.config, args)))


if __name__ == "__main__":
  cli.run(main, SETTINGS)
