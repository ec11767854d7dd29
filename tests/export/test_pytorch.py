"""convert_to_pytorch.py: there, back, and what it refuses; without PyTorch."""

import pathlib
import re
import sys

import numpy as np
import pytest
import reference_albert as reference
import small_models
import tensorflow.compat.v1 as tf
from reading import read_json as read
from refusals import refused
from scripting import fail, succeed
from small_models import CONFIGS, TOKENS
from small_steps import full
from writing import write

import tokenization
from albert.export import pytorch, transformers_tokenizer
from albert.files import checkpoints
from albert.model.config import AlbertConfig
from albert.predict import load
from albert.predict.results import to_json

CONFIG = CONFIGS["google_relu"]
TASK = {"labels": ["好", "坏"], "max_seq_length": 9, "do_lower_case": False}
TOP = {"output_weights": np.ones([2, 24]), "output_bias": np.zeros([2])}


def convert(source, flag, target):
  return succeed(
    "convert_to_pytorch.py",
    "--%s=file://%s" % (flag, source),
    "--output_dir=file://%s" % target,
  )[1]


def there_and_back(folder, config, top=None, task=None, vocabulary=TOKENS):
  """Returns the folders of a model, of its conversion and of what came back."""
  ours, theirs, back = [folder / name for name in ("ours", "theirs", "back")]
  small_models.write_folder(ours, config, vocabulary, top, task)
  convert(ours, "init_checkpoint", theirs)
  convert(theirs, "pytorch_dir", back)
  return ours, theirs, back


def weights_of(folder):
  return {
    key: value.tobytes()
    for key, value in checkpoints.read_weights(
      checkpoints.find_checkpoint(str(folder))
    ).items()
  }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["google_groups", full("bert")])
def test_there_and_back(name, tmp_path):
  ours, theirs, back = there_and_back(tmp_path, CONFIGS[name])
  assert {path.name for path in theirs.iterdir()} == {
    "albert_task.json",
    "config.json",
    "model.safetensors",
    "tokenizer_config.json",
    "vocab.txt",
  }
  assert weights_of(back) == weights_of(ours)
  assert (back / "vocab.txt").read_text().split() == TOKENS
  ours, back = [
    AlbertConfig.from_json_file(str(path / "config.json"))
    for path in (ours, back)
  ]
  assert dict(ours.to_dict(), hidden_act="gelu_new") == back.to_dict()


@pytest.mark.slow
def test_sentencepiece(spm_file, tmp_path):
  size = tokenization.SentencePieceTokenizer(spm_file).vocab_size
  ours, theirs, back = there_and_back(
    tmp_path,
    dict(CONFIGS["google_unfactorized"], vocab_size=size),
    vocabulary=pathlib.Path(spm_file),
  )
  assert weights_of(back) == weights_of(ours)
  assert (
    (back / "spm.model").read_bytes()
    == (theirs / ("spiece.model")).read_bytes()
    == pathlib.Path(spm_file).read_bytes()
  )
  scores = dict(read(theirs / "tokenizer.json")["model"]["vocab"])
  assert len(scores) == size
  # ALBERT separates a number from the comma after it.
  assert scores["99,"] == -1e6 and scores["[CLS]"] == 0
  assert read(theirs / "tokenizer_config.json")["tokenizer_class"] == (
    "PreTrainedTokenizerFast"
  )


@pytest.mark.slow
@pytest.mark.parametrize(
  "head, kind, problem",
  [
    ({}, "Sequence", None),
    (
      {"head": "multi_label", "thresholds": {"好": 0.3, "坏": 0.5}},
      "Sequence",
      "multi_label_classification",
    ),
    (
      {"head": "token_labels", "crf": False, "by_character": True},
      "Token",
      None,
    ),
    ({"head": "regression", "labels": []}, "Sequence", "regression"),
  ],
)
def test_what_a_model_was_trained_for_comes_back(head, kind, problem, tmp_path):
  task = dict(TASK, **head)
  ours, theirs, back = there_and_back(
    tmp_path,
    CONFIG,
    {name: x[: len(task["labels"]) or 1] for name, x in TOP.items()},
    task,
  )
  config = read(theirs / "config.json")
  assert config["architectures"] == ["AlbertFor%sClassification" % kind]
  assert config.get("problem_type") == problem
  assert config.get("label2id", {}) == {
    label: i for i, label in enumerate(task["labels"])
  }
  assert read(back / "task.json") == task
  # A description of different weights counts for nothing.
  write(
    theirs,
    "albert_task.json",
    dict(read(theirs / "albert_task.json"), weights_sha256="other"),
  )
  assert "different weights" in convert(
    theirs, "pytorch_dir", tmp_path / "guessed"
  )
  assert {
    name: x
    for name, x in weights_of(ours).items()
    if not (kind == "Token" and "pooler" in name)
  }.items() <= weights_of(back).items()


@pytest.mark.full
@pytest.mark.parametrize(
  "name",
  [
    "several",
    "windows",
    "cosines",
    "numbers",
    "entities",
    "crf",
    "spans",
    "idioms",
  ],
)
def test_a_model_of_each_kind_comes_back(name, trained, tmp_path):
  model, theirs = trained(name), tmp_path / "theirs"
  convert(model.best, "init_checkpoint", theirs)
  convert(theirs, "pytorch_dir", tmp_path / "back")
  before, after = [
    list(map(to_json, load(str(folder)).predict(model.inputs)))
    for folder in (model.best, tmp_path / "back")
  ]
  tf.nest.assert_same_structure(before, after)
  for one, other in zip(*map(tf.nest.flatten, (before, after))):
    assert one == (
      pytest.approx(other, rel=1e-6, abs=1e-5)
      if isinstance(one, float)
      else other
    )


