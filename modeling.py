"""ALBERT: configuration, encoder, masked-LM and sentence-order heads.

The paper: Lan et al., "ALBERT: A Lite BERT for Self-supervised Learning of
Language Representations" (arXiv:1909.11942). This file has the variable layout
of the albert_zh checkpoints; `modeling_google.py` has Google's.

Dimensions in comments:
  B batch, S sequence, N heads, D head size, H hidden (N * D), E embedding,
  V vocabulary, P predictions.
"""

import collections
import functools
import math

import tensorflow.compat.v1 as tf
from absl import logging

from albert.errors import InputError
from albert.files import filesystem

# One mode on TF 1.15 and 2.15, set here because every graph passes through.
tf.disable_eager_execution()
tf.enable_resource_variables()

MASK_BIAS = -10000.0
# From here on, training on a CPU handles attention one example at a time.
LONG_SEQUENCE = 256


@tf.custom_gradient
def gelu(x):
  """GELU in its tanh approximation, which released models were trained with.

  Hendrycks & Gimpel, arXiv:1606.08415, section 2: `0.5 x (1 + tanh(u))` with
  `u = sqrt(2 / pi) (x + 0.044715 x^3)`. As `0.5 (1 + tanh(u))` is
  `sigmoid(2 u)`, fewer passes over memory do, and its own gradient keeps two
  tensors of the size of `x` where automatic differentiation keeps six.

  Args:
    x: float tensor.

  Returns:
    float tensor of the shape of `x`.
  """
  a = 2.0 * math.sqrt(2.0 / math.pi)
  b = 0.044715 * a
  gate = tf.sigmoid(x * (a + b * tf.square(x)))

  def gradient(dy):
    slope = x * (a + 3.0 * b * tf.square(x))
    return dy * gate * (1.0 + slope * (1.0 - gate))

  return x * gate, gradient


ACTIVATIONS = {
    "gelu": gelu,
    "gelu_new": gelu,
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "linear": tf.identity,
}

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
        ("hidden_act", sorted(ACTIVATIONS)),
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


def get_shape_list(tensor, expected_rank, name):
  """Returns the shape as a list: ints where static, scalar tensors elsewhere.

  Raises:
    ValueError: the tensor has a different rank.
  """
  static = tensor.shape.as_list()
  if len(static) != expected_rank:
    raise ValueError("%s must have rank %d, but its shape is %s" % (
        name, expected_rank, tensor.shape))
  dynamic = tf.shape(tensor)
  return [dynamic[i] if size is None else size
          for i, size in enumerate(static)]


def initializer(config):
  """Normal, truncated at two standard deviations of `initializer_range`."""
  return tf.truncated_normal_initializer(stddev=config.initializer_range)


def bfloat16_matmul(x, y, **kwargs):
  """tf.matmul of float32 tensors in bfloat16; the result is float32 again.

  So are the gradients. What is not a matrix multiplication is not rounded.
  """
  product = tf.matmul(tf.cast(x, tf.bfloat16), tf.cast(y, tf.bfloat16),
                      **kwargs)
  return tf.cast(product, tf.float32)


def dense(x, units, config, scope, activation=None, matmul=tf.matmul):
  """A fully connected layer with variables `scope/kernel`, `scope/bias`.

  Args:
    x: float [M, K].
    units: int, width of the output.
    config: AlbertConfig.
    scope: str, variable scope; called again, it uses the same variables.
    activation: name in ACTIVATIONS, or None.
    matmul: `tf.matmul`, or a function to use instead.

  Returns:
    float [M, units].
  """
  with tf.variable_scope(scope, reuse=tf.AUTO_REUSE):
    kernel = tf.get_variable("kernel", [x.shape.as_list()[-1], units],
                             initializer=initializer(config))
    bias = tf.get_variable("bias", [units],
                           initializer=tf.zeros_initializer())
    x = tf.nn.bias_add(matmul(x, kernel), bias)
    return ACTIVATIONS[activation](x) if activation else x


