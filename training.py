"""What every script shares: flags, model_fn, estimator, training loop.

Functions take `options`: an object with the attributes that the flags below
name. Scripts pass `flags.FLAGS`.
"""

import atexit
import collections
import ctypes
import math
import os
import shutil
import tempfile
import time

import tensorflow.compat.v1 as tf
import tensorflow.compat.v2.summary as summary_v2
from absl import flags, logging

import checkpoints
import distribution
import heads
import modeling
import optimization
import records
from errors import InputError
from lamb_optimizer import LAMB
from optimization import AdamW
from outputs import short

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
flags.DEFINE_integer("train_batch_size", 32,
                     "Examples per training step; with --use_horovod, of each "
                     "process.")
flags.DEFINE_integer("gradient_accumulation_steps", 1,
                     "Slices that a batch is handled in one after the other: "
                     "less memory, the same step.")
flags.DEFINE_bool("recompute_grads", False,
                  "Whether to compute each layer again in the backward pass "
                  "instead of keeping what it computed: less memory.")
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
flags.DEFINE_integer("early_stop_evals", None,
                     "Stop after so many evaluations without a better one.")
flags.DEFINE_bool("use_horovod", False,
                  "Whether to train with the processes that horovodrun starts.")
flags.DEFINE_bool("use_fp16", False,
                  "Whether to train in mixed precision with loss scaling.")
flags.DEFINE_bool("use_xla", False, "Whether to compile with XLA.")
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

# What a head makes of a model and a batch, or a slice of one.
#   losses: dict, name -> float scalar, summed over the examples; empty in
#     prediction. The loss of a batch is the sum of `losses[name]` divided by
#     the total of that name (see model_fn_builder).
#   metrics: dict, name -> (values [M], weights [M]); weighted means are shown.
#   predictions: dict, name -> tensor [B, ...].
HeadOutput = collections.namedtuple(
    "HeadOutput", ["losses", "metrics", "predictions"])


def start(options):
  """Sets this process up for training or evaluation.

  Args:
    options: flags.

  Returns:
    distribution.Workers.
  """
  workers = distribution.get_workers(options.use_horovod, options.use_tpu)
  if workers.rank:
    logging.set_verbosity(logging.ERROR)
  if options.train_batch_size % options.gradient_accumulation_steps:
    raise InputError("--train_batch_size %d is not a multiple of "
                     "--gradient_accumulation_steps %d" % (
                         options.train_batch_size,
                         options.gradient_accumulation_steps))
  warn_of_idle_flags(options, _idle_flags(options))
  keep_freed_memory()
  if options.use_xla:  # read when the first session starts
    os.environ["TF_XLA_FLAGS"] = (
        os.environ.get("TF_XLA_FLAGS", "") + " --tf_xla_cpu_global_jit")
  return workers


def _idle_flags(options):
  """Returns the rules of warn_of_idle_flags that all scripts share."""
  return [
      (["train_batch_size", "gradient_accumulation_steps", "recompute_grads",
        "optimizer", "learning_rate", "poly_power", "weight_decay_rate",
        "save_checkpoints_steps", "keep_checkpoint_max", "use_horovod"],
       options.do_train, "--do_train", False),
      (["tpu_name"], options.use_tpu, "--use_tpu", True),
      (["tpu_zone", "gcp_project", "num_tpu_cores", "iterations_per_loop"],
       options.use_tpu, "--use_tpu", False),
      # Elsewhere it scales the loss, and computes in single precision.
      (["use_fp16"], not options.use_fp16 or
       tf.config.experimental.list_physical_devices("GPU"), "a GPU", False)]


def warn_of_idle_flags(options, rules):
  """Tells of flags that were given and do nothing.

  Args:
    options: flags.
    rules: list of (names of flags, whether they do something, what that takes,
      whether they are an error if not, because what was asked for would not
      happen).

  Raises:
    InputError: there is such an error.
  """
  for names, is_met, need, is_error in rules:
    given = ["--" + name for name in names
             if options[name].present and options[name].value]
    if given and not is_met:
      message = "without %s, there is no effect of %s" % (
          need, ", ".join(given))
      if is_error:
        raise InputError(message)
      logging.warning(message)


