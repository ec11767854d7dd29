"""Settings of training: actions, batches, optimizer, devices."""

import atexit
import dataclasses
import re
import shutil
import tempfile
from typing import Dict, List, cast

import numpy as np
from absl import logging

from albert.errors import InputError
from albert.model_folder import ModelSettings
from albert.settings import NEEDED, TPU, USUAL, from_flags, own_flags, setting


@dataclasses.dataclass(frozen=True)
class RunSettings:
  """Actions, output, logs and checkpoints."""

  output_dir: str = setting(
    None,
    "Folder for checkpoints and results; resumes an earlier run in it.",
    NEEDED,
    required=True,
  )
  resume_anyway: bool = setting(
    False,
    "Whether to resume the run in --output_dir with different data or "
    "settings.",
    needs="do_train",
  )
  do_train: bool = setting(False, "Whether to train.", NEEDED)
  do_eval: bool = setting(
    False,
    "Whether to evaluate: the newest checkpoint in --output_dir, else "
    "its best one, else --init_checkpoint.",
    NEEDED,
  )
  random_seed: int = setting(
    12345,
    "Seed of initial weights, dropout and data order.",
    USUAL,
    least=0,
    most=2**31 - 1,
  )
  save_checkpoints_steps: int = setting(
    1000,
    "Steps between checkpoints, each of which is evaluated; default in "
    "fine-tuning with fewer steps: a tenth of them.",
    USUAL,
    least=1,
    needs="do_train",
  )
  save_checkpoints_secs: int = setting(
    None,
    "Seconds between additional checkpoints, which are not evaluated.",
    least=1,
    needs="do_train",
  )
  keep_checkpoint_max: int = setting(
    5, "Number of newest checkpoints to keep.", needs="do_train"
  )
  log_steps: int = setting(
    100, "Steps between progress lines and summaries.", least=1
  )


@dataclasses.dataclass(frozen=True)
class BatchSettings:
  """Batch sizes."""

  train_batch_size: int = setting(
    32,
    "Examples per training step over all devices; with --use_horovod, "
    "per process.",
    USUAL,
    least=1,
    needs="do_train",
  )
  gradient_accumulation_steps: int = setting(
    1,
    "Slices per batch: less memory, the same update.",
    least=1,
    needs="do_train",
  )
  eval_batch_size: int = setting(
    32,
    "Examples per evaluation batch.",
    least=1,
    alias="predict_batch_size",
    needs="do_eval or do_predict or eval_input_file",
  )


@dataclasses.dataclass(frozen=True)
class OptimizerSettings:
  """The optimizer."""

  optimizer: str = setting(
    "adamw", "Optimizer.", choices=["adamw", "lamb"], needs="do_train"
  )
  learning_rate: float = setting(
    5e-5, "Peak learning rate.", USUAL, needs="do_train"
  )
  poly_power: float = setting(
    1.0, "Power of the learning rate decay, 1 for linear.", needs="do_train"
  )
  weight_decay_rate: float = setting(0.01, "Weight decay.", needs="do_train")


@dataclasses.dataclass(frozen=True)
class Schedule:
  """Steps of training, and settings that depend on them.

  Attributes:
    num_train_steps: of the whole training.
    num_warmup_steps: at its beginning.
    adversarial_epsilon: norm of the perturbation; see
      `optimization.moved_word_embeddings`.
    passes_per_step: passes over the data that a step makes; 0 if unknown.
  """

  num_train_steps: int = 0
  num_warmup_steps: int = 0
  adversarial_epsilon: float = 0.0
  passes_per_step: float = 0.0


