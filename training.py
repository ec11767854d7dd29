"""What every script shares: flags, estimator, checkpoints, evaluation.

Functions take `options`: an object with the attributes that the flags below
name. Scripts pass `flags.FLAGS`.
"""

import collections
import csv
import io
import json
import os
import re
import time

import tensorflow.compat.v1 as tf
from absl import flags, logging

import heads
import modeling
import optimization
from errors import InputError
from lamb_optimizer import LAMB
from optimization import AdamW

flags.DEFINE_string("bert_config_file", None,
                    "Configuration of the model (JSON).")
flags.DEFINE_alias("albert_config_file", "bert_config_file")
flags.DEFINE_string("output_dir", None,
                    "Folder for checkpoints and results.")
flags.DEFINE_string("init_checkpoint", None,
                    "Checkpoint to start from, of either variable layout.")
flags.DEFINE_bool("do_train", False, "Whether to train.")
flags.DEFINE_bool("do_eval", False,
                  "Whether to evaluate: the newest checkpoint of --output_dir, "
                  "or --init_checkpoint as it stands if there is none.")
flags.DEFINE_integer("train_batch_size", 32, "Examples per training step.")
flags.DEFINE_integer("eval_batch_size", 32, "Examples per evaluation batch.")
flags.DEFINE_enum("optimizer", "adamw", ["adamw", "lamb"], "Optimizer.")
flags.DEFINE_float("learning_rate", 5e-5, "Peak learning rate.")
flags.DEFINE_float("poly_power", 1.0,
                   "Power of the learning rate's decay, 1 for linear.")
flags.DEFINE_float("weight_decay_rate", 0.01, "Weight decay.")
flags.DEFINE_integer("save_checkpoints_steps", 1000,
                     "Save, and evaluate, every so many steps.")
flags.DEFINE_integer("keep_checkpoint_max", 5,
                     "Newest checkpoints to keep in --output_dir.")
flags.DEFINE_integer("log_steps", 100,
                     "Print progress and write summaries every so many steps.")
flags.DEFINE_integer("random_seed", 12345,
                     "Seed of initial weights, dropout and reading order.")
flags.DEFINE_integer("iterations_per_loop", 1000,
                     "TPU: steps per call of the device.")
flags.DEFINE_bool("use_tpu", False, "Whether to run on a TPU.")
flags.DEFINE_string("tpu_name", None, "TPU: name or grpc address.")
flags.DEFINE_string("tpu_zone", None, "TPU: zone, if not detected.")
flags.DEFINE_string("gcp_project", None, "TPU: project, if not detected.")
flags.DEFINE_string("master", None, "TensorFlow master's address.")
flags.DEFINE_integer("num_tpu_cores", 8, "TPU: number of cores.")

_PROGRESS = "progress"  # graph collection of scalars to log

# What a head makes of a model and a batch.
#   loss: float scalar, this replica's share of the loss; None in prediction.
#   metrics: dict, name -> (values [M], weights [M]); weighted means are shown.
#   predictions: dict, name -> tensor [B, ...].
HeadOutput = collections.namedtuple(
    "HeadOutput", ["loss", "metrics", "predictions"])

# When one checkpoint is better than another.
BestRule = collections.namedtuple("BestRule", ["metric", "higher_is_better"])


def load_config(path, max_seq_length=None, tokenizer=None):
  """Reads a configuration and says what it stands for.

  Args:
    path: str, JSON file.
    max_seq_length: int, sequence length the model must allow.
    tokenizer: whose ids the embedding table must hold.

  Returns:
    AlbertConfig.

  Raises:
    InputError: something does not fit.
  """
  config = modeling.AlbertConfig.from_json_file(path)
  logging.info(
      "%s: %s layout, %d layers of %d, %s, sharing %s", path, config.layout,
      config.num_hidden_layers, config.hidden_size, config.ln_type,
      config.parameter_sharing if config.layout == "albert_zh" else
      "within %d group(s)" % config.num_hidden_groups)
  if max_seq_length and max_seq_length > config.max_position_embeddings:
    raise InputError("--max_seq_length %d is more than the %d positions of %s"
                     % (max_seq_length, config.max_position_embeddings, path))
  if tokenizer and tokenizer.vocab_size != config.vocab_size:
    raise InputError(
        "the vocabulary has %d entries, but %s says vocab_size %d: use the "
        "vocabulary the model was made with" % (
            tokenizer.vocab_size, path, config.vocab_size))
  return config


