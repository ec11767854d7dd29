"""Messages before training starts."""

import os

import pytest
import tensorflow.compat.v1 as tf
from given_settings import make_settings
from refusals import refused
from small_models import albert_zh_config

from albert.model.config import AlbertConfig
from albert.train import distribution, loop


@pytest.fixture
def set_gpus(monkeypatch):
  return lambda count: monkeypatch.setattr(
    tf.config.experimental,
    "list_physical_devices",
    lambda kind: ["GPU"] * count,
  )


@pytest.mark.parametrize(
  "given, ranks, gpus, what, more",
  [
    (
      dict(train_batch_size=32),
      1,
      0,
      "a CPU of 6 cores",
      "float32 | 32 examples per step, 32 at a time",
    ),
    (
      dict(
        train_batch_size=32,
        use_fp16=True,
        use_xla=True,
        gradient_accumulation_steps=4,
      ),
      8,
      8,
      "a GPU of the 8 here for each of 8 processes",
      "fp16 | XLA | 256 examples per step, 8 at a time",
    ),
    (
      dict(train_batch_size=24, num_gpus=3),
      1,
      4,
      "3 GPUs of the 4 here",
      "float32 | 24 examples per step, 8 at a time",
    ),
    (
      dict(
        train_batch_size=64,
        use_tpu=True,
        precision="bf16",
        gradient_accumulation_steps=2,
      ),
      1,
      0,
      "8 TPU cores",
      "bf16 | 64 examples per step, 4 at a time",
    ),
    (
      dict(train_batch_size=64, use_tpu=True, num_tpu_cores=32),
      1,
      0,
      "32 TPU cores on 4 hosts",
      "float32 | 64 examples per step, 2 at a time",
    ),
    (dict(do_train=False), 1, 1, "a GPU", "float32"),
  ],
)
def test_what_computes_is_said(
  given, ranks, gpus, what, more, monkeypatch, set_gpus
):
  monkeypatch.setattr(os, "cpu_count", lambda: 6)
  monkeypatch.setattr(tf, "__version__", "9")
  set_gpus(gpus)
  assert loop.describe(
    make_settings(**dict(dict(do_train=True), **given)),
    distribution.Workers(0, ranks, 0, list),
  ) == ("%s | TensorFlow 9 | %s" % (what, more))


@pytest.mark.parametrize(
  "version, advice",
  [
    ("1.15.0", "ALBERT_PLATFORM=tf2"),
    ("2.15.1", "tensorflow[and-cuda]==2.15.1"),
  ],
)
def test_a_gpu_that_cannot_be_used(
  version, advice, tmp_path, monkeypatch, set_gpus, caplog
):
  monkeypatch.setattr(tf, "__version__", version)
  set_gpus(0)
  monkeypatch.setenv("PATH", "%s:%s" % (tmp_path, os.environ["PATH"]))
  program = tmp_path / "nvidia-smi"
  for text in ("echo", "exit 9", "echo 'GPU 0: H100'"):
    program.write_text("#!/bin/sh\n%s\n" % text)
    program.chmod(0o755)
    assert not caplog.records
    loop.warn_of_unused_gpu(make_settings().device)
  (record,) = caplog.records
  assert version in record.getMessage() and advice in record.getMessage()


@pytest.mark.parametrize(
  "hidden_size, gpus, use_tpu, is_slow",
  [
    (312, 0, False, False),
    (384, 0, False, True),
    (384, 1, False, False),
    (384, 0, True, False),
  ],
)
def test_a_large_model_on_a_cpu(
  hidden_size, gpus, use_tpu, is_slow, set_gpus, caplog
):
  set_gpus(gpus)
  loop.warn_of_slow_training(
    AlbertConfig(**albert_zh_config(hidden_size=hidden_size)),
    make_settings(use_tpu=use_tpu).device,
  )
  assert ("2 layers of 384" in caplog.text) == is_slow


def test_gpus_that_are_not_here(set_gpus):
  set_gpus(2)
  refused("--num_gpus=4: .* detects 2", loop.start, make_settings(num_gpus=4))