@dataclasses.dataclass(frozen=True)
class DeviceSettings:
  """Devices and precision."""

  dry_run: str = setting(
    None,
    "Dry run: report what would fail and the memory needed, without "
    "the hardware: tpu:4x8 is 4 hosts of 8 cores, gpu:8 a host of 8 GPUs.",
    alias="rehearse",
  )
  num_gpus: int = setting(
    1,
    "GPUs of this host that share each training batch.",
    least=1,
    needs="do_train",
  )
  use_horovod: bool = setting(
    False,
    "Whether to train with the processes started by horovodrun.",
    needs="do_train",
  )
  precision: str = setting(
    "float32",
    "Training in mixed precision: fp16 with loss scaling, for "
    "GPUs; bf16 in matrix multiplications, for TPUs and TF 2.15.",
    choices=["float32", "fp16", "bf16"],
    needs="do_train",
  )
  use_fp16: bool = setting(False, "Alias of --precision=fp16.")
  use_xla: bool = setting(False, "Whether to compile with XLA.")
  recompute_grads: bool = setting(
    False,
    "Whether to recompute each layer in the backward pass instead of "
    "storing its activations: less memory.",
    needs="do_train",
  )
  use_tpu: bool = setting(False, "Whether to run on a TPU.", TPU)
  tpu_name: str = setting(None, "Name or grpc address.", TPU, demands="use_tpu")
  tpu_zone: str = setting(None, "Zone, if not detected.", TPU, needs="use_tpu")
  gcp_project: str = setting(
    None, "Project, if not detected.", TPU, needs="use_tpu"
  )
  master: str = setting(None, "TensorFlow master's address.", TPU)
  num_tpu_cores: int = setting(8, "Number of cores.", TPU, needs="use_tpu")
  iterations_per_loop: int = setting(
    1000, "Steps per call of the device.", TPU, needs="use_tpu"
  )

  def check_paths(self, paths: Dict[str, List[str]]) -> None:
    """Checks that a TPU on a different machine can access files.

    A dry run only logs a warning.

    Args:
      paths: flag -> paths.

    Raises:
      InputError: the TPU cannot access one.
    """
    address = self.tpu_name or self.master or "local"
    if not self.use_tpu or address == "local" or "localhost" in address:
      return
    for flag, names in paths.items():
      for name in names:
        if "://" not in name or name.startswith("file://"):
          message = (
            "--%s=%s: the TPU is on a different machine, which reads and "
            "writes gs://BUCKET/... only" % (flag, name)
          )
          if not self.dry_run:
            raise InputError(message)
          logging.warning("%s", message)


@dataclasses.dataclass(frozen=True)
class DataSettings:
  """Data and schedule of fine-tuning."""

  do_predict: bool = setting(
    False, "Whether to predict the test file with the best checkpoint.", NEEDED
  )
  check_data: bool = setting(
    False, "Whether to only report on the data, also to data_report.txt.", USUAL
  )
  early_stop_evals: int = setting(
    None,
    "Stop after this many evaluations without improvement.",
    USUAL,
    least=1,
    demands="do_train and do_eval",
  )
  max_seq_length: int = setting(
    None,
    "Maximum tokens of an example; longer ones are truncated. Default: "
    "that of the fine-tuned model.",
    USUAL,
    least=1,
  )
  num_train_epochs: float = setting(
    3.0, "Epochs: passes over the training set.", USUAL, needs="do_train"
  )
  num_train_steps: int = setting(
    None,
    "Training steps, instead of --num_train_epochs.",
    least=1,
    alias="train_step",
    needs="do_train",
    instead_of="num_train_epochs",
  )
  warmup_proportion: float = setting(
    0.1, "Fraction of the steps used for warm-up.", needs="do_train"
  )
  num_warmup_steps: int = setting(
    None,
    "Warm-up steps, instead of --warmup_proportion.",
    least=0,
    alias="warmup_step",
    needs="do_train",
    instead_of="warmup_proportion",
  )
  max_train_examples: int = setting(
    None,
    "Maximum number of training examples, or questions, sampled with "
    "--random_seed.",
    needs="do_train",
  )
  pad_to_max: bool = setting(
    False,
    "Pad all examples to --max_seq_length, as on a TPU, instead of "
    "batching by length.",
  )
  adversarial: str = setting(
    None,
    "Also train on perturbed word embeddings: fgm, the fast gradient method.",
    choices=["fgm"],
    needs="do_train",
  )
  adversarial_epsilon: float = setting(
    1.0,
    "--adversarial: norm of the perturbation.",
    least=0.0,
    needs="adversarial",
  )


@dataclasses.dataclass(frozen=True)
class SweepSettings:
  """Several runs with different seeds and learning rates."""

  num_seeds: int = setting(
    None,
    "Number of runs, with --random_seed and the seeds after it; "
    "reports mean and deviation.",
    least=1,
    demands="do_train and do_eval",
  )
  seeds: list = setting(
    None,
    "Seeds of the runs, instead of --num_seeds.",
    demands="do_train and do_eval",
    instead_of="num_seeds or random_seed",
  )
  learning_rates: list = setting(
    None,
    "Learning rates to try, each with all seeds; the best one on dev is used.",
    demands="do_train and do_eval",
    instead_of="learning_rate",
  )

  def rates(self) -> List[float]:
    """Returns the learning rates, without duplicates."""
    return _numbers("learning_rates", float, self.learning_rates)

  def seed_numbers(self) -> List[int]:
    """Returns the seeds, without duplicates."""
    return _numbers("seeds", int, self.seeds)


