"""Converts weights to and from Hugging Face's transformers.

Google's layout becomes an ALBERT of transformers. albert_zh's layout, which has
no counterpart there, becomes a BERT.
"""

import dataclasses
import hashlib
import io
import os
from typing import Any, Dict, Iterator, List, Optional, Tuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

import modeling
from albert import heads
from albert.errors import InputError
from albert.export import sentence_transformers, transformers_tokenizer
from albert.files import checkpoints, filesystem
from albert.heads import crf
from albert.heads.classifier import UNITS, WEIGHTS
from albert.model.config import AlbertConfig
from albert.model.layouts import create_model
from albert.model_folder import ModelFolder

_ALBERT_BLOCK = {
  "attention_1/self/query": "attention.query",
  "attention_1/self/key": "attention.key",
  "attention_1/self/value": "attention.value",
  "attention_1/output/dense": "attention.dense",
  "LayerNorm": "attention.LayerNorm",
  "ffn_1/intermediate/dense": "ffn",
  "ffn_1/intermediate/output/dense": "ffn_output",
  "LayerNorm_1": "full_layer_layer_norm",
}
_KINDS = {
  "kernel": "weight",
  "gamma": "weight",
  "beta": "bias",
  "output_weights": "weight",
  "output_bias": "bias",
}
_SCOPES = {
  family: {
    scope: name
    for head in heads.ALL
    for scope, name in head.pytorch_scopes[family].items()
  }
  for family in ("albert", "bert")
}
_POOLER = "bert/pooler/dense/"
# Values of their "problem_type".
_PROBLEMS = {
  heads.MultiLabel.name: "multi_label_classification",
  heads.Regression.name: "regression",
}
# Values that transformers cannot represent, for converting back.
_OWN_FILE = "albert_task.json"
_TASK_KEYS = {field.name for field in dataclasses.fields(ModelFolder)} - {
  "config",
  "tokenizer_file",
  "path",
}
_MAPPING = "albert.encoder.embedding_hidden_mapping_in."
# Keys with the same name and meaning in both configurations.
_SIZES = (
  "vocab_size",
  "hidden_size",
  "num_hidden_layers",
  "num_attention_heads",
  "intermediate_size",
  "max_position_embeddings",
  "type_vocab_size",
  "initializer_range",
  "hidden_dropout_prob",
  "attention_probs_dropout_prob",
)
# ALBERT's additional keys, with transformers' defaults.
_ALBERT_SIZES = {
  "embedding_size": 128,
  "num_hidden_groups": 1,
  "inner_group_num": 1,
}


def parameter_name(name: str, family: str) -> str:
  """Converts the name of a variable to that of a transformers parameter.

  Args:
    name: in Google's layout for "albert", in plain BERT's for "bert".
    family: "albert" or "bert".
  """
  scope, _, kind = name.rpartition("/")
  if scope in _SCOPES[family]:
    scope = _SCOPES[family][scope]
  elif family == "bert":
    scope = scope.replace("/layer_", "/layer/")
  elif "/transformer/" in scope:
    _, _, _, group, inner, part = scope.split("/", 5)
    scope = "albert/encoder/albert_layer_groups/%s/albert_layers/%s/%s" % (
      group.replace("group_", ""),
      inner.replace("inner_group_", ""),
      _ALBERT_BLOCK[part],
    )
  elif scope == "bert/pooler/dense":
    scope = "albert/pooler"
  elif scope.startswith("bert/"):
    scope = "al" + scope
  kind = _KINDS.get(kind, kind)
  if kind.endswith("_embeddings"):
    kind += ".weight"
  return scope.replace("/", ".") + "." + kind


def _turn(name, value):
  """Transposes a kernel: transformers stores it as [out, in]."""
  return value.T if name.endswith("/kernel") else value


