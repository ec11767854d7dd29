"""XLA: every head in training, evaluation and prediction, as without it."""

import os
import subprocess
import sys

import numpy as np
import pytest
import small_steps as small
import tensorflow.compat.v1 as tf
from small_steps import BATCH, SEQ

from albert import heads
from albert.heads.pretraining import Pretraining

pytestmark = pytest.mark.full
MODES = tf.estimator.ModeKeys
LABELS = ["O", "B-a", "I-a", "B-b", "I-b"]
RNG, NUMBERS = np.random.RandomState(0), np.arange(BATCH)
MASKED = small.make_features()
TEXTS = {
  name: MASKED[name] for name in ("input_ids", "input_mask", "segment_ids")
}
MASK = TEXTS["input_mask"]
TOKENS = dict(
  TEXTS,
  label_ids=RNG.randint(5, size=[BATCH, SEQ]),
  label_mask=np.pad(MASK[:, 2:], [[0, 0], [1, 1]], "constant"),
)
ANSWERS = dict(TEXTS, answer_mask=MASK, start=NUMBERS % 4, end=NUMBERS % 4 + 1)
TWO = {name: np.stack([x, x[::-1]], 1) for name, x in TEXTS.items()}
JOBS = {
  "pretraining": (Pretraining(), MASKED),
  "windows": (
    heads.Classifier(3, num_windows=2),
    dict(TWO, num_windows=np.array([2, 1, 2, 1, 1, 2]), label_ids=NUMBERS % 3),
  ),
  "multi_label": (
    heads.MultiLabel(2),
    dict(TEXTS, label_ids=np.array([[0, 1], [1, 2], [2, 2]])[NUMBERS % 3]),
  ),
  "regression": (
    heads.Regression(),
    dict(TEXTS, label_ids=np.linspace(0, 5, BATCH)),
  ),
  "choices": (
    heads.Choices(2),
    dict(TWO, label=NUMBERS % 2, num_choices=np.array([2, 2, 1, 2, 1, 2])),
  ),
  "softmax": (heads.TokenLabels(LABELS, use_crf=False), TOKENS),
  "crf": (heads.TokenLabels(LABELS, use_crf=True), TOKENS),
  "spans": (heads.Spans(), ANSWERS),
  "beam": (heads.BeamSpans(True, 3, 3), ANSWERS),
}
LAYOUTS = {
  "albert_zh": {},
  "google_preln": {"num_hidden_groups": 1, "ln_type": "preln"},
}
SLICES = {"gradient_accumulation_steps": 2, "recompute_grads": True}


def run(name, config, modes, compiled, num_steps=1, **changes):
  """Returns what a step of all `modes` gives, for each step a list."""
  head, features = JOBS[name]
  features = {
    key: x.astype({"f": np.float32}.get(x.dtype.kind, np.int32))
    for key, x in features.items()
  }
  with tf.Graph().as_default(), tf.Session() as session:
    model_fn = small.make_model_fn(
      small.make_options(use_xla=compiled, **changes), head=head, **config
    )
    tf.train.get_or_create_global_step()
    inputs = {
      key: tf.placeholder(x.dtype, x.shape) for key, x in features.items()
    }

    def outputs(*tensors):
      found = []
      for mode in modes:
        with tf.variable_scope(tf.get_variable_scope(), reuse=bool(found)):
          spec = model_fn(dict(zip(inputs, tensors)), None, mode, {})
        if mode == MODES.PREDICT:
          found += [spec.predictions[key] for key in sorted(spec.predictions)]
        elif mode == MODES.EVAL:
          found += [tf.identity(spec.loss), *spec.eval_metrics[1]]
        else:
          with tf.control_dependencies([spec.train_op]):
            found.append(tf.identity(spec.loss))
      return found

    found = (
      tf.xla.experimental.compile(outputs, list(inputs.values()))
      if (compiled)
      else outputs(*inputs.values())
    )
    small.initialize(session)
    feed = {tensor: features[key] for key, tensor in inputs.items()}
    return [session.run(found, feed) for _ in range(num_steps)]


# TF 1.15 cannot recompute beside the loop of a CRF.
@pytest.mark.parametrize(
  "name, layout, changes",
  [
    (
      name,
      ["albert_zh", "google_preln"][i % 2],
      dict(SLICES, recompute_grads=name != "crf") if i else {},
    )
    for i, name in enumerate(JOBS)
  ],
)
def test_a_compiled_head_gives_the_same(name, layout, changes, monkeypatch):
  config = LAYOUTS[layout]
  plain, compiled = [
    run(name, config, [MODES.EVAL, MODES.PREDICT], way)[0]
    for way in (False, True)
  ]
  assert len(plain) == len(compiled) > 2
  for one, other in zip(plain, compiled):
    np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4)
  # Compiled, other numbers are drawn.
  small.without_dropout(monkeypatch)
  plain, compiled = [
    run(name, config, [MODES.TRAIN], way, 3, **changes) for way in (False, True)
  ]
  np.testing.assert_allclose(compiled, plain, rtol=1e-4)
  assert plain[0] != plain[2]


def test_layers_are_computed_again(tmp_path):
  """XLA makes one of two equal computations, if nothing keeps them apart."""
  products = []
  for recompute in (False, True):
    subprocess.run(
      [
        sys.executable,
        "-c",
        """
import test_compiled as t
t.run("pretraining", dict(t.LAYOUTS["google_preln"], num_hidden_layers=2),
      [t.MODES.TRAIN], True, recompute_grads=%s)
"""
        % recompute,
      ],
      check=True,
      env=dict(
        os.environ,
        XLA_FLAGS="%s --xla_dump_to=%s"
        % (os.environ["XLA_FLAGS"], tmp_path / str(recompute)),
        PYTHONPATH=os.pathsep.join(sys.path),
      ),
    )
    products.append(
      sum(
        path.read_text().count(" dot(")
        for path in (tmp_path / str(recompute)).glob("*after_optimizations.txt")
      )
    )
  # Each of two layers has 8 products, 16 in its gradient, and the one of
  # queries and keys again; outside of them there are 17. What a layer's last
  # product gives is not needed again.
  assert products == [2 * (8 + 16 + 1) + 17, 2 * (8 + 16 + 1) + 17 + 2 * 7]
