"""The scheme BIO of labels of tokens: what may follow what, the best sequence.

Dimensions in comments: S tokens of a text, L labels.
"""

import numpy as np

from albert.errors import InputError

_FORBIDDEN = -1e4  # fits half precision


def forbidden(labels):
  """Returns what the scheme adds to scores of transitions.

  Args:
    labels: list of str, L: "O", and "B-" and "I-" with a kind.

  Returns:
    (float32 [L, L], float32 [L]): -1e4 where the label of the column must not
    follow that of the row, and where it must not be the first; else 0.

  Raises:
    InputError: the labels are of a different scheme.
  """
  for label in labels:
    if label != "O" and label[:2] not in ("B-", "I-"):
      raise InputError("the label %r is not of the scheme BIO, which has O, "
                       "B-kind and I-kind" % label)
  follows = [[label[:2] != "I-" or before[1:] == label[1:] for label in labels]
             for before in labels]
  starts = [label[:2] != "I-" for label in labels]
  return tuple(np.where(allowed, 0, _FORBIDDEN).astype(np.float32)
               for allowed in (follows, starts))


def best_sequence(scores, transitions, starts):
  """Finds the sequence of labels of the greatest score, by Viterbi's algorithm.

  Args:
    scores: float [S, L], of each label at each token.
    transitions: float [L, L], from the row to the column.
    starts: float [L], of the first label.

  Returns:
    int [S], numbers of labels; of equal sequences, that of the lesser numbers
    at the end.
  """
  if not len(scores):
    return np.zeros([0], np.int32)
  best = scores[0] + starts  # [L], of the sequences that end in a label
  origins = []
  for row in scores[1:]:
    moved = best[:, np.newaxis] + transitions
    origins.append(moved.argmax(0))
    best = moved.max(0) + row
  labels = [int(best.argmax())]
  for origin in reversed(origins):
    labels.append(int(origin[labels[-1]]))
  return np.array(labels[::-1], np.int32)
