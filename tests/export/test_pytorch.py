"""convert_to_pytorch.py as a command: there, back, and what it refuses."""

import json
import os
import sys

import numpy as np
import pytest
import reference_albert as reference
import scripting
from scripting import fail, succeed

from albert.files import checkpoints
from modeling import AlbertConfig

pytestmark = pytest.mark.slow

VOCAB = scripting.ROOT / "albert_config" / "vocab.txt"


def write_checkpoint(folder, **changes):
  """Writes a checkpoint with random weights, configuration and vocabulary."""
  config = dict(AlbertConfig(**dict(scripting.SIZES, **changes)).to_dict())
  checkpoints.write_checkpoint(str(folder), "model.ckpt-3", {
      name: value.astype(np.float32) for name, value in
      reference.random_weights(config).items()})
  (folder / "config.json").write_text(json.dumps(config))
  (folder / "vocab.txt").write_bytes(VOCAB.read_bytes())
  return folder


@pytest.fixture(scope="module")
def google(tmp_path_factory):
  return write_checkpoint(tmp_path_factory.mktemp("google"),
                          num_hidden_groups=1)


@pytest.fixture(scope="module")
def converted(google):
  folder = google / "converted"
  succeed("convert_to_pytorch.py", "--init_checkpoint=file://%s" % google,
          "--output_dir=file://%s" % folder)
  return folder


def weights_of(folder, name):
  return {key: value.tobytes() for key, value in checkpoints.read_weights(
      str(folder / name)).items()}


def test_there_and_back(google, converted, tmp_path):
  assert sorted(os.listdir(str(converted))) == [
      "config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"]
  back = tmp_path / "back"
  succeed("convert_to_pytorch.py", "--pytorch_dir=file://%s" % converted,
          "--output_dir=file://%s" % back)
  assert weights_of(back, "model.ckpt") == weights_of(google, "model.ckpt-3")
  there, again = [AlbertConfig.from_json_file(str(path / "config.json"))
                  for path in (google, back)]
  assert dict(there.to_dict(), hidden_act="gelu_new") == again.to_dict()
  assert (back / "vocab.txt").read_bytes() == VOCAB.read_bytes()


@pytest.mark.parametrize("head", [{}, {"head": "multi_label"}])
def test_labels_of_a_classifier_come_back(head, google, tmp_path):
  tuned = tmp_path / "tuned"
  tuned.mkdir()
  weights = {name: value for name, value in checkpoints.read_weights(
      str(google / "model.ckpt-3")).items() if name.startswith("bert/")}
  weights["output_weights"] = np.ones([2, 16], np.float32)
  weights["output_bias"] = np.zeros([2], np.float32)
  checkpoints.write_checkpoint(str(tuned), "model.ckpt-3", weights)
  for name in ("config.json", "vocab.txt"):
    (tuned / name).write_bytes((google / name).read_bytes())
  task = {"labels": ["好", "坏"], "max_seq_length": 512,
          "do_lower_case": False, **head}
  (tuned / "task.json").write_text(json.dumps(task))
  for source, flag, target in ((tuned, "init_checkpoint", "there"),
                               (tmp_path / "there", "pytorch_dir", "back")):
    succeed("convert_to_pytorch.py", "--%s=%s" % (flag, source),
            "--output_dir=%s" % (tmp_path / target))
  there = json.loads((tmp_path / "there" / "config.json").read_text(
      encoding="utf-8"))
  assert there["architectures"] == ["AlbertForSequenceClassification"]
  assert there["label2id"] == {"好": 0, "坏": 1}
  assert there.get("problem_type") == (
      "multi_label_classification" if head else None)
  assert json.loads((tmp_path / "back" / "task.json").read_text(
      encoding="utf-8")) == task
  assert weights_of(tmp_path / "back", "model.ckpt") == (
      weights_of(tuned, "model.ckpt-3"))
  # Labels that are not the classifier's, there and back.
  (tuned / "task.json").write_text(json.dumps(dict(task, labels=["好"])))
  (tmp_path / "there" / "config.json").write_text(json.dumps(
      dict(there, id2label={"0": "好"})))
  for source, flag in ((tuned, "init_checkpoint"),
                       (tmp_path / "there", "pytorch_dir")):
    fail("has 1 labels, the classifier 2", "convert_to_pytorch.py",
         "--%s=%s" % (flag, source), "--output_dir=%s" % (tmp_path / "new"))


