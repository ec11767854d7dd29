"""Kernels for training and for phones, against the plain ones."""

import functools

import numpy as np
import pytest
import reference_albert as reference
import tensorflow.compat.v1 as tf
from small_models import (
  CONFIGS,
  INPUT_MASK,
  create,
  initialize,
  outputs_of,
)

import modeling
from albert.model import kernels

BATCH, HEADS, QUERIES, SEQ, SIZE = 3, 4, 5, 7, 6


def assert_as_close_as_float32(found, expected):
  assert found.shape == expected.shape
  np.testing.assert_allclose(found, expected, rtol=0,
                             atol=1e-6 * np.abs(expected).max())


def dropout(x, example=0, rate=0.4):
  """Drops the same each time, and different values for each example."""
  draw = tf.random.stateless_uniform(
      tf.shape(x), seed=tf.stack([tf.constant(17), tf.cast(example, tf.int32)]))
  return x * tf.cast(draw >= rate, x.dtype) / (1.0 - rate)


def keep(x, example=0):
  del example
  return x


@pytest.mark.parametrize("drop", [keep, dropout])
@pytest.mark.parametrize("one_by_one", [False, True])
def test_attention_has_the_values_and_gradients_of_the_plain_one(
    one_by_one, drop):
  rng = np.random.RandomState(5)
  query, key, value, weights = [
      tf.constant(rng.normal(size=[BATCH, HEADS, length, SIZE]), tf.float32)
      for length in (QUERIES, SEQ, SEQ, QUERIES)]
  inputs = [query, key, value]
  # Of the second example four tokens are no padding, of the third one is.
  mask_bias = tf.constant(
      modeling.MASK_BIAS * (1 - INPUT_MASK[:, None, None]), tf.float32)
  if one_by_one:
    expected = tf.stack([
        modeling.attention(*[x[i] for x in inputs + [mask_bias]],
                           dropout=functools.partial(drop, example=i))
        for i in range(BATCH)])
  else:
    expected = modeling.attention(*inputs, mask_bias=mask_bias, dropout=drop)
  found = kernels.recomputed_attention(
      *inputs, mask_bias=mask_bias, dropout=drop, one_by_one=one_by_one)
  with tf.Session() as session:
    pair = session.run([[y] + tf.gradients(weights * y, inputs)
                        for y in (found, expected)])
  for one, other in zip(*pair):
    assert_as_close_as_float32(one, other)


def test_training_handles_long_sequences_one_by_one_on_a_cpu():
  long = kernels.LONG_SEQUENCE
  for length, use_cpu, one_by_one in (
      (long, True, True), (long - 1, True, False), (long, False, False),
      (None, True, False)):
    used = kernels.for_training(length, use_cpu=use_cpu)
    assert used.attention.func is kernels.recomputed_attention
    assert used.attention.keywords["one_by_one"] == one_by_one


@pytest.mark.parametrize("kernel", [kernels.lean_gelu, kernels.sigmoid_gelu])
def test_gelu_has_the_values_and_gradient_of_the_plain_one(kernel):
  """In double precision, which gradients need where x is below -3."""
  x = tf.constant(np.linspace(-8, 8, 1001))
  weights = tf.constant(np.random.RandomState(0).normal(size=1001))
  with tf.Session() as session:
    pair = session.run([[y] + tf.gradients(weights * y, x)
                        for y in (kernel(x), modeling.gelu(x))])
  for one, other in zip(*pair):
    assert_as_close_as_float32(one, other)


def test_the_gradient_of_gelu_is_finite_in_half_precision():
  numbers = np.concatenate([np.arange(-200, 201), np.linspace(-12, 12, 97)])
  x = tf.constant(numbers, tf.float16)
  exact = tf.constant(numbers, tf.float64)
  with tf.Session() as session:
    (lean, half, plain) = session.run([
        [y] + tf.gradients(y, of) for y, of in (
            (kernels.lean_gelu(x), x), (kernels.half_gelu(x), x),
            (modeling.gelu(exact), exact))])
  for one, other in zip(half, plain):
    np.testing.assert_allclose(one, other, rtol=2e-3, atol=5e-3)
  assert not np.all(np.isfinite(lean[1]))  # what it is for
  # In single precision nothing changes.
  x = tf.constant(numbers, tf.float32)
  with tf.Session() as session:
    lean, half = session.run([[y] + tf.gradients(y, x) for y in (
        kernels.lean_gelu(x), kernels.half_gelu(x))])
  for one, other in zip(half, lean):
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-36)


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("heads", [[], [1, HEADS]])
def test_products_head_by_head(heads, transpose_b):
  rng = np.random.RandomState(0)
  shapes = [[QUERIES, SIZE], [SEQ, SIZE] if transpose_b else [SIZE, SEQ]]
  a, b = [tf.constant(rng.normal(size=heads + shape), tf.float32)
          for shape in shapes]
  with tf.Session() as session:
    assert_as_close_as_float32(*session.run([
        matmul(a, b, transpose_b=transpose_b)
        for matmul in (kernels.matmul_by_heads, tf.matmul)]))


# The first token is among them, as in what a head asks for that reads the
# pooled output; one is twice there.
OUTPUT_POSITIONS = np.array([[0, 3, 6], [0, 0, 2], [0, 5, 4]])


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("name", [
    "albert_zh", "albert_zh_preln", "google", "google_preln",
    "google_groups", "google_groups_preln"])
def test_chosen_tokens_are_those_of_all_tokens(name, static):
  config = CONFIGS[name]
  positions = tf.placeholder(
      tf.int32, OUTPUT_POSITIONS.shape if static else [None, None])
  everywhere = outputs_of(create(config), OUTPUT_POSITIONS)
  model = create(config, output_positions=positions)
  chosen = dict(outputs_of(model), masked_lm_logits=model.masked_lm_logits())
  with tf.Session() as session:
    initialize(session, reference.random_weights(config))
    everywhere, chosen = session.run([everywhere, chosen],
                                     {positions: OUTPUT_POSITIONS})
  everywhere["sequence_output"] = np.take_along_axis(
      everywhere["sequence_output"], OUTPUT_POSITIONS[:, :, None], 1)
  everywhere["all_layers"][-1] = everywhere["sequence_output"]
  for found, expected in zip(chosen.pop("all_layers"),
                             everywhere.pop("all_layers")):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
  for output, expected in everywhere.items():
    assert chosen[output].shape == expected.shape
    np.testing.assert_allclose(chosen[output], expected, rtol=0, atol=1e-5,
                               err_msg=output)


def test_chosen_tokens_cost_no_others():
  """The last layer multiplies rows of chosen tokens alone, but for its keys."""
  rows = []

  def matmul(x, y, **kwargs):
    if x.shape.ndims == 2:
      rows.append(x.shape.as_list()[0])
    return tf.matmul(x, y, **kwargs)

  create(CONFIGS["google"], kernels=modeling.Kernels(matmul=matmul),
         output_positions=tf.constant([[0]] * BATCH))
  size = INPUT_MASK.size
  # Query, key, value, output, both of the feed-forward network; the pooler.
  assert rows[-13:] == [size] * 6 + [BATCH, size, size, BATCH, BATCH, BATCH,
                                     BATCH]
