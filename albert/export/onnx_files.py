"""Converts models to ONNX files with tf2onnx.

By default, GELU and LayerNorm, a dozen TensorFlow operations each, become
single operations of ONNX Runtime.
"""

import contextlib
import logging as standard_logging
import pathlib
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

from albert.errors import InputError
from albert.export import frozen
from albert.heads.base import Head
from albert.model.config import AlbertConfig

# Supported by ONNX Runtime 1.10, the last one for the NumPy of TF 1.15.
_OPSET, _IR_VERSION = 15, 8
_MICROSOFT = "com.microsoft"


def convert(
  config: AlbertConfig,
  head: Head,
  checkpoint: str,
  int8: bool = False,
  standard_ops: bool = False,
) -> bytes:
  """Returns the content of the ONNX file of a signature.

  Args:
    config: configuration of the model.
    head: the head to export.
    checkpoint: path of the checkpoint.
    int8: whether to quantize; see `quantize`.
    standard_ops: use only operations of the ONNX standard, for any runtime.

  Raises:
    InputError: tf2onnx or onnxruntime is not installed, or both options are
      set.
  """
  if int8 and standard_ops:  # `quantize` looks for the operation FastGelu
    raise InputError("--standard_ops cannot be combined with --int8")
  try:
    import onnx
    import tf2onnx  # noqa: F401
    from onnxruntime.transformers.fusion_fastgelu import FusionFastGelu
    from onnxruntime.transformers.fusion_layernorm import (
      FusionLayerNormalizationTF,
    )
    from onnxruntime.transformers.onnx_model import OnnxModel
  except ImportError as error:
    raise InputError(
      "ONNX files need more packages (%s): pip install '.[onnx]'" % error
    ) from error
  graph, signature = frozen.freeze(config, head, checkpoint)
  outputs = {
    name: tensor
    for name, tensor in signature.outputs.items()
    if name in (head.onnx_outputs or signature.outputs)
  }
  with _quiet():
    model = OnnxModel(_convert_graph(graph, signature.inputs, outputs, int8))
    if not standard_ops:
      for fusion in (FusionFastGelu, FusionLayerNormalizationTF):
        fusion(model).apply()
    model.prune_graph()
    model.topological_sort()
  proto = model.model
  proto.ir_version = _IR_VERSION
  for value in proto.graph.input:
    is_extra = value.name in head.extra_inputs
    _name_dimensions(value, "batch", "predictions" if is_extra else "length")
  for value in proto.graph.output:
    _name_dimensions(value, "batch", "length")
  if standard_ops:
    del proto.opset_import[1:]
  else:
    proto.opset_import.append(onnx.helper.make_opsetid(_MICROSOFT, 1))
  content = proto.SerializeToString()
  return quantize(content) if int8 else content


def _convert_graph(graph, inputs, outputs, fold_constants):
  """Returns the onnx.ModelProto of a GraphDef.

  Args:
    graph: tf.GraphDef.
    inputs, outputs: dict, name in the file -> tensor.
    fold_constants: whether to compute constant expressions. The masked-LM head
      then has a transposed copy of the embedding table, which `quantize` needs,
      but which would add 11 MB of floats.
  """
  from tf2onnx import optimizer, tfonnx

  tensors = {x.name: name for name, x in {**inputs, **outputs}.items()}
  with tf.Graph().as_default() as imported:
    tf.import_graph_def(
      tf.graph_util.extract_sub_graph(
        graph, [x.op.name for x in {**inputs, **outputs}.values()]
      ),
      name="",
    )
    converted = tfonnx.process_tf_graph(
      imported,
      opset=_OPSET,
      tensors_to_rename=tensors,
      input_names=[x.name for x in inputs.values()],
      output_names=[x.name for x in outputs.values()],
    )
    optimizers = {
      name: value
      for name, value in optimizer._optimizers.items()
      if fold_constants or name != "fold_constants"
    }
    return optimizer.optimize_graph(
      converted, catch_errors=False, optimizers=optimizers
    ).make_model("albert")


def _name_dimensions(value, *names):
  """Names the dynamic ones among the first dimensions of an input or output."""
  for dimension, name in zip(value.type.tensor_type.shape.dim, names):
    if not dimension.dim_value:
      dimension.dim_param = name


@contextlib.contextmanager
def _quiet():
  """Silences both libraries, which log one line per supported operation."""
  before = standard_logging.root.manager.disable
  standard_logging.disable(standard_logging.WARNING)
  try:
    yield
  finally:
    standard_logging.disable(before)


def quantize(content: bytes) -> bytes:
  """Quantizes an ONNX file to 8-bit weights, 7 bits of which are used.

  Activations are quantized with the range of each batch. The range of
  activation functions' outputs is too wide for that, and would cause more than
  half of the quantization error. So these stay in floating point, and the
  kernels they are multiplied by, like position and segment embeddings, have 16
  bits.
  """
  import onnx
  from onnxruntime import quantization

  graph = onnx.load_from_string(content).graph
  activated = {
    node.output[0]
    for node in graph.node
    if node.op_type in ("FastGelu", "Relu")
  }
  excluded = [
    node.name
    for node in graph.node
    if node.op_type == "MatMul" and node.input[0] in activated
  ]
  with tempfile.TemporaryDirectory() as folder, _quiet():
    source, target = [pathlib.Path(folder, name) for name in ("in", "out")]
    source.write_bytes(content)
    quantization.quantize_dynamic(
      source,
      target,
      per_channel=True,
      # Without VNNI, sums of products of full 8-bit values saturate.
      reduce_range=True,
      nodes_to_exclude=excluded,
      extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
    )
    model = onnx.load(str(target))
  for tensor in model.graph.initializer:
    if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) == 2:
      half = onnx.numpy_helper.to_array(tensor).astype(np.float16)
      model.graph.node.insert(
        0,
        onnx.helper.make_node(
          "Cast",
          [tensor.name + "_16"],
          [tensor.name],
          to=onnx.TensorProto.FLOAT,
        ),
      )
      tensor.CopyFrom(onnx.numpy_helper.from_array(half, tensor.name + "_16"))
  return model.SerializeToString()
