"""The model against an independent NumPy implementation and worked numbers."""

import glob
import json
import os
import re

import numpy as np
import pytest
import reference_albert as reference
import tensorflow.compat.v1 as tf
from small_models import (
  BATCH,
  CONFIGS,
  DROPOUT,
  INPUT_IDS,
  INPUT_MASK,
  POSITIONS,
  SEGMENT_IDS,
  SEQ,
  albert_zh_config,
  assert_same_outputs,
  create,
  google_config,
  initialize,
  only_biases,
  outputs_of,
  run_model,
  run_reference,
)

import modeling
from albert.model.config import AlbertConfig
from albert.model.layouts import create_model

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONFIG_DIR = os.path.join(os.path.dirname(TESTS), "albert_config")
CONFIG_NAMES = ["albert_config_%s.json" % name for name in (
    "tiny", "base", "large", "xlarge", "xxlarge", "tiny_google",
    "small_google", "base_google", "large_google", "xlarge_google",
    "xxlarge_google")] + ["bert_config.json"]


def trainable_shapes(config):
  with tf.Graph().as_default():
    ids = tf.placeholder(tf.int32, [1, 4])
    model = create_model(config, False, ids)
    model.masked_lm_logits(tf.constant([[1]]))
    model.sentence_order_logits()
    names = [v.op.name for v in tf.trainable_variables()]
    assert len(names) == len(set(names))
    return {v.op.name: tuple(v.shape.as_list())
            for v in tf.trainable_variables()}


def released_shapes(filename):
  with open(os.path.join(TESTS, "released_variables", filename)) as lines:
    rows = [line.rstrip("\n").split("\t") for line in lines]
  return {name: tuple(json.loads(shape)) for name, shape in rows}


@pytest.mark.parametrize("config_name,released", [
    ("albert_config_tiny.json", "albert_tiny_zh.vars.txt"),
    ("albert_config_tiny_google.json", "albert_tiny_zh_google.vars.txt")])
def test_tiny_has_exactly_the_variables_of_the_released_file(
    config_name, released):
  config = AlbertConfig.from_json_file(
      os.path.join(CONFIG_DIR, config_name))
  assert trainable_shapes(config) == released_shapes(released)


def test_configuration_files_are_the_known_ones():
  found = [os.path.basename(path)
           for path in glob.glob(os.path.join(CONFIG_DIR, "*.json"))]
  assert sorted(found) == sorted(CONFIG_NAMES)


def read_config(name):
  with open(os.path.join(CONFIG_DIR, name)) as f:
    return json.load(f)


@pytest.mark.parametrize("name", CONFIG_NAMES)
def test_variables_of_every_configuration_file(name):
  config = read_config(name)
  if reference.sharing(config) == "all":
    # Depth adds no variables, only nodes to the graph.
    config["num_hidden_layers"] = min(config["num_hidden_layers"], 3)
  parsed = AlbertConfig.from_dict(config)
  assert parsed.layout == ("google" if "google" in name else "albert_zh")
  assert trainable_shapes(parsed) == reference.expected_variables(config)


@pytest.mark.parametrize("name,encoder,with_heads", [
    ("base", 11683584, 11813810), ("large", 17683968, 17847474),
    ("xlarge", 58724864, 59021490), ("xxlarge", 222595584, 223158450)])
def test_parameter_counts_of_google_models_with_30000_words(
    name, encoder, with_heads):
  config = read_config("albert_config_%s_google.json" % name)
  sizes = {variable: int(np.prod(shape)) for variable, shape
           in reference.expected_variables(
               dict(config, vocab_size=30000)).items()}
  assert sum(sizes.values()) == with_heads
  assert sum(size for variable, size in sizes.items()
             if not variable.startswith("cls/")) == encoder


@pytest.mark.parametrize("name,layers,hidden,heads_of_attention", [
    ("base", 12, 768, 12), ("large", 24, 1024, 16), ("xlarge", 24, 2048, 16),
    ("xxlarge", 12, 4096, 64)])
def test_sizes_of_google_models(name, layers, hidden, heads_of_attention):
  config = AlbertConfig.from_json_file(
      os.path.join(CONFIG_DIR, "albert_config_%s_google.json" % name))
  assert (config.num_hidden_layers, config.hidden_size,
          config.num_attention_heads) == (layers, hidden, heads_of_attention)


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_forward_agrees_with_numpy(name):
  config = CONFIGS[name]
  weights = reference.random_weights(config)
  assert_same_outputs(run_model(config, weights),
                      run_reference(config, weights), atol=1e-5)


def test_layer_norm_epsilon_is_far_below_the_variance_of_small_embeddings():
  config = CONFIGS["google"]
  weights = reference.random_weights(config)
  for name in weights:
    if name.startswith("bert/embeddings/") and name.endswith("_embeddings"):
      weights[name] *= 1e-3
  actual = run_model(config, weights)["embedding_output"]
  expected = run_reference(config, weights)["embedding_output"]
  np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["albert_zh", "google", "bert"])