def to_plain_bert(
  config: AlbertConfig, weights: Dict[str, np.ndarray]
) -> Tuple[AlbertConfig, Dict[str, np.ndarray]]:
  """Converts weights of albert_zh's layout to those of a BERT.

  Args:
    config: configuration of `weights`.
    weights: arrays by variable name.

  Returns:
    the configuration and weights of the BERT.
  """
  plain = AlbertConfig(
    **dict(config.to_dict(), embedding_size=None, parameter_sharing="none")
  )
  weights = dict(weights)
  projection = weights.pop("bert/embeddings/word_embeddings_2", None)
  if projection is not None:
    weights["bert/embeddings/word_embeddings"] = np.matmul(
      weights["bert/embeddings/word_embeddings"], projection
    )
  unshared = {
    name: value
    for name, value in weights.items()
    if not name.startswith("bert/encoder/")
  }
  for layer in range(config.num_hidden_layers):
    sources, targets = [
      modeling.AlbertModel.layer_scopes(c, layer)[0] for c in (config, plain)
    ]
    for source, target in zip(sources, targets):
      prefix = "bert/encoder/%s/" % source
      unshared.update(
        ("bert/encoder/%s/%s" % (target, name[len(prefix) :]), value)
        for name, value in weights.items()
        if name.startswith(prefix)
      )
  return plain, unshared


def to_pytorch(
  config: AlbertConfig,
  weights: Dict[str, np.ndarray],
  on_top: Optional[Dict[str, heads.Head]] = None,
) -> Tuple[Dict[str, Any], Dict[str, np.ndarray]]:
  """Converts weights to the parameters of transformers.

  Args:
    config: configuration of `weights`.
    weights: arrays by variable name.
    on_top: heads by signature; None for none.

  Returns:
    (content of their `config.json`, arrays by parameter name).

  Raises:
    InputError: transformers has no such model.
  """
  if config.ln_type == "preln":
    raise InputError(
      "ln_type preln cannot be converted: transformers models "
      "normalize after each block, not before"
    )
  if crf.TRANSITIONS in weights:
    raise InputError(
      "a CRF cannot be converted: transformers models label "
      "each token independently; fine-tune without --crf"
    )
  suffix = next(
    filter(None, (head.pytorch_suffix for head in (on_top or {}).values())),
    "Model",
  )
  if suffix == heads.TokenLabels.pytorch_suffix:  # theirs has no pooler
    weights = {
      name: value
      for name, value in weights.items()
      if not name.startswith(_POOLER)
    }
  is_albert = config.layout == "google"
  if not is_albert:
    logging.info(
      "albert_zh's layout becomes a BERT: the projection is folded "
      "into the word embeddings, shared layers are duplicated"
    )
    config, weights = to_plain_bert(config, weights)
  family = "albert" if is_albert else "bert"
  state = {
    parameter_name(name, family): np.ascontiguousarray(_turn(name, value))
    for name, value in weights.items()
  }
  if is_albert and config.embedding_width == config.hidden_size:
    # Then Google's layout has no mapping; transformers always has one.
    state[_MAPPING + "weight"] = np.eye(config.hidden_size, dtype=np.float32)
    state[_MAPPING + "bias"] = np.zeros(config.hidden_size, np.float32)
  theirs = {
    key: getattr(config, key)
    for key in _SIZES + (tuple(_ALBERT_SIZES) if is_albert else ())
  }
  if is_albert:
    theirs["embedding_size"] = config.embedding_width
  if WEIGHTS in weights:
    theirs["num_labels"] = len(weights[WEIGHTS])
  for head in (on_top or {}).values():
    if head.name in _PROBLEMS:
      theirs["problem_type"] = _PROBLEMS[head.name]
  theirs.update(
    model_type=family,
    architectures=[("Albert" if is_albert else "Bert") + suffix],
    hidden_act={"gelu": "gelu_new"}.get(config.hidden_act, config.hidden_act),
    classifier_dropout_prob=0.1,
    classifier_dropout=0.1,
    layer_norm_eps=1e-12,
  )
  return theirs, state