def keep_freed_memory():
  """Makes glibc keep what is freed, where this is glibc.

  It gives each large tensor back to the system, and the next one of its size
  costs page faults that take longer than most operations.
  """
  try:
    mallopt = ctypes.CDLL(None).mallopt
  except (AttributeError, OSError, TypeError):
    return
  mallopt(-4, 0)  # M_MMAP_MAX
  mallopt(-1, -1)  # M_TRIM_THRESHOLD


def model_fn_builder(config, options, head, loss_totals, num_train_steps=0,
                     num_warmup_steps=0):
  """Makes the `model_fn` of any job.

  Args:
    config: AlbertConfig.
    options: flags.
    head: function of (model, features) that returns a HeadOutput; it may find
      no labels among the features in prediction.
    loss_totals: function of features that returns a dict, name -> float scalar,
      what each of the head's losses is divided by. It is given the whole batch
      where the head is given a slice.
    num_train_steps: int, steps of the whole training.
    num_warmup_steps: int.

  Returns:
    `model_fn` for TPUEstimator.
  """

  def apply_head(features, is_training):
    def rows(name):
      x = features[name]
      if x.shape.ndims == 2:
        return x
      # The choices of a question are sequences of their own.
      batch, choices, length = modeling.get_shape_list(x, 3, name)
      return tf.reshape(x, [batch * choices, length])

    model = heads.create_model(
        config, is_training, rows("input_ids"), rows("input_mask"),
        rows("segment_ids"), use_one_hot_embeddings=options.use_tpu,
        recompute_grads=is_training and options.recompute_grads)
    return head(model, features)

  def train_spec(features):
    workers = distribution.get_workers(options.use_horovod, options.use_tpu)
    num_slices = options.gradient_accumulation_steps
    totals = loss_totals(features)
    names = sorted(totals)
    totals = dict(zip(names, workers.reduce_mean(
        [totals[name] for name in names])))
    metric_names = []

    def loss_fn(number):
      output = apply_head(_slice(features, number, num_slices), True)
      metric_names[:] = list(output.metrics)
      values = []
      for name in metric_names:
        value, weight = output.metrics[name]
        values += [tf.reduce_sum(value * weight), tf.reduce_sum(weight)]
      return _total_loss(output, totals), values

    step = tf.train.get_or_create_global_step()
    if options.use_xla:
      # The tensor that hooks read the step from is a conditional that TF 1.15
      # compiles to a constant, with which training would never end.
      tf.get_collection_ref("global_step_read_op_cache")[:] = [
          step.read_value() + 0]
    rate = optimization.create_learning_rate(
        options.learning_rate, num_train_steps, num_warmup_steps, step,
        options.poly_power)
    optimizer = {"adamw": AdamW, "lamb": LAMB}[options.optimizer](
        rate, options.weight_decay_rate)
    if options.use_fp16:
      optimizer = tf.train.experimental.enable_mixed_precision_graph_rewrite(
          optimizer)
    train_op, loss, values = optimization.create_train_op(
        loss_fn, optimizer, reduce_mean=workers.reduce_mean,
        num_slices=num_slices)
    scalars = collections.OrderedDict([("loss", loss)])
    for name, value, weight in zip(metric_names, values[::2], values[1::2]):
      scalars[name] = tf.div_no_nan(value, weight)
    scalars["learning_rate"] = rate
    scaffold_fn = None
    if not workers.rank:
      scaffold_fn = initialize(is_training=True)
    if options.use_tpu:
      return tf.estimator.tpu.TPUEstimatorSpec(
          tf.estimator.ModeKeys.TRAIN, loss=loss, train_op=train_op,
          scaffold_fn=scaffold_fn, host_call=_host_call(scalars, options))
    for name, scalar in scalars.items():
      tf.summary.scalar(name, scalar)
    with tf.control_dependencies([train_op]):
      scalars["global_step"] = step.read_value()
    for name, scalar in scalars.items():
      tf.add_to_collection(
          _PROGRESS, tf.identity(scalar, name="progress/" + name))
    return tf.estimator.tpu.TPUEstimatorSpec(
        tf.estimator.ModeKeys.TRAIN, loss=loss, train_op=train_op)

  def initialize(is_training):
    """Initialises from a checkpoint; on a TPU by the function returned."""
    # A checkpoint of the output folder is restored by the estimator.
    if (not options.init_checkpoint or
        checkpoints.latest_checkpoint(options.output_dir)):
      return None

    def scaffold_fn():
      checkpoints.init_from_checkpoint(options.init_checkpoint, is_training)
      return tf.train.Scaffold()

    if options.use_tpu:
      return scaffold_fn
    scaffold_fn()
    return None

  def model_fn(features, labels, mode, params):
    del labels, params
    if mode == tf.estimator.ModeKeys.TRAIN:
      return train_spec(features)
    output = apply_head(features, False)
    scaffold_fn = initialize(is_training=False)
    if mode == tf.estimator.ModeKeys.PREDICT:
      return tf.estimator.tpu.TPUEstimatorSpec(
          mode, predictions=output.predictions, scaffold_fn=scaffold_fn)
    names = list(output.metrics)

    def metric_fn(*tensors):
      return {name: tf.metrics.mean(values, weights)
              for name, values, weights in zip(
                  names, tensors[::2], tensors[1::2])}

    return tf.estimator.tpu.TPUEstimatorSpec(
        mode, loss=_total_loss(output, loss_totals(features)),
        scaffold_fn=scaffold_fn, eval_metrics=(metric_fn, [
            tensor for name in names for tensor in output.metrics[name]]))

  return model_fn


