"""Files that make a transformers folder work in sentence-transformers.

Tests: tests/export/test_sentence_transformers_tf2.py.
"""

import os
from typing import Any, Dict

from albert.errors import InputError
from albert.files import filesystem
from albert.model_folder import ModelFolder

_POOLING, _SETTINGS = "1_Pooling", "sentence_bert_config.json"
_MODES = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}


def files(folder: ModelFolder) -> Dict[str, Any]:
  """Returns the files to add: path in the folder -> content of the JSON file.

  Args:
    folder: a model trained by run_sentence_vectors.py.

  Raises:
    InputError: the vectors are not from the last layer.
  """
  pooling, layer = folder.vector or ("mean", -1)
  if layer not in (-1, folder.config.num_hidden_layers):
    raise InputError(
      "vectors of layer %d cannot be converted: "
      "sentence-transformers uses the last one" % layer
    )
  return {
    "modules.json": [
      {
        "idx": i,
        "name": str(i),
        "path": path,
        "type": "sentence_transformers.models." + kind,
      }
      for i, (path, kind) in enumerate(
        [("", "Transformer"), (_POOLING, "Pooling")]
      )
    ],
    _SETTINGS: {"max_seq_length": folder.length(), "do_lower_case": False},
    os.path.join(_POOLING, "config.json"): dict(
      {mode: name == pooling for name, mode in _MODES.items()},
      word_embedding_dimension=folder.config.hidden_size,
      pooling_mode_max_tokens=False,
      pooling_mode_mean_sqrt_len_tokens=False,
    ),
  }


def read(source: str, longest: int) -> Dict[str, Any]:
  """Returns values of a ModelFolder that describe a folder's vectors.

  Args:
    source: the folder; if it is not from sentence-transformers, returns {}.
    longest: maximum number of positions of the model.

  Raises:
    InputError: the pooling is not supported.
  """
  if not filesystem.exists(os.path.join(source, "modules.json")):
    return {}
  path = os.path.join(source, _POOLING, "config.json")
  pooling = _read(path)
  # Since version 6, it is one string, as here.
  if "pooling_mode" in pooling:
    modes = [pooling["pooling_mode"]]
  else:
    modes = [
      name
      for name, value in pooling.items()
      if name.startswith("pooling_mode_") and value is True
    ]
  found = [name for name, mode in _MODES.items() if modes in ([name], [mode])]
  if not found:
    raise InputError(
      "%s: unsupported pooling %s: only mean and [CLS] are "
      "supported" % (path, ", ".join(modes) or "(none)")
    )
  lengths = [
    _read(os.path.join(source, name)).get(key)
    for name, key in (
      (_SETTINGS, "max_seq_length"),
      ("tokenizer_config.json", "model_max_length"),
    )
  ]
  return {
    "head": "sentence_vector",
    "pooling": found[0],
    "layer": -1,
    "max_seq_length": min([longest, *filter(None, lengths)]),
  }


def _read(path):
  """Returns the dict in a JSON file; empty if it does not exist."""
  return filesystem.read_json(path) if filesystem.exists(path) else {}
