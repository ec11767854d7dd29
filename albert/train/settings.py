"""Settings of training: what to do, batches, optimizer, devices."""

import atexit
import dataclasses
import re
import shutil
import tempfile

import numpy as np
from absl import logging

from albert.errors import InputError
from albert.model_folder import ModelSettings
from albert.settings import (
    NEEDED,
    TPU,
    USUAL,
    from_flags,
    own_flags,
    setting,
)


@dataclasses.dataclass(frozen=True)
class RunSettings:
  """What to do and where, and what is written meanwhile."""
  output_dir: str = setting(
      None, "Folder for checkpoints and results; what was begun in it is "
      "resumed.", NEEDED, required=True)
  resume_anyway: bool = setting(
      False, "Whether to resume with other data or settings than the training "
      "in --output_dir was begun with.", needs="do_train")
  do_train: bool = setting(False, "Whether to train.", NEEDED)
  do_eval: bool = setting(
      False, "Whether to evaluate: the newest checkpoint of --output_dir, else "
      "its best one, else --init_checkpoint as it stands.", NEEDED)
  random_seed: int = setting(
      12345, "Seed of initial weights, dropout and reading order.", USUAL,
      least=0, most=2**31 - 1)
  save_checkpoints_steps: int = setting(
      1000, "Steps from one checkpoint, and evaluation, to the next.", USUAL,
      least=1, needs="do_train")
  save_checkpoints_secs: int = setting(
      None, "Seconds from one checkpoint to the next, besides those of "
      "--save_checkpoints_steps; not evaluated.", least=1, needs="do_train")
  keep_checkpoint_max: int = setting(
      5, "Newest checkpoints to keep in --output_dir.", needs="do_train")
  log_steps: int = setting(
      100, "Steps from one line of progress and summary to the next.", least=1)


@dataclasses.dataclass(frozen=True)
class BatchSettings:
  """How many examples at a time."""
  train_batch_size: int = setting(
      32, "Examples per training step, of all devices together; with "
      "--use_horovod, of each process.", USUAL, least=1, needs="do_train")
  gradient_accumulation_steps: int = setting(
      1, "Slices that a batch is handled in one after the other: less memory, "
      "the same step.", least=1, needs="do_train")
  eval_batch_size: int = setting(
      32, "Examples per evaluation batch.", least=1,
      alias="predict_batch_size",
      needs="do_eval or do_predict or eval_input_file")


@dataclasses.dataclass(frozen=True)
class OptimizerSettings:
  """How weights are updated."""
  optimizer: str = setting("adamw", "Optimizer.", choices=["adamw", "lamb"],
      needs="do_train")
  learning_rate: float = setting(5e-5, "Peak learning rate.", USUAL,
      needs="do_train")
  poly_power: float = setting(
      1.0, "Power of the learning rate's decay, 1 for linear.",
      needs="do_train")
  weight_decay_rate: float = setting(0.01, "Weight decay.", needs="do_train")


@dataclasses.dataclass(frozen=True)
class Schedule:
  """How the learning rate changes.

  Attributes:
    num_train_steps: int, of the whole training.
    num_warmup_steps: int, at its beginning.
    adversarial_epsilon: float; see `step.model_fn_builder`.
  """
  num_train_steps: int = 0
  num_warmup_steps: int = 0
  adversarial_epsilon: float = 0.0


