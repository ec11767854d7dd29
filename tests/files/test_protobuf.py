"""Detecting external data anywhere in an ONNX model."""

import pytest

from albert.files import protobuf

onnx = pytest.importorskip("onnx")


def graph_of(**attribute):
  return onnx.GraphProto(
    node=[
      onnx.NodeProto(attribute=[onnx.AttributeProto(name="a", **attribute)])
    ]
  )


def model(place, **fields):
  """A model with a tensor of these fields, nested by `place`."""
  graph = place(onnx.TensorProto(name="x", dims=[1], data_type=1, **fields))
  for _ in range(3):  # nested branches
    graph = graph_of(g=graph)
  result = onnx.ModelProto(graph=graph)
  result.graph.initializer.add(raw_data=b"\x0a" * 50)
  return result


@pytest.mark.parametrize(
  "place",
  [
    lambda x: onnx.GraphProto(initializer=[x]),
    lambda x: onnx.GraphProto(
      sparse_initializer=[onnx.SparseTensorProto(values=x)]
    ),
    lambda x: graph_of(t=x),
    lambda x: graph_of(tensors=[x]),
    lambda x: graph_of(sparse_tensor=onnx.SparseTensorProto(indices=x)),
  ],
)
def test_tensors_in_other_files(place):
  there = {"data_location": onnx.TensorProto.EXTERNAL}
  named = {
    "external_data": [
      onnx.StringStringEntryProto(key="location", value="/etc/passwd")
    ]
  }
  for fields in (there, named):
    made = model(place, **fields)
    for message in (
      made,
      onnx.ModelProto(functions=[onnx.FunctionProto(node=made.graph.node)]),
      onnx.ModelProto(
        training_info=[onnx.TrainingInfoProto(algorithm=made.graph)]
      ),
    ):
      assert protobuf.names_files(message.SerializeToString())
  for fields in (
    {},
    {"data_location": onnx.TensorProto.DEFAULT},
    {"raw_data": b"\x70\x01" * 99},
  ):
    assert not protobuf.names_files(model(place, **fields).SerializeToString())


@pytest.mark.parametrize(
  "content", [b"\x3a\x05a", b"\x3a", b"\xff" * 12, b"\x07", b"\x09123"]
)
def test_what_is_no_message(content):
  with pytest.raises(ValueError):
    protobuf.names_files(content)
