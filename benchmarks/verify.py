r"""Measures here what could not be measured where this project is developed.

    python benchmarks/verify.py hardware --output_dir=output/verified
    python benchmarks/verify.py released --item=albert_tiny \
      --output_dir=output/verified

hardware  pretrains tiny on the sample text with each precision and device that
          this machine has, on one CPU first: held-out loss, its difference from
          the CPU's, and tokens/s, as a table to paste
released  fine-tunes a released model on LCQMC (the starter weights: on
          data/topics) with its recipe, and compares the test accuracy with the
          published one
"""

import dataclasses
import importlib.util
import os
import subprocess
import sys
from typing import Dict, List, NamedTuple

import tensorflow.compat.v1 as tf

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from albert import cli
from albert.errors import InputError
from albert.files import outputs
from albert.settings import NEEDED, USUAL, from_flags, setting
from albert.train import loop
from benchmarks import plot_curves

ROOT = sys.path[0]


class Recipe(NamedTuple):
  """How a model is fine-tuned, and the test accuracy to expect, in percent."""

  size: str
  accuracy: float
  tolerance: float


# Published, on LCQMC; the starter's is quickstart.sh's.
RECIPES = {
  "albert_tiny": Recipe("tiny", 85.4, 1.0),
  "albert_small_zh_google": Recipe("small", 86.0, 1.0),
  "albert_base_zh": Recipe("base", 86.3, 1.0),
  "albert_large_zh": Recipe("large", 87.1, 1.0),
  "albert_xlarge_zh_183k": Recipe("xlarge", 87.7, 1.0),
  "albert_tiny_starter": Recipe("", 84.2, 4.0),
}


@dataclasses.dataclass(frozen=True)
class VerifySettings:
  """What to verify."""

  output_dir: str = setting(
    None, "Folder for the runs; for a TPU, on gs://.", NEEDED, required=True
  )
  item: str = setting(
    "albert_tiny", "released: the model.", USUAL, choices=sorted(RECIPES)
  )
  tpu_name: str = setting(None, "hardware: a TPU to include.", USUAL)
  num_train_steps: int = setting(200, "hardware: steps.", USUAL, least=40)


SETTINGS = (VerifySettings,)


class Way(NamedTuple):
  """A way to train.

  Attributes:
    flags: flags of run_pretraining.py.
    processes: number of Horovod processes, which share the batch.
    has_gpu: whether the process may see the GPUs.
  """

  flags: List[str] = []
  processes: int = 1
  has_gpu: bool = False


def ways(gpus: int, tpu_name: str) -> Dict[str, Way]:
  """Returns what a machine can train with, by name, the CPU first."""
  found = {"CPU": Way(), "CPU, XLA": Way(["--use_xla"])}
  if not loop.IS_TF1:
    found["CPU, bf16"] = Way(["--precision=bf16"])
  if gpus:
    for name, flags in (
      ("", []),
      (", fp16", ["--precision=fp16"]),
      (", bf16", ["--precision=bf16"]),
      (", fp16, XLA", ["--precision=fp16", "--use_xla"]),
    ):
      if "bf16" not in name or not loop.IS_TF1:
        found["GPU" + name] = Way(flags, has_gpu=True)
  if gpus > 1:
    found["%d GPUs" % gpus] = Way(["--num_gpus=%d" % gpus], has_gpu=True)
  if importlib.util.find_spec("horovod"):
    count = max(2, gpus)
    found["Horovod, %d processes" % count] = Way(
      ["--use_horovod"], count, gpus > 1
    )
  if tpu_name:
    found["TPU"] = Way(
      ["--use_tpu", "--tpu_name=" + tpu_name, "--num_tpu_cores=8"]
    )
  return found


def run(*words: str, **environment: str) -> None:
  """Runs a command in the project's folder.

  Raises:
    InputError: it fails.
  """
  status = subprocess.call(words, cwd=ROOT, env=dict(os.environ, **environment))
  if status:
    raise InputError(
      "%s failed with status %d, for the reason above"
      % (" ".join(words[:3]), status)
    )


