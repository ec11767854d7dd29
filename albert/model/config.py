"""The configuration of a model; does not import TensorFlow."""

import collections
import os
from typing import Any, Dict, Optional

from albert.errors import InputError
from albert.files import filesystem

ACTIVATIONS = ("gelu", "gelu_new", "linear", "relu", "tanh")

# Keys of BERT's and Google's configurations that have no effect.
_LEGACY_KEYS = frozenset(
  [
    "directionality",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
    "net_structure_type",
    "gap_size",
    "num_memory_blocks",
    "down_scale_factor",
    "layers_to_keep",
  ]
)
_REQUIRED_KEYS = (
  "vocab_size",
  "hidden_size",
  "num_hidden_layers",
  "num_attention_heads",
  "intermediate_size",
  "hidden_act",
)
_DEFAULTS = collections.OrderedDict(
  [
    ("embedding_size", None),
    ("hidden_dropout_prob", 0.0),
    ("attention_probs_dropout_prob", 0.0),
    ("max_position_embeddings", 512),
    ("type_vocab_size", 2),
    ("initializer_range", 0.02),
    ("ln_type", "postln"),
    ("parameter_sharing", None),
    ("num_hidden_groups", None),
    ("inner_group_num", None),
  ]
)


class AlbertConfig:
  """The hyperparameters of a model.

  Attributes: the keys of the JSON file; see the table in docs/pretraining.md.
    `embedding_size` None means no factorization: embeddings are `hidden_size`
    wide and there is no projection. `parameter_sharing` is "all", "attention",
    "ffn" or "none" in albert_zh's layout, where `num_hidden_groups` is None. It
    is None in Google's layout, where `num_hidden_groups` determines sharing.
  """

  vocab_size: int
  hidden_size: int
  num_hidden_layers: int
  num_attention_heads: int
  intermediate_size: int
  hidden_act: str
  embedding_size: Optional[int]
  hidden_dropout_prob: float
  attention_probs_dropout_prob: float
  max_position_embeddings: int
  type_vocab_size: int
  initializer_range: float
  ln_type: str
  parameter_sharing: Optional[str]
  num_hidden_groups: Any  # int in Google's layout, otherwise None
  inner_group_num: Any

  def __init__(self, **values: Any):
    """Takes the keys of the JSON file as keyword arguments.

    Raises:
      InputError: a key is unknown or missing, or has an invalid value.
    """
    if "share_type" in values:  # as in albert_pytorch
      values["parameter_sharing"] = str(values.pop("share_type")).lower()
    unknown = sorted(
      set(values) - set(_REQUIRED_KEYS) - set(_DEFAULTS) - _LEGACY_KEYS
    )
    if unknown:
      raise InputError(
        "unknown key in the configuration: %s" % ", ".join(unknown)
      )
    missing = [key for key in _REQUIRED_KEYS if key not in values]
    if missing:
      raise InputError(
        "missing key in the configuration: %s" % ", ".join(missing)
      )
    for key in _REQUIRED_KEYS:
      setattr(self, key, values[key])
    for key, default in _DEFAULTS.items():
      setattr(self, key, values.get(key, default))
    if self.num_hidden_groups and self.inner_group_num is None:
      self.inner_group_num = 1
    self._check()
    if self.layout == "google":
      self.parameter_sharing = None
    elif self.parameter_sharing is None:
      self.parameter_sharing = "all" if self.embedding_size else "none"

  @classmethod
  def from_dict(cls, values: Dict[str, Any]) -> "AlbertConfig":
    """Makes a configuration from a dict with the keys of the JSON file."""
    return cls(**values)

  @classmethod
  def from_json_file(cls, path: str) -> "AlbertConfig":
    """Reads a configuration; an InputError names the file."""
    values = filesystem.read_json(path)
    try:
      if "model_type" in values or "architectures" in values:
        raise InputError(
          "a transformers configuration; convert the model "
          "with " + filesystem.FROM_PYTORCH % (os.path.dirname(path) or ".")
        )
      return cls.from_dict(values)
    except (ValueError, TypeError) as error:
      raise InputError("%s: %s" % (path, error)) from error

  def to_dict(self) -> Dict[str, Any]:
    """Returns the keys that are not None; the inverse of `from_dict`."""
    return collections.OrderedDict(
      (key, getattr(self, key))
      for key in _REQUIRED_KEYS + tuple(_DEFAULTS)
      if getattr(self, key) is not None
    )

  @property
  def layout(self) -> str:
    """The variable layout: "google" or "albert_zh"."""
    return "google" if self.num_hidden_groups else "albert_zh"

  @property
  def embedding_width(self) -> int:
    """E, the width of the word embeddings, factorized or not."""
    return self.embedding_size or self.hidden_size

  def summary(self) -> str:
    """Describes the model in a few words."""
    sharing = self.parameter_sharing
    if self.num_hidden_groups:
      sharing = "within %d group(s)" % self.num_hidden_groups
    return "%s layout, %d layers of %d, %s, sharing %s" % (
      self.layout,
      self.num_hidden_layers,
      self.hidden_size,
      self.ln_type,
      sharing,
    )

  def _check(self):
    """Raises an InputError for invalid values."""
    counts = [
      "vocab_size",
      "hidden_size",
      "num_hidden_layers",
      "num_attention_heads",
      "intermediate_size",
      "max_position_embeddings",
      "type_vocab_size",
    ]
    counts += [
      key
      for key in ("embedding_size", "num_hidden_groups", "inner_group_num")
      if getattr(self, key) is not None
    ]
    for key in counts:
      value = getattr(self, key)
      if not isinstance(value, int) or value < 1:
        raise InputError("%s must be a positive integer, not %r" % (key, value))
    for key in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
      if not 0 <= getattr(self, key) < 1:
        raise InputError(
          "%s must be at least 0 and less than 1, not %r"
          % (key, getattr(self, key))
        )
    if not self.initializer_range > 0:
      raise InputError(
        "initializer_range must be greater than 0, not %r"
        % self.initializer_range
      )
    if self.hidden_size % self.num_attention_heads:
      raise InputError(
        "hidden_size %d is not a multiple of "
        "num_attention_heads %d" % (self.hidden_size, self.num_attention_heads)
      )
    for key, choices in (
      ("hidden_act", list(ACTIVATIONS)),
      ("ln_type", ["postln", "preln"]),
      ("parameter_sharing", [None, "all", "attention", "ffn", "none"]),
    ):
      if getattr(self, key) not in choices:
        raise InputError(
          "%s must be one of %s, not %r"
          % (key, ", ".join(filter(None, choices)), getattr(self, key))
        )
    if self.layout == "google":
      if self.num_hidden_groups > self.num_hidden_layers:
        raise InputError(
          "num_hidden_groups %d exceeds num_hidden_layers "
          "%d" % (self.num_hidden_groups, self.num_hidden_layers)
        )
      fitting = {
        None: True,
        "all": self.num_hidden_groups == 1,
        "none": self.num_hidden_groups == self.num_hidden_layers,
      }
      if not fitting.get(self.parameter_sharing):
        raise InputError(
          "parameter_sharing %r contradicts num_hidden_groups %d, which "
          "determines sharing in Google's layout: omit it"
          % (self.parameter_sharing, self.num_hidden_groups)
        )
    elif self.inner_group_num is not None:
      raise InputError(
        "inner_group_num belongs to Google's layout and needs num_hidden_groups"
      )
