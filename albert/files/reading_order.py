"""The order in which training reads examples.

It is a function of a seed and of the position alone, a position being the
number of examples that were read before. So an interrupted training goes on in
the same order, and the processes of one training agree on it.
"""

import numpy as np

_POOL = 400  # batches that examples of similar length are looked for in


def batches(lengths, batch_size, seed, start=0):
  """Yields batches without end, each of examples of similar length.

  Passes over the examples follow one another: at any time, two examples have
  been read equally often, or one of them once more. A batch can hold the end of
  a pass and the beginning of the next.

  Args:
    lengths: int [N], of the examples.
    batch_size: int, B.
    seed: int.
    start: int, batches to leave out.

  Yields:
    int [B], numbers of examples.
  """
  lengths = np.asarray(lengths)
  position, number, examples = start * batch_size, None, None
  while True:
    batch = []
    while len(batch) < batch_size:
      if position // len(lengths) != number:
        number = position // len(lengths)
        examples = _pass(lengths, batch_size, seed, number)
      first = position % len(lengths)
      taken = examples[first:first + batch_size - len(batch)]
      batch.extend(taken)
      position += len(taken)
    yield np.array(batch)


def left_out(lengths, batch_size, seed, end):
  """Returns the examples that the last pass does not come to, int [...].

  Args:
    lengths, batch_size, seed: see `batches`.
    end: int, batches in all.
  """
  number, position = divmod(end * batch_size, len(lengths))
  return np.sort(_pass(np.asarray(lengths), batch_size, seed, number)[
      position:]) if position else np.array([], int)


def _pass(lengths, batch_size, seed, number):
  """Returns all examples in the order of a pass, int [N]."""
  rng = np.random.RandomState([seed, number])
  examples = rng.permutation(len(lengths))
  # The rest of a batch that the pass before has begun.
  begin = -number * len(lengths) % batch_size
  end = begin + (len(lengths) - begin) // batch_size * batch_size
  if end > begin:
    whole = examples[begin:end]
    for pool in np.split(whole, range(_POOL * batch_size, len(whole),
                                      _POOL * batch_size)):
      pool[:] = pool[np.argsort(lengths[pool], kind="stable")]
    rows = whole.reshape([-1, batch_size])
    rows[:] = rows[rng.permutation(len(rows))]
  return examples


def resumed(order, counts, cycle, position):
  """Returns how to go on with the reading of parts from a position.

  Parts are read as `tf.data.Dataset.interleave` reads them: `cycle` places take
  turns, one record each; a place whose part has ended gets the next part in its
  next turn.

  Args:
    order: int [P], parts in the order in which they are begun.
    counts: int [...], records of each part.
    cycle: int.
    position: int, records that were read.

  Returns:
    (int [Q], int64 [Q]): the parts still to be read, those in the places first,
    from the one whose turn it is, and how many records were read of each.
  """
  waiting = list(order)
  places = [None] * cycle  # [part, records read] or None
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