def layer_norm(x, scope):
  """Layer normalization over the last axis (arXiv:1607.06450), epsilon 1e-12.

  Args:
    x: float [..., K].
    scope: str, variable scope of `beta` and `gamma`, both [K].

  Returns:
    float tensor of the shape of `x`.
  """
  width = x.shape.as_list()[-1]
  with tf.variable_scope(scope, reuse=tf.AUTO_REUSE):
    beta = tf.get_variable("beta", [width], initializer=tf.zeros_initializer())
    gamma = tf.get_variable("gamma", [width], initializer=tf.ones_initializer())
    mean, variance = tf.nn.moments(x, axes=[-1], keep_dims=True)
    return tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-12)


def recompute(block, x):
  """Returns `block(x)`; its backward pass runs the block a second time.

  Only `x` is kept in between, not what the block computes on the way (Chen et
  al., arXiv:1604.06174). The block must compute the same both times: dropout
  has to be stateless.

  Args:
    block: function of a float tensor that returns a float tensor; it uses
      variables.
    x: float tensor.
  """
  scope = tf.get_variable_scope()

  @tf.custom_gradient
  def recomputed(x):
    def gradient(dy, variables=()):
      # Not before the gradient is there, or all blocks would run at once.
      with tf.control_dependencies([dy]):
        again = tf.stop_gradient(x)
      with tf.variable_scope(scope, reuse=True):
        y = block(again)
      gradients = tf.gradients(y, [again] + list(variables), dy)
      return gradients[0], gradients[1:]

    return block(x), gradient

  return recomputed(x)


# Variable scopes of the parts of one transformer block.
BlockScopes = collections.namedtuple("BlockScopes", [
    "attention",  # has query, key, value
    "attention_output", "attention_norm",
    "intermediate", "output", "output_norm"])


def load_config(path, max_seq_length=None, tokenizer=None):
  """Reads a configuration and says what it stands for.

  Args:
    path: str, JSON file.
    max_seq_length: int, sequence length the model must allow.
    tokenizer: whose ids the embedding table must hold.

  Returns:
    AlbertConfig.

  Raises:
    InputError: something does not fit.
  """
  config = AlbertConfig.from_json_file(path)
  logging.info(
      "%s: %s layout, %d layers of %d, %s, sharing %s", path, config.layout,
      config.num_hidden_layers, config.hidden_size, config.ln_type,
      config.parameter_sharing if config.layout == "albert_zh" else
      "within %d group(s)" % config.num_hidden_groups)
  if max_seq_length and max_seq_length > config.max_position_embeddings:
    raise InputError("--max_seq_length %d is more than the %d positions of %s"
                     % (max_seq_length, config.max_position_embeddings, path))
  if tokenizer and tokenizer.vocab_size != config.vocab_size:
    raise InputError(
        "the vocabulary has %d entries, but %s says vocab_size %d: use the "
        "vocabulary the model was made with" % (
            tokenizer.vocab_size, path, config.vocab_size))
  return config


