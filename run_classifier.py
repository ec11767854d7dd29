"""Fine-tunes ALBERT to classify texts or pairs of texts, or to rate them."""

import collections
import json
import os
import random

import numpy as np
import tensorflow.compat.v1 as tf
import tqdm
from absl import flags, logging

import checkpoints
import errors
import filesystem
import finetuning
import heads
import metrics
import tasks
import tokenization
import training
from errors import InputError
from records import FeatureSpec

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(finetuning)

flags.DEFINE_string("task_name", None, "Task; see tasks.py.")
flags.DEFINE_string("data_dir", None, "Folder with the task's files.")
flags.DEFINE_string("text_a_field", None, "Column or JSON key of the text, "
                    "where it is not the task's own; so for the next two.")
flags.DEFINE_string("text_b_field", None, "Of the second text of a pair.")
flags.DEFINE_string("label_field", None, "Of the label.")
flags.DEFINE_list("labels", None, "The labels, for a task that takes them from "
                  "the training file.")
flags.DEFINE_bool("skip_bad_rows", False,
                  "Leave out bad rows of the files and count them.")
flags.DEFINE_enum("metric_for_best", None, metrics.METRICS,
                  "What the best checkpoint is best by; default: as the task "
                  "is judged.")
flags.DEFINE_integer("max_seq_length", 128,
                     "Most tokens of an example; longer ones are truncated.")
flags.DEFINE_integer("max_train_examples", None,
                     "Use only so many examples, the first of the file.")


def classifier_head_builder(num_labels):
  """Returns the head (see training.model_fn_builder) for so many labels.

  With 0 labels it predicts a number, by squared error.
  """

  def head(model, features):
    logits = heads.classifier_logits(model, num_labels or 1)  # [B, L]
    labels = features["label_ids"]
    weights = tf.cast(features["is_real_example"], tf.float32)
    if num_labels:
      losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
          labels=labels, logits=logits)  # [B]
      hits = tf.equal(tf.argmax(logits, -1, output_type=tf.int32), labels)
      shown = {"accuracy": (tf.cast(hits, tf.float32), weights)}
    else:
      losses = tf.square(logits[:, 0] - labels)
      shown = {}
    return training.HeadOutput(
        losses={"example_loss": tf.reduce_sum(losses * weights)},
        metrics=dict(shown, example_loss=(losses, weights)),
        predictions={"logits": logits})

  return head


class Split:
  """The examples of a split, as ids.

  Attributes:
    examples: list of tasks.InputExample.
    targets: list of int or float, what their labels stand for.
    features: list of dict, what is written for each.
  """

  def __init__(self, name, examples, labels, tokenizer):
    self.examples = examples
    self.targets = tasks.label_ids(examples, labels, name)
    self.features = []
    truncated = 0
    for example, target in zip(
        tqdm.tqdm(examples, name, disable=None), self.targets):
      ids = [tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))
             for text in (example.text_a, example.text_b) if text is not None]
      input_ids, segment_ids = tokenization.pack_pair(
          tokenizer, ids[0], ids[1] if len(ids) > 1 else None,
          FLAGS.max_seq_length)
      truncated += 1 + sum(len(x) + 1 for x in ids) > len(input_ids)
      self.features.append({
          "input_ids": input_ids, "input_mask": [1] * len(input_ids),
          "segment_ids": segment_ids, "label_ids": target,
          "is_real_example": 1})
    counts = collections.Counter(
        example.label for example in examples if example.label is not None)
    logging.info(
        "%s: %d examples, %.1f%% of them truncated to %d tokens%s", name,
        len(examples), 100.0 * truncated / len(examples), FLAGS.max_seq_length,
        "; labels: " + ", ".join(
            "%s %d" % item for item in counts.most_common(20)) if (
                labels and counts) else "")


def read_splits(task, tokenizer):
  """Reads what is asked for: (dict of Split, labels)."""
  examples = {
      name: tasks.read_examples(
          task, tasks.find_file(task, FLAGS.data_dir, name), name == "test",
          FLAGS.skip_bad_rows)
      for name, wanted in (
          ("train", FLAGS.do_train or task.labels is None),
          ("dev", FLAGS.do_eval), ("test", FLAGS.do_predict)) if wanted}
  labels = task.labels
  if labels is None:
    labels = sorted({example.label for example in examples["train"]})
  for name in {"train", "dev"} & set(examples):
    absent = set(labels) - {example.label for example in examples[name]}
    if absent:
      logging.warning("%s has no example of %d label(s): %s", name,
                      len(absent), ", ".join(sorted(absent)))
  if not FLAGS.do_train:
    examples.pop("train", None)
  else:
    examples["train"] = examples["train"][:FLAGS.max_train_examples]
    # Labels may drift from a file's beginning to its end, further than a
    # shuffle buffer sees.
    random.Random(FLAGS.random_seed).shuffle(examples["train"])
  return {name: Split(name, found, labels, tokenizer)
          for name, found in examples.items()}, labels


