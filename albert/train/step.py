"""The graph of a step: features, model, head, losses, gradients, update.

The calls from a command to the loss:

    run_pretraining.py, run_classifier.py, ...   main
    loop.train_and_evaluate       resumes; calls the Estimator once
      Estimator.train             calls input_fn and model_fn once, then runs
                                  their graph at each step
        model_fn                  this file
          _train_spec
            slice_sums            model, head, loss and gradients of a slice
              Head.apply          albert/heads/

Meanwhile the hooks of hooks.py run in this order: broadcast variables from rank
0 (Horovod), log progress, save a checkpoint every --save_checkpoints_steps and
evaluate it with evaluation.Evaluator, stop all ranks together (Horovod). On a
TPU the Estimator runs many steps per call and saves checkpoints itself, so
training stops to evaluate.

Devices differ in `workers.reduce_mean`: on a CPU or GPU it returns its
argument, otherwise the mean over Horovod processes or TPU cores. Several GPUs
of one process share a batch. Gradients are summed over the slices of a batch
and over GPUs, averaged over workers, clipped, and applied.
"""

import dataclasses
from typing import Any, Callable, Dict

import tensorflow.compat.v1 as tf
import tensorflow.compat.v2.summary as summary_v2

import modeling
import optimization
from albert.files import checkpoints
from albert.heads.base import Head
from albert.model import kernels
from albert.model.config import AlbertConfig
from albert.model.layouts import create_model
from albert.train.distribution import Workers
from albert.train.settings import DeviceSettings, Schedule, TrainSettings
from lamb_optimizer import LAMB
from optimization import AdamW

PROGRESS = "progress"  # graph collection of scalars to log
_PART = "part_of_loss/"  # prefix of the evaluated means of losses
_CLIP_NORM = 1.0  # maximum global norm of the gradients


def model_fn_builder(
  config: AlbertConfig,
  head: Head,
  settings: TrainSettings,
  schedule: Schedule,
  workers: Workers,
) -> Callable[..., Any]:
  """Returns the `model_fn` for TPUEstimator.

  Args:
    config: configuration of the encoder.
    head: computes losses and predictions.
    settings: settings of the run.
    schedule: steps of the training.
    workers: the processes.
  """

  def model_fn(features, labels, mode, params):
    del labels
    if mode == tf.estimator.ModeKeys.TRAIN:
      return _train_spec(config, head, settings, schedule, workers, features)
    # A model trained on a TPU can be exported for a CPU.
    device = dataclasses.replace(
      settings.device, use_tpu=params.get("use_tpu", settings.device.use_tpu)
    )
    output = head.apply(build_model(config, features, device, False), features)
    scaffold_fn = _initialize(settings, checkpoints.newest_or_best, False)
    if mode == tf.estimator.ModeKeys.PREDICT:
      # Fine-tuning numbers examples, because batching by length reorders them.
      numbers = {name: features[name] for name in features if name == "number"}
      return tf.estimator.tpu.TPUEstimatorSpec(
        mode,
        predictions=dict(output.predictions, **numbers),
        scaffold_fn=scaffold_fn,
      )
    parts = _parts(output.losses, head.totals(features))
    shown = dict(
      output.metrics,
      **{
        _PART + name: [tf.reshape(x, [1]) for x in pair]
        for name, pair in parts.items()
      },
    )

    def metric_fn(*tensors):
      return {
        name: tf.metrics.mean(values, weights)
        for name, values, weights in zip(shown, tensors[::2], tensors[1::2])
      }

    return tf.estimator.tpu.TPUEstimatorSpec(
      mode,
      loss=_total_loss(output.losses, head.totals(features)),
      scaffold_fn=scaffold_fn,
      eval_metrics=(
        metric_fn,
        [tensor for pair in shown.values() for tensor in pair],
      ),
    )

  return model_fn


