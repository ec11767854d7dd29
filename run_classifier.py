"""Fine-tunes ALBERT to classify texts or pairs of texts."""

import os
import random

import tensorflow.compat.v1 as tf
import tqdm
from absl import flags, logging

import errors
import heads
import outputs
import records
import tasks
import tokenization
import training
from errors import InputError
from records import FeatureSpec

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(training)
flags.adopt_module_key_flags(tokenization)

flags.DEFINE_string("task_name", None, "Task; see tasks.py.")
flags.DEFINE_string("data_dir", None, "Folder with the task's files.")
flags.DEFINE_integer("max_seq_length", 128,
                     "Most tokens of an example; longer ones are truncated.")
flags.DEFINE_float("num_train_epochs", 3.0, "Passes over the training set.")
flags.DEFINE_float("warmup_proportion", 0.1,
                   "Share of the steps during which the rate rises.")
flags.DEFINE_integer("max_train_examples", None,
                     "Use only so many examples, the first of the file.")
flags.DEFINE_bool("do_predict", False,
                  "Whether to predict the test file with the best checkpoint.")
flags.DEFINE_integer("predict_batch_size", 32, "Examples per prediction batch.")

_SPECS = [
    FeatureSpec("input_ids", "int", None),
    FeatureSpec("input_mask", "int", None),
    FeatureSpec("segment_ids", "int", None),
    FeatureSpec("label_ids", "int", 0),
    FeatureSpec("is_real_example", "int", 0),
]


def classifier_head_builder(num_labels):
  """Returns the head (see training.model_fn_builder) for so many labels."""

  def head(model, features):
    logits = heads.classifier_logits(model, num_labels)
    predictions = {"probabilities": tf.nn.softmax(logits)}
    labels = features["label_ids"]
    weights = tf.cast(features["is_real_example"], tf.float32)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels, logits=logits)  # [B]
    hits = tf.equal(tf.argmax(logits, -1, output_type=tf.int32), labels)
    return training.HeadOutput(
        losses={"example_loss": tf.reduce_sum(losses * weights)},
        metrics={"example_loss": (losses, weights),
                 "accuracy": (tf.cast(hits, tf.float32), weights)},
        predictions=predictions)

  return head


def loss_totals(features):
  """What the head's loss is divided by; see training.model_fn_builder."""
  return {"example_loss": tf.reduce_sum(
      tf.cast(features["is_real_example"], tf.float32))}


def write_features(examples, label_ids, tokenizer, path, multiple_of=1):
  """Writes the records of a split.

  Args:
    examples: list of tasks.InputExample.
    label_ids: list of int.
    tokenizer: of tokenization.py.
    path: str, record file to write.
    multiple_of: int; the records are filled up to a multiple of it with
      examples that do not count (for a TPU, whose batches are all full).
  """
  def tokenize(text):
    return tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))

  def features():
    for example, label_id in tqdm.tqdm(
        list(zip(examples, label_ids)), os.path.basename(path), disable=None):
      input_ids, segment_ids = tokenization.pack_pair(
          tokenizer, tokenize(example.text_a),
          None if example.text_b is None else tokenize(example.text_b),
          FLAGS.max_seq_length)
      yield {"input_ids": input_ids, "input_mask": [1] * len(input_ids),
             "segment_ids": segment_ids, "label_ids": label_id,
             "is_real_example": 1}
    for _ in range(-len(examples) % multiple_of):
      yield {"input_ids": [0], "input_mask": [0], "segment_ids": [0],
             "label_ids": 0, "is_real_example": 0}

  records.write_records(
      path, (records.serialize(values, _SPECS) for values in features()))


