"""Inference backends: TensorFlow, or ONNX Runtime without TensorFlow."""

import dataclasses
import hashlib
import os
from typing import (
  Any,
  Callable,
  Iterator,
  List,
  Optional,
  Sequence,
  Tuple,
  Union,
)

import numpy as np

import tokenization
from albert import model_folder
from albert.errors import InputError
from albert.files import filesystem, protobuf
from albert.settings import USUAL, setting

NAMES = ("tensorflow", "onnx")
# What to say if a model lacks a signature.
_MISSING = {
    "classify": "no classifier: fine-tune one with run_classifier.py",
    "label_tokens": "no model that finds entities: fine-tune one with "
                    "run_ner.py",
    "spans": "no model that finds answers: fine-tune one with run_squad.py",
    "masked_lm": "no masked-LM weights, as is usual after fine-tuning: give a "
                 "pretrained model"}


@dataclasses.dataclass(frozen=True)
class EngineSettings:
  """The inference backend."""
  engine: str = setting(
      "tensorflow", "Backend. onnx needs no TensorFlow; its model folder comes "
      "from export_model.py --onnx.", USUAL,
      choices=NAMES)
  provider: str = setting(
      None, "--engine=onnx: execution provider, such as CUDAExecutionProvider, "
      "which requires onnxruntime-gpu. Default: the CPU.")


def missing(path: str, signature: str) -> InputError:
  """Returns the error of a model that lacks a signature."""
  return InputError("%s has %s" % (path, _MISSING.get(
      signature, "no weights for %s" % signature)))


class TextPredictor:
  """Runs a model on batches of texts of similar length.

  Args:
    call: function of int32 [B, S] input_ids, input_mask, segment_ids, and of
      int32 [B, ...] for each further feature, that returns arrays [B, ...].
    tokenizer: encodes the texts.
    max_seq_length: maximum tokens of a text or pair; longer ones are truncated.
    batch_size: texts per call of the model.
  """

  def __init__(self, call: Callable[..., Sequence[np.ndarray]],
               tokenizer: model_folder.Tokenizer, max_seq_length: int,
               batch_size: int):
    self._call = call
    self._tokenizer = tokenizer
    self._max_seq_length = max_seq_length
    self._batch_size = batch_size

  def predict(self, texts: Sequence[Tuple[str, Optional[str]]]) -> np.ndarray:
    """Predicts texts.

    Args:
      texts: pairs; None in place of the second for a single text.

    Returns:
      float32 [number of texts, ...], the first output.
    """
    rows = [None] * len(texts)
    for i, values in self.run([tokenization.encode_texts(
        self._tokenizer, a, b, self._max_seq_length) for a, b in texts]):
      rows[i] = values[0]
    return np.array(rows, np.float32)

  def run(self, features: Sequence[Sequence[Sequence[int]]]
          ) -> Iterator[Tuple[int, Tuple[Any, ...]]]:
    """Predicts encoded texts.

    Args:
      features: for each text, input_ids, segment_ids and further features, each
        padded with 0 to the longest of its batch.

    Yields:
      in any order, the index of a text and its outputs, arrays [...].
    """
    # Batching texts of similar length minimizes padding.
    order = sorted(range(len(features)), key=lambda i: len(features[i][0]))
    for start in range(0, len(order), self._batch_size):
      batch = order[start:start + self._batch_size]
      input_ids, segment_ids, *more = zip(*[features[i] for i in batch])
      input_mask = [[1] * len(ids) for ids in input_ids]
      outputs = self._call(*map(
          _padded, [input_ids, input_mask, segment_ids, *more]))
      yield from zip(batch, zip(*outputs))


def _padded(rows):
  array = np.zeros([len(rows), max(map(len, rows))], np.int32)
  for i, row in enumerate(rows):
    array[i, :len(row)] = row
  return array