@dataclasses.dataclass(frozen=True)
class DeviceSettings:
  """What computes, and with how many bits."""
  dry_run: str = setting(
      None, "Dry run: report what would fail and how much memory it takes, on "
      "hardware that need not be here: tpu:4x8 is 4 hosts of 8 cores, gpu:8 a "
      "host of 8 GPUs.", alias="rehearse")
  num_gpus: int = setting(
      1, "GPUs of this host that share each batch in training.", least=1,
      needs="do_train")
  use_horovod: bool = setting(
      False, "Whether to train with the processes that horovodrun starts.",
      needs="do_train")
  precision: str = setting(
      "float32", "Training in mixed precision: fp16 with loss scaling, for "
      "GPUs; bf16 in matrix multiplications, for TPUs and TF 2.15.",
      choices=["float32", "fp16", "bf16"], needs="do_train")
  use_fp16: bool = setting(False, "The same as --precision=fp16.")
  use_xla: bool = setting(False, "Whether to compile with XLA.")
  recompute_grads: bool = setting(
      False, "Whether to compute each layer again in the backward pass instead "
      "of keeping what it computed: less memory.", needs="do_train")
  use_tpu: bool = setting(False, "Whether to run on a TPU.", TPU)
  tpu_name: str = setting(None, "Name or grpc address.", TPU, demands="use_tpu")
  tpu_zone: str = setting(None, "Zone, if not detected.", TPU, needs="use_tpu")
  gcp_project: str = setting(None, "Project, if not detected.", TPU,
      needs="use_tpu")
  master: str = setting(None, "TensorFlow master's address.", TPU)
  num_tpu_cores: int = setting(8, "Number of cores.", TPU, needs="use_tpu")
  iterations_per_loop: int = setting(
      1000, "Steps per call of the device.", TPU, needs="use_tpu")

  def check_paths(self, paths):
    """Refuses files that a TPU on a different machine cannot read.

    A dry run reads those that are here, and warns.

    Args:
      paths: dict, flag -> list of str.

    Raises:
      InputError: there is one.
    """
    address = self.tpu_name or self.master or "local"
    if not self.use_tpu or address == "local" or "localhost" in address:
      return
    for flag, names in paths.items():
      for name in names:
        if "://" not in name or name.startswith("file://"):
          message = (
              "--%s=%s: the TPU is on a different machine, which reads and "
              "writes gs://BUCKET/... only" % (flag, name))
          if not self.dry_run:
            raise InputError(message)
          logging.warning("%s", message)


@dataclasses.dataclass(frozen=True)
class DataSettings:
  """What fine-tuning does with the examples of a task."""
  do_predict: bool = setting(
      False, "Whether to predict the test file with the best checkpoint.",
      NEEDED)
  early_stop_evals: int = setting(
      None, "Stop after this many evaluations without improvement.", USUAL,
      least=1, demands="do_train and do_eval")
  max_seq_length: int = setting(
      None, "Maximum tokens of an example; longer ones are truncated. Default: "
      "what the model was fine-tuned with.", USUAL, least=1)
  num_train_epochs: float = setting(
      3.0, "Passes over the training set.", USUAL, needs="do_train")
  num_train_steps: int = setting(
      None, "Steps of the training, instead of --num_train_epochs.", least=1,
      alias="train_step", needs="do_train", instead_of="num_train_epochs")
  warmup_proportion: float = setting(
      0.1, "Share of the steps that are warm-up.", needs="do_train")
  num_warmup_steps: int = setting(
      None, "Steps of warm-up, instead of --warmup_proportion.", least=0,
      alias="warmup_step", needs="do_train", instead_of="warmup_proportion")
  max_train_examples: int = setting(
      None, "Use only this many training examples, or questions, drawn by "
      "--random_seed.", needs="do_train")
  pad_to_max: bool = setting(
      False, "Pad all examples to --max_seq_length, as on a TPU, instead of "
      "batching those of similar length.")
  adversarial: str = setting(
      None, "Train on perturbed word embeddings too: fgm, the fast gradient "
      "method.", choices=["fgm"], needs="do_train")
  adversarial_epsilon: float = setting(
      1.0, "--adversarial: norm of the perturbation of the table.", least=0.0,
      needs="adversarial")


@dataclasses.dataclass(frozen=True)
class SweepSettings:
  """Several runs of one fine-tuning."""
  num_seeds: int = setting(
      None, "Train so many runs, with --random_seed and the seeds after it; "
      "report mean and deviation.", least=1, demands="do_train and do_eval")
  seeds: list = setting(None, "Seeds of the runs, instead of --num_seeds.",
      demands="do_train and do_eval", instead_of="num_seeds or random_seed")
  learning_rates: list = setting(
      None, "Learning rates to try, each with all seeds; the best one on dev "
      "counts.", demands="do_train and do_eval", instead_of="learning_rate")

  def rates(self):
    """Returns the learning rates, each once, a list of float."""
    return _numbers("learning_rates", float, self.learning_rates)

  def seed_numbers(self):
    """Returns the seeds, each once, a list of int."""
    return _numbers("seeds", int, self.seeds)


