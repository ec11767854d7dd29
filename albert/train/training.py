"""What all training shares: flags, set-up, the loop, its progress.

Functions take `options`: an object with the attributes that the flags below
name. Scripts pass `flags.FLAGS`.
"""

import collections
import ctypes
import math
import os
import re
import time

import tensorflow.compat.v1 as tf
from absl import flags, logging

from albert.errors import InputError
from albert.files import checkpoints, records
from albert.files.outputs import short
from albert.progress import hours
from albert.train import distribution, estimators, model_flags

flags.adopt_module_key_flags(model_flags)
flags.DEFINE_string("output_dir", None,
                    "Folder for checkpoints and results; what was begun in it "
                    "is resumed.")
flags.DEFINE_bool("do_train", False, "Whether to train.")
flags.DEFINE_bool("do_eval", False,
                  "Whether to evaluate: the newest checkpoint of --output_dir, "
                  "else its best one, else --init_checkpoint as it stands.")
flags.DEFINE_integer("train_batch_size", 32,
                     "Examples per training step; with --use_horovod, of each "
                     "process.", lower_bound=1)
flags.DEFINE_integer("gradient_accumulation_steps", 1,
                     "Slices that a batch is handled in one after the other: "
                     "less memory, the same step.", lower_bound=1)
flags.DEFINE_bool("recompute_grads", False,
                  "Whether to compute each layer again in the backward pass "
                  "instead of keeping what it computed: less memory.")
flags.DEFINE_integer("eval_batch_size", 32, "Examples per evaluation batch.",
                     lower_bound=1)
flags.DEFINE_enum("optimizer", "adamw", ["adamw", "lamb"], "Optimizer.")
flags.DEFINE_float("learning_rate", 5e-5, "Peak learning rate.")
flags.DEFINE_float("poly_power", 1.0,
                   "Power of the learning rate's decay, 1 for linear.")
flags.DEFINE_float("weight_decay_rate", 0.01, "Weight decay.")
flags.DEFINE_integer("save_checkpoints_steps", 1000,
                     "Steps from one checkpoint, and evaluation, to the next.",
                     lower_bound=1)
flags.DEFINE_integer("keep_checkpoint_max", 5,
                     "Newest checkpoints to keep in --output_dir.")
flags.DEFINE_integer("log_steps", 100,
                     "Steps from one line of progress and summary to the next.",
                     lower_bound=1)
flags.DEFINE_integer("early_stop_evals", None,
                     "Stop after this many evaluations without improvement.",
                     lower_bound=1)
flags.DEFINE_bool("use_horovod", False,
                  "Whether to train with the processes that horovodrun starts.")
flags.DEFINE_enum("precision", "float32", ["float32", "fp16", "bf16"],
                  "Training in mixed precision: fp16 with loss scaling, for "
                  "GPUs; bf16 in matrix multiplications, for TPUs and TF 2.15.")
flags.DEFINE_bool("use_fp16", False, "The same as --precision=fp16.")
flags.DEFINE_bool("use_xla", False, "Whether to compile with XLA.")
flags.DEFINE_integer("random_seed", 12345,
                     "Seed of initial weights, dropout and reading order.",
                     lower_bound=0, upper_bound=2**31 - 1)
flags.DEFINE_integer("iterations_per_loop", 1000,
                     "TPU: steps per call of the device.")
flags.DEFINE_bool("use_tpu", False, "Whether to run on a TPU.")
flags.DEFINE_string("tpu_name", None, "TPU: name or grpc address.")
flags.DEFINE_string("tpu_zone", None, "TPU: zone, if not detected.")
flags.DEFINE_string("gcp_project", None, "TPU: project, if not detected.")
flags.DEFINE_string("master", None, "TensorFlow master's address.")
flags.DEFINE_integer("num_tpu_cores", 8, "TPU: number of cores.")

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
  if options.use_fp16:
    if options["precision"].present and options.precision != "fp16":
      raise InputError("--use_fp16 contradicts --precision=%s" %
                       options.precision)
    options.precision = "fp16"
  if (options.precision == "bf16" and not options.use_tpu and
      tf.__version__.startswith("1.")):
    raise InputError("--precision=bf16 needs a TPU or TensorFlow 2.15, not %s"
                     % tf.__version__)
  warn_of_idle_flags(options, _idle_flags(options))
  prepare_process(options)
  return workers


def prepare_process(options):
  """Sets what TensorFlow and glibc read of the process."""
  keep_freed_memory()
  if options.use_xla:  # read when the first session starts
    os.environ["TF_XLA_FLAGS"] = (
        os.environ.get("TF_XLA_FLAGS", "") + " --tf_xla_cpu_global_jit")


def _idle_flags(options):
  """Returns the rules of warn_of_idle_flags that all scripts share."""
  return [
      (["train_batch_size", "gradient_accumulation_steps", "recompute_grads",
        "optimizer", "learning_rate", "poly_power", "weight_decay_rate",
        "precision",
        "save_checkpoints_steps", "keep_checkpoint_max", "use_horovod"],
       options.do_train, "--do_train", False),
      (["tpu_name"], options.use_tpu, "--use_tpu", True),
      (["tpu_zone", "gcp_project", "num_tpu_cores", "iterations_per_loop"],
       options.use_tpu, "--use_tpu", False),
      # Elsewhere it scales the loss, and computes in single precision.
      (["use_fp16", "precision"], options.precision != "fp16" or
       tf.config.experimental.list_physical_devices("GPU"), "a GPU", False)]


def warn_of_idle_flags(options, rules):
  """Warns of flags that were given and have no effect.

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


@records.naming_damage()
def train_and_evaluate(estimator, options, train_input_fn_at, num_train_steps,
                       evaluator=None):
  """Trains to `num_train_steps`; evaluates at every saved checkpoint.

  Resumes from the newest checkpoint of the output folder, if there is one.

  Args:
    estimator: TPUEstimator.
    options: flags.
    train_input_fn_at: function of the step that reading begins at, which
      returns an `input_fn`: different steps give different orders.
    num_train_steps: int, global step to end at.
    evaluator: outputs.Evaluator, or None.

  Raises:
    InputError: the loss is not finite, a record file is damaged, or the model
      to resume was trained with flags that give it other variables.
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
    logging.info(
        "%s: already at step %d of %d, nothing to train; for other data or "
        "settings, choose a different --output_dir", options.output_dir, step,
        num_train_steps)
    if evaluator:
      evaluator.evaluate(step)
    return
  if step:
    logging.info("resuming from step %d of %s", step, options.output_dir)
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
    hooks = _hooks(options, workers, num_train_steps, evaluator, should_stop)
    try:
      estimator.train(train_input_fn_at(step), max_steps=end, hooks=hooks)
    except tf.errors.NotFoundError as error:
      lacks = re.search(r"Key (\S+) not found in checkpoint", error.message)
      if not lacks:
        raise
      raise InputError(
          "%s: the checkpoint to resume from lacks %s, which the flags ask "
          "for: give those it was made with (--precision, --optimizer, "
          "--sentence_loss_weight), or a different --output_dir" % (
              options.output_dir, lacks.group(1))) from error
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
        for scalar in tf.get_collection(estimators.PROGRESS))
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
    means = ["%s %s" % (name, short(self._sums[name] / self._count))
             for name in self._scalars if name in self._sums]
    logging.info("step %d/%d | %s | %.1f examples/s | %s left",
                 step, self._num_train_steps, " | ".join(means),
                 self._examples_per_step / seconds,
                 hours(seconds * (self._num_train_steps - step)))
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


