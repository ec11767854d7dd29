"""Fine-tunes ALBERT to choose an answer: RACE, C3."""

import collections
import functools
import glob
import json
import os

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags, logging

import errors
import finetuning
import heads
import outputs
import tokenization
import training
from errors import InputError
from records import FeatureSpec

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(finetuning)
flags.DEFINE_enum("task_name", None, ["race", "c3"], "Data set.",
                  case_sensitive=False)
flags.DEFINE_string("data_dir", None, "Folder with its files.")
flags.DEFINE_integer("max_seq_length", 512,
                     "Most tokens of passage, question and choice.")
flags.DEFINE_integer("max_query_length", 128,
                     "Most tokens of question and choice; of more, the end is "
                     "kept, and the passage gives way in any case.")
flags.DEFINE_integer("max_train_examples", None,
                     "Use only so many questions, the first of the files.")

NUM_CHOICES = 4

# A question. `part` is what is reported apart: RACE's middle and high, C3's d
# and m. `answer` is the number of the right choice, None where a file does not
# say.
Example = collections.namedtuple(
    "Example", ["id", "part", "passage", "question", "choices", "answer"])

_SPECS = tuple(spec if spec.length == 0 else spec._replace(rows=NUM_CHOICES)
               for spec in finetuning.SPECS) + (
    FeatureSpec("num_choices", "int", 0), FeatureSpec("label", "int", 0))


def read_race(data_dir, split):
  """Reads RACE: `split`/{middle,high}/*.txt, each one article in JSON."""
  for part in ("middle", "high"):
    for path in sorted(glob.glob(os.path.join(data_dir, split, part, "*.txt"))):
      article = _load(path)
      try:
        letters = article.get("answers") or [None] * len(article["questions"])
        for number, (question, choices, letter) in enumerate(zip(
            article["questions"], article["options"], letters)):
          yield path, Example(
              "%s-%d" % (article.get("id", os.path.basename(path)), number),
              part, article["article"], question, choices,
              None if letter is None else "ABCD".index(letter))
      except (KeyError, TypeError, ValueError) as error:
        raise InputError("%s: not RACE's layout: %s" % (path, error)) from error


def read_c3(data_dir, split):
  """Reads C3: {d,m}-SPLIT.json or c3-{d,m}-SPLIT.json."""
  for part in ("d", "m"):
    for name in ("%s-%s.json" % (part, split), "c3-%s-%s.json" % (part, split)):
      path = os.path.join(data_dir, name)
      if not os.path.exists(path):
        continue
      try:
        for lines, questions, name in _load(path):
          for number, row in enumerate(questions):
            answer = row.get("answer")
            yield path, Example(
                row.get("id", "%s-%d" % (name, number)), part,
                "\n".join(lines), row["question"], row["choice"],
                row["choice"].index(answer) if answer else None)
      except (KeyError, TypeError, ValueError) as error:
        raise InputError("%s: not C3's layout: %s" % (path, error)) from error


def _load(path):
  try:
    with open(path, encoding="utf-8-sig") as reader:
      return json.load(reader)
  except ValueError as error:
    raise InputError("%s: not JSON (%s)" % (path, error)) from error


READERS = {"race": read_race, "c3": read_c3}


def read_examples(task_name, data_dir, split):
  """Reads a split.

  Returns:
    list of Example, at least one.

  Raises:
    InputError: there are no files, or one of them is malformed.
  """
  examples = []
  for path, example in READERS[task_name](data_dir, split):
    if not 2 <= len(example.choices) <= NUM_CHOICES:
      raise InputError("%s: question %s has %d choices, not 2 to %d" % (
          path, example.id, len(example.choices), NUM_CHOICES))
    if example.answer is None and split != "test":
      raise InputError("%s: question %s has no answer" % (path, example.id))
    examples.append(example)
  if not examples:
    raise InputError("%s: no questions of %s for %s there: change --data_dir"
                     % (data_dir, task_name, split))
  return examples


