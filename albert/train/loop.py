"""The training loop: set-up, resuming, evaluation, progress."""

import atexit
import contextlib
import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from typing import Any, Callable, List, Optional, Tuple

import tensorflow.compat.v1 as tf
from absl import logging

from albert.errors import InputError
from albert.files import checkpoints
from albert.model.config import AlbertConfig
from albert.train import distribution, hooks, interrupts, step
from albert.train.dry_run import DryRun
from albert.train.evaluation import Evaluator
from albert.train.settings import DeviceSettings, TrainSettings

IS_TF1 = tf.__version__.startswith("1.")
_TPU_HOST_CORES = 8  # of a v2 or v3 host
_TINY = 312  # hidden size that a CPU can train


def start(settings: TrainSettings) -> distribution.Workers:
  """Sets up this process for training or evaluation.

  Raises:
    InputError: a device or precision is not available.
  """
  device = settings.device
  workers = distribution.get_workers(device.use_horovod, device.use_tpu)
  if workers.rank:
    logging.set_verbosity(logging.ERROR)
  if device.precision == "bf16" and IS_TF1 and not device.use_tpu:
    raise InputError(
      "--precision=bf16 needs a TPU or TensorFlow 2.15, not %s" % tf.__version__
    )
  gpus = len(tf.config.experimental.list_physical_devices("GPU"))
  if device.num_gpus > max(1, gpus) and not device.dry_run:
    raise InputError(
      "--num_gpus=%d: TensorFlow %s detects %d"
      % (device.num_gpus, tf.__version__, gpus)
    )
  if device.precision == "fp16" and not gpus:
    # TensorFlow scales the loss but computes in single precision.
    logging.warning("--precision=fp16 has no effect without a GPU")
  prepare_process(device)
  logging.info("%s", describe(settings, workers))
  warn_of_unused_gpu(device)
  return workers


