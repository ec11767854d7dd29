"""The signatures of exported models as ONNX files; see export_model.py."""

import logging as standard_logging
import pathlib
import tempfile

import numpy as np

from albert.errors import InputError
from albert.heads import crf, heads

try:
  import onnx
  from onnxruntime import quantization

  from albert.export.onnx_model import OnnxModel, Output
except ImportError:  # optional extras
  onnx = None


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
    "masked_lm": (["cls/predictions/output_bias"], _masked_tokens,
                  _masked_lm),
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
  """Returns the bytes of a file with weights of 8 bits, 7 of them used.

  Activations are quantized as they come, with a range of their own. What the
  activation function of a layer returns has too wide a range for that: more
  than half of the error of 8 bits. It stays as it is; the kernels that it is
  multiplied by, and the tables of positions and segments, have 16 bits.

  Args:
    content: bytes of an ONNX file.
  """
  activated = [node.name for node in onnx.load_from_string(content).graph.node
               if node.op_type == "MatMul" and
               node.input[0].startswith(("FastGelu", "Relu"))]
  with tempfile.TemporaryDirectory() as folder:
    source, target = [pathlib.Path(folder, name) for name in ("in", "out")]
    source.write_bytes(content)
    # It logs a warning for each operation of its own domain.
    standard_logging.disable(standard_logging.WARNING)
    quantization.quantize_dynamic(
        source, target, per_channel=True,
        # Without VNNI, sums of products with 8 full bits are clipped.
        reduce_range=True, nodes_to_exclude=activated,
        extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})
    standard_logging.disable(standard_logging.NOTSET)
    model = onnx.load(str(target))
  for tensor in model.graph.initializer:
    is_variable = not tensor.name.startswith("constant")
    if (is_variable and tensor.data_type == onnx.TensorProto.FLOAT and
        len(tensor.dims) == 2):
      half = onnx.numpy_helper.to_array(tensor).astype(np.float16)
      model.graph.node.insert(0, onnx.helper.make_node(
          "Cast", [tensor.name + "_16"], [tensor.name],
          to=onnx.TensorProto.FLOAT))
      tensor.CopyFrom(onnx.numpy_helper.from_array(half, tensor.name + "_16"))
  return model.SerializeToString()
