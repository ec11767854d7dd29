"""Small models of every kind, run by TensorFlow and by the NumPy reference."""

import json
import shutil

import numpy as np
import reference_albert as reference
import tensorflow.compat.v1 as tf

from albert.files import checkpoints
from albert.heads.base import HeadOutput
from albert.model.config import AlbertConfig
from albert.model.layouts import create_model

BATCH, SEQ = 3, 7
INPUT_IDS = np.random.RandomState(11).randint(0, 50, size=[BATCH, SEQ])
INPUT_MASK = np.array([[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6])
SEGMENT_IDS = np.array([[0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0, 0], [0] * 7])
POSITIONS = np.array([[1, 3, 6], [0, 0, 2], [4, 0, 5]])


def albert_zh_config(**changes):
  return dict(
    dict(
      vocab_size=50,
      embedding_size=16,
      hidden_size=24,
      num_hidden_layers=2,
      num_attention_heads=4,
      intermediate_size=40,
      hidden_act="gelu",
      hidden_dropout_prob=0.0,
      attention_probs_dropout_prob=0.0,
      max_position_embeddings=9,
      type_vocab_size=2,
      initializer_range=0.02,
    ),
    **changes,
  )


def google_config(**changes):
  return albert_zh_config(
    **dict(dict(num_hidden_groups=1, inner_group_num=1), **changes)
  )


def bert_config(**changes):
  config = albert_zh_config(parameter_sharing="none", **changes)
  return {key: config[key] for key in config if key != "embedding_size"}


ONE_LAYER = dict(num_hidden_layers=1)
CONFIGS = {
  "albert_zh": albert_zh_config(),
  "albert_zh_preln": albert_zh_config(ln_type="preln"),
  "albert_zh_attention": albert_zh_config(parameter_sharing="attention"),
  "albert_zh_ffn_preln": albert_zh_config(
    parameter_sharing="ffn", ln_type="preln", hidden_act="relu"
  ),
  "google": google_config(),
  "google_preln": google_config(ln_type="preln"),
  "google_groups": google_config(  # layers 0, 0 and 1
    num_hidden_groups=2, inner_group_num=2, num_hidden_layers=3
  ),
  "google_unfactorized": google_config(embedding_size=24, **ONE_LAYER),
  "google_relu": google_config(hidden_act="relu", **ONE_LAYER),
  "bert": bert_config(),
  "bert_preln": bert_config(ln_type="preln", **ONE_LAYER),
}


def span_weights(hidden, head, seed=3):
  """Returns random weights of a span head: name -> float32 array."""
  shapes = {
    "cls/squad/output_weights": [2, hidden],
    "cls/squad/output_bias": [2],
  }
  if head == "beam":
    shapes = {
      "answer_class/dense_1/kernel": [hidden, 1],
      "end_logits/LayerNorm/beta": [hidden],
      "end_logits/LayerNorm/gamma": [hidden],
    }
    for scope, *size in (
      ("start_logits/dense", hidden, 1),
      ("end_logits/dense_1", hidden, 1),
      ("end_logits/dense_0", 2 * hidden, hidden),
      ("answer_class/dense_0", 2 * hidden, hidden),
    ):
      shapes.update({scope + "/kernel": size, scope + "/bias": size[1:]})
  rng = np.random.RandomState(seed)
  return {
    name: rng.normal(scale=0.5, size=shape).astype(np.float32)
    for name, shape in shapes.items()
  }


DROPOUT = dict(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)


def create(
  config,
  is_training=False,
  input_ids=INPUT_IDS,
  input_mask=INPUT_MASK,
  token_type_ids=SEGMENT_IDS,
  **kwargs,
):
  return create_model(
    AlbertConfig.from_dict(config),
    is_training,
    *(
      None if x is None else tf.constant(x, tf.int32)
      for x in (input_ids, input_mask, token_type_ids)
    ),
    **kwargs,
  )


def outputs_of(model, positions=POSITIONS):
  return {
    "embedding_output": model.get_embedding_output(),
    "all_layers": list(model.get_all_encoder_layers()),
    "sequence_output": model.get_sequence_output(),
    "pooled_output": model.get_pooled_output(),
    "masked_lm_logits": model.masked_lm_logits(tf.constant(positions)),
    "sentence_order_logits": model.sentence_order_logits(),
  }


def initialize(session, weights):
  variables = tf.trainable_variables() + tf.model_variables()
  assert {v.op.name for v in variables} == set(weights)
  session.run(
    tf.global_variables_initializer(),
    {v.initial_value: weights[v.op.name] for v in variables},
  )


def evaluate(tensors, weights=(), feed=None):
  """Evaluates tensors of the default graph with the given weights."""
  with tf.Session() as session:
    initialize(session, weights)
    return session.run(tensors, feed)


def run_model(config, weights, *args, positions=POSITIONS, **kwargs):
  with tf.Graph().as_default():
    return evaluate(
      outputs_of(create(config, False, *args, **kwargs), positions), weights
    )


def run_reference(
  config,
  weights,
  input_ids=INPUT_IDS,
  input_mask=INPUT_MASK,
  token_type_ids=SEGMENT_IDS,
):
  outputs = reference.forward(
    weights, config, input_ids, input_mask, token_type_ids
  )
  outputs["masked_lm_logits"] = reference.masked_lm_logits(
    weights, config, outputs["sequence_output"], POSITIONS
  )
  outputs["sentence_order_logits"] = reference.sentence_order_logits(
    weights, outputs["pooled_output"]
  )
  return outputs


def assert_same_outputs(actual, expected, atol):
  assert set(actual) == set(expected)
  for x, y in zip(*map(tf.nest.flatten, (actual, expected))):
    assert x.shape == y.shape
    np.testing.assert_allclose(x, y, rtol=0, atol=atol)


class PooledModel:
  """A fake AlbertModel with given outputs.

  `pooled`: [B, H], defaults to the first token of the last layer; `layers`:
  [B, S, H] each, embeddings first.
  """

  def __init__(self, pooled, *layers, mask=None):
    tensors = [tf.constant(x, tf.float32) for x in layers]
    pooled = (
      tensors[-1][:, 0] if pooled is None else (tf.constant(pooled, tf.float32))
    )
    if layers:
      self.input_mask = tf.constant(
        np.ones(np.shape(layers[0])[:2]) if mask is None else mask, tf.int32
      )
    self.config = AlbertConfig.from_dict(
      albert_zh_config(
        hidden_size=pooled.shape.as_list()[1],
        num_attention_heads=1,
        num_hidden_layers=max(1, len(layers) - 1),
      )
    )
    self.get_pooled_output = lambda: pooled
    self.get_embedding_output = lambda: tensors[0]
    self.get_all_encoder_layers = lambda: tensors[1:]
    self.get_sequence_output = lambda: tensors[-1]
    self.dropout = lambda x, *_, **__: x


def run_head(head, features, weights, pooled, *layers, **kwargs):
  """Returns the HeadOutput of a head on a PooledModel, as arrays."""
  with tf.Graph().as_default():
    output = head.apply(
      PooledModel(pooled, *layers, **kwargs),
      {
        name: tf.constant(
          x, tf.float32 if np.asarray(x).dtype == float else tf.int32
        )
        for name, x in features.items()
      },
    )
    return HeadOutput(
      *evaluate([() if part is None else part for part in output], weights)
    )


# A WordPiece vocabulary of the models' vocab_size.
TOKENS = [
  "[PAD]",
  "[UNK]",
  "[CLS]",
  "[SEP]",
  "[MASK]",
  *(chr(0x4E00 + i) for i in range(45)),
]


def write_folder(folder, config, vocabulary, top=None, task=None):
  """Writes a model folder; returns its weights.

  `vocabulary`: list of WordPiece tokens or pathlib.Path; `top`: name -> array,
  defaults to the pretraining heads.
  """
  folder.mkdir(exist_ok=True)
  weights = reference.random_weights(config)
  if top:
    weights = {name: weights[name] for name in weights if "bert/" in name}
    weights.update(top)
  checkpoints.write_checkpoint(
    str(folder),
    "model.ckpt-7",
    {name: x.astype(np.float32) for name, x in weights.items()},
  )
  (folder / "config.json").write_text(json.dumps(config))
  if task:
    (folder / "task.json").write_text(json.dumps(task))
  if isinstance(vocabulary, list):
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
  else:
    shutil.copy(
      str(vocabulary),
      str(
        folder / ("vocab.txt" if vocabulary.suffix == ".txt" else "spm.model")
      ),
    )
  return weights
