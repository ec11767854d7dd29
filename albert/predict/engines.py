"""What predicts: TensorFlow, or ONNX Runtime where there is no TensorFlow."""

import os
import types

import tokenization
from albert.errors import InputError
from albert.files import filesystem
from albert.predict.text_predictor import TextPredictor

NAMES = ("tensorflow", "onnx")
HELP = ("What predicts. With onnx, which needs no TensorFlow, the model is a "
        "folder that export_model.py --onnx made.")


def load(engine, folder, options=None):
  """Loads a model.

  Args:
    engine: str, of NAMES.
    folder: str, folder with a checkpoint, or path of one; for "onnx", folder
      that export_model.py --onnx made.
    options: flags that say what is not in the folder, see
      `predictor.load_folder`, or None.

  Returns:
    an object with the attributes
      config: has the attributes of AlbertConfig;
      tokenizer: of tokenization.py;
      task: dict of task.json, empty without one;
    and the methods, each of which returns a TextPredictor,
      classify(): float [L], the probabilities of the labels;
      sentence_vectors(pooling, layer): float [H], see `heads.sentence_vectors`;
      masked_lm(): float [P, V], logits at the positions that are given to
        `TextPredictor.run`, list of int, as a further feature.
    Further arguments are max_seq_length and batch_size; see TextPredictor.

  Raises:
    InputError: something is missing, or does not fit the rest. The methods
      raise it where the model has no such weights.
  """
  if engine == "onnx":
    return OnnxEngine(folder, options)
  from albert.predict import predictor  # the only way to TensorFlow from here
  return predictor.TensorFlowEngine(folder, options)


class OnnxEngine:
  """Files of export_model.py --onnx in ONNX Runtime, on the CPU; see `load`."""

  def __init__(self, folder, options=None):
    self._folder = folder
    for name in ("bert_config_file", "vocab_file", "spm_model_file",
                 "do_lower_case"):
      if options is not None and options[name].present:
        raise InputError("with --engine=onnx, there is no effect of --%s: it "
                         "was given to export_model.py" % name)
    self.config = types.SimpleNamespace(**dict(
        {"max_position_embeddings": 512},
        **filesystem.read_json(self._find("config.json"))))
    self.task = filesystem.read_json(self._find("task.json"))
    self.tokenizer = tokenization.create_tokenizer(
        *[self._find(name) if self._has(name) else None
          for name in ("vocab.txt", "spm.model")], self.task["do_lower_case"])

  def classify(self, **kwargs):
    """See `load`."""
    return self._predictor("classify", "probabilities", **kwargs)

  def sentence_vectors(self, pooling, layer, **kwargs):
    """See `load`."""
    last = self.config.num_hidden_layers
    try:
      name = "%s_%d" % (pooling, range(last + 1)[layer])
    except IndexError:
      raise InputError("--layer=%d: the model has layers 0 to %d" % (
          layer, last)) from None
    return self._predictor(
        "sentence_vector", "pooled" if pooling == "pooled" else name, **kwargs)

  def masked_lm(self, **kwargs):
    """See `load`."""
    return self._predictor("masked_lm", "logits", **kwargs)

  def _predictor(self, signature, output, max_seq_length=512, batch_size=64):
    path = self._find(signature + ".onnx")
    try:
      import onnxruntime
    except ImportError as error:
      raise InputError("--engine=onnx: pip install onnxruntime") from error
    try:
      session = onnxruntime.InferenceSession(
          filesystem.read_bytes(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # it has many of its own
      raise InputError("%s cannot be read: %s" % (path, error)) from error
    names = [tensor.name for tensor in session.get_inputs()]
    return TextPredictor(
        lambda *inputs: session.run([output], dict(zip(names, inputs)))[0],
        self.tokenizer,
        min(max_seq_length, self.config.max_position_embeddings), batch_size)

  def _has(self, name):
    return filesystem.exists(os.path.join(self._folder, name))

  def _find(self, name):
    if not self._has(name):
      raise InputError("%s has no %s: give a folder that export_model.py "
                       "--onnx made of a model with such weights" % (
                           self._folder, name))
    return os.path.join(self._folder, name)
