"""ALBERT: configuration, encoder, masked-LM and sentence-order heads.

The paper: Lan et al., "ALBERT: A Lite BERT for Self-supervised Learning of
Language Representations" (arXiv:1909.11942). This file has the variable layout
of the albert_zh checkpoints; `modeling_google.py` has Google's.

Dimensions in comments:
  B batch, S sequence, N heads, D head size, H hidden (N * D), E embedding,
  V vocabulary, P predictions.
"""

import functools
import math
import zlib
from typing import (
  Any,
  Callable,
  Dict,
  List,
  NamedTuple,
  Optional,
  Sequence,
  Tuple,
  Union,
)

import tensorflow.compat.v1 as tf

from albert.model.config import AlbertConfig

# TF 1.15 and 2.15 run in the same mode; every graph imports this module.
tf.disable_eager_execution()
tf.enable_resource_variables()

MASK_BIAS = -10000.0
# Variable scopes of the two pretraining heads.
MASKED_LM = "cls/predictions"
SENTENCE_ORDER = "cls/seq_relationship"


def gelu(x: tf.Tensor) -> tf.Tensor:
  """GELU in its tanh approximation, as in released models.

  Hendrycks & Gimpel, arXiv:1606.08415, section 2.

  Args:
    x: float.

  Returns:
    float tensor of the same shape.
  """
  u = math.sqrt(2.0 / math.pi) * (x + 0.044715 * tf.pow(x, 3.0))
  return x * (0.5 * (1.0 + tf.tanh(u)))


def attention(
  query: tf.Tensor,
  key: tf.Tensor,
  value: tf.Tensor,
  mask_bias: tf.Tensor,
  dropout: Callable[[tf.Tensor], tf.Tensor],
  matmul: Callable = tf.matmul,
) -> tf.Tensor:
  """Scaled dot-product attention (arXiv:1706.03762, section 3.2.1).

  Args:
    query: float [B, N, T, D].
    key, value: float [B, N, S, D].
    mask_bias: float [B, 1, 1, S], 0 for tokens, MASK_BIAS for padding.
    dropout: applied to the probabilities.
    matmul: see Kernels.

  Returns:
    float [B, N, T, D].
  """
  scale = 1.0 / math.sqrt(query.shape.as_list()[-1])
  scores = matmul(query * scale, key, transpose_b=True)  # [B, N, T, S]
  probabilities = tf.nn.softmax(scores + mask_bias)
  return matmul(dropout(probabilities), value)


class Kernels(NamedTuple):
  """Replaceable functions of a model; `albert/model/kernels.py` has more.

  Attributes:
    matmul: `tf.matmul` or a replacement.
    attention: see `attention`.
    gelu: see `gelu`.
    run_block: runs a transformer block, given the block and its input.
  """

  matmul: Callable = tf.matmul
  attention: Callable = attention
  gelu: Callable = gelu
  run_block: Callable = lambda block, x: block(x)


PLAIN = Kernels()


def get_shape_list(
  tensor: tf.Tensor,
  expected_rank: Union[int, Sequence[int], None] = None,
  name: Optional[str] = None,
) -> List[Any]:
  """Returns the shape as a list: ints if static, else scalar tensors.

  Args:
    tensor: any tensor of known rank.
    expected_rank: one or several allowed ranks; None for any.
    name: name of the tensor in the error; by default, its graph name.

  Raises:
    ValueError: the tensor has a different rank.
  """
  static = tensor.shape.as_list()
  ranks = [expected_rank] if isinstance(expected_rank, int) else expected_rank
  if ranks and len(static) not in ranks:
    raise ValueError(
      "%s must have rank %s, but its shape is %s"
      % (name or tensor.name, " or ".join(map(str, ranks)), tensor.shape)
    )
  dynamic = tf.shape(tensor)
  return [dynamic[i] if size is None else size for i, size in enumerate(static)]


