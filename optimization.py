"""Learning-rate schedule, AdamW and gradient helpers."""

from typing import (
  Any,
  ContextManager,
  Dict,
  Iterable,
  Optional,
  Sequence,
  Tuple,
  Union,
)

import tensorflow.compat.v1 as tf


def create_learning_rate(
  init_lr: float,
  num_train_steps: int,
  num_warmup_steps: int,
  global_step: tf.Tensor,
  poly_power: float = 1.0,
) -> tf.Tensor:
  """Linear warm-up, then polynomial decay to 0, as in BERT.

  The decay runs over all of `num_train_steps`; during the first
  `num_warmup_steps` the rate is `init_lr * global_step / num_warmup_steps`
  instead.

  Args:
    init_lr: the peak.
    num_train_steps: step at which the rate is 0.
    num_warmup_steps: 0 for none.
    global_step: int scalar, number of steps taken.
    poly_power: power of the decay, 1 for linear.

  Returns:
    float32 scalar.
  """
  rate = tf.train.polynomial_decay(
    tf.constant(init_lr, tf.float32),
    global_step,
    num_train_steps,
    end_learning_rate=0.0,
    power=poly_power,
  )
  if not num_warmup_steps:
    return rate
  step = tf.cast(global_step, tf.float32)
  return tf.where(
    step < num_warmup_steps, init_lr * step / num_warmup_steps, rate
  )


class AdamW(tf.train.Optimizer):
  """Adam with decoupled weight decay (arXiv:1711.05101), as in BERT.

  There is no bias correction. The slots of a variable `x` are variables
  `x/adam_m` and `x/adam_v`, the names in released checkpoints.

  Args:
    learning_rate: float or scalar tensor.
    weight_decay_rate: this multiple of a variable is added to its update.
    beta_1, beta_2: decay rates of the first and second moment.
    epsilon: added to the root of the second moment.
    exclude_from_weight_decay: substrings of the names of variables that do not
      decay.
    name: name of the optimizer.
  """

  def __init__(
    self,
    learning_rate: Union[float, tf.Tensor],
    weight_decay_rate: float = 0.01,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-6,
    exclude_from_weight_decay: Sequence[str] = ("LayerNorm", "bias"),
    name: str = "AdamW",
  ):
    super().__init__(use_locking=False, name=name)
    self._learning_rate = learning_rate
    self._weight_decay_rate = weight_decay_rate
    self._beta_1 = beta_1
    self._beta_2 = beta_2
    self._epsilon = epsilon
    self._excluded = exclude_from_weight_decay

  def apply_gradients(
    self,
    grads_and_vars: Iterable[Tuple[Any, tf.Variable]],
    global_step: Optional[tf.Variable] = None,
    name: Optional[str] = None,
  ) -> tf.Operation:
    """Returns an op that updates the variables and increments `global_step`."""
    assignments = []
    for gradient, variable in grads_and_vars:
      if gradient is None:
        continue
      gradient = densify(gradient, variable)
      with tf.init_scope():  # mixed precision calls this in a branch
        m = self._slot(variable, "adam_m")
        v = self._slot(variable, "adam_v")
      next_m = self._beta_1 * m + (1.0 - self._beta_1) * gradient
      next_v = self._beta_2 * v + (1.0 - self._beta_2) * tf.square(gradient)
      update = next_m / (tf.sqrt(next_v) + self._epsilon)
      if not self._is_excluded(variable):
        update += self._weight_decay_rate * variable
        update = self._scale_update(variable, update)
      assignments += [
        variable.assign_sub(self._learning_rate * update),
        m.assign(next_m),
        v.assign(next_v),
      ]
    if global_step is None:
      return tf.group(*assignments, name=name)
    with tf.control_dependencies(assignments):
      return tf.group(global_step.assign_add(1), name=name)

  def _is_excluded(self, variable):
    return any(part in variable.op.name for part in self._excluded)

  def _scale_update(self, variable, update):
    """Scales the update of a variable that decays; LAMB overrides it."""
    del variable
    return update

  def _slot(self, variable, slot_name):
    return tf.get_variable(
      "%s/%s" % (variable.op.name, slot_name),
      variable.shape.as_list(),
      tf.float32,
      tf.zeros_initializer(),
      trainable=False,
    )


