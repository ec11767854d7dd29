"""Fine-tunes ALBERT to classify texts or pairs of texts, or to rate them."""

import collections
import os

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags, logging

import tokenization
from albert import errors
from albert.errors import InputError
from albert.files import checkpoints, filesystem, outputs
from albert.files.records import FeatureSpec
from albert.heads import heads
from albert.tasks import classification, labelling, metrics, submissions
from albert.train import estimators, finetuning, training

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(finetuning)

flags.DEFINE_string("task_name", None, "Task; see docs/tasks.md.")
flags.DEFINE_string("data_dir", None,
                    "Folder with the task's files; see docs/tasks.md.")
flags.DEFINE_string("text_a_field", None, "Column or JSON key of the text, "
                    "where it is not the task's own.")
flags.DEFINE_string("text_b_field", None, "Column or JSON key of the second "
                    "text of a pair, where it is not the task's own.")
flags.DEFINE_string("label_field", None, "Column or JSON key of the label, "
                    "where it is not the task's own.")
flags.DEFINE_list("labels", None, "The labels, for a task that takes them from "
                  "the training file or the fine-tuned model.")
flags.DEFINE_bool("regression", False,
                  "Whether the labels of the task are numbers to predict.")
flags.DEFINE_string("class_weights", None,
                    "Weights of the labels in the training loss: `balanced`, "
                    "or `label:weight,...`, where others weigh 1.")
flags.DEFINE_bool("skip_bad_rows", False,
                  "Skip and count the bad rows of the training and dev "
                  "files; in the test file, they are errors.")
flags.DEFINE_enum("metric_for_best", None, metrics.METRICS,
                  "What the best checkpoint is best by; default: as the task "
                  "is judged.")
flags.DEFINE_integer("max_seq_length", 128,
                     "Maximum tokens of an example; longer ones are truncated.")


def classifier_head_builder(num_labels, class_weights=None):
  """Returns the head (see estimators.model_fn_builder) for a number of labels.

  With 0 labels it predicts a number, by squared error. `class_weights`, a list
  of float, are those of the labels in the training loss.
  """

  def head(model, features):
    logits = heads.classifier_logits(model, num_labels or 1)  # [B, L]
    labels = features["label_ids"]
    if num_labels:
      losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
          labels=labels, logits=logits)  # [B]
      hits = tf.equal(tf.argmax(logits, -1, output_type=tf.int32), labels)
      shown = {"accuracy": tf.cast(hits, tf.float32)}
    else:
      losses = tf.square(logits[:, 0] - labels)
      shown = {}
    weighted = losses if class_weights is None else (
        losses * tf.gather(tf.constant(class_weights, tf.float32), labels))
    return estimators.HeadOutput(
        losses={"example_loss": tf.reduce_sum(weighted)},
        metrics={name: (values, tf.ones_like(losses)) for name, values in
                 dict(shown, example_loss=losses).items()},
        predictions={"logits": logits})

  return head


def feature_maker(tokenizer):
  """Returns the function that makes the features of an example."""
  def make_features(example_and_target):
    example, target = example_and_target
    input_ids, segment_ids = tokenization.encode_texts(
        tokenizer, example.text_a, example.text_b, FLAGS.max_seq_length)
    return {"input_ids": input_ids, "input_mask": [1] * len(input_ids),
            "segment_ids": segment_ids, "label_ids": target}

  return make_features


def read_examples(task, names, known_labels):
  """Reads splits, and finds out what the labels are.

  Args:
    task: classification.Task.
    names: list of str, the splits.
    known_labels: list of str, those of the model, or None.

  Returns:
    (dict, name -> list of classification.InputExample; list of labels)
  """
  labels = task.labels
  if labels is None and not FLAGS.do_train:
    labels = known_labels
  task = task._replace(labels=labels)
  examples = {
      name: classification.read_examples(
          task, classification.find_file(task, FLAGS.data_dir, name),
          name in task.submissions, FLAGS.skip_bad_rows)
      for name in {*names, *(["train"] if labels is None else [])}}
  if labels is None:
    labels = sorted({example.label for example in examples["train"]})
  if FLAGS.do_train:
    examples["train"] = examples["train"][:FLAGS.max_train_examples]
  return {name: examples[name] for name in names}, labels


def report_examples(name, examples, labels):
  """Logs how many examples of each label there are."""
  counts = collections.Counter(
      example.label for example in examples if example.label is not None)
  logging.info("%s: %d examples%s", name, len(examples), "; labels: " +
               ", ".join("%s %d" % item for item in counts.most_common(20))
               if labels and counts else "")
  absent = sorted(set(labels) - set(counts))
  if absent and counts:
    logging.warning("%s has no example of %d label(s): %s", name, len(absent),
                    ", ".join(absent))


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


