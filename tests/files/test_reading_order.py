"""The order of training examples: passes, resuming, padding."""

import itertools

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from albert.files import reading_order


def lengths_of(count):
  return np.random.RandomState(count).randint(5, 129, count)


def first(count, *args):
  return list(itertools.islice(reading_order.batches(*args), count))


@pytest.mark.parametrize(
  "count, batch_size",
  [(7, 4), (7, 16), (8, 4), (100, 16), (300, 32), (1000, 64)],
)
def test_no_example_is_read_twice_more_than_another(count, batch_size):
  """At every step, also after resuming at any step."""
  lengths = lengths_of(count)
  steps = 4 * count // batch_size + 3
  whole = first(steps, lengths, batch_size, 1)
  counts = np.zeros(count, int)
  for batch in whole:
    assert len(batch) == batch_size
    np.add.at(counts, batch, 1)
    assert counts.max() - counts.min() <= 1
  for start in (1, steps // 3, steps - 1):
    np.testing.assert_array_equal(
      first(steps - start, lengths, batch_size, 1, start), whole[start:]
    )
  left = reading_order.left_out(lengths, batch_size, 1, steps)
  assert list(left) == (
    []
    if counts.min() == counts.max()
    else list(np.flatnonzero(counts == counts.min()))
  )


def test_passes_and_seeds_have_orders_of_their_own():
  lengths = np.ones(64, int)
  passes = np.reshape(first(8, lengths, 32, 1), [4, 64])
  other = np.ravel(first(2, lengths, 32, 2))
  assert len(set(map(tuple, [*passes, other]))) == 5


def test_batches_are_of_similar_length_and_in_no_order_of_it():
  lengths = lengths_of(1000)
  batches = first(31, lengths, 32, 1)
  longest = np.array([lengths[batch].max() for batch in batches])
  padded = sum(len(batch) * top for batch, top in zip(batches, longest))
  assert padded < 1.1 * lengths[np.concatenate(batches)].sum()
  assert abs(np.corrcoef(longest, range(31))[0, 1]) < 0.5


@pytest.mark.parametrize(
  "counts, cycle",
  [([5, 1, 7, 2, 0, 4], 3), ([4], 1), ([3, 3, 3], 16), ([40, 2, 30], 2)],
)
def test_resumed_parts_go_on_as_interleave_does(counts, cycle):
  counts, order = np.array(counts), np.arange(len(counts))[::-1]
  cycle = min(cycle, len(counts))

  def read(order, starts):
    dataset = tf.data.Dataset.from_tensor_slices((order, starts)).interleave(
      lambda part, start: tf.data.Dataset.range(
        start, tf.gather(counts, part)
      ).map(lambda i: (part, i)),
      cycle_length=cycle,
    )
    batch = tf.data.make_one_shot_iterator(dataset.batch(999)).get_next()
    with tf.Session() as session:
      return list(zip(*session.run(batch)))

  whole = read(order, np.zeros(len(order), np.int64))
  assert len(whole) == counts.sum()
  for position in range(0, len(whole), 3):
    assert (
      read(*reading_order.resumed(order, counts, cycle, position))
      == whole[position:]
    )
