"""Schedule, AdamW, LAMB and clipping against NumPy."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from given_settings import make_settings
from small_models import albert_zh_config

import lamb_optimizer
import optimization
from albert.heads import base
from albert.model.config import AlbertConfig
from albert.train import run_file
from albert.train.distribution import Workers
from albert.train.settings import Schedule
from albert.train.step import model_fn_builder

OPTIMIZERS = {"adamw": optimization.AdamW, "lamb": lamb_optimizer.LAMB}
RNG = np.random.RandomState(0)
WORDS, IDS = "embeddings/word_embeddings", [[4, 1, 4], [0, 2, 4]]
START = {
  WORDS: RNG.normal(size=[6, 4]),
  "embeddings/LayerNorm/gamma": 1 + 0.1 * RNG.normal(size=[4]),
  "dense/kernel": 0.5 * RNG.normal(size=[4, 3]),
  "dense/bias": RNG.normal(size=[3]),
  "zero/kernel": np.zeros([4, 3]),
  "head/output_weights": RNG.normal(size=[2, 4]),
}
UNUSED = {"unused/kernel": np.array([7.0])}  # without a gradient


def make_gradients(scales):
  """Gradients by variable for each scale; for words, one per lookup."""
  rng = np.random.RandomState(1)
  return [
    {
      name: scale * rng.normal(size=[2, 3, 4] if name == WORDS else value.shape)
      for name, value in START.items()
    }
    for scale in scales
  ]


def densify(gradients):
  """Sums the gradients of all lookups of a word into its row."""
  table = np.zeros([6, 4])
  np.add.at(table, np.array(IDS), gradients[WORDS])
  return dict(gradients, **{WORDS: table})


def norm_of(gradients):
  return np.sqrt(sum(np.sum(g**2) for g in gradients.values()))


def numpy_steps(
  steps,
  use_trust_ratio,
  rates,
  clip_norm=np.inf,
  decay=0.01,
  epsilon=1e-6,
  excluded=("LayerNorm", "bias"),
):
  """Yields the values of all variables after each step."""
  values = dict(START, **UNUSED)
  m, v = [
    {name: np.zeros_like(x) for name, x in START.items()} for _ in range(2)
  ]
  for gradients, rate in zip(map(densify, steps), rates):
    clip = min(1.0, clip_norm / norm_of(gradients))
    for name, g in gradients.items():
      m[name] = 0.9 * m[name] + 0.1 * clip * g
      v[name] = 0.999 * v[name] + 0.001 * (clip * g) ** 2
      update = m[name] / (np.sqrt(v[name]) + epsilon)
      if not any(part in name for part in excluded):
        update = update + decay * values[name]
        norms = [np.linalg.norm(x) for x in (values[name], update)]
        if use_trust_ratio and min(norms) > 0:
          update = update * norms[0] / norms[1]
      values[name] = values[name] - rate * update
    yield dict(values)


def linear_loss(steps):
  """Creates the variables and a loss with given gradients at each step."""
  global_step, terms = tf.train.get_or_create_global_step(), []
  for name, value in {**START, **UNUSED}.items():
    x = tf.get_variable(name, initializer=value.astype(np.float32))
    if name == WORDS:
      x = tf.nn.embedding_lookup(x, tf.constant(IDS))
    if name in START:
      terms.append(
        tf.reduce_sum(
          x
          * tf.gather(
            tf.constant(
              np.stack([gradients[name] for gradients in steps]), tf.float32
            ),
            global_step,
          )
        )
      )
  return tf.add_n(terms)


def training_step(
  loss_fn, schedule, input_ids=IDS, reduce_mean=list, total=1.0, **changes
):
  """Returns (train_op, loss) of a head whose loss is `loss_fn` of a slice of
  the features."""
  head, ids = base.Head(), tf.constant(input_ids)
  head.apply = lambda _, features: base.HeadOutput(
    {}, {"loss": loss_fn(features)}
  )
  head.totals = lambda _: {"loss": tf.constant(total)}
  spec = model_fn_builder(
    AlbertConfig(**albert_zh_config(num_hidden_layers=1)),
    head,
    make_settings(**changes),
    schedule,
    Workers(0, 1, 0, reduce_mean),
  )(
    {
      "input_ids": ids,
      "input_mask": tf.ones_like(ids),
      "segment_ids": tf.zeros_like(ids),
    },
    None,
    tf.estimator.ModeKeys.TRAIN,
    {},
  )
  return spec.train_op, spec.loss


def assert_follows(train_op, expected):
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    variables = {
      v.op.name: v
      for v in tf.trainable_variables()
      if v.op.name in {**START, **UNUSED}
    }
    assert len(variables) == len(START) + 1
    for step, values in enumerate(expected):
      session.run(train_op)
      for name, value in session.run(variables).items():
        np.testing.assert_allclose(
          value,
          values[name],
          rtol=2e-5,
          atol=2e-6,
          err_msg="%s after step %d" % (name, step),
        )
    assert session.run(tf.train.get_global_step()) == step + 1


@pytest.mark.parametrize(
  "init_lr,power,warmup,expected",
  [
    (0.1, 1.0, 0, {0: 0.1, 1: 0.09, 5: 0.05, 9: 0.01, 10: 0.0, 15: 0.0}),
    (0.1, 1.0, 4, {0: 0.0, 1: 0.025, 3: 0.075, 4: 0.06, 5: 0.05, 10: 0.0}),
    (0.1, 2.0, 2, {0: 0.0, 1: 0.05, 2: 0.064, 5: 0.025, 10: 0.0}),
  ],
)
def test_learning_rate(init_lr, power, warmup, expected):
  global_step = tf.placeholder(tf.int64, [])
  rate = optimization.create_learning_rate(
    init_lr, 10, warmup, global_step, poly_power=power
  )
  with tf.Session() as session:
    assert {
      step: session.run(rate, {global_step: step}) for step in expected
    } == pytest.approx(expected, abs=1e-7)
  assert {
    step: run_file.learning_rate_at(step, init_lr, power, 10, warmup)
    for step in expected
  } == pytest.approx(expected)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_five_steps_with_clipping(name):
  steps = make_gradients([1.0, 0.05, 3.0, 0.1, 1.0])
  assert [norm_of(densify(step)) > 1 for step in steps] == [
    True,
    False,
    True,
    False,
    True,
  ]
  train_op, _ = training_step(
    lambda _: linear_loss(steps),
    Schedule(8, 3),
    optimizer=name,
    learning_rate=0.1,
  )
  assert_follows(
    train_op,
    numpy_steps(
      steps, name == "lamb", [0, 0.1 / 3, 0.2 / 3, 0.0625, 0.05], 1.0
    ),
  )


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_what_decays_is_a_choice(name):
  steps, excluded = make_gradients([1.0, 1.0, 1.0]), ("embeddings",)
  optimizer = OPTIMIZERS[name](
    0.05, 0.3, epsilon=1e-3, exclude_from_weight_decay=excluded
  )
  train_op = optimizer.apply_gradients(
    optimizer.compute_gradients(linear_loss(steps)), tf.train.get_global_step()
  )
  assert_follows(
    train_op,
    numpy_steps(
      steps,
      name == "lamb",
      [0.05] * 3,
      decay=0.3,
      epsilon=1e-3,
      excluded=excluded,
    ),
  )
  # Slots are named as in released checkpoints and are not trainable.
  assert {v.op.name for v in tf.global_variables()} == {
    "global_step",
    *UNUSED,
    *(name + slot for name in START for slot in ("", "/adam_m", "/adam_v")),
  }
  assert {v.op.name for v in tf.trainable_variables()} == {*START, *UNUSED}


@pytest.mark.parametrize("num_slices", [1, 2])
def test_a_step_that_overflows_half_precision_advances_nothing(num_slices):
  """The loss is finite, its gradient is not."""
  poison = tf.placeholder(tf.float32, [])

  def loss_fn(features):
    x = tf.get_variable("x", initializer=[1.0, 2.0])
    # The slope of sqrt at 0 is infinite.
    return tf.reduce_sum(x) + tf.sqrt(poison * tf.reduce_sum(x * x))

  train_op, _ = training_step(
    loss_fn,
    Schedule(10),
    precision="fp16",
    gradient_accumulation_steps=num_slices,
  )
  variables = {v.op.name: v for v in tf.global_variables()}
  (scale,) = [name for name in variables if name.endswith("loss_scale")]
  found = []
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for value in (1.0, 0.0, 1.0):
      session.run(train_op, {poison: value})
      found.append(session.run(variables))
  first, second, third = found
  assert [x["global_step"] for x in found] == [1, 1, 2]
  assert first[scale] == 2 * second[scale] == 2 * third[scale]
  for name in ("x", "x/adam_m", "x/adam_v"):
    assert np.all(first[name] == second[name])
    assert np.all(np.isfinite(third[name]))
    assert np.any(third[name] != second[name])


@pytest.mark.parametrize("epsilon, num_slices", [(0.0, 1), (0.3, 2)])
def test_adversarial_gradients(epsilon, num_slices):
  """The loss is w times the sum of e^3 / 3 over the words looked up. The other
  replicas add 1 to everything that is reduced, including the divisor."""
  table, ids = np.random.RandomState(0).normal(size=[4, 2]), [0, 2, 2, 1]

  def loss_fn(features):
    x = tf.gather(
      tf.get_variable(
        "a/word_embeddings", initializer=tf.constant(table, tf.float32)
      ),
      features["input_ids"],
    )
    return tf.get_variable("w", initializer=0.7) * tf.reduce_sum(x**3) / 3.0

  def numpy_gradients(table):
    of_table = np.ones([4, 2])
    np.add.at(of_table, ids, 0.7 * table[ids] ** 2)
    return [of_table, 1 + (table[ids] ** 3).sum() / 3]

  clean = numpy_gradients(table)
  sums = {
    name: one + (other if epsilon else 0)
    for name, one, other in zip(
      ("a/word_embeddings", "w"),
      clean,
      numpy_gradients(table + epsilon * clean[0] / np.linalg.norm(clean[0])),
    )
  }
  assert norm_of(sums) > 1  # clipping applies
  train_op, loss = training_step(
    loss_fn,
    Schedule(10, adversarial_epsilon=epsilon),
    np.array(ids)[:, None],
    lambda tensors: [x + 1.0 for x in tensors],
    total=0.0,
    gradient_accumulation_steps=num_slices,
  )
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    assert session.run(loss) == pytest.approx(
      0.7 * (table[ids] ** 3).sum() / 3 + 1
    )
    session.run(train_op)
    found = session.run(
      {
        v.op.name: v
        for v in tf.global_variables()
        if v.op.name.endswith("/adam_m")
      }
    )
  assert set(found) == {name + "/adam_m" for name in sums}
  for name, gradient in sums.items():
    # The first moment is a tenth of the gradient.
    np.testing.assert_allclose(
      10 * norm_of(sums) * found[name + "/adam_m"], gradient, rtol=1e-5
    )


def test_lamb_without_update_and_decay():
  x = tf.get_variable("dense/kernel", initializer=[3.0, 4.0])
  train_op = lamb_optimizer.LAMB(0.5, 0).apply_gradients([(tf.zeros([2]), x)])
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(train_op)
    assert session.run(x).tolist() == [3, 4]


def test_trust_ratios():
  """||w|| = 5; the first update of a gradient of ones is 0.1 / sqrt(0.001)."""
  x = tf.get_variable("dense/kernel", initializer=[3.0, 4.0])
  optimizer = lamb_optimizer.LAMB(0.5, 0)
  optimizer.apply_gradients([(tf.ones([2]), x)])
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    assert session.run(optimizer.trust_ratios) == [
      pytest.approx(5**0.5 / 2, rel=1e-4)
    ]