def verify_hardware(args: VerifySettings) -> None:
  """Trains in every way and prints a Markdown table."""
  made = os.path.join(args.output_dir, "records")
  run(
    "bash",
    "create_pretrain_data.sh",
    "--max_seq_length=64",
    "--max_predictions_per_seq=20",
    "--dupe_factor=10",
    OUTPUT=made,
  )
  gpus = len(tf.config.experimental.list_physical_devices("GPU"))
  losses = []
  print(
    "| TensorFlow %s | held-out loss | difference | tokens/s |\n"
    "|---|---|---|---|" % tf.__version__,
    flush=True,
  )
  for name, way in ways(gpus, args.tpu_name).items():
    folder = os.path.join(
      args.output_dir, name.replace(", ", "_").replace(" ", "_")
    )
    launcher = [sys.executable]
    if way.processes > 1:
      launcher = [
        os.path.join(os.path.dirname(sys.executable), "horovodrun"),
        "-np",
        str(way.processes),
        sys.executable,
      ]
    run(
      *launcher,
      "run_pretraining.py",
      "--do_train",
      "--optimizer=adamw",
      "--bert_config_file=albert_config/albert_config_tiny_google.json",
      "--input_file=%s/train/*.tfrecord" % made,
      "--eval_input_file=%s/heldout/*.tfrecord" % made,
      "--output_dir=" + folder,
      "--learning_rate=3e-4",
      "--num_train_steps=%d" % args.num_train_steps,
      "--num_warmup_steps=%d" % (args.num_train_steps // 10),
      "--train_batch_size=%d" % (32 // way.processes),
      "--eval_batch_size=8",
      "--log_steps=20",
      *way.flags,
      **({} if way.has_gpu else {"CUDA_VISIBLE_DEVICES": ""}),
    )
    found = outputs.read_results(
      os.path.join(folder, "best", "eval_results.txt")
    )
    losses.append(found["loss"])
    speeds = plot_curves.read_scalars(folder)["tokens_per_second"]
    print(
      "| %s | %.4f | %+.4f | %.0f |"
      % (name, losses[-1], losses[-1] - losses[0], speeds[max(speeds)]),
      flush=True,
    )


def verify_released(args: VerifySettings) -> None:
  """Fine-tunes a model; compares its accuracy with the expected one.

  Raises:
    InputError: they differ by more than the tolerance.
  """
  recipe = RECIPES[args.item]
  folder = os.path.join(args.output_dir, args.item)
  if recipe.size:
    run(
      "bash",
      "run_classifier_lcqmc.sh",
      "--output_dir=" + folder,
      SIZE=recipe.size,
      MODEL=args.item,
    )
  else:
    run(
      sys.executable,
      "run_classifier.py",
      "--task_name=tsv",
      "--data_dir=data/topics",
      "--do_train",
      "--do_eval",
      "--do_predict",
      "--init_checkpoint=" + args.item,
      "--output_dir=" + folder,
      "--max_seq_length=80",
      "--train_batch_size=16",
      "--num_train_epochs=8",
      "--learning_rate=1e-4",
      "--save_checkpoints_steps=60",
    )
  found = (
    100
    * outputs.read_results(os.path.join(folder, "test_results.txt"))[
      "eval_accuracy"
    ]
  )
  line = "%s: test accuracy %.1f, expected %.1f ± %.1f" % (
    args.item,
    found,
    recipe.accuracy,
    recipe.tolerance,
  )
  if abs(found - recipe.accuracy) > recipe.tolerance:
    raise InputError(line)
  print(line)


def main(words: List[str]) -> None:
  args = from_flags(VerifySettings)
  if "://" not in args.output_dir:  # commands run in the project's folder
    args = dataclasses.replace(
      args, output_dir=os.path.abspath(args.output_dir)
    )
  verifiers = {"hardware": verify_hardware, "released": verify_released}
  if len(words) != 1 or words[0] not in verifiers:
    raise InputError("say what: hardware or released")
  verifiers[words[0]](args)


if __name__ == "__main__":
  cli.run(main, SETTINGS, takes_arguments=True, description=__doc__)