def build_model(
  config: AlbertConfig,
  features: Dict[str, tf.Tensor],
  device: DeviceSettings,
  is_training: bool,
) -> modeling.AlbertModel:
  """Returns the encoder of a batch.

  Args:
    config: configuration of the encoder.
    features: input_ids, input_mask and segment_ids, int [B, S], or [B, C, S] if
      an example has C sequences.
    device: chooses the implementation.
    is_training: whether to use dropout.
  """
  rows = []
  for name in ("input_ids", "input_mask", "segment_ids"):
    x = features[name]
    if x.shape.ndims == 3:
      batch, choices, length = modeling.get_shape_list(x, 3, name)
      x = tf.reshape(x, [batch * choices, length])
    rows.append(x)
  used = modeling.PLAIN
  if is_training:
    used = kernels.for_training(
      rows[0].shape.as_list()[1],
      device.precision,
      device.recompute_grads,
      is_cpu(device),
      device.use_xla or device.use_tpu,
    )
  return create_model(
    config,
    is_training,
    *rows,
    use_one_hot_embeddings=device.use_tpu,
    kernels=used,
  )


def is_cpu(device: DeviceSettings) -> bool:
  """Returns whether training runs on a CPU."""
  return not (device.use_tpu or device.dry_run) and not (
    tf.config.experimental.list_physical_devices("GPU")
  )


def _train_spec(config, head, settings, schedule, workers, features):
  """Returns the TPUEstimatorSpec of a training step."""
  num_slices = settings.batch.gradient_accumulation_steps
  num_gpus = settings.device.num_gpus
  totals = _reduce_means(head.totals(features), workers)
  optimizer, rate = _create_optimizer(settings, schedule)

  def slice_sums(number, variables=None):
    """Returns the sums over a slice of the batch, as a nested dict."""
    part = _slice(features, number, num_slices * num_gpus)
    with tf.variable_scope(tf.get_variable_scope(), reuse=bool(variables)):
      model = build_model(config, part, settings.device, is_training=True)
      output = head.apply(model, part)
    loss = _total_loss(output.losses, totals)
    pairs = optimizer.compute_gradients(
      loss, variables or tf.trainable_variables()
    )
    return {
      "loss": loss,
      "metrics": {
        name: {
          "value": tf.reduce_sum(values * weights),
          "weight": tf.reduce_sum(weights),
        }
        for name, (values, weights) in output.metrics.items()
      },
      "gradients": {
        variable.op.name: optimization.densify(gradient, variable)
        for gradient, variable in pairs
        if gradient is not None
      },
    }

  def batch_sums(variables=None):
    sums = _sum_slices(slice_sums, num_slices, num_gpus, variables)
    return _reduce_means(sums, workers)

  sums = batch_sums()
  gradients = sums["gradients"]
  if schedule.adversarial_epsilon:
    gradients = _with_adversarial(
      gradients,
      lambda: batch_sums(_trained(sums))["gradients"],
      schedule.adversarial_epsilon,
    )
  clipped, norm = tf.clip_by_global_norm(list(gradients.values()), _CLIP_NORM)
  train_op = optimizer.apply_gradients(
    zip(clipped, _trained(sums)), tf.train.get_or_create_global_step()
  )

  scalars = {"loss": sums["loss"]}
  for name, metric in sums["metrics"].items():
    scalars[name] = tf.div_no_nan(metric["value"], metric["weight"])
  scalars.update(
    gradient_norm=norm,
    learning_rate=rate,
    **_batch_scalars(features["input_mask"]),
  )
  ratios = getattr(optimizer, "trust_ratios", None)  # not in half precision
  if ratios:
    scalars["trust_ratio"] = tf.add_n(ratios) / len(ratios)
  scaffold_fn = (
    None
    if workers.rank
    else _initialize(settings, checkpoints.latest_checkpoint, True)
  )
  with tf.control_dependencies([train_op]):
    step = tf.train.get_global_step().read_value()
  if schedule.passes_per_step:
    scalars["passes"] = schedule.passes_per_step * tf.cast(step, tf.float32)
  host_call = None
  if settings.device.use_tpu:
    host_call = _host_call(step, scalars, settings.run)
  else:
    _show(dict(scalars, global_step=step))
  return tf.estimator.tpu.TPUEstimatorSpec(
    tf.estimator.ModeKeys.TRAIN,
    loss=sums["loss"],
    train_op=train_op,
    scaffold_fn=scaffold_fn,
    host_call=host_call,
  )


