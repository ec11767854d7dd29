"""LAMB: AdamW with each variable's update scaled to the variable's norm."""

import tensorflow.compat.v1 as tf

from optimization import AdamW, AdamWeightDecayOptimizer


class LAMB(AdamW):
  """LAMB (You et al., arXiv:1904.00962, algorithm 2) as ALBERT was trained.

  As in Google's ALBERT there is no bias correction, and variables excluded
  from weight decay are excluded from the trust ratio too: with it, a bias that
  starts at zero would barely learn.
  """

  def _scale_update(self, variable, update):
    """Multiplies by the trust ratio ||w|| / ||update||, 1 where one is 0."""
    weight_norm = tf.norm(variable)
    update_norm = tf.norm(update)
    usable = tf.logical_and(weight_norm > 0, update_norm > 0)
    ratio = tf.where(
        usable,
        weight_norm / tf.where(usable, update_norm, tf.ones_like(update_norm)),
        tf.ones_like(weight_norm))
    return ratio * update


class LAMBOptimizer(LAMB, AdamWeightDecayOptimizer):
  """LAMB that leaves the global step to its caller, as albert_zh's does."""

  def __init__(self, learning_rate, weight_decay_rate=0.01, *args, **kwargs):
    super().__init__(learning_rate, weight_decay_rate, *args, **kwargs)
