"""What all fine-tuning scripts share, from features to the best checkpoint."""

import collections
import itertools
import os
import random
import time

import tensorflow.compat.v1 as tf
import tqdm
from absl import flags, logging

import tokenization
from albert.errors import InputError
from albert.files import checkpoints, outputs, records
from albert.files.records import FeatureSpec
from albert.predict import predictor
from albert.train import estimators, sweep, training

flags.adopt_module_key_flags(training)
flags.adopt_module_key_flags(sweep)
flags.adopt_module_key_flags(tokenization)
flags.DEFINE_bool("do_predict", False,
                  "Whether to predict the test file with the best checkpoint.")
flags.DEFINE_bool("pad_to_max", False,
                  "Pad all examples to --max_seq_length, as on a TPU, instead "
                  "of batching those of similar length.")
flags.DEFINE_float("num_train_epochs", 3.0, "Passes over the training set.")
flags.DEFINE_integer("max_train_examples", None,
                     "Use only this many training examples, or questions: the "
                     "first of the files.")
flags.DEFINE_float("warmup_proportion", 0.1,
                   "Share of the steps that are warm-up.")
flags.DEFINE_enum("adversarial", None, ["fgm"],
                  "Train on perturbed word embeddings too: fgm, the fast "
                  "gradient method.")
flags.DEFINE_float("adversarial_epsilon", 1.0,
                   "--adversarial: norm of the perturbation of the table.",
                   lower_bound=0.0)
flags.DEFINE_alias("predict_batch_size", "eval_batch_size")

# The features of every fine-tuning record; tasks add their own. `number`, the
# place of an example in its split, is the Runner's.
SPECS = (FeatureSpec("input_ids", "int", None),
         FeatureSpec("input_mask", "int", None),
         FeatureSpec("segment_ids", "int", None),
         FeatureSpec("number", "int", 0))

# A list of examples, and the function that makes the features of one: a dict,
# name -> value or list. Features are made when they are written; in memory,
# they would take many times the space of the texts.
Split = collections.namedtuple("Split", ["examples", "make_features"])


def start(options):
  """Sets up the process, the tokenizer and the configuration.

  Args:
    options: flags.

  Returns:
    (distribution.Workers, predictor.Model): the model that training goes on
    from, or begins with, or that is evaluated.

  Raises:
    InputError: a flag is missing, or does not fit the others.
  """
  if not (options.do_train or options.do_eval or options.do_predict):
    raise InputError("nothing to do: give --do_train, --do_eval, --do_predict")
  sweep.plan(options)  # its errors come first
  workers = training.start(options)
  if not options.do_train:
    checkpoints.require_model(options)
  training.warn_of_idle_flags(options, [
      (["num_train_epochs", "max_train_examples", "warmup_proportion",
        "adversarial"], options.do_train, "--do_train", False),
      (["adversarial_epsilon"], options.adversarial, "--adversarial", False),
      (["early_stop_evals"], options.do_train and options.do_eval,
       "--do_train and --do_eval", True),
      (["eval_batch_size"], options.do_eval or options.do_predict,
       "--do_eval or --do_predict", False)])
  return workers, predictor.load_folder(
      checkpoints.newest_or_best(options.output_dir) or
      options.init_checkpoint, options, options.max_seq_length)


def wanted_splits(options, workers, tests=()):
  """Returns the names of the splits that this process reads.

  Args:
    options: flags.
    workers: distribution.Workers.
    tests: names of the splits to predict that have a file; if there are none,
      it is "test" that is missing.
  """
  names = ["train"] * options.do_train
  if not workers.rank:
    names += ["dev"] * options.do_eval
    names += list(tests or ["test"]) * options.do_predict
  return names


def prepare_output_dir(options, workers, model, description):
  """Puts what describes the model into the output folder, by rank 0.

  Args:
    options: flags.
    workers: distribution.Workers.
    model: predictor.Model.
    description: dict for `task.json`, to which the tokenizer's is added.

  Returns:
    names of the files to keep next to the best checkpoint.
  """
  tokenizer_file = next(name for name in ("spm.model", "vocab.txt")
                        if name in model.files)
  description = dict(description, max_seq_length=options.max_seq_length,
                     do_lower_case=model.tokenizer.do_lower_case)
  if not workers.rank:
    outputs.prepare_output_dir(
        options, {"config.json": model.config.to_dict(),
                  "task.json": description},
        [(model.files[tokenizer_file], tokenizer_file)])
  return ["config.json", "task.json", tokenizer_file]