def _slice(features, number, num_slices):
  """Returns slice `number` of the batch, a dict like `features`."""
  if num_slices == 1:
    return features

  def take(x):
    taken = tf.gather(tf.reshape(x, tf.concat(
        [[num_slices, -1], tf.shape(x)[1:]], 0)), number)
    batch_size, *rest = x.shape.as_list()
    taken.set_shape([batch_size and batch_size // num_slices] + rest)
    return taken

  return {name: take(x) for name, x in features.items()}


def _total_loss(output, totals):
  return tf.add_n([tf.div_no_nan(loss, totals[name])
                   for name, loss in output.losses.items()])


def _host_call(scalars, options):
  """Returns a TPU's host call, which writes scalars and keeps them to log."""
  def write(step, *values):
    step = tf.reduce_max(step)
    # The host gets one value from each replica; all are the same.
    values = [tf.reduce_mean(value) for value in values]
    writer = summary_v2.create_file_writer(options.output_dir)
    with writer.as_default(), summary_v2.record_if(
        tf.equal(step % options.log_steps, 0)):
      for name, value in zip(scalars, values):
        summary_v2.scalar(name, value, step)
    return tf.summary.all_v2_summary_ops() + [
        _keep(name, value) for name, value in zip(scalars, values)]

  step = tf.train.get_global_step()
  return write, [tf.reshape(x, [1]) for x in [step] + list(scalars.values())]


def _keep(name, value):
  """Keeps a scalar on the host; returns the op that does."""
  kept = tf.get_variable(
      "host_call/" + name, [], initializer=tf.zeros_initializer(),
      trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES])
  tf.add_to_collection(
      _PROGRESS, tf.identity(kept.read_value(), name="progress/" + name))
  return kept.assign(value)


def create_estimator(options, model_fn, predict_batch_size=8):
  """Returns a TPUEstimator, which also runs on a CPU or a GPU."""
  workers = distribution.get_workers(options.use_horovod, options.use_tpu)
  output_dir = options.output_dir
  if workers.rank:
    output_dir = tempfile.mkdtemp(prefix="albert-rank-%d-" % workers.rank)
    atexit.register(shutil.rmtree, output_dir, ignore_errors=True)
  session_config = tf.ConfigProto(allow_soft_placement=True)
  session_config.gpu_options.allow_growth = True
  if (options.use_horovod and
      tf.config.experimental.list_physical_devices("GPU")):
    session_config.gpu_options.visible_device_list = str(workers.local_rank)
  if options.use_xla:
    session_config.graph_options.optimizer_options.global_jit_level = (
        tf.OptimizerOptions.ON_1)
  cluster = None
  if options.use_tpu and options.tpu_name:
    cluster = tf.distribute.cluster_resolver.TPUClusterResolver(
        options.tpu_name, zone=options.tpu_zone, project=options.gcp_project)
  run_config = tf.estimator.tpu.RunConfig(
      cluster=cluster,
      master=options.master,
      model_dir=output_dir,
      session_config=None if options.use_tpu else session_config,
      tf_random_seed=options.random_seed,
      save_checkpoints_steps=(
          None if workers.rank else options.save_checkpoints_steps),
      keep_checkpoint_max=options.keep_checkpoint_max,
      save_summary_steps=0 if workers.rank else options.log_steps,
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


@records.naming_damage()
def train_and_evaluate(estimator, options, train_input_fn_at, num_train_steps,
                       evaluator=None):
  """Trains to `num_train_steps`; evaluates at every saved checkpoint.

  Goes on from the newest checkpoint of the output folder, if there is one.

  Args:
    estimator: TPUEstimator.
    options: flags.
    train_input_fn_at: function of the step that reading begins at, which
      returns an `input_fn`: another order for another step.
    num_train_steps: int, global step to end at.
    evaluator: outputs.Evaluator, or None.

  Raises:
    InputError: the loss is not finite, or a record file is damaged.
  """
  workers = distribution.get_workers(options.use_horovod, options.use_tpu)
  step = checkpoints.start_step(options.output_dir) if not workers.rank else 0
  if options.use_horovod:
    step = distribution.broadcast(step)
  if workers.rank:
    evaluator = None
  else:
    checkpoints.remove_unfinished_checkpoints(options.output_dir)
  if evaluator:
    evaluator.go_on_from(step)
  if step >= num_train_steps:
    logging.info("%s: already at step %d of %d, nothing to train",
                 options.output_dir, step, num_train_steps)
    if evaluator:
      evaluator.evaluate(step)
    return
  if step:
    logging.info("going on from step %d of %s", step, options.output_dir)
  should_stop = evaluator.should_stop if evaluator else lambda: False
  stop = should_stop()
  if options.use_horovod:
    stop = distribution.broadcast(int(stop))
  if stop:
    return
  # One program at a time runs on a TPU: leave training to evaluate, and only
  # then.
  leaves = bool(options.use_tpu and evaluator)
  while step < num_train_steps and not (leaves and should_stop()):
    end = min(step + options.save_checkpoints_steps,
              num_train_steps) if leaves else num_train_steps
    estimator.train(
        train_input_fn_at(step), max_steps=end,
        hooks=_hooks(options, workers, num_train_steps, evaluator, should_stop))
    step = end
    if leaves:
      evaluator.evaluate(step)


def _hooks(options, workers, num_train_steps, evaluator, should_stop):
  """Returns the hooks of training, in the order they run."""
  progress = ProgressHook(num_train_steps, options.log_steps,
                          options.train_batch_size * workers.size,
                          options.output_dir)
  hooks = [progress]
  if options.use_tpu:  # its estimator saves by itself
    return hooks
  if not workers.rank:
    hooks.append(tf.train.CheckpointSaverHook(
        options.output_dir, save_steps=options.save_checkpoints_steps,
        listeners=[_EvaluationListener(evaluator, progress)] if evaluator
        else None))
  if options.use_horovod:
    hooks.insert(0, distribution.broadcast_variables_hook())
    hooks.append(distribution.StopTogetherHook(
        options.save_checkpoints_steps, should_stop))
  return hooks


def _not_finite(loss, step, output_dir):
  return InputError(
      "the loss is %s at step %d; the newest checkpoint with finite weights is "
      "%s: remove newer ones, and training goes on from it; try a lower "
      "--learning_rate or other data" % (
          loss, step, checkpoints.newest_finite_checkpoint(output_dir)))


class ProgressHook(tf.train.SessionRunHook):
  """Logs step, means over the last steps, rate and time left.

  Ends training with an InputError before a loss that is not finite can reach a
  checkpoint.
  """

  def __init__(self, num_train_steps, every, examples_per_step, output_dir):
    self._num_train_steps = num_train_steps
    self._every = every
    self._examples_per_step = examples_per_step
    self._output_dir = output_dir

  def begin(self):
    self._scalars = collections.OrderedDict(
        (scalar.op.name.split("/")[-1], scalar)
        for scalar in tf.get_collection(_PROGRESS))
    self._global_step = tf.train.get_global_step()
    if "global_step" not in self._scalars:
      # On a TPU: what is known when its loop ends, not what the host has heard.
      self._scalars["loss"] = tf.get_collection(tf.GraphKeys.LOSSES)[-1]
      with tf.control_dependencies([self._scalars["loss"]]):
        self._scalars["global_step"] = self._global_step.read_value()

  def after_create_session(self, session, coord):
    del coord
    self._step = session.run(self._global_step)
    self._start_interval()

  def exclude(self, seconds):
    """Leaves time that was not spent on training out of the rate."""
    self._since += seconds

  def _start_interval(self):
    self._since = time.time()
    self._first_step = self._step
    self._count = 0
    self._sums = collections.Counter()

  def before_run(self, run_context):
    return tf.train.SessionRunArgs(self._scalars)

  def after_run(self, run_context, run_values):
    values = run_values.results
    if not math.isfinite(values["loss"]):
      raise _not_finite(values["loss"], self._step + 1, self._output_dir)
    step = values.pop("global_step")
    if step == self._step:
      logging.info("step %d skipped: gradients too large for half precision",
                   step + 1)
      return
    self._step = step
    self._count += 1
    self._sums.update(values)
    # A TPU takes many steps at once.
    if (step // self._every == self._first_step // self._every and
        step != self._num_train_steps):
      return
    seconds = (time.time() - self._since) / (step - self._first_step)
    left = int(seconds * (self._num_train_steps - step))
    means = ["%s %s" % (name, short(self._sums[name] / self._count))
             for name in self._scalars if name in self._sums]
    logging.info("step %d/%d | %s | %.1f examples/s | %d:%02d:%02d left",
                 step, self._num_train_steps, " | ".join(means),
                 self._examples_per_step / seconds,
                 left // 3600, left // 60 % 60, left % 60)
    self._start_interval()


class _EvaluationListener(tf.train.CheckpointSaverListener):
  """Calls the evaluator when a checkpoint has been saved."""

  def __init__(self, evaluator, progress):
    self._evaluator = evaluator
    self._progress = progress

  def after_save(self, session, global_step_value):
    if not global_step_value:
      return False
    start = time.time()
    self._evaluator.evaluate(int(global_step_value))
    self._progress.exclude(time.time() - start)
    return self._evaluator.should_stop()


def export_saved_model(estimator, export_dir):
  """Exports the newest checkpoint's predictions as a SavedModel."""
  def serving_input_fn():
    features = {name: tf.placeholder(tf.int32, [None, None], name)
                for name in ("input_ids", "input_mask", "segment_ids")}
    return tf.estimator.export.ServingInputReceiver(features, features)

  path = estimator.export_saved_model(
      export_dir, serving_input_fn,
      checkpoint_path=checkpoints.latest_checkpoint(estimator.model_dir))
  logging.info("exported to %s", tf.compat.as_str_any(path))


