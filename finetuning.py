"""What all fine-tuning scripts share, from features to the best checkpoint."""

import os
import time

import tensorflow.compat.v1 as tf
from absl import flags, logging

import checkpoints
import errors
import outputs
import records
import tokenization
import training
from errors import InputError
from records import FeatureSpec

flags.adopt_module_key_flags(training)
flags.adopt_module_key_flags(tokenization)
flags.DEFINE_bool("do_predict", False,
                  "Whether to predict the test file with the best checkpoint.")
flags.DEFINE_bool("pad_to_max", False,
                  "Pad all examples to --max_seq_length, as on a TPU, in place "
                  "of batching those of like length.")
flags.DEFINE_float("num_train_epochs", 3.0, "Passes over the training set.")
flags.DEFINE_float("warmup_proportion", 0.1,
                   "Share of the steps during which the rate rises.")
flags.DEFINE_alias("predict_batch_size", "eval_batch_size")

# The features of every fine-tuning record; tasks add their own.
SPECS = (FeatureSpec("input_ids", "int", None),
         FeatureSpec("input_mask", "int", None),
         FeatureSpec("segment_ids", "int", None),
         FeatureSpec("is_real_example", "int", 0))


def start(options):
  """Sets up the process, the tokenizer and the configuration.

  Args:
    options: flags.

  Returns:
    (distribution.Workers, tokenizer, AlbertConfig)

  Raises:
    InputError: a flag is missing, or does not fit the others.
  """
  if not (options.do_train or options.do_eval or options.do_predict):
    raise InputError("nothing to do: give --do_train, --do_eval, --do_predict")
  workers = training.start(options)
  if not options.do_train:
    checkpoints.require_model(options)
  training.take_files_beside_checkpoint(options)
  errors.require_flags("bert_config_file")
  tokenizer = tokenization.create_tokenizer(
      options.vocab_file, options.spm_model_file, options.do_lower_case)
  config = training.load_config(options.bert_config_file,
                                options.max_seq_length, tokenizer)
  return workers, tokenizer, config


def prepare_output_dir(options, workers, config, description):
  """Puts what describes the model into the output folder, by rank 0.

  Args:
    options: flags.
    workers: distribution.Workers.
    config: AlbertConfig.
    description: dict for `task.json`, to which the tokenizer's is added.

  Returns:
    names of the files to keep beside the best checkpoint.
  """
  tokenizer_file = (options.spm_model_file, "spm.model") if (
      options.spm_model_file) else (options.vocab_file, "vocab.txt")
  description = dict(description, max_seq_length=options.max_seq_length,
                     do_lower_case=options.do_lower_case)
  if not workers.rank:
    outputs.prepare_output_dir(
        options, {"config.json": config.to_dict(), "task.json": description},
        [tokenizer_file])
  return ["config.json", "task.json", tokenizer_file[1]]


class Runner:
  """Trains, evaluates and predicts.

  Args:
    options: flags.
    workers: distribution.Workers.
    config: AlbertConfig.
    head: function of (model, features); see training.model_fn_builder.
    specs: list of FeatureSpec.
    num_train_examples: int, or None for no training.

  Raises:
    InputError: there are fewer training examples than a batch takes.
  """

  def __init__(self, options, workers, config, head, specs,
               num_train_examples=None):
    self._options = options
    self._workers = workers
    self._specs = list(specs)
    batch_size = options.train_batch_size * workers.size
    self._num_train_steps = int(
        (num_train_examples or 0) * options.num_train_epochs / batch_size)
    if num_train_examples is not None:
      if not self._num_train_steps:
        raise InputError(
            "%d training examples are less than one batch of %d" % (
                num_train_examples, batch_size))
      logging.info("%d steps of %d examples", self._num_train_steps, batch_size)
    self._estimator = training.create_estimator(
        options, training.model_fn_builder(
            config, options, head, _loss_totals, self._num_train_steps,
            int(self._num_train_steps * options.warmup_proportion)),
        options.eval_batch_size)

  def run(self, train_features, evaluate, metric, files, write_test):
    """Does what --do_train, --do_eval and --do_predict ask for.

    Args:
      train_features: list of dict, name -> values.
      evaluate: function of a checkpoint path, or None, that returns results.
      metric: str, name among the results; the greater, the better.
      files: names of files of the output folder to keep beside the best
        checkpoint.
      write_test: function of a checkpoint path, or None, that predicts the test
        file and writes what it finds.
    """
    options = self._options
    leads = not self._workers.rank
    if options.do_train:
      evaluator = None
      if options.do_eval and leads:
        evaluator = outputs.Evaluator(
            options.output_dir, evaluate,
            outputs.BestRule(metric, higher_is_better=True), files,
            options.early_stop_evals)
      self._train(train_features, evaluator)
    elif options.do_eval and leads:
      outputs.evaluate_and_write(options.output_dir, evaluate)
    if options.do_predict and leads:
      best = os.path.join(options.output_dir, "best")
      checkpoint = (checkpoints.latest_checkpoint(best) or
                    checkpoints.latest_checkpoint(options.output_dir))
      logging.info("predicting with %s", checkpoint or options.init_checkpoint)
      write_test(checkpoint)

  def _train(self, features, evaluator):
    path = self._write("train", features)

    def input_fn_at(step):
      return self._input_fn(
          path, is_training=True, drop_remainder=True,
          seed=self._options.random_seed + step,
          shard=(self._workers.size, self._workers.rank))

    training.train_and_evaluate(self._estimator, self._options, input_fn_at,
                                self._num_train_steps, evaluator)

  def predict(self, name, features, checkpoint):
    """Predicts, shortest examples first.

    Args:
      name: str, of the record file to write.
      features: list of dict, name -> values.
      checkpoint: str, or None for --init_checkpoint.

    Returns:
      list of dict, name -> array; in the order of `features`.
    """
    order = sorted(range(len(features)),
                   key=lambda i: len(features[i]["input_ids"]))
    rows = [features[i] for i in order]
    if self._options.use_tpu:  # all its batches are full
      empty = {spec.name: 0 if spec.length == 0 else [0] * (spec.rows or 1)
               for spec in self._specs}
      rows += [empty] * (-len(rows) % self._options.eval_batch_size)
    input_fn = self._input_fn(
        self._write(name, rows), is_training=False, keep_order=True,
        drop_remainder=self._options.use_tpu)
    found, started = [None] * len(order), None
    for i, prediction in zip(order, self._estimator.predict(
        input_fn, checkpoint_path=checkpoint)):
      started = started or time.time()  # the model is built and loaded
      found[i] = prediction
    logging.info("%d examples predicted, %.1f a second", len(order),
                 len(order) / (time.time() - started))
    return found

  def _write(self, name, features):
    path = os.path.join(self._estimator.model_dir, name + ".tf_record")
    records.write_records(
        path, (records.serialize(row, self._specs) for row in features))
    return path

  def _input_fn(self, path, **kwargs):
    options = self._options
    return records.input_fn_builder(
        [records.record_file(path)], self._specs,
        max_length=options.max_seq_length,
        pad_to_max=options.pad_to_max or options.use_tpu, **kwargs)


def _loss_totals(features):
  """All losses of fine-tuning are means over the examples."""
  return {"example_loss": tf.reduce_sum(
      tf.cast(features["is_real_example"], tf.float32))}
