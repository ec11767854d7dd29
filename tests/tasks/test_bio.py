"""The best sequence of labels, against all sequences and TensorFlow."""

import itertools

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from albert.heads import crf
from albert.tasks import bio

LABELS = ["O", "B-a", "I-a", "B-b", "I-b"]
SIZES = list(itertools.product((3, 4, 5), range(1, 7)))


def sequences(num_labels, length):
  """Returns all sequences, int [N, S]; the lesser numbers at the end first."""
  return np.array(list(itertools.product(range(num_labels), repeat=length))
                  )[:, ::-1]


def scores_of(found, scores, transitions, starts):
  """Returns the scores of sequences, float [N]."""
  return starts[found[:, 0]] + scores[range(len(scores)), found].sum(1) + (
      transitions[found[:, :-1], found[:, 1:]].sum(1))


@pytest.mark.parametrize("num_labels, length", SIZES)
def test_the_best_of_all_sequences(num_labels, length):
  rng = np.random.RandomState(length)
  every = sequences(num_labels, length)
  for _ in range(10):
    case = [rng.normal(size=size) for size in (
        [length, num_labels], [num_labels] * 2, [num_labels])]
    found = bio.best_sequence(*case)
    np.testing.assert_array_equal(
        found, every[scores_of(every, *case).argmax()])
  assert found.dtype == np.int32


@pytest.mark.parametrize("num_labels, length", SIZES)
def test_of_equal_sequences_the_lesser_numbers_at_the_end(num_labels, length):
  rng = np.random.RandomState(length)
  every = sequences(num_labels, length)
  ties = 0
  for _ in range(30):
    case = [rng.randint(2, size=size) for size in (
        [length, num_labels], [num_labels] * 2, [num_labels])]
    scores = scores_of(every, *case)
    ties += np.sum(scores == scores.max()) > 1
    np.testing.assert_array_equal(bio.best_sequence(*case),
                                  every[scores.argmax()])
  assert ties > 10


@pytest.mark.parametrize("num_labels, length", SIZES)
def test_what_is_forbidden_never_occurs(num_labels, length):
  labels = LABELS[:num_labels]
  transitions, starts = bio.forbidden(labels)
  rng = np.random.RandomState(length)
  every = sequences(num_labels, length)
  is_allowed = np.array([all(
      label[0] != "I" or before[1:] == label[1:]
      for before, label in zip(["O"] + names, names)) for names in (
          [labels[number] for number in row] for row in every)])
  allowed = every[is_allowed]
  others = 0
  for _ in range(10):
    scores = 30 * rng.normal(size=[length, num_labels])
    found = bio.best_sequence(scores, transitions, starts)
    np.testing.assert_array_equal(found, allowed[scores_of(
        allowed, scores, 0 * transitions, 0 * starts).argmax()])
    others += not np.array_equal(found, scores.argmax(1))
  assert others


def test_a_text_without_tokens():
  found = bio.best_sequence(np.zeros([0, 5]), *bio.forbidden(LABELS))
  assert found.shape == (0,) and found.dtype == np.int32


def test_as_in_tensorflow():
  """200 texts of 1 to 9 tokens, half of them with equal sequences."""
  rng = np.random.RandomState(0)
  scores = rng.normal(size=[200, 9, 5])
  scores[::2] = rng.randint(3, size=scores[::2].shape)
  lengths = rng.randint(1, 10, [200])
  forbidden, starts = bio.forbidden(LABELS)
  trained = rng.randint(2, size=[5, 5]) + forbidden
  mask = np.arange(9) < lengths[:, np.newaxis]
  with tf.Session() as session:
    wanted = session.run(crf.viterbi(*[
        tf.constant(x, tf.float32)
        for x in (scores, mask, trained, starts)]))
  for row, length, labels in zip(scores.astype(np.float32), lengths, wanted):
    np.testing.assert_array_equal(
        bio.best_sequence(row[:length], trained, starts), labels[:length])
  assert len(set(wanted[mask])) == 5
