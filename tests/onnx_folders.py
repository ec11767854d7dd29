"""Small fine-tuned models of all layouts, and their ONNX files."""

import os

import numpy as np
import reference_albert as reference
import scripting
import small_models
from scripting import ROOT, call_main

import export_model
from albert.model.config import AlbertConfig

SIGNATURES = ["classify", "encode", "masked_lm", "sentence_order",
              "sentence_vector"]
VOCAB = ROOT / "albert_config" / "vocab.txt"
SIZES = dict(scripting.SIZES, hidden_size=32, embedding_size=24,
             intermediate_size=64)
MODELS = {"%s %s" % (name, ln_type): dict(AlbertConfig(
    ln_type=ln_type, **SIZES, **more).to_dict())
          for name, more in (("google", {"num_hidden_groups": 1}),
                             ("albert_zh", {}))
          for ln_type in ("postln", "preln")}
LENGTH = 48


def weights_of(config, num_labels):
  weights = {name: value.astype(np.float32) for name, value in
             reference.random_weights(config, seed=1).items()}
  hidden = config["hidden_size"]
  rng = np.random.RandomState(2)
  for name, shape in (("output_weights", [num_labels, hidden]),
                      ("output_bias", [num_labels])):
    weights[name] = rng.normal(scale=1.5 / np.sqrt(hidden), size=shape).astype(
        np.float32)
  return weights


def write_model(folder, config):
  small_models.write_folder(folder, config, VOCAB, weights_of(config, 2), {
      "labels": ["0", "1"], "max_seq_length": LENGTH})


def export(source, target, *args, signatures=SIGNATURES):
  # In this process, which has imported what takes seconds to import.
  call_main(export_model, "--onnx", "--init_checkpoint=file://%s" % source,
            "--output_dir=file://%s" % target, *args)
  assert sorted(os.listdir(str(target))) == sorted(
      [name + ".onnx" for name in signatures] +
      ["config.json", "task.json", "vocab.txt"])
  return target


def export_one(source, target, signature, *args):
  export(source, target, "--signature=" + signature, *args,
         signatures=[signature])
  return str(target / (signature + ".onnx"))
