"""Several processes: what a reduction gives, and Horovod's own."""

import concurrent.futures
import os
import re
import subprocess
import sys
import threading
import types

import numpy as np
import pytest
import small_steps as small
import tensorflow.compat.v1 as tf
from reading import table
from scripting import ROOT, quick_python
from small_models import evaluate
from small_steps import LAYOUTS, make_options
from trained_models import command

from albert.files import checkpoints
from albert.train import distribution
from benchmarks import plot_curves


@pytest.fixture
def horovod(monkeypatch):
  """Stands for horovod.tensorflow on the second GPU of the second host."""
  horovod = types.SimpleNamespace(
    rank=lambda: 3,
    size=lambda: 4,
    local_rank=lambda: 1,
    Average="average",
    # Only the first rank's value stays as it is.
    broadcast=lambda x, root_rank, name: x + root_rank,
  )
  monkeypatch.setattr(distribution, "_horovod", lambda: horovod)
  return horovod


@pytest.mark.parametrize(
  "visible, own",
  [(None, "1"), ("4,6", "6"), ("GPU-a,GPU-b", "GPU-b"), ("5", "5"), ("", "")],
)
def test_a_rank_has_one_gpu(visible, own, monkeypatch, horovod):
  monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible or "")
  if visible is None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
  for _ in range(2):
    workers = distribution.get_workers(use_horovod=True)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == own
  assert workers[:3] == (3, 4, 1)


def test_scalars_are_sent_together_with_the_step(horovod):
  sent = {}
  horovod.allreduce = lambda tensor, op, name: (
    sent.update({name: (op, tensor.shape.as_list())}) or tensor + 100
  )
  one, two, three = evaluate(
    distribution._horovod_mean(
      [tf.constant(1.0), tf.constant([2.0, 3.0]), tf.constant(4.0)]
    )
  )
  assert (one, two.tolist(), three) == (101, [102, 103], 104)
  assert sent == {"mean_3_3": ("average", [3]), "mean_3_1": ("average", [2])}
  assert distribution.broadcast(7) == 7  # a number, of the first rank


@pytest.mark.parametrize("rank, last", [(0, 6), (1, 9)])
def test_all_ranks_stop_where_the_first_says(rank, last, horovod):
  """Asked at even steps."""
  horovod.rank = lambda: rank
  answers, steps = [True, False], []
  step = tf.train.get_or_create_global_step()
  advance = step.assign_add(1)
  with tf.train.SingularMonitoredSession(
    hooks=[distribution.StopTogetherHook(2, answers.pop)],
    scaffold=tf.train.Scaffold(init_op=step.assign(3)),
  ) as session:
    while not session.should_stop() and len(steps) < 6:
      steps.append(session.run(advance))
  assert steps == list(range(4, last + 1))
  assert len(answers) == 2 * bool(rank)


@pytest.mark.slow
def test_two_ranks_make_the_steps_of_one_with_twice_the_batch():
  """Two threads stand for processes."""
  config, given = LAYOUTS["albert_zh"], [None] * 2
  barrier = threading.Barrier(2, timeout=100)
  batches = list(map(small.make_features, range(3)))
  # Flags are of the process: two threads cannot parse them at once.
  settings = make_options(train_batch_size=3, gradient_accumulation_steps=3)

  def train(rank):
    def exchange(*arrays):
      given[rank] = arrays
      barrier.wait()
      means = [np.mean(x, 0, np.float32) for x in zip(*given)]
      barrier.wait()
      return means

    def reduce_mean(tensors):
      means = tf.py_func(exchange, tensors, [x.dtype for x in tensors])
      for mean, tensor in zip(means, tensors):
        mean.set_shape(tensor.shape)
      return means

    return small.train(
      3,
      settings,
      [
        {name: x[3 * rank :][:3] for name, x in batch.items()}
        for batch in batches
      ],
      workers=distribution.Workers(rank, 2, 0, reduce_mean),
      **config,
    )

  with concurrent.futures.ThreadPoolExecutor(2) as pool:
    trained = list(pool.map(train, range(2)))
  expected, whole = small.train(3, make_options(), batches, **config)
  for losses, found in trained:
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    small.assert_equal_variables(found, whole, 1e-5)


@pytest.fixture
def start(tmp_path):
  pytest.importorskip("horovod")

  def start(ranks, script, *args, python=None):
    words = [python or quick_python(), str(ROOT / script), *args]
    if ranks > 1:
      words = [
        os.path.join(os.path.dirname(sys.executable), "horovodrun"),
        "-np",
        str(ranks),
        "-H",
        "localhost:%d" % ranks,
        *words,
        "--use_horovod",
      ]
    return subprocess.Popen(
      words,
      cwd=str(tmp_path),
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2"),
    )

  return start


