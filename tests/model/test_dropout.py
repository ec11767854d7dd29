"""Dropout: what it depends on, and how much of it there is."""

import numpy as np
import pytest
import reference_albert as reference
import small_models
import tensorflow.compat.v1 as tf
from small_models import DROPOUT, ONE_LAYER, albert_zh_config, google_config

from albert.model.config import AlbertConfig
from albert.model.layouts import create_model


@pytest.mark.parametrize("make", [
    albert_zh_config, pytest.param(google_config, marks=pytest.mark.slow)])
def test_dropout_depends_on_the_step_and_the_examples_alone(make):
  config = make(**ONE_LAYER, **DROPOUT)
  global_step = tf.train.get_or_create_global_step()
  output = small_models.create(config, is_training=True).get_sequence_output()
  set_step = global_step.assign(tf.placeholder(tf.int64, [], "step"))
  weights = {name: value
             for name, value in reference.random_weights(config).items()
             if not name.startswith("cls/")}
  results = []
  for steps in ([0, 0, 1, 2], [1]):
    with tf.Session() as sess:
      small_models.initialize(sess, weights)
      for step in steps:
        sess.run(set_step, {"step:0": step})
        results.append(sess.run(output))
  np.testing.assert_array_equal(results[0], results[1])
  np.testing.assert_array_equal(results[2], results[4])
  assert np.abs(results[0] - results[2]).max() > 0.1
  assert np.abs(results[2] - results[3]).max() > 0.1


def test_dropout_is_another_for_other_examples():
  """Slices of a batch and replicas must not all drop the same."""
  tf.train.get_or_create_global_step()
  ids = tf.placeholder(tf.int32, [2, 3])
  model = create_model(AlbertConfig.from_dict(albert_zh_config(**ONE_LAYER)),
                       True, ids)
  kept = model.dropout(tf.ones([1000]), 0.5, salt=77) > 0
  with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    masks = [sess.run(kept, {ids: value}) for value in (
        [[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6]], [[4, 5, 6], [1, 2, 3]],
        [[1, 2, 3], [4, 5, 7]])]
  np.testing.assert_array_equal(masks[0], masks[1])
  for other in masks[2:]:
    assert 0.4 < np.mean(masks[0] == other) < 0.6


def added_by_layers(config, values):
  """Returns what each pre-LN layer but the first adds, in training.

  Assigned are the encoder's variables whose name ends in a key of `values`.
  """
  tf.train.get_or_create_global_step()
  layers = small_models.create(dict(config, ln_type="preln"), is_training=True,
                  input_mask=None).get_all_encoder_layers()
  with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    sess.run([v.assign(np.zeros(v.shape.as_list(), np.float32) + value)
              for v in tf.trainable_variables()
              for end, value in values.items()
              if v.op.name.startswith("bert/encoder") and
              v.op.name.endswith(end)])
    layers = sess.run(list(layers))
  return [after - before for before, after in zip(layers, layers[1:])]


def test_dropout_drops_a_tenth_and_differs_between_layers_and_examples():
  kept = []
  for added in added_by_layers(
      albert_zh_config(num_hidden_layers=3, hidden_size=240, **DROPOUT),
      {"output/dense/kernel": 0, "attention/output/dense/bias": 0.9,
       "shared/output/dense/bias": 9}):
    added = np.round(added).astype(int)
    assert set(np.unique(added)) == {0, 1, 10, 11}
    kept += [added % 10 == 1, added >= 10]
  # 5040 draws: 0.1 within five standard deviations.
  for i, one in enumerate(kept):
    assert abs(np.mean(one) - 0.9) < 0.022
    assert abs(np.mean(one[0] & one[1]) - 0.81) < 0.047
    for other in kept[:i]:
      assert abs(np.mean(one & other) - 0.81) < 0.028


def test_dropout_of_attention_probabilities_is_drawn_for_each_head():
  left, = added_by_layers(google_config(attention_probs_dropout_prob=0.5), {
      "self/query/kernel": 0, "self/value/kernel": 0, "self/value/bias": 1,
      "attention_1/output/dense/kernel": np.eye(24),
      "intermediate/output/dense/kernel": 0})
  # Seven keys of equal weight, each dropped or doubled.
  np.testing.assert_allclose(left * 7 / 2, np.round(left * 7 / 2), atol=1e-4)
  by_head = left.reshape([3, 7, 4, 6])
  np.testing.assert_allclose(by_head, by_head[..., :1] + np.zeros([6]),
                             atol=1e-5)
  assert abs(by_head[..., 0].mean() - 1.0) < 0.2
  for axis in range(3):
    assert np.ptp(by_head[..., 0], axis=axis).max() > 0.2