def _batch_scalars(mask):
  """Returns the share of padding and the tokens of an example, by name.

  Args:
    mask: `input_mask`, int [B, ...].
  """
  mask = tf.cast(mask, tf.float32)
  return {
    "padding": 1.0 - tf.reduce_mean(mask),
    "tokens_per_example": tf.reduce_sum(mask)
    / tf.cast(tf.shape(mask)[0], tf.float32),
  }


def _sum_slices(slice_sums, num_slices, num_gpus, variables):
  """Sums a function of a slice over all slices of a batch.

  Args:
    slice_sums: maps (index of a slice, variables or None to create them) to a
      nested dict of tensors.
    num_slices: per GPU.
    num_gpus: with 1, TensorFlow chooses the device.
    variables: variables to use, or None.
  """
  shares = []
  for gpu in range(num_gpus):
    first = gpu * num_slices
    with tf.device("/gpu:%d" % gpu if num_gpus > 1 else None):
      # The first slice creates the variables; a while_loop cannot.
      sums = slice_sums(first, variables)
      variables = _trained(sums)
      if num_slices > 1:
        _, sums = tf.while_loop(
          lambda number, _: number < num_slices,
          lambda number, sums, first=first, trained=variables: (
            number + 1,
            tf.nest.map_structure(
              tf.add, sums, slice_sums(first + number, trained)
            ),
          ),
          (1, sums),
          parallel_iterations=1,
          back_prop=False,
        )
    shares.append(sums)
  return tf.nest.map_structure(lambda *tensors: tf.add_n(tensors), *shares)


def _with_adversarial(gradients, compute, epsilon):
  """Adds the gradients with the word embeddings moved along their gradient.

  Args:
    gradients: name of a variable -> its gradient.
    compute: returns such a dict, recomputed.
    epsilon: see `optimization.moved_word_embeddings`.
  """
  with optimization.moved_word_embeddings(gradients, epsilon):
    moved = compute()
  return {name: gradient + moved[name] for name, gradient in gradients.items()}


def _show(scalars):
  """Adds scalars for hooks.ProgressHook to log and write."""
  for name, scalar in scalars.items():
    tf.add_to_collection(PROGRESS, tf.identity(scalar, name="progress/" + name))


def _create_optimizer(settings, schedule):
  """Returns (optimizer, learning rate as a float scalar)."""
  step = tf.train.get_or_create_global_step()
  if settings.device.use_xla:
    # TF 1.15 with XLA compiles the conditional from which hooks read the step
    # to a constant, so that training would never end.
    tf.get_collection_ref("global_step_read_op_cache")[:] = [
      step.read_value() + 0
    ]
  rate = optimization.create_learning_rate(
    settings.optimizer.learning_rate,
    schedule.num_train_steps,
    schedule.num_warmup_steps,
    step,
    settings.optimizer.poly_power,
  )
  optimizer = {"adamw": AdamW, "lamb": LAMB}[settings.optimizer.optimizer](
    rate, settings.optimizer.weight_decay_rate
  )
  if settings.device.precision == "fp16":
    optimizer = tf.train.experimental.enable_mixed_precision_graph_rewrite(
      optimizer
    )
  return optimizer, rate