def from_pytorch(
  theirs: Dict[str, Any], state: Dict[str, np.ndarray]
) -> Tuple[AlbertConfig, Dict[str, np.ndarray]]:
  """Converts parameters of transformers to weights.

  Args:
    theirs: content of their `config.json`.
    state: arrays by parameter name.

  Returns:
    (configuration, arrays by variable name).

  Raises:
    InputError: the model is of a different kind, or lacks a parameter.
  """
  config = _config_of(theirs)
  state = _with_current_names(theirs, state)
  mapping = state.get(_MAPPING + "weight")
  if (
    theirs["model_type"] == "albert"
    and mapping is not None
    and config.embedding_width == config.hidden_size
    and not np.array_equal(mapping, np.eye(config.hidden_size))
  ):
    raise InputError(
      "it projects embeddings that are as wide as the layers; "
      "Google's layout has no such projection"
    )
  labels = state.get("classifier.weight")
  reads_pooler = (labels is not None and not labels_tokens(theirs)) or (
    parameter_name(
      modeling.SENTENCE_ORDER + "/output_weights", theirs["model_type"]
    )
    in state
  )
  weights: Dict[str, np.ndarray] = {}
  missing: List[str] = []
  for name, shape in known_variables(
    config, 0 if labels is None else len(labels)
  ):
    parameter = parameter_name(name, theirs["model_type"])
    if parameter in state:
      weights[name] = _turn(name, state[parameter]).astype(np.float32)
      if list(weights[name].shape) != shape:
        raise InputError(
          "%s is %s, but the configuration requires %s"
          % (
            parameter,
            list(state[parameter].shape),
            list(_turn(name, np.empty(shape)).shape),
          )
        )
    elif name.startswith("bert/e"):  # embeddings, encoder
      raise InputError("it lacks %s" % parameter)
    elif name.startswith(_POOLER) and not reads_pooler:
      logging.info("%s is missing but unused: replaced with zeros", parameter)
      weights[name] = np.zeros(shape, np.float32)
    else:
      missing.append(parameter)
  logging.info(
    "%d parameters converted; missing: %s",
    len(weights),
    ", ".join(missing) or "none",
  )
  return config, weights


def _config_of(theirs):
  """Returns the AlbertConfig of their `config.json`."""
  is_albert = theirs.get("model_type") == "albert"
  if not is_albert and theirs.get("model_type") != "bert":
    raise InputError(
      "model type %s: only albert and bert can be converted"
      % theirs.get("model_type")
    )
  if theirs.get("layer_norm_eps", 1e-12) != 1e-12:
    raise InputError(
      "layer_norm_eps is %g: only 1e-12 is supported" % theirs["layer_norm_eps"]
    )
  if theirs.get("hidden_act") == "gelu":
    logging.warning(
      "gelu is replaced with its tanh approximation, which "
      "differs by up to 0.0005"
    )
  values = {
    key: theirs[key] for key in _SIZES + ("hidden_act",) if key in theirs
  }
  if is_albert:
    values.update(
      (key, theirs.get(key, default)) for key, default in _ALBERT_SIZES.items()
    )
  return AlbertConfig(**values)


def _with_current_names(theirs, state):
  """Renames parameters to transformers' current names."""
  # Models without a head do not have the prefix.
  state = {
    **{
      "%s.%s" % (theirs["model_type"], name): value
      for name, value in state.items()
    },
    **state,
  }
  # Names in the first BERTs of PyTorch.
  return {
    name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
      "LayerNorm.beta", "LayerNorm.bias"
    ): value
    for name, value in state.items()
  }


def labels_tokens(theirs: Dict[str, Any]) -> bool:
  """Returns whether their `config.json` is a token classifier's."""
  return _is_of(theirs, heads.TokenLabels)


def _is_of(theirs, head):
  return (theirs.get("architectures") or [""])[0].endswith(head.pytorch_suffix)


def known_variables(
  config: AlbertConfig, num_labels: int
) -> Iterator[Tuple[str, List[int]]]:
  """Yields (name, shape) of the variables of the encoder and all heads."""
  with tf.Graph().as_default():
    inputs = {
      "input_ids": tf.zeros([1, 2], tf.int32),
      "masked_lm_positions": tf.zeros([1, 1], tf.int32),
    }
    model = create_model(config, False, inputs["input_ids"])
    for head in (heads.MaskedLm(), heads.SentenceOrder(), heads.Spans()):
      head.outputs(model, dict(inputs, masked_lm_positions=inputs["input_ids"]))
    if num_labels:
      heads.Classifier(num_labels).outputs(model, inputs)
    for variable in tf.global_variables():
      yield variable.op.name, variable.shape.as_list()