def get_weights(
  name: str, shape: Sequence[int], config: AlbertConfig
) -> tf.Variable:
  """Returns a randomly initialised variable of the current scope.

  Initial values are normal, with standard deviation `initializer_range` and
  truncated at two of these. They depend only on the graph's seed and the
  variable's name, not on the rest of the graph.
  """
  scope = tf.get_variable_scope().name
  seed = zlib.crc32(("%s/%s" % (scope, name)).encode()) % 2**31
  return tf.get_variable(
    name,
    shape,
    initializer=(
      tf.truncated_normal_initializer(
        stddev=config.initializer_range, seed=seed
      )
    ),
  )


def activate(
  x: tf.Tensor, activation: str, kernels: Kernels = PLAIN
) -> tf.Tensor:
  """Applies one of `model.config.ACTIVATIONS`."""
  return {
    "gelu": kernels.gelu,
    "gelu_new": kernels.gelu,
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "linear": tf.identity,
  }[activation](x)


def dense(
  x: tf.Tensor,
  units: int,
  config: AlbertConfig,
  scope: str,
  activation: str = "linear",
  kernels: Kernels = PLAIN,
) -> tf.Tensor:
  """A fully connected layer with variables `scope/kernel` and `scope/bias`.

  Args:
    x: float [M, K].
    units: width of the output.
    config: configuration of the model.
    scope: variable scope; calls with the same scope share variables.
    activation: see `activate`.
    kernels: see Kernels.

  Returns:
    float [M, units].
  """
  with tf.variable_scope(scope, reuse=tf.AUTO_REUSE):
    kernel = get_weights("kernel", [x.shape.as_list()[-1], units], config)
    bias = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
    return activate(
      tf.nn.bias_add(kernels.matmul(x, kernel), bias), activation, kernels
    )


def row_logits(
  x: tf.Tensor, num_rows: int, config: AlbertConfig, scope: str
) -> tf.Tensor:
  """Scores [M, H] by the rows of `scope/output_weights` and `output_bias`.

  BERT and ALBERT store the variables of their classifiers in this form.

  Returns:
    float [M, num_rows].
  """
  with tf.variable_scope(scope, reuse=tf.AUTO_REUSE):
    weights = get_weights(
      "output_weights", [num_rows, config.hidden_size], config
    )
    bias = tf.get_variable(
      "output_bias", [num_rows], initializer=tf.zeros_initializer()
    )
    return tf.nn.bias_add(tf.matmul(x, weights, transpose_b=True), bias)


def layer_norm(x: tf.Tensor, scope: Optional[str] = None) -> tf.Tensor:
  """Layer normalization over the last axis (arXiv:1607.06450), epsilon 1e-12.

  Args:
    x: float [..., K].
    scope: variable scope of `beta` and `gamma`, both [K]; by default a new one:
      LayerNorm, LayerNorm_1 and so on.

  Returns:
    float tensor of the shape of `x`.
  """
  width = x.shape.as_list()[-1]
  with tf.variable_scope(
    scope, "LayerNorm", reuse=tf.AUTO_REUSE if scope else None
  ):
    beta = tf.get_variable("beta", [width], initializer=tf.zeros_initializer())
    gamma = tf.get_variable("gamma", [width], initializer=tf.ones_initializer())
    mean, variance = tf.nn.moments(x, axes=[-1], keep_dims=True)
    return tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-12)


class BlockScopes(NamedTuple):
  """Variable scopes of the parts of one transformer block.

  Attributes:
    attention: parent of the scopes query, key and value.
    attention_output, attention_norm: the dense layer and LayerNorm after
      attention.
    intermediate, output, output_norm: the two dense layers of the feed-forward
      network and the LayerNorm after it.
  """

  attention: str
  attention_output: str
  attention_norm: str
  intermediate: str
  output: str
  output_norm: str