def test_bert_there_and_back(tmp_path):
  plain = tmp_path / "plain"
  plain.mkdir()
  write_checkpoint(plain, embedding_size=None, parameter_sharing="none")
  for source, flag, target in ((plain, "init_checkpoint", "there"),
                               (tmp_path / "there", "pytorch_dir", "back")):
    succeed("convert_to_pytorch.py", "--%s=%s" % (flag, source),
            "--output_dir=%s" % (tmp_path / target))
  assert weights_of(tmp_path / "back", "model.ckpt") == (
      weights_of(plain, "model.ckpt-3"))


def test_albert_zh_layout_says_what_it_becomes(tmp_path):
  shared = tmp_path / "shared"
  shared.mkdir()
  write_checkpoint(shared)
  _, log = succeed("convert_to_pytorch.py", "--init_checkpoint=%s" % shared,
                   "--output_dir=%s" % (tmp_path / "there"))
  assert "becomes a BERT" in log
  config = json.loads((tmp_path / "there" / "config.json").read_text())
  assert config["architectures"] == ["BertForPreTraining"]
  assert "embedding_size" not in config


def test_bad_input(google, converted, tmp_path):
  def fails(message, *args):
    fail(message, "convert_to_pytorch.py",
         "--output_dir=%s" % (tmp_path / "out"), *args)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob("*.tmp"))

  source = "--init_checkpoint=%s" % google
  fails("give one of --init_checkpoint and --pytorch_dir", source,
        "--pytorch_dir=%s" % converted)
  config = json.loads((google / "config.json").read_text())

  def changed(name, **changes):
    (tmp_path / name).write_text(json.dumps(dict(config, **changes)))
    return "--bert_config_file=%s" % (tmp_path / name)

  fails("ln_type preln cannot be converted: .*normalize after", source,
        changed("preln.json", ln_type="preln"))
  fails(r"has \[16, 32\] for .*, the model \[16, 30\]", source,
        changed("narrow.json", intermediate_size=30))
  fails("has nothing for bert/encoder/transformer/group_1", source,
        changed("groups.json", num_hidden_groups=2))
  fail("exists already", "convert_to_pytorch.py", source,
       "--output_dir=%s" % tmp_path)


def test_damaged_weights(converted, tmp_path):
  for name in ("config.json", "model.safetensors"):
    (tmp_path / name).write_bytes((converted / name).read_bytes()[:400])
  arguments = ["convert_to_pytorch.py", "--pytorch_dir=%s" % tmp_path,
               "--output_dir=%s" % (tmp_path / "out")]
  fail("config.json: not JSON", *arguments)
  (tmp_path / "config.json").write_bytes(
      (converted / "config.json").read_bytes())
  fail("model.safetensors cannot be read as weights", *arguments)
  assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("changes, message", [
    ({"model_type": "gpt2"}, "a model of the type gpt2: albert and bert can"),
    ({"layer_norm_eps": 1e-5}, "layer_norm_eps is 1e-05"),
    ({"intermediate_size": 30}, r"ffn.weight is \[32, 16\], where"),
    ({"num_hidden_groups": 2}, "lacks albert.encoder.albert_layer_groups.1")])
def test_bad_folder(changes, message, converted, tmp_path):
  for name in ("config.json", "model.safetensors"):
    (tmp_path / name).write_bytes((converted / name).read_bytes())
  config = json.loads((converted / "config.json").read_text())
  (tmp_path / "config.json").write_text(json.dumps(dict(config, **changes)))
  fail(message, "convert_to_pytorch.py", "--pytorch_dir=%s" % tmp_path,
       "--output_dir=%s" % (tmp_path / "out"))


def test_without_safetensors(google, monkeypatch, tmp_path):
  (tmp_path / "safetensors.py").write_text("raise ImportError")
  monkeypatch.setenv("PYTHONPATH", str(tmp_path))
  fail("safetensors is not installed: pip install -r requirements/pytorch",
       "convert_to_pytorch.py", "--init_checkpoint=%s" % google,
       "--output_dir=%s" % (tmp_path / "out"), python=sys.executable)
  assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def test_folder_without_weights(tmp_path):
  (tmp_path / "config.json").write_text("{}")
  fail("has neither model.safetensors nor pytorch_model.bin",
       "convert_to_pytorch.py", "--pytorch_dir=%s" % tmp_path,
       "--output_dir=%s" % (tmp_path / "out"))
