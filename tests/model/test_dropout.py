"""Dropout: what it depends on, and how much of it there is."""

import numpy as np
import pytest
import reference_albert as reference
import tensorflow.compat.v1 as tf
from small_models import (
  BATCH,
  CONFIGS,
  DROPOUT,
  SEQ,
  albert_zh_config,
  create,
  google_config,
  initialize,
  only_biases,
)

from albert.model.config import AlbertConfig
from albert.model.layouts import create_model


@pytest.mark.parametrize("name", ["albert_zh", "google_preln"])
def test_dropout_depends_on_the_step_and_the_examples_alone(name):
  config = dict(CONFIGS[name], **DROPOUT)
  with tf.Graph().as_default():
    global_step = tf.train.get_or_create_global_step()
    model = create(config, is_training=True)
    output = model.get_sequence_output()
    set_step = global_step.assign(tf.placeholder(tf.int64, [], "step"))
    weights = {
        name: value
        for name, value in reference.random_weights(config).items()
        if name in {v.op.name for v in tf.trainable_variables()}}
    results = []
    for steps in ([0, 0, 1, 2], [1]):
      with tf.Session() as sess:
        initialize(sess, weights)
        for step in steps:
          sess.run(set_step, {"step:0": step})
          results.append(sess.run(output))
  np.testing.assert_array_equal(results[0], results[1])
  np.testing.assert_array_equal(results[2], results[4])
  assert np.abs(results[0] - results[2]).max() > 0.1
  assert np.abs(results[2] - results[3]).max() > 0.1


def test_dropout_is_another_for_other_examples():
  """Slices of a batch and replicas must not all drop the same."""
  with tf.Graph().as_default(), tf.Session() as sess:
    tf.train.get_or_create_global_step()
    ids = tf.placeholder(tf.int32, [2, 3])
    model = create_model(AlbertConfig.from_dict(CONFIGS["albert_zh"]), True,
                         ids)
    kept = model.dropout(tf.ones([1000]), 0.5, salt=77) > 0
    sess.run(tf.global_variables_initializer())
    masks = [sess.run(kept, {ids: value}) for value in (
        [[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6]], [[4, 5, 6], [1, 2, 3]],
        [[1, 2, 3], [4, 5, 7]])]
  np.testing.assert_array_equal(masks[0], masks[1])
  for other in masks[2:]:
    assert 0.4 < np.mean(masks[0] == other) < 0.6


def test_dropout_drops_a_tenth_and_differs_between_layers_and_examples():
  config = albert_zh_config(num_hidden_layers=3, hidden_size=240,
                            ln_type="preln", **DROPOUT)
  with tf.Graph().as_default(), tf.Session() as sess:
    tf.train.get_or_create_global_step()
    layers = create(config, is_training=True).get_all_encoder_layers()
    sess.run(tf.global_variables_initializer())
    sess.run(only_biases(lambda name: 0.9, lambda name: 9.0))
    layers = sess.run(list(layers))
  kept = []
  for before, after in zip(layers, layers[1:]):
    added = np.round(after - before).astype(int)
    assert set(np.unique(added)) == {0, 1, 10, 11}
    kept += [added % 10 == 1, added >= 10]
  # 5040 draws: 0.1 within five standard deviations.
  for i, one in enumerate(kept):
    assert abs(np.mean(one) - 0.9) < 0.022
    assert abs(np.mean(one[0] & one[1]) - 0.81) < 0.047
    for other in kept[:i]:
      assert abs(np.mean(one & other) - 0.81) < 0.028


def attention_kept(attention_dropout):
  """The sum of what is left of the attention probabilities, [B, S, H]."""
  config = google_config(attention_probs_dropout_prob=attention_dropout,
                         num_hidden_layers=2, ln_type="preln")
  scope = "bert/encoder/transformer/group_0/inner_group_0/"
  with tf.Graph().as_default(), tf.Session() as sess:
    tf.train.get_or_create_global_step()
    layers = create(config, is_training=True,
                    input_mask=None).get_all_encoder_layers()
    sess.run(tf.global_variables_initializer())
    values = {
        "attention_1/self/query/kernel": np.zeros([24, 24]),
        "attention_1/self/value/kernel": np.zeros([24, 24]),
        "attention_1/self/value/bias": np.ones([24]),
        "attention_1/output/dense/kernel": np.eye(24),
        "attention_1/output/dense/bias": np.zeros([24]),
        "ffn_1/intermediate/output/dense/kernel": np.zeros([40, 24])}
    variables = {v.op.name: v for v in tf.trainable_variables()}
    sess.run([variables[scope + name].assign(value.astype(np.float32))
              for name, value in values.items()])
    first, second = sess.run(list(layers))
  return second - first


def test_dropout_of_attention_probabilities_is_drawn_for_each_head():
  np.testing.assert_allclose(attention_kept(0.0), 1.0, atol=1e-5)
  left = attention_kept(0.5)
  # Seven keys of equal weight, each dropped or doubled.
  np.testing.assert_allclose(left * 7 / 2, np.round(left * 7 / 2), atol=1e-4)
  by_head = left.reshape([BATCH, SEQ, 4, 6])
  np.testing.assert_allclose(by_head, by_head[..., :1] + np.zeros([6]),
                             atol=1e-5)
  assert abs(by_head[..., 0].mean() - 1.0) < 0.2
  for axis in range(3):
    assert np.ptp(by_head[..., 0], axis=axis).max() > 0.2