def test_embedding_table_is_the_word_embeddings(name):
  config = CONFIGS[name]
  weights = reference.random_weights(config)
  with tf.Graph().as_default(), tf.Session() as sess:
    model = create(config)
    outputs_of(model)
    initialize(sess, weights)
    table = sess.run(tf.convert_to_tensor(model.get_embedding_table()))
  np.testing.assert_array_equal(
      table, weights["bert/embeddings/word_embeddings"].astype(np.float32))


@pytest.mark.parametrize("name", ["albert_zh", "google"])
def test_no_mask_and_no_segments_mean_all_real_and_all_first(name):
  config = CONFIGS[name]
  weights = reference.random_weights(config)
  actual = run_model(config, weights, input_mask=None, token_type_ids=None)
  expected = run_reference(config, weights,
                           input_mask=np.ones_like(INPUT_IDS),
                           token_type_ids=np.zeros_like(INPUT_IDS))
  assert_same_outputs(actual, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["albert_zh", "google_preln"])
def test_what_stands_in_the_padding_changes_no_real_token(name):
  config = CONFIGS[name]
  weights = reference.random_weights(config)
  other_ids = np.where(INPUT_MASK == 1, INPUT_IDS, (INPUT_IDS + 17) % 50)
  real = INPUT_MASK == 1
  one, other = np.split(run_model(
      config, weights, np.concatenate([INPUT_IDS, other_ids]),
      np.concatenate([INPUT_MASK] * 2), np.concatenate([SEGMENT_IDS] * 2),
      positions=np.concatenate([POSITIONS] * 2))["sequence_output"], 2)
  np.testing.assert_allclose(one[real], other[real], rtol=0, atol=1e-6)
  assert np.abs(one[~real] - other[~real]).max() > 0.1


@pytest.mark.parametrize("name", ["albert_zh", "google"])
def test_sizes_of_batch_and_sequence_may_be_unknown(name):
  config = CONFIGS[name]
  weights = reference.random_weights(config)
  arrays = [INPUT_IDS, INPUT_MASK, SEGMENT_IDS]
  with tf.Graph().as_default(), tf.Session() as sess:
    inputs = [tf.placeholder(tf.int32, [None, None]) for _ in arrays]
    outputs = outputs_of(create_model(
        AlbertConfig.from_dict(config), False, *inputs))
    assert outputs["sequence_output"].shape.as_list() == [None, None, 24]
    initialize(sess, weights)
    actual = sess.run(outputs, dict(zip(inputs, arrays)))
  assert_same_outputs(actual, run_reference(config, weights), atol=1e-5)


@pytest.mark.parametrize("name", ["albert_zh", "google", "bert"])
def test_one_hot_lookups_agree_with_numpy(name):
  config = CONFIGS[name]
  weights = reference.random_weights(config)
  actual = run_model(config, weights, use_one_hot_embeddings=True)
  assert_same_outputs(actual, run_reference(config, weights), atol=1e-5)


@pytest.mark.parametrize("name", [
    "albert_zh", "albert_zh_preln", "albert_zh_attention", "google",
    "google_uneven_groups"])
def test_gradients_agree_with_finite_differences(name):
  config = CONFIGS[name]
  weights = reference.random_weights(config, seed=1)
  rng = np.random.RandomState(2)
  projections = {
      "sequence_output": rng.normal(size=[BATCH, SEQ, 24]),
      "masked_lm_logits": rng.normal(size=[POSITIONS.size, 50]),
      "sentence_order_logits": rng.normal(size=[BATCH, 2])}

  def reference_loss():
    outputs = run_reference(config, weights)
    return sum(np.sum(outputs[key] * projection)
               for key, projection in projections.items())

  with tf.Graph().as_default(), tf.Session() as sess:
    outputs = outputs_of(create(config))
    loss = tf.add_n([
        tf.reduce_sum(outputs[key] * projection.astype(np.float32))
        for key, projection in projections.items()])
    variables = tf.trainable_variables()
    gradients = [tf.convert_to_tensor(g) for g in tf.gradients(loss, variables)]
    initialize(sess, weights)
    actual = dict(zip([v.op.name for v in variables], sess.run(gradients)))

  numbered = r"/(layer|group|inner_group|attention|intermediate|output)_\d+/"
  kinds = {}
  for variable_name in sorted(weights):
    kinds.setdefault(re.sub(numbered, "/", variable_name), []).append(
        variable_name)
  step = 1e-5
  for _, names in sorted(kinds.items()):
    for variable_name in rng.choice(names, size=3):
      value, gradient = weights[variable_name], actual[variable_name]
      large = np.argwhere(np.abs(gradient) > 0.1 * np.abs(gradient).max())
      entry = tuple(large[rng.randint(len(large))])
      start = value[entry]
      value[entry] = start + step
      above = reference_loss()
      value[entry] = start - step
      below = reference_loss()
      value[entry] = start
      # The key bias moves all scores of a query alike: its gradient is zero
      # up to rounding, hence the absolute part of the tolerance.
      np.testing.assert_allclose(
          gradient[entry], (above - below) / (2 * step), rtol=1e-3, atol=2e-3,
          err_msg="%s %s" % (variable_name, entry))