def prepare_output_dir(options, descriptions, files=()):
  """Makes the output folder and puts what describes the model into it.

  Args:
    options: flags.
    descriptions: dict, file name -> dict to write as JSON; where the folder
      has checkpoints already, they must be of the same description.
    files: list of (path, name) to copy there, such as the vocabulary.

  Raises:
    InputError: the folder has checkpoints of another description.
  """
  tf.io.gfile.makedirs(options.output_dir)
  for name, description in descriptions.items():
    path = os.path.join(options.output_dir, name)
    text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
    if (latest_checkpoint(options.output_dir) and tf.io.gfile.exists(path) and
        read_text(path) != text):
      raise InputError(
          "%s says that the checkpoints there were made otherwise than asked "
          "for now: choose another --output_dir" % path)
    write_text(path, text)
  for source, name in files:
    target = os.path.join(options.output_dir, name)
    if os.path.abspath(source) != os.path.abspath(target):
      tf.io.gfile.copy(source, target, overwrite=True)


def latest_checkpoint(folder):
  """Returns the newest whole checkpoint of a folder, or None."""
  return tf.train.latest_checkpoint(folder)


def start_step(output_dir):
  """Returns the step that training in `output_dir` will go on from."""
  checkpoint = latest_checkpoint(output_dir)
  return int(checkpoint.rsplit("-", 1)[1]) if checkpoint else 0


def require_model(options):
  """Raises an InputError where there are no weights to evaluate or predict."""
  if not (options.init_checkpoint or latest_checkpoint(options.output_dir)):
    raise InputError("%s has no checkpoint: train first, or give "
                     "--init_checkpoint" % options.output_dir)


def init_from_checkpoint(init_checkpoint, is_training):
  """Makes the model's variables start from a checkpoint, by equal names.

  Reports what was loaded, newly initialised, unused, and of another shape.

  Args:
    init_checkpoint: str, path of a checkpoint, or of a folder with some.
    is_training: bool; otherwise nothing may be left newly initialised.

  Raises:
    InputError: a variable of the encoder or of the embeddings (any variable,
      unless training) is absent or has another shape.
  """
  if tf.io.gfile.isdir(init_checkpoint):
    path = latest_checkpoint(init_checkpoint)
  else:
    path = init_checkpoint
  if not path or not tf.io.gfile.exists(path + ".index"):
    raise InputError("--init_checkpoint: no checkpoint at %s" % init_checkpoint)
  saved = dict(tf.train.list_variables(path))
  model = {v.op.name: v.shape.as_list() for v in tf.trainable_variables()}
  loaded = [name for name in model if saved.get(name) == model[name]]
  new = [name for name in model if name not in saved]
  wrong = ["%s (checkpoint %s, model %s)" % (name, saved[name], model[name])
           for name in model if saved.get(name, model[name]) != model[name]]
  unused = [name for name in saved if name not in model and
            not re.search("/adam_[mv]$|^global_step$", name)]

  needed = "bert/e" if is_training else ""  # bert/embeddings, bert/encoder
  missing = [name for name in new if name.startswith(needed)]
  if any(name.startswith("bert/encoder") for name in missing):
    other = {"bert/encoder/layer": "albert_zh's", "bert/encoder/transformer":
             "Google's"}
    for prefix, layout in other.items():
      if (any(name.startswith(prefix) for name in saved) and
          not any(name.startswith(prefix) for name in model)):
        raise InputError(
            "%s has %s variable layout and the configuration asks for the "
            "other one: use the configuration that came with the checkpoint"
            % (path, layout))
  bad = [name for name in wrong if name.startswith(needed)]
  if bad:
    raise InputError("%s does not fit the configuration: %s%s" % (
        path, bad[0], _and_more(bad)))
  if missing:
    raise InputError("%s lacks a variable of the model: %s%s" % (
        path, missing[0], _and_more(missing)))

  logging.info("%s: %d variables loaded", path, len(loaded))
  for what, names in (("newly initialised", new), ("unused", unused),
                      ("of another shape, newly initialised", wrong)):
    logging.info("  %s: %s", what, ", ".join(names) or "none")
  tf.train.init_from_checkpoint(path, {name: name for name in loaded})


def _and_more(names):
  return " and %d more" % (len(names) - 1) if len(names) > 1 else ""


