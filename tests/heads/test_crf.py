"""The CRF against all sequences of labels, and as a training step."""

import contextlib
import itertools

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from given_settings import make_settings

from albert.errors import InputError
from albert.heads import TokenLabels, crf
from albert.model.config import AlbertConfig
from albert.predict import tagger
from albert.tasks import bio, ner
from albert.train import distribution, rehearsal
from albert.train.settings import Schedule
from albert.train.step import model_fn_builder

LABELS = ner.labels_of(["b", "a"])
NUM_LABELS, LENGTH = 5, 6
MASK = np.array([[1] * 6, [0, 1, 1, 1, 1, 0], [0, 0, 0, 1, 0, 0], [0] * 6],
                np.float64)


def random_crf(seed=0):
  rng = np.random.RandomState(seed)
  return (rng.normal(size=[4, LENGTH, NUM_LABELS]),
          rng.randint(NUM_LABELS, size=[4, LENGTH]),
          rng.normal(size=[NUM_LABELS, NUM_LABELS]),
          rng.normal(size=[NUM_LABELS]))


def score_of(labels, scores, transitions):
  return sum(row[label] for row, label in zip(scores, labels)) + sum(
      transitions[pair] for pair in zip(labels, labels[1:]))


def sequences(length):
  return itertools.product(range(NUM_LABELS), repeat=length)


@contextlib.contextmanager
def log_likelihood(labels, static=True):
  """Yields a function of scores and transitions, and that of its gradients."""
  with tf.Graph().as_default(), tf.Session() as session:
    inputs = [tf.placeholder(tf.float64, shape) for shape in (
        labels.shape + (NUM_LABELS,) if static else [None, None, NUM_LABELS],
        [NUM_LABELS] * 2)]
    found = crf.log_likelihood(inputs[0], tf.constant(labels),
                               tf.constant(MASK), inputs[1])
    yield [session.make_callable(output, inputs)
           for output in (found, tf.gradients(found, inputs))]


@pytest.mark.parametrize("static", [True, False])
def test_log_likelihood_is_that_of_all_sequences(static):
  scores, labels, transitions, _ = random_crf()
  with log_likelihood(labels, static) as (run, _):
    found = run(scores, transitions)
  for row in range(4):
    places = np.flatnonzero(MASK[row])
    every = [score_of(y, scores[row, places], transitions)
             for y in sequences(len(places))]
    own = score_of(labels[row, places], scores[row, places], transitions)
    assert found[row] == pytest.approx(own - np.log(np.sum(np.exp(every))))


def test_gradient_is_that_of_finite_differences():
  scores, labels, transitions, _ = random_crf(1)
  rng = np.random.RandomState(2)
  with log_likelihood(labels) as (run, run_gradients):
    gradients = run_gradients(scores, transitions)
    for _ in range(10):
      moves = [1e-5 * rng.normal(size=x.shape) for x in (scores, transitions)]
      ends = [run(scores + sign * moves[0], transitions + sign * moves[1]).sum()
              for sign in (1, -1)]
      assert sum((gradient * move).sum() for gradient, move in zip(
          gradients, moves)) == pytest.approx((ends[0] - ends[1]) / 2, rel=1e-6)


def run_viterbi(scores, mask, transitions, starts, **kwargs):
  with tf.Graph().as_default(), tf.Session() as session:
    tensors = [tf.constant(x, tf.float32)
               for x in (scores, mask, transitions, starts)]
    return session.run(crf.viterbi(*tensors, **kwargs))


@pytest.mark.parametrize("scan", [tf.scan, crf.unrolled_scan])
def test_viterbi_finds_the_best_of_all_sequences(scan):
  scores, _, transitions, starts = random_crf(3)
  found = run_viterbi(scores, MASK, transitions, starts, scan=scan)
  for row in range(4):
    places = np.flatnonzero(MASK[row])
    if len(places):
      best = max(sequences(len(places)), key=lambda y, row=row, places=places: (
          starts[y[0]] + score_of(y, scores[row, places], transitions)))
      assert tuple(found[row, places]) == best
      assert tuple(bio.best_sequence(
          scores[row, places], transitions, starts)) == best
    assert not found[row, MASK[row] == 0].any()


def test_what_the_scheme_forbids_is_never_predicted():
  """Softmax: the best of the sequences that are allowed."""
  def allowed(y):
    names = ["O"] + [LABELS[label] for label in y]
    return all(name[0] != "I" or before[1:] == name[1:]
               for before, name in zip(names, names[1:]))

  assert LABELS == ["O", "B-a", "I-a", "B-b", "I-b"]
  rng = np.random.RandomState(4)
  scores = [30 * rng.normal(size=[length, 5]).astype(np.float32)
            for length in [6] * 20 + [1, 0, 3]]
  transitions, _ = bio.forbidden(LABELS)
  found = tagger.decode(scores, transitions, LABELS)
  for x, y in zip(scores, found):
    assert tuple(y) == max(
        filter(allowed, sequences(len(x))),
        key=lambda y, x=x: score_of(y, x, np.zeros([5, 5])))
  assert sum(tuple(x.argmax(-1)) != tuple(y)
             for x, y in zip(scores, found)) > 10
  (only,) = tagger.decode([scores[-2]], transitions, LABELS)
  assert not len(only)
  with pytest.raises(InputError, match="'S-a' is not of the scheme BIO"):
    bio.forbidden(["O", "B-a", "I-a", "S-a"])


SIZES = {"vocab_size": 50, "hidden_size": 16, "embedding_size": 8,
         "num_hidden_layers": 1, "num_attention_heads": 2,
         "intermediate_size": 16, "hidden_act": "gelu",
         "max_position_embeddings": 8, "initializer_range": 0.2}


def step_for_a_tpu():
  return model_fn_builder(
      AlbertConfig(**SIZES), TokenLabels(LABELS, use_crf=True), make_settings(
          gradient_accumulation_steps=2, use_tpu=True, num_tpu_cores=1,
          output_dir="/nowhere"), Schedule(20),
      distribution.get_workers(use_tpu=True))


def make_features():
  rng = np.random.RandomState(0)
  ones = np.ones([4, 8], np.int32)
  mask = np.array([[0] + [1] * 6 + [0], [0, 0, 0] + [1] * 4 + [0]] * 2,
                  np.int32)
  return {"input_ids": rng.randint(50, size=[4, 8]).astype(np.int32),
          "input_mask": ones, "segment_ids": 0 * ones, "label_mask": mask,
          "label_ids": np.array([[0, 0, 1, 2, 2, 3, 0, 0]] * 4, np.int32),
          "number": np.arange(4, dtype=np.int32)}


@pytest.mark.slow
def test_a_step_of_the_crf_is_one_that_a_tpu_compiles():
  made = rehearsal.make_step(step_for_a_tpu(), {
      name: (x.dtype, x.shape) for name, x in make_features().items()})
  assert not rehearsal.without_xla_kernel(made.types)
  assert not {"GatherNd", "Where"} & made.types  # sizes not static
  assert made.has_static_shapes
