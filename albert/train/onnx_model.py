"""The model as ONNX files, written from the weights of a checkpoint.

The operations of the domain com.microsoft are ONNX Runtime's own: what its
optimizer makes of a BERT where it recognizes the parts. Written here as such,
they do not depend on that. Other runtimes do not have them.
"""

import collections
import logging as standard_logging
import pathlib
import tempfile

import numpy as np

from albert.train import crf, heads
from modeling import AlbertModel
from modeling_google import GoogleAlbertModel
from util.errors import InputError

try:
  import onnx
  from onnxruntime import quantization
except ImportError:  # optional extras
  onnx = None

# ONNX Runtime 1.10, the last one for the NumPy of TF 1.15, reads these.
_OPSET, _IR_VERSION = 15, 8
_MICROSOFT = ("Attention", "FastGelu", "SkipLayerNormalization")
_ACTIVATIONS = {"gelu": "FastGelu", "gelu_new": "FastGelu", "relu": "Relu",
                "tanh": "Tanh", "linear": "Identity"}
_MASKED_LM = "cls/predictions/"


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
        kind, inputs, outputs, **attributes,
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
    x = self.dense(self.layers[-1], _MASKED_LM + "transform/dense",
                   self.config.hidden_act)
    x = self.layer_norm(x, _MASKED_LM + "transform/LayerNorm")
    projection = self.weights.get("bert/embeddings/word_embeddings_2")
    if projection is not None:
      x = self.op("MatMul", x, self.constant(projection.T))
    x = self.op("MatMul", x, self.op(
        "Transpose", self.weight("bert/embeddings/word_embeddings")))
    return self.op("Add", x, self.weight(_MASKED_LM + "output_bias"))

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


def _first_token(model, x):
  return model.op("Gather", x, model.constant([0]), axis=1)


def _masked_tokens(model, x):
  positions = model.op("Cast", "masked_lm_positions",
                       to=onnx.TensorProto.INT64)
  return model.op("GatherND", x, model.op(
      "Unsqueeze", positions, model.constant([-1])), batch_dims=1)


def _classify(model):
  logits = model.rows(model.pooled_output(), "")
  num_labels = len(model.weights["output_bias"])
  if num_labels == 1:
    return {"score": Output(
        model.op("Reshape", logits, model.constant([-1])), ["batch"])}
  return {"probabilities": Output(model.op("Softmax", logits),
                                  ["batch", num_labels])}


def _label_tokens(model):
  """See `tagger.token_labels`."""
  op, constant = model.op, model.constant
  weights = constant(model.weights["output_weights"].T)
  scores = op("Add", op("MatMul", model.layers[-1], weights),
              model.weight("output_bias"))  # [B, S, L]
  # Neither the first token nor the last.
  mask = op("Cast", "input_mask", to=onnx.TensorProto.FLOAT)
  inside = op("Slice", mask, constant([2]), constant([2**31 - 1]),
              constant([1]))
  mask, before = [op("Pad", inside, constant([0, start, 0, end]))
                  for start, end in ((1, 1), (2, 0))]
  transitions, starts = crf.forbidden(model.task["labels"])
  transitions = transitions + model.weights.get(crf.TRANSITIONS, 0)
  labels = _viterbi(model, scores, mask, op("Mul", mask, before), transitions,
                    starts)
  return {"labels": Output(labels, ["batch", "length"], is_int=True)}


