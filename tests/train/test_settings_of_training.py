"""Training settings from flags; contradictions."""

import pytest
from given_settings import make_settings
from refusals import refused


@pytest.mark.parametrize(
  "given, device",
  [
    ({}, dict(precision="float32")),
    (dict(use_fp16=True), dict(precision="fp16")),
    (dict(use_fp16=True, precision="fp16"), dict(precision="fp16")),
    (dict(dry_run="gpu:4"), dict(num_gpus=4)),
    (dict(dry_run="tpu:4x2"), dict(use_tpu=True, num_tpu_cores=8)),
  ],
)
def test_hardware_and_the_folder_of_a_dry_run(given, device):
  read = make_settings(output_dir="out", **given)
  assert {name: getattr(read.device, name) for name in device} == device
  assert (read.run.output_dir == "out") == ("dry_run" not in given)


RUN = {"do_train": True, "do_eval": True}
TPU = {"use_tpu": True}
REMOTE = dict(TPU, tpu_name="my-tpu", train_batch_size=8)


@pytest.mark.parametrize(
  "given, message",
  [
    (
      dict(train_batch_size=10, gradient_accumulation_steps=4),
      "--train_batch_size=10 .* --gradient_accumulation_steps=4: .* 12$",
    ),
    (
      dict(TPU, train_batch_size=4096, num_tpu_cores=64),
      "--eval_batch_size=32 .* --num_tpu_cores=64: .* 64$",
    ),
    (dict(TPU, train_batch_size=100), "--train_batch_size=100 .* 104$"),
    (dict(TPU, train_batch_size=96, gradient_accumulation_steps=24), " 192$"),
    (dict(dry_run="gpu:3"), "--train_batch_size=32 .* --num_gpus=3: .* 33$"),
    (dict(num_gpus=2, use_horovod=True), "--num_gpus"),
    (dict(TPU, num_gpus=2), "--num_gpus"),
    (dict(TPU, precision="fp16"), "--precision=fp16 .* --precision=bf16"),
    (
      dict(use_fp16=True, precision="float32"),
      "--use_fp16 .* --precision=float32",
    ),
    (dict(learning_rate=0.0), "--learning_rate=0: "),
    (dict(learning_rate=1.5), "--learning_rate=1.5: "),
    (dict(RUN, learning_rates=["0.1", "2"]), "--learning_rate=2: "),
    (dict(RUN, learning_rates=["1e-4", "fast"]), "--learning_rates: .*fast"),
    (dict(REMOTE, output_dir="out"), "--output_dir=out: .* gs://BUCKET"),
    (
      dict(REMOTE, output_dir="gs://a/out", init_checkpoint="file:///a"),
      "--init_checkpoint=file:///a: ",
    ),
    *(
      (dict(dry_run=hardware), "--dry_run=%s: .*tpu:HOSTSxCORES" % hardware)
      for hardware in ("gpu", "gpu:0", "tpu:0x8", "tpu:8", "gpu:1x8")
    ),
  ],
)
def test_what_contradicts(given, message):
  refused(message, make_settings, **given)


def test_a_tpu_elsewhere_reads_no_local_files():
  device = make_settings(output_dir="gs://a/out", **REMOTE).device
  refused(
    "--input_file=b: ", device.check_paths, {"input_file": ["gs://a", "b"]}
  )
  for given in (
    dict(tpu_name="local"),
    dict(use_tpu=False, tpu_name=None),
    dict(tpu_name=None, master="grpc://localhost:8470"),
  ):
    make_settings(**dict(REMOTE, output_dir="out", **given))