class Engine:
  """A model kept in memory.

  Attributes:
    folder: the folder that describes the model.
    tokenizer: its tokenizer.
  """
  folder: model_folder.ModelFolder
  tokenizer: model_folder.Tokenizer

  def predictor(self, signature: str, *outputs: str,
                max_seq_length: Optional[int] = None,
                batch_size: int = 64) -> TextPredictor:
    """Returns the predictor of outputs of a signature; see export_model.py.

    Args:
      signature: name of the signature.
      *outputs: names of its outputs.
      max_seq_length: maximum tokens of a text; None for that of the folder.
      batch_size: texts per call of the model.

    Raises:
      InputError: the model lacks the weights.
    """
    raise NotImplementedError

  def constant(self, signature: str, output: str) -> np.ndarray:
    """Returns an output that does not depend on the text.

    Raises:
      InputError: the model lacks the weights.
    """
    raise NotImplementedError

  def digest(self) -> str:
    """Returns a checksum of the weights, the vocabulary and the settings."""
    weights = filesystem.sha256(*self.weight_files())
    parts = [content for _, content in sorted(self.folder.contents().items())]
    return hashlib.sha256(b"\0".join([weights.encode(), *parts])).hexdigest()

  def weight_files(self) -> List[str]:
    """Returns the paths of the files of the weights."""
    raise NotImplementedError


def load(engine: Union[EngineSettings, str], path: str,
         given: Optional[model_folder.FolderSettings] = None) -> Engine:
  """Loads a model.

  Args:
    engine: backend, or its name, one of NAMES.
    path: checkpoint or its folder; for "onnx", a folder from
      export_model.py --onnx.
    given: settings that the folder lacks.

  Raises:
    InputError: a file is missing or inconsistent with the others.
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
  from albert.predict import tensorflow_engine  # imports TensorFlow
  return tensorflow_engine.TensorFlowEngine(path, given)


def sentence_vectors(engine: Engine, pooling: Optional[str] = None,
                     layer: Optional[int] = None,
                     **kwargs: Any) -> TextPredictor:
  """Returns the predictor of one vector per text, float [H].

  Args:
    engine: the model.
    pooling: "mean" over the tokens, including [CLS] and [SEP]; "cls", the
      vector of [CLS]; "pooled", the pooled output, whatever the layer. Defaults
      to the pooling the model was trained with, otherwise the mean.
    layer: 1 for the first, 0 for the embeddings, -1 for the last. Defaults to
      the layer the model was trained with, otherwise the last.
    **kwargs: see `Engine.predictor`.

  Raises:
    InputError: the model has no such layer.
  """
  trained_pooling, trained_layer = engine.folder.vector or ("mean", -1)
  pooling = pooling or trained_pooling
  number = number_of_layer(engine, trained_layer if layer is None else layer)
  output = pooling if pooling == "pooled" else "%s_%d" % (pooling, number)
  return engine.predictor("sentence_vector", output, **kwargs)


def number_of_layer(engine: Engine, layer: int) -> int:
  """Returns the index of a layer, from 0; negative ones count from the last.

  Raises:
    InputError: the model has no such layer.
  """
  last = engine.folder.config.num_hidden_layers
  if not -last - 1 <= layer <= last:
    raise InputError("--layer=%d: the model has layers 0 to %d" % (layer, last))
  return range(last + 1)[layer]


class OnnxEngine(Engine):
  """ONNX files from export_model.py --onnx, in ONNX Runtime."""

  def __init__(self, path: str, given: model_folder.FolderSettings,
               provider: Optional[str] = None):
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

  def predictor(self, signature: str, *outputs: str,
                max_seq_length: Optional[int] = None,
                batch_size: int = 64) -> TextPredictor:
    """See Engine."""
    session = self._session(signature)
    names = [tensor.name for tensor in session.get_inputs()]
    self._check_outputs(session, outputs)
    return TextPredictor(
        lambda *inputs: session.run(list(outputs), dict(zip(names, inputs))),
        self.tokenizer, self.folder.length(max_seq_length), batch_size)

  def constant(self, signature: str, output: str) -> np.ndarray:
    """See Engine."""
    session = self._session(signature)
    inputs = {tensor.name: np.ones([1, 2], np.int32)
              for tensor in session.get_inputs()}
    return session.run([output], inputs)[0]

  def weight_files(self) -> List[str]:
    """See Engine."""
    return filesystem.find_files(self._path, "*.onnx")

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
    # Spinning threads would take CPU time from those that have work.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
      content = filesystem.read_bytes(path)
      if protobuf.names_files(content):
        raise ValueError("its weights are in other files, which it could "
                         "choose anywhere")
      return onnxruntime.InferenceSession(
          content, options, providers=[self._provider])
    except Exception as error:  # ONNX Runtime's errors share no base class
      raise InputError("%s cannot be read: %s" % (path, error)) from error

  def _check_outputs(self, session, outputs):
    there = {tensor.name for tensor in session.get_outputs()}
    for name in outputs:
      if name not in there:
        raise InputError("%s has no output %s" % (self._path, name))