def model_fn_builder(config, options, head, num_train_steps=0,
                     num_warmup_steps=0):
  """Makes the `model_fn` of any job.

  Args:
    config: AlbertConfig.
    options: flags.
    head: function of (model, features, is_training, reduce_mean) that returns
      a HeadOutput; it may find no labels among the features in prediction.
    num_train_steps: int, steps of the whole training.
    num_warmup_steps: int.

  Returns:
    `model_fn` for TPUEstimator.
  """

  def model_fn(features, labels, mode, params):
    del labels, params
    is_training = mode == tf.estimator.ModeKeys.TRAIN
    reduce_mean = (optimization.tpu_mean if options.use_tpu and is_training
                   else tf.identity)
    outputs = []

    def loss_fn():
      model = heads.create_model(
          config, is_training, features["input_ids"], features["input_mask"],
          features["segment_ids"], use_one_hot_embeddings=options.use_tpu)
      outputs.append(head(model, features, is_training, reduce_mean))
      return outputs[0].loss

    if not is_training:
      loss = loss_fn()
    else:
      step = tf.train.get_or_create_global_step()
      rate = optimization.create_learning_rate(
          options.learning_rate, num_train_steps, num_warmup_steps, step,
          options.poly_power)
      optimizer = {"adamw": AdamW, "lamb": LAMB}[options.optimizer](
          rate, options.weight_decay_rate)
      train_op, loss = optimization.create_train_op(
          loss_fn, optimizer, reduce_mean=reduce_mean)
    output = outputs[0]

    scaffold_fn = None
    # A checkpoint of the output folder is restored by the estimator.
    if options.init_checkpoint and not latest_checkpoint(options.output_dir):
      def scaffold_fn():
        init_from_checkpoint(options.init_checkpoint, is_training)
        return tf.train.Scaffold()
      if not options.use_tpu:
        scaffold_fn()
        scaffold_fn = None

    if is_training:
      if not options.use_tpu:
        scalars = [("loss", loss)] + [
            (name, _weighted_mean(*output.metrics[name]))
            for name in output.metrics] + [("learning_rate", rate)]
        for name, scalar in scalars:
          tf.summary.scalar(name, scalar)
          tf.add_to_collection(
              _PROGRESS, tf.identity(scalar, name="progress/" + name))
      return tf.estimator.tpu.TPUEstimatorSpec(
          mode, loss=loss, train_op=train_op, scaffold_fn=scaffold_fn)
    if mode == tf.estimator.ModeKeys.EVAL:
      names = list(output.metrics)

      def metric_fn(*tensors):
        return {name: tf.metrics.mean(values, weights)
                for name, values, weights in zip(
                    names, tensors[::2], tensors[1::2])}

      return tf.estimator.tpu.TPUEstimatorSpec(
          mode, loss=loss, scaffold_fn=scaffold_fn, eval_metrics=(
              metric_fn, [tensor for name in names
                          for tensor in output.metrics[name]]))
    return tf.estimator.tpu.TPUEstimatorSpec(
        mode, predictions=output.predictions, scaffold_fn=scaffold_fn)

  return model_fn


def _weighted_mean(values, weights):
  return tf.div_no_nan(tf.reduce_sum(values * weights), tf.reduce_sum(weights))


def create_estimator(options, model_fn, predict_batch_size=8):
  """Returns a TPUEstimator, which also runs on a CPU or a GPU."""
  cluster = None
  if options.use_tpu and options.tpu_name:
    cluster = tf.distribute.cluster_resolver.TPUClusterResolver(
        options.tpu_name, zone=options.tpu_zone, project=options.gcp_project)
  run_config = tf.estimator.tpu.RunConfig(
      cluster=cluster,
      master=options.master,
      model_dir=options.output_dir,
      tf_random_seed=options.random_seed,
      save_checkpoints_steps=options.save_checkpoints_steps,
      keep_checkpoint_max=options.keep_checkpoint_max,
      save_summary_steps=options.log_steps,
      log_step_count_steps=None,
      tpu_config=tf.estimator.tpu.TPUConfig(
          iterations_per_loop=min(options.iterations_per_loop,
                                  options.save_checkpoints_steps),
          num_shards=options.num_tpu_cores,
          per_host_input_for_training=(
              tf.estimator.tpu.InputPipelineConfig.PER_HOST_V2)))
  return tf.estimator.tpu.TPUEstimator(
      use_tpu=options.use_tpu,
      model_fn=model_fn,
      config=run_config,
      train_batch_size=options.train_batch_size,
      eval_batch_size=options.eval_batch_size,
      predict_batch_size=predict_batch_size)


