"""The Estimator of any job: its model_fn, made of a head, and its settings."""

import atexit
import collections
import shutil
import tempfile

import tensorflow.compat.v1 as tf
import tensorflow.compat.v2.summary as summary_v2

import modeling
import optimization
from albert.files import checkpoints
from albert.heads import heads
from albert.train import distribution
from lamb_optimizer import LAMB
from optimization import AdamW

PROGRESS = "progress"  # graph collection of scalars to log

# What a head makes of a model and a batch, or a slice of one.
#   losses: dict, name -> float scalar, summed over the examples; empty in
#     prediction. The loss of a batch is the sum of `losses[name]` divided by
#     the total of that name (see model_fn_builder).
#   metrics: dict, name -> (values [M], weights [M]); weighted means are shown.
#   predictions: dict, name -> tensor [B, ...].
HeadOutput = collections.namedtuple(
    "HeadOutput", ["losses", "metrics", "predictions"])


def model_fn_builder(config, options, head, loss_totals, num_train_steps=0,
                     num_warmup_steps=0, adversarial_epsilon=0.0):
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
    adversarial_epsilon: float; see optimization.create_train_op.

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
        recompute_grads=is_training and options.recompute_grads,
        matmul=modeling.bfloat16_matmul if (
            is_training and options.precision == "bf16") else tf.matmul)
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
    if options.precision == "fp16":
      optimizer = tf.train.experimental.enable_mixed_precision_graph_rewrite(
          optimizer)
    train_op, loss, values = optimization.create_train_op(
        loss_fn, optimizer, reduce_mean=workers.reduce_mean,
        num_slices=num_slices, adversarial_epsilon=adversarial_epsilon)
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
          PROGRESS, tf.identity(scalar, name="progress/" + name))
    return tf.estimator.tpu.TPUEstimatorSpec(
        tf.estimator.ModeKeys.TRAIN, loss=loss, train_op=train_op)

  def initialize(is_training):
    """Initialises from a checkpoint; on a TPU by the function returned."""
    # A checkpoint of the output folder is restored by the estimator.
    there = (checkpoints.latest_checkpoint if is_training else
             checkpoints.newest_or_best)
    if not options.init_checkpoint or there(options.output_dir):
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
      PROGRESS, tf.identity(kept.read_value(), name="progress/" + name))
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
