"""What flags make of the settings of a training, and what contradicts."""

import dataclasses

import pytest
from given_settings import given_flags, make_settings

from albert.errors import InputError
from albert.train import settings


def test_a_flag_is_in_one_group():
  names = [field.name for cls in settings.FINE_TUNING
           for field in dataclasses.fields(cls)]
  assert len(names) == len(set(names))
  assert {field.type for field in dataclasses.fields(
      settings.TrainSettings)} == set(settings.FINE_TUNING)


def test_pretraining_has_neither_data_nor_sweep():
  read = settings.read({
      name: flag for name, flag in given_flags(train_batch_size=7).items()
      if name in {field.name for cls in settings.PRETRAINING
                  for field in dataclasses.fields(cls)}})
  assert read.batch.train_batch_size == 7
  assert read.optimizer == settings.OptimizerSettings()
  assert read.data is None and read.sweep is None


def test_a_batch_that_cannot_be_sliced():
  with pytest.raises(InputError, match="=10 is not a multiple of .*=4: .* 12$"):
    make_settings(train_batch_size=10, gradient_accumulation_steps=4)


def test_two_names_of_half_precision():
  assert make_settings().device.precision == "float32"
  for given in (dict(use_fp16=True), dict(precision="fp16"),
                dict(use_fp16=True, precision="fp16")):
    assert make_settings(**given).device.precision == "fp16"
  with pytest.raises(InputError, match="--use_fp16 contradicts .*=float32"):
    make_settings(use_fp16=True, precision="float32")


def test_a_tpu_has_no_half_precision():
  with pytest.raises(InputError, match="a TPU has --precision=bf16"):
    make_settings(use_tpu=True, precision="fp16")


@pytest.mark.parametrize("given, message", [
    (dict(train_batch_size=4096, num_tpu_cores=64, eval_batch_size=32),
     "--eval_batch_size=32 is not a multiple of --num_tpu_cores=64: the next "
     "one is 64"),
    (dict(train_batch_size=100, num_tpu_cores=8, eval_batch_size=8),
     "--train_batch_size=100 .* --num_tpu_cores=8: the next one is 104"),
    (dict(train_batch_size=96, num_tpu_cores=8, eval_batch_size=8,
          gradient_accumulation_steps=24), "the next one is 192")])
def test_batches_that_the_cores_of_a_tpu_do_not_divide(given, message):
  with pytest.raises(InputError, match=message):
    make_settings(use_tpu=True, **given)
  make_settings(**given)  # elsewhere they are fine


def test_a_tpu_elsewhere_reads_no_local_files():
  remote = dict(use_tpu=True, tpu_name="my-tpu", train_batch_size=8)
  with pytest.raises(InputError, match="--output_dir=out: .* gs://BUCKET"):
    make_settings(output_dir="out", **remote)
  with pytest.raises(InputError, match="--init_checkpoint=file:///a: "):
    make_settings(output_dir="gs://a/out", init_checkpoint="file:///a",
                  **remote)
  device = make_settings(output_dir="gs://a/out", **remote).device
  with pytest.raises(InputError, match="--input_file=b: "):
    device.check_paths({"input_file": ["gs://a", "b"]})
  for given in (dict(tpu_name="local"), dict(master="grpc://localhost:8470"),
                dict(use_tpu=False)):
    make_settings(output_dir="out",
                  **dict(dict(remote, tpu_name=None), **given))