def train_and_evaluate(estimator, options, train_input_fn, num_train_steps,
                       evaluator=None):
  """Trains to `num_train_steps`; evaluates at every saved checkpoint.

  Goes on from the newest checkpoint of the output folder, if there is one.

  Args:
    estimator: TPUEstimator.
    options: flags.
    train_input_fn: function of `params`.
    num_train_steps: int, global step to end at.
    evaluator: Evaluator, or None.
  """
  step = start_step(options.output_dir)
  if step >= num_train_steps:
    logging.info("%s: already at step %d of %d, nothing to train",
                 options.output_dir, step, num_train_steps)
    if evaluator:
      evaluator.evaluate(step)
    return
  if step:
    logging.info("going on from step %d of %s", step, options.output_dir)
  if not options.use_tpu:
    progress = ProgressHook(num_train_steps, options.log_steps,
                            options.train_batch_size)
    listener = _EvaluationListener(evaluator, progress)
    estimator.train(train_input_fn, hooks=[progress], max_steps=num_train_steps,
                    saving_listeners=[listener] if evaluator else None)
    return
  # One program at a time runs on a TPU: leave training to evaluate.
  while step < num_train_steps:
    step = min(step + options.save_checkpoints_steps, num_train_steps)
    estimator.train(train_input_fn, max_steps=step)
    if evaluator and evaluator.evaluate(step):
      return


