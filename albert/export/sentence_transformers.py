"""What makes a folder of transformers one that sentence-transformers load.

Tests: tests/export/test_sentence_transformers_tf2.py.
"""

import os

from albert.errors import InputError
from albert.files import filesystem

_POOLING, _SETTINGS = "1_Pooling", "sentence_bert_config.json"
_MODES = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}


def files(folder):
  """Returns the files to add: dict, path in the folder -> object of its JSON.

  Args:
    folder: ModelFolder, trained by run_sentence_vectors.py.

  Raises:
    InputError: the vectors are not those of the last layer.
  """
  pooling, layer = folder.vector
  if layer not in (-1, folder.config.num_hidden_layers):
    raise InputError("vectors of layer %d cannot be converted: "
                     "sentence-transformers take the last one" % layer)
  return {
      "modules.json": [
          {"idx": i, "name": str(i), "path": path,
           "type": "sentence_transformers.models." + kind}
          for i, (path, kind) in enumerate([("", "Transformer"),
                                            (_POOLING, "Pooling")])],
      _SETTINGS: {
          "max_seq_length": folder.length(), "do_lower_case": False},
      os.path.join(_POOLING, "config.json"): dict(
          {mode: name == pooling for name, mode in _MODES.items()},
          word_embedding_dimension=folder.config.hidden_size,
          pooling_mode_max_tokens=False,
          pooling_mode_mean_sqrt_len_tokens=False)}


def read(source, longest):
  """Returns what a folder says of its vectors: values of a ModelFolder.

  Args:
    source: str, the folder.
    longest: int, positions of the model.

  Raises:
    InputError: they are made in a way that there is none of here.
  """
  if not filesystem.exists(os.path.join(source, "modules.json")):
    return {}
  path = os.path.join(source, _POOLING, "config.json")
  pooling = _read(path)
  # From version 6 on it is one word, as here.
  modes = [pooling["pooling_mode"]] if "pooling_mode" in pooling else [
      name for name, value in pooling.items()
      if name.startswith("pooling_mode_") and value is True]
  found = [name for name, mode in _MODES.items() if modes in ([name], [mode])]
  if not found:
    raise InputError("%s: vectors by %s: by the mean or [CLS] is all that is "
                     "there" % (path, ", ".join(modes) or "nothing known"))
  lengths = [_read(os.path.join(source, name)).get(key) for name, key in (
      (_SETTINGS, "max_seq_length"),
      ("tokenizer_config.json", "model_max_length"))]
  return {"head": "sentence_vector", "pooling": found[0], "layer": -1,
          "max_seq_length": min([longest, *filter(None, lengths)])}


def _read(path):
  """Returns the dict of a JSON file, empty where there is none."""
  return filesystem.read_json(path) if filesystem.exists(path) else {}