def main():
  errors.require_flags("task_name", "data_dir", "bert_config_file",
                       "output_dir")
  task = tasks.get_task(FLAGS.task_name)
  if not (FLAGS.do_train or FLAGS.do_eval or FLAGS.do_predict):
    raise InputError("nothing to do: give --do_train, --do_eval, --do_predict")
  if FLAGS.use_horovod:
    raise InputError("--use_horovod is for run_pretraining.py")
  training.start(FLAGS)
  if not FLAGS.do_train:
    outputs.require_model(FLAGS)
  tokenizer = tokenization.create_tokenizer(
      FLAGS.vocab_file, FLAGS.spm_model_file, FLAGS.do_lower_case)
  config = training.load_config(FLAGS.bert_config_file, FLAGS.max_seq_length,
                                tokenizer)
  splits = [split for split, wanted in (
      ("train", FLAGS.do_train or not task.labels), ("dev", FLAGS.do_eval),
      ("test", FLAGS.do_predict)) if wanted]
  examples = {split: tasks.read_examples(task, FLAGS.data_dir, split)
              for split in splits}
  labels = task.labels or sorted({e.label for e in examples["train"]})
  if "train" in examples:
    examples["train"] = examples["train"][:FLAGS.max_train_examples]
    # Labels may drift from a file's beginning to its end, further than a
    # shuffle buffer sees.
    random.Random(FLAGS.random_seed).shuffle(examples["train"])

  description = {
      "task_name": FLAGS.task_name.lower(), "labels": labels,
      "max_seq_length": FLAGS.max_seq_length,
      "do_lower_case": FLAGS.do_lower_case}
  tokenizer_file = (FLAGS.spm_model_file, "spm.model") if (
      FLAGS.spm_model_file) else (FLAGS.vocab_file, "vocab.txt")
  outputs.prepare_output_dir(
      FLAGS, {"config.json": config.to_dict(), "task.json": description},
      [tokenizer_file])

  def input_fn_at(split, batch_size):
    is_training = split == "train"
    path = os.path.join(FLAGS.output_dir, split + ".tf_record")
    write_features(
        examples[split], tasks.label_ids(examples[split], labels, split),
        tokenizer, path,
        batch_size if FLAGS.use_tpu and not is_training else 1)
    return lambda step: records.input_fn_builder(
        [records.RecordFile(path)], _SPECS, is_training, FLAGS.max_seq_length,
        pad_to_max=FLAGS.use_tpu, drop_remainder=FLAGS.use_tpu or is_training,
        keep_order=split == "test", seed=FLAGS.random_seed + step)

  num_train_steps = 0
  if FLAGS.do_train:
    num_train_steps = int(len(examples["train"]) * FLAGS.num_train_epochs /
                          FLAGS.train_batch_size)
    if not num_train_steps:
      raise InputError("%d training examples are less than one batch of %d" % (
          len(examples["train"]), FLAGS.train_batch_size))
  model_fn = training.model_fn_builder(
      config, FLAGS, classifier_head_builder(len(labels)), loss_totals,
      num_train_steps, int(num_train_steps * FLAGS.warmup_proportion))
  estimator = training.create_estimator(FLAGS, model_fn,
                                        FLAGS.predict_batch_size)

  if FLAGS.do_eval:
    eval_input_fn = input_fn_at("dev", FLAGS.eval_batch_size)(0)

  def evaluate(checkpoint):
    steps = -(-len(examples["dev"]) // FLAGS.eval_batch_size)
    results = estimator.evaluate(
        eval_input_fn, steps=steps if FLAGS.use_tpu else None,
        checkpoint_path=checkpoint)
    return {"eval_loss": results["example_loss"],
            "eval_accuracy": results["accuracy"],
            "loss": results["example_loss"],
            "global_step": results["global_step"]}

  if FLAGS.do_train:
    evaluator = outputs.Evaluator(
        FLAGS.output_dir, evaluate,
        outputs.BestRule("eval_accuracy", higher_is_better=True),
        ["config.json", "task.json", tokenizer_file[1]],
        FLAGS.early_stop_evals)
    logging.info("%d training examples, %d steps", len(examples["train"]),
                 num_train_steps)
    training.train_and_evaluate(
        estimator, FLAGS, input_fn_at("train", FLAGS.train_batch_size),
        num_train_steps, evaluator if FLAGS.do_eval else None)
  elif FLAGS.do_eval:
    outputs.evaluate_and_write(FLAGS.output_dir, evaluate)

  if FLAGS.do_predict:
    checkpoint = (
        outputs.latest_checkpoint(os.path.join(FLAGS.output_dir, "best")) or
        outputs.latest_checkpoint(FLAGS.output_dir))
    predictions = estimator.predict(
        input_fn_at("test", FLAGS.predict_batch_size)(0),
        checkpoint_path=checkpoint)
    path = os.path.join(FLAGS.output_dir, "test_results.tsv")
    outputs.write_text(path, "".join(
        "\t".join("%.8f" % p for p in prediction["probabilities"]) + "\n"
        for prediction, _ in zip(predictions, examples["test"])))
    logging.info("%s: probabilities of the labels %s by %s", path,
                 ", ".join(labels), checkpoint or FLAGS.init_checkpoint)


if __name__ == "__main__":
  errors.run(main)
