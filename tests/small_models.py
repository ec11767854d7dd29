"""Small models of every kind, run here and by the NumPy reference."""

import json
import shutil

import numpy as np
import reference_albert as reference
import tensorflow.compat.v1 as tf

from albert.files import checkpoints
from albert.model.config import AlbertConfig
from albert.model.layouts import create_model

BATCH, SEQ = 3, 7
INPUT_IDS = np.random.RandomState(11).randint(0, 50, size=[BATCH, SEQ])
INPUT_MASK = np.array([[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6])
SEGMENT_IDS = np.array([[0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0, 0], [0] * 7])
POSITIONS = np.array([[1, 3, 6], [0, 0, 2], [4, 0, 5]])


def albert_zh_config(**changes):
  config = {
      "vocab_size": 50, "embedding_size": 16, "hidden_size": 24,
      "num_hidden_layers": 2, "num_attention_heads": 4,
      "intermediate_size": 40, "hidden_act": "gelu",
      "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
      "max_position_embeddings": 9, "type_vocab_size": 2,
      "initializer_range": 0.02}
  config.update(changes)
  return config


def google_config(**changes):
  config = albert_zh_config(num_hidden_groups=1, inner_group_num=1)
  config.update(changes)
  return config


def bert_config(**changes):
  config = albert_zh_config(parameter_sharing="none", **changes)
  del config["embedding_size"]
  return config


TWO_GROUPS = dict(num_hidden_groups=2, inner_group_num=2, num_hidden_layers=4)
CONFIGS = {
    "albert_zh": albert_zh_config(),
    "albert_zh_preln": albert_zh_config(ln_type="preln"),
    "albert_zh_attention": albert_zh_config(parameter_sharing="attention"),
    "albert_zh_ffn": albert_zh_config(parameter_sharing="ffn"),
    "albert_zh_none": albert_zh_config(parameter_sharing="none"),
    "albert_zh_ffn_preln": albert_zh_config(parameter_sharing="ffn",
                                            ln_type="preln"),
    "albert_zh_relu": albert_zh_config(hidden_act="relu"),
    "google": google_config(),
    "google_preln": google_config(ln_type="preln"),
    "google_groups": google_config(**TWO_GROUPS),
    "google_groups_preln": google_config(ln_type="preln", **TWO_GROUPS),
    "google_uneven_groups": google_config(
        num_hidden_groups=2, num_hidden_layers=3, ln_type="preln"),
    "google_unfactorized": google_config(embedding_size=24),
    "google_relu": google_config(hidden_act="relu"),
    "google_tanh": google_config(hidden_act="tanh", num_hidden_layers=1),
    "google_linear": google_config(hidden_act="linear", num_hidden_layers=1),
    "google_gelu_new": google_config(hidden_act="gelu_new",
                                     num_hidden_layers=1),
    "bert": bert_config(),
    "bert_preln": bert_config(ln_type="preln"),
}


def span_weights(hidden, head, seed=3):
  """Returns random weights of a head of run_squad.py: name -> float32 array."""
  shapes = {"cls/squad/output_weights": [2, hidden],
            "cls/squad/output_bias": [2]}
  if head == "beam":
    shapes = {"answer_class/dense_1/kernel": [hidden, 1],
              "end_logits/LayerNorm/beta": [hidden],
              "end_logits/LayerNorm/gamma": [hidden]}
    for scope, inputs, units in (
        ("start_logits/dense", hidden, 1), ("end_logits/dense_1", hidden, 1),
        ("end_logits/dense_0", 2 * hidden, hidden),
        ("answer_class/dense_0", 2 * hidden, hidden)):
      shapes.update({scope + "/kernel": [inputs, units],
                     scope + "/bias": [units]})
  rng = np.random.RandomState(seed)
  return {name: rng.normal(scale=0.5, size=shape).astype(np.float32)
          for name, shape in shapes.items()}


DROPOUT = dict(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)


def create(config, is_training=False, input_ids=INPUT_IDS,
           input_mask=INPUT_MASK, token_type_ids=SEGMENT_IDS, **kwargs):
  def tensor(values):
    return None if values is None else tf.constant(values, tf.int32)

  return create_model(
      AlbertConfig.from_dict(config), is_training, tensor(input_ids),
      tensor(input_mask), tensor(token_type_ids), **kwargs)


def outputs_of(model, positions=POSITIONS):
  return {
      "embedding_output": model.get_embedding_output(),
      "all_layers": list(model.get_all_encoder_layers()),
      "sequence_output": model.get_sequence_output(),
      "pooled_output": model.get_pooled_output(),
      "masked_lm_logits": model.masked_lm_logits(tf.constant(positions)),
      "sentence_order_logits": model.sentence_order_logits()}


def initialize(sess, weights):
  variables = {v.op.name: v for v in tf.trainable_variables()}
  assert set(variables) == set(weights)
  sess.run(tf.global_variables_initializer(), {
      variables[name].initial_value: value for name, value in weights.items()})


def run_model(config, weights, *args, **kwargs):
  positions = kwargs.pop("positions", POSITIONS)
  with tf.Graph().as_default(), tf.Session() as sess:
    outputs = outputs_of(create(config, False, *args, **kwargs), positions)
    initialize(sess, weights)
    return sess.run(outputs)


def run_reference(config, weights, input_ids=INPUT_IDS, input_mask=INPUT_MASK,
                  token_type_ids=SEGMENT_IDS):
  outputs = reference.forward(weights, config, input_ids, input_mask,
                              token_type_ids)
  outputs["masked_lm_logits"] = reference.masked_lm_logits(
      weights, config, outputs["sequence_output"], POSITIONS)
  outputs["sentence_order_logits"] = reference.sentence_order_logits(
      weights, config, outputs["pooled_output"])
  return outputs


def assert_same_outputs(actual, expected, atol):
  assert len(actual["all_layers"]) == len(expected["all_layers"])
  for got, want in zip(actual["all_layers"], expected["all_layers"]):
    np.testing.assert_allclose(got, want, rtol=0, atol=atol)
  for name in sorted(set(expected) - {"all_layers"}):
    assert actual[name].shape == expected[name].shape, name
    np.testing.assert_allclose(actual[name], expected[name], rtol=0, atol=atol,
                               err_msg=name)


class PooledModel:
  """Stands for an AlbertModel: the pooled output of each sequence is given.

  Args:
    pooled: float [B, H].
  """

  def __init__(self, pooled):
    self._pooled = tf.constant(pooled, tf.float32)
    self.config = AlbertConfig.from_dict(albert_zh_config(
        hidden_size=self._pooled.shape.as_list()[1]))

  def get_pooled_output(self):
    return self._pooled

  def dropout(self, x, *_, **__):
    return x


def only_biases(attention_bias, ffn_bias):
  """Assignments that make the outputs of attention and FFN a constant."""
  assignments = []
  for variable in tf.trainable_variables():
    name = variable.op.name
    if "bert/encoder/" in name and "/output" in name:
      value = 0.0
      if name.endswith("dense/bias"):
        value = (attention_bias if "attention" in name else ffn_bias)(name)
      if "/dense/" in name:
        assignments.append(variable.assign(
            np.full(variable.shape.as_list(), value, np.float32)))
  return assignments


def write_folder(folder, config, vocabulary):
  """Writes a pretrained model's folder; returns its weights.

  Args:
    folder: pathlib.Path.
    config: dict.
    vocabulary: list of str, tokens of WordPiece; or pathlib.Path of a
      SentencePiece model.
  """
  weights = reference.random_weights(config)
  checkpoints.write_checkpoint(
      str(folder), "model.ckpt-7",
      {name: value.astype(np.float32) for name, value in weights.items()})
  (folder / "config.json").write_text(json.dumps(config))
  if isinstance(vocabulary, list):
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
  else:
    shutil.copy(str(vocabulary), str(folder / "spm.model"))
  return weights