def _viterbi(model, scores, mask, joined, transitions, starts):
  """See `crf.viterbi`; `joined` is 1 where the position before counts too."""
  op, constant = model.op, model.constant
  transitions, last_axis = constant(transitions), constant([-1])
  scores = op("Add", scores, op("Mul", op(
      "Unsqueeze", op("Sub", mask, joined), last_axis), constant(starts)))

  def where(mask, x, y):
    mask = op("Cast", mask, to=onnx.TensorProto.BOOL)
    return op("Where", op("Unsqueeze", mask, last_axis), x, y)

  def forward(best, scores, mask, joined):
    moves = op("Mul", transitions, op("Reshape", joined, constant([-1, 1, 1])))
    moved = op("Add", op("Unsqueeze", best, last_axis), moves)  # [B, L, L]
    after = op("Add", op("ReduceMax", moved, axes=[1], keepdims=0), scores)
    return (where(mask, after, best),
            op("ArgMax", moved, axis=1, keepdims=0))

  def backward(label, origins, joined):  # the label, [B, 1], and before it
    origin = op("GatherElements", origins, label, axis=1)
    return where(joined, origin, label), op("Identity", label)

  zeros = op("Mul", constant(np.float32(0)),
             op("ReduceSum", scores, constant([1]), keepdims=0))
  best, origins = model.scan(forward, zeros, [scores, mask, joined],
                             onnx.TensorProto.FLOAT)
  _, labels = model.scan(
      backward, op("ArgMax", best, axis=1),
      [origins, op("Cast", joined, to=onnx.TensorProto.INT64)],
      onnx.TensorProto.INT64, backwards=True)
  return op("Mul", *[op("Cast", x, to=onnx.TensorProto.INT32)
                     for x in (op("Squeeze", labels, last_axis), mask)])


def _spans(model):
  """See `heads.span_logits`, `heads.BeamSpan`."""
  op, constant = model.op, model.constant
  x = model.layers[-1]  # [B, S, H]
  if "cls/squad/output_weights" in model.weights:
    scores = op("Add", op("MatMul", x, constant(
        model.weights["cls/squad/output_weights"].T)),
                model.weight("cls/squad/output_bias"))  # [B, S, 2]
    return {name: Output(op("Gather", scores, constant(index), axis=2),
                         ["batch", "length"])
            for index, name in enumerate(("start", "end"))}

  def score(x, scope):
    return op("Squeeze", model.dense(x, scope), constant([-1]))

  def likeliest(scores, rank, count):
    padding = np.zeros([2, rank], np.int64)
    padding[1, -1] = count
    return model.ops(2, "TopK", op(
        "Pad", op("LogSoftmax", scores), constant(padding.ravel()),
        constant(np.float32(-1e30))), constant([count]))

  beams, ends_of_each = heads.BEAM_SIZE
  masked = _outside(model)
  start = op("Add", score(x, "start_logits/dense"), masked)  # [B, S]
  likely = op("Squeeze", op("MatMul", op(
      "Unsqueeze", op("Softmax", start), constant([1])), x), constant([1]))
  y = model.dense(op("Concat", likely, model.first(x), axis=-1),
                  "answer_class/dense_0", "tanh")
  null = op("Reshape", op("MatMul", y, model.weight(
      "answer_class/dense_1/kernel")), constant([-1]))

  start_scores, starts = likeliest(start, 2, beams)
  starts = op("Min", starts, op("Sub", model.length(), constant([1])))
  states = op("GatherND", x, op("Unsqueeze", starts, constant([-1])),
              batch_dims=1)  # [B, K, H]
  # The kernel times every pair of a token and a start.
  tokens, states = [op("MatMul", tensor, constant(kernel)) for tensor, kernel in
                    zip((x, states), np.split(
                        model.weights["end_logits/dense_0/kernel"], 2))]
  y = op("Tanh", op("Add", op(
      "Add", op("Unsqueeze", tokens, constant([1])),
      op("Unsqueeze", states, constant([2]))),
                    model.weight("end_logits/dense_0/bias")))  # [B, K, S, H]
  end = op("Add", score(model.layer_norm(y, "end_logits/LayerNorm"),
                        "end_logits/dense_1"),
           op("Unsqueeze", masked, constant([1])))
  end_scores, ends = likeliest(end, 3, ends_of_each)

  starts, ends = [op("Cast", places, to=onnx.TensorProto.INT32)
                  for places in (starts, ends)]
  beam = ["batch", beams]
  return {"starts": Output(starts, beam, is_int=True),
          "start_scores": Output(start_scores, beam),
          "ends": Output(ends, beam + [ends_of_each], is_int=True),
          "end_scores": Output(end_scores, beam + [ends_of_each]),
          "null": Output(null, ["batch"])}