class Runner:
  """Trains, evaluates and predicts.

  Args:
    options: flags.
    workers: distribution.Workers.
    config: AlbertConfig.
    head: function of (model, features); see estimators.model_fn_builder.
    specs: list of FeatureSpec.
    splits: dict, name -> Split; see wanted_splits. Every process gets all of
      "train", which is taken out, and reads its share.

  Raises:
    InputError: there are fewer training examples than a batch takes.
  """

  def __init__(self, options, workers, config, head, specs, splits):
    self._options = options
    self._workers = workers
    self._leads = not workers.rank
    self._config = config
    self._specs = list(specs)
    self._splits = splits
    self._num_train_steps = 0
    if options.do_train:
      self._train_split = splits.pop("train")
      examples = self._train_split.examples
      batch_size = options.train_batch_size * workers.size
      self._num_train_steps = int(
          len(examples) * options.num_train_epochs / batch_size)
      if not self._num_train_steps or len(examples) < workers.size:
        raise InputError(
            "%d training examples are less than one batch of %d" % (
                len(examples), batch_size))
      logging.info("%d steps of %d examples", self._num_train_steps, batch_size)

    def numbered_head(model, features):
      output = head(model, features)
      return output._replace(predictions=dict(
          output.predictions, number=features["number"]))

    self._head = numbered_head
    self._begin()

  def _begin(self):
    """Makes what depends on the folder, the seed and the learning rate."""
    options = self._options
    self._paths = {}  # of the record files, once they are written
    self._estimator = estimators.create_estimator(
        options, estimators.model_fn_builder(
            self._config, options, self._head, _loss_totals,
            self._num_train_steps,
            int(self._num_train_steps * options.warmup_proportion),
            options.adversarial_epsilon if options.adversarial else 0.0),
        options.eval_batch_size)

  def run(self, evaluate, metric, files, write_test):
    """Does what --do_train, --do_eval and --do_predict ask for.

    Where several seeds or learning rates are asked for, all of them; see
    sweep.run.

    Args:
      evaluate: function of a checkpoint path, or None, that returns results.
      metric: str, name among the results; the greater, the better.
      files: names of files of the output folder to keep next to the best
        checkpoint.
      write_test: function of the name of a split to predict and a checkpoint
        path, or None, that predicts it and writes what it finds.
    """
    if sweep.is_wanted(self._options):
      def run_once():
        self._begin()
        self._run(evaluate, metric, files, write_test)

      sweep.run(self._options, self._leads, metric, files, run_once)
    else:
      self._run(evaluate, metric, files, write_test)

  def _run(self, evaluate, metric, files, write_test):
    options = self._options
    if options.do_train:
      evaluator = None
      if options.do_eval and self._leads:
        evaluator = outputs.Evaluator(
            options.output_dir, evaluate,
            outputs.BestRule(metric, higher_is_better=True), files,
            options.early_stop_evals)
      self._train(evaluator)
    elif options.do_eval and self._leads:
      outputs.evaluate_and_write(options.output_dir, evaluate)
    if options.do_predict and self._leads:
      best = os.path.join(options.output_dir, "best")
      checkpoint = (checkpoints.latest_checkpoint(best) or
                    checkpoints.latest_checkpoint(options.output_dir))
      logging.info("predicting with %s", checkpoint or options.init_checkpoint)
      for name in self._splits:
        if name != "dev":
          write_test(name, checkpoint)

  def _train(self, evaluator):
    def input_fn_at(step):
      if "train" not in self._paths:
        self._write_train()
      return self._input_fn(
          self._paths["train"], is_training=True, drop_remainder=True,
          seed=self._options.random_seed + step)

    training.train_and_evaluate(self._estimator, self._options, input_fn_at,
                                self._num_train_steps, evaluator)

  def _write_train(self):
    """Writes this process's share of the training examples, shuffled."""
    examples, make_features = self._train_split
    if not sweep.is_wanted(self._options):
      self._train_split = None  # from here on, the file is all that is needed
    # Files may have an order, by label or by difficulty, that reaches further
    # than a shuffle buffer.
    examples = list(examples)
    random.Random(self._options.random_seed).shuffle(examples)
    self._paths["train"] = self._write(
        "train", examples[self._workers.rank::self._workers.size],
        make_features)

  def predict(self, name, checkpoint):
    """Predicts a split, in batches of examples of similar length.

    Args:
      name: str, of the split.
      checkpoint: str, or None for --init_checkpoint.

    Returns:
      list of dict, name -> array; in the order of the examples.
    """
    examples, make_features = self._splits[name]
    if name not in self._paths:
      # All batches of a TPU are full.
      padding = -len(examples) % self._options.eval_batch_size if (
          self._options.use_tpu) else 0
      self._paths[name] = self._write(
          name, examples + examples[-1:] * padding, make_features)
    input_fn = self._input_fn(self._paths[name], is_training=False,
                              drop_remainder=self._options.use_tpu)
    found, started = {}, None
    for prediction in self._estimator.predict(
        input_fn, checkpoint_path=checkpoint):
      started = started or time.time()  # the model is built and loaded
      found[int(prediction["number"])] = prediction
    logging.info("%d examples predicted, %.1f a second", len(examples),
                 len(examples) / (time.time() - started))
    return [found[number] for number in range(len(examples))]

  def _write(self, name, examples, make_features):
    """Writes the records of a split; returns the path of the file."""
    num_rows = self._specs[0].rows or 1
    lengths = []

    def record(number, example):
      row = dict(make_features(example), number=number)
      lengths.append(len(row["input_ids"]) // num_rows)
      return records.serialize(row, self._specs)

    path = os.path.join(self._estimator.model_dir, name + ".tf_record")
    records.write_records(path, itertools.starmap(
        record, enumerate(tqdm.tqdm(examples, name, disable=None))))
    longest = self._options.max_seq_length
    logging.info("%s: %.1f%% of the examples fill --max_seq_length=%d", name,
                 100.0 * lengths.count(longest) / len(lengths), longest)
    return path

  def _input_fn(self, path, **kwargs):
    options = self._options
    return records.input_fn_builder(
        [records.record_file(path)], self._specs,
        max_length=options.max_seq_length,
        pad_to_max=options.pad_to_max or options.use_tpu, **kwargs)


def _loss_totals(features):
  """All losses of fine-tuning are means over the examples."""
  return {"example_loss": tf.cast(tf.size(features["number"]), tf.float32)}
