"""Engines: batching, choice of outputs, missing files."""

import types
from unittest import mock

import numpy as np
import pytest
from refusals import refused
from vocabularies import small_tokenizer

from albert.model_folder import FolderSettings
from albert.predict import engine as engine_lib
from albert.predict import engines
from albert.predict.similarity import BertSim


class Asked:
  """A fake engine of a three-layer model that returns the requested output."""

  def __init__(self, vector=None):
    self.folder = types.SimpleNamespace(
      vector=vector, config=types.SimpleNamespace(num_hidden_layers=3)
    )

  def predictor(self, signature, output, **kwargs):
    assert signature == "sentence_vector"
    return output, kwargs


@pytest.mark.parametrize(
  "vector, pooling, layer, output",
  [
    (None, None, None, "mean_3"),
    (None, "cls", 0, "cls_0"),
    (None, "mean", -2, "mean_2"),
    (None, "pooled", 1, "pooled"),
    (None, None, -4, "mean_0"),
    (("cls", 2), None, None, "cls_2"),
    (("cls", 2), "mean", None, "mean_2"),
    (("cls", 2), None, -1, "cls_3"),
    (("pooled", -1), None, None, "pooled"),
  ],
)
def test_which_vector(vector, pooling, layer, output):
  assert engines.sentence_vectors(Asked(vector), pooling, layer, x=1) == (
    output,
    {"x": 1},
  )


def test_texts_are_predicted_in_their_order(tmp_path):
  call = mock.Mock(side_effect=lambda ids, *_: [ids[:, :2]])
  predictor = engine_lib.TextPredictor(
    call, small_tokenizer(tmp_path, "甲乙"), 5, 2
  )
  found = predictor.predict(
    [("甲乙甲乙", None), ("乙", None), ("甲", "乙乙"), ("", None)]
  )
  # [CLS] and the first token; the second batch is truncated to 5.
  np.testing.assert_array_equal(found, [[2, 5], [2, 6], [2, 5], [2, 3]])
  assert found.dtype == np.float32
  calls = [inputs for inputs, _ in call.call_args_list]
  assert [[x.tolist() for x in inputs] for inputs in calls] == [
    [[[2, 3, 0], [2, 6, 3]], [[1, 1, 0], [1, 1, 1]], [[0] * 3] * 2],
    [
      [[2, 5, 6, 5, 3], [2, 5, 3, 6, 3]],
      [[1] * 5] * 2,
      [[0] * 5, [0, 0, 0, 1, 1]],
    ],
  ]
  assert {x.dtype for inputs in calls for x in inputs} == {np.dtype(np.int32)}
  assert predictor.predict([]).shape == (0,)


def test_a_folder_of_onnx_files_and_bad_input(onnx_folder):
  (onnx_folder / "sentence_vector.onnx").write_bytes(b"damaged")
  path, settings = str(onnx_folder), engines.EngineSettings
  engine = engines.load("onnx", "file://" + path)
  assert engine.predictor("encode", "vector", max_seq_length=3).predict(
    [("a b", None)]
  ).tolist() == [[3, 6, 4]]
  assert engine.constant("encode", "vector").tolist() == [[12, 12]]
  for message, backend, *given in (
    ("--vocab_file .*--engine=onnx", "onnx", FolderSettings(vocab_file="v")),
    (
      "--do_lower_case .*--engine=onnx",
      "onnx",
      FolderSettings(do_lower_case=True),
    ),
    ("without --engine=onnx", settings("openvino", provider="Other")),
    ("--precision=bf16 needs --engine=openvino", settings("onnx", "bf16")),
  ):
    refused(message, engines.load, backend, path, *given)
  other = engines.load(settings("onnx", provider="Other"), path)
  refused("--provider=Other: .*CPUExecution", other.predictor, "encode", "x")
  for layer in (4, -5):
    refused(
      "--layer=%d: .* 0 to 3" % layer,
      engines.sentence_vectors,
      Asked(),
      None,
      layer,
    )
  for what, *asked in (
    ("masked-LM.*pretrained", "masked_lm"),
    (".*run_classifier", "classify"),
    ("weights for sentence_order", "sentence_order"),
    ("output other", "encode", "vector", "other"),
  ):
    refused("%s has no %s" % (path, what), engine.predictor, *asked)
  refused(r"labels \(none\)", BertSim(engine).start_model)
  refused("_vector.onnx cannot be read", engines.sentence_vectors, engine)
  for name in ("task.json", "config.json"):
    (onnx_folder / name).unlink()
    refused("%s has no %s" % (path, name), engines.load, "onnx", path)


@pytest.mark.parametrize(
  "names, given, installed, engine",
  [
    (["model.ckpt-1.index"], {}, "onnxruntime", "tensorflow"),
    (["model.ckpt-1.index", "classify.onnx"], {}, "openvino", "tensorflow"),
    (["classify.onnx"], {}, "onnxruntime openvino", "onnx"),
    (["classify.onnx"], {}, "openvino", "openvino"),
    (["classify.onnx"], {}, "", "onnx"),
    (["classify.onnx"], {"provider": "Any"}, "openvino", "onnx"),
    (["classify.onnx"], {"precision": "bf16"}, "onnxruntime", "openvino"),
  ],
)
def test_which_backend(tmp_path, names, given, installed, engine):
  for name in names:
    (tmp_path / name).write_text("")
  with mock.patch(
    "importlib.util.find_spec",
    lambda name: name if name in installed.split() else None,
  ):
    assert engines.choose(str(tmp_path), engines.EngineSettings(**given)) == (
      engine
    )