def write_predictions(name, submission, examples, logits, labels):
  """Writes `NAME_results.tsv` and the submission of a split."""
  values = np.exp(log_softmax(logits)) if labels else logits
  path = os.path.join(FLAGS.output_dir, name + "_results.tsv")
  filesystem.write_text(path, "".join(
      "\t".join("%.8f" % value for value in row) + "\n" for row in values))
  logging.info("%s: %s", path, "probabilities of the labels " + ", ".join(
      labels) if labels else "numbers")
  path = os.path.join(FLAGS.output_dir, submission)
  word = submissions.glue_columns if submission.endswith(".tsv") else (
      submissions.clue_lines)
  filesystem.write_text(path, word(
      [example.id for example in examples],
      [labels[row.argmax()] if labels else float(row[0]) for row in logits]))
  logging.info("%s: the label of each id", path)


def check_pairs(model, examples):
  """Returns whether the examples are pairs.

  Args:
    model: predictor.Model.
    examples: dict, name -> list of classification.InputExample.

  Raises:
    InputError: some are, or the model is to predict what it was not trained on.
  """
  pairs = {name: sum(example.text_b is not None for example in found)
           for name, found in examples.items()}
  for name, found in examples.items():
    if any(pairs.values()) and pairs[name] < len(found):
      raise InputError(
          "%s: %d of %d examples have no second text, but others have one" % (
              name, len(found) - pairs[name], len(found)))
  are_pairs = any(pairs.values())
  if not FLAGS.do_train and model.task.get("pairs", are_pairs) != are_pairs:
    raise InputError("%s: the model was trained on %s" % (
        model.files["task.json"],
        "single texts, not on pairs" if are_pairs else
        "pairs, not on single texts"))
  return are_pairs


def check_labels(model, labels):
  """Warns where the checkpoint was fine-tuned for other labels.

  Raises:
    InputError: and there is no training to change that.
  """
  known = model.task.get("labels")
  if known is not None and known != labels:
    message = "%s says that the checkpoint knows the labels %s, not %s" % (
        model.files["task.json"], ", ".join(known) or "(numbers)",
        ", ".join(labels) or "(numbers)")
    if not FLAGS.do_train:
      raise InputError(message)
    logging.warning(message)


def main():
  errors.require_flags("task_name", "data_dir", "output_dir")
  task = classification.get_task(FLAGS.task_name, FLAGS.text_a_field,
                        FLAGS.text_b_field, FLAGS.label_field, FLAGS.labels,
                        FLAGS.regression)
  task_name = FLAGS.task_name.lower()
  workers, model = finetuning.start(FLAGS)
  training.warn_of_idle_flags(FLAGS, [
      (["metric_for_best"], FLAGS.do_train and FLAGS.do_eval,
       "--do_train and --do_eval", False),
      (["class_weights"], FLAGS.do_train, "--do_train", False),
      (["skip_bad_rows"], FLAGS.do_train or FLAGS.do_eval,
       "--do_train or --do_eval", False)])
  examples, labels = read_examples(
      task, finetuning.wanted_splits(
          FLAGS, workers,
          classification.splits_to_predict(task, FLAGS.data_dir)),
      model.task.get("labels"))
  metric = FLAGS.metric_for_best or task.metric
  if (metric in ("pearson", "spearman")) != task.is_regression or (
      metric == "f1" and len(labels) != 2):
    raise InputError("--metric_for_best=%s does not go with %s" % (
        metric, "numbers" if task.is_regression else
        "%d labels" % len(labels)))
  are_pairs = check_pairs(model, examples)
  check_labels(model, labels)
  targets = {name: labelling.label_ids(found, labels, name)
             for name, found in examples.items()}
  for name, found in examples.items():
    report_examples(name, found, labels)
  class_weights = None
  if FLAGS.class_weights and FLAGS.do_train:
    class_weights = labelling.class_weights(
        FLAGS.class_weights, labels, targets["train"])
    logging.info("weights of the labels: %s", ", ".join(
        "%s %.4g" % pair for pair in zip(labels, class_weights)))
  files = finetuning.prepare_output_dir(
      FLAGS, workers, model,
      {"task_name": task_name, "labels": labels, "pairs": are_pairs})
  make_features = feature_maker(model.tokenizer)
  runner = finetuning.Runner(
      FLAGS, workers, model.config,
      classifier_head_builder(len(labels), class_weights),
      finetuning.SPECS + (
          FeatureSpec("label_ids", "int" if labels else "float", 0),),
      {name: finetuning.Split(list(zip(found, targets[name])), make_features)
       for name, found in examples.items()})

  def predict(name, checkpoint):
    return np.array([row["logits"] for row in runner.predict(name, checkpoint)])

  def evaluate(checkpoint):
    results, report = score(predict("dev", checkpoint), targets["dev"], labels)
    if report:
      filesystem.write_text(os.path.join(FLAGS.output_dir, "eval_report.txt"),
                            report)
    return dict(results, global_step=checkpoints.step_of(checkpoint))

  def write_test(name, checkpoint):
    logits = predict(name, checkpoint)
    write_predictions(name, task.submissions[name].format(task_name),
                      examples[name], logits, labels)
    outputs.write_test_scores(
        FLAGS.output_dir, name, [example.label for example in examples[name]],
        lambda rows: score(logits[rows], np.array(targets[name])[rows], labels))

  runner.run(evaluate, "eval_" + metric,
             files + ["eval_report.txt"] * bool(labels), write_test)


if __name__ == "__main__":
  errors.run(main)
