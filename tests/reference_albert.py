"""ALBERT's forward pass in float64 NumPy, written from the papers.

`weights` is a dict from variable name to array, `config` a plain dict as in
the JSON files. Shares no code with `modeling.py`. Dimensions: B batch, S
sequence, H hidden, E embedding, V vocabulary, P predictions.
"""

import math

import numpy as np


def is_google(config):
  return "num_hidden_groups" in config


def has_projection(config):
  default = config["hidden_size"] if is_google(config) else None
  return config.get("embedding_size", default) != default


def sharing(config):
  default = "all" if "embedding_size" in config else "none"
  return config.get("parameter_sharing", default)


PARTS = (
  "query",
  "key",
  "value",
  "attention_output",
  "attention_norm",
  "ffn_in",
  "ffn_out",
  "ffn_norm",
)


def block(scope, attention, *others):
  """The scopes of a block's PARTS."""
  names = [
    attention + name
    for name in ("self/query", "self/key", "self/value", "output/dense")
  ]
  return dict(
    zip(PARTS, ["bert/encoder/" + scope + name for name in [*names, *others]])
  )


def blocks_of_layer(config, layer):
  """The scopes of the blocks of layer number `layer`, in order."""
  if is_google(config):
    group = layer * config["num_hidden_groups"] // config["num_hidden_layers"]
    return [
      block(
        "transformer/group_%d/inner_group_%d/" % (group, inner),
        "attention_1/",
        "LayerNorm",
        "ffn_1/intermediate/dense",
        "ffn_1/intermediate/output/dense",
        "LayerNorm_1",
      )
      for inner in range(config.get("inner_group_num", 1))
    ]
  mode, number = sharing(config), "_%d/" % layer
  attention = "attention" + (number if mode == "ffn" else "/")
  suffix = number if mode == "attention" else "/"
  return [
    block(
      "layer" + (number if mode == "none" else "_shared/"),
      attention,
      attention + "output/LayerNorm",
      "intermediate%sdense" % suffix,
      "output%sdense" % suffix,
      "output%sLayerNorm" % suffix,
    )
  ]


def expected_variables(config):
  """All trainable variables, both heads included: {name: shape}."""
  V, H = config["vocab_size"], config["hidden_size"]
  F, E = config["intermediate_size"], config.get("embedding_size", H)
  width = E if is_google(config) else H  # of tables and of the transform
  shapes = {}

  def dense(scope, size_in, size_out):
    shapes.update(
      {scope + "/kernel": (size_in, size_out), scope + "/bias": (size_out,)}
    )

  def norm(scope, size):
    shapes.update({scope + "/gamma": (size,), scope + "/beta": (size,)})

  for table, size in (
    ("word", (V, E)),
    ("token_type", (config["type_vocab_size"], width)),
    ("position", (config["max_position_embeddings"], width)),
  ):
    shapes["bert/embeddings/%s_embeddings" % table] = size
  norm("bert/embeddings/LayerNorm", width)
  if has_projection(config):
    if is_google(config):
      dense("bert/encoder/embedding_hidden_mapping_in", E, H)
    else:
      shapes["bert/embeddings/word_embeddings_2"] = (E, H)
  for layer in range(config["num_hidden_layers"]):
    for block in blocks_of_layer(config, layer):
      for part in ("query", "key", "value", "attention_output"):
        dense(block[part], H, H)
      dense(block["ffn_in"], H, F)
      dense(block["ffn_out"], F, H)
      norm(block["attention_norm"], H)
      norm(block["ffn_norm"], H)
  dense("bert/pooler/dense", H, H)
  dense("cls/predictions/transform/dense", H, width)
  norm("cls/predictions/transform/LayerNorm", width)
  return {
    **shapes,
    "cls/predictions/output_bias": (V,),
    "cls/seq_relationship/output_weights": (2, H),
    "cls/seq_relationship/output_bias": (2,),
  }


def activation(name, x):
  if name in ("gelu", "gelu_new"):
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1.0 + np.tanh(inner))
  return {
    "relu": lambda y: np.maximum(y, 0.0),
    "tanh": np.tanh,
    "linear": lambda y: y,
  }[name](x)


def layer_norm(weights, scope, x):
  x = (x - x.mean(-1, keepdims=True)) / np.sqrt(
    x.var(-1, keepdims=True) + 1e-12
  )
  return x * weights[scope + "/gamma"] + weights[scope + "/beta"]


def dense(weights, scope, x):
  return np.matmul(x, weights[scope + "/kernel"]) + weights[scope + "/bias"]


