"""What is said before training starts."""

import os

import pytest
import tensorflow.compat.v1 as tf
from given_settings import make_settings

from albert.train import distribution, loop


@pytest.mark.parametrize("given, ranks, gpus, line", [
    (dict(do_train=True, train_batch_size=32), 1, 0,
     "a CPU of 6 cores | TensorFlow 9 | float32 | 32 examples a step, 32 at a "
     "time"),
    (dict(do_train=True, train_batch_size=32, use_fp16=True, use_xla=True,
          gradient_accumulation_steps=4), 8, 8,
     "a GPU of the 8 here for each of 8 processes | TensorFlow 9 | fp16 | XLA "
     "| 256 examples a step, 8 at a time"),
    (dict(do_train=True, train_batch_size=64, use_tpu=True, precision="bf16",
          gradient_accumulation_steps=2), 1, 0,
     "8 TPU cores | TensorFlow 9 | bf16 | 64 examples a step, 4 at a time"),
    (dict(do_train=True, train_batch_size=64, use_tpu=True, num_tpu_cores=32),
     1, 0, "32 TPU cores on 4 hosts | TensorFlow 9 | float32 | 64 examples a "
     "step, 2 at a time"),
    (dict(do_eval=True), 1, 1, "a GPU | TensorFlow 9 | float32")])
def test_what_computes_is_said(given, ranks, gpus, line, monkeypatch):
  monkeypatch.setattr(os, "cpu_count", lambda: 6)
  monkeypatch.setattr(tf, "__version__", "9")
  monkeypatch.setattr(tf.config.experimental, "list_physical_devices",
                      lambda kind: ["GPU"] * gpus)
  assert loop.describe(make_settings(**given), distribution.Workers(
      0, ranks, 0, list)) == line


@pytest.mark.parametrize("version, advice", [
    ("1.15.0", "it needs CUDA 10.0; use `export ALBERT_PLATFORM=tf2`"),
    ("2.15.1", "tensorflow[and-cuda]==2.15.1")])
def test_a_gpu_that_cannot_be_used(version, advice, tmp_path, monkeypatch,
                                   caplog):
  monkeypatch.setattr(tf, "__version__", version)
  monkeypatch.setattr(tf.config.experimental, "list_physical_devices",
                      lambda kind: [])
  monkeypatch.setenv("PATH", "%s:%s" % (tmp_path, os.environ["PATH"]))
  program = tmp_path / "nvidia-smi"
  for text in ("echo", "exit 9", "echo 'GPU 0: H100'"):
    program.write_text("#!/bin/sh\n%s\n" % text)
    program.chmod(0o755)
    assert "nvidia-smi" not in caplog.text
    loop.warn_of_unused_gpu(make_settings().device)
  assert "nvidia-smi finds a GPU that TensorFlow %s" % version in caplog.text
  assert advice in caplog.text
