"""Kernels for training and for phones; `modeling.py` has the plain ones.

They compute the same values and gradients. Activations kept for the backward
pass take most of the memory; the training kernels keep fewer.
"""

import functools
import math
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

import modeling

# From this length on, CPUs compute training attention one example at a time.
LONG_SEQUENCE = 256


def for_training(
  length: Optional[int],
  precision: str = "float32",
  recompute_blocks: bool = False,
  use_cpu: bool = False,
  compiled: bool = False,
) -> modeling.Kernels:
  """Returns the Kernels for training.

  Args:
    length: tokens per sequence; None if it varies.
    precision: "float32"; "bf16" for matrix multiplications in bfloat16; "fp16"
      if the graph will be rewritten to half precision.
    recompute_blocks: whether the backward pass recomputes each block.
    use_cpu: whether to train on a CPU.
    compiled: whether XLA compiles the training step.
  """
  one_by_one = bool(use_cpu and length and length >= LONG_SEQUENCE)
  blocks = {}
  if recompute_blocks:
    blocks["run_block"] = functools.partial(recompute, compiled=compiled)
  return modeling.Kernels(
    matmul=bfloat16_matmul if precision == "bf16" else tf.matmul,
    attention=functools.partial(
      recomputed_attention, one_by_one=one_by_one, compiled=compiled
    ),
    gelu=half_gelu if precision == "fp16" else lean_gelu,
    **blocks,
  )


def for_phones(batch_size: int) -> modeling.Kernels:
  """Returns the fastest Kernels for TFLite.

  Args:
    batch_size: texts per batch.
  """
  return modeling.Kernels(
    matmul=matmul_by_heads if batch_size == 1 else tf.matmul, gelu=sigmoid_gelu
  )


_GELU = 2.0 * math.sqrt(2.0 / math.pi)


def sigmoid_gelu(x: tf.Tensor) -> tf.Tensor:
  """`modeling.gelu` in fewer passes: `0.5 (1 + tanh(u))` is `sigmoid(2 u)`.

  Does not multiply `x` by a constant: TFLite would fold it into the previous
  layer and thereby duplicate that.
  """
  return x * tf.sigmoid(x * (_GELU + 0.044715 * _GELU * tf.square(x)))


@tf.custom_gradient
def lean_gelu(x: tf.Tensor) -> tf.Tensor:
  """`modeling.gelu` that stores two tensors of the size of `x` instead of six.

  Args:
    x: float.

  Returns:
    float tensor of the same shape.
  """
  b = 0.044715 * _GELU
  gate = tf.sigmoid(x * (_GELU + b * tf.square(x)))

  def gradient(dy):
    slope = x * (_GELU + 3.0 * b * tf.square(x))
    return dy * gate * (1.0 + slope * (1.0 - gate))

  return x * gate, gradient


def half_gelu(x: tf.Tensor) -> tf.Tensor:
  """`lean_gelu` whose gradient is finite in half precision.

  In half precision, the cube of `x` overflows at about 40, and infinity times
  the 0 of a closed gate is NaN. Beyond 10 the function is 0 or `x`.
  """
  return lean_gelu(tf.clip_by_value(x, -10.0, 10.0)) + tf.nn.relu(x - 10.0)


def bfloat16_matmul(x: tf.Tensor, y: tf.Tensor, **kwargs: Any) -> tf.Tensor:
  """tf.matmul of float32 tensors in bfloat16, with a float32 result.

  Gradients are also float32. Only matrix multiplications are rounded.
  """
  product = tf.matmul(
    tf.cast(x, tf.bfloat16), tf.cast(y, tf.bfloat16), **kwargs
  )
  return tf.cast(product, tf.float32)


def _after(dy, tensors, compiled):
  """Returns the tensors for recomputation, which starts only after `dy`.

  Otherwise all layers would be recomputed at once. XLA drops control
  dependencies and merges equal computations, so adds a 0 that it cannot fold.
  """
  if compiled:
    some = tf.reshape(dy, [-1])[0]
    return [tf.stop_gradient(x + (some - some)) for x in tensors]
  with tf.control_dependencies([dy]):
    return [tf.stop_gradient(x) for x in tensors]