@pytest.mark.slow
def test_albert_zh_becomes_a_bert(tmp_path):
  config, theirs = CONFIGS["albert_zh"], tmp_path / "theirs"
  weights = small_models.write_folder(tmp_path / "ours", config, TOKENS)
  assert "BERT" in convert(tmp_path / "ours", "init_checkpoint", theirs)
  theirs, state = pytorch.read_pytorch_folder(str(theirs))
  assert theirs["architectures"] == ["BertForPreTraining"]
  plain, found = pytorch.from_pytorch(theirs, state)
  small_models.assert_same_outputs(
    small_models.run_model(plain.to_dict(), found),
    small_models.run_reference(config, weights),
    atol=1e-5,
  )


WEIGHTS = {
  name: x.astype(np.float32)
  for name, x in reference.random_weights(CONFIG).items()
}


def converted(**changes):
  """Returns what transformers have of a model: configuration, parameters."""
  return pytorch.to_pytorch(
    AlbertConfig.from_dict(dict(CONFIG, **changes)), WEIGHTS
  )


def test_names_of_the_first_berts_and_no_pooler():
  theirs, state = converted()
  _, found = pytorch.from_pytorch(
    theirs,
    {
      re.sub(
        "LayerNorm.(weight|bias)",
        lambda x: "LayerNorm." + {"weight": "gamma", "bias": "beta"}[x[1]],
        name,
      ): x
      for name, x in state.items()
      if not re.search("pooler|sop", name)
    },
  )
  for name, x in WEIGHTS.items():
    if "seq_relationship" not in name:
      np.testing.assert_array_equal(found[name], x * ("pooler" not in name))


def test_what_cannot_be_converted():
  theirs, state = converted()
  for changes, message in (
    ({"model_type": "gpt2"}, "gpt2"),
    ({"layer_norm_eps": 1e-5}, "1e-05"),
    ({"intermediate_size": 30}, r"ffn.weight is \[40, 24\]"),
    (
      {"num_hidden_groups": 2, "num_hidden_layers": 2},
      "albert.encoder.albert_layer_groups.1",
    ),
    ({"embedding_size": 24}, "wide"),
  ):
    refused(message, pytorch.from_pytorch, dict(theirs, **changes), state)
  refused("preln", converted, ln_type="preln")
  refused(
    "CRF",
    pytorch.to_pytorch,
    AlbertConfig.from_dict(CONFIG),
    {"crf/transitions": 0},
  )


@pytest.mark.slow
def test_bad_input(tmp_path, monkeypatch):
  ours, theirs, _ = there_and_back(tmp_path, CONFIG, TOP, TASK)
  to, fro = "--init_checkpoint=%s" % ours, "--pytorch_dir=%s" % theirs

  def fails(message, *args, out="out"):
    fail(
      message,
      "convert_to_pytorch.py",
      "--output_dir=%s" % (tmp_path / out),
      *args,
    )
    assert {path.name for path in tmp_path.iterdir()} == {
      "ours",
      "theirs",
      "back",
    }

  fails("--init_checkpoint and --pytorch_dir", to, fro)
  fails(str(tmp_path / "back"), to, out="back")
  config, weights = theirs / "config.json", theirs / "model.safetensors"
  for flag, path, content, message in (
    (to, ours / "task.json", dict(TASK, labels=["好"]), "1 .* 2"),
    (
      to,
      ours / "config.json",
      dict(CONFIG, intermediate_size=30),
      r"\[24, 40\] for .* \[24, 30\]",
    ),
    (fro, config, dict(read(config), id2label={"0": "好"}), "1 .* 2"),
    (
      fro,
      theirs / "albert_task.json",
      {"task": {"path": "/"}},
      "albert_task.json",
    ),
    (fro, config, [], "config.json"),
    (fro, weights, {}, "safetensors"),
  ):
    before = path.read_bytes()
    write(path.parent, path.name, content)
    fails(message, flag)
    path.write_bytes(before)
  weights.unlink()
  fails("pytorch_model.bin", fro)
  with monkeypatch.context() as patch:
    for name in ("safetensors", "safetensors.numpy"):
      patch.setitem(sys.modules, name, None)
    fails("pytorch]", to)


def test_vocabulary_of_a_tokenizer(tmp_path):
  def found(**files):
    for name, content in files.items():
      write(tmp_path, name + ".json", content)
    return transformers_tokenizer.read_vocabulary(str(tmp_path))

  assert found() is None
  assert found(
    tokenizer={
      "model": {"type": "WordPiece", "vocab": {"b": 1, "a": 0}},
      "added_tokens": [{"content": "c", "id": 2}],
    }
  ) == ["a", "b", "c"]
  (tmp_path / "vocab.txt").write_text("a\nx\n")
  assert found(
    tokenizer_config={"added_tokens_decoder": {"3": {"content": "d"}}}
  ) == ["a", "x", "c", "d"]
  refused("5 tokens", found, added_tokens={"e": 5})
