"""Training and mobile kernels against the plain implementations."""

import functools

import numpy as np
import pytest
import reference_albert as reference
import small_models
import tensorflow.compat.v1 as tf
from small_models import CONFIGS, INPUT_MASK, create, evaluate, outputs_of

import modeling
from albert.model import kernels

BATCH, HEADS, QUERIES, SEQ, SIZE = 3, 4, 5, 7, 6


def assert_same(found, expected, *inputs):
  """Asserts equal values, and equal gradients of a weighted sum."""
  factors = np.random.RandomState(0).normal(size=found.shape.as_list())
  pair = evaluate(
    [
      [y, *tf.gradients(y * tf.cast(factors, y.dtype), inputs)]
      for y in (found, expected)
    ]
  )
  for one, other in zip(*pair):
    assert one.shape == other.shape
    np.testing.assert_allclose(
      one, other, rtol=0, atol=1e-6 * np.abs(other).max()
    )


@pytest.mark.parametrize("one_by_one", [False, True])
def test_attention_has_the_values_and_gradients_of_the_plain_one(one_by_one):
  def dropout(x, example=0):
    """The same mask on every call, a different one for each example."""
    draw = tf.random.stateless_uniform(
      tf.shape(x), seed=tf.stack([tf.constant(17), tf.cast(example, tf.int32)])
    )
    return x * tf.cast(draw >= 0.4, x.dtype) / 0.6

  rng = np.random.RandomState(5)
  inputs = [
    tf.constant(rng.normal(size=[BATCH, HEADS, length, SIZE]), tf.float32)
    for length in (QUERIES, SEQ, SEQ)
  ]
  # The second example has four real tokens, the third one.
  mask_bias = tf.constant(
    modeling.MASK_BIAS * (1 - INPUT_MASK[:, None, None]), tf.float32
  )
  if one_by_one:
    expected = tf.stack(
      [
        modeling.attention(
          *[x[i] for x in inputs + [mask_bias]],
          dropout=functools.partial(dropout, example=i),
        )
        for i in range(BATCH)
      ]
    )
  else:
    expected = modeling.attention(*inputs, mask_bias, dropout)
  assert_same(
    kernels.recomputed_attention(
      *inputs, mask_bias, dropout, one_by_one=one_by_one
    ),
    expected,
    *inputs,
  )


@pytest.mark.parametrize(
  "more, use_cpu, one_by_one",
  [(0, True, True), (-1, True, False), (0, False, False), (None, True, False)],
)
def test_long_sequences_one_by_one_on_a_cpu(more, use_cpu, one_by_one):
  used = kernels.for_training(
    None if more is None else kernels.LONG_SEQUENCE + more, use_cpu=use_cpu
  )
  assert used.attention.func is kernels.recomputed_attention
  assert used.attention.keywords["one_by_one"] == one_by_one


@pytest.mark.parametrize("kernel", [kernels.lean_gelu, kernels.sigmoid_gelu])
def test_gelu_has_the_values_and_gradient_of_the_plain_one(kernel):
  """In float64, which gradients need for x below -3."""
  x = tf.constant(np.linspace(-8, 8, 1001))
  assert_same(kernel(x), modeling.gelu(x), x)


def test_the_gradient_of_gelu_is_finite_in_half_precision():
  numbers = np.concatenate([np.arange(-200, 201), np.linspace(-12, 12, 97)])
  x = tf.constant(numbers, tf.float16)
  exact = tf.constant(numbers, tf.float64)
  lean, half, plain = evaluate(
    [
      [y, *tf.gradients(y, of)]
      for y, of in (
        (kernels.lean_gelu(x), x),
        (kernels.half_gelu(x), x),
        (modeling.gelu(exact), exact),
      )
    ]
  )
  for one, other in zip(half, plain):
    np.testing.assert_allclose(one, other, rtol=2e-3, atol=5e-3)
  assert not np.all(np.isfinite(lean[1]))  # why half_gelu exists


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("heads", [[], [1, HEADS]])
def test_products_head_by_head(heads, transpose_b):
  rng = np.random.RandomState(0)
  shapes = [[QUERIES, SIZE], [SEQ, SIZE] if transpose_b else [SIZE, SEQ]]
  a, b = [
    tf.constant(rng.normal(size=heads + shape), tf.float32) for shape in shapes
  ]
  assert_same(
    *[
      matmul(a, b, transpose_b=transpose_b)
      for matmul in (kernels.matmul_by_heads, tf.matmul)
    ],
    a,
    b,
  )


# Including the first token, as for heads that use the pooled output.
OUTPUT_POSITIONS = np.array([[0, 3, 6], [0, 0, 2], [0, 5, 4]])


@pytest.mark.parametrize(
  "name, static",
  [
    ("albert_zh_preln", True),
    ("google_relu", False),
    pytest.param("google_groups", True, marks=pytest.mark.slow),
  ],
)
def test_chosen_tokens_are_those_of_all_tokens(name, static):
  config = CONFIGS[name]
  positions = tf.placeholder(
    tf.int32, OUTPUT_POSITIONS.shape if static else [None, None]
  )
  everywhere = outputs_of(create(config), OUTPUT_POSITIONS)
  model = create(config, output_positions=positions)
  chosen = dict(outputs_of(model), masked_lm_logits=model.masked_lm_logits())
  everywhere, chosen = evaluate(
    [everywhere, chosen],
    reference.random_weights(config),
    {positions: OUTPUT_POSITIONS},
  )
  everywhere["sequence_output"] = np.take_along_axis(
    everywhere["sequence_output"], OUTPUT_POSITIONS[:, :, None], 1
  )
  everywhere["all_layers"][-1] = everywhere["sequence_output"]
  small_models.assert_same_outputs(chosen, everywhere, atol=1e-5)


def test_chosen_tokens_cost_no_others():
  """Except keys and values, the last layer computes chosen tokens only."""
  rows = []

  def matmul(x, y, **kwargs):
    if x.shape.ndims == 2:
      rows.append(x.shape.as_list()[0])
    return tf.matmul(x, y, **kwargs)

  create(
    CONFIGS["google"],
    kernels=modeling.Kernels(matmul=matmul),
    output_positions=tf.constant([[0]] * BATCH),
  )
  size = INPUT_MASK.size
  # Query, key, value, output, two of the feed-forward network; the pooler.
  assert rows[-13:] == [size] * 6 + [
    BATCH,
    size,
    size,
    BATCH,
    BATCH,
    BATCH,
    BATCH,
  ]