def make_features(examples, tokenizer, max_seq_length, max_query_length):
  """Returns what is written for each question, a list of dict."""
  def tokenize(text):
    return tokenizer.convert_tokens_to_ids(tokenizer.tokenize_plain(text))

  cached = functools.lru_cache(maxsize=16)(tokenize)
  features = []
  for example in examples:
    packed = []
    for choice in example.choices:
      # RACE marks the place of the answer in a sentence.
      query = tokenize(
          example.question.replace("_", " %s " % choice)
          if "_" in example.question else
          "%s %s" % (example.question, choice))[-max_query_length:]
      room = max(0, max_seq_length - len(query) - 3)
      packed.append(tokenization.pack_pair(
          tokenizer, cached(example.passage)[:room], query, max_seq_length))
    length = max(len(ids) for ids, _ in packed)
    packed += [([], [])] * (NUM_CHOICES - len(packed))  # absent choices
    rows = {name: [] for name in ("input_ids", "input_mask", "segment_ids")}
    for ids, segments in packed:
      padding = [0] * (length - len(ids))
      rows["input_ids"] += ids + padding
      rows["input_mask"] += [1] * len(ids) + padding
      rows["segment_ids"] += segments + padding
    features.append(dict(
        rows, num_choices=len(example.choices), label=example.answer or 0,
        is_real_example=1))
  return features


def choice_head(model, features):
  """Scores each choice; see training.model_fn_builder.

  An absent choice is never scored above one that is there.
  """
  logits = tf.reshape(heads.classifier_logits(model, 1), [-1, NUM_CHOICES])
  logits += -1e9 * (1.0 - tf.sequence_mask(
      features["num_choices"], NUM_CHOICES, tf.float32))
  labels = features["label"]
  weights = tf.cast(features["is_real_example"], tf.float32)
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=labels, logits=logits)
  hits = tf.equal(tf.argmax(logits, -1, output_type=tf.int32), labels)
  return training.HeadOutput(
      losses={"example_loss": tf.reduce_sum(losses * weights)},
      metrics={"example_loss": (losses, weights),
               "accuracy": (tf.cast(hits, tf.float32), weights)},
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
  outputs.write_text(
      os.path.join(FLAGS.output_dir, "test_results.tsv"), "".join(
          "\t".join("%.8f" % p for p in np.exp(row[:len(example.choices)])) +
          "\n" for example, row in zip(examples, log_probabilities)))
  path = os.path.join(FLAGS.output_dir, FLAGS.task_name + "_predict.json")
  outputs.write_text(path, "".join(
      json.dumps({"id": example.id, "label": int(row.argmax())}) + "\n"
      for example, row in zip(examples, log_probabilities)))
  logging.info("%s: the number of the choice, from 0, for each id", path)


def main():
  errors.require_flags("task_name", "data_dir", "output_dir")
  workers, tokenizer, config = finetuning.start(FLAGS)
  examples = {split: read_examples(FLAGS.task_name, FLAGS.data_dir, split)
              for split, wanted in (
                  ("train", FLAGS.do_train), ("dev", FLAGS.do_eval),
                  ("test", FLAGS.do_predict)) if wanted}
  if FLAGS.do_train:
    examples["train"] = examples["train"][:FLAGS.max_train_examples]
  features = {split: make_features(found, tokenizer, FLAGS.max_seq_length,
                                   FLAGS.max_query_length)
              for split, found in examples.items()}
  for split, found in examples.items():
    logging.info("%s: %d questions", split, len(found))
  files = finetuning.prepare_output_dir(
      FLAGS, workers, config, {"task_name": FLAGS.task_name})
  runner = finetuning.Runner(
      FLAGS, workers, config, choice_head, _SPECS,
      len(examples["train"]) if FLAGS.do_train else 0)

  def predict(split, checkpoint):
    return np.array([row["log_probabilities"] for row in runner.predict(
        split, features[split], checkpoint)])

  def evaluate(checkpoint):
    return dict(score(examples["dev"], predict("dev", checkpoint)),
                global_step=outputs.step_of(checkpoint))

  def write_test(checkpoint):
    write_predictions(examples["test"], predict("test", checkpoint))

  runner.run(features.get("train"), evaluate, "eval_accuracy", files,
             write_test)


if __name__ == "__main__":
  errors.run(main)
