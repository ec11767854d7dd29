"""Pretrains ALBERT: masked LM and sentence order."""

import functools

import tensorflow.compat.v1 as tf
from absl import flags, logging

import modeling
from albert import errors
from albert.errors import InputError
from albert.files import checkpoints, filesystem, outputs, records
from albert.predict import predictor
from albert.train import estimators, training

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(training)

flags.DEFINE_string("input_file", None,
                    "Record files to train on: globs, separated by commas.")
flags.DEFINE_string("eval_input_file", None,
                    "Held-out record files, evaluated at every saved "
                    "checkpoint; must not be training files.")
flags.DEFINE_string("export_dir", None,
                    "Folder to export the trained encoder to (SavedModel).")
flags.DEFINE_integer("max_seq_length", None,
                     "Tokens per record; by default as the description next to "
                     "the records says, or 512.")
flags.DEFINE_integer("max_predictions_per_seq", None,
                     "Masked tokens per record; by default as the description "
                     "next to the records says, or 51.")
flags.DEFINE_integer("num_train_steps", 125000, "Steps of the whole training.",
                     lower_bound=1)
flags.DEFINE_integer("num_warmup_steps", 12500, "Warm-up steps.", lower_bound=0)
flags.DEFINE_integer("max_eval_steps", None,
                     "Batches to evaluate at most; all by default.",
                     lower_bound=1)
flags.DEFINE_float("sentence_loss_weight", 1.0,
                   "Weight of the sentence-order loss; 0 leaves what only "
                   "this loss trains as it is: the pooler and its head.")
flags.DEFINE_integer("shuffle_buffer", 10000,
                     "Records to draw the next one from.", lower_bound=1)
flags.DEFINE_bool("skip_corrupt_records", False,
                  "Whether to leave out the rest of a damaged record file.")
flags.DEFINE_bool("check_records", False,
                  "Whether to read all records before training, to find "
                  "damaged files; otherwise they are found when they are met.")
FLAGS.set_default("optimizer", "lamb")
FLAGS.set_default("learning_rate", 1.56e-4)
FLAGS["learning_rate"].help = (
    "Peak learning rate. The default is that of LAMB for the default batch: "
    "the 0.00176 published for 4096 examples, times sqrt(32 / 4096).")


def pretraining_head(model, features, sentence_loss_weight):
  """The two losses and their metrics, as an estimators.HeadOutput.

  Args:
    model: AlbertModel.
    features: dict of `records.pretraining_specs`, batched.
    sentence_loss_weight: float, factor of the sentence-order loss.

  Returns:
    estimators.HeadOutput; weights are `masked_lm_weights` for the masked LM.
  """
  predictions = {"sequence_output": model.get_sequence_output(),
                 "pooled_output": model.get_pooled_output()}
  if "masked_lm_ids" not in features:
    return estimators.HeadOutput({}, {}, predictions)
  lm_logits = model.masked_lm_logits(features["masked_lm_positions"])
  lm_labels = tf.reshape(features["masked_lm_ids"], [-1])
  lm_weights = tf.reshape(features["masked_lm_weights"], [-1])
  lm_losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=lm_labels, logits=lm_logits)  # [B*P]
  order_logits = model.sentence_order_logits()
  order_labels = tf.reshape(features["next_sentence_labels"], [-1])
  order_losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=order_labels, logits=order_logits)  # [B]
  order_weights = tf.ones_like(order_losses)
  losses = {"masked_lm_loss": tf.reduce_sum(lm_losses * lm_weights)}
  if sentence_loss_weight:  # a gradient of 0 would let weights decay
    losses["sentence_order_loss"] = (
        sentence_loss_weight * tf.reduce_sum(order_losses))
  return estimators.HeadOutput(
      losses=losses,
      metrics={
          "masked_lm_loss": (lm_losses, lm_weights),
          "masked_lm_accuracy": (_hits(lm_logits, lm_labels), lm_weights),
          "sentence_order_loss": (order_losses, order_weights),
          "sentence_order_accuracy": (_hits(order_logits, order_labels),
                                      order_weights),
      },
      predictions=predictions)


def loss_totals(features):
  """What each loss is divided by; see estimators.model_fn_builder."""
  return {
      "masked_lm_loss": tf.reduce_sum(features["masked_lm_weights"]),
      "sentence_order_loss": tf.cast(
          tf.size(features["next_sentence_labels"]), tf.float32),
  }


def _hits(logits, labels):
  return tf.cast(tf.equal(tf.argmax(logits, -1, output_type=tf.int32), labels),
                 tf.float32)


def eval_steps(options, files):
  """Returns how many batches to evaluate, None for all there are."""
  if not options.use_tpu:
    return options.max_eval_steps
  # A TPU must know, and all its batches are full.
  batches = records.count_batches(files, options.eval_batch_size)
  return min(batches, options.max_eval_steps or batches)


