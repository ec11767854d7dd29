"""The model against an independent NumPy implementation and known values."""

import json

import numpy as np
import pytest
import reference_albert as reference
import small_models as small
import tensorflow.compat.v1 as tf
from reading import table
from scripting import ROOT
from small_models import CONFIGS, INPUT_IDS, INPUT_MASK, SEGMENT_IDS

import modeling
from albert import heads
from albert.model.config import AlbertConfig
from albert.model.layouts import create_model

CONFIG_DIR = ROOT / "albert_config"


@pytest.mark.parametrize(
  "config, released, num_labels",
  [
    ("tiny", "tiny_zh", None),
    ("tiny_google", "tiny_zh_google", None),
    ("tiny", "tiny_zh_finetuned", 59),
  ],
)
def test_tiny_has_the_released_variables(config, released, num_labels):
  model = create_model(
    AlbertConfig.from_json_file(
      str(CONFIG_DIR / ("albert_config_%s.json" % config))
    ),
    False,
    tf.zeros([1, 4], tf.int32),
  )
  if num_labels:
    heads.Classifier(num_labels).logits(model)
  else:
    model.masked_lm_logits(tf.constant([[1]]))
    model.sentence_order_logits()
  rows = table(
    ROOT / "tests" / "released_variables" / ("albert_%s.vars.txt" % released)
  )
  assert sorted(
    (v.op.name, v.shape.as_list()) for v in tf.trainable_variables()
  ) == [
    (name, json.loads(shape))
    for name, shape in sorted(rows)
    if not name.endswith(("/adam_m", "/adam_v", "global_step"))
  ]


@pytest.mark.parametrize(
  "names, sizes",
  [
    ("albert_config_small_google", (6, 384, 12)),
    ("albert_config_base albert_config_base_google bert_config", (12, 768, 12)),
    (
      "albert_config_large albert_config_large_google bert_config_large",
      (24, 1024, 16),
    ),
    ("albert_config_xlarge", (24, 2048, 32)),
    ("albert_config_xlarge_google bert_config_xlarge", (24, 2048, 16)),
    ("albert_config_xxlarge albert_config_xxlarge_google", (12, 4096, 64)),
  ],
)
def test_sizes(names, sizes):
  for name in names.split():
    config = AlbertConfig.from_json_file(str(CONFIG_DIR / (name + ".json")))
    assert config.layout == ("google" if "google" in name else "albert_zh")
    assert (
      config.num_hidden_layers,
      config.hidden_size,
      config.num_attention_heads,
    ) == sizes


@pytest.mark.parametrize(
  "name",
  [
    name
    if name in ("albert_zh", "google_preln")
    else pytest.param(name, marks=pytest.mark.slow)
    for name in sorted(CONFIGS)
  ],
)
def test_forward_agrees_with_numpy(name):
  """By default, all tokens are real and in the first segment."""
  config = dict(CONFIGS[name], **small.DROPOUT)  # no effect at inference
  weights, ones = reference.random_weights(config), np.ones_like(INPUT_IDS)
  for given, meant in (
    ([], []),
    ([INPUT_IDS, None, None], [INPUT_IDS, ones, 0 * ones]),
  ):
    small.assert_same_outputs(
      small.run_model(config, weights, *given),
      small.run_reference(config, weights, *meant),
      atol=1e-5,
    )


def test_activations():
  x = np.linspace(-5, 5, 101)
  for name, y in small.evaluate(
    {
      name: modeling.activate(tf.constant(x), name)
      for name in ("gelu", "gelu_new", "relu", "tanh", "linear")
    }
  ).items():
    np.testing.assert_allclose(y, reference.activation(name, x), atol=1e-12)


def test_layer_norm_epsilon_is_far_below_the_variance_of_small_embeddings():
  x = 1e-3 * np.random.RandomState(0).normal(size=[3, 16])
  weights = {"norm/gamma": 1 + np.arange(16) / 8, "norm/beta": np.arange(16)}
  y = small.evaluate(
    modeling.layer_norm(tf.constant(x, tf.float32), "norm"), weights
  )
  np.testing.assert_allclose(
    y, reference.layer_norm(weights, "norm", x), rtol=0, atol=1e-5
  )


def test_one_hot_lookups_and_sizes_that_are_not_known():
  config = CONFIGS["google_relu"]
  weights = reference.random_weights(config)
  arrays = [INPUT_IDS, INPUT_MASK, SEGMENT_IDS]
  inputs = [tf.placeholder(tf.int32, [None, None]) for _ in arrays]
  model = create_model(
    AlbertConfig.from_dict(config), False, *inputs, use_one_hot_embeddings=True
  )
  outputs = small.outputs_of(model)
  assert outputs["sequence_output"].shape.as_list() == [None, None, 24]
  outputs["table"] = tf.convert_to_tensor(model.get_embedding_table())
  found = small.evaluate(outputs, weights, dict(zip(inputs, arrays)))
  np.testing.assert_array_equal(
    found.pop("table"), weights["bert/embeddings/word_embeddings"]
  )
  small.assert_same_outputs(
    found, small.run_reference(config, weights), atol=1e-5
  )


