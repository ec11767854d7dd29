"""LAMB: AdamW that scales each variable's update to the variable's norm."""

from typing import Any, Sequence, Union

import tensorflow.compat.v1 as tf

from optimization import AdamW, AdamWeightDecayOptimizer


class LAMB(AdamW):
  """LAMB (You et al., arXiv:1904.00962, algorithm 2), as in ALBERT.

  As there, no bias correction, and no trust ratio for variables excluded from
  weight decay: with it, a bias that starts at zero would barely learn.

  Attributes:
    trust_ratios: float scalars, one per variable that decays, in order of use.
  """

  trust_ratios: Sequence[tf.Tensor] = ()

  def _scale_update(self, variable, update):
    """Multiplies by the trust ratio ||w|| / ||update||, 1 where one is 0."""
    weight_norm = tf.norm(variable)
    update_norm = tf.norm(update)
    usable = tf.logical_and(weight_norm > 0, update_norm > 0)
    ratio = tf.where(
      usable,
      weight_norm / tf.where(usable, update_norm, tf.ones_like(update_norm)),
      tf.ones_like(weight_norm),
    )
    self.trust_ratios = [*self.trust_ratios, ratio]
    return ratio * update


class LAMBOptimizer(LAMB, AdamWeightDecayOptimizer):
  """LAMB that does not increment the global step, as in albert_zh."""

  def __init__(
    self,
    learning_rate: Union[float, tf.Tensor],
    weight_decay_rate: float = 0.01,
    *args: Any,
    **kwargs: Any,
  ):
    super().__init__(learning_rate, weight_decay_rate, *args, **kwargs)