def _numbers(name, kind, texts):
  try:
    return list(dict.fromkeys(map(kind, texts or [])))
  except ValueError as error:
    raise InputError("--%s: %s" % (name, error)) from error


@dataclasses.dataclass(frozen=True)
class TrainSettings:
  """All settings of a training; pretraining has no `data` and no `sweep`.

  `flags` are the values of all flags of the script, and `given` the lines of a
  --flagfile that gives what was given.
  """
  model: ModelSettings
  run: RunSettings
  batch: BatchSettings
  optimizer: OptimizerSettings
  device: DeviceSettings
  data: DataSettings = None
  sweep: SweepSettings = None
  flags: dict = dataclasses.field(default_factory=dict)
  given: tuple = ()


PRETRAINING = (RunSettings, ModelSettings, BatchSettings, OptimizerSettings,
               DeviceSettings)
FINE_TUNING = PRETRAINING + (DataSettings, SweepSettings)


def read():
  """Returns the TrainSettings that the flags give.

  Raises:
    InputError: flags contradict one another.
  """
  ours = own_flags()
  settings = dataclasses.replace(
      from_flags(TrainSettings), flags={flag.name: flag.value for flag in ours},
      given=tuple(flag.serialize() for flag in ours if flag.present))
  device, run = settings.device, settings.run
  if device.dry_run:
    device = _topology(device)
    run = dataclasses.replace(run, output_dir=tempfile.mkdtemp())
    atexit.register(shutil.rmtree, run.output_dir, ignore_errors=True)
  if device.num_gpus > 1 and (device.use_tpu or device.use_horovod):
    raise InputError(
        "--num_gpus: with --use_horovod each process has one GPU, and a TPU "
        "has --num_tpu_cores")
  _check_batches(settings.batch, device)
  for rate in [settings.optimizer.learning_rate] + (
      settings.sweep and settings.sweep.rates() or []):
    if not 0 < rate <= 1:
      raise InputError("--learning_rate=%g: it must be greater than 0 and at "
                       "most 1, such as 2e-5" % rate)
  if device.use_fp16:
    if device.precision != "fp16" and any(
        line.startswith("--precision=") for line in settings.given):
      raise InputError("--use_fp16 contradicts --precision=%s" %
                       device.precision)
    device = dataclasses.replace(device, precision="fp16")
  device.check_paths({
      flag: [path] for flag, path in (
          ("output_dir", settings.run.output_dir),
          ("init_checkpoint", settings.model.init_checkpoint)) if path})
  if device.use_tpu and device.precision == "fp16":
    raise InputError("--precision=fp16 is for GPUs; a TPU has "
                     "--precision=bf16")
  return dataclasses.replace(settings, device=device, run=run)


def _check_batches(batch, device):
  """Refuses batches that cannot be divided among devices and slices."""
  cores = device.num_tpu_cores if device.use_tpu else 1
  sizes = {
      "train_batch_size": (batch.train_batch_size, {
          "num_tpu_cores": cores, "num_gpus": device.num_gpus,
          "gradient_accumulation_steps": batch.gradient_accumulation_steps}),
      "eval_batch_size": (batch.eval_batch_size, {"num_tpu_cores": cores})}
  for name, (size, divisors) in sizes.items():
    parts = int(np.prod(list(divisors.values())))
    if size % parts:
      raise InputError("--%s=%d is not a multiple of %s: the next one is %d" % (
          name, size, " times ".join("--%s=%d" % x for x in divisors.items()
                                     if x[1] > 1), size + -size % parts))


def _topology(device):
  """Returns the DeviceSettings of what --dry_run asks for."""
  found = re.match(r"tpu:([1-9]\d*)x([1-9]\d*)$|gpu:([1-9]\d*)$",
                   device.dry_run)
  if not found:
    raise InputError("--dry_run=%s: it can be tpu:HOSTSxCORES, such as "
                     "tpu:4x8, or gpu:NUMBER" % device.dry_run)
  hosts, cores, gpus = found.groups()
  if gpus:
    return dataclasses.replace(device, num_gpus=int(gpus))
  return dataclasses.replace(device, use_tpu=True,
                             num_tpu_cores=int(hosts) * int(cores))