def test_initial_weights_depend_on_the_seed_and_the_name_alone():
  def initial_weights(seed, *names):
    config = AlbertConfig.from_dict(CONFIGS["google"])
    with tf.Graph().as_default(), tf.Session() as session:
      tf.set_random_seed(seed)
      weights = [
        modeling.get_weights(name, [400, 100], config) for name in names
      ]
      session.run(tf.global_variables_initializer())
      return session.run(weights)

  a, b = initial_weights(1, "a", "b")
  np.testing.assert_array_equal(initial_weights(1, "b", "c", "a")[2], a)
  for other in (b, *initial_weights(2, "a")):
    assert abs(np.corrcoef(a.ravel(), other.ravel())[0, 1]) < 0.03
  # A normal distribution truncated at two standard deviations.
  assert np.abs(a).max() <= 2 * 0.02
  np.testing.assert_allclose(a.std(), 0.8796 * 0.02, rtol=0.02)


@pytest.mark.parametrize(
  "shape, message",
  [
    ([7], "rank"),
    ([1, 3, 7], "rank"),
    ([1, 10], "10 .* max_position_embeddings 9"),
  ],
)
def test_inputs_of_a_wrong_shape(shape, message):
  with pytest.raises(ValueError, match=message):
    create_model(
      AlbertConfig.from_dict(CONFIGS["google_relu"]),
      False,
      tf.zeros(shape, tf.int32),
    )


@pytest.mark.parametrize(
  "make",
  [
    small.albert_zh_config,
    pytest.param(small.google_config, marks=pytest.mark.slow),
  ],
)
def test_dropout_depends_on_the_step_and_the_examples_alone(make):
  """Slices of a batch and replicas must get different dropout masks."""
  set_step = tf.train.get_or_create_global_step().assign(
    tf.placeholder(tf.int64, [], "step")
  )
  ids = tf.placeholder(tf.int32, [2, 3])
  model = create_model(
    AlbertConfig.from_dict(make(**small.ONE_LAYER, **small.DROPOUT)), True, ids
  )
  drawn = [
    model.get_sequence_output(),
    model.dropout(tf.ones([1000]), 0.5, salt=77) > 0,
  ]
  given = [[1, 2, 3], [4, 5, 6]]
  results = []
  for runs in (
    [
      (0, given),
      (0, given),
      (1, given),
      (2, given),
      (0, given[::-1]),
      (0, [[1, 2, 3], [4, 5, 7]]),
    ],
    [(1, given)],
  ):
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      for step, value in runs:
        session.run(set_step, {"step:0": step})
        results.append(session.run(drawn, {ids: value}))
  for one, other in ((0, 1), (2, 6)):
    for x, y in zip(results[one], results[other]):
      np.testing.assert_array_equal(x, y)
  for one, other in ((0, 2), (2, 3), (0, 4), (0, 5)):
    (x, kept), (y, others) = results[one], results[other]
    assert np.abs(x - y).max() > 0.1
    assert 0.4 < np.mean(kept == others) < 0.6


def added_by_layers(config, values):
  """Returns what each pre-LN layer but the first adds in training.

  `values`: dict, suffix of encoder variables -> value.
  """
  tf.train.get_or_create_global_step()
  layers = small.create(
    dict(config, ln_type="preln"), is_training=True, input_mask=None
  ).get_all_encoder_layers()
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(
      [
        v.assign(value + tf.zeros_like(v))
        for v in tf.trainable_variables("bert/encoder")
        for end, value in values.items()
        if v.op.name.endswith(end)
      ]
    )
    layers = session.run(list(layers))
  return [after - before for before, after in zip(layers, layers[1:])]


def test_dropout_drops_a_tenth_and_differs_between_layers_and_examples():
  kept = []
  for added in added_by_layers(
    small.albert_zh_config(
      num_hidden_layers=3, hidden_size=240, **small.DROPOUT
    ),
    {
      "output/dense/kernel": 0,
      "attention/output/dense/bias": 0.9,
      "shared/output/dense/bias": 9,
    },
  ):
    added = np.round(added).astype(int)
    assert set(np.unique(added)) == {0, 1, 10, 11}
    kept += [added % 10 == 1, added >= 10]
  # 5040 draws: within five standard deviations of 0.1.
  for i, one in enumerate(kept):
    assert abs(np.mean(one) - 0.9) < 0.022
    assert abs(np.mean(one[0] & one[1]) - 0.81) < 0.047
    for other in kept[:i]:
      assert abs(np.mean(one & other) - 0.81) < 0.028


def test_dropout_of_attention_probabilities_is_drawn_for_each_head():
  config = small.google_config(attention_probs_dropout_prob=0.5)
  (left,) = added_by_layers(
    config,
    {
      "self/query/kernel": 0,
      "self/value/kernel": 0,
      "self/value/bias": 1,
      "attention_1/output/dense/kernel": np.eye(24),
      "intermediate/output/dense/kernel": 0,
    },
  )
  # Seven keys of equal weight, each dropped or doubled.
  np.testing.assert_allclose(left * 7 / 2, np.round(left * 7 / 2), atol=1e-4)
  by_head = left.reshape([3, 7, 4, 6])
  np.testing.assert_allclose(
    by_head, by_head[..., :1] + np.zeros([6]), atol=1e-5
  )
  assert abs(by_head[..., 0].mean() - 1.0) < 0.2
  for axis in range(3):
    assert np.ptp(by_head[..., 0], axis=axis).max() > 0.2
