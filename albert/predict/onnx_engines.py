"""Backends for the ONNX files from export_model.py --onnx.

Tests: tests/predict/test_engines.py.
"""

import functools
import os
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from albert import model_folder
from albert.errors import InputError
from albert.files import filesystem, protobuf
from albert.predict.engine import Engine, TextPredictor, missing

_Call = Callable[[Dict[str, np.ndarray]], Sequence[np.ndarray]]


class _OnnxFolder(Engine):
  """A folder of ONNX files, one per signature."""

  name: str

  def __init__(self, path: str, given: model_folder.FolderSettings):
    for name in (
      "bert_config_file",
      "vocab_file",
      "spm_model_file",
      "do_lower_case",
    ):
      if getattr(given, name) is not None:
        raise InputError(
          "--%s has no effect with --engine=%s: give it to "
          "export_model.py" % (name, self.name)
        )
    for name in ("config.json", "task.json"):
      if not filesystem.exists(os.path.join(path, name)):
        raise InputError(
          "%s has no %s: give a folder from export_model.py "
          "--onnx" % (path, name)
        )
    self._path = path
    self.folder = model_folder.load(given, path)
    self.tokenizer = self.folder.create_tokenizer()

  def predictor(
    self,
    signature: str,
    *outputs: str,
    max_seq_length: Optional[int] = None,
    batch_size: int = 64,
  ) -> TextPredictor:
    """See Engine."""
    names, call = self._signature(signature, outputs)
    return TextPredictor(
      lambda *inputs: call(dict(zip(names, inputs))),
      self.tokenizer,
      self.folder.length(max_seq_length),
      batch_size,
    )

  def constant(self, signature: str, output: str) -> np.ndarray:
    """See Engine."""
    names, call = self._signature(signature, [output])
    return call({name: np.ones([1, 2], np.int32) for name in names})[0]

  def weight_files(self) -> List[str]:
    """See Engine."""
    return filesystem.find_files(self._path, "*.onnx")

  def _signature(self, signature, outputs):
    """Returns the input names and a function that maps inputs to outputs."""
    path = os.path.join(self._path, signature + ".onnx")
    if not filesystem.exists(path):
      raise missing(self._path, signature)
    try:
      content = filesystem.read_bytes(path)
      if protobuf.names_files(content):
        raise ValueError(
          "its weights are in external files, which could be anywhere"
        )
      return self._load(content, list(outputs))
    except InputError:
      raise
    except Exception as error:  # the runtimes' errors share no base class
      raise InputError("%s cannot be read: %s" % (path, error)) from error

  def _load(
    self, content: bytes, outputs: List[str]
  ) -> Tuple[List[str], _Call]:
    """Loads an ONNX file; see _signature."""
    raise NotImplementedError

  def _check_outputs(self, outputs, there):
    for name in outputs:
      if name not in there:
        raise InputError("%s has no output %s" % (self._path, name))


class OnnxEngine(_OnnxFolder):
  """ONNX Runtime."""

  name = "onnx"

  def __init__(
    self,
    path: str,
    given: model_folder.FolderSettings,
    provider: Optional[str] = None,
  ):
    super().__init__(path, given)
    self._provider = provider or "CPUExecutionProvider"

  def _load(self, content, outputs):
    try:
      import onnxruntime
    except ImportError as error:
      raise InputError("--engine=onnx: pip install onnxruntime") from error
    available = onnxruntime.get_available_providers()
    if self._provider not in available:
      raise InputError(
        "--provider=%s: this onnxruntime has only %s"
        % (self._provider, ", ".join(available))
      )
    options = onnxruntime.SessionOptions()
    # Spinning threads would take CPU time from working threads.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(
      content, options, providers=[self._provider]
    )
    self._check_outputs(outputs, [x.name for x in session.get_outputs()])
    return (
      [x.name for x in session.get_inputs()],
      functools.partial(session.run, outputs),
    )


class OpenVinoEngine(_OnnxFolder):
  """OpenVINO on the CPU.

  Args:
    path, given: see engines.load.
    precision: "float32", or "bf16" for matrix products in bfloat16.
  """

  name = "openvino"

  def __init__(
    self,
    path: str,
    given: model_folder.FolderSettings,
    precision: str = "float32",
  ):
    super().__init__(path, given)
    self._precision = precision

  def digest(self) -> str:
    """See Engine; bf16 gives different vectors."""
    return "%s-%s" % (super().digest(), self._precision)

  def _load(self, content, outputs):
    try:
      import openvino
    except ImportError as error:
      raise InputError(
        "--engine=openvino: pip install openvino (Python 3.9 or later)"
      ) from error
    core = openvino.Core()
    model = core.read_model(content)
    self._check_outputs(
      outputs, [name for output in model.outputs for name in output.names]
    )
    names = [x.any_name for x in model.inputs]
    compiled = core.compile_model(
      openvino.Model(
        [model.output(name) for name in outputs], model.get_parameters()
      ),
      "CPU",
      {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": {"float32": "f32", "bf16": "bf16"}[
          self._precision
        ],
      },
    )

    def call(inputs):
      # Threads must not share a request.
      results = compiled.create_infer_request().infer(inputs)
      return [results[i] for i in range(len(outputs))]

    return names, call