def _numbers(name, kind, texts):
  try:
    return list(dict.fromkeys(map(kind, texts or [])))
  except ValueError as error:
    raise InputError("--%s: %s" % (name, error)) from error


@dataclasses.dataclass(frozen=True)
class TrainSettings:
  """All settings of a training; `data` and `sweep` are None in pretraining.

  `flags` has the values of all flags of the script by name, `given` the lines
  of a --flagfile to repeat the command.
  """

  model: ModelSettings
  run: RunSettings
  batch: BatchSettings
  optimizer: OptimizerSettings
  device: DeviceSettings
  data: DataSettings = cast(DataSettings, None)
  sweep: SweepSettings = cast(SweepSettings, None)
  flags: dict = dataclasses.field(default_factory=dict)
  given: tuple = ()


PRETRAINING = (
  RunSettings,
  ModelSettings,
  BatchSettings,
  OptimizerSettings,
  DeviceSettings,
)
FINE_TUNING = PRETRAINING + (DataSettings, SweepSettings)


def read() -> TrainSettings:
  """Returns the settings from the flags.

  Raises:
    InputError: flags contradict each other.
  """
  ours = own_flags()
  settings = dataclasses.replace(
    from_flags(TrainSettings),
    flags={flag.name: flag.value for flag in ours},
    given=tuple(flag.serialize() for flag in ours if flag.present),
  )
  device, run = settings.device, settings.run
  if device.dry_run:
    device = _topology(device)
    run = dataclasses.replace(run, output_dir=tempfile.mkdtemp())
    atexit.register(shutil.rmtree, run.output_dir, ignore_errors=True)
  if device.num_gpus > 1 and (device.use_tpu or device.use_horovod):
    raise InputError(
      "--num_gpus: with --use_horovod each process has one GPU, and a TPU "
      "has --num_tpu_cores"
    )
  _check_batches(settings.batch, device)
  rates = [settings.optimizer.learning_rate]
  if settings.sweep:
    rates += settings.sweep.rates()
  for rate in rates:
    if not 0 < rate <= 1:
      raise InputError(
        "--learning_rate=%g: must be greater than 0 and at "
        "most 1, such as 2e-5" % rate
      )
  if device.use_fp16:
    if device.precision != "fp16" and any(
      line.startswith("--precision=") for line in settings.given
    ):
      raise InputError(
        "--use_fp16 contradicts --precision=%s" % device.precision
      )
    device = dataclasses.replace(device, precision="fp16")
  device.check_paths(
    {
      flag: [path]
      for flag, path in (
        ("output_dir", settings.run.output_dir),
        ("init_checkpoint", settings.model.init_checkpoint),
      )
      if path
    }
  )
  if device.use_tpu and device.precision == "fp16":
    raise InputError("--precision=fp16 is for GPUs; a TPU has --precision=bf16")
  return dataclasses.replace(settings, device=device, run=run)


def _check_batches(batch, device):
  """Checks that batches divide evenly among devices and slices."""
  cores = device.num_tpu_cores if device.use_tpu else 1
  sizes = {
    "train_batch_size": (
      batch.train_batch_size,
      {
        "num_tpu_cores": cores,
        "num_gpus": device.num_gpus,
        "gradient_accumulation_steps": batch.gradient_accumulation_steps,
      },
    ),
    "eval_batch_size": (batch.eval_batch_size, {"num_tpu_cores": cores}),
  }
  for name, (size, divisors) in sizes.items():
    parts = int(np.prod(list(divisors.values())))
    if size % parts:
      raise InputError(
        "--%s=%d is not a multiple of %s: the next one is %d"
        % (
          name,
          size,
          " times ".join("--%s=%d" % x for x in divisors.items() if x[1] > 1),
          size + -size % parts,
        )
      )


def _topology(device):
  """Returns the DeviceSettings for --dry_run."""
  found = re.match(
    r"tpu:([1-9]\d*)x([1-9]\d*)$|gpu:([1-9]\d*)$", device.dry_run
  )
  if not found:
    raise InputError(
      "--dry_run=%s: it can be tpu:HOSTSxCORES, such as "
      "tpu:4x8, or gpu:NUMBER" % device.dry_run
    )
  hosts, cores, gpus = found.groups()
  if gpus:
    return dataclasses.replace(device, num_gpus=int(gpus))
  return dataclasses.replace(
    device, use_tpu=True, num_tpu_cores=int(hosts) * int(cores)
  )
