"""The configuration of a model; without TensorFlow."""

import collections

from albert.errors import InputError
from albert.files import filesystem

ACTIVATIONS = ("gelu", "gelu_new", "linear", "relu", "tanh")

# Keys of other people's configuration files that change nothing here.
_LEGACY_KEYS = frozenset([
    "directionality", "pooler_fc_size", "pooler_num_attention_heads",
    "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type",
    "net_structure_type", "gap_size", "num_memory_blocks",
    "down_scale_factor", "layers_to_keep"])
_REQUIRED_KEYS = ("vocab_size", "hidden_size", "num_hidden_layers",
                  "num_attention_heads", "intermediate_size", "hidden_act")
_DEFAULTS = collections.OrderedDict([
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
])


class AlbertConfig:
  """The sizes and choices that define a model.

  Attributes: the keys of the JSON file (docs/pretraining.md has a table).
    `embedding_size` None means no factorization: embeddings are `hidden_size`
    wide and there is no projection. `parameter_sharing` is "all", "attention",
    "ffn" or "none" in albert_zh's layout, where `num_hidden_groups` is None,
    and None in Google's, where the number of groups alone decides.
  """

  def __init__(self, **values):
    """Takes the keys of the JSON file as keywords.

    Raises:
      InputError: a key is unknown, missing, or its value does not fit.
    """
    unknown = sorted(
        set(values) - set(_REQUIRED_KEYS) - set(_DEFAULTS) - _LEGACY_KEYS)
    if unknown:
      raise InputError("unknown key in the configuration: %s"
                       % ", ".join(unknown))
    missing = [key for key in _REQUIRED_KEYS if key not in values]
    if missing:
      raise InputError("missing key in the configuration: %s"
                       % ", ".join(missing))
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
  def from_dict(cls, values):
    """Makes a configuration from a dict with the keys of the JSON file."""
    return cls(**values)

  @classmethod
  def from_json_file(cls, path):
    """Reads a configuration; an InputError names the file."""
    values = filesystem.read_json(path)
    try:
      return cls.from_dict(values)
    except (ValueError, TypeError) as error:
      raise InputError("%s: %s" % (path, error)) from error

  def to_dict(self):
    """Returns the keys that are set; `from_dict` takes them back."""
    return collections.OrderedDict(
        (key, getattr(self, key)) for key in _REQUIRED_KEYS + tuple(_DEFAULTS)
        if getattr(self, key) is not None)

  @property
  def layout(self):
    """Whose variable names the model has: "google" or "albert_zh"."""
    return "google" if self.num_hidden_groups else "albert_zh"

  @property
  def embedding_width(self):
    """int, E: width of the word embeddings, factorized or not."""
    return self.embedding_size or self.hidden_size

  def summary(self):
    """Returns in a few words what model it is."""
    return "%s layout, %d layers of %d, %s, sharing %s" % (
        self.layout, self.num_hidden_layers, self.hidden_size, self.ln_type,
        self.parameter_sharing if self.layout == "albert_zh" else
        "within %d group(s)" % self.num_hidden_groups)

  def _check(self):
    """Raises an InputError for a value that no model can be built from."""
    counts = ["vocab_size", "hidden_size", "num_hidden_layers",
              "num_attention_heads", "intermediate_size",
              "max_position_embeddings", "type_vocab_size"]
    counts += [key for key in ("embedding_size", "num_hidden_groups",
                               "inner_group_num") if getattr(self, key)
               is not None]
    for key in counts:
      value = getattr(self, key)
      if not isinstance(value, int) or value < 1:
        raise InputError("%s must be a positive integer, not %r" % (key, value))
    for key in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
      if not 0 <= getattr(self, key) < 1:
        raise InputError("%s must be at least 0 and less than 1, not %r"
                         % (key, getattr(self, key)))
    if not self.initializer_range > 0:
      raise InputError("initializer_range must be greater than 0, not %r"
                       % self.initializer_range)
    if self.hidden_size % self.num_attention_heads:
      raise InputError("hidden_size %d is not a multiple of "
                       "num_attention_heads %d" % (
                           self.hidden_size, self.num_attention_heads))
    for key, choices in (
        ("hidden_act", list(ACTIVATIONS)),
        ("ln_type", ["postln", "preln"]),
        ("parameter_sharing", [None, "all", "attention", "ffn", "none"])):
      if getattr(self, key) not in choices:
        raise InputError("%s must be one of %s, not %r" % (
            key, ", ".join(filter(None, choices)), getattr(self, key)))
    if self.layout == "google":
      if self.num_hidden_groups > self.num_hidden_layers:
        raise InputError("num_hidden_groups %d is more than num_hidden_layers "
                         "%d" % (self.num_hidden_groups,
                                 self.num_hidden_layers))
      fitting = {None: True, "all": self.num_hidden_groups == 1,
                 "none": self.num_hidden_groups == self.num_hidden_layers}
      if not fitting.get(self.parameter_sharing):
        raise InputError(
            "parameter_sharing %r contradicts num_hidden_groups %d, which "
            "alone decides in Google's layout: leave it out" % (
                self.parameter_sharing, self.num_hidden_groups))
    elif self.inner_group_num is not None:
      raise InputError("inner_group_num belongs to Google's layout and needs "
                       "num_hidden_groups")
