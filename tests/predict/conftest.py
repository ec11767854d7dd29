"""A small ONNX folder."""

import pytest
from scripting import SIZES
from vocabularies import SPECIAL, write_vocab

from albert.model.config import AlbertConfig
from albert.model_folder import ModelFolder

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
def onnx_folder(tmp_path):
  """A folder whose signature `encode` computes ids + mask + 10 * segments."""
  pytest.importorskip("onnxruntime")
  parser = pytest.importorskip("onnx.parser")
  ModelFolder(
    AlbertConfig(**dict(SIZES, vocab_size=7)),
    write_vocab(tmp_path / "any.txt", SPECIAL + ["a", "b"]),
    max_seq_length=4,
  ).write(str(tmp_path))
  (tmp_path / "encode.onnx").write_bytes(
    parser.parse_model(GRAPH).SerializeToString()
  )
  return tmp_path
