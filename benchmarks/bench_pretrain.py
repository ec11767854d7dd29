"""Speed and memory of a pretraining step, compared with BERT's original graph.

    python benchmarks/bench_pretrain.py --max_seq_length=128 --batch_size=32

Forward, backward, clipping and optimizer on random features. Every measurement
runs in a separate process. The arms:

  plain: the operations of BERT's TF1 script with our variables and optimizer
  ours: the step of run_pretraining.py; also with
  recompute: --recompute_grads
  accumulation: --gradient_accumulation_steps
  xla: --use_xla

Our arms run with glibc's allocator configured as in training ("own") and with
its defaults ("stock"), plain only with the latter. Other modes: --check,
--profile, --find_max_batch, --input_file and, to measure the effect of code
changes:

    git worktree add ../before COMMIT
    python benchmarks/bench_pretrain.py --against=../before
"""

import collections
import dataclasses
import functools
import json
import math
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from typing import Dict

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags, logging

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import optimization
import plain_step
import profiling
import run_pretraining
from albert import cli
from albert.errors import InputError
from albert.files import records
from albert.heads.pretraining import Pretraining
from albert.model.config import AlbertConfig
from albert.settings import from_flags, setting
from albert.train import distribution, loop, step
from albert.train import settings as train_settings
from lamb_optimizer import LAMB
from optimization import AdamW

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class BenchSettings:
  """What to measure."""

  steps: int = setting(5, "Timed steps, after two of warm-up.")
  arms: list = setting(
    "plain,ours,recompute",
    "Arms to measure; a repeated arm is measured "
    "repeatedly, and medians give the ratios.",
  )
  allocators: list = setting("own,stock", "Allocators of our arms.")
  check: bool = setting(
    False, "Check on a small batch that all --arms compute the same."
  )
  profile: bool = setting(False, "Show the time of a step by operation.")
  against: str = setting(
    None, "Folder of a different commit, to measure in alternation."
  )
  pairs: int = setting(5, "--against: number of pairs of measurements.")
  find_max_batch: bool = setting(
    False, "Find the largest batch per length; stock allocator."
  )
  lengths: list = setting("128,256,512", "--find_max_batch: lengths.")
  memory_limit_gb: float = setting(8.0, "--find_max_batch: memory limit.")
  arm: str = setting(
    None,
    "Measure this arm in this process and print JSON; with --profile, "
    "the arm to profile.",
  )


@dataclasses.dataclass(frozen=True)
class BenchBatchSettings(train_settings.BatchSettings):
  """As in training, with a shorter alias."""

  train_batch_size: int = setting(
    16, "Examples per training step.", least=1, alias="batch_size"
  )


SETTINGS = (
  BenchSettings,
  run_pretraining.PretrainingSettings,
  *[
    BenchBatchSettings if cls is train_settings.BatchSettings else cls
    for cls in train_settings.PRETRAINING
  ],
)
DEFAULTS = dict(
  run_pretraining.DEFAULTS,
  output_dir=dict(required=False),
  max_seq_length=512,
  max_predictions_per_seq=51,
  gradient_accumulation_steps=4,
  bert_config_file=os.path.join(
    sys.path[0], "albert_config/albert_config_tiny.json"
  ),
)


def make_settings(arm: str) -> train_settings.TrainSettings:
  """Returns the settings of an arm."""
  if arm not in ("plain", "ours", "recompute", "accumulation", "xla"):
    raise InputError("--arms: unknown arm %r" % arm)
  settings = from_flags(train_settings.TrainSettings)
  device, batch = settings.device, settings.batch
  return dataclasses.replace(
    settings,
    device=dataclasses.replace(
      device,
      use_xla=device.use_xla or arm == "xla",
      recompute_grads=device.recompute_grads or arm == "recompute",
    ),
    batch=batch
    if arm == "accumulation"
    else dataclasses.replace(batch, gradient_accumulation_steps=1),
  )


