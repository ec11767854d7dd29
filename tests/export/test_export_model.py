"""export_model.py on the command line: output files, errors."""

import numpy as np
import pytest
import reference_albert as reference
import scripting
import small_models
from reading import read_json
from refusals import refused
from scripting import fail, succeed
from small_models import TOKENS
from small_steps import assert_equal_variables, full
from writing import write

import export_model
from albert.files import checkpoints

pytestmark = pytest.mark.slow
CONFIG = dict(small_models.CONFIGS["google_relu"], max_position_embeddings=16)
TASK = {"labels": ["0", "1"], "max_seq_length": 16, "do_lower_case": False}
TOP = {"output_weights": np.ones([2, 24]), "output_bias": np.zeros([2])}
DATA = "model.ckpt-7.data-00000-of-00001"


@pytest.fixture
def model(tmp_path):
  """A fine-tuned folder, including optimizer slots."""
  weights = dict(reference.random_weights(CONFIG), **TOP)
  small_models.write_folder(
    tmp_path / "model",
    CONFIG,
    TOKENS,
    dict(
      TOP,
      **{
        name + slot: 0 * x
        for name, x in weights.items()
        if "cls/" not in name
        for slot in ("/adam_m", "/adam_v")
      },
    ),
    TASK,
  )
  return tmp_path / "model"


def export(model, *args, name="exported"):
  scripting.export(model, model.parent / name, *args)
  assert {path.name for path in model.parent.iterdir()} == {model.name, name}
  return model.parent / name


def weights_of(*folders):
  return [
    checkpoints.read_weights(str(folder / "model.ckpt-7")) for folder in folders
  ]


def assert_files(folder, *names):
  assert {path.name for path in folder.iterdir()} == {
    "config.json",
    "task.json",
    "vocab.txt",
    *names,
  }


@pytest.mark.parametrize(
  "flags, inside, files",
  [
    (["--saved_model"], "assets", []),
    full(
      ["--tflite", "--signature=encode", "--max_seq_length=8"],
      "",
      ["model.tflite"],
    ),
  ],
)
def test_what_is_written(flags, inside, files, model):
  target = export(model, *flags) / inside
  assert_files(target, *files)
  for name, content in (("config.json", CONFIG), ("task.json", TASK)):
    assert read_json(target / name).items() >= content.items()
  assert (target / "vocab.txt").read_text().split("\n") == TOKENS


def test_strip(model):
  # A source folder named like a temporary one is not removed.
  other = model.with_name("slim.tmp")
  model.rename(other)
  target = export(other, "--strip", name="slim")
  assert_files(target, "checkpoint", "model.ckpt-7.index", DATA)
  old, new = weights_of(other, target)
  assert set(old) == set(new)
  assert_equal_variables(new, old, 0)
  assert (target / DATA).stat().st_size * 2.9 < (other / DATA).stat().st_size


def test_positions_are_repeated(model):
  name = "bert/embeddings/position_embeddings"
  target = export(
    model, "--strip", "--extend_positions=20", "--repeat_positions=6"
  )
  assert read_json(target / "config.json")["max_position_embeddings"] == 20
  old, new = [weights[name] for weights in weights_of(model, target)]
  np.testing.assert_array_equal(new, old[[i % 6 for i in range(20)]])
  for lengths, wanted in (
    ({"count": 18}, [*range(16), 0, 1]),
    ({"length": 4}, [*range(4)] * 4),
  ):
    weights = {name: old}
    export_model.repeat_positions(weights, **lengths)
    np.testing.assert_array_equal(weights[name], old[wanted])
  for lengths in ({"length": 17}, {"count": 15}):
    refused(
      "16 positions", export_model.repeat_positions, {name: old}, **lengths
    )


def test_inspect_a_folder_that_was_moved(model):
  write(model, "checkpoint", 'model_checkpoint_path: "/gone/model-1"')
  out, _ = succeed(
    "export_model.py", "--inspect", "--init_checkpoint=%s" % model
  )
  assert "checkpoint: %s" % (model / "model.ckpt-7") in out.splitlines()
  assert out.endswith("does not fit the configuration: nothing\n")


def test_bad_input(model, tmp_path):
  target = tmp_path / "exported"

  def fails(message, *args, out=target):
    fail(
      message,
      "export_model.py",
      "--init_checkpoint=%s" % model,
      "--output_dir=%s" % out,
      *args,
    )
    assert not target.exists() and not list(tmp_path.glob("*.tmp"))

  for message, *flags in (
    ("--batch_size=0", "--tflite", "--batch_size=0"),
    ("--inspect, --strip, ", "--strip", "--tflite"),
    ("--repeat_positions .*--strip", "--onnx", "--repeat_positions=5"),
    ("--int8 .*--tflite", "--saved_model", "--int8"),
    ("--signature .*--tflite", "--saved_model", "--signature=encode"),
    ("--with_code .* --onnx", "--saved_model", "--with_code"),
    ("--max_seq_length 17", "--tflite", "--max_seq_length=17"),
    (
      "masked_lm.* classify, encode, sentence_vector",
      "--onnx",
      "--signature=masked_lm",
    ),
  ):
    fails(message, *flags)
  fails(str(tmp_path), "--strip", out=tmp_path)
  fails("config.json/sub", "--strip", out=model / "config.json" / "sub")
  for changes, message in (
    (dict(intermediate_size=41), r"\[24, 40\] .*\[24, 41\]"),
    (dict(vocab_size=49), "50 .*49|49.*50"),
  ):
    fails(
      message,
      "--saved_model",
      "--bert_config_file="
      + write(tmp_path, "other.json", dict(CONFIG, **changes)),
    )
  (model / "vocab.txt").unlink()
  fails("--vocab_file", "--saved_model")
  # Extra encoder variables.
  (weights,) = weights_of(model)
  checkpoints.write_checkpoint(
    str(model),
    "model.ckpt-8",
    dict(
      weights,
      **{
        name.replace("group_0/inner", "group_1/inner"): x
        for name, x in weights.items()
        if "group_0/inner" in name
      },
    ),
  )
  fails("model.ckpt-8 has .* bert/encoder.*group_1", "--strip")


def test_damaged_checkpoint(model):
  target = model.parent / "out"
  for name in (DATA, "model.ckpt-7.index", "checkpoint"):
    (model / name).write_bytes((model / name).read_bytes()[:9])
    fail(
      "model.ckpt-7 .*damaged",
      "export_model.py",
      "--strip",
      "--init_checkpoint=%s" % model,
      "--output_dir=%s" % target,
    )
  assert not target.exists()
  fail(
    str(target), "export_model.py", "--inspect", "--init_checkpoint=%s" % target
  )


@pytest.mark.full
def test_tflite_has_each_weight_once(tmp_path):
  """TFLite's converter duplicates weights that are multiplied by a constant."""
  model = tmp_path / "model"
  small_models.write_folder(
    model,
    small_models.albert_zh_config(hidden_size=240, intermediate_size=960),
    TOKENS,
  )
  target = export(
    model, "--tflite", "--signature=masked_lm", "--max_seq_length=9"
  )
  assert (target / "model.tflite").stat().st_size <= 1.1 * 4 * sum(
    value.size
    for name, value in weights_of(model)[0].items()
    if "seq_relationship" not in name
  )