def write_folder(folder: ModelFolder, target: str) -> None:
  """Writes a model in the transformers format.

  Args:
    folder: the model.
    target: the folder to write into.

  Raises:
    InputError: transformers has no such model.
  """
  config, checkpoint = folder.config, folder.checkpoint
  tokenizer = folder.create_tokenizer()  # raises if there is no file
  saved = checkpoints.saved_shapes(checkpoint)
  on_top = heads.restore(saved, folder)
  known = dict(known_variables(config, saved.get(WEIGHTS, [0])[0]))
  checkpoints.check_fits(
    checkpoint,
    {
      name: shape
      for name, shape in known.items()
      if name in saved or name.startswith("bert/")
    },
  )
  unknown = sorted(set(saved) - set(known) - {crf.TRANSITIONS, UNITS})
  if unknown:
    raise InputError(
      "%s: transformers have no counterpart of %s"
      % (checkpoint, ", ".join(unknown))
    )
  weights = heads.Regression.for_use(checkpoints.read_weights(checkpoint))
  weights.pop(UNITS, None)
  own = {"task": folder.task()}
  if crf.TRANSITIONS in weights:
    logging.warning(
      "transformers models label each token independently: the "
      "CRF transitions are only in %s",
      _OWN_FILE,
    )
    own["transitions"] = weights.pop(crf.TRANSITIONS).tolist()
  theirs, state = to_pytorch(config, weights, on_top)
  if folder.labels:
    theirs["id2label"] = {
      str(i): label for i, label in enumerate(folder.labels)
    }
    theirs["label2id"] = {label: i for i, label in enumerate(folder.labels)}
  theirs.update(
    pad_token_id=tokenizer.pad_id,
    bos_token_id=tokenizer.cls_id,
    eos_token_id=tokenizer.sep_id,
  )
  files = {
    "config.json": theirs,
    **transformers_tokenizer.files(folder, tokenizer),
  }
  name = "spiece.model" if folder.is_sentencepiece else "vocab.txt"
  filesystem.write_bytes(
    os.path.join(target, name),
    filesystem.read_bytes(folder.tokenizer_file or ""),
  )
  if folder.vector:
    files.update(sentence_transformers.files(folder))
  content = safetensors_numpy().save(state, metadata={"format": "pt"})
  filesystem.write_bytes(os.path.join(target, "model.safetensors"), content)
  files[_OWN_FILE] = dict(
    own, weights_sha256=hashlib.sha256(content).hexdigest()
  )
  for name, values in files.items():
    path = os.path.join(target, name)
    filesystem.make_folder(os.path.dirname(path))
    filesystem.write_json(path, values)


def read_folder(
  source: str, target: str, do_lower_case: Optional[bool] = None
) -> None:
  """Converts a transformers model to a folder of this project.

  Args:
    source: the folder of the model.
    target: the folder to write into.
    do_lower_case: the default if the model's folder lacks it; None for True.

  Raises:
    InputError: the model cannot be read, or is of a different kind.
  """
  theirs, state = read_pytorch_folder(source)
  try:
    config, weights = from_pytorch(theirs, state)
  except InputError as error:
    raise InputError("%s: %s" % (source, error)) from error
  path = os.path.join(source, "tokenizer_config.json")
  settings = filesystem.read_json(path) if filesystem.exists(path) else {}
  own = _own_description(source, theirs)
  if "transitions" in own:
    weights[crf.TRANSITIONS] = np.array(own["transitions"], np.float32)
  task = own.get("task") or dict(
    _task(source, theirs, config, weights),
    do_lower_case=settings.get("do_lower_case", do_lower_case is not False),
  )
  ModelFolder(config, _tokenizer_file(source, target), **task).write(target)
  checkpoints.write_checkpoint(target, "model.ckpt", weights)