def make_step(arm, config, features):
  """Builds the training step of an arm; returns (loss, train_op)."""
  settings = make_settings(arm)
  schedule = train_settings.Schedule(FLAGS.num_train_steps)
  if arm == "plain":
    return make_plain_step(config, features, settings.optimizer, schedule)
  spec = step.model_fn_builder(
    config, Pretraining(), settings, schedule, distribution.get_workers()
  )(features, None, tf.estimator.ModeKeys.TRAIN, {})
  return spec.loss, spec.train_op


def make_plain_step(config, features, options, schedule):
  """Builds the step of BERT's graph with our optimizer; see `make_step`."""
  global_step = tf.train.get_or_create_global_step()
  rate = optimization.create_learning_rate(
    options.learning_rate, schedule.num_train_steps, 0, global_step
  )
  optimizer = {"adamw": AdamW, "lamb": LAMB}[options.optimizer](
    rate, options.weight_decay_rate
  )
  loss = plain_step.loss(config, features)
  pairs = [
    pair for pair in optimizer.compute_gradients(loss) if pair[0] is not None
  ]
  clipped, _ = tf.clip_by_global_norm(
    [optimization.densify(*pair) for pair in pairs], 1.0
  )
  return loss, optimizer.apply_gradients(
    zip(clipped, [variable for _, variable in pairs]), global_step
  )


