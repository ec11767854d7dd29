"""--precision=bf16: what is rounded and what is not."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from test_step import (
  LAYOUTS,
  make_features,
  make_model_fn,
  make_options,
  train,
)

from albert.model import kernels

pytestmark = pytest.mark.slow


def test_products_of_rounded_matrices():
  rng = np.random.RandomState(0)
  x, y = rng.normal(size=[2, 5, 300]), rng.normal(size=[2, 4, 300])
  rounded = [tf.cast(tf.cast(z.astype(np.float32), tf.bfloat16), tf.float32)
             for z in (x, y)]
  product = kernels.bfloat16_matmul(
      tf.constant(x, tf.float32), tf.constant(y, tf.float32), transpose_b=True)
  assert product.dtype == tf.float32
  with tf.Session() as session:
    found, (a, b) = session.run([product, rounded])
  expected = np.matmul(a, b.transpose([0, 2, 1]))
  # Sums are rounded too: 8 bits.
  np.testing.assert_allclose(found, expected, rtol=2**-7, atol=0.05)
  assert np.abs(found - expected).max() > 1e-3


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("changes", [
    {}, {"gradient_accumulation_steps": 2, "recompute_grads": True}])
def test_losses_are_those_of_single_precision(layout, changes):
  config = LAYOUTS[layout]
  losses, variables = train(4, make_options(**changes), **config)
  rounded_losses, rounded = train(
      4, make_options(precision="bf16", **changes), **config)
  np.testing.assert_allclose(rounded_losses, losses, rtol=1e-2)
  assert np.any(np.array(rounded_losses) != losses)
  # One checkpoint serves both.
  assert {name: (x.shape, x.dtype) for name, x in rounded.items()} == {
      name: (x.shape, x.dtype) for name, x in variables.items()}


def test_what_stays_in_single_precision():
  with tf.Graph().as_default() as graph:
    features = {name: tf.placeholder(x.dtype, x.shape)
                for name, x in make_features().items()}
    make_model_fn(make_options(precision="bf16"))(
        features, None, tf.estimator.ModeKeys.TRAIN, {})
    rounded = {op.type for op in graph.get_operations()
               for x in op.inputs if x.dtype.base_dtype == tf.bfloat16}
  assert rounded - {"Identity"} == {"MatMul", "BatchMatMulV2", "Cast"}