class ProgressHook(tf.train.SessionRunHook):
  """Logs step, means over the last steps, rate and time left."""

  def __init__(self, num_train_steps, every, examples_per_step):
    self._num_train_steps = num_train_steps
    self._every = every
    self._examples_per_step = examples_per_step

  def begin(self):
    self._scalars = collections.OrderedDict(
        (scalar.op.name.split("/")[-1], scalar)
        for scalar in tf.get_collection(_PROGRESS))
    self._global_step = tf.train.get_global_step()

  def after_create_session(self, session, coord):
    del coord
    self._step = session.run(self._global_step)
    self._start_interval()

  def exclude(self, seconds):
    """Leaves time that was not spent on training out of the rate."""
    self._since += seconds

  def _start_interval(self):
    self._since = time.time()
    self._count = 0
    self._sums = collections.Counter()

  def before_run(self, run_context):
    return tf.train.SessionRunArgs(self._scalars)

  def after_run(self, run_context, run_values):
    self._step += 1
    self._count += 1
    self._sums.update(run_values.results)
    if self._step % self._every and self._step != self._num_train_steps:
      return
    seconds = (time.time() - self._since) / self._count
    left = int(seconds * (self._num_train_steps - self._step))
    means = ["%s %s" % (name, _short(self._sums[name] / self._count))
             for name in self._scalars]
    logging.info("step %d/%d | %s | %.1f examples/s | %d:%02d:%02d left",
                 self._step, self._num_train_steps, " | ".join(means),
                 self._examples_per_step / seconds,
                 left // 3600, left // 60 % 60, left % 60)
    self._start_interval()


def _short(value):
  return "%.4f" % value if value >= 0.01 or not value else "%.2e" % value


class _EvaluationListener(tf.train.CheckpointSaverListener):
  """Calls the evaluator when a checkpoint has been saved."""

  def __init__(self, evaluator, progress):
    self._evaluator = evaluator
    self._progress = progress

  def after_save(self, session, global_step_value):
    if not global_step_value:
      return False
    start = time.time()
    stop = self._evaluator.evaluate(int(global_step_value))
    self._progress.exclude(time.time() - start)
    return stop


class Evaluator:
  """Evaluates checkpoints, writes the results down and keeps the best one.

  Everything is remembered in `eval_history.tsv` of the output folder, so that
  a restart knows what the best has been.

  Args:
    output_dir: str.
    evaluate_fn: function of a checkpoint path that returns a dict of results
      (name -> number).
    best_rule: BestRule.
    files: names of files of `output_dir` to keep beside the best checkpoint.
  """

  def __init__(self, output_dir, evaluate_fn, best_rule, files=()):
    self._output_dir = output_dir
    self._evaluate_fn = evaluate_fn
    self._rule = best_rule
    self._files = files
    self._history_path = os.path.join(output_dir, "eval_history.tsv")

  def evaluate(self, step):
    """Evaluates the newest checkpoint unless the history has it already.

    Args:
      step: int, its global step.

    Returns:
      bool, whether to stop training.
    """
    history = self._history()
    if any(int(row["global_step"]) == step for row in history):
      return False
    results = evaluate_and_write(self._output_dir, self._evaluate_fn)
    if not history or self._is_better(results, self._best(history)):
      keep_best(self._output_dir, results, self._files)
    self._append(history, results)
    return False

  def _best(self, history):
    best = history[0]
    for row in history[1:]:
      if self._is_better(row, best):
        best = row
    return best

  def _is_better(self, row, other):
    new, old = (float(r[self._rule.metric]) for r in (row, other))
    return new > old if self._rule.higher_is_better else new < old

  def _history(self):
    if not tf.io.gfile.exists(self._history_path):
      return []
    return list(csv.DictReader(io.StringIO(read_text(self._history_path)),
                               delimiter="\t"))

  def _append(self, history, results):
    names = ["global_step"] + sorted(set(results) - {"global_step"})
    rows = [[row[name] for name in names] for row in history + [results]]
    write_text(self._history_path, "".join(
        "\t".join(map(str, row)) + "\n" for row in [names] + rows))


def evaluate_and_write(output_dir, evaluate_fn):
  """Evaluates the newest checkpoint and writes `eval_results.txt`.

  Args:
    output_dir: str; where it has no checkpoint, the model is evaluated as
      `--init_checkpoint` makes it.
    evaluate_fn: function of a checkpoint path, or None, that returns results.

  Returns:
    dict of results.
  """
  results = evaluate_fn(latest_checkpoint(output_dir))
  write_results(os.path.join(output_dir, "eval_results.txt"), results)
  logging.info("evaluation at step %d | %s", results["global_step"], " | ".join(
      "%s %s" % (name, _short(results[name]))
      for name in sorted(results) if name != "global_step"))
  return results


def keep_best(output_dir, results, files=()):
  """Copies the newest checkpoint of `output_dir` to `output_dir/best`.

  Whatever moment it is interrupted at, `best/checkpoint` names a whole one.

  Args:
    output_dir: str.
    results: dict, written beside it as `eval_results.txt`.
    files: names of files of `output_dir` to copy too.
  """
  best = os.path.join(output_dir, "best")
  tf.io.gfile.makedirs(best)
  checkpoint = latest_checkpoint(output_dir)
  name = os.path.basename(checkpoint)
  for path in tf.io.gfile.glob(checkpoint + ".*"):
    if not path.endswith(".meta"):
      tf.io.gfile.copy(path, os.path.join(best, os.path.basename(path)),
                       overwrite=True)
  for path in files:
    tf.io.gfile.copy(os.path.join(output_dir, path), os.path.join(best, path),
                     overwrite=True)
  # TensorFlow's own way to write this file gets a relative folder wrong.
  write_text(os.path.join(best, "checkpoint"),
             'model_checkpoint_path: "%s"\n' % name)
  write_results(os.path.join(best, "eval_results.txt"), results)
  for path in tf.io.gfile.glob(os.path.join(best, "model.ckpt-*")):
    if not os.path.basename(path).startswith(name + "."):
      tf.io.gfile.remove(path)


def export_saved_model(estimator, export_dir):
  """Exports the newest checkpoint's predictions as a SavedModel."""
  def serving_input_fn():
    features = {name: tf.placeholder(tf.int32, [None, None], name)
                for name in ("input_ids", "input_mask", "segment_ids")}
    return tf.estimator.export.ServingInputReceiver(features, features)

  path = estimator.export_saved_model(export_dir, serving_input_fn)
  logging.info("exported to %s", tf.compat.as_str_any(path))


def write_results(path, results):
  """Writes `key = value` lines, sorted by key."""
  write_text(path, "".join("%s = %s\n" % (name, results[name])
                           for name in sorted(results)))


def write_text(path, text):
  """Writes a UTF-8 file that appears whole or not at all."""
  with tf.io.gfile.GFile(path + ".tmp", "w") as writer:
    writer.write(text)
  tf.io.gfile.rename(path + ".tmp", path, overwrite=True)


def read_text(path):
  """Returns the content of a UTF-8 file."""
  with tf.io.gfile.GFile(path, "r") as reader:
    return reader.read()
