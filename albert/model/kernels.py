"""Kernels for training and for phones; `modeling.py` has the plain ones.

They compute the same values and gradients. Training keeps all that the backward
pass needs, and that is what most of its memory goes to: these keep less.
"""

import functools
import math

import tensorflow.compat.v1 as tf

import modeling

# From here on, training on a CPU handles attention one example at a time.
LONG_SEQUENCE = 256


def for_training(length, precision="float32", recompute_blocks=False,
                 use_cpu=False, compiled=False):
  """Returns the Kernels to train with.

  Args:
    length: int, tokens of a sequence, or None where it varies.
    precision: "float32"; "bf16" to multiply matrices in bfloat16; "fp16" where
      the graph will be rewritten to compute in half precision.
    recompute_blocks: bool, whether the backward pass computes each block again.
    use_cpu: bool, whether it is a CPU that trains.
    compiled: bool, whether XLA compiles the step.
  """
  one_by_one = bool(use_cpu and length and length >= LONG_SEQUENCE)
  return modeling.Kernels(
      matmul=bfloat16_matmul if precision == "bf16" else tf.matmul,
      attention=functools.partial(recomputed_attention, one_by_one=one_by_one,
                                  compiled=compiled),
      gelu=half_gelu if precision == "fp16" else lean_gelu,
      **(dict(run_block=functools.partial(recompute, compiled=compiled))
         if recompute_blocks else {}))


def for_phones(batch_size):
  """Returns the Kernels that TFLite is fast with.

  Args:
    batch_size: int, texts at a time.
  """
  return modeling.Kernels(
      matmul=matmul_by_heads if batch_size == 1 else tf.matmul,
      gelu=sigmoid_gelu)


_GELU = 2.0 * math.sqrt(2.0 / math.pi)


def sigmoid_gelu(x):
  """`modeling.gelu` in fewer passes: `0.5 (1 + tanh(u))` is `sigmoid(2 u)`.

  TFLite makes one product of a multiplication of `x` by a constant and of the
  layer before, and so more copies of that layer; there is none here.
  """
  return x * tf.sigmoid(x * (_GELU + 0.044715 * _GELU * tf.square(x)))


@tf.custom_gradient
def lean_gelu(x):
  """`modeling.gelu` that keeps two tensors of the size of `x` instead of six.

  Args:
    x: float tensor.

  Returns:
    float tensor of the shape of `x`.
  """
  b = 0.044715 * _GELU
  gate = tf.sigmoid(x * (_GELU + b * tf.square(x)))

  def gradient(dy):
    slope = x * (_GELU + 3.0 * b * tf.square(x))
    return dy * gate * (1.0 + slope * (1.0 - gate))

  return x * gate, gradient


def half_gelu(x):
  """`lean_gelu` whose gradient is finite in half precision.

  There, the cube of `x` overflows from 40 on, and infinity times the 0 of a
  closed gate is not a number. Beyond 10 the function is 0 or `x`.
  """
  return lean_gelu(tf.clip_by_value(x, -10.0, 10.0)) + tf.nn.relu(x - 10.0)


def bfloat16_matmul(x, y, **kwargs):
  """tf.matmul of float32 tensors in bfloat16; the result is float32 again.

  So are the gradients. What is not a matrix multiplication is not rounded.
  """
  product = tf.matmul(tf.cast(x, tf.bfloat16), tf.cast(y, tf.bfloat16),
                      **kwargs)
  return tf.cast(product, tf.float32)


def _after(dy, tensors, compiled):
  """Returns the tensors as the backward pass is to compute with them again.

  Not before their gradient is there, or all layers would run at once. XLA drops
  control dependencies and makes one of two equal computations; a 0 of which it
  cannot know that it is one keeps them apart.
  """
  if compiled:
    some = tf.reshape(dy, [-1])[0]
    return [tf.stop_gradient(x + (some - some)) for x in tensors]
  with tf.control_dependencies([dy]):
    return [tf.stop_gradient(x) for x in tensors]


def recompute(block, x, compiled=False):
  """Returns `block(x)`; its backward pass runs the block a second time.

  Only `x` is kept in between, not what the block computes on the way (Chen et
  al., arXiv:1604.06174). The block must compute the same both times: dropout
  has to be stateless.

  Args:
    block: function of a float tensor that returns a float tensor; it uses
      variables.
    x: float tensor.
    compiled: bool, whether XLA compiles this.
  """
  scope = tf.get_variable_scope()

  @tf.custom_gradient
  def recomputed(x):
    def gradient(dy, variables=()):
      again, = _after(dy, [x], compiled)
      with tf.variable_scope(scope, reuse=True):
        y = block(again)
      gradients = tf.gradients(y, [again] + list(variables), dy)
      return gradients[0], gradients[1:]

    return block(x), gradient

  return recomputed(x)


def _transposed(x):
  return tf.transpose(x, [0, 1, 3, 2] if x.shape.ndims == 4 else [0, 2, 1])


def recomputed_attention(query, key, value, mask_bias, dropout,
                         matmul=tf.matmul, one_by_one=False, compiled=False):
  """`modeling.attention` that does not keep the probabilities.

  [B, N, T, S] is much to keep and little work to compute again, so the backward
  pass does that. A CPU handles long sequences one example at a time: then the
  scores, many times the size of all else, never leave its cache.

  Args:
    query, key, value, mask_bias, matmul: see `modeling.attention`.
    dropout: function of a float tensor and of `example`, the number of an
      example if they are dropped one by one; the same for the same arguments.
    one_by_one: bool, whether to handle one example at a time.
    compiled: bool, whether XLA compiles this.

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
        matmul(gradient, value, transpose_b=True), example=example)
    # The sum of probs * probs_gradient, but over D instead of S.
    mean = tf.reduce_sum(gradient * context, -1, keepdims=True)
    scores_gradient = probs * (probs_gradient - mean)
    # TF 1.15 is faster with [D, S] [S, S] than with the transpose of a large
    # matrix, [S, S]^T [S, D].
    return (matmul(scores_gradient, key),
            _transposed(matmul(_transposed(query), scores_gradient)),
            _transposed(matmul(_transposed(gradient),
                               dropout(probs, example=example))))

  def run(function, outputs, *tensors):
    if not one_by_one:
      return function(0, *tensors)
    return tf.map_fn(
        lambda slices: function(*slices),
        (tf.range(tf.shape(tensors[0])[0]),) + tensors, outputs,
        parallel_iterations=1, back_prop=False)

  @tf.custom_gradient
  def attend(query, key, value):
    context = run(forward, tf.float32, query, key, value, mask_bias)

    def gradient(dy):
      again = _after(dy, [query, key, value, mask_bias], compiled)
      return run(backward, (tf.float32,) * 3, *(again + [context, dy]))

    return context, gradient

  return attend(query * (1.0 / math.sqrt(query.shape.as_list()[-1])), key,
                value)


def matmul_by_heads(a, b, transpose_b=False):
  """tf.matmul; of [1, N, S, K] and [1, N, K, T], head by head.

  TFLite's batched product is slower on two threads than on one; its product of
  two matrices, the second one transposed, is not. That pays for one long text;
  for 32 texts at a time the batched product is faster.
  """
  if a.shape.ndims == 2:
    return tf.matmul(a, b, transpose_b=transpose_b)
  if not transpose_b:
    b = tf.transpose(b, [0, 1, 3, 2])
  return tf.expand_dims(tf.stack([
      tf.matmul(x, y, transpose_b=True)
      for x, y in zip(tf.unstack(a[0]), tf.unstack(b[0]))]), 0)