def _initialize(settings, find_newer, is_training):
  """Initializes variables from --init_checkpoint.

  A newer checkpoint, which the estimator restores, takes precedence.

  Returns:
    on a TPU `scaffold_fn` of TPUEstimatorSpec, which initializes; otherwise
    None.
  """
  init_checkpoint = settings.model.init_checkpoint
  if (
    not init_checkpoint
    or find_newer(settings.run.output_dir)
    or (settings.device.dry_run and not is_training)
  ):
    return None

  def scaffold_fn():
    checkpoints.init_from_checkpoint(init_checkpoint, is_training)
    return tf.train.Scaffold()

  if settings.device.use_tpu:
    return scaffold_fn
  scaffold_fn()
  return None


def _trained(sums):
  """Returns the variables with a gradient, in the order of the gradients."""
  variables = {v.op.name: v for v in tf.trainable_variables()}
  return [variables[name] for name in sums["gradients"]]


def _reduce_means(structure, workers):
  """Averages the tensors of a nested dict over the workers."""
  return tf.nest.pack_sequence_as(
    structure, workers.reduce_mean(tf.nest.flatten(structure))
  )


def _slice(features, number, num_slices):
  """Returns a slice of the batch, a dict like `features`."""
  if num_slices == 1:
    return features

  def take(x):
    taken = tf.gather(
      tf.reshape(x, tf.concat([[num_slices, -1], tf.shape(x)[1:]], 0)), number
    )
    batch_size, *rest = x.shape.as_list()
    taken.set_shape([batch_size and batch_size // num_slices] + rest)
    return taken

  return {name: take(x) for name, x in features.items()}


def whole_loss(results: Dict[str, Any]) -> Dict[str, Any]:
  """Replaces the estimator's loss with the exact loss of the evaluated data.

  The estimator's is the mean over batches, whose numbers of masked tokens vary.

  Args:
    results: results of `Estimator.evaluate`.

  Returns:
    the results, with the sum of the head's losses as "loss".
  """
  parts = [name for name in results if name.startswith(_PART)]
  return dict(
    {name: value for name, value in results.items() if name not in parts},
    loss=sum(results[name] for name in parts),
  )


def _parts(losses, totals):
  """Returns name -> (mean, total) of each loss.

  Raises:
    ValueError: the head lacks the divisor of a loss.
  """
  missing = sorted(set(losses) - set(totals))
  if missing:
    raise ValueError(
      "totals() of the head lacks the divisor of %s" % ", ".join(missing)
    )
  return {
    name: (tf.div_no_nan(loss, totals[name]), totals[name])
    for name, loss in losses.items()
  }


def _total_loss(losses, totals):
  return tf.add_n([loss for loss, _ in _parts(losses, totals).values()])


def _host_call(step, scalars, run):
  """Returns a TPU's host call, which writes scalars and keeps them to log."""

  def write(step, *values):
    step = tf.reduce_max(step)
    # Each replica sends the same value.
    values = [tf.reduce_mean(value) for value in values]
    writer = summary_v2.create_file_writer(run.output_dir)
    with writer.as_default(), summary_v2.record_if(
      tf.equal(step % run.log_steps, 0)
    ):
      for name, value in zip(scalars, values):
        summary_v2.scalar(name, value, step)
    kept = [_keep(name, value) for name, value in zip(scalars, values)]
    with tf.control_dependencies(kept):
      kept.append(_keep("host_step", tf.cast(step, tf.float32)))
    return tf.summary.all_v2_summary_ops() + kept

  return write, [tf.reshape(x, [1]) for x in [step] + list(scalars.values())]


def _keep(name, value):
  """Stores a scalar on the host; returns the op."""
  kept = tf.get_variable(
    "host_call/" + name,
    [],
    initializer=tf.zeros_initializer(),
    trainable=False,
    collections=[tf.GraphKeys.LOCAL_VARIABLES],
  )
  with tf.control_dependencies(None):  # reading must not wait
    tf.add_to_collection(
      PROGRESS, tf.identity(kept.read_value(), name="progress/" + name)
    )
  return kept.assign(value)
