"""Fine-tunes ALBERT to choose an answer: RACE, C3, ChID."""

import collections
import os

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags, logging

from albert import errors
from albert.files import checkpoints, filesystem, outputs
from albert.files.records import FeatureSpec
from albert.heads import heads
from albert.tasks import chid, race, submissions
from albert.train import estimators, finetuning

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(finetuning)

# Functions that find and read the files and make the features; the names of
# the submissions for the splits to predict, and the function that words them.
Task = collections.namedtuple(
    "Task", ["find", "read", "feature_maker", "submissions", "word"])
TASKS = {
    "race": Task(race.find_race, race.read_race, race.feature_maker,
                 {"test": "race_predict.json"}, submissions.clue_lines),
    "c3": Task(race.find_c3, race.read_c3, race.feature_maker,
               {"test": "c311_predict.json", "test1.0": "c310_predict.json"},
               submissions.clue_lines),
    "chid": Task(chid.find_files, chid.read, chid.feature_maker,
                 {"test": "chid11_predict.json",
                  "test1.0": "chid10_predict.json"}, submissions.clue_object)}

flags.DEFINE_enum("task_name", None, sorted(TASKS), "Data set.",
                  case_sensitive=False)
flags.DEFINE_string("data_dir", None, "Folder with its files.")
flags.DEFINE_integer("max_seq_length", 512,
                     "Maximum tokens of passage, question and choice.")
flags.DEFINE_integer("max_query_length", 128,
                     "Maximum tokens of question and choice; longer ones keep "
                     "their end. The passage is truncated first.")


def specs(num_choices):
  """Returns the list of FeatureSpec of an example with so many choices."""
  return [spec if spec.length == 0 else spec._replace(rows=num_choices)
          for spec in finetuning.SPECS] + [
              FeatureSpec("num_choices", "int", 0),
              FeatureSpec("label", "int", 0)]


def choice_head_builder(num_choices):
  """Returns the head that scores each choice; see estimators.model_fn_builder.

  An absent choice is never scored above one that is there.
  """

  def head(model, features):
    logits = tf.reshape(heads.classifier_logits(model, 1), [-1, num_choices])
    logits += -1e9 * (1.0 - tf.sequence_mask(
        features["num_choices"], num_choices, tf.float32))
    labels = features["label"]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels, logits=logits)
    hits = tf.equal(tf.argmax(logits, -1, output_type=tf.int32), labels)
    return estimators.HeadOutput(
        losses={"example_loss": tf.reduce_sum(losses)},
        metrics={"example_loss": (losses, tf.ones_like(losses)),
                 "accuracy": (tf.cast(hits, tf.float32), tf.ones_like(losses))},
        predictions={"log_probabilities": tf.nn.log_softmax(logits)})

  return head


def score(examples, chosen, log_probabilities):
  """Returns a dict of results: loss, accuracy, accuracy of each part."""
  answers = np.array([example.answer for example in examples])
  hits = chosen == answers
  loss = -log_probabilities[np.arange(len(answers)), answers].mean()
  results = {"eval_loss": float(loss), "loss": float(loss),
             "eval_accuracy": float(hits.mean())}
  for part in {example.part for example in examples} - {None}:
    results["eval_accuracy_" + part] = float(np.mean(
        [hit for hit, example in zip(hits, examples) if example.part == part]))
  return results


def write_predictions(task, name, examples, chosen, log_probabilities):
  """Writes `NAME_results.tsv` and the submission of a split."""
  filesystem.write_text(
      os.path.join(FLAGS.output_dir, name + "_results.tsv"), "".join(
          "\t".join("%.8f" % p for p in np.exp(row[:len(example.choices)])) +
          "\n" for example, row in zip(examples, log_probabilities)))
  path = os.path.join(FLAGS.output_dir, task.submissions[name])
  filesystem.write_text(path, task.word(
      [example.id for example in examples], chosen.tolist()))
  logging.info("%s: the number of the choice, from 0, for each id", path)


def main():
  errors.require_flags("task_name", "data_dir", "output_dir")
  task = TASKS[FLAGS.task_name]
  workers, model = finetuning.start(FLAGS)
  names = finetuning.wanted_splits(FLAGS, workers, [
      name for name in task.submissions if task.find(FLAGS.data_dir, name)])
  examples = {name: race.read_examples(
      task.find, task.read, FLAGS.data_dir, name)[
          :FLAGS.max_train_examples if name == "train" else None]
              for name in names}
  for name, found in examples.items():
    logging.info("%s: %d questions", name, len(found))
  files = finetuning.prepare_output_dir(
      FLAGS, workers, model, {"task_name": FLAGS.task_name})
  num_choices = max((len(example.choices) for found in examples.values()
                     for example in found), default=1)
  make_features = task.feature_maker(model.tokenizer, FLAGS.max_seq_length,
                                     FLAGS.max_query_length, num_choices)
  runner = finetuning.Runner(
      FLAGS, workers, model.config, choice_head_builder(num_choices),
      specs(num_choices), {name: finetuning.Split(found, make_features)
                           for name, found in examples.items()})

  def predict(name, checkpoint):
    log_probabilities = np.array([
        row["log_probabilities"] for row in runner.predict(name, checkpoint)])
    return (examples[name], race.choose(examples[name], log_probabilities),
            log_probabilities)

  def evaluate(checkpoint):
    return dict(score(*predict("dev", checkpoint)),
                global_step=checkpoints.step_of(checkpoint))

  def write_test(name, checkpoint):
    found, chosen, log_probabilities = predict(name, checkpoint)
    write_predictions(task, name, found, chosen, log_probabilities)
    outputs.write_test_scores(
        FLAGS.output_dir, name, [example.answer for example in found],
        lambda rows: (score([found[i] for i in rows], chosen[rows],
                            log_probabilities[rows]), None))

  runner.run(evaluate, "eval_accuracy", files, write_test)


if __name__ == "__main__":
  errors.run(main)