def find_records(evaluates):
  """Finds the record files, and what model and flags they are for.

  Args:
    evaluates: bool, whether there are files to evaluate on.

  Returns:
    (AlbertConfig, list of FeatureSpec, list of RecordFile to train on, list of
    RecordFile to evaluate on)
  """
  # BERT's script evaluates --input_file; ours too where nothing is held out.
  eval_flag = ("eval_input_file" if FLAGS.eval_input_file or FLAGS.do_train
               else "input_file")
  wanted = ["input_file"] * FLAGS.do_train + [eval_flag] * bool(evaluates)
  if not wanted:
    raise InputError("nothing to do: give --do_train or --do_eval")
  errors.require_flags(*wanted)
  paths = {flag: records.expand_patterns(FLAGS[flag].value, flag)
           for flag in wanted}
  trained = set(map(filesystem.resolve, paths.get("input_file", [])))
  for path in paths.get("eval_input_file", []):
    if filesystem.resolve(path) in trained:
      raise InputError("--eval_input_file: %s is a training file" % path)

  config_file = predictor.find_config(FLAGS.init_checkpoint,
                                      FLAGS.bert_config_file)
  if not config_file:
    raise InputError("--bert_config_file is required: there is no "
                     "configuration next to --init_checkpoint")
  read_config = modeling.AlbertConfig.from_json_file
  made_with = records.check_descriptions(sum(paths.values(), []), {
      "vocab_size": read_config(config_file).vocab_size,
      "vocab_file_sha256": None, "spm_model_file_sha256": None,
      "max_seq_length": FLAGS.max_seq_length,
      "max_predictions_per_seq": FLAGS.max_predictions_per_seq})
  max_seq_length = made_with.get("max_seq_length", 512)
  config = modeling.load_config(config_file, max_seq_length)
  specs = records.pretraining_specs(
      max_seq_length, made_with.get("max_predictions_per_seq", 51))
  files = {flag: records.check_records(
      paths[flag], specs, FLAGS.skip_corrupt_records, FLAGS.check_records)
           for flag in paths}
  return (config, specs, files["input_file"] if FLAGS.do_train else [],
          files[eval_flag] if evaluates else [])


def main():
  errors.require_flags("output_dir")
  workers = training.start(FLAGS)
  evaluates = FLAGS.do_eval or (FLAGS.do_train and FLAGS.eval_input_file)
  training.warn_of_idle_flags(FLAGS, [
      (["early_stop_evals"], FLAGS.do_train and FLAGS.eval_input_file,
       "--do_train and --eval_input_file", True),
      (["export_dir"], FLAGS.do_train, "--do_train", True),
      (["num_train_steps", "num_warmup_steps", "shuffle_buffer"],
       FLAGS.do_train, "--do_train", False),
      (["max_eval_steps", "eval_batch_size"], evaluates,
       "--do_eval or --eval_input_file", False)])
  if FLAGS.do_train and FLAGS.num_warmup_steps >= FLAGS.num_train_steps:
    logging.warning(
        "--num_warmup_steps=%d: in %d steps, the learning rate does not reach "
        "its peak", FLAGS.num_warmup_steps, FLAGS.num_train_steps)
  config, specs, train_files, eval_files = find_records(evaluates)
  if not FLAGS.do_train:
    checkpoints.require_model(FLAGS)
  if not workers.rank:
    outputs.prepare_output_dir(FLAGS, {"config.json": config.to_dict()})

  model_fn = estimators.model_fn_builder(
      config, FLAGS, functools.partial(
          pretraining_head, sentence_loss_weight=FLAGS.sentence_loss_weight),
      loss_totals, FLAGS.num_train_steps, FLAGS.num_warmup_steps)
  estimator = estimators.create_estimator(FLAGS, model_fn)
  eval_input_fn = records.input_fn_builder(
      eval_files, specs, is_training=False, drop_remainder=FLAGS.use_tpu,
      skip_corrupt=FLAGS.skip_corrupt_records)
  steps = eval_steps(FLAGS, eval_files) if eval_files else None

  @records.naming_damage()
  def evaluate(checkpoint):
    results = estimator.evaluate(eval_input_fn, steps=steps,
                                 checkpoint_path=checkpoint)
    results["loss"] = (
        results["masked_lm_loss"] +
        FLAGS.sentence_loss_weight * results["sentence_order_loss"])
    return results

  if FLAGS.do_train:
    def train_input_fn_at(step):
      return records.input_fn_builder(
          train_files, specs, is_training=True, drop_remainder=True,
          seed=FLAGS.random_seed + step, shuffle_buffer=FLAGS.shuffle_buffer,
          shard=(workers.size, workers.rank),
          skip_corrupt=FLAGS.skip_corrupt_records)

    evaluator = outputs.Evaluator(
        FLAGS.output_dir, evaluate,
        outputs.BestRule("masked_lm_loss", higher_is_better=False),
        ["config.json"], FLAGS.early_stop_evals) if eval_files else None
    training.train_and_evaluate(estimator, FLAGS, train_input_fn_at,
                                FLAGS.num_train_steps, evaluator)
    if FLAGS.export_dir and not workers.rank:
      training.export_saved_model(estimator, FLAGS.export_dir)
  elif not workers.rank:
    outputs.evaluate_and_write(FLAGS.output_dir, evaluate)


if __name__ == "__main__":
  errors.run(main)