def make_features(config):
  """Returns a random batch, arrays by name."""
  batch, length = FLAGS.train_batch_size, FLAGS.max_seq_length
  predictions = min(FLAGS.max_predictions_per_seq, length)
  rng = np.random.RandomState(0)
  ids = functools.partial(
    rng.randint, min(1000, config.vocab_size // 2), config.vocab_size
  )
  numbers = np.tile(np.arange(length), [batch, 1])
  return {
    "input_ids": ids([batch, length]),
    "input_mask": numbers < length - length // 10,
    "segment_ids": numbers >= length // 2,
    "masked_lm_positions": np.array(
      [rng.permutation(length)[:predictions] for _ in range(batch)]
    ),
    "masked_lm_ids": ids([batch, predictions]),
    "masked_lm_weights": np.ones([batch, predictions]),
    "next_sentence_labels": rng.randint(2, size=[batch, 1]),
  }


class Step:
  """The training step of an arm, ready to run."""

  def __init__(self, arm, config):
    tf.reset_default_graph()
    tf.set_random_seed(FLAGS.random_seed)
    self._feed = {
      tf.placeholder(
        tf.float32 if "weights" in name else tf.int32, x.shape, name
      ): x
      for name, x in sorted(make_features(config).items())
    }
    self._fetches = make_step(
      arm,
      config,
      {placeholder.op.name: placeholder for placeholder in self._feed},
    )
    session_config = tf.ConfigProto(allow_soft_placement=True)
    session_config.gpu_options.allow_growth = True
    if make_settings(arm).device.use_xla:
      session_config.graph_options.optimizer_options.global_jit_level = (
        tf.OptimizerOptions.ON_1
      )
    self.session = tf.Session(config=session_config)
    self.session.run(tf.global_variables_initializer())

  def run(self, options=None, run_metadata=None):
    """Trains one step and returns the loss."""
    return self.session.run(self._fetches, self._feed, options, run_metadata)[0]


def start_arm(arm):
  """Sets up this process as in training; returns the configuration."""
  if FLAGS.allocators[0] == "stock" or arm == "plain":
    loop.keep_freed_memory = lambda: None
  loop.prepare_process(make_settings(arm).device)
  return AlbertConfig.from_json_file(FLAGS.bert_config_file)


def measure_here(arm: str) -> Dict[str, float]:
  """Measures an arm in this process."""
  training = Step(arm, start_arm(arm))
  with open("/proc/self/statm") as reader:
    before = int(reader.read().split()[1]) * resource.getpagesize() / 2**20
  seconds = []
  for _ in range(2 + FLAGS.steps):
    start = time.time()
    training.run()
    seconds.append(time.time() - start)
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
  return {
    "peak": peak,
    "growth": peak - before,
    "rate": FLAGS.train_batch_size / statistics.median(seconds[2:] or seconds),
  }


def measure(arm, allocator, script=None, **changes):
  """Measures an arm with changed flags in a separate process."""
  changes.update(arm=arm, allocators=allocator)
  process = subprocess.run(
    [sys.executable, script or os.path.abspath(__file__)]
    + [x for x in sys.argv[1:] if not x.startswith(("--against", "--pairs"))]
    + ["--%s=%s" % change for change in changes.items()],
    capture_output=True,
    text=True,
    check=False,
  )
  if process.returncode == -signal.SIGKILL:  # out of memory
    return {"peak": math.inf, "growth": math.inf, "rate": 0.0}
  if process.returncode:
    sys.exit("%s: %s" % (arm, process.stderr[-2000:]))
  return json.loads(process.stdout.splitlines()[-1])


def compare():
  """Prints a table of all arms and the ratios to plain."""
  print_setting()
  print(
    "%-14s%-10s%12s%10s%16s"
    % ("arm", "allocator", "examples/s", "peak MB", "of the steps")
  )
  results = collections.defaultdict(list)
  for arm in FLAGS.arms:
    for allocator in ["stock"] if arm == "plain" else FLAGS.allocators:
      result = measure(arm, allocator)
      results[arm, allocator].append(result)
      print(
        "%-14s%-10s%12.2f%10.0f%16.0f"
        % (arm, allocator, result["rate"], result["peak"], result["growth"]),
        flush=True,
      )
  medians = {
    key: {name: statistics.median(r[name] for r in found) for name in found[0]}
    for key, found in results.items()
  }
  plain = medians.pop(("plain", "stock"), None)
  for (arm, allocator), result in medians.items():
    ratios = {name: result[name] / plain[name] for name in plain or ()}
    if plain and allocator == "own":
      print("rate %s(own)/plain = %.3f" % (arm, ratios["rate"]))
    elif plain:
      print(
        "memory %s(stock)/plain = %.3f, of the steps alone %.3f"
        % (arm, ratios["peak"], ratios["growth"])
      )


def compare_with_commit():
  """Prints the rates of --against and of this code, pair by pair."""
  print_setting()
  print("%12s%12s%10s" % ("before", "now", "ratio"))
  script = os.path.join(
    os.path.abspath(FLAGS.against), "benchmarks", os.path.basename(__file__)
  )
  ratios = []
  for _ in range(FLAGS.pairs):
    before = measure("ours", "own", script)["rate"]
    now = measure("ours", "own")["rate"]
    ratios.append(now / before)
    print("%12.2f%12.2f%10.3f" % (before, now, ratios[-1]), flush=True)
  print("median of the ratios %.3f" % statistics.median(ratios))


def print_setting():
  print(
    "%s, length %d, batch %d, %s, TensorFlow %s"
    % (
      os.path.basename(FLAGS.bert_config_file),
      FLAGS.max_seq_length,
      FLAGS.train_batch_size,
      FLAGS.optimizer,
      tf.__version__,
    )
  )


def find_max_batch():
  """Prints the largest batches with a peak within --memory_limit_gb."""
  print(
    "%s, %s, at most %g GB"
    % (
      os.path.basename(FLAGS.bert_config_file),
      FLAGS.optimizer,
      FLAGS.memory_limit_gb,
    )
  )
  print(
    "%-8s%-12s%8s%10s%15s%10s"
    % ("length", "arm", "batch", "peak MB", "does not fit", "peak MB")
  )
  for length in map(int, FLAGS.lengths):
    for arm in ("ours", "recompute"):
      low, high, peaks = largest_batch(
        lambda batch, arm=arm, length=length: measure(
          arm, "stock", train_batch_size=batch, max_seq_length=length, steps=0
        )["peak"],
        max(1, 1024 // length),
      )
      print(
        "%-8d%-12s%8d%10.0f%15d%10.0f"
        % (length, arm, low, peaks[low], high, peaks[high]),
        flush=True,
      )


def largest_batch(peak_of, batch):
  """Finds the largest batch within the limit, with a precision of 1/20.

  Extrapolates linearly through the smallest and the largest try, then through
  the tries on either side of the limit.

  Args:
    peak_of: measures the peak of a batch size.
    batch: first batch size to try.

  Returns:
    (largest that fits, smallest tried that does not, dict of all peaks)
  """
  limit = FLAGS.memory_limit_gb * 1024
  peaks = {0: 0.0}
  low, high = 0, None
  while not high or high - low > max(1, low // 20):
    peaks[batch] = peak_of(batch)
    logging.info("batch %d: %.0f MB", batch, peaks[batch])
    if peaks[batch] <= limit:
      low = batch
    else:
      high = batch
    one, two = low, high
    if not high:
      one, two = min(size for size in peaks if size), low
    batch = 4 * low or high // 2
    if 0 < one < two and peaks[one] < peaks[two] < math.inf:
      batch = int(
        one + (limit - peaks[one]) * (two - one) / (peaks[two] - peaks[one])
      )
    least = max(1, low // 20)
    batch = min(max(batch, low + least), high - least if high else 8 * low)
  return low, high, peaks


def check():
  """Fails unless all arms have the same losses in three steps."""
  FLAGS.train_batch_size, FLAGS.max_seq_length = 4, 256
  FLAGS.max_predictions_per_seq, FLAGS.learning_rate = 5, 1e-3
  expected = weights = None
  for arm in FLAGS.arms:
    config = start_arm(arm)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    config.initializer_range = 0.05  # makes attention non-uniform
    training = Step(arm, config)
    variables = {v.op.name: v for v in tf.trainable_variables()}
    weights = weights or training.session.run(variables)
    if set(weights) != set(variables):
      sys.exit(
        "%s has different variables: %s"
        % (arm, ", ".join(set(weights) ^ set(variables)))
      )
    for name, variable in variables.items():
      variable.load(weights[name], training.session)
    losses = [training.run() for _ in range(3)]
    print("%-14s%s" % (arm, "  ".join("%.6f" % loss for loss in losses)))
    expected = expected or losses
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
  print("all agree")


def profile():
  """Prints the time of a step by operation."""
  arm = FLAGS.arm or "ours"
  training = Step(arm, start_arm(arm))
  for _ in range(2):
    training.run()
  metadata = tf.RunMetadata()
  training.run(tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), metadata)
  profiling.print_shares(arm, [metadata])


def measure_input():
  """Prints the throughput of the input pipeline."""
  specs = records.pretraining_specs(
    FLAGS.max_seq_length, FLAGS.max_predictions_per_seq
  )
  files = records.check_records(
    records.expand_patterns(FLAGS.input_file, "input_file"), specs
  )
  dataset = records.input_fn_builder(
    files,
    specs,
    is_training=True,
    drop_remainder=True,
    shuffle_buffer=FLAGS.shuffle_buffer,
  )({"batch_size": FLAGS.train_batch_size})
  batch = tf.data.make_one_shot_iterator(dataset).get_next()
  with tf.Session() as session:
    session.run(batch)  # fills the shuffle buffer
    start, count = time.time(), 0
    while time.time() - start < 5:
      session.run(batch)
      count += FLAGS.train_batch_size
    print(
      "input pipeline: %.0f examples/s" % (count / (time.time() - start)),
      flush=True,
    )


def main():
  if FLAGS.check:
    check()
  elif FLAGS.profile:
    profile()
  elif FLAGS.arm:
    print(json.dumps(measure_here(FLAGS.arm)))
  elif FLAGS.against:
    compare_with_commit()
  elif FLAGS.find_max_batch:
    find_max_batch()
  elif FLAGS.input_file:
    measure_input()
  else:
    compare()


if __name__ == "__main__":
  cli.run(main, SETTINGS, **DEFAULTS)
