"""Inference backends: TensorFlow or, without it, ONNX Runtime and OpenVINO."""

import dataclasses
import importlib.util
from typing import Any, Optional, Union

from albert import model_folder
from albert.errors import InputError
from albert.files import filesystem
from albert.predict.engine import Engine, TextPredictor
from albert.predict.onnx_engines import OnnxEngine, OpenVinoEngine
from albert.settings import USUAL, setting

NAMES = ("auto", "tensorflow", "onnx", "openvino")


@dataclasses.dataclass(frozen=True)
class EngineSettings:
  """The inference backend."""

  engine: str = setting(
    "auto",
    "Backend. onnx (ONNX Runtime) and openvino need no TensorFlow; "
    "their model folder comes from export_model.py --onnx. auto: for such a "
    "folder onnx, or openvino with bf16 or without ONNX Runtime; otherwise "
    "tensorflow.",
    USUAL,
    choices=NAMES,
  )
  precision: str = setting(
    "float32",
    "bf16: faster on CPUs with AMX or AVX512-BF16, less exact; needs openvino.",
    USUAL,
    choices=["float32", "bf16"],
  )
  provider: str = setting(
    None,
    "--engine=onnx: execution provider, such as CUDAExecutionProvider, "
    "which requires onnxruntime-gpu. Default: the CPU.",
  )


def load(
  engine: Union[EngineSettings, str],
  path: str,
  given: Optional[model_folder.FolderSettings] = None,
) -> Engine:
  """Loads a model.

  Args:
    engine: backend, or its name, one of NAMES.
    path: checkpoint or its folder; for "onnx" and "openvino", a folder from
      export_model.py --onnx.
    given: settings that the folder lacks.

  Raises:
    InputError: a file is missing, or files are inconsistent.
  """
  if path == filesystem.STARTER and not filesystem.exists(path):
    raise InputError(
      "give --model_dir: %s, the default, is in the folder of "
      "the project alone" % path
    )
  given = given or model_folder.FolderSettings()
  asked = EngineSettings(engine) if isinstance(engine, str) else engine
  name = asked.engine if asked.engine != "auto" else choose(path, asked)
  if asked.provider and name != "onnx":
    raise InputError("--provider has no effect without --engine=onnx")
  if asked.precision != "float32" and name != "openvino":
    raise InputError(
      "--precision=%s needs --engine=openvino and a folder from "
      "export_model.py --onnx" % asked.precision
    )
  if name == "onnx":
    return OnnxEngine(path, given, asked.provider)
  if name == "openvino":
    return OpenVinoEngine(path, given, asked.precision)
  from albert.predict import tensorflow_engine  # imports TensorFlow

  return tensorflow_engine.TensorFlowEngine(path, given)


def choose(path: str, asked: EngineSettings) -> str:
  """Returns the backend for a checkpoint or folder."""
  if filesystem.find_files(path, "*.index") or not filesystem.find_files(
    path, "*.onnx"
  ):
    return "tensorflow"
  if asked.provider:
    return "onnx"
  # ONNX Runtime starts faster and is as fast for single texts.
  has_onnx, has_openvino = map(
    importlib.util.find_spec, ("onnxruntime", "openvino")
  )
  is_needed = asked.precision != "float32" or has_openvino and not has_onnx
  return "openvino" if is_needed else "onnx"


def sentence_vectors(
  engine: Engine,
  pooling: Optional[str] = None,
  layer: Optional[int] = None,
  **kwargs: Any,
) -> TextPredictor:
  """Returns the predictor of one vector per text, float [H].

  Args:
    engine: the model.
    pooling: "mean" over the tokens, including [CLS] and [SEP]; "cls", the
      vector of [CLS]; "pooled", the pooled output, for any layer. Defaults to
      the pooling of training, otherwise the mean.
    layer: 1 for the first, 0 for the embeddings, -1 for the last. Defaults to
      the layer of training, otherwise the last.
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
