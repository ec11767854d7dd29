"""The model as ONNX files, written from the weights of a checkpoint.

The operations of the domain com.microsoft are ONNX Runtime's own: what its
optimizer makes of a BERT where it recognizes the parts. Written here as such,
they do not depend on that. Other runtimes do not have them.
"""

import collections

import numpy as np
import onnx

from modeling import AlbertModel
from modeling_google import GoogleAlbertModel

# ONNX Runtime 1.10, the last one for the NumPy of TF 1.15, reads these.
_OPSET, _IR_VERSION = 15, 8
_MICROSOFT = ("Attention", "FastGelu", "SkipLayerNormalization")
_ACTIVATIONS = {"gelu": "FastGelu", "gelu_new": "FastGelu", "relu": "Relu",
                "tanh": "Tanh", "linear": "Identity"}
MASKED_LM = "cls/predictions/"


# What a file returns.
#   tensor: str.
#   shape: list of dimensions, int or str for any.
#   is_int: bool, int32 instead of float32.
Output = collections.namedtuple("Output", ["tensor", "shape", "is_int"])
Output.__new__.__defaults__ = (False,)


class OnnxModel:
  """An encoder of the inputs input_ids, input_mask, segment_ids.

  Tensors are known by their names, str.

  Args:
    config: AlbertConfig.
    weights: dict, variable name -> float32 array.
    task: dict of task.json.
    select: function of the model and of a float [B, S, H] that returns
      [B, K, H], those tokens that are needed of the last layer; None for all.

  Attributes:
    config, weights, task: as given.
    layers: list of float [B, S, H], the embeddings and the output of each
      layer; [B, K, H] of the last one.
  """

  def __init__(self, config, weights, task, select=None):
    self.config = config
    self.weights = weights
    self.task = task
    self._google = config.layout == "google"
    self._nodes = []
    self._num_nodes = 0
    self._constants = {}
    self.layers = [self._embed()]
    layout = GoogleAlbertModel if self._google else AlbertModel
    for layer in range(config.num_hidden_layers):
      x = self.layers[-1]
      blocks = layout.layer_scopes(config, layer)
      for scopes in blocks:
        is_last = (layer == config.num_hidden_layers - 1 and
                   scopes is blocks[-1])
        x = self._block(x, scopes, select if is_last else None)
      self.layers.append(x)

  def op(self, kind, *inputs, **attributes):
    """Adds an operation; returns its output."""
    return self.ops(1, kind, *inputs, **attributes)[0]

  def ops(self, num_outputs, kind, *inputs, **attributes):
    """Adds an operation; returns its outputs."""
    self._num_nodes += 1
    outputs = ["%s_%d_%d" % (kind, self._num_nodes, number)
               for number in range(num_outputs)]
    self._nodes.append(onnx.helper.make_node(
        kind, inputs, outputs, name=outputs[0], **attributes,
        domain="com.microsoft" if kind in _MICROSOFT else ""))
    return outputs

  def scan(self, step, state, elements, kind, backwards=False):
    """Runs a step for each position, one after the other.

    Args:
      step: function of the state and of the elements of a position that returns
        the next state and an output, int64 [B, L].
      state: [B, L], the first state.
      elements: list of [B, S, ...].
      kind: of onnx.TensorProto, data type of the state and of the elements.
      backwards: bool, whether the last position comes first.

    Returns:
      (the last state; the outputs, int64 [B, S, L])
    """
    def info(name, kind, shape=None):
      return onnx.helper.make_tensor_value_info(name, kind, shape)

    outer, self._nodes = self._nodes, []
    names = ["%s_of_step_%d" % (name, self._num_nodes)
             for name in [state] + elements]
    next_state, output = step(*names)
    body = onnx.helper.make_graph(
        self._nodes, "step", [info(name, kind) for name in names],
        [info(next_state, kind, [None, None]),
         info(output, onnx.TensorProto.INT64, [None, None])])
    self._nodes = outer
    return self.ops(
        2, "Scan", state, *elements, body=body, num_scan_inputs=len(elements),
        scan_input_axes=[1] * len(elements), scan_output_axes=[1],
        scan_input_directions=[int(backwards)] * len(elements),
        scan_output_directions=[int(backwards)])

  def constant(self, value, name=None):
    """Returns a constant; equal names are one constant."""
    name = name or "constant_%d" % len(self._constants)
    self._constants[name] = np.asarray(value)
    return name

  def weight(self, name):
    """Returns a variable."""
    return self.constant(self.weights[name], name)

  def dense(self, x, scope, activation="linear"):
    """Returns float [..., units] of float [..., K]; see `modeling.dense`."""
    y = self.op("MatMul", x, self.weight(scope + "/kernel"))
    return self.op(_ACTIVATIONS[activation],
                   self.op("Add", y, self.weight(scope + "/bias")))

  def rows(self, x, scope):
    """Returns float [B, units] of float [B, K], by `output_weights`."""
    return self.op("Gemm", x, self.weight(scope + "output_weights"),
                   self.weight(scope + "output_bias"), transB=1)

  def layer_norm(self, x, scope):
    """Returns a tensor of the shape of `x`; see `modeling.layer_norm`."""
    return self.op("LayerNormalization", x, self.weight(scope + "/gamma"),
                   self.weight(scope + "/beta"), epsilon=1e-12)

  def length(self):
    """Returns how many tokens an input has, int64 [1]."""
    return self.op("Gather", self.op("Shape", "input_ids"), self.constant([1]))

  def first(self, x):
    """Returns the first token, float [B, H], of float [B, S, H]."""
    return self.op("Gather", x, self.constant(0), axis=1)

  def mean(self, x):
    """Returns the mean over the tokens, float [B, H], of float [B, S, H]."""
    weights = self.op(
        "Unsqueeze", self.op("Cast", "input_mask", to=onnx.TensorProto.FLOAT),
        self.constant([-1]))
    axis = self.constant([1])
    return self.op("Div", *[
        self.op("ReduceSum", y, axis, keepdims=0)
        for y in (self.op("Mul", x, weights), weights)])

  def pooled_output(self):
    """Returns float [B, H]."""
    return self.dense(self.first(self.layers[-1]), "bert/pooler/dense", "tanh")

  def masked_lm_logits(self):
    """Returns float [B, K, V] of the selected tokens."""
    x = self.dense(self.layers[-1], MASKED_LM + "transform/dense",
                   self.config.hidden_act)
    x = self.layer_norm(x, MASKED_LM + "transform/LayerNorm")
    projection = self.weights.get("bert/embeddings/word_embeddings_2")
    if projection is not None:
      x = self.op("MatMul", x, self.constant(projection.T))
    x = self.op("MatMul", x, self.op(
        "Transpose", self.weight("bert/embeddings/word_embeddings")))
    return self.op("Add", x, self.weight(MASKED_LM + "output_bias"))

  def serialize(self, inputs, outputs):
    """Returns the bytes of a file.

    Args:
      inputs: dict, name -> list of dimensions, int or str for any; int32.
      outputs: dict, name -> Output.
    """
    named = [onnx.helper.make_node("Identity", [output.tensor], [name])
             for name, output in outputs.items()]
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        self._nodes + named, "albert",
        [info(name, onnx.TensorProto.INT32, shape)
         for name, shape in inputs.items()],
        [info(name, onnx.TensorProto.INT32 if output.is_int else
              onnx.TensorProto.FLOAT, output.shape)
         for name, output in outputs.items()],
        [onnx.numpy_helper.from_array(value, name)
         for name, value in self._constants.items()])
    return onnx.helper.make_model(
        graph, ir_version=_IR_VERSION, opset_imports=[
            onnx.helper.make_opsetid("", _OPSET),
            onnx.helper.make_opsetid("com.microsoft", 1)]).SerializeToString()

  def _embed(self):
    scope = "bert/embeddings/"
    x = self.op("Gather", self.weight(scope + "word_embeddings"), "input_ids")
    if scope + "word_embeddings_2" in self.weights:
      x = self.op("MatMul", x, self.weight(scope + "word_embeddings_2"))
    x = self.op("Add", x, self.op(
        "Gather", self.weight(scope + "token_type_embeddings"), "segment_ids"))
    x = self.op("Add", x, self.op(
        "Slice", self.weight(scope + "position_embeddings"),
        self.constant([0]), self.length()))
    x = self.layer_norm(x, scope + "LayerNorm")
    mapping = "bert/encoder/embedding_hidden_mapping_in"
    return self.dense(x, mapping) if mapping + "/kernel" in self.weights else x

  def _block(self, x, scopes, select):
    """One transformer block; see `AlbertModel._block`."""
    scopes = type(scopes)(*["bert/encoder/" + scope for scope in scopes])
    pre_norm = self.config.ln_type == "preln"

    def norm(x, scope):
      return self.layer_norm(x, scope) if pre_norm else x

    def add(x, y, scope, norm_scope):
      if pre_norm:
        return self.op("Add", x, self.dense(y, scope))
      return self.op(
          "SkipLayerNormalization",
          self.op("MatMul", y, self.weight(scope + "/kernel")), x,
          self.weight(norm_scope + "/gamma"), self.weight(norm_scope + "/beta"),
          self.weight(scope + "/bias"), epsilon=1e-12)

    y = self._attend(norm(x, scopes.attention_norm), scopes.attention)
    if select:
      x, y = select(self, x), select(self, y)
    x = add(x, y, scopes.attention_output, scopes.attention_norm)
    y = self.dense(norm(x, scopes.output_norm), scopes.intermediate,
                   self.config.hidden_act)
    return add(x, y, scopes.output, scopes.output_norm)

  def _attend(self, x, scope):
    """Multi-head self-attention; ONNX Runtime's mask bias is -10000 too."""
    kernel, bias = [
        self.constant(np.concatenate(
            [self.weights["%s/%s/%s" % (scope, name, part)]
             for name in ("query", "key", "value")], -1),
                      "%s/%s" % (scope, part))
        for part in ("kernel", "bias")]
    return self.op("Attention", x, kernel, bias, "input_mask",
                   num_heads=self.config.num_attention_heads)