class AlbertModel:
  """The encoder with its pretraining heads.

  This class has albert_zh's variable layout. With a configuration for Google's
  layout, its constructor returns a GoogleAlbertModel.

  Attributes:
    config: configuration of the model.
    input_mask: int [B, S], 1 for tokens and 0 for padding.
  """

  config: AlbertConfig
  input_mask: tf.Tensor

  def __new__(cls, config: AlbertConfig, *args: Any, **kwargs: Any):
    from modeling_google import GoogleAlbertModel  # circular import

    is_google = cls is AlbertModel and config.layout == "google"
    return super().__new__(GoogleAlbertModel if is_google else cls)

  def __init__(
    self,
    config: AlbertConfig,
    is_training: bool,
    input_ids: tf.Tensor,
    input_mask: Optional[tf.Tensor] = None,
    token_type_ids: Optional[tf.Tensor] = None,
    use_one_hot_embeddings: bool = False,
    scope: Optional[str] = None,
    kernels: Kernels = PLAIN,
    output_positions: Optional[tf.Tensor] = None,
  ):
    """Builds the encoder.

    Args:
      config: configuration of the model.
      is_training: whether to apply dropout.
      input_ids: int [B, S].
      input_mask: int [B, S], 1 for tokens and 0 for padding; None for all 1.
      token_type_ids: int [B, S], segment of each token; None for all 0.
      use_one_hot_embeddings: look up embeddings by a matrix multiplication,
        which is faster on a TPU.
      scope: variable scope of the encoder; None for "bert", as in checkpoints.
      kernels: see Kernels.
      output_positions: int [B, T], the positions that the last layer computes;
        None for all S, and T is S.

    Raises:
      ValueError: `input_ids` is not of rank 2 or S is too large for `config`.
    """
    self.config = config
    self._dropout_seed = None
    if is_training:
      self._dropout_seed = self._make_dropout_seed(input_ids)
    self._use_one_hot_embeddings = use_one_hot_embeddings
    self._kernels = kernels
    self._dense = functools.partial(dense, config=config, kernels=kernels)
    self._batch, self._sequence = get_shape_list(input_ids, 2, "input_ids")
    self._output_length = self._sequence
    if output_positions is not None:
      _, self._output_length = get_shape_list(
        output_positions, 2, "output_positions"
      )
    if (
      isinstance(self._sequence, int)
      and self._sequence > config.max_position_embeddings
    ):
      raise ValueError(
        "sequence length %d exceeds "
        "max_position_embeddings %d"
        % (self._sequence, config.max_position_embeddings)
      )
    if input_mask is None:
      input_mask = tf.ones_like(input_ids)
    self.input_mask = input_mask
    if token_type_ids is None:
      token_type_ids = tf.zeros_like(input_ids)

    with tf.variable_scope(scope or "bert", reuse=tf.AUTO_REUSE):
      self._embedding_output = self._embed(
        input_ids, token_type_ids
      )  # [B*S, H]
      self._layers = self._encode(output_positions)
      first_tokens = tf.squeeze(self.get_sequence_output()[:, 0:1, :], [1])
      self._pooled_output = self._dense(
        first_tokens,
        config.hidden_size,
        scope="pooler/dense",
        activation="tanh",
      )

  def _encode(self, output_positions):
    """Returns the output of each layer, a list of float [B*S, H]."""
    config, x, layers = self.config, self._embedding_output, []
    mask_bias = tf.reshape(
      (1.0 - tf.cast(self.input_mask, tf.float32)) * MASK_BIAS,
      [self._batch, 1, 1, self._sequence],
    )
    with tf.variable_scope("encoder"):
      for layer in range(config.num_hidden_layers):
        blocks = self.layer_scopes(config, layer)
        for inner, scopes in enumerate(blocks):
          is_last = (layer, inner) == (
            config.num_hidden_layers - 1,
            len(blocks) - 1,
          )
          x = self._kernels.run_block(
            functools.partial(
              self._block,
              mask_bias=mask_bias,
              scopes=scopes,
              salt=4 * (layer * (config.inner_group_num or 1) + inner),
              rows=self._rows(output_positions) if is_last else None,
            ),
            x,
          )
        layers.append(x)
    return layers

  @property
  def all_encoder_layers(self) -> List[tf.Tensor]:
    """Alias of `get_all_encoder_layers()`."""
    return self.get_all_encoder_layers()

  def get_embedding_table(self) -> tf.Variable:
    """Returns the word embeddings, float [V, E]."""
    return self._embedding_table

  def get_embedding_output(self) -> tf.Tensor:
    """Returns the input of the first layer, float [B, S, H]."""
    return self._to_3d(self._embedding_output, self._sequence)

  def get_all_encoder_layers(self) -> List[tf.Tensor]:
    """Returns the output of each layer, a list of float [B, S, H].

    The last one is [B, T, H] if the model has `output_positions`.
    """
    return [self._to_3d(x, self._sequence) for x in self._layers[:-1]] + [
      self.get_sequence_output()
    ]

  def get_sequence_output(self) -> tf.Tensor:
    """Returns the output of the last layer, float [B, T, H]."""
    return self._to_3d(self._layers[-1], self._output_length)

  def get_pooled_output(self) -> tf.Tensor:
    """Returns tanh(dense(first token)), float [B, H]."""
    return self._pooled_output

  def masked_lm_logits(
    self, positions: Optional[tf.Tensor] = None
  ) -> tf.Tensor:
    """Scores every vocabulary entry at the given positions.

    Args:
      positions: int [B, P], positions in the sequence; None for the T positions
        of the last layer's output.

    Returns:
      float [B*P, V].
    """
    x = self._layers[-1]
    if positions is not None:
      x = tf.gather(x, self._rows(positions))  # [B*P, H]
    with tf.variable_scope(MASKED_LM, reuse=tf.AUTO_REUSE):
      x = self._dense(
        x,
        self._masked_lm_width(),
        scope="transform/dense",
        activation=self.config.hidden_act,
      )
      x = layer_norm(x, "transform/LayerNorm")
      bias = tf.get_variable(
        "output_bias",
        [self.config.vocab_size],
        initializer=tf.zeros_initializer(),
      )
      x = self._to_embedding_width(x)  # [B*P, E]
      return tf.nn.bias_add(
        self._kernels.matmul(x, self._embedding_table, transpose_b=True), bias
      )

  def sentence_order_logits(self) -> tf.Tensor:
    """Scores "in order" against "swapped".

    Returns:
      float [B, 2].
    """
    return row_logits(self._pooled_output, 2, self.config, SENTENCE_ORDER)

  def dropout(
    self, x: tf.Tensor, rate: float, salt: int, example: Any = 0
  ) -> tf.Tensor:
    """Stateless dropout, in training: the same call draws the same mask.

    The mask depends on the global step, the examples and `salt`. Replicas and
    slices of a batch have different examples and therefore different masks.

    Args:
      x: float.
      rate: share of values set to 0; the others are scaled by 1 / (1 - rate).
      salt: unique per dropout site.
      example: int or int32 scalar, unique per example if examples are computed
        one by one.

    Returns:
      float tensor of the shape of `x`.
    """
    if not rate or self._dropout_seed is None:
      return x
    salt += 65536 * (tf.get_default_graph().seed or 0)
    draw = tf.random.stateless_uniform(
      tf.shape(x),
      seed=tf.stack([self._dropout_seed + 7919 * example, salt % 2**31]),
    )
    return x * (tf.cast(draw >= rate, x.dtype) / (1.0 - rate))

  @staticmethod
  def _make_dropout_seed(input_ids):
    """Returns an int32 scalar that differs between steps and batches."""
    step = tf.cast(tf.train.get_or_create_global_step(), tf.int32)
    weights = 1 + 2 * tf.range(tf.size(input_ids), dtype=tf.int32)
    return step + 65599 * tf.reduce_sum(
      weights * tf.cast(tf.reshape(input_ids, [-1]), tf.int32)
    )

  @staticmethod
  def layer_scopes(config: AlbertConfig, layer: int) -> List[BlockScopes]:
    """Names the variables of a layer; blocks with equal names share variables.

    Args:
      config: configuration of the model.
      layer: 0 for the first.

    Returns:
      the blocks of the layer, in order.
    """
    sharing = config.parameter_sharing
    shared_attention = sharing in ("all", "attention")
    shared_ffn = sharing in ("all", "ffn")
    root = "layer_%d" % layer if sharing == "none" else "layer_shared"
    own = "" if sharing == "none" else "_%d" % layer
    attention = root + "/attention" + ("" if shared_attention else own)
    suffix = "" if shared_ffn else own
    output = root + "/output" + suffix
    return [
      BlockScopes(
        attention=attention + "/self",
        attention_output=attention + "/output/dense",
        attention_norm=attention + "/output/LayerNorm",
        intermediate=root + "/intermediate" + suffix + "/dense",
        output=output + "/dense",
        output_norm=output + "/LayerNorm",
      )
    ]

  def _embed(self, input_ids, token_type_ids):
    """Returns the input of the first layer, [B*S, H]."""
    config = self.config
    with tf.variable_scope("embeddings"):
      x = self._look_up_words(input_ids)  # [B*S, E]
      self._projection = None
      if config.embedding_size:
        self._projection = get_weights(
          "word_embeddings_2",
          [config.embedding_size, config.hidden_size],
          config,
        )
        x = self._kernels.matmul(x, self._projection)
      return self._finish_embedding(x, token_type_ids)

  def _look_up_words(self, input_ids):
    """Returns the word embeddings of `input_ids`, [B*S, E]."""
    self._embedding_table = get_weights(
      "word_embeddings",
      [self.config.vocab_size, self.config.embedding_width],
      self.config,
    )
    ids = tf.reshape(input_ids, [-1])
    if self._use_one_hot_embeddings:
      return tf.matmul(
        tf.one_hot(ids, self.config.vocab_size), self._embedding_table
      )
    return tf.gather(self._embedding_table, ids)

  def _finish_embedding(self, x, token_type_ids):
    """Adds segments and positions to [B*S, K]; LayerNorm and dropout."""
    config = self.config
    width = x.shape.as_list()[-1]
    segments = get_weights(
      "token_type_embeddings", [config.type_vocab_size, width], config
    )
    positions = get_weights(
      "position_embeddings", [config.max_position_embeddings, width], config
    )
    # For few segments, a matrix multiplication is faster than a gather.
    x += tf.matmul(
      tf.one_hot(tf.reshape(token_type_ids, [-1]), config.type_vocab_size),
      segments,
    )
    x = self._to_3d(x, self._sequence) + tf.reshape(
      tf.slice(positions, [0, 0], [self._sequence, width]),
      [1, self._sequence, width],
    )
    x = layer_norm(tf.reshape(x, [-1, width]), "LayerNorm")
    return self.dropout(x, config.hidden_dropout_prob, salt=-1)

  def _block(self, x, mask_bias, scopes, salt, rows=None):
    """One transformer block, post-LN or pre-LN: [B*S, H] -> [B*T, H].

    `rows`, int [B*T], are the only rows of the output; None for all.
    """
    config = self.config
    pre_norm = config.ln_type == "preln"

    y = layer_norm(x, scopes.attention_norm) if pre_norm else x
    y = self._attend(y, mask_bias, scopes.attention, salt, rows)
    y = self._dense(y, config.hidden_size, scope=scopes.attention_output)
    x = x if rows is None else tf.gather(x, rows)
    x += self.dropout(y, config.hidden_dropout_prob, salt + 1)
    if not pre_norm:
      x = layer_norm(x, scopes.attention_norm)

    y = layer_norm(x, scopes.output_norm) if pre_norm else x
    y = self._dense(
      y,
      config.intermediate_size,
      scope=scopes.intermediate,
      activation=config.hidden_act,
    )
    y = self._dense(y, config.hidden_size, scope=scopes.output)
    x += self.dropout(y, config.hidden_dropout_prob, salt + 2)
    return x if pre_norm else layer_norm(x, scopes.output_norm)

  def _attend(self, x, mask_bias, scope, salt, rows=None):
    """Multi-head self-attention (arXiv:1706.03762): [B*S, H] -> [B*T, H]."""
    config = self.config
    heads = config.num_attention_heads

    def split_heads(name, x, length=self._sequence):
      y = self._dense(x, config.hidden_size, scope=scope + "/" + name)
      y = tf.reshape(
        y, [self._batch, length, heads, config.hidden_size // heads]
      )
      return tf.transpose(y, [0, 2, 1, 3])  # [B, N, S, D]

    if rows is None:
      query = split_heads("query", x)
    else:
      query = split_heads("query", tf.gather(x, rows), self._output_length)
    context = self._kernels.attention(
      query,
      split_heads("key", x),
      split_heads("value", x),
      mask_bias,
      functools.partial(
        self.dropout, salt=salt, rate=config.attention_probs_dropout_prob
      ),
      self._kernels.matmul,
    )
    return tf.reshape(
      tf.transpose(context, [0, 2, 1, 3]), [-1, config.hidden_size]
    )

  def _masked_lm_width(self):
    return self.config.hidden_size

  def _to_embedding_width(self, x):
    """Projects the masked-LM transform, [M, H], to [M, E]."""
    if self._projection is None:
      return x
    return self._kernels.matmul(x, self._projection, transpose_b=True)

  def _rows(self, positions):
    """Converts positions [B, P] to row indices of [B*S, ...], int [B*P]."""
    if positions is None:
      return None
    offsets = tf.reshape(tf.range(self._batch) * self._sequence, [-1, 1])
    return tf.reshape(tf.cast(positions, tf.int32) + offsets, [-1])

  def _to_3d(self, x, length):
    return tf.reshape(x, [self._batch, length, x.shape.as_list()[-1]])


# For programs written for the BERT and ALBERT releases.
BertConfig = AlbertConfig
BertModel = AlbertModel


def create_initializer(initializer_range: float = 0.02) -> Callable:
  """Returns an initializer: normal, truncated at two standard deviations."""
  return tf.truncated_normal_initializer(stddev=initializer_range)


def get_activation(name: Any) -> Any:
  """Returns a function by name, None for "linear"; functions are unchanged."""
  if not isinstance(name, str):
    return name
  return (
    None if name == "linear" else functools.partial(activate, activation=name)
  )


def dropout(
  input_tensor: tf.Tensor, dropout_prob: Optional[float]
) -> tf.Tensor:
  """Dropout with `dropout_prob`; None or 0 for none."""
  if not dropout_prob:
    return input_tensor
  return tf.nn.dropout(input_tensor, rate=dropout_prob)


def layer_norm_and_dropout(
  input_tensor: tf.Tensor,
  dropout_prob: Optional[float],
  name: Optional[str] = None,
) -> tf.Tensor:
  return dropout(layer_norm(input_tensor, name), dropout_prob)


def get_assignment_map_from_checkpoint(
  tvars: Sequence[tf.Variable], init_checkpoint: str
) -> Tuple[Dict[str, str], Dict[str, int]]:
  """Finds the variables that are also in a checkpoint.

  Returns:
    (dict, name -> name, for `tf.train.init_from_checkpoint`; dict, name with
    and without ":0" -> 1).
  """
  names = {variable.op.name for variable in tvars}
  found = [
    name
    for name, _ in tf.train.list_variables(init_checkpoint)
    if name in names
  ]
  return dict(zip(found, found)), dict.fromkeys(
    found + [name + ":0" for name in found], 1
  )
