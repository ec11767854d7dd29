"""The whole training step: slices, recomputation, half precision, TPU."""

import numpy as np
import pytest
import small_steps as small
import tensorflow.compat.v1 as tf
from small_steps import LAYOUTS, full, make_features, make_options

from albert.heads.pretraining import Pretraining
from albert.model import kernels
from albert.model.config import AlbertConfig
from albert.model.layouts import create_model
from albert.train import dry_run, step

pytestmark = pytest.mark.slow
SLICES = {"gradient_accumulation_steps": 3, "recompute_grads": True}


@pytest.mark.parametrize(
  "layout, optimizer, changes",
  [
    # On CPU devices standing in for GPUs. On a CPU, fp16 only scales the
    # loss.
    ("albert_zh", "lamb", SLICES),
    full("albert_zh", "lamb", {"num_gpus": 3}),
    full("albert_zh", "lamb", {"precision": "fp16"}),
    full("google_preln", "adamw", {"num_gpus": 2, **SLICES}),
  ],
)
def test_the_step_of_the_whole_batch_on_one_device(layout, optimizer, changes):
  (losses, whole), (found_losses, found) = [
    small.train(3, make_options(optimizer=optimizer, **more), **LAYOUTS[layout])
    for more in ({}, changes)
  ]
  np.testing.assert_allclose(found_losses, losses, rtol=1e-5)
  # All weights, slots and the global step.
  assert whole["global_step"] == 3
  assert sum(name + "/adam_v" in whole for name in whole) > 10
  small.assert_equal_variables(found, whole, 1e-5)


WORDS = "bert/embeddings/word_embeddings"


def gradients(move=0.0, recompute=False, **config):
  """Returns (gradients of a step with word embeddings shifted by `move`, number
  of matrix multiplications)."""
  with tf.Graph().as_default(), tf.Session() as session:
    tf.set_random_seed(7)
    features = {name: tf.constant(x) for name, x in make_features().items()}
    model = create_model(
      AlbertConfig.from_dict(dict(small.SIZES, **config)),
      True,
      features["input_ids"],
      features["input_mask"],
      features["segment_ids"],
      kernels=kernels.for_training(small.SEQ, recompute_blocks=recompute),
    )
    head = Pretraining(0.5)
    loss = step._total_loss(
      head.apply(model, features).losses, head.totals(features)
    )
    variables = {v.op.name: v for v in tf.trainable_variables()}
    found = dict(
      zip(
        variables,
        map(tf.convert_to_tensor, tf.gradients(loss, list(variables.values()))),
      )
    )
    matmuls = sum(
      op.type in ("MatMul", "BatchMatMulV2")
      for op in tf.get_default_graph().get_operations()
    )
    small.initialize(session)
    table = variables[WORDS]
    session.run(table.assign_add(move + tf.zeros_like(table)))
    return session.run(found), matmuls


@pytest.mark.full
@pytest.mark.parametrize(
  "layout, changes",
  [("albert_zh", SLICES), ("google_preln", {"precision": "fp16"})],
)
def test_an_adversarial_step_is_made_of_two_passes(layout, changes):
  """Against two passes by hand, with the table changed in between."""
  config = LAYOUTS[layout]
  _, found = small.train(
    1,
    make_options(
      optimizer="adamw", adversarial="fgm", adversarial_epsilon=0.5, **changes
    ),
    **config,
  )
  clean, _ = gradients(**config)
  moved, _ = gradients(
    0.5 * clean[WORDS] / np.linalg.norm(clean[WORDS]), **config
  )
  both = {name: clean[name] + moved[name] for name in clean}
  norm = np.sqrt(sum((x**2).sum() for x in both.values()))
  assert norm > 1  # clipping applies
  for name, gradient in both.items():
    assert np.abs(clean[name] - moved[name]).max() > 1e-5 or "key/bias" in name
    # The first moment is a tenth of the gradient.
    np.testing.assert_allclose(
      10 * norm * found[name + "/adam_m"],
      gradient,
      rtol=1e-4,
      atol=1e-5,
      err_msg=name,
    )


@pytest.mark.full
@pytest.mark.parametrize("changes", [{"precision": "fp16"}, SLICES])
def test_without_the_sentence_loss_what_only_it_trains_stays(changes):
  without, trained = [
    small.train(2, make_options(**changes), sentence_loss_weight=weight)[1]
    for weight in (0.0, 1.0)
  ]
  for name in (
    WORDS,
    "bert/pooler/dense/kernel",
    "bert/pooler/dense/bias",
    "cls/seq_relationship/output_weights",
    "cls/seq_relationship/output_bias",
  ):
    start = small.start_value(name, trained[name].shape).astype(np.float32)
    assert np.any(trained[name] != start)
    assert np.all(without[name] == start) == (name != WORDS)


