"""The BIO scheme: allowed transitions and the best label sequence.

Dimensions in comments: S tokens of a text, L labels.
"""

from typing import Sequence, Tuple

import numpy as np

from albert.errors import InputError

_FORBIDDEN = -1e4  # fits half precision


def forbidden(labels: Sequence[str]) -> Tuple[np.ndarray, np.ndarray]:
  """Returns penalties that enforce the scheme.

  Args:
    labels: L labels: "O", and "B-" and "I-" with an entity type.

  Returns:
    (float32 [L, L], float32 [L]): -1e4 if the label of the column must not
    follow that of the row, or must not be the first; otherwise 0.

  Raises:
    InputError: the labels do not follow the scheme.
  """
  for label in labels:
    if label != "O" and label[:2] not in ("B-", "I-"):
      raise InputError(
        "the label %r is not in the BIO scheme, which has O, "
        "B-type and I-type" % label
      )
  follows = [
    [label[:2] != "I-" or before[1:] == label[1:] for label in labels]
    for before in labels
  ]
  starts = [label[:2] != "I-" for label in labels]
  return (
    np.where(follows, 0, _FORBIDDEN).astype(np.float32),
    np.where(starts, 0, _FORBIDDEN).astype(np.float32),
  )


def best_sequence(
  scores: np.ndarray, transitions: np.ndarray, starts: np.ndarray
) -> np.ndarray:
  """Finds the label sequence with the highest score (Viterbi algorithm).

  Args:
    scores: float [S, L], of each label at each token.
    transitions: float [L, L], from the row to the column.
    starts: float [L], of the first label.

  Returns:
    int [S], indices of labels; ties go to the lower indices at the end.
  """
  if not len(scores):
    return np.zeros([0], np.int32)
  best = scores[0] + starts  # [L], best score of sequences that end in a label
  origins = []
  for row in scores[1:]:
    moved = best[:, np.newaxis] + transitions
    origins.append(moved.argmax(0))
    best = moved.max(0) + row
  labels = [int(best.argmax())]
  for origin in reversed(origins):
    labels.append(int(origin[labels[-1]]))
  return np.array(labels[::-1], np.int32)
