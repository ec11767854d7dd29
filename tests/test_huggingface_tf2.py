"""Our models hold the same function as Hugging Face's with equal weights."""

import numpy as np
import pytest
import reference_albert as reference
import tensorflow.compat.v1 as tf
import torch
import transformers

import heads
import modeling

INPUT_IDS = np.random.RandomState(5).randint(0, 50, size=[3, 8])
INPUT_MASK = np.array([[1] * 8, [1] * 5 + [0] * 3, [1] * 2 + [0] * 6])
SEGMENT_IDS = np.array([[0] * 4 + [1] * 4, [0] * 3 + [1] * 2 + [0] * 3,
                        [0] * 8])
POSITIONS = np.tile(np.arange(8), [3, 1])

BLOCK = {
    "attention_1/self/query": "attention.query",
    "attention_1/self/key": "attention.key",
    "attention_1/self/value": "attention.value",
    "attention_1/output/dense": "attention.dense",
    "LayerNorm": "attention.LayerNorm",
    "ffn_1/intermediate/dense": "ffn",
    "ffn_1/intermediate/output/dense": "ffn_output",
    "LayerNorm_1": "full_layer_layer_norm",
}


def config_of(**changes):
  config = {
      "vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 4,
      "num_attention_heads": 4, "intermediate_size": 40,
      "hidden_act": "gelu_new", "hidden_dropout_prob": 0.0,
      "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 16,
      "type_vocab_size": 2, "initializer_range": 0.02}
  config.update(changes)
  return config


def our_outputs(config, weights):
  with tf.Graph().as_default(), tf.Session() as sess:
    model = heads.create_model(
        modeling.AlbertConfig.from_dict(config), False,
        tf.constant(INPUT_IDS, tf.int32), tf.constant(INPUT_MASK, tf.int32),
        tf.constant(SEGMENT_IDS, tf.int32))
    outputs = [model.get_sequence_output(), model.get_pooled_output(),
               model.masked_lm_logits(tf.constant(POSITIONS, tf.int32)),
               model.sentence_order_logits()]
    variables = {v.op.name: v for v in tf.trainable_variables()}
    assert set(variables) == set(weights)
    sess.run(tf.global_variables_initializer())
    sess.run([variables[name].assign(value.astype(np.float32))
              for name, value in weights.items()])
    return sess.run(outputs)


def albert_name(name):
  """Google's variable name -> parameter name of AlbertForPreTraining."""
  scope, kind = name.rsplit("/", 1)
  if "/transformer/" in scope:
    _, _, _, group, inner, part = scope.split("/", 5)
    scope = "albert/encoder/albert_layer_groups/%s/albert_layers/%s/%s" % (
        group.replace("group_", ""), inner.replace("inner_group_", ""),
        BLOCK[part])
  elif scope == "bert/pooler/dense":
    scope = "albert/pooler"
  elif scope == "cls/seq_relationship":
    scope = "sop_classifier/classifier"
  elif scope == "cls/predictions":
    return "predictions.bias"
  scope = scope.replace("cls/predictions/transform", "predictions")
  return finish_name(scope.replace("bert/", "albert/", 1)
                     if scope.startswith("bert/") else scope, kind)


def bert_name(name):
  """BERT's variable name -> parameter name of BertForPreTraining."""
  if name == "cls/predictions/output_bias":
    return "cls.predictions.bias"
  scope, kind = name.rsplit("/", 1)
  return finish_name(scope.replace("/layer_", "/layer/"), kind)


def finish_name(scope, kind):
  kind = {"kernel": "weight", "gamma": "weight", "beta": "bias",
          "output_weights": "weight", "output_bias": "bias"}.get(kind, kind)
  if kind.endswith("_embeddings"):
    kind += ".weight"
  return scope.replace("/", ".") + "." + kind


def load(model, weights, rename):
  """Fills every parameter of `model`; the decoder is tied to the words."""
  state = {}
  for name, value in weights.items():
    value = value.T if name.endswith("/kernel") else value
    state[rename(name)] = torch.tensor(value, dtype=torch.float32)
  parameters = dict(model.named_parameters())
  tied = {"predictions.decoder.bias", "predictions.decoder.weight",
          "cls.predictions.decoder.bias", "cls.predictions.decoder.weight"}
  assert set(parameters) - set(state) <= tied
  assert set(state) <= set(parameters)
  with torch.no_grad():
    for name, value in state.items():
      assert parameters[name].shape == value.shape, name
      parameters[name].copy_(value)
  model.tie_weights()
  model.eval()


def their_inputs():
  return dict(input_ids=torch.tensor(INPUT_IDS),
              attention_mask=torch.tensor(INPUT_MASK),
              token_type_ids=torch.tensor(SEGMENT_IDS))


def assert_same(config, weights, encoder, model, sentence_order):
  with torch.no_grad():
    encoded = encoder(**their_inputs())
    predicted = model(**their_inputs())
  theirs = [encoded.last_hidden_state, encoded.pooler_output,
            predicted.prediction_logits.reshape([-1, 50]),
            getattr(predicted, sentence_order)]
  for ours, other in zip(our_outputs(config, weights), theirs):
    np.testing.assert_allclose(ours, other.numpy(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("hidden_act", ["relu", "gelu_new"])
@pytest.mark.parametrize("groups", [1, 2])
def test_albert(groups, hidden_act):
  config = config_of(embedding_size=16, hidden_act=hidden_act,
                     num_hidden_groups=groups, inner_group_num=1)
  weights = reference.random_weights(config, seed=groups)
  model = transformers.AlbertForPreTraining(transformers.AlbertConfig(
      layer_norm_eps=1e-12, **config))
  load(model, weights, albert_name)
  assert_same(config, weights, model.albert, model, "sop_logits")


@pytest.mark.parametrize("hidden_act", ["relu", "gelu_new"])
def test_bert(hidden_act):
  config = config_of(hidden_act=hidden_act, parameter_sharing="none")
  weights = reference.random_weights(config, seed=3)
  theirs = {key: value for key, value in config.items()
            if key != "parameter_sharing"}
  model = transformers.BertForPreTraining(transformers.BertConfig(
      layer_norm_eps=1e-12, **theirs))
  load(model, weights, bert_name)
  encoder = transformers.BertModel(model.config)
  encoder.load_state_dict(model.bert.state_dict())
  encoder.eval()
  assert_same(config, weights, encoder, model, "seq_relationship_logits")