def describe(settings: TrainSettings, workers: distribution.Workers) -> str:
  """Returns one line about devices, precision and batch size."""
  device, batch = settings.device, settings.batch
  gpus = len(tf.config.experimental.list_physical_devices("GPU"))
  what = "a CPU of %d cores" % (os.cpu_count() or 1)
  if device.use_tpu:
    hosts = -(-device.num_tpu_cores // _TPU_HOST_CORES)
    what = "%d TPU cores" % device.num_tpu_cores
    if hosts > 1:
      what += " on %d hosts" % hosts
  elif gpus:
    what = "%d GPUs" % device.num_gpus if device.num_gpus > 1 else "a GPU"
    if gpus > 1:
      what += " of the %d here" % gpus
  if workers.size > 1:
    what += " for each of %d processes" % workers.size
  parts = [what, "TensorFlow %s" % tf.__version__, device.precision]
  if device.use_xla:
    parts.append("XLA")
  if settings.run.do_train:
    examples = batch.train_batch_size * workers.size
    count = (
      workers.size
      * batch.gradient_accumulation_steps
      * (device.num_tpu_cores if device.use_tpu else device.num_gpus)
    )
    parts.append(
      "%d examples per step, %d at a time" % (examples, examples // count)
    )
  return " | ".join(parts)


def warn_of_unused_gpu(device: DeviceSettings) -> None:
  """Warns of a GPU that TensorFlow cannot use."""
  if (
    device.use_tpu
    or not shutil.which("nvidia-smi")
    or (tf.config.experimental.list_physical_devices("GPU"))
  ):
    return
  found = subprocess.run(
    ["nvidia-smi", "-L"],
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    check=False,
  )
  if not found.returncode and found.stdout.strip():
    advice = (
      '`pip install "tensorflow[and-cuda]==%s"` adds the libraries'
      % tf.__version__
    )
    if tf.__version__.startswith("1."):
      advice = (
        "it needs CUDA 10.0; use `export ALBERT_PLATFORM=tf2`, or "
        "NVIDIA's TF1 container"
      )
    logging.warning(
      "nvidia-smi finds a GPU that TensorFlow %s cannot use: %s",
      tf.__version__,
      advice,
    )


def prepare_process(device: DeviceSettings) -> None:
  """Sets process-wide options of TensorFlow and glibc."""
  keep_freed_memory()
  if device.use_xla:  # read when the first session starts
    os.environ["TF_XLA_FLAGS"] = (
      os.environ.get("TF_XLA_FLAGS", "") + " --tf_xla_cpu_global_jit"
    )


def warn_of_slow_training(config: AlbertConfig, device: DeviceSettings) -> None:
  """Warns of pretraining a model larger than tiny on a CPU."""
  if config.hidden_size > _TINY and step.is_cpu(device):
    logging.warning(
      "a model of %d layers of %d takes weeks on a CPU: use GPUs or TPUs, or "
      "albert_config/albert_config_tiny.json",
      config.num_hidden_layers,
      config.hidden_size,
    )


def keep_freed_memory() -> None:
  """Makes glibc keep freed memory.

  By default it returns each large tensor to the system, so that the next one
  causes page faults that take longer than most operations.
  """
  try:
    mallopt = ctypes.CDLL(None).mallopt
  except (AttributeError, OSError, TypeError):
    return
  mallopt(-4, 0)  # M_MMAP_MAX
  mallopt(-1, -1)  # M_TRIM_THRESHOLD


def create_estimator(
  settings: TrainSettings,
  workers: distribution.Workers,
  model_fn: Callable[..., Any],
) -> Any:
  """Returns a TPUEstimator, which also runs on CPUs and GPUs, or a DryRun.

  Args:
    settings: settings of the run.
    workers: the processes.
    model_fn: see `step.model_fn_builder`.
  """
  run, device = settings.run, settings.device
  if device.dry_run:
    return DryRun(settings, model_fn)
  output_dir = run.output_dir
  if workers.rank:
    output_dir = tempfile.mkdtemp(prefix="albert-rank-%d-" % workers.rank)
    atexit.register(shutil.rmtree, output_dir, ignore_errors=True)
  session_config = tf.ConfigProto(allow_soft_placement=True)
  session_config.gpu_options.allow_growth = True
  if device.use_xla:
    session_config.graph_options.optimizer_options.global_jit_level = (
      tf.OptimizerOptions.ON_1
    )
  cluster = None
  if device.use_tpu and device.tpu_name:
    try:
      cluster = tf.distribute.cluster_resolver.TPUClusterResolver(
        device.tpu_name, zone=device.tpu_zone, project=device.gcp_project
      )
    except (ImportError, OSError, ValueError) as error:
      raise InputError(
        "--tpu_name=%s cannot be resolved (%s): `pip install '.[tpu]'` on a "
        "Google Cloud machine, or give the TPU's address, "
        "grpc://IP:8470" % (device.tpu_name, error)
      ) from error
  run_config = tf.estimator.tpu.RunConfig(
    cluster=cluster,
    master=device.master,
    model_dir=output_dir,
    session_config=None if device.use_tpu else session_config,
    tf_random_seed=run.random_seed,
    save_checkpoints_steps=(
      None if workers.rank else run.save_checkpoints_steps
    ),
    keep_checkpoint_max=run.keep_checkpoint_max,
    save_summary_steps=0,  # hooks.ProgressHook writes means
    log_step_count_steps=None,
    tpu_config=tf.estimator.tpu.TPUConfig(
      iterations_per_loop=min(
        device.iterations_per_loop, run.save_checkpoints_steps
      ),
      num_shards=device.num_tpu_cores,
      per_host_input_for_training=(
        tf.estimator.tpu.InputPipelineConfig.PER_HOST_V2
      ),
      # SLICED: one host reads and distributes slices, so no record is read
      # twice. PER_HOST_V1: the same batches, on one device.
      eval_training_input_configuration=(
        tf.estimator.tpu.InputPipelineConfig.SLICED
        if device.use_tpu
        else tf.estimator.tpu.InputPipelineConfig.PER_HOST_V1
      ),
    ),
  )
  return tf.estimator.tpu.TPUEstimator(
    use_tpu=device.use_tpu,
    model_fn=model_fn,
    config=run_config,
    train_batch_size=settings.batch.train_batch_size,
    eval_batch_size=settings.batch.eval_batch_size,
    predict_batch_size=settings.batch.eval_batch_size,
  )


def train_and_evaluate(
  settings: TrainSettings,
  workers: distribution.Workers,
  stages: List[Tuple[Any, int]],
  train_input_fn_at: Callable[..., Callable[..., Any]],
  evaluator: Optional[Evaluator] = None,
) -> None:
  """Trains to the end of the last stage; evaluates every saved checkpoint.

  Resumes from the newest checkpoint of the output folder, if there is one.

  Args:
    settings: settings of the run.
    workers: the processes.
    stages: (TPUEstimator, last step of training with it); usually one.
    train_input_fn_at: maps the step where reading starts to an `input_fn`;
      different steps give different orders. After a read error, it is called
      with the error as second argument, and raises it if it is final.
    evaluator: None to train without evaluation.

  Raises:
    InputError: the loss or the gradient is not finite, a record file is
      damaged, or the flags require variables that the model to resume lacks.
  """
  run, device = settings.run, settings.device
  ends = [end for _, end in stages]
  last_step = ends[-1]
  every = run.save_checkpoints_steps
  if workers.rank:
    evaluator = None
  start = _start_step(settings, workers, last_step, evaluator)
  if start >= last_step:
    if evaluator:
      evaluator.evaluate(start)
    return
  should_stop = evaluator.should_stop if evaluator else lambda: False

  def all_should_stop():
    if device.use_horovod:
      return distribution.broadcast(int(should_stop()))
    return should_stop()

  # A TPU runs one program at a time, so training stops to evaluate.
  between_calls = evaluator if device.use_tpu else None
  if between_calls and start and hooks.is_evaluated(start, every, ends):
    between_calls.evaluate(start)  # the last run may have failed before it
  for estimator, stage_end in stages:
    while start < stage_end and not all_should_stop():
      end = stage_end
      if between_calls:
        end = min((start // every + 1) * every, stage_end)
      _train(
        settings,
        estimator,
        start,
        end,
        train_input_fn_at,
        lambda: hooks.create(settings, workers, ends, evaluator, should_stop),
      )
      if interrupts.requested():
        logging.info(
          "ended at step %d with a checkpoint; the same command resumes",
          checkpoints.start_step(run.output_dir),
        )
        interrupts.end_if_requested()
      if between_calls:
        between_calls.evaluate(end)
      start = end


def _train(settings, estimator, start, end, train_input_fn_at, create_hooks):
  """Trains from one step to another; restarts after read errors."""
  output_dir, error = settings.run.output_dir, None
  while True:
    input_fn = train_input_fn_at(start, *filter(None, [error]))
    used = create_hooks()
    resumed = checkpoints.latest_checkpoint(output_dir)
    try:
      with interrupts.watching(), interrupts.training(), checkpoints.restoring(
        resumed or settings.model.init_checkpoint
      ), _naming_errors(output_dir):
        estimator.train(input_fn, max_steps=end, hooks=used)
      return
    except tf.errors.OpError as failed:
      error = failed
      start = checkpoints.start_step(output_dir)
      if settings.device.use_horovod:  # the other ranks wait
        train_input_fn_at(start, error)  # may name a file
        raise


def _start_step(settings, workers, last_step, evaluator):
  """Returns the first step of training, the same on all ranks."""
  output_dir = settings.run.output_dir
  start = 0
  if not workers.rank:
    start = checkpoints.start_step(output_dir)
    checkpoints.remove_unfinished_checkpoints(output_dir)
  if settings.device.use_horovod:
    start = distribution.broadcast(start)
  if evaluator:
    evaluator.go_on_from(start)
  if start >= last_step:
    logging.info(
      "%s: already at step %d of %d, nothing to train; for different data or "
      "settings, choose a different --output_dir",
      output_dir,
      start,
      last_step,
    )
  elif start:
    logging.info("resuming from step %d of %s", start, output_dir)
  return start


@contextlib.contextmanager
def _naming_errors(output_dir):
  """Converts errors of NaN on a TPU, or missing variables, to InputErrors."""
  try:
    yield
  except tf.errors.InvalidArgumentError as error:
    if "is NaN" not in error.message:
      raise
    raise hooks.not_finite(
      "weights are not finite after step %d"
      % checkpoints.start_step(output_dir),
      output_dir,
    ) from error
  except tf.errors.NotFoundError as error:
    lacks = re.search(r"Key (\S+) not found in checkpoint", error.message)
    if not lacks:
      raise
    raise InputError(
      "%s: the checkpoint to resume from lacks %s, which the flags require: "
      "use those it was made with (--precision, --optimizer, "
      "--sentence_loss_weight), or a different --output_dir"
      % (output_dir, lacks.group(1))
    ) from error


def export_saved_model(estimator: Any, export_dir: str) -> None:
  """Exports the newest checkpoint's predictions as a SavedModel."""

  def serving_input_fn():
    features = {
      name: tf.placeholder(tf.int32, [None, None], name)
      for name in ("input_ids", "input_mask", "segment_ids")
    }
    return tf.estimator.export.ServingInputReceiver(features, features)

  path = estimator.export_saved_model(
    export_dir,
    serving_input_fn,
    checkpoint_path=checkpoints.latest_checkpoint(estimator.model_dir),
  )
  logging.info("exported to %s", tf.compat.as_str_any(path))