class AlbertModel:
  """The encoder in albert_zh's variable layout, with its pretraining heads.

  Attributes:
    config: AlbertConfig.
    input_mask: int [B, S], 1 for tokens and 0 for padding.
  """

  def __init__(self, config, is_training, input_ids, input_mask=None,
               token_type_ids=None, use_one_hot_embeddings=False,
               recompute_grads=False, matmul=tf.matmul):
    """Builds the encoder.

    Args:
      config: AlbertConfig.
      is_training: bool, whether to drop out.
      input_ids: int [B, S].
      input_mask: int [B, S], 1 for tokens and 0 for padding; None for all 1.
      token_type_ids: int [B, S], segment of each token; None for all 0.
      use_one_hot_embeddings: bool, look embeddings up by a matrix product,
        which is faster on a TPU.
      recompute_grads: bool, compute each block again in the backward pass
        instead of keeping what it computes.
      matmul: what multiplies matrices: `tf.matmul`, or a faster function.

    Raises:
      ValueError: `input_ids` is not of rank 2 or S is too large for `config`.
    """
    self.config = config
    self._dropout_seed = self._make_dropout_seed(input_ids) if (
        is_training) else None
    self._use_one_hot_embeddings = use_one_hot_embeddings
    self._matmul = matmul
    self._dense = functools.partial(dense, config=config, matmul=matmul)
    self._batch, self._sequence = get_shape_list(input_ids, 2, "input_ids")
    if (isinstance(self._sequence, int) and
        self._sequence > config.max_position_embeddings):
      raise ValueError("sequence length %d is more than "
                       "max_position_embeddings %d" % (
                           self._sequence, config.max_position_embeddings))
    self._one_example_at_a_time = (
        is_training and not use_one_hot_embeddings and
        isinstance(self._sequence, int) and self._sequence >= LONG_SEQUENCE and
        not tf.config.experimental.list_physical_devices("GPU"))
    if input_mask is None:
      input_mask = tf.ones_like(input_ids)
    self.input_mask = input_mask
    if token_type_ids is None:
      token_type_ids = tf.zeros_like(input_ids)

    with tf.variable_scope("bert", reuse=tf.AUTO_REUSE):
      x = self._embed(input_ids, token_type_ids)  # [B*S, H]
      self._embedding_output = x
      mask_bias = tf.reshape(
          (1.0 - tf.cast(input_mask, tf.float32)) * MASK_BIAS,
          [self._batch, 1, 1, self._sequence])
      self._layers = []
      with tf.variable_scope("encoder"):
        for layer in range(config.num_hidden_layers):
          for inner, scopes in enumerate(self.layer_scopes(config, layer)):
            block = functools.partial(
                self._block, mask_bias=mask_bias, scopes=scopes,
                salt=4 * (layer * (config.inner_group_num or 1) + inner))
            x = recompute(block, x) if recompute_grads else block(x)
          self._layers.append(x)
      first_tokens = tf.squeeze(self.get_sequence_output()[:, 0:1, :], [1])
      self._pooled_output = self._dense(
          first_tokens, config.hidden_size, scope="pooler/dense",
          activation="tanh")

  def get_embedding_table(self):
    """Returns the word embeddings, float [V, E]."""
    return self._embedding_table

  def get_embedding_output(self):
    """Returns what the first layer reads, float [B, S, H]."""
    return self._to_3d(self._embedding_output)

  def get_all_encoder_layers(self):
    """Returns the output of each layer, a list of float [B, S, H]."""
    return [self._to_3d(x) for x in self._layers]

  def get_sequence_output(self):
    """Returns the output of the last layer, float [B, S, H]."""
    return self._to_3d(self._layers[-1])

  def get_pooled_output(self):
    """Returns tanh(dense(first token)), float [B, H]."""
    return self._pooled_output

  def masked_lm_logits(self, positions):
    """Scores every vocabulary entry at the given positions.

    Args:
      positions: int [B, P], positions in the sequence.

    Returns:
      float [B*P, V].
    """
    offsets = tf.reshape(tf.range(self._batch) * self._sequence, [-1, 1])
    x = tf.gather(self._layers[-1], tf.reshape(
        tf.cast(positions, tf.int32) + offsets, [-1]))  # [B*P, H]
    with tf.variable_scope("cls/predictions", reuse=tf.AUTO_REUSE):
      x = self._dense(x, self._masked_lm_width(), scope="transform/dense",
                      activation=self.config.hidden_act)
      x = layer_norm(x, "transform/LayerNorm")
      bias = tf.get_variable("output_bias", [self.config.vocab_size],
                             initializer=tf.zeros_initializer())
      x = self._to_embedding_width(x)  # [B*P, E]
      return tf.nn.bias_add(
          self._matmul(x, self._embedding_table, transpose_b=True), bias)

  def sentence_order_logits(self):
    """Scores "in order" against "swapped".

    Returns:
      float [B, 2].
    """
    with tf.variable_scope("cls/seq_relationship", reuse=tf.AUTO_REUSE):
      weights = tf.get_variable("output_weights", [2, self.config.hidden_size],
                                initializer=initializer(self.config))
      bias = tf.get_variable("output_bias", [2],
                             initializer=tf.zeros_initializer())
      return tf.nn.bias_add(
          tf.matmul(self._pooled_output, weights, transpose_b=True), bias)

  def dropout(self, x, rate, salt, example=0):
    """In training, dropout by a mask that is the same when drawn again.

    The mask is a function of the global step, of the examples and of `salt`.
    Replicas, and slices of a batch, have other examples and so other masks.

    Args:
      x: float tensor.
      rate: float, share of values set to 0; the others grow by 1 / (1 - rate).
      salt: int, unique per dropout site.
      example: int or int32 scalar, unique per example if they drop one by one.

    Returns:
      float tensor of the shape of `x`.
    """
    if not rate or self._dropout_seed is None:
      return x
    salt += 65536 * (tf.get_default_graph().seed or 0)
    draw = tf.random.stateless_uniform(
        tf.shape(x), seed=tf.stack([self._dropout_seed + 7919 * example,
                                    salt % 2**31]))
    return x * (tf.cast(draw >= rate, x.dtype) / (1.0 - rate))

  @staticmethod
  def _make_dropout_seed(input_ids):
    """Returns an int32 scalar that differs between steps and batches."""
    step = tf.cast(tf.train.get_or_create_global_step(), tf.int32)
    weights = 1 + 2 * tf.range(tf.size(input_ids), dtype=tf.int32)
    return step + 65599 * tf.reduce_sum(
        weights * tf.cast(tf.reshape(input_ids, [-1]), tf.int32))

  @staticmethod
  def layer_scopes(config, layer):
    """Names the variables of a layer; equal names are shared variables.

    Args:
      config: AlbertConfig.
      layer: int, 0 for the first.

    Returns:
      list of BlockScopes, the blocks to run one after the other.
    """
    sharing = config.parameter_sharing
    shared_attention = sharing in ("all", "attention")
    shared_ffn = sharing in ("all", "ffn")
    root = "layer_%d" % layer if sharing == "none" else "layer_shared"
    own = "" if sharing == "none" else "_%d" % layer
    attention = root + "/attention" + ("" if shared_attention else own)
    suffix = "" if shared_ffn else own
    output = root + "/output" + suffix
    return [BlockScopes(
        attention=attention + "/self",
        attention_output=attention + "/output/dense",
        attention_norm=attention + "/output/LayerNorm",
        intermediate=root + "/intermediate" + suffix + "/dense",
        output=output + "/dense",
        output_norm=output + "/LayerNorm")]

  def _embed(self, input_ids, token_type_ids):
    """Returns the input of the first layer, [B*S, H]."""
    config = self.config
    with tf.variable_scope("embeddings"):
      x = self._look_up_words(input_ids)  # [B*S, E]
      self._projection = None
      if config.embedding_size:
        self._projection = tf.get_variable(
            "word_embeddings_2", [config.embedding_size, config.hidden_size],
            initializer=initializer(config))
        x = self._matmul(x, self._projection)
      return self._finish_embedding(x, token_type_ids)

  def _look_up_words(self, input_ids):
    """Returns the word embeddings of `input_ids`, [B*S, E]."""
    self._embedding_table = tf.get_variable(
        "word_embeddings",
        [self.config.vocab_size, self.config.embedding_width],
        initializer=initializer(self.config))
    ids = tf.reshape(input_ids, [-1])
    if self._use_one_hot_embeddings:
      return tf.matmul(tf.one_hot(ids, self.config.vocab_size),
                       self._embedding_table)
    return tf.gather(self._embedding_table, ids)

  def _finish_embedding(self, x, token_type_ids):
    """Adds segments and positions to [B*S, K], normalizes and drops out."""
    config = self.config
    width = x.shape.as_list()[-1]
    segments = tf.get_variable("token_type_embeddings",
                               [config.type_vocab_size, width],
                               initializer=initializer(config))
    positions = tf.get_variable("position_embeddings",
                                [config.max_position_embeddings, width],
                                initializer=initializer(config))
    # With so few segments a matrix product is always faster than a gather.
    x += tf.matmul(tf.one_hot(tf.reshape(token_type_ids, [-1]),
                              config.type_vocab_size), segments)
    x = self._to_3d(x) + tf.reshape(
        tf.slice(positions, [0, 0], [self._sequence, width]),
        [1, self._sequence, width])
    x = layer_norm(tf.reshape(x, [-1, width]), "LayerNorm")
    return self.dropout(x, config.hidden_dropout_prob, salt=-1)

  def _block(self, x, mask_bias, scopes, salt):
    """One transformer block, post-LN or pre-LN: [B*S, H] -> [B*S, H]."""
    config = self.config
    pre_norm = config.ln_type == "preln"

    y = layer_norm(x, scopes.attention_norm) if pre_norm else x
    y = self._attend(y, mask_bias, scopes.attention, salt)
    y = self._dense(y, config.hidden_size, scope=scopes.attention_output)
    x += self.dropout(y, config.hidden_dropout_prob, salt + 1)
    if not pre_norm:
      x = layer_norm(x, scopes.attention_norm)

    y = layer_norm(x, scopes.output_norm) if pre_norm else x
    y = self._dense(y, config.intermediate_size, scope=scopes.intermediate,
                    activation=config.hidden_act)
    y = self._dense(y, config.hidden_size, scope=scopes.output)
    x += self.dropout(y, config.hidden_dropout_prob, salt + 2)
    return x if pre_norm else layer_norm(x, scopes.output_norm)

  def _attend(self, x, mask_bias, scope, salt):
    """Multi-head self-attention (arXiv:1706.03762): [B*S, H] -> [B*S, H]."""
    config = self.config
    heads = config.num_attention_heads
    head_size = config.hidden_size // heads

    def split_heads(name):
      y = self._dense(x, config.hidden_size, scope=scope + "/" + name)
      y = tf.reshape(y, [self._batch, self._sequence, heads, head_size])
      return tf.transpose(y, [0, 2, 1, 3])  # [B, N, S, D]

    query, key, value = map(split_heads, ("query", "key", "value"))
    context = self._attention(query * (1.0 / math.sqrt(head_size)), key, value,
                              mask_bias, salt)
    return tf.reshape(tf.transpose(context, [0, 2, 1, 3]),
                      [-1, config.hidden_size])

  def _attention(self, query, key, value, mask_bias, salt):
    """Returns softmax(query key^T + mask_bias) value, all [B, N, S, D].

    [B, N, S, S] is much to keep and little work to compute again, so the
    backward pass does that. A CPU handles long sequences one example at a time:
    then the scores, many times the size of all else, never leave its cache.
    """
    rate = self.config.attention_probs_dropout_prob
    matmul = self._matmul

    def dropout(x, example):
      return self.dropout(x, rate, salt, example)

    def transposed(x):
      return tf.transpose(x, [0, 1, 3, 2] if x.shape.ndims == 4 else [0, 2, 1])

    def probabilities(query, key, mask_bias):
      return tf.nn.softmax(matmul(query, key, transpose_b=True) + mask_bias)

    def forward(example, query, key, value, mask_bias):
      probs = probabilities(query, key, mask_bias)
      return matmul(dropout(probs, example), value)

    def backward(example, query, key, value, mask_bias, context, gradient):
      probs = probabilities(query, key, mask_bias)
      probs_gradient = dropout(
          matmul(gradient, value, transpose_b=True), example)
      # The sum of probs * probs_gradient, but over D instead of S.
      mean = tf.reduce_sum(gradient * context, -1, keepdims=True)
      scores_gradient = probs * (probs_gradient - mean)
      # TF 1.15 is faster with [D, S] [S, S] than with the transpose of a large
      # matrix, [S, S]^T [S, D].
      return (matmul(scores_gradient, key),
              transposed(matmul(transposed(query), scores_gradient)),
              transposed(matmul(transposed(gradient),
                                dropout(probs, example))))

    def run(function, outputs, *tensors):
      if not self._one_example_at_a_time:
        return function(0, *tensors)
      return tf.map_fn(
          lambda slices: function(*slices),
          (tf.range(self._batch),) + tensors, outputs, parallel_iterations=1,
          back_prop=False)

    @tf.custom_gradient
    def attention(query, key, value):
      context = run(forward, tf.float32, query, key, value, mask_bias)

      def gradient(dy):
        # Not before the gradient is there, or all layers would run at once.
        with tf.control_dependencies([dy]):
          again = [tf.identity(x) for x in (query, key, value, mask_bias)]
        return run(backward, (tf.float32,) * 3, *(again + [context, dy]))

      return context, gradient

    return attention(query, key, value)

  def _masked_lm_width(self):
    return self.config.hidden_size

  def _to_embedding_width(self, x):
    """Takes the masked-LM transform, [M, H], back to [M, E]."""
    if self._projection is None:
      return x
    return self._matmul(x, self._projection, transpose_b=True)

  def _to_3d(self, x):
    return tf.reshape(
        x, [self._batch, self._sequence, x.shape.as_list()[-1]])
