"""Detects external files in an ONNX model, without the package `onnx`.

A tensor may name a file with its values, which ONNX Runtime would read from any
path. Field numbers: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.
"""

from typing import Iterator, Tuple, Union

# Message -> number of a field -> message of that field. A tensor's fields 13,
# external_data, and 14, data_location, name a file.
_FIELDS = {
  "model": {7: "graph", 20: "training", 25: "function"},
  "training": {1: "graph", 2: "graph"},
  "graph": {1: "node", 5: "tensor", 15: "sparse"},
  "function": {7: "node", 11: "attribute"},
  "node": {5: "attribute"},
  "attribute": {
    5: "tensor",
    6: "graph",
    10: "tensor",
    11: "graph",
    22: "sparse",
    23: "sparse",
  },
  "sparse": {1: "tensor", 2: "tensor"},
  "tensor": {},
}


def names_files(content: bytes) -> bool:
  """Returns whether a tensor of an ONNX model is in an external file.

  Args:
    content: a serialized ModelProto.

  Raises:
    ValueError: not a protobuf message.
  """
  waiting = [("model", memoryview(content))]
  while waiting:
    message, data = waiting.pop()
    for number, value in _fields(data):
      if message == "tensor" and number in (13, 14) and value != 0:
        return True
      kind = _FIELDS[message].get(number)
      if kind and isinstance(value, memoryview):
        waiting.append((kind, value))
  return False


def _fields(data: memoryview) -> Iterator[Tuple[int, Union[int, memoryview]]]:
  """Yields (number, value) of the fields of a message."""
  at = 0
  while at < len(data):
    tag, at = _varint(data, at)
    kind = tag & 7
    value: Union[int, memoryview] = 0
    if kind == 0:
      value, at = _varint(data, at)
    elif kind in (1, 5):
      at += 8 if kind == 1 else 4
    elif kind == 2:
      size, at = _varint(data, at)
      value, at = data[at : at + size], at + size
    else:
      raise ValueError("field %d has the wire type %d" % (tag >> 3, kind))
    if at > len(data):
      raise ValueError("cut off")
    yield tag >> 3, value


def _varint(data, at):
  """Returns the number that starts at a byte, and where it ends."""
  value = 0
  for i in range(10):
    if at + i >= len(data):
      raise ValueError("cut off")
    value |= (data[at + i] & 127) << 7 * i
    if data[at + i] < 128:
      return value, at + i + 1
  raise ValueError("a number is too long")
