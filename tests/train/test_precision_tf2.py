"""--precision=bf16: which operations are rounded."""

import numpy as np
import pytest
import small_steps as small
import tensorflow.compat.v1 as tf


@pytest.mark.full
@pytest.mark.parametrize(
  "layout, changes",
  [
    ("google_preln", {}),
    ("albert_zh", {"gradient_accumulation_steps": 2, "recompute_grads": True}),
  ],
)
def test_losses_are_those_of_single_precision(layout, changes):
  (losses, variables), (rounded_losses, rounded) = [
    small.train(
      4,
      small.make_options(precision=precision, **changes),
      **small.LAYOUTS[layout],
    )
    for precision in ("float32", "bf16")
  ]
  np.testing.assert_allclose(rounded_losses, losses, rtol=1e-2)
  assert np.any(np.array(rounded_losses) != losses)
  # Checkpoints are interchangeable.
  assert {name: (x.shape, x.dtype) for name, x in rounded.items()} == {
    name: (x.shape, x.dtype) for name, x in variables.items()
  }


@pytest.mark.slow
def test_what_stays_in_single_precision():
  small.make_model_fn(small.make_options(precision="bf16"))(
    {
      name: tf.placeholder(x.dtype, x.shape)
      for name, x in small.make_features().items()
    },
    None,
    tf.estimator.ModeKeys.TRAIN,
    {},
  )
  rounded = {
    op.type
    for op in tf.get_default_graph().get_operations()
    for x in op.inputs
    if x.dtype.base_dtype == tf.bfloat16
  }
  assert rounded - {"Identity"} == {"MatMul", "BatchMatMulV2", "Cast"}
