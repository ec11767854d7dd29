"""The model against an independent NumPy implementation and worked numbers."""

import json

import numpy as np
import pytest
import reference_albert as reference
import small_models as small
import tensorflow.compat.v1 as tf
from scripting import ROOT
from small_models import CONFIGS, INPUT_IDS, INPUT_MASK, SEGMENT_IDS

import modeling
from albert import heads
from albert.model.config import AlbertConfig
from albert.model.layouts import create_model

CONFIG_DIR = ROOT / "albert_config"


def trainable_shapes(config, num_labels=None):
  with tf.Graph().as_default():
    model = create_model(config, False, tf.placeholder(tf.int32, [1, 4]))
    if num_labels:
      heads.Classifier(num_labels).logits(model)
    else:
      model.masked_lm_logits(tf.constant([[1]]))
      model.sentence_order_logits()
    variables = tf.trainable_variables()
    shapes = {v.op.name: tuple(v.shape.as_list()) for v in variables}
    assert len(shapes) == len(variables)
    return shapes


@pytest.mark.parametrize("config, released, num_labels", [
    ("tiny", "tiny_zh", None), ("tiny_google", "tiny_zh_google", None),
    ("tiny", "tiny_zh_finetuned", 59)])
def test_tiny_has_exactly_the_variables_of_the_released_file(
    config, released, num_labels):
  lines = (ROOT / "tests" / "released_variables" / (
      "albert_%s.vars.txt" % released)).read_text()
  rows = [line.split("\t") for line in lines.splitlines()]
  assert trainable_shapes(AlbertConfig.from_json_file(str(
      CONFIG_DIR / ("albert_config_%s.json" % config))), num_labels) == {
          name: tuple(json.loads(shape)) for name, shape in rows
          if not name.endswith(("/adam_m", "/adam_v", "global_step"))}


@pytest.mark.parametrize("size, expected", [
    ("base", (12, 768, 12)), ("large", (24, 1024, 16)),
    ("xlarge", (24, 2048, 16)), ("xxlarge", (12, 4096, 64))])
def test_sizes_of_google(size, expected):
  config = AlbertConfig.from_json_file(str(
      CONFIG_DIR / ("albert_config_%s_google.json" % size)))
  assert (config.num_hidden_layers, config.hidden_size,
          config.num_attention_heads) == expected


@pytest.mark.full
def test_variables_of_every_configuration_file():
  for path in CONFIG_DIR.glob("*.json"):
    config = json.loads(path.read_text())
    # Where layers are shared, depth adds nodes to the graph only.
    config["num_hidden_layers"] = 1 + (reference.sharing(config) == "none")
    parsed = AlbertConfig.from_dict(config)
    assert parsed.layout == (
        "google" if "google" in path.name else "albert_zh")
    assert trainable_shapes(parsed) == reference.expected_variables(config)


@pytest.mark.parametrize("name", [
    name if name in ("albert_zh", "google_preln") else
    pytest.param(name, marks=pytest.mark.slow) for name in sorted(CONFIGS)])
def test_forward_agrees_with_numpy(name):
  config = dict(CONFIGS[name], **small.DROPOUT)  # in training only
  weights = reference.random_weights(config)
  small.assert_same_outputs(small.run_model(config, weights),
                            small.run_reference(config, weights), atol=1e-5)


def test_activations():
  x = np.linspace(-5, 5, 101)
  names = ["gelu", "gelu_new", "relu", "tanh", "linear"]
  for name, y in zip(names, small.evaluate(
      [modeling.activate(tf.constant(x), name) for name in names])):
    np.testing.assert_allclose(y, reference.activation(name, x), atol=1e-12)


def test_layer_norm_epsilon_is_far_below_the_variance_of_small_embeddings():
  x = 1e-3 * np.random.RandomState(0).normal(size=[3, 16])
  weights = {"norm/gamma": 1 + np.arange(16) / 8, "norm/beta": np.arange(16)}
  y = modeling.layer_norm(tf.constant(x, tf.float32), "norm")
  np.testing.assert_allclose(
      small.evaluate(y, weights),
      reference.layer_norm(weights, "norm", x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", [
    "google_relu", pytest.param("albert_zh", marks=pytest.mark.slow)])
