"""Folders of ONNX files as an engine: what they know, and how they refuse."""

import json

import pytest
import scripting
from onnx_folders import MODELS, VOCAB, export_one, weights_of, write_model
from scripting import fail, succeed

from albert.errors import InputError
from albert.files import checkpoints
from albert.predict import engines
from similarity import BertSim

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow


def test_how_text_is_read_is_in_what_is_written(tmp_path):
  """Even if the model's own folder does not say it."""
  source, target = tmp_path / "source", tmp_path / "exported"
  source.mkdir()
  write_model(source, MODELS["google postln"])
  for name in ("task.json", "vocab.txt"):
    (source / name).unlink()
  succeed("export_model.py", "--onnx", "--init_checkpoint=%s" % source,
          "--signature=sentence_order", "--output_dir=%s" % target,
          scripting.VOCAB, "--nodo_lower_case")
  assert json.loads((target / "task.json").read_text()) == {
      "do_lower_case": False}
  assert (target / "vocab.txt").read_bytes() == VOCAB.read_bytes()
  assert not engines.load("onnx", str(target)).tokenizer.do_lower_case


def test_bad_input(tmp_path):
  folder, exported = tmp_path / "model", tmp_path / "exported"
  folder.mkdir()
  write_model(folder, MODELS["google postln"])
  checkpoints.write_checkpoint(
      str(folder), "model.ckpt-7",
      {name: value for name, value in weights_of(
          MODELS["google postln"], 2).items() if name.startswith("bert/")})
  (folder / "task.json").unlink()
  export_one(folder, exported, "encode")
  with pytest.raises(InputError, match="nowhere has no config.json: give a "
                     "folder that export_model.py --onnx made"):
    engines.load("onnx", str(tmp_path / "nowhere"))
  engine = engines.load("onnx", "file://%s" % exported)
  assert engine.tokenizer.do_lower_case
  with pytest.raises(InputError, match="--layer=3: the model has layers 0 to"):
    engines.sentence_vectors(engine, "mean", 3)
  with pytest.raises(InputError, match="exported has no masked-LM weights, .* "
                     "give a pretrained model"):
    engine.predictor("masked_lm", "logits")
  with pytest.raises(InputError, match="exported has no output vector"):
    engine.predictor("encode", "vector")
  (exported / "sentence_vector.onnx").write_bytes(b"damaged")
  with pytest.raises(InputError, match="sentence_vector.onnx cannot be read"):
    engines.sentence_vectors(engine, "cls", -1)
  with pytest.raises(InputError, match=r"the labels \(none\) are not those of"):
    BertSim(str(exported), engine="onnx").start_model()
  with pytest.raises(InputError, match="--provider=Other: this onnxruntime has "
                     "only .*CPUExecutionProvider"):
    engines.load(engines.EngineSettings("onnx", "Other"),
                 str(exported)).predictor("encode", "pooled_output")
  with pytest.raises(InputError, match="without --engine=onnx"):
    engines.load(engines.EngineSettings(provider="Other"), str(folder))
  fail("with --engine=onnx, there is no effect of --vocab_file",
       "similarity.py", "--engine=onnx", "--model_dir=%s" % exported, "a", "b",
       scripting.VOCAB)
  (folder / "other.json").write_text(json.dumps(
      dict(MODELS["google postln"], intermediate_size=65)))
  fail(r"has \[32, 64\] for .*, the model \[32, 65\]", "export_model.py",
       "--onnx", "--init_checkpoint=%s" % folder, "--bert_config_file=%s" % (
           folder / "other.json"), "--output_dir=%s" % (tmp_path / "out"))
  assert not (tmp_path / "out").exists()