def moved_word_embeddings(
  gradients: Dict[str, tf.Tensor], epsilon: float
) -> ContextManager:
  """Returns a variable scope that moves word embeddings along their gradient.

  Adversarial training with the fast gradient method (Miyato et al.,
  arXiv:1605.07725) adds the gradients at word embeddings moved by
  `epsilon * g / ||g||`, where `g`, [V, E], is their gradient for the whole
  batch of all replicas.

  Args:
    gradients: variable name -> gradient; one name is `.../word_embeddings`.
    epsilon: the distance to move them.
  """
  ((table, gradient),) = [
    item for item in gradients.items() if item[0].endswith("/word_embeddings")
  ]
  move = gradient * tf.div_no_nan(epsilon, tf.norm(gradient))
  # A constant for the second gradients. With `tf.stop_gradient`, TF 1.15 would
  # still trace it through the loop over the slices, and fail.
  move = tf.bitcast(tf.bitcast(move, tf.int32), tf.float32)

  def get_moved(getter, *args, **kwargs):
    variable = getter(*args, **kwargs)
    return variable + move if variable.op.name == table else variable

  return tf.variable_scope(tf.get_variable_scope(), custom_getter=get_moved)


def densify(
  gradient: Union[tf.Tensor, tf.IndexedSlices], variable: tf.Variable
) -> tf.Tensor:
  """Sums duplicate rows of a gather's gradient, which distort its norm.

  Args:
    gradient: of `variable`.
    variable: float [K, ...].

  Returns:
    float tensor of the shape of `variable`.
  """
  if not isinstance(gradient, tf.IndexedSlices):
    return gradient
  return tf.unsorted_segment_sum(
    gradient.values, gradient.indices, variable.shape.as_list()[0]
  )


# For programs written for the BERT and ALBERT releases.
class AdamWeightDecayOptimizer(AdamW):
  """AdamW that does not increment the global step, as in BERT."""

  def __init__(
    self,
    learning_rate: Union[float, tf.Tensor],
    weight_decay_rate: float = 0.0,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-6,
    exclude_from_weight_decay: Optional[Sequence[str]] = None,
    name: str = "AdamWeightDecayOptimizer",
  ):
    super().__init__(
      learning_rate,
      weight_decay_rate,
      beta_1,
      beta_2,
      epsilon,
      exclude_from_weight_decay or (),
      name,
    )

  def apply_gradients(
    self,
    grads_and_vars: Iterable[Tuple[Any, tf.Variable]],
    global_step: Optional[tf.Variable] = None,
    name: Optional[str] = None,
  ) -> tf.Operation:
    return super().apply_gradients(grads_and_vars, name=name)


def create_optimizer(
  loss: tf.Tensor,
  init_lr: float,
  num_train_steps: int,
  num_warmup_steps: int,
  use_tpu: bool,
  optimizer: str = "adamw",
  poly_power: float = 1.0,
) -> tf.Operation:
  """Returns the op of a training step, which increments the global step."""
  from lamb_optimizer import LAMB  # circular import

  step = tf.train.get_or_create_global_step()
  made = {"adamw": AdamW, "lamb": LAMB}[optimizer](
    create_learning_rate(
      init_lr, num_train_steps, num_warmup_steps, step, poly_power
    )
  )
  gradients, variables = zip(
    *[
      (densify(gradient, variable), variable)
      for gradient, variable in made.compute_gradients(loss)
      if gradient is not None
    ]
  )
  if use_tpu:  # clip the mean over all cores
    cores = tf.tpu.cross_replica_sum(tf.ones([]))
    gradients = tuple(tf.tpu.cross_replica_sum(x) / cores for x in gradients)
  clipped, _ = tf.clip_by_global_norm(gradients, 1.0)
  return made.apply_gradients(zip(clipped, variables), step)
