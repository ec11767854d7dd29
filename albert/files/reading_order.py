"""The order in which training reads examples.

It depends only on a seed and the position, the number of examples already read.
So interrupted training resumes in the same order, and all processes of
distributed training agree on it.
"""

from typing import Any, Iterator, List, Sequence, Tuple, Union

import numpy as np

_POOL = 400  # batches per pool in which examples are sorted by length
_STEP = 8  # batches are padded to a multiple of this: no finer order is needed


def batches(
  lengths: Union[Sequence[int], np.ndarray],
  batch_size: int,
  seed: int,
  start: int = 0,
) -> Iterator[np.ndarray]:
  """Yields endless batches of examples of similar length.

  Read counts of examples never differ by more than one; a batch can span two
  epochs.

  Args:
    lengths: int [N], of the examples.
    batch_size: B.
    seed: seed of the order.
    start: number of batches to skip.

  Yields:
    int [B], indices of examples.
  """
  lengths = np.asarray(lengths)
  position, number, examples = start * batch_size, -1, np.array([], int)
  while True:
    batch: List[int] = []
    while len(batch) < batch_size:
      if position // len(lengths) != number:
        number = position // len(lengths)
        examples = _pass(lengths, batch_size, seed, number)
      first = position % len(lengths)
      taken = examples[first : first + batch_size - len(batch)]
      batch.extend(taken)
      position += len(taken)
    yield np.array(batch)


def left_out(
  lengths: Union[Sequence[int], np.ndarray],
  batch_size: int,
  seed: int,
  end: int,
) -> np.ndarray:
  """Returns the examples that the last, partial epoch skips.

  Args:
    lengths, batch_size, seed: see `batches`.
    end: total number of batches.

  Returns:
    int [...], sorted indices of examples.
  """
  number, position = divmod(end * batch_size, len(lengths))
  return (
    np.sort(_pass(np.asarray(lengths), batch_size, seed, number)[position:])
    if position
    else np.array([], int)
  )


def _pass(lengths, batch_size, seed, number):
  """Returns the order of all examples in an epoch, int [N]."""
  rng = np.random.RandomState([seed, number])
  examples = rng.permutation(len(lengths))
  # The first examples complete the previous epoch's last batch.
  begin = -number * len(lengths) % batch_size
  end = begin + (len(lengths) - begin) // batch_size * batch_size
  if end > begin:
    whole = examples[begin:end]
    for pool in np.split(
      whole, range(_POOL * batch_size, len(whole), _POOL * batch_size)
    ):
      pool[:] = pool[np.argsort(-(-lengths[pool] // _STEP), kind="stable")]
    rows = whole.reshape([-1, batch_size])
    rows[:] = rows[rng.permutation(len(rows))]
  return examples


def resumed(
  order: np.ndarray, counts: np.ndarray, cycle: int, position: int
) -> Tuple[np.ndarray, np.ndarray]:
  """Computes the parts and records that remain to be read.

  Simulates `tf.data.Dataset.interleave`: `cycle` slots take turns of one record
  each; a slot whose part has ended gets the next part in its next turn.

  Args:
    order: int [P], parts in reading order.
    counts: int [...], records of each part.
    cycle: number of slots.
    position: number of records read.

  Returns:
    (int [Q], int64 [Q]): the remaining parts, those in slots first, beginning
    with the slot whose turn it is; and the number of records read from each.
  """
  waiting = list(order)
  places: List[Any] = [None] * cycle  # [part, records read] or None
  turn = 0
  while position:
    open_places = [place for place in places if place]
    left = min((counts[part] - read for part, read in open_places), default=0)
    rounds = min(left, position // cycle)
    if turn == 0 and rounds and len(open_places) == cycle:
      for place in places:
        place[1] += rounds
      position -= rounds * cycle
      continue
    if not places[turn] and waiting:
      places[turn] = [waiting.pop(0), 0]
    place = places[turn]
    if place and place[1] < counts[place[0]]:
      place[1] += 1
      position -= 1
    else:
      places[turn] = None
    turn = (turn + 1) % cycle
  found = []
  for place in places[turn:] + places[:turn]:
    if not place and waiting:
      place = [waiting.pop(0), 0]
    if place:
      found.append(place)
  found += [[part, 0] for part in waiting]
  parts, reads = zip(*found)
  return np.array(parts), np.array(reads, np.int64)