def recompute(
  block: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor, compiled: bool = False
) -> tf.Tensor:
  """Returns `block(x)`; its backward pass runs the block a second time.

  Only `x` is stored in between, no other activation (Chen et al.,
  arXiv:1604.06174). Both runs must compute the same, so dropout must be
  stateless.

  Args:
    block: function of a float tensor that returns a float tensor; may use
      variables.
    x: float.
    compiled: whether XLA compiles it.
  """
  scope = tf.get_variable_scope()

  @tf.custom_gradient
  def recomputed(x):
    def gradient(dy, variables=()):
      (again,) = _after(dy, [x], compiled)
      with tf.variable_scope(scope, reuse=True):
        y = block(again)
      gradients = tf.gradients(y, [again] + list(variables), dy)
      return gradients[0], gradients[1:]

    return block(x), gradient

  return recomputed(x)


def _transposed(x):
  return tf.transpose(x, [0, 1, 3, 2] if x.shape.ndims == 4 else [0, 2, 1])


def _all_examples(function, unused_dtypes, tensors):
  return function(0, *tensors)


def _each_example(function, dtypes, tensors):
  """Calls function(example, *slices) for one example after another."""
  return tf.map_fn(
    lambda slices: function(*slices),
    (tf.range(tf.shape(tensors[0])[0]), *tensors),
    dtypes,
    parallel_iterations=1,
    back_prop=False,
  )


def recomputed_attention(
  query: tf.Tensor,
  key: tf.Tensor,
  value: tf.Tensor,
  mask_bias: tf.Tensor,
  dropout: Callable,
  matmul: Callable = tf.matmul,
  one_by_one: bool = False,
  compiled: bool = False,
) -> tf.Tensor:
  """`modeling.attention` that does not store the probabilities.

  The probabilities, [B, N, T, S], take much memory but little time, so the
  backward pass recomputes them. On a CPU, long sequences are computed one
  example at a time to keep the scores, by far the largest tensor, in the cache.

  Args:
    query, key, value, mask_bias, matmul: see `modeling.attention`.
    dropout: deterministic function of a float tensor and of `example`, the
      index of an example if they are computed one by one.
    one_by_one: whether to compute one example at a time.
    compiled: whether XLA compiles it.

  Returns:
    float [B, N, T, D].
  """

  def probabilities(query, key, mask_bias):
    return tf.nn.softmax(matmul(query, key, transpose_b=True) + mask_bias)

  def forward(example, query, key, value, mask_bias):
    probs = probabilities(query, key, mask_bias)
    return matmul(dropout(probs, example=example), value)

  def backward(example, query, key, value, mask_bias, context, gradient):
    probs = probabilities(query, key, mask_bias)
    probs_gradient = dropout(
      matmul(gradient, value, transpose_b=True), example=example
    )
    # Equals the sum of probs * probs_gradient over S, which is larger than D.
    mean = tf.reduce_sum(gradient * context, -1, keepdims=True)
    scores_gradient = probs * (probs_gradient - mean)
    # TF 1.15 computes [D, S] [S, S] faster than the product with a large
    # transposed matrix, [S, S]^T [S, D].
    return (
      matmul(scores_gradient, key),
      _transposed(matmul(_transposed(query), scores_gradient)),
      _transposed(
        matmul(_transposed(gradient), dropout(probs, example=example))
      ),
    )

  run = _each_example if one_by_one else _all_examples

  @tf.custom_gradient
  def attend(query, key, value):
    context = run(forward, tf.float32, [query, key, value, mask_bias])

    def gradient(dy):
      again = _after(dy, [query, key, value, mask_bias], compiled)
      return run(backward, (tf.float32,) * 3, again + [context, dy])

    return context, gradient

  return attend(
    query * (1.0 / math.sqrt(query.shape.as_list()[-1])), key, value
  )


def matmul_by_heads(
  a: tf.Tensor, b: tf.Tensor, transpose_b: bool = False
) -> tf.Tensor:
  """tf.matmul; for [1, N, S, K] and [1, N, K, T], head by head.

  TFLite's batched matmul is slower on two threads than on one; its product of
  two matrices, the second one transposed, is not. The latter is faster for one
  long text, the former for batches of 32.
  """
  if a.shape.ndims == 2:
    return tf.matmul(a, b, transpose_b=transpose_b)
  if not transpose_b:
    b = tf.transpose(b, [0, 1, 3, 2])
  return tf.expand_dims(
    tf.stack(
      [
        tf.matmul(x, y, transpose_b=True)
        for x, y in zip(tf.unstack(a[0]), tf.unstack(b[0]))
      ]
    ),
    0,
  )