def log_softmax(logits):
  """Returns log-probabilities, float64 [N, L]."""
  logits = logits.astype(np.float64)
  logits -= logits.max(-1, keepdims=True)
  return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def score(logits, targets, labels):
  """Returns (dict of results, report or None) of a split's predictions."""
  targets = np.array(targets)
  if not labels:
    results = metrics.regression(targets, logits[:, 0])
    loss, report = np.mean((logits[:, 0] - targets)**2), None
  else:
    results, confusion = metrics.classification(
        targets, logits.argmax(-1), len(labels))
    loss = -np.mean(log_softmax(logits)[np.arange(len(targets)), targets])
    report = metrics.report(confusion, labels)
  results = {"eval_" + name: value for name, value in results.items()}
  return dict(results, loss=float(loss), eval_loss=float(loss)), report


def write_predictions(task_name, examples, logits, labels):
  """Writes `test_results.tsv` and `TASK_predict.json`, CLUE's submission."""
  values = np.exp(log_softmax(logits)) if labels else logits
  path = os.path.join(FLAGS.output_dir, "test_results.tsv")
  filesystem.write_text(path, "".join(
      "\t".join("%.8f" % value for value in row) + "\n" for row in values))
  logging.info("%s: %s", path, "probabilities of the labels " + ", ".join(
      labels) if labels else "numbers")
  path = os.path.join(FLAGS.output_dir, task_name + "_predict.json")
  filesystem.write_text(path, "".join(
      json.dumps({"id": example.id, "label": labels[row.argmax()] if labels
                  else float(row[0])}, ensure_ascii=False) + "\n"
      for example, row in zip(examples, logits)))
  logging.info("%s: the label of each id", path)


def check_labels_of_checkpoint(labels):
  """Tells where --init_checkpoint was fine-tuned for other labels.

  Raises:
    InputError: and there is no training to change that.
  """
  path = checkpoints.path_beside(FLAGS.init_checkpoint, ["task.json"])
  if not path:
    return
  known = filesystem.read_json(path).get("labels")
  if known is not None and known != labels:
    message = "%s says that the checkpoint knows the labels %s, not %s" % (
        path, ", ".join(known), ", ".join(labels))
    if not FLAGS.do_train:
      raise InputError(message)
    logging.warning(message)


def main():
  errors.require_flags("task_name", "data_dir", "output_dir")
  task = tasks.get_task(FLAGS.task_name, FLAGS.text_a_field,
                        FLAGS.text_b_field, FLAGS.label_field, FLAGS.labels)
  task_name = FLAGS.task_name.lower()
  workers, tokenizer, config = finetuning.start(FLAGS)
  splits, labels = read_splits(task, tokenizer)
  metric = FLAGS.metric_for_best or task.metric
  if (metric in ("pearson", "spearman")) != task.is_regression or (
      metric == "f1" and len(labels) != 2):
    raise InputError("--metric_for_best=%s does not go with %s" % (
        metric, "numbers" if task.is_regression else
        "%d labels" % len(labels)))
  check_labels_of_checkpoint(labels)
  files = finetuning.prepare_output_dir(
      FLAGS, workers, config, {"task_name": task_name, "labels": labels})
  runner = finetuning.Runner(
      FLAGS, workers, config, classifier_head_builder(len(labels)),
      finetuning.SPECS + (
          FeatureSpec("label_ids", "int" if labels else "float", 0),),
      len(splits["train"].examples) if FLAGS.do_train else None)

  def predict(name, checkpoint):
    return np.array([row["logits"] for row in runner.predict(
        name, splits[name].features, checkpoint)])

  def evaluate(checkpoint):
    results, report = score(predict("dev", checkpoint), splits["dev"].targets,
                            labels)
    if report:
      filesystem.write_text(os.path.join(FLAGS.output_dir, "eval_report.txt"),
                         report)
    return dict(results, global_step=checkpoints.step_of(checkpoint))

  def write_test(checkpoint):
    write_predictions(task_name, splits["test"].examples,
                      predict("test", checkpoint), labels)

  runner.run(splits["train"].features if FLAGS.do_train else [], evaluate,
             "eval_" + metric, files + ["eval_report.txt"] * bool(labels),
             write_test)


if __name__ == "__main__":
  errors.run(main)
