"""OpenVINO against ONNX Runtime."""

import numpy as np
import pytest
from refusals import refused
from scripting import ROOT, succeed

from albert.predict import engines

pytestmark = pytest.mark.full
TEXTS = [("中国的首都是北京", None), ("海", None), ("今天天气很好", "好")]


def test_a_small_folder(onnx_folder):
  engine = engines.load("openvino", str(onnx_folder))
  np.testing.assert_array_equal(
    engine.predictor("encode", "vector").predict(
      [("a b a", None), ("b", None)]
    ),
    [[3, 6, 7, 4], [3, 7, 4, 0]],
  )
  np.testing.assert_array_equal(engine.constant("encode", "vector"), [[12, 12]])
  refused("has no output other", engine.predictor, "encode", "other")
  (onnx_folder / "encode.onnx").write_bytes(b"damaged")
  refused("encode.onnx cannot be read", engine.predictor, "encode", "vector")


def test_an_exported_model(tmp_path):
  folder = str(tmp_path / "onnx")
  succeed(
    "export_model.py",
    "--onnx",
    "--output_dir=" + folder,
    "--init_checkpoint=%s" % (ROOT / "albert_tiny_starter"),
  )
  settings = engines.EngineSettings
  onnx, openvino, bf16 = [
    engines.load(engine, folder)
    for engine in ("onnx", "openvino", settings("auto", "bf16"))
  ]
  assert openvino.digest() != bf16.digest()
  wanted, exact, rough = [
    engines.sentence_vectors(engine).predict(TEXTS)
    for engine in (onnx, openvino, bf16)
  ]
  np.testing.assert_allclose(exact, wanted, atol=1e-4)
  error = np.linalg.norm(rough - wanted) / np.linalg.norm(wanted)
  assert 1e-4 < error < 0.02
  command = [
    "predict.py",
    "--model_dir=" + folder,
    "--top_k=3",
    "中国的首[MASK]是北京",
  ]
  assert succeed(*command)[0] == succeed(*command, "--engine=openvino")[0]
