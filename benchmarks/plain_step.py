"""The loss of a batch with the operations of BERT's TF1 script: the baseline.

It only shares variable names with modeling.py, so it does not change when that
becomes faster.
"""

import math

import tensorflow.compat.v1 as tf

from albert.errors import InputError


def _variable(config, name, *shape):
  initializer = tf.truncated_normal_initializer(stddev=config.initializer_range)
  if name.endswith(("beta", "bias", "gamma")):
    initializer = tf.constant_initializer(float(name.endswith("gamma")))
  with tf.variable_scope("", reuse=tf.AUTO_REUSE):
    return tf.get_variable(name, shape, initializer=initializer)


def _dense(config, x, units, scope):
  kernel = _variable(config, scope + "/kernel", x.shape.as_list()[-1], units)
  return tf.nn.bias_add(
    tf.matmul(x, kernel), _variable(config, scope + "/bias", units)
  )


def _layer_norm(config, x, scope):
  mean, variance = tf.nn.moments(x, [-1], keep_dims=True)
  beta, gamma = [
    _variable(config, scope + "/LayerNorm/" + name, config.hidden_size)
    for name in ("beta", "gamma")
  ]
  return tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-12)


def _gelu(x):
  return x * (
    0.5
    * (1.0 + tf.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * tf.pow(x, 3))))
  )


def _attend(config, x, mask, scope):
  batch, length, _ = mask.shape.as_list()

  def split_heads(name):
    y = tf.reshape(
      _dense(config, x, config.hidden_size, scope + name),
      [batch, length, config.num_attention_heads, -1],
    )
    return tf.transpose(y, [0, 2, 1, 3])

  query, key, value = map(split_heads, ("query", "key", "value"))
  scores = tf.multiply(
    tf.matmul(query, key, transpose_b=True),
    1.0 / math.sqrt(query.shape.as_list()[-1]),
  )
  scores += (1.0 - tf.expand_dims(mask, 1)) * -10000.0  # in every layer
  context = tf.matmul(tf.nn.softmax(scores), value)
  return tf.reshape(
    tf.transpose(context, [0, 2, 1, 3]), [-1, config.hidden_size]
  )


def _one_hot_losses(logits, labels, depth):
  labels = tf.one_hot(tf.reshape(labels, [-1]), depth)
  return -tf.reduce_sum(tf.nn.log_softmax(logits) * labels, -1)


def _encode(config, features, table, projection):
  """Returns the last layer, float [B*S, H]."""
  batch, length = features["input_ids"].shape.as_list()
  hidden = config.hidden_size
  scope = "bert/embeddings/"
  segments = _variable(
    config, scope + "token_type_embeddings", config.type_vocab_size, hidden
  )
  positions = _variable(
    config,
    scope + "position_embeddings",
    config.max_position_embeddings,
    hidden,
  )
  x = tf.gather(table, tf.reshape(features["input_ids"], [-1]))
  x = tf.matmul(x, projection) + tf.matmul(
    tf.one_hot(
      tf.reshape(features["segment_ids"], [-1]), config.type_vocab_size
    ),
    segments,
  )
  x = tf.reshape(x, [batch, length, hidden]) + positions[None, :length]
  x = tf.reshape(_layer_norm(config, x, "bert/embeddings"), [-1, hidden])

  mask = tf.ones([batch, length, 1]) * tf.cast(
    tf.expand_dims(features["input_mask"], 1), tf.float32
  )  # [B, S, S]
  scope = "bert/encoder/layer_shared/"
  for _ in range(config.num_hidden_layers):
    y = _dense(
      config,
      _attend(config, x, mask, scope + "attention/self/"),
      hidden,
      scope + "attention/output/dense",
    )
    x = _layer_norm(config, y + x, scope + "attention/output")
    y = _gelu(
      _dense(config, x, config.intermediate_size, scope + "intermediate/dense")
    )
    x = _layer_norm(
      config,
      _dense(config, y, hidden, scope + "output/dense") + x,
      scope + "output",
    )
  return x


def loss(config, features):
  """Returns the masked-LM and sentence-order loss, a float scalar.

  Args:
    config: AlbertConfig.
    features: batch of `records.pretraining_specs`.

  Raises:
    InputError: the configuration is not supported.
  """
  if [
    config.layout,
    config.ln_type,
    config.parameter_sharing,
    config.hidden_act,
    config.hidden_dropout_prob,
    config.attention_probs_dropout_prob,
  ] != ["albert_zh", "postln", "all", "gelu", 0.0, 0.0]:
    raise InputError("plain does not support this configuration")
  batch, length = features["input_ids"].shape.as_list()
  hidden, vocab = config.hidden_size, config.vocab_size
  scope = "bert/embeddings/"
  table = _variable(
    config, scope + "word_embeddings", vocab, config.embedding_size
  )
  projection = _variable(
    config, scope + "word_embeddings_2", config.embedding_size, hidden
  )
  x = _encode(config, features, table, projection)
  first = tf.reshape(x, [batch, length, hidden])[:, 0]
  pooled = tf.tanh(_dense(config, first, hidden, "bert/pooler/dense"))
  rows = tf.range(batch)[:, None] * length
  x = tf.gather(x, tf.reshape(features["masked_lm_positions"] + rows, [-1]))
  scope = "cls/predictions/"
  x = _layer_norm(
    config,
    _gelu(_dense(config, x, hidden, scope + "transform/dense")),
    scope + "transform",
  )
  x = tf.matmul(x, projection, transpose_b=True)
  logits = tf.nn.bias_add(
    tf.matmul(x, table, transpose_b=True),
    _variable(config, scope + "output_bias", vocab),
  )
  losses = _one_hot_losses(logits, features["masked_lm_ids"], vocab)
  weights = tf.reshape(features["masked_lm_weights"], [-1])
  scope = "cls/seq_relationship/"
  logits = tf.nn.bias_add(
    tf.matmul(
      pooled,
      _variable(config, scope + "output_weights", 2, hidden),
      transpose_b=True,
    ),
    _variable(config, scope + "output_bias", 2),
  )
  return tf.reduce_sum(weights * losses) / (
    tf.reduce_sum(weights) + 1e-5
  ) + tf.reduce_mean(
    _one_hot_losses(logits, features["next_sentence_labels"], 2)
  )
