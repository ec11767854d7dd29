"""Engines: batches, which output is asked for; a small ONNX file."""

import types
from unittest import mock

import numpy as np
import pytest
from refusals import refused
from scripting import SIZES
from vocabularies import SPECIAL, small_tokenizer, write_vocab

from albert.model.config import AlbertConfig
from albert.model_folder import FolderSettings, ModelFolder
from albert.predict import engines
from albert.predict.similarity import BertSim


class Asked:
  """Stands for an engine of a model of three layers: says what is asked for."""

  def __init__(self, vector=None):
    self.folder = types.SimpleNamespace(
        vector=vector, config=types.SimpleNamespace(num_hidden_layers=3))

  def predictor(self, signature, output, **kwargs):
    assert signature == "sentence_vector"
    return output, kwargs


@pytest.mark.parametrize("vector, pooling, layer, output", [
    (None, None, None, "mean_3"), (None, "cls", 0, "cls_0"),
    (None, "mean", -2, "mean_2"), (None, "pooled", 1, "pooled"),
    (None, None, -4, "mean_0"), (("cls", 2), None, None, "cls_2"),
    (("cls", 2), "mean", None, "mean_2"), (("cls", 2), None, -1, "cls_3"),
    (("pooled", -1), None, None, "pooled")])
def test_which_vector(vector, pooling, layer, output):
  """What is given, else what the model was trained to give."""
  assert engines.sentence_vectors(Asked(vector), pooling, layer, x=1) == (
      output, {"x": 1})


def test_texts_are_predicted_in_their_order(tmp_path):
  call = mock.Mock(side_effect=lambda ids, *_: [ids[:, :2]])
  predictor = engines.TextPredictor(
      call, small_tokenizer(tmp_path, "甲乙"), 5, 2)
  found = predictor.predict([("甲乙甲乙", None), ("乙", None), ("甲", "乙乙"),
                             ("", None)])
  # [CLS] and the first token; of the second call, what is cut to 5.
  np.testing.assert_array_equal(found, [[2, 5], [2, 6], [2, 5], [2, 3]])
  assert found.dtype == np.float32
  calls = [inputs for inputs, _ in call.call_args_list]
  assert [[x.tolist() for x in inputs] for inputs in calls] == [
      [[[2, 3, 0], [2, 6, 3]], [[1, 1, 0], [1, 1, 1]], [[0] * 3] * 2],
      [[[2, 5, 6, 5, 3], [2, 5, 3, 6, 3]], [[1] * 5] * 2,
       [[0] * 5, [0, 0, 0, 1, 1]]]]
  assert {x.dtype for inputs in calls for x in inputs} == {np.dtype(np.int32)}
  assert predictor.predict([]).shape == (0,)


GRAPH = """<ir_version: 7, opset_import: ["": 13]>
encode (int32[B, S] input_ids, int32[B, S] input_mask, int32[B, S] segment_ids)
    => (float[B, S] vector) {
  ten = Constant <value = int32 {10}> ()
  tens = Mul (segment_ids, ten)
  sums = Add (input_ids, input_mask)
  all = Add (sums, tens)
  vector = Cast <to = 1> (all)
}"""


@pytest.fixture
def folder(tmp_path):
  """A folder whose signature `encode` gives ids + mask + 10 * segments."""
  pytest.importorskip("onnxruntime")
  parser = pytest.importorskip("onnx.parser")
  ModelFolder(AlbertConfig(**dict(SIZES, vocab_size=7)), write_vocab(
      tmp_path / "any.txt", SPECIAL + ["a", "b"]),
              max_seq_length=4).write(str(tmp_path))
  (tmp_path / "encode.onnx").write_bytes(
      parser.parse_model(GRAPH).SerializeToString())
  return tmp_path


def test_a_folder_of_onnx_files(folder):
  engine = engines.load("onnx", "file://%s" % folder)
  assert engine.tokenizer.tokenize("A b") == ["a", "b"]
  predictor = engine.predictor("encode", "vector", batch_size=2)
  # [CLS] is 2, [SEP] is 3, a is 5; each and its mask, in a batch or alone.
  for texts, found in (([("a b a", None)], [[3, 6, 7, 4]]), (
      [("a", "b"), ("b", None)], [[3, 6, 4, 4 + 10], [3, 7, 4, 0]])):
    np.testing.assert_array_equal(predictor.predict(texts), found)
  assert engine.predictor("encode", "vector", max_seq_length=3).predict(
      [("a b a", None)]).shape == (1, 3)
  np.testing.assert_array_equal(engine.constant("encode", "vector"), [[12, 12]])


def test_bad_input(folder):
  path, settings = str(folder), engines.EngineSettings
  engine = engines.load("onnx", path)
  (folder / "sentence_vector.onnx").write_bytes(b"damaged")
  for message, call, *args in (
      ("--vocab_file .*--engine=onnx", engines.load, "onnx", path,
       FolderSettings(vocab_file="v")),
      ("--do_lower_case .*--engine=onnx", engines.load, "onnx", path,
       FolderSettings(do_lower_case=True)),
      ("without --engine=onnx", engines.load, settings(provider="Other"), path),
      ("--provider=Other: .*CPUExecution", engines.load(
          settings("onnx", "Other"), path).predictor, "encode", "vector"),
      *(("--layer=%d: .* 0 to 3" % layer, engines.sentence_vectors, Asked(),
         None, layer) for layer in (4, -5)),
      *((path + " has no .*" + words, engine.predictor, signature, "logits")
        for words, signature in (
            ("masked-LM.*pretrained", "masked_lm"),
            ("run_classifier.py", "classify"), ("spans", "spans"))),
      (path + " has no output other", engine.predictor, "encode", "vector",
       "other"),
      (r"labels \(none\)", BertSim(engine).start_model),
      ("_vector.onnx cannot be read", engines.sentence_vectors, engine)):
    refused(message, call, *args)
  for name in ("task.json", "config.json"):
    (folder / name).unlink()
    refused("%s has no %s" % (folder, name), engines.load, "onnx", path)