def _own_description(source, theirs):
  """Returns the data of `write_folder`, if weights and labels are the same."""
  path, weights = [
    os.path.join(source, name) for name in (_OWN_FILE, "model.safetensors")
  ]
  if not filesystem.exists(path):
    return {}
  own = filesystem.read_json(path)
  task = own.get("task") if isinstance(own, dict) else None
  if not isinstance(task, dict) or not _TASK_KEYS.issuperset(task):
    raise InputError("%s: not the description of a model" % path)
  labels = {str(i): x for i, x in enumerate(task.get("labels") or [])}
  digest = filesystem.exists(weights) and filesystem.sha256(weights)
  if (own.get("weights_sha256"), theirs.get("id2label", {})) != (
    digest,
    labels,
  ):
    logging.warning("%s is ignored: different weights or labels", path)
    return {}
  return own


def _tokenizer_file(source, target):
  """Returns the SentencePiece model, or a vocabulary written into `target`."""
  model_file = os.path.join(source, "spiece.model")
  if filesystem.exists(model_file):
    return model_file
  tokens = transformers_tokenizer.read_vocabulary(source)
  if not tokens:
    return None
  path = os.path.join(target, "vocab.txt")
  filesystem.write_lines(path, tokens)
  return path


def _task(source, theirs, config, weights):
  """Returns values of a ModelFolder that describe the task, as a dict."""
  if WEIGHTS not in weights:
    return sentence_transformers.read(source, config.max_position_embeddings)
  length = {"max_seq_length": config.max_position_embeddings}
  if len(weights[WEIGHTS]) == 1 and _is_of(theirs, heads.Regression):
    return dict(length, head=heads.Regression.name, labels=[])
  if "id2label" not in theirs:
    return {}
  labels = theirs["id2label"]
  if len(labels) != len(weights[WEIGHTS]):
    raise InputError(
      "%s has %d labels, the classifier %d"
      % (source, len(labels), len(weights[WEIGHTS]))
    )
  found = dict(length, labels=[labels[key] for key in sorted(labels, key=int)])
  if theirs.get("problem_type") == _PROBLEMS[heads.MultiLabel.name]:
    found["head"] = heads.MultiLabel.name
  if labels_tokens(theirs):
    found.update(head=heads.TokenLabels.name, crf=False, by_character=False)
  return found


def safetensors_numpy() -> Any:
  """Returns the module `safetensors.numpy`, an optional dependency."""
  try:
    import safetensors.numpy
  except ImportError as error:
    raise InputError(
      "safetensors is not installed: pip install '.[pytorch]'"
    ) from error
  return safetensors.numpy


def read_pytorch_folder(
  path: str,
) -> Tuple[Dict[str, Any], Dict[str, np.ndarray]]:
  """Returns (content of config.json, arrays by parameter name)."""
  config, weights, pickled = [
    os.path.join(path, name)
    for name in ("config.json", "model.safetensors", "pytorch_model.bin")
  ]
  if not tf.io.gfile.exists(config):
    raise InputError("%s has no config.json" % path)
  theirs = filesystem.read_json(config)
  if not isinstance(theirs, dict):
    raise InputError("%s: not a model's configuration" % config)
  if tf.io.gfile.exists(weights):
    read = safetensors_numpy().load
  elif tf.io.gfile.exists(pickled):
    weights, read = pickled, _read_pickled
  else:
    raise InputError(
      "%s has neither model.safetensors nor pytorch_model.bin" % path
    )
  try:
    return theirs, read(filesystem.read_bytes(weights))
  except InputError:
    raise
  except Exception as error:  # the type depends on the library
    raise InputError(
      "%s cannot be read as weights: %s" % (weights, str(error).split("\n")[0])
    ) from error


def _read_pickled(content):
  try:
    import torch
  except ImportError as error:
    raise InputError(
      "pytorch_model.bin needs PyTorch: pip install torch"
    ) from error
  state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
  return {name: value.detach().float().numpy() for name, value in state.items()}