def test_no_mask_and_no_segments_mean_all_real_and_all_first(name):
  config, ones = CONFIGS[name], np.ones_like(INPUT_IDS)
  weights = reference.random_weights(config)
  actual = small.run_model(config, weights, input_mask=None,
                           token_type_ids=None)
  expected = small.run_reference(config, weights, input_mask=ones,
                                 token_type_ids=0 * ones)
  small.assert_same_outputs(actual, expected, atol=1e-5)


def test_one_hot_lookups_and_sizes_that_are_not_known():
  config = CONFIGS["google_relu"]
  weights = reference.random_weights(config)
  arrays = [INPUT_IDS, INPUT_MASK, SEGMENT_IDS]
  inputs = [tf.placeholder(tf.int32, [None, None]) for _ in arrays]
  model = create_model(AlbertConfig.from_dict(config), False, *inputs,
                       use_one_hot_embeddings=True)
  outputs = small.outputs_of(model)
  assert outputs["sequence_output"].shape.as_list() == [None, None, 24]
  outputs["table"] = tf.convert_to_tensor(model.get_embedding_table())
  found = small.evaluate(outputs, weights, dict(zip(inputs, arrays)))
  np.testing.assert_array_equal(
      found.pop("table"), weights["bert/embeddings/word_embeddings"])
  small.assert_same_outputs(
      found, small.run_reference(config, weights), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", [
    "albert_zh_preln", pytest.param("google_groups", marks=pytest.mark.full)])
def test_gradients_agree_with_finite_differences(name):
  """The slope of random sums of the outputs, where all weights move."""
  config, rng = CONFIGS[name], np.random.RandomState(2)
  weights = reference.random_weights(config, seed=1)
  outputs = small.outputs_of(small.create(config))
  del outputs["all_layers"]
  factors = {key: rng.normal(size=x.shape) for key, x in outputs.items()}
  loss = tf.add_n([tf.reduce_sum(x * factors[key].astype(np.float32))
                   for key, x in outputs.items()])
  variables = tf.trainable_variables()
  gradients = small.evaluate(
      {v.op.name: tf.convert_to_tensor(gradient) for v, gradient
       in zip(variables, tf.gradients(loss, variables))}, weights)
  for _ in range(5):
    moves = {key: rng.normal(size=x.shape) for key, x in weights.items()}
    ends = []
    for step in (1e-6, -1e-6):
      found = small.run_reference(config, {
          key: x + step * moves[key] for key, x in weights.items()})
      ends.append(sum(np.sum(found[key] * x) for key, x in factors.items()))
    slope = sum(np.sum(x * moves[key]) for key, x in gradients.items())
    assert slope == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-3)


def initial_weights(seed, *names):
  """Returns the initial values of variables [400, 100] of one graph."""
  config = AlbertConfig.from_dict(CONFIGS["google"])
  with tf.Graph().as_default(), tf.Session() as session:
    tf.set_random_seed(seed)
    weights = [modeling.get_weights(name, [400, 100], config)
               for name in names]
    session.run(tf.global_variables_initializer())
    return session.run(weights)


def test_initial_weights_depend_on_the_seed_and_the_name_alone():
  a, b = initial_weights(1, "a", "b")
  np.testing.assert_array_equal(initial_weights(1, "b", "c", "a")[2], a)
  for other in (b, *initial_weights(2, "a")):
    assert abs(np.corrcoef(a.ravel(), other.ravel())[0, 1]) < 0.03
  # Of a normal distribution without what lies beyond two deviations.
  assert np.abs(a).max() <= 2 * 0.02
  np.testing.assert_allclose(a.std(), 0.8796 * 0.02, rtol=0.02)


@pytest.mark.parametrize("shape, message", [
    ([7], "rank"), ([1, 3, 7], "rank"),
    ([1, 10], "10 .* max_position_embeddings 9")])
def test_inputs_of_a_wrong_shape(shape, message):
  with pytest.raises(ValueError, match=message):
    create_model(AlbertConfig.from_dict(CONFIGS["google_relu"]), False,
                 tf.zeros(shape, tf.int32))
