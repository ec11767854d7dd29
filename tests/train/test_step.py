"""The whole training step: slices, recomputation, XLA, half precision, TPU."""

import logging
import re
import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from given_settings import make_settings
from tensorflow.python.ops import summary_ops_v2

from albert.heads.pretraining import Pretraining
from albert.model import kernels
from albert.model.config import AlbertConfig
from albert.model.layouts import create_model
from albert.train import distribution, hooks, rehearsal, step
from albert.train.settings import Schedule
from benchmarks import plot_curves

pytestmark = pytest.mark.slow

BATCH, SEQ, PREDICTIONS, VOCAB = 6, 16, 4, 50
SIZES = {"vocab_size": VOCAB, "hidden_size": 24, "embedding_size": 8,
         "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 40, "hidden_act": "gelu",
         "max_position_embeddings": SEQ, "initializer_range": 0.2}
DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
LAYOUTS = {"albert_zh": {}, "google_preln": {
    "num_hidden_groups": 2, "inner_group_num": 2, "ln_type": "preln"}}


def make_options(**changes):
  return make_settings(**dict(dict(
      optimizer="lamb", learning_rate=0.005, log_steps=1,
      train_batch_size=BATCH, eval_batch_size=BATCH), **changes))


def make_features(seed=0, dtype=np.int32):
  """A batch in which examples have different numbers of masked tokens."""
  rng = np.random.RandomState(seed)
  lengths = rng.randint(SEQ // 2, SEQ + 1, size=[BATCH, 1])
  weights = (np.arange(PREDICTIONS) < np.array([[4], [1], [3], [2], [4], [1]]))
  return {
      "input_ids": rng.randint(VOCAB, size=[BATCH, SEQ]).astype(dtype),
      "input_mask": (np.arange(SEQ) < lengths).astype(dtype),
      "segment_ids": rng.randint(2, size=[BATCH, SEQ]).astype(dtype),
      "masked_lm_positions": rng.randint(
          SEQ // 2, size=[BATCH, PREDICTIONS]).astype(dtype),
      "masked_lm_ids": rng.randint(
          VOCAB, size=[BATCH, PREDICTIONS]).astype(dtype),
      "masked_lm_weights": weights.astype(np.float32),
      "next_sentence_labels": rng.randint(2, size=[BATCH, 1]).astype(dtype),
  }


def make_model_fn(options, sentence_loss_weight=0.5, **config):
  data, device = options.data, options.device
  return step.model_fn_builder(
      AlbertConfig.from_dict(dict(SIZES, **config)),
      Pretraining(sentence_loss_weight), options,
      Schedule(20, 3, data.adversarial_epsilon if data.adversarial else 0.0),
      distribution.get_workers(device.use_horovod, device.use_tpu))


def train(num_steps, options, batches=None, **config):
  """Trains on the CPU; returns the losses and all variables by name."""
  batches = batches or [make_features(seed) for seed in range(num_steps)]
  session_config = tf.ConfigProto(allow_soft_placement=True)
  with tf.Graph().as_default(), tf.Session(config=session_config) as session:
    tf.set_random_seed(7)
    placeholders = {name: tf.placeholder(x.dtype, x.shape)
                    for name, x in batches[0].items()}
    spec = make_model_fn(options, **config)(
        placeholders, None, tf.estimator.ModeKeys.TRAIN, {})
    session.run(tf.global_variables_initializer())
    start_equal(session)
    losses = [session.run([spec.loss, spec.train_op], {
        placeholders[name]: x for name, x in batch.items()})[0]
              for batch in batches]
    return losses, all_variables(session)


def start_equal(session):
  """Sets what is trained to values that depend on its name alone."""
  assignments = []
  for variable in tf.trainable_variables():
    rng = np.random.RandomState(sum(map(ord, variable.op.name)))
    value = 0.1 * rng.normal(size=variable.shape.as_list())
    assignments.append(variable.assign(
        1 + value if "gamma" in variable.op.name else value))
  session.run(assignments)


def all_variables(session):
  return session.run({v.op.name: v for v in tf.global_variables()})


def assert_equal_variables(one, other, tolerance):
  assert set(one) == set(other)
  for name, value in one.items():
    np.testing.assert_allclose(other[name], value, rtol=tolerance,
                               atol=tolerance, err_msg=name)


@pytest.mark.parametrize("layout, optimizer, changes", [
    ("albert_zh", "lamb", {"gradient_accumulation_steps": 2}),
    ("albert_zh", "adamw", {"gradient_accumulation_steps": 6}),
    ("google_preln", "lamb", {"gradient_accumulation_steps": 3,
                              "recompute_grads": True})])
def test_slices_make_the_step_of_the_whole_batch(layout, optimizer, changes):
  config = LAYOUTS[layout]
  losses, whole = train(5, make_options(optimizer=optimizer), **config)
  sliced_losses, sliced = train(
      5, make_options(optimizer=optimizer, **changes), **config)
  np.testing.assert_allclose(sliced_losses, losses, rtol=1e-5)
  # All weights, slots and the global step.
  assert whole["global_step"] == 5
  assert sum(name.endswith("adam_v") for name in whole) == len(
      [name for name in whole if name + "/adam_v" in whole]) > 10
  assert_equal_variables(whole, sliced, 1e-5)


@pytest.mark.parametrize("layout, changes", [
    ("albert_zh", {"num_gpus": 3}),
    ("google_preln", {"num_gpus": 2, "gradient_accumulation_steps": 3})])
def test_gpus_make_the_step_of_one_device(layout, changes):
  """On processors that stand for them."""
  config = LAYOUTS[layout]
  losses, one = train(5, make_options(), **config)
  shared_losses, shared = train(
      5, make_options(**changes), **config)
  np.testing.assert_allclose(shared_losses, losses, rtol=1e-5)
  assert_equal_variables(one, shared, 1e-5)


@pytest.mark.once
@pytest.mark.parametrize("layout, changes", [
    ("google_preln", {"precision": "fp16"}),
    ("albert_zh", {"gradient_accumulation_steps": 3, "recompute_grads": True})])
def test_an_adversarial_step_is_made_of_two_passes(layout, changes):
  """The same by hand: the table is changed in between."""
  batch = make_features()
  _, found = train(1, make_options(
      optimizer="adamw", adversarial="fgm", adversarial_epsilon=0.5, **changes),
                   [batch], **LAYOUTS[layout])
  with tf.Graph().as_default(), tf.Session() as session:
    loss = make_model_fn(make_options(), **LAYOUTS[layout])(
        {name: tf.constant(x) for name, x in batch.items()}, None,
        tf.estimator.ModeKeys.EVAL, {}).loss
    variables = {v.op.name: v for v in tf.trainable_variables()}
    gradients = dict(zip(variables, map(tf.convert_to_tensor, tf.gradients(
        loss, list(variables.values())))))
    session.run(tf.global_variables_initializer())
    start_equal(session)
    clean = session.run(gradients)
    word = clean["bert/embeddings/word_embeddings"]
    session.run(variables["bert/embeddings/word_embeddings"].assign_add(
        0.5 * word / np.sqrt((word**2).sum())))
    moved = session.run(gradients)
  both = {name: clean[name] + moved[name] for name in clean}
  norm = np.sqrt(sum((x**2).sum() for x in both.values()))
  assert norm > 1  # it is clipped
  for name, gradient in both.items():
    assert np.abs(clean[name] - moved[name]).max() > 1e-4 or "key/bias" in name
    # Its first moment has a tenth of the gradient.
    np.testing.assert_allclose(10 * norm * found[name + "/adam_m"], gradient,
                               rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.once
@pytest.mark.parametrize("changes", [
    {"optimizer": "lamb", "precision": "fp16"},
    {"optimizer": "adamw", "gradient_accumulation_steps": 2}])
def test_without_the_sentence_loss_what_only_it_trains_stays(changes):
  # The rate of the first step is 0.
  start, without, trained = [
      train(steps, make_options(**changes), sentence_loss_weight=weight)[1]
      for steps, weight in ((1, 0.0), (3, 0.0), (3, 1.0))]
  own = {"bert/pooler/dense/kernel", "bert/pooler/dense/bias",
         "cls/seq_relationship/output_weights",
         "cls/seq_relationship/output_bias"}
  for name in own:
    np.testing.assert_array_equal(without[name], start[name])
    assert np.any(trained[name] != start[name])
  name = "bert/embeddings/word_embeddings"
  assert np.any(without[name] != start[name])


@pytest.mark.once
def test_the_loss_is_divided_by_the_masked_tokens_of_the_whole_batch():
  """A mean of the slices' means would be a different number."""
  batch = make_features()
  batch["masked_lm_weights"][0] = 0  # 1, 5 and 5 masked tokens in the slices
  (whole,), _ = train(1, make_options(), [batch])
  means = []
  for rows in ([0, 1], [2, 3], [4, 5]):
    part = {name: np.concatenate([x[rows]] * 3) for name, x in batch.items()}
    means.append(train(1, make_options(), [part])[0][0])
  (sliced,), _ = train(
      1, make_options(gradient_accumulation_steps=3), [batch])
  assert sliced == pytest.approx(whole, rel=1e-6)
  assert abs(np.mean(means) - whole) > 1e-3


def gradients(used, **config):
  with tf.Graph().as_default(), tf.Session() as session:
    tf.set_random_seed(7)
    global_step = tf.train.get_or_create_global_step()
    features = {name: tf.constant(x) for name, x in make_features().items()}
    model = create_model(
        AlbertConfig.from_dict(dict(SIZES, **config)), True,
        features["input_ids"], features["input_mask"], features["segment_ids"],
        kernels=used)
    output = Pretraining().apply(model, features)
    loss = tf.add_n(list(output.losses.values()))
    variables = tf.trainable_variables()
    result = tf.gradients(loss, variables)
    matmuls = sum(op.type in ("MatMul", "BatchMatMulV2")
                  for op in tf.get_default_graph().get_operations())
    session.run(tf.global_variables_initializer())
    session.run(global_step.assign(3))
    start_equal(session)
    values = session.run([tf.convert_to_tensor(g) for g in result])
    return {v.op.name: g for v, g in zip(variables, values)}, matmuls


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("dropout", [{}, DROPOUT])
def test_recomputing_changes_no_gradient(layout, dropout):
  config = dict(LAYOUTS[layout], **dropout)
  kept, matmuls = gradients(kernels.for_training(SEQ), **config)
  recomputed, recomputed_matmuls = gradients(
      kernels.for_training(SEQ, recompute_blocks=True), **config)
  assert set(kept) == set(recomputed)
  for name, value in kept.items():
    assert np.abs(value).max() > 0 or "key/bias" in name, name
    np.testing.assert_allclose(
        recomputed[name], value, rtol=1e-6,
        atol=1e-6 * max(1.0, np.abs(value).max()), err_msg=name)
  # Each block has eight products.
  blocks = 4 if "inner_group_num" in config else 2
  assert recomputed_matmuls - matmuls == 8 * blocks


def test_a_compiled_step_that_recomputes_gives_the_same():
  """Other steps: test_compiled.py."""
  changes = {"recompute_grads": True}
  one_layer = {"num_hidden_layers": 1}  # compiling takes most of the time
  losses, variables = train(4, make_options(**changes), **one_layer)
  batches = [make_features(seed) for seed in range(4)]
  with tf.Graph().as_default(), tf.Session() as session:
    placeholders = {name: tf.placeholder(x.dtype, x.shape)
                    for name, x in batches[0].items()}
    names = sorted(placeholders)
    model_fn = make_model_fn(make_options(use_xla=True, **changes), **one_layer)

    def train_step(*tensors):
      spec = model_fn(dict(zip(names, tensors)), None,
                      tf.estimator.ModeKeys.TRAIN, {})
      with tf.control_dependencies([spec.train_op]):
        return tf.identity(spec.loss)

    tf.train.get_or_create_global_step()
    loss, = tf.xla.experimental.compile(
        train_step, [placeholders[name] for name in names])
    session.run(tf.global_variables_initializer())
    start_equal(session)
    compiled = [session.run(loss, {placeholders[name]: batch[name]
                                   for name in names}) for batch in batches]
    found = all_variables(session)
  np.testing.assert_allclose(compiled, losses, rtol=1e-5)
  assert_equal_variables(variables, found, 1e-4)


@pytest.mark.parametrize("changes", [
    {}, {"gradient_accumulation_steps": 2, "recompute_grads": True},
    {"optimizer": "adamw", "adversarial": "fgm", "adversarial_epsilon": 0.5}])
def test_every_op_of_a_tpu_step_has_an_xla_kernel(changes):
  options = make_options(use_tpu=True, num_tpu_cores=1, output_dir="/nowhere",
                         **changes)
  made = rehearsal.make_step(make_model_fn(options, **DROPOUT), {
      name: (x.dtype, x.shape) for name, x in make_features().items()})
  assert {"MatMul", "CrossReplicaSum"} <= made.types
  assert not rehearsal.without_xla_kernel(made.types)
  assert not {"GatherNd", "Where"} & made.types  # sizes not static
  assert made.has_static_shapes


@pytest.mark.parametrize("num_slices", [1, 2])
def test_a_step_that_overflows_half_precision_advances_nothing(num_slices):
  """The loss is finite here and one of its gradients is not."""

  class Poisoned(Pretraining):
    def apply(self, model, features):
      output = super().apply(model, features)
      # The root's slope at 0 is infinite.
      poison = tf.sqrt(tf.reduce_sum(
          features["poison"] * tf.square(model.get_pooled_output())))
      return output._replace(losses=dict(
          output.losses,
          masked_lm_loss=output.losses["masked_lm_loss"] + poison))

  with tf.Graph().as_default(), tf.Session() as session:
    tf.set_random_seed(7)
    features = {name: tf.constant(x) for name, x in make_features().items()}
    poison = tf.placeholder(tf.float32, [])
    features["poison"] = tf.fill([BATCH, 1], poison)
    spec = step.model_fn_builder(
        AlbertConfig.from_dict(SIZES), Poisoned(), make_options(
            precision="fp16", gradient_accumulation_steps=num_slices),
        Schedule(20), distribution.get_workers())(
            features, None, tf.estimator.ModeKeys.TRAIN, {})
    session.run(tf.global_variables_initializer())
    trained = {v.op.name: v for v in tf.global_variables()
               if "loss_scale" not in v.op.name and "good_steps" not in
               v.op.name}
    assert any(name.endswith("adam_v") for name in trained)
    scale, = [v for v in tf.global_variables()
              if v.op.name.endswith("loss_scale")]
    history = []
    for value in (1.0, 0.0, 1.0):
      session.run(spec.train_op, {poison: value})
      history.append(session.run([trained, scale]))
    (first, scale_1), (second, scale_2), (third, scale_3) = history
  assert [h[0]["global_step"] for h in history] == [1, 1, 2]
  assert scale_1 == 2 * scale_2 == 2 * scale_3
  for name in trained:
    np.testing.assert_array_equal(first[name], second[name], err_msg=name)
    assert np.all(np.isfinite(third[name])), name
  assert np.any(third["bert/pooler/dense/kernel"] !=
                second["bert/pooler/dense/kernel"])


def test_mixed_precision_makes_the_steps_of_single_precision():
  """Where no unit computes in half precision, scaling alone is left."""
  losses, variables = train(3, make_options())
  scaled_losses, scaled = train(3, make_options(precision="fp16"))
  np.testing.assert_allclose(scaled_losses, losses, rtol=1e-5)
  for name, value in variables.items():
    np.testing.assert_allclose(scaled[name], value, rtol=1e-5, atol=1e-5,
                               err_msg=name)


def test_a_tpu_writes_and_logs_what_its_host_is_sent(tmp_path, caplog):
  options = make_options(use_tpu=True, num_tpu_cores=1,
                         output_dir=str(tmp_path), log_steps=2)
  with tf.Graph().as_default():
    global_step = tf.train.get_or_create_global_step()
    scalars = {"loss": tf.cast(global_step, tf.float32) / 8,
               "half": tf.cast(global_step, tf.float32) / 2}
    write, tensors = step._host_call(global_step, scalars, options.run)
    assert all(tensor.shape.as_list() == [1] for tensor in tensors)
    # The host sees the values of all replicas, one after the other.
    ops = write(*[tf.concat([tensor] * 8, 0) for tensor in tensors])
    writers = summary_ops_v2.summary_writer_initializer_op()
    flush = getattr(summary_ops_v2, "legacy_raw_flush", summary_ops_v2.flush)
    flushes = [flush(writer=op.inputs[0]) for op in writers]
    # The loop of a TPU takes several steps and returns the last loss.
    tf.add_to_collection(tf.GraphKeys.LOSSES, scalars["loss"])
    number = tf.placeholder(tf.int64, [])
    assign = global_step.assign(number)
    progress = hooks.ProgressHook(9, 4, 10, str(tmp_path))
    with caplog.at_level(logging.INFO, "absl"), (
        tf.train.SingularMonitoredSession(hooks=[progress])) as session:
      raw = session.raw_session()
      raw.run(writers)
      raw.run(ops)
      for value in (1, 2, 3, 5, 6, 9):
        raw.run(assign, {number: value})
        # The device may be done before its host has heard of it.
        late = threading.Timer(0.2 * (value > 5), raw.run, [ops])
        late.start()
        session.run(global_step)
        late.join()
      raw.run(flushes)
  assert plot_curves.read_scalars(str(tmp_path))["loss"] == {
      0: 0.0, 2: 0.25, 6: 0.75}
  assert [re.sub(r"[\d.]+ (examples|s a step).*", "",
                 record.getMessage())
          for record in caplog.records if record.name == "absl"] == [
      "step 1/9 | last 1: loss 0.1250 | half 0.5000 | ",
      "step 5/9 | last 4: loss 0.4167 | half 1.6667 | ",
      "step 9/9 | last 4: loss 0.9375 | half 3.7500 | "]


def test_what_a_tpu_exports_for_a_cpu_looks_words_up():
  """On a TPU, a product with one-hot rows takes the place of that."""
  features = {name: (x.dtype, x.shape) for name, x in make_features().items()}
  model_fn = make_model_fn(make_options(use_tpu=True, num_tpu_cores=1,
                                        output_dir="/nowhere"))
  for params, has_product in (({}, True), ({"use_tpu": True}, True),
                              ({"use_tpu": False}, False)):
    made = rehearsal.make_step(
        lambda *args, params=params: model_fn(*args[:3], params), features,
        tf.estimator.ModeKeys.PREDICT)
    shapes = [shape.as_list() for shape in made.shapes if shape.ndims == 2]
    assert ([BATCH * SEQ, VOCAB] in shapes) == has_product
