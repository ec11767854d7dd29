"""Inference backends: TensorFlow, or ONNX Runtime where there is no TensorFlow.

An engine is a model that is loaded once and kept in memory. It has attributes
  folder: model_folder.ModelFolder;
  tokenizer: of tokenization.py;
and the methods
  predictor(signature, *outputs, max_seq_length=None, batch_size=64), which
    returns a TextPredictor of these outputs of an exported signature; see
    export_model.py. Texts have at most `max_seq_length` tokens, by default as
    many as the folder says;
  constant(signature, output), which returns an output that is the same whatever
    the text, an array.
They raise an InputError where the model has no such weights.
"""

import dataclasses
import os

import numpy as np

from albert import model_folder
from albert.errors import InputError
from albert.files import filesystem
from albert.predict.text_predictor import TextPredictor, missing
from albert.settings import USUAL, setting

NAMES = ("tensorflow", "onnx")
_INPUTS = ("input_ids", "input_mask", "segment_ids")


@dataclasses.dataclass(frozen=True)
class EngineSettings:
  """The inference backend."""
  engine: str = setting(
      "tensorflow", "Backend. With onnx, which needs no TensorFlow, the "
      "model is a folder that export_model.py --onnx made.", USUAL,
      choices=NAMES)
  provider: str = setting(
      None, "--engine=onnx: what computes, such as CUDAExecutionProvider, for "
      "which onnxruntime-gpu has to be installed. Default: the CPU.")


def load(engine, path, given=None):
  """Loads a model.

  Args:
    engine: EngineSettings, or str of NAMES.
    path: str, folder with a checkpoint, or path of one; for "onnx", folder that
      export_model.py --onnx made.
    given: FolderSettings, what is not in the folder, or None.

  Raises:
    InputError: something is missing, or does not fit the rest.
  """
  if path == filesystem.STARTER and not filesystem.exists(path):
    raise InputError("give --model_dir: %s, the default, is in the folder of "
                     "the project alone" % path)
  given = given or model_folder.FolderSettings()
  asked = EngineSettings(engine) if isinstance(engine, str) else engine
  if asked.engine == "onnx":
    return OnnxEngine(path, given, asked.provider)
  if asked.provider:
    raise InputError("--provider has no effect without --engine=onnx")
  from albert.predict import tensorflow_engine  # the way to TensorFlow
  return tensorflow_engine.TensorFlowEngine(path, given)


def sentence_vectors(engine, pooling=None, layer=None, **kwargs):
  """Returns the TextPredictor of one vector for each text, float [H].

  Args:
    engine: see the module.
    pooling: "mean" of the tokens' vectors, [CLS] and [SEP] included; "cls", the
      vector of [CLS]; "pooled", the pooled output, whatever the layer. None for
      what the model was trained to give, or else the mean.
    layer: int, 1 for the first, 0 for the embeddings, -1 for the last. None for
      the one that the model was trained with, or else the last.
    **kwargs: see `predictor` of the module.

  Raises:
    InputError: the model has no such layer.
  """
  trained_pooling, trained_layer = engine.folder.vector or ("mean", -1)
  pooling = pooling or trained_pooling
  number = number_of_layer(engine, trained_layer if layer is None else layer)
  output = pooling if pooling == "pooled" else "%s_%d" % (pooling, number)
  return engine.predictor("sentence_vector", output, **kwargs)


def number_of_layer(engine, layer):
  """Returns the number of a layer, from 0, which may be counted from the last.

  Raises:
    InputError: the model has no such layer.
  """
  last = engine.folder.config.num_hidden_layers
  if not -last - 1 <= layer <= last:
    raise InputError("--layer=%d: the model has layers 0 to %d" % (layer, last))
  return range(last + 1)[layer]


class OnnxEngine:
  """Files of export_model.py --onnx in ONNX Runtime."""

  def __init__(self, path, given, provider=None):
    for name in ("bert_config_file", "vocab_file", "spm_model_file",
                 "do_lower_case"):
      if getattr(given, name) is not None:
        raise InputError("--%s has no effect with --engine=onnx: it was given "
                         "to export_model.py" % name)
    for name in ("config.json", "task.json"):
      if not filesystem.exists(os.path.join(path, name)):
        raise InputError("%s has no %s: give a folder that export_model.py "
                         "--onnx made" % (path, name))
    self._path = path
    self._provider = provider or "CPUExecutionProvider"
    self.folder = model_folder.load(given, path)
    self.tokenizer = self.folder.create_tokenizer()

  def predictor(self, signature, *outputs, max_seq_length=None, batch_size=64):
    """See the module."""
    session = self._session(signature)
    names = [tensor.name for tensor in session.get_inputs()]
    self._check_outputs(session, outputs)
    return TextPredictor(
        lambda *inputs: session.run(list(outputs), dict(zip(names, inputs))),
        self.tokenizer, self.folder.length(max_seq_length), batch_size)

  def constant(self, signature, output):
    """See the module."""
    session = self._session(signature)
    inputs = {tensor.name: np.ones([1, 2], np.int32)
              for tensor in session.get_inputs()}
    return session.run([output], inputs)[0]

  def _session(self, signature):
    path = os.path.join(self._path, signature + ".onnx")
    if not filesystem.exists(path):
      raise missing(self._path, signature)
    try:
      import onnxruntime
    except ImportError as error:
      raise InputError("--engine=onnx: pip install onnxruntime") from error
    available = onnxruntime.get_available_providers()
    if self._provider not in available:
      raise InputError("--provider=%s: this onnxruntime has only %s" % (
          self._provider, ", ".join(available)))
    options = onnxruntime.SessionOptions()
    # Threads that spin for work take the time of those that have some.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
      return onnxruntime.InferenceSession(
          filesystem.read_bytes(path), options, providers=[self._provider])
    except Exception as error:  # it has many of its own
      raise InputError("%s cannot be read: %s" % (path, error)) from error

  def _check_outputs(self, session, outputs):
    there = {tensor.name for tensor in session.get_outputs()}
    for name in outputs:
      if name not in there:
        raise InputError("%s has no output %s" % (self._path, name))
