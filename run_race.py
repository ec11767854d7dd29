"""Fine-tunes ALBERT to choose an answer: RACE, C3."""

import json
import os

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags, logging

from tasks.race import NUM_CHOICES, feature_maker, read_examples
from train import estimators, finetuning, heads
from util import checkpoints, errors, filesystem
from util.records import FeatureSpec

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(finetuning)
flags.DEFINE_enum("task_name", None, ["race", "c3"], "Data set.",
                  case_sensitive=False)
flags.DEFINE_string("data_dir", None, "Folder with its files.")
flags.DEFINE_integer("max_seq_length", 512,
                     "Maximum tokens of passage, question and choice.")
flags.DEFINE_integer("max_query_length", 128,
                     "Maximum tokens of question and choice; longer ones keep "
                     "their end. The passage is truncated first.")

_SPECS = tuple(spec if spec.length == 0 else spec._replace(rows=NUM_CHOICES)
               for spec in finetuning.SPECS) + (
    FeatureSpec("num_choices", "int", 0), FeatureSpec("label", "int", 0))


def choice_head(model, features):
  """Scores each choice; see estimators.model_fn_builder.

  An absent choice is never scored above one that is there.
  """
  logits = tf.reshape(heads.classifier_logits(model, 1), [-1, NUM_CHOICES])
  logits += -1e9 * (1.0 - tf.sequence_mask(
      features["num_choices"], NUM_CHOICES, tf.float32))
  labels = features["label"]
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=labels, logits=logits)
  hits = tf.equal(tf.argmax(logits, -1, output_type=tf.int32), labels)
  return estimators.HeadOutput(
      losses={"example_loss": tf.reduce_sum(losses)},
      metrics={"example_loss": (losses, tf.ones_like(losses)),
               "accuracy": (tf.cast(hits, tf.float32), tf.ones_like(losses))},
      predictions={"log_probabilities": tf.nn.log_softmax(logits)})


def score(examples, log_probabilities):
  """Returns a dict of results: loss, accuracy, accuracy of each part."""
  answers = np.array([example.answer for example in examples])
  hits = log_probabilities.argmax(-1) == answers
  loss = -log_probabilities[np.arange(len(answers)), answers].mean()
  results = {"eval_loss": float(loss), "loss": float(loss),
             "eval_accuracy": float(hits.mean())}
  for part in {example.part for example in examples}:
    results["eval_accuracy_" + part] = float(np.mean(
        [hit for hit, example in zip(hits, examples) if example.part == part]))
  return results


def write_predictions(examples, log_probabilities):
  """Writes `test_results.tsv` and `TASK_predict.json`."""
  filesystem.write_text(
      os.path.join(FLAGS.output_dir, "test_results.tsv"), "".join(
          "\t".join("%.8f" % p for p in np.exp(row[:len(example.choices)])) +
          "\n" for example, row in zip(examples, log_probabilities)))
  path = os.path.join(FLAGS.output_dir, FLAGS.task_name + "_predict.json")
  filesystem.write_text(path, "".join(
      json.dumps({"id": example.id, "label": int(row.argmax())}) + "\n"
      for example, row in zip(examples, log_probabilities)))
  logging.info("%s: the number of the choice, from 0, for each id", path)


def main():
  errors.require_flags("task_name", "data_dir", "output_dir")
  workers, model = finetuning.start(FLAGS)
  make_features = feature_maker(model.tokenizer, FLAGS.max_seq_length,
                                FLAGS.max_query_length)
  splits = {name: finetuning.Split(
      read_examples(FLAGS.task_name, FLAGS.data_dir, name)[
          :FLAGS.max_train_examples if name == "train" else None],
      make_features) for name in finetuning.wanted_splits(FLAGS, workers)}
  for name, split in splits.items():
    logging.info("%s: %d questions", name, len(split.examples))
  files = finetuning.prepare_output_dir(
      FLAGS, workers, model, {"task_name": FLAGS.task_name})
  runner = finetuning.Runner(
      FLAGS, workers, model.config, choice_head, _SPECS, splits)

  def predict(name, checkpoint):
    return np.array([row["log_probabilities"]
                     for row in runner.predict(name, checkpoint)])

  def evaluate(checkpoint):
    return dict(score(splits["dev"].examples, predict("dev", checkpoint)),
                global_step=checkpoints.step_of(checkpoint))

  def write_test(checkpoint):
    write_predictions(splits["test"].examples, predict("test", checkpoint))

  runner.run(evaluate, "eval_accuracy", files, write_test)


if __name__ == "__main__":
  errors.run(main)
