"""Pretraining steps of a small model, and files to pretrain it on."""

import json

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from given_settings import make_settings

import modeling
from albert.files import records
from albert.heads.pretraining import Pretraining
from albert.model.config import AlbertConfig
from albert.train import distribution, step
from albert.train.settings import Schedule

BATCH, SEQ, PREDICTIONS, VOCAB = 6, 16, 4, 50
SIZES = dict(
  vocab_size=VOCAB,
  hidden_size=24,
  embedding_size=8,
  num_hidden_layers=1,
  num_attention_heads=4,
  intermediate_size=40,
  hidden_act="gelu",
  max_position_embeddings=SEQ,
  initializer_range=0.2,
)
DROPOUT = dict(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
LAYOUTS = {
  "albert_zh": {},
  "google_preln": dict(
    num_hidden_layers=2, num_hidden_groups=2, ln_type="preln"
  ),
}


def full(*args):
  return pytest.param(*args, marks=pytest.mark.full)


def without_dropout(monkeypatch):
  monkeypatch.setattr(
    modeling.AlbertModel, "dropout", lambda model, x, *args, **kwargs: x
  )


def make_options(**changes):
  return make_settings(
    **dict(
      dict(
        optimizer="lamb",
        learning_rate=0.005,
        log_steps=1,
        train_batch_size=BATCH,
        eval_batch_size=BATCH,
      ),
      **changes,
    )
  )


def make_features(seed=0, dtype=np.int32):
  """A batch whose halves and thirds have unequal numbers of masked tokens."""
  rng = np.random.RandomState(seed)
  lengths = rng.randint(SEQ // 2, SEQ + 1, size=[BATCH, 1])
  weights = np.arange(PREDICTIONS) < np.array([[4], [4], [1], [2], [1], [1]])
  tokens, masked = [BATCH, SEQ], [BATCH, PREDICTIONS]
  features = dict(
    input_ids=rng.randint(VOCAB, size=tokens),
    input_mask=np.arange(SEQ) < lengths,
    segment_ids=rng.randint(2, size=tokens),
    masked_lm_positions=rng.randint(SEQ // 2, size=masked),
    masked_lm_ids=rng.randint(VOCAB, size=masked),
    next_sentence_labels=rng.randint(2, size=[BATCH, 1]),
  )
  return dict(
    {name: x.astype(dtype) for name, x in features.items()},
    masked_lm_weights=weights.astype(np.float32),
  )


def make_model_fn(
  options, sentence_loss_weight=0.5, workers=None, head=None, **config
):
  data, device = options.data, options.device
  return step.model_fn_builder(
    AlbertConfig.from_dict(dict(SIZES, **config)),
    head or Pretraining(sentence_loss_weight),
    options,
    Schedule(20, 3, data.adversarial_epsilon if data.adversarial else 0.0),
    workers or distribution.get_workers(use_tpu=device.use_tpu),
  )


def train(num_steps, options, batches=None, **kwargs):
  """Trains on the CPU; returns (losses, {name: variable}).

  `batches`: list of features, by default of seeds 0, 1, ...; `kwargs`: for
  make_model_fn.
  """
  batches = batches or [make_features(seed) for seed in range(num_steps)]
  session_config = tf.ConfigProto(allow_soft_placement=True)
  # Optimizing the graph takes longer than running it.
  session_config.graph_options.rewrite_options.disable_meta_optimizer = True
  with tf.Graph().as_default(), tf.Session(config=session_config) as session:
    tf.set_random_seed(7)
    placeholders = {
      name: tf.placeholder(x.dtype, x.shape) for name, x in batches[0].items()
    }
    spec = make_model_fn(options, **kwargs)(
      placeholders, None, tf.estimator.ModeKeys.TRAIN, {}
    )
    initialize(session)
    losses = [
      session.run(
        [spec.loss, spec.train_op],
        {placeholders[name]: x for name, x in batch.items()},
      )[0]
      for batch in batches
    ]
    return losses, session.run({v.op.name: v for v in tf.global_variables()})


def initialize(session):
  """Initializes trainable variables to values that depend on names only."""
  session.run(
    tf.global_variables_initializer(),
    {
      v.initial_value: start_value(v.op.name, v.shape.as_list())
      for v in tf.trainable_variables()
    },
  )


def start_value(name, shape):
  value = 0.1 * np.random.RandomState(sum(map(ord, name))).normal(size=shape)
  return 1 + value if "gamma" in name else value


def assert_equal_variables(one, other, tolerance):
  """Asserts that dict `one` has the variables of dict `other`."""
  assert set(one) >= set(other)
  for name, value in other.items():
    np.testing.assert_allclose(
      one[name], value, rtol=tolerance, atol=tolerance, err_msg=name
    )


def write_pretraining(folder, count, **sizes):
  """Writes a configuration and records; returns the flags for them.

  The `count` records of `train.tfrecord` and of `heldout.tfrecord` have 1 to 4
  masked tokens; `sizes` override SIZES.
  """
  (folder / "config.json").write_text(json.dumps(dict(SIZES, **sizes)))
  rng = np.random.RandomState(0)
  specs = records.pretraining_specs(SEQ, PREDICTIONS)
  made = [
    records.serialize(
      dict(
        input_ids=rng.randint(VOCAB, size=SEQ),
        input_mask=np.ones(SEQ, int),
        segment_ids=rng.randint(2, size=SEQ),
        masked_lm_positions=rng.randint(SEQ, size=PREDICTIONS),
        masked_lm_ids=rng.randint(VOCAB, size=PREDICTIONS),
        masked_lm_weights=(np.arange(PREDICTIONS) <= i % 4).astype(np.float32),
        next_sentence_labels=[rng.randint(2)],
      ),
      specs,
    )
    for i in range(count)
  ]
  for name in ("train", "heldout"):
    records.write_records(str(folder / (name + ".tfrecord")), made)
  return [
    "--bert_config_file=%s" % (folder / "config.json"),
    "--input_file=%s" % (folder / "train.tfrecord"),
    "--max_seq_length=%d" % SEQ,
    "--max_predictions_per_seq=%d" % PREDICTIONS,
  ]