def softmax(x):
  e = np.exp(x - np.max(x, axis=-1, keepdims=True))
  return e / np.sum(e, axis=-1, keepdims=True)


def attention(weights, config, block, x, input_mask):
  """Multi-head self-attention, one head at a time; [B, S, H] -> [B, S, H]."""
  size = config["hidden_size"] // config["num_attention_heads"]
  bias = -10000.0 * (1.0 - input_mask[:, np.newaxis, :])  # [B, 1, S]
  query, key, value = [dense(weights, block[part], x) for part in PARTS[:3]]
  contexts = []
  for head in range(config["num_attention_heads"]):
    part = slice(head * size, (head + 1) * size)
    scores = query[:, :, part] @ np.transpose(key[:, :, part], [0, 2, 1])
    probs = softmax(scores / math.sqrt(size) + bias)  # [B, S, S]
    contexts.append(probs @ value[:, :, part])
  return dense(weights, block["attention_output"], np.concatenate(contexts, -1))


def transformer_block(weights, config, block, x, input_mask):
  def ffn(x):
    x = activation(config["hidden_act"], dense(weights, block["ffn_in"], x))
    return dense(weights, block["ffn_out"], x)

  for layer, norm in (
    (
      lambda x: attention(weights, config, block, x, input_mask),
      block["attention_norm"],
    ),
    (ffn, block["ffn_norm"]),
  ):
    if config.get("ln_type", "postln") == "preln":
      x = x + layer(layer_norm(weights, norm, x))
    else:
      x = layer_norm(weights, norm, x + layer(x))
  return x


def embed(weights, config, input_ids, token_type_ids):
  """The input of the first layer, [B, S, H]."""
  words = weights["bert/embeddings/word_embeddings"][input_ids]
  if has_projection(config) and not is_google(config):
    words = np.matmul(words, weights["bert/embeddings/word_embeddings_2"])
  segments = weights["bert/embeddings/token_type_embeddings"][token_type_ids]
  positions = weights["bert/embeddings/position_embeddings"]
  x = words + segments + positions[: input_ids.shape[1]]
  x = layer_norm(weights, "bert/embeddings/LayerNorm", x)
  if has_projection(config) and is_google(config):
    x = dense(weights, "bert/encoder/embedding_hidden_mapping_in", x)
  return x


def forward(weights, config, input_ids, input_mask, token_type_ids):
  """Encoder and pooler without dropout; inputs are int [B, S]."""
  embedding_output = x = embed(
    weights, config, np.asarray(input_ids), np.asarray(token_type_ids)
  )
  input_mask = np.asarray(input_mask, np.float64)
  all_layers = []
  for layer in range(config["num_hidden_layers"]):
    for block in blocks_of_layer(config, layer):
      x = transformer_block(weights, config, block, x, input_mask)
    all_layers.append(x)
  pooled_output = np.tanh(dense(weights, "bert/pooler/dense", x[:, 0]))
  return {
    "embedding_output": embedding_output,
    "all_layers": all_layers,
    "sequence_output": x,
    "pooled_output": pooled_output,
  }


def masked_lm_logits(weights, config, sequence_output, positions):
  """Logits over the vocabulary at `positions` [B, P]; [B * P, V]."""
  x = np.concatenate(
    [example[at] for example, at in zip(sequence_output, positions)]
  )
  x = dense(weights, "cls/predictions/transform/dense", x)
  x = activation(config["hidden_act"], x)
  x = layer_norm(weights, "cls/predictions/transform/LayerNorm", x)
  if has_projection(config) and not is_google(config):
    x = x @ weights["bert/embeddings/word_embeddings_2"].T
  return (
    x @ weights["bert/embeddings/word_embeddings"].T
    + (weights["cls/predictions/output_bias"])
  )


def sentence_order_logits(weights, pooled_output):
  """Logits of in order / swapped; [B, 2]."""
  scope = "cls/seq_relationship/output_"
  return pooled_output @ weights[scope + "weights"].T + weights[scope + "bias"]


def random_weights(config, seed=0):
  """Random float64 weights that give every term of the model an effect.

  Rounded to float32 first, so that both sides start from the same values.
  """
  rng = np.random.RandomState(seed)
  weights = {}
  for name, shape in sorted(expected_variables(config).items()):
    is_kernel = name.endswith(("/kernel", "word_embeddings_2"))
    value = rng.normal(size=shape) * (
      1 / math.sqrt(shape[0]) if is_kernel else 0.3
    )
    value += name.endswith("/gamma")
    weights[name] = value.astype(np.float32).astype(np.float64)
  return weights