def _outside(model):
  """Returns float [B, S], 0 where `heads.answer_mask` is 1, else -1e30."""
  op, constant = model.op, model.constant
  mask, segments = [op("Cast", x, to=onnx.TensorProto.FLOAT)
                    for x in ("input_mask", "segment_ids")]

  def columns(x, start, end):
    return op("Slice", x, *[constant([i]) for i in (start, end, 1)])

  first = columns(mask, 0, 1)
  inside = op("Mul", columns(segments, 1, -1), columns(mask, 2, 2**31 - 1))
  allowed = op("Concat", first, inside,
               op("Mul", first, constant(np.float32(0))), axis=1)
  return op("Mul", op("Sub", constant(np.float32(1)), allowed),
            constant(np.float32(-1e30)))


def _encode(model):
  hidden = model.config.hidden_size
  return {"sequence_output": Output(model.layers[-1],
                                     ["batch", "length", hidden]),
          "pooled_output": Output(model.pooled_output(), ["batch", hidden])}


def _sentence_vector(model):
  vectors = {"vector": model.mean(model.layers[-1]),
             "pooled": model.pooled_output()}
  for layer, x in enumerate(model.layers):
    vectors["mean_%d" % layer] = model.mean(x)
    vectors["cls_%d" % layer] = model.first(x)
  return {name: Output(x, ["batch", model.config.hidden_size])
          for name, x in vectors.items()}


def _masked_lm(model):
  return {"logits": Output(model.masked_lm_logits(), [
      "batch", "predictions", model.config.vocab_size])}


def _sentence_order(model):
  logits = model.rows(model.pooled_output(), "cls/seq_relationship/")
  return {"probabilities": Output(model.op("Softmax", logits), ["batch", 2])}


# Signature -> variables, one of which it needs; which tokens of the last layer;
# and a function of OnnxModel that returns a dict, name -> Output.
_SIGNATURES = {
    "classify": (["output_weights"], _first_token, _classify),
    "label_tokens": (["output_weights"], None, _label_tokens),
    "spans": (["cls/squad/output_weights", "start_logits/dense/kernel"], None,
              _spans),
    "encode": (["bert/pooler/dense/kernel"], None, _encode),
    "sentence_vector": (["bert/pooler/dense/kernel"], None, _sentence_vector),
    "masked_lm": ([_MASKED_LM + "output_bias"], _masked_tokens, _masked_lm),
    "sentence_order": (["cls/seq_relationship/output_bias"], _first_token,
                       _sentence_order)}


def write_signatures(config, weights, task):
  """Writes every signature that the variables of a checkpoint allow.

  Args:
    config: AlbertConfig.
    weights: dict, variable name -> float32 array.
    task: dict of task.json.

  Returns:
    dict, signature -> bytes of an ONNX file.

  Raises:
    InputError: onnx or onnxruntime is not installed.
  """
  if not onnx:
    raise InputError("ONNX files need more packages: pip install -r "
                     "requirements/onnx.txt")
  found = {}
  other = "classify" if task.get("label_tokens") else "label_tokens"
  for name, (needed, select, outputs) in _SIGNATURES.items():
    if name != other and not weights.keys().isdisjoint(needed):
      inputs = {key: ["batch", "length"]
                for key in ("input_ids", "input_mask", "segment_ids")}
      if select is _masked_tokens:
        inputs["masked_lm_positions"] = ["batch", "predictions"]
      model = OnnxModel(config, weights, task, select)
      found[name] = model.serialize(inputs, outputs(model))
  return found


def quantize(content):
  """Returns the bytes of a file with weights of 8 bits.

  Activations are quantized as they come, with a range of their own.

  Args:
    content: bytes of an ONNX file.
  """
  with tempfile.TemporaryDirectory() as folder:
    source, target = [pathlib.Path(folder, name) for name in ("in", "out")]
    source.write_bytes(content)
    # It logs a warning for each operation of its own domain.
    standard_logging.disable(standard_logging.WARNING)
    quantization.quantize_dynamic(
        source, target, per_channel=True,
        extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})
    standard_logging.disable(standard_logging.NOTSET)
    return target.read_bytes()