def pretraining(folder, name, ranks, *args):
  """A command without shuffling, of 16 examples a step."""
  return [
    ranks,
    "run_pretraining.py",
    *small.write_pretraining(folder, 64),
    "--do_train",
    "--output_dir=" + name,
    "--shuffle_buffer=1",
    "--train_batch_size=%d" % (16 / ranks),
    "--log_steps=1",
    "--num_warmup_steps=2",
    "--learning_rate=0.02",
    *args,
  ]


def finish(process):
  log = process.communicate(timeout=300)[0].decode()
  assert process.returncode == 0, log
  return log


def weights(folder):
  """The gradient of the key bias is zero: rounding error moves it."""
  return {
    name: value
    for name, value in checkpoints.read_all(
      tf.train.latest_checkpoint(str(folder))
    ).items()
    if "key/bias" not in name
  }


def steps_evaluated(folder):
  return [int(row[0]) for row in table(folder / "eval_history.tsv")[1:]]


@pytest.mark.full
def test_two_processes(start, tmp_path):
  finish(start(*pretraining(tmp_path, "start", 1, "--num_train_steps=1")))
  args = ["--num_train_steps=6", "--init_checkpoint=start"]
  finish(start(*pretraining(tmp_path, "one", 1, *args)))
  log = finish(
    start(
      *pretraining(
        tmp_path,
        "two",
        2,
        *args,
        "--save_checkpoints_steps=3",
        "--gradient_accumulation_steps=2",
      )
    )
  )
  expected, found = [
    plot_curves.read_scalars(str(tmp_path / name))["loss"]
    for name in ("one", "two")
  ]
  assert list(expected) == list(range(1, 7))
  assert found == pytest.approx(expected, rel=1e-5)
  found = weights(tmp_path / "two")
  small.assert_equal_variables(found, weights(tmp_path / "one"), 1e-5)
  assert found["global_step"] == 6
  assert log.count("step 6/6") == 1  # rank 0 alone logs


@pytest.mark.full
def test_rank_0_evaluates_and_stops_all(start, tmp_path):
  log = finish(
    start(
      *pretraining(
        tmp_path,
        "out",
        2,
        "--num_train_steps=400",
        "--early_stop_evals=2",
        "--learning_rate=1e-30",
        "--eval_input_file=heldout.tfrecord",
        "--save_checkpoints_steps=5",
      )
    )
  )
  assert "stopping early" in log
  assert steps_evaluated(tmp_path / "out") == [5, 10, 15]
  assert weights(tmp_path / "out")["global_step"] == 15


@pytest.mark.full
def test_killing_one_ends_the_other(start, tmp_path):
  psutil = pytest.importorskip("psutil")
  process = start(
    *pretraining(tmp_path, "out", 2, "--num_train_steps=1000000"),
    python=sys.executable,
  )
  tree = psutil.Process(process.pid)
  try:
    assert any(b"step 10/" in line for line in process.stdout)
    ranks = {
      child.environ().get("HOROVOD_RANK"): child
      for child in tree.children(recursive=True)
      if child.cmdline()[0] == sys.executable
    }
    ranks["1"].kill()
    log = process.communicate(timeout=60)[0].decode()
    assert process.returncode != 0
    assert not ranks["0"].is_running() or (  # not waited for yet
      ranks["0"].status() == psutil.STATUS_ZOMBIE
    )
    assert "Process name: 1\nExit code: 137" in log
  finally:
    if process.poll() is None:
      for left in (*tree.children(recursive=True), tree):
        left.kill()


@pytest.mark.full
def test_fine_tuning_by_two_ranks(start, tmp_path):
  log = finish(
    start(
      2,
      *command(
        tmp_path,
        "crf",
        "--do_train",
        "--do_eval",
        "--do_predict",
        "--max_seq_length=16",
        "--adversarial=fgm",
        "--train_batch_size=2",
        "--num_train_epochs=2",
        "--save_checkpoints_steps=2",
      ),
    )
  )
  steps = int(re.search(r"(\d+) steps of 4 examples", log).group(1))
  assert weights(tmp_path / "out")["global_step"] == steps
  assert steps_evaluated(tmp_path / "out") == sorted(
    {*range(2, steps, 2), steps}
  )
  assert len(table(tmp_path / "out" / "file_predict.json")) == 9