@pytest.mark.full
@pytest.mark.parametrize(
  "layout, blocks", [("google_preln", 2), ("albert_zh", 1)]
)
def test_recomputing_changes_no_gradient(layout, blocks):
  config = dict(LAYOUTS[layout], **small.DROPOUT)
  kept, matmuls = gradients(**config)
  recomputed, recomputed_matmuls = gradients(recompute=True, **config)
  assert set(kept) == set(recomputed)
  for name, value in kept.items():
    assert np.abs(value).max() > 0 or "key/bias" in name, name
    np.testing.assert_allclose(
      recomputed[name],
      value,
      rtol=1e-6,
      atol=1e-6 * max(1.0, np.abs(value).max()),
      err_msg=name,
    )
  # Each block has eight matrix multiplications.
  assert recomputed_matmuls - matmuls == 8 * blocks


ONE_CORE = dict(use_tpu=True, num_tpu_cores=1, output_dir="/nowhere")
SHAPES = {name: (x.dtype, x.shape) for name, x in make_features().items()}


@pytest.mark.parametrize(
  "changes",
  [{}, full({"adversarial": "fgm", **SLICES}), full({"optimizer": "adamw"})],
)
def test_every_op_of_a_tpu_step_has_an_xla_kernel(changes):
  made = dry_run.make_step(
    small.make_model_fn(make_options(**ONE_CORE, **changes), **small.DROPOUT),
    SHAPES,
  )
  assert {"MatMul", "CrossReplicaSum"} <= made.types
  assert not dry_run.without_xla_kernel(made.types)
  assert not {"GatherNd", "Where"} & made.types  # dynamic sizes
  assert made.has_static_shapes


def test_what_a_tpu_exports_for_a_cpu_looks_words_up():
  """On a TPU, lookups are multiplications with one-hot rows."""
  model_fn = small.make_model_fn(make_options(**ONE_CORE))
  for params, has_product in (
    ({}, True),
    ({"use_tpu": True}, True),
    ({"use_tpu": False}, False),
  ):
    made = dry_run.make_step(
      lambda *args, params=params: model_fn(*args[:3], params),
      SHAPES,
      tf.estimator.ModeKeys.PREDICT,
    )
    assert has_product == (
      [small.BATCH * small.SEQ, small.VOCAB]
      in [shape.as_list() for shape in made.shapes if shape.ndims == 2]
    )


def test_padding_and_tokens():
  """Of an example of two sequences, and of two examples of one."""
  for mask, padding, tokens in (
    ([[[1, 1, 1, 0], [1, 1, 0, 1]]], 0.25, 6),
    ([[1, 1, 1, 0], [1, 1, 0, 1]], 0.25, 3),
  ):
    with tf.Session() as session:
      assert session.run(step._batch_scalars(tf.constant(mask))) == {
        "padding": padding,
        "tokens_per_example": tokens,
      }


def test_the_evaluated_loss_has_all_that_a_head_adds():
  batches = [
    make_features(),
    {name: x[:2] for name, x in make_features(1).items()},
  ]
  features = {
    name: tf.placeholder(x.dtype, [None, *x.shape[1:]])
    for name, x in batches[0].items()
  }
  head = Pretraining(0.5)
  model_fn = small.make_model_fn(make_options(), head=head)
  args = features, None, tf.estimator.ModeKeys.EVAL, {}
  metric_fn, tensors = model_fn(*args).eval_metrics
  metrics = metric_fn(*tensors)
  with tf.Session() as session:
    small.initialize(session)
    session.run(tf.local_variables_initializer())
    for batch in batches:
      session.run(
        [update for _, update in metrics.values()],
        {features[name]: x for name, x in batch.items()},
      )
    found = step.whole_loss(
      session.run({name: value for name, (value, _) in metrics.items()})
    )
  assert found["loss"] == pytest.approx(
    found["masked_lm_loss"] + 0.5 * found["sentence_order_loss"]
  )
  tf.get_variable_scope().reuse_variables()
  head.totals = lambda features: {"masked_lm_loss": tf.constant(1.0)}
  with pytest.raises(ValueError, match="lacks the divisor of sentence"):
    model_fn(*args)
