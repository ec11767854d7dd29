"""The token labeling head on given scores."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from reference_albert import softmax
from small_models import PooledModel, evaluate, run_head

from albert.heads import TokenLabels, crf

LABELS = ["O", "B-a", "I-a"]
# Texts of two and three tokens, with [CLS], [SEP] and padding.
SCORES = np.array(
  [
    [[0, 0, 9], [0, 1, 5], [0, 2, 3], [0, 9, 0], [0, 9, 0]],
    [[0, 9, 0], [2, 0, 0], [0, 1, 3], [0, 0, 4], [0, 9.0, 0]],
  ]
)
MASK = [[1, 1, 1, 1, 0], [1] * 5]
INSIDE = np.array([[0, 1, 1, 0, 0], [0, 1, 1, 1, 0]])
IDS = np.array([[0, 1, 2, 0, 0], [0, 0, 1, 2, 0]])
MOVES = np.array([[0.0, 1, 0], [0, 0, -2], [3, 0, 0]])
TRANSITIONS = MOVES - [[0, 0, 1e4], [0] * 3, [0] * 3]  # I- cannot follow O
# Without and with a CRF.
WEIGHTS = [{"output_weights": np.eye(3), "output_bias": np.zeros(3)}]
WEIGHTS.append(dict(WEIGHTS[0], **{"crf/transitions": MOVES}))


@pytest.mark.parametrize(
  "use_crf, labels",
  [
    (False, IDS),
    # B-a -> I-a is penalized, O -> B-a rewarded.
    (True, [[0, 0, 1, 0, 0], [0, 0, 1, 2, 0]]),
  ],
)
def test_what_is_exported(use_crf, labels):
  """An "I-" only after "B-" or "I-"; no label at [CLS], [SEP] and padding."""
  found = evaluate(
    TokenLabels(LABELS, use_crf).outputs(
      PooledModel(None, SCORES, mask=MASK), {}
    ),
    WEIGHTS[use_crf],
  )
  np.testing.assert_allclose(found["scores"], SCORES)
  np.testing.assert_array_equal(found["labels"], labels)
  np.testing.assert_allclose(
    found["transitions"], TRANSITIONS * (1 if use_crf else TRANSITIONS < -9)
  )


@pytest.mark.parametrize("use_crf", [False, True])
def test_loss(use_crf):
  """The mean over tokens; 0 without tokens."""
  found = run_head(
    TokenLabels(LABELS, use_crf),
    {
      "label_ids": IDS[[0, 1, 0]],
      "label_mask": INSIDE[[0, 1, 0]] * [[1], [1], [0]],
    },
    WEIGHTS[use_crf],
    None,
    SCORES[[0, 1, 0]],
  )
  if use_crf:
    losses = -evaluate(
      crf.log_likelihood(
        *map(tf.constant, (SCORES, IDS, INSIDE.astype(float), TRANSITIONS))
      )
    )
  else:
    losses = -(
      np.log(softmax(SCORES))[np.arange(2)[:, None], np.arange(5), IDS] * INSIDE
    ).sum(1)
  np.testing.assert_allclose(
    found.each, [*losses / INSIDE.sum(1), 0], rtol=1e-5
  )
  np.testing.assert_array_equal(found.predictions["loss"], found.each)
