"""benchmarks/verify.py: what it runs, with stand-ins for the runs."""

import pathlib

import pytest
import tensorflow.compat.v1 as tf
from scripting import fail, succeed
from writing import write

from benchmarks import verify

IS_TF1 = tf.__version__.startswith("1.")


@pytest.fixture
def ran(monkeypatch):
  """The commands that were run, each with its environment."""
  ran = []

  def run(*words, **environment):
    ran.append((words, environment))
    (folder,) = [
      word[len("--output_dir=") :]
      for word in words
      if word.startswith("--output_dir=")
    ] or [None]
    if folder:
      value = 5 + len(ran)
      for path in ("best", "."):
        pathlib.Path(folder, path).mkdir(parents=True, exist_ok=True)
      write(
        pathlib.Path(folder) / "best", "eval_results.txt", "loss = %d" % value
      )
      write(pathlib.Path(folder), "test_results.txt", "eval_accuracy = 0.853")
      with tf.io.TFRecordWriter(folder + "/events.out.tfevents.1") as writer:
        for step, speed in enumerate((1.0, value * 100.0)):
          writer.write(
            tf.Event(
              step=step,
              summary={
                "value": [{"tag": "tokens_per_second", "simple_value": speed}]
              },
            ).SerializeToString()
          )

  monkeypatch.setattr(verify, "run", run)
  return ran


def test_each_way_is_compared_with_the_cpu(ran, tmp_path, monkeypatch):
  monkeypatch.setattr(
    verify,
    "ways",
    lambda gpus, tpu_name: {
      "CPU": verify.Way(),
      "2 GPUs": verify.Way(["--num_gpus=2"], 1, True),
      "Horovod, 2 processes": verify.Way(["--use_horovod"], 2),
    },
  )
  out, _ = succeed(
    "benchmarks/verify.py", "hardware", "--output_dir=%s" % tmp_path
  )
  assert out.splitlines()[2:] == [
    "| CPU | 7.0000 | +0.0000 | 700 |",
    "| 2 GPUs | 8.0000 | +1.0000 | 800 |",
    "| Horovod, 2 processes | 9.0000 | +2.0000 | 900 |",
  ]
  _, (cpu, hidden), (_, seen), (horovod, _) = ran
  assert (hidden, seen) == ({"CUDA_VISIBLE_DEVICES": ""}, {})
  assert horovod[0].endswith("bin/horovodrun") and horovod[1:3] == ("-np", "2")
  assert "--train_batch_size=32" in cpu and "--train_batch_size=16" in horovod


def test_what_a_machine_can_train_with():
  names = {
    gpus: [
      name for name in verify.ways(gpus, None) if not name.startswith("Horovod")
    ]
    for gpus in (0, 1, 8)
  }
  bf16 = [] if IS_TF1 else ["CPU, bf16"]
  assert names[0] == ["CPU", "CPU, XLA", *bf16]
  assert {"GPU", "GPU, fp16"} < set(names[1]) and names[8][-1] == "8 GPUs"
  assert verify.ways(0, "pod")["TPU"].flags[1] == "--tpu_name=pod"


def test_a_released_model(ran, tmp_path, monkeypatch):
  args = ["benchmarks/verify.py", "released", "--output_dir=%s" % tmp_path]
  out, _ = succeed(*args)
  assert out == "albert_tiny: test accuracy 85.3, expected 85.4 ± 1.0\n"
  assert ran[0][1] == {"SIZE": "tiny", "MODEL": "albert_tiny"}
  monkeypatch.setitem(
    verify.RECIPES, "albert_tiny_starter", verify.Recipe("", 20, 4)
  )
  fail(
    "starter: test accuracy 85.3, expected 20.0",
    *args,
    "--item=albert_tiny_starter",
  )
  fail("hardware or released", *args[:1], args[2])