def increments(config, attention_bias, ffn_bias):
  """What each pre-LN layer adds when its two outputs are only a bias."""
  with tf.Graph().as_default(), tf.Session() as sess:
    layers = create(dict(config, ln_type="preln")).get_all_encoder_layers()
    sess.run(tf.global_variables_initializer())
    sess.run(only_biases(attention_bias, ffn_bias))
    layers = sess.run(list(layers))
  return [np.unique(np.round(after - before, 3)).tolist()
          for before, after in zip(layers, layers[1:])]


def number_after(prefix, name):
  return float(name.split(prefix)[1].split("/")[0])


def test_all_layers_use_the_shared_block():
  assert increments(
      albert_zh_config(num_hidden_layers=3),
      attention_bias=lambda name: 1,
      ffn_bias=lambda name: 10) == [[11.0], [11.0]]


def test_shared_attention_with_a_ffn_for_each_layer():
  assert increments(
      albert_zh_config(num_hidden_layers=3, parameter_sharing="attention"),
      attention_bias=lambda name: 1,
      ffn_bias=lambda name: 10 * number_after("/output_", name)
  ) == [[11.0], [21.0]]


def test_shared_ffn_with_attention_for_each_layer():
  assert increments(
      albert_zh_config(num_hidden_layers=3, parameter_sharing="ffn"),
      attention_bias=lambda name: number_after("/attention_", name),
      ffn_bias=lambda name: 10) == [[11.0], [12.0]]


def test_nothing_shared():
  assert increments(
      albert_zh_config(num_hidden_layers=3, parameter_sharing="none"),
      attention_bias=lambda name: number_after("/layer_", name),
      ffn_bias=lambda name: 10 * number_after("/layer_", name)
  ) == [[11.0], [22.0]]


def test_google_groups_follow_one_another():
  # The layers are in groups 0, 0 and 1; each runs both inner groups.
  assert increments(
      google_config(num_hidden_groups=2, inner_group_num=2,
                    num_hidden_layers=3),
      attention_bias=lambda name: 1 + 100 * number_after("/group_", name),
      ffn_bias=lambda name: 10 * number_after("/inner_group_", name)
  ) == [[12.0], [212.0]]


def initial_weights(seed, *names):
  """Returns the initial values of variables [400, 100] of one graph."""
  config = AlbertConfig(**albert_zh_config())
  with tf.Graph().as_default(), tf.Session() as session:
    tf.set_random_seed(seed)
    weights = [modeling.get_weights(name, [400, 100], config)
               for name in names]
    session.run(tf.global_variables_initializer())
    return session.run(weights)


def test_initial_weights_depend_on_the_seed_and_the_name_alone():
  a, b = initial_weights(1, "a", "b")
  np.testing.assert_array_equal(initial_weights(1, "b", "c", "a")[2], a)
  other_seed, = initial_weights(2, "a")
  for other in (b, other_seed):
    assert abs(np.corrcoef(a.ravel(), other.ravel())[0, 1]) < 0.03
  # Of a normal distribution without what lies beyond two deviations.
  scale = AlbertConfig(**albert_zh_config()).initializer_range
  assert np.abs(a).max() <= 2 * scale
  np.testing.assert_allclose(a.std(), 0.8796 * scale, rtol=0.02)


def test_no_dropout_outside_training():
  config = dict(CONFIGS["google"], **DROPOUT)
  weights = reference.random_weights(config)
  with tf.Graph().as_default(), tf.Session() as sess:
    global_step = tf.train.get_or_create_global_step()
    outputs = outputs_of(create(config, is_training=False))
    initialize(sess, weights)
    first = sess.run(outputs)
    sess.run(global_step.assign_add(1))
    second = sess.run(outputs)
  assert_same_outputs(second, first, atol=0)
  assert_same_outputs(first, run_reference(config, weights), atol=1e-5)


@pytest.mark.parametrize("name", ["albert_zh", "google"])
@pytest.mark.parametrize("shape", [[7], [1, 3, 7]])
def test_input_of_another_rank_is_an_error(name, shape):
  with tf.Graph().as_default():
    with pytest.raises(ValueError, match="rank"):
      create(CONFIGS[name], input_ids=np.zeros(shape), input_mask=None,
             token_type_ids=None)


@pytest.mark.parametrize("name", ["albert_zh", "google"])
def test_longest_sequence_is_max_position_embeddings(name):
  with tf.Graph().as_default():
    create(CONFIGS[name], input_ids=np.zeros([1, 9]), input_mask=None,
           token_type_ids=None)
  with tf.Graph().as_default():
    with pytest.raises(ValueError, match="max_position_embeddings") as error:
      create(CONFIGS[name], input_ids=np.zeros([1, 10]), input_mask=None,
             token_type_ids=None)
  assert "9" in str(error.value) and "10" in str(error.value)
