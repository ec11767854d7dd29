"""Schedule, AdamW, LAMB and clipping against NumPy and worked numbers."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from given_settings import make_settings
from small_models import albert_zh_config

import lamb_optimizer
import optimization
from albert.heads import base
from albert.model.config import AlbertConfig
from albert.train.distribution import Workers
from albert.train.settings import Schedule
from albert.train.step import model_fn_builder

OPTIMIZERS = {"adamw": optimization.AdamW, "lamb": lamb_optimizer.LAMB}

INIT_LR, NUM_STEPS, WARMUP = 0.1, 8, 3
IDS = [[4, 1, 4], [0, 2, 4]]


def initial_values():
  rng = np.random.RandomState(0)
  return {
      "embeddings/word_embeddings": rng.normal(size=[6, 4]),
      "embeddings/LayerNorm/gamma": 1.0 + 0.1 * rng.normal(size=[4]),
      "embeddings/LayerNorm/beta": 0.1 * rng.normal(size=[4]),
      "dense/kernel": 0.5 * rng.normal(size=[4, 3]),
      "dense/bias": rng.normal(size=[3]),
      "zero/kernel": np.zeros([4, 3]),
      "head/output_weights": rng.normal(size=[2, 4]),
      "head/output_bias": rng.normal(size=[2]),
  }


def gradient_steps(num_steps, scales):
  """[num_steps] gradients by variable; those of the words for each lookup."""
  rng = np.random.RandomState(1)
  steps = []
  for step in range(num_steps):
    gradients = {}
    for name, value in sorted(initial_values().items()):
      shape = ([2, 3, 4] if name.endswith("word_embeddings")
               else list(value.shape))
      gradients[name] = scales[step] * rng.normal(size=shape)
    steps.append(gradients)
  return steps


def dense_gradients(gradients):
  """Sums the gradients of all lookups of a word into its row."""
  result = dict(gradients)
  table = np.zeros([6, 4])
  np.add.at(table, np.array(IDS), gradients["embeddings/word_embeddings"])
  result["embeddings/word_embeddings"] = table
  return result


def numpy_learning_rate(step):
  if step < WARMUP:
    return INIT_LR * step / WARMUP
  return INIT_LR * (1.0 - float(min(step, NUM_STEPS)) / NUM_STEPS)


def numpy_steps(steps, use_trust_ratio, clip_norm=None, learning_rate=None,
                weight_decay_rate=0.01, epsilon=1e-6,
                excluded=("LayerNorm", "bias")):
  """The values of all variables after each step."""
  values = initial_values()
  m = {name: np.zeros_like(value) for name, value in values.items()}
  v = {name: np.zeros_like(value) for name, value in values.items()}
  history = []
  for step, gradients in enumerate(steps):
    gradients = dense_gradients(gradients)
    if clip_norm is not None:
      norm = np.sqrt(sum(np.sum(g**2) for g in gradients.values()))
      gradients = {name: g * min(1.0, clip_norm / norm)
                   for name, g in gradients.items()}
    lr = numpy_learning_rate(step) if learning_rate is None else learning_rate
    for name, g in gradients.items():
      m[name] = 0.9 * m[name] + 0.1 * g
      v[name] = 0.999 * v[name] + 0.001 * g**2
      update = m[name] / (np.sqrt(v[name]) + epsilon)
      ratio = 1.0
      if not any(part in name for part in excluded):
        update = update + weight_decay_rate * values[name]
        weight_norm = np.linalg.norm(values[name])
        update_norm = np.linalg.norm(update)
        if use_trust_ratio and weight_norm > 0 and update_norm > 0:
          ratio = weight_norm / update_norm
      values[name] = values[name] - lr * ratio * update
    history.append({name: value.copy() for name, value in values.items()})
  return history


def make_variables():
  return {name: tf.get_variable(name, initializer=value.astype(np.float32))
          for name, value in sorted(initial_values().items())}


def linear_loss(variables, steps, global_step):
  """A loss whose gradient at each global step is the one in `steps`."""
  terms = []
  for name, variable in sorted(variables.items()):
    coefficients = np.stack([gradients[name] for gradients in steps])
    if name.endswith("word_embeddings"):
      variable = tf.nn.embedding_lookup(variable, tf.constant(IDS))
    terms.append(tf.reduce_sum(variable * tf.gather(
        tf.constant(coefficients, tf.float32), global_step)))
  return tf.add_n(terms)


def apply_linear_loss(optimizer, variables, steps, global_step):
  """Returns the op of a step without clipping."""
  ordered = list(variables.values())
  gradients = tf.gradients(linear_loss(variables, steps, global_step), ordered)
  assert sum(isinstance(g, tf.IndexedSlices) for g in gradients) == 1
  return optimizer.apply_gradients(list(zip(gradients, ordered)), global_step)


class GivenLoss(base.Head):
  """A head whose loss is none of the model's.

  Args:
    loss_fn: function of a slice of the features that returns a float scalar.
    total: float, what the loss is divided by.
  """

  def __init__(self, loss_fn, total=1.0):
    self._loss_fn = loss_fn
    self._total = total

  def apply(self, model, features):
    return base.HeadOutput({}, {"loss": self._loss_fn(features)})

  def totals(self, features):
    return {"loss": tf.constant(self._total)}


def training_step(head, schedule, input_ids=IDS, reduce_mean=list,
                  **changes):
  """Returns the step that is made of a head: (train_op, loss)."""
  ids = tf.constant(input_ids)
  spec = model_fn_builder(
      AlbertConfig(**albert_zh_config()), head, make_settings(**changes),
      schedule, Workers(0, 1, 0, reduce_mean))(
          {"input_ids": ids, "input_mask": tf.ones_like(ids),
           "segment_ids": tf.zeros_like(ids)}, None,
          tf.estimator.ModeKeys.TRAIN, {})
  return spec.train_op, spec.loss


def first_moments(session):
  """Returns the slots that have a tenth of the first gradient, by variable."""
  return session.run({v.op.name[:-len("/adam_m")]: v
                      for v in tf.global_variables()
                      if v.op.name.endswith("/adam_m")})


def schedule(global_step):
  return optimization.create_learning_rate(INIT_LR, NUM_STEPS, WARMUP,
                                           global_step)


def assert_follows(sess, train_op, variables, history):
  for step, expected in enumerate(history):
    sess.run(train_op)
    for name, value in sess.run(variables).items():
      np.testing.assert_allclose(value, expected[name], rtol=2e-5, atol=2e-6,
                                 err_msg="%s after step %d" % (name, step))


@pytest.mark.parametrize("init_lr,power,warmup,expected", [
    (0.1, 1.0, 0, {0: 0.1, 1: 0.09, 5: 0.05, 9: 0.01, 10: 0.0, 15: 0.0}),
    (0.1, 1.0, 4, {0: 0.0, 1: 0.025, 3: 0.075, 4: 0.06, 5: 0.05, 10: 0.0}),
    (0.1, 2.0, 2, {0: 0.0, 1: 0.05, 2: 0.064, 5: 0.025, 10: 0.0}),
])
def test_learning_rate(init_lr, power, warmup, expected):
  with tf.Graph().as_default(), tf.Session() as sess:
    global_step = tf.placeholder(tf.int64, [])
    rate = optimization.create_learning_rate(init_lr, 10, warmup, global_step,
                                             poly_power=power)
    assert rate.shape.as_list() == []
    actual = {step: sess.run(rate, {global_step: step}) for step in expected}
  for step in expected:
    assert actual[step] == pytest.approx(expected[step], abs=1e-7)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_five_steps_without_clipping(name):
  steps = gradient_steps(5, scales=[1.0, 0.1, 3.0, 0.01, 1.0])
  with tf.Graph().as_default(), tf.Session() as sess:
    global_step = tf.train.get_or_create_global_step()
    variables = make_variables()
    optimizer = OPTIMIZERS[name](schedule(global_step))
    assert isinstance(optimizer, tf.train.Optimizer)
    train_op = apply_linear_loss(optimizer, variables, steps, global_step)
    sess.run(tf.global_variables_initializer())
    assert_follows(sess, train_op, variables,
                   numpy_steps(steps, use_trust_ratio=name == "lamb"))
    assert sess.run(global_step) == 5


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_five_steps_with_clipping(name):
  # The norms of the gradients are about 8, 0.4, 24, 0.8 and 8.
  steps = gradient_steps(5, scales=[1.0, 0.05, 3.0, 0.1, 1.0])
  norms = [np.sqrt(sum(np.sum(g**2) for g in dense_gradients(step).values()))
           for step in steps]
  assert [norm > 1.0 for norm in norms] == [True, False, True, False, True]
  with tf.Graph().as_default(), tf.Session() as sess:
    global_step = tf.train.get_or_create_global_step()
    variables = make_variables()
    train_op, _ = training_step(
        GivenLoss(lambda _: linear_loss(variables, steps, global_step)),
        Schedule(NUM_STEPS, WARMUP), optimizer=name, learning_rate=INIT_LR)
    sess.run(tf.global_variables_initializer())
    assert_follows(sess, train_op, variables,
                   numpy_steps(steps, name == "lamb", clip_norm=1.0))
    assert sess.run(global_step) == 5


def test_clipping_counts_a_word_that_is_looked_up_twice_as_one_row():
  """Two equal gradients of 3 in one row have a norm of 6, not sqrt(18)."""
  with tf.Graph().as_default(), tf.Session() as sess:
    table = tf.get_variable("table", [2, 1], initializer=tf.zeros_initializer())
    train_op, _ = training_step(
        GivenLoss(lambda _: 3.0 * tf.reduce_sum(
            tf.nn.embedding_lookup(table, [0, 0]))), Schedule(10))
    sess.run(tf.global_variables_initializer())
    sess.run(train_op)
    np.testing.assert_allclose(first_moments(sess)["table"], [[0.1], [0.0]],
                               rtol=1e-6)


@pytest.mark.parametrize("scale,expected", [
    (0.1, [[0.3, 0.4]]), (1.0, [[0.6, 0.8]])])
def test_loss_before_the_step_and_one_step_forward(scale, expected):
  with tf.Graph().as_default(), tf.Session() as sess:
    global_step = tf.train.get_or_create_global_step()
    kernel = tf.get_variable("kernel", initializer=[[0.0, 0.0]])
    unused = tf.get_variable("unused", initializer=[7.0])
    train_op, loss = training_step(
        GivenLoss(lambda _: (
            scale * tf.reduce_sum(kernel * [[3.0, 4.0]]) + 5.0)), Schedule(10))
    assert loss.shape.as_list() == []
    sess.run(tf.global_variables_initializer())
    assert sess.run(loss) == 5.0
    assert sess.run(global_step) == 0
    sess.run(train_op)
    assert sess.run(global_step) == 1
    moments = first_moments(sess)
    assert set(moments) == {"kernel"}
    np.testing.assert_allclose(10 * moments["kernel"], expected, rtol=1e-6)
    assert np.all(sess.run(kernel) < 0)
    assert sess.run(unused) == [7.0]


@pytest.mark.parametrize("num_slices", [1, 2])
@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_adversarial_gradients(epsilon, num_slices):
  """The loss is the sum of (w e)^3 / 3 over the words that are looked up.

  What stands for the other replicas adds 1 to all that is reduced, as to what
  the loss is divided by.
  """
  rng = np.random.RandomState(0)
  table, weights = rng.normal(size=[4, 2]), rng.normal(size=[2])
  ids = [[0], [2], [2], [1]]

  def loss_fn(features):
    x = tf.gather(tf.get_variable("a/word_embeddings", initializer=tf.constant(
        table, tf.float32)), features["input_ids"])
    w = tf.get_variable("w", initializer=tf.constant(weights, tf.float32))
    return tf.reduce_sum((tf.reduce_sum(x * w, -1))**3) / 3.0

  def numpy_gradients(table):
    table_gradient, weights_gradient = np.zeros([4, 2]), np.zeros([2])
    for i in np.ravel(ids):
      square = (table[i] @ weights)**2
      table_gradient[i] += square * weights
      weights_gradient += square * table[i]
    return table_gradient + 1, weights_gradient + 1

  clean = numpy_gradients(table)
  moved = numpy_gradients(
      table + epsilon * clean[0] / np.sqrt((clean[0]**2).sum()))
  with tf.Graph().as_default(), tf.Session() as sess:
    train_op, loss = training_step(
        GivenLoss(loss_fn, total=0.0),
        Schedule(10, adversarial_epsilon=epsilon), ids,
        lambda tensors: [x + 1.0 for x in tensors],
        gradient_accumulation_steps=num_slices)
    sess.run(tf.global_variables_initializer())
    assert sess.run(loss) == pytest.approx(
        sum((table[i] @ weights)**3 for i in np.ravel(ids)) / 3 + 1)
    sess.run(train_op)
    moments = first_moments(sess)
  sums = {name: one + (other if epsilon else 0) for name, one, other in zip(
      ("a/word_embeddings", "w"), clean, moved)}
  assert set(moments) == set(sums)
  norm = np.sqrt(sum((x**2).sum() for x in sums.values()))
  assert norm > 1  # it is clipped
  for name, gradient in sums.items():
    np.testing.assert_allclose(10 * norm * moments[name], gradient, rtol=1e-5)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_slots_have_the_names_of_released_checkpoints(name):
  steps = gradient_steps(1, scales=[1.0])
  with tf.Graph().as_default(), tf.Session() as sess:
    global_step = tf.train.get_or_create_global_step()
    variables = make_variables()
    trainable = {v.op.name for v in tf.trainable_variables()}
    apply_linear_loss(OPTIMIZERS[name](0.1), variables, steps, global_step)
    slots = {v.op.name: v for v in tf.global_variables()
             if v.op.name.rsplit("/", 1)[1:] in (["adam_m"], ["adam_v"])}
    assert set(slots) == {"%s/%s" % (variable, slot) for variable in variables
                          for slot in ("adam_m", "adam_v")}
    assert {v.op.name for v in tf.trainable_variables()} == trainable
    assert {v.op.name for v in tf.global_variables()} == (
        set(slots) | trainable | {"global_step"})
    sess.run(tf.global_variables_initializer())
    for slot_name, slot in slots.items():
      variable = variables[slot_name.rsplit("/", 1)[0]]
      assert slot.shape == variable.shape
      assert not np.any(sess.run(slot))


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_what_decays_is_a_choice(name):
  steps = gradient_steps(3, scales=[1.0, 1.0, 1.0])
  settings = dict(weight_decay_rate=0.3, epsilon=1e-3)
  with tf.Graph().as_default(), tf.Session() as sess:
    global_step = tf.train.get_or_create_global_step()
    variables = make_variables()
    train_op = apply_linear_loss(
        OPTIMIZERS[name](0.05, exclude_from_weight_decay=("embeddings",),
                         **settings), variables, steps, global_step)
    sess.run(tf.global_variables_initializer())
    assert_follows(sess, train_op, variables, numpy_steps(
        steps, name == "lamb", learning_rate=0.05, excluded=("embeddings",),
        **settings))


def one_step(optimizer_class, variable_name, start, gradient, **kwargs):
  with tf.Graph().as_default(), tf.Session() as sess:
    global_step = tf.train.get_or_create_global_step()
    variable = tf.get_variable(variable_name, initializer=tf.constant(start))
    train_op = optimizer_class(0.5, **kwargs).apply_gradients(
        [(tf.constant(gradient), variable)], global_step)
    sess.run(tf.global_variables_initializer())
    sess.run(train_op)
    return sess.run(variable)


def test_first_step_without_bias_correction():
  # 0.1 g / sqrt(0.001 g^2) = sqrt(10) whatever g; then the decay.
  np.testing.assert_allclose(
      one_step(optimization.AdamW, "dense/kernel", [2.0], [40.0]),
      [2.0 - 0.5 * (10**0.5 + 0.01 * 2.0)], rtol=1e-5)
  np.testing.assert_allclose(
      one_step(optimization.AdamW, "dense/bias", [2.0], [40.0]),
      [2.0 - 0.5 * 10**0.5], rtol=1e-5)


def test_trust_ratio_makes_the_step_as_long_as_the_weights():
  # Both entries of the update are equal and ||w|| = 5: a step of 0.5 * 5.
  step = one_step(lamb_optimizer.LAMB, "dense/kernel", [3.0, 4.0],
                  [8.0, 8.0], weight_decay_rate=0.0) - [3.0, 4.0]
  np.testing.assert_allclose(step, [-2.5 / 2**0.5] * 2, rtol=1e-5)


@pytest.mark.parametrize("variable_name,start", [
    ("dense/kernel", [0.0, 0.0]), ("dense/bias", [3.0, 4.0]),
    ("LayerNorm/gamma", [3.0, 4.0]), ("LayerNorm/beta", [3.0, 4.0]),
    ("output_bias", [3.0, 4.0])])
def test_no_trust_ratio_for_zero_weights_biases_and_layer_norm(
    variable_name, start):
  np.testing.assert_allclose(
      one_step(lamb_optimizer.LAMB, variable_name, start, [8.0, 8.0]),
      np.array(start) - 0.5 * 10**0.5, rtol=1e-5)


def test_no_update_and_no_decay_leave_the_weights_alone():
  np.testing.assert_array_equal(
      one_step(lamb_optimizer.LAMB, "dense/kernel", [3.0, 4.0], [0.0, 0.0],
               weight_decay_rate=0.0), [3.0, 4.0])
