"""XLA: every head in training, evaluation and prediction, as without it.

As a program, compiles a training step, with recomputed layers if told so.
"""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

if __name__ == "__main__":
  sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[i])
                  for i in (1, 2)]

from given_settings import make_settings

import modeling
from albert import heads
from albert.heads.pretraining import Pretraining
from albert.model.config import AlbertConfig
from albert.train import distribution, step
from albert.train.settings import Schedule

BATCH, SEQ, VOCAB = 6, 16, 50
SIZES = {"vocab_size": VOCAB, "hidden_size": 24, "embedding_size": 8,
         "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 40, "hidden_act": "gelu",
         "max_position_embeddings": SEQ, "initializer_range": 0.2}
LAYOUTS = {"albert_zh": {}, "google_preln": {
    "num_hidden_groups": 1, "ln_type": "preln"}}
LABELS = ["O", "B-a", "I-a", "B-b", "I-b"]
RNG = np.random.RandomState(0)
MASK = (np.arange(SEQ) < RNG.randint(8, SEQ + 1, [BATCH, 1])).astype(np.int32)
TEXTS = {"input_ids": RNG.randint(VOCAB, size=[BATCH, SEQ]), "input_mask": MASK,
         "segment_ids": RNG.randint(2, size=[BATCH, SEQ]) * MASK}
TOKENS = dict(TEXTS, label_ids=RNG.randint(5, size=[BATCH, SEQ]),
              label_mask=np.pad(MASK[:, 2:], [[0, 0], [1, 1]], "constant"))
ANSWERS = dict(TEXTS, answer_mask=MASK, start=np.arange(BATCH) % 4,
               end=np.arange(BATCH) % 4 + 1)
CHOICES = {name: np.stack([x, x[::-1]], 1) for name, x in TEXTS.items()}
WINDOWS = dict(CHOICES, num_windows=[2, 1, 2, 1, 1, 2])
CHOICES.update(label=[0, 1, 0, 1, 0, 1], num_choices=[2, 2, 1, 2, 1, 2])
MASKED = dict(
    TEXTS, masked_lm_positions=RNG.randint(8, size=[BATCH, 4]),
    masked_lm_ids=RNG.randint(VOCAB, size=[BATCH, 4]),
    masked_lm_weights=RNG.randint(2, size=[BATCH, 4]).astype(np.float32),
    next_sentence_labels=RNG.randint(2, size=[BATCH, 1]))
JOBS = {
    "pretraining": (Pretraining, MASKED),
    "classifier": (lambda: heads.Classifier(3), dict(
        TEXTS, label_ids=np.arange(BATCH) % 3)),
    "windows": (lambda: heads.Classifier(3, num_windows=2), dict(
        WINDOWS, label_ids=np.arange(BATCH) % 3)),
    "multi_label": (lambda: heads.MultiLabel(2), dict(
        TEXTS, label_ids=RNG.randint(2, size=[BATCH, 2]))),
    "regression": (heads.Regression, dict(
        TEXTS, label_ids=np.linspace(0, 5, BATCH).astype(np.float32))),
    "choices": (lambda: heads.Choices(2), CHOICES),
    "softmax": (lambda: heads.TokenLabels(LABELS, use_crf=False), TOKENS),
    "crf": (lambda: heads.TokenLabels(LABELS, use_crf=True), TOKENS),
    "spans": (heads.Spans, ANSWERS),
    "beam": (lambda: heads.BeamSpans(True, 3, 3), ANSWERS)}
# Both layouts below the first one, one below each of the others.
CASES = [("pretraining", "albert_zh")] + [
    (name, ["google_preln", "albert_zh"][i % 2]) for i, name in enumerate(JOBS)]


def run(name, config, mode, compiled, num_steps=1, **changes):
  """Returns what a step gives, several times: [[array]]."""
  head, features = JOBS[name]
  features = {key: np.asarray(x, getattr(x, "dtype", np.int32))
              for key, x in features.items()}
  features = {key: x.astype(np.int32) if x.dtype.kind == "i" else x
              for key, x in features.items()}
  with tf.Graph().as_default(), tf.Session() as session:
    model_fn = step.model_fn_builder(
        AlbertConfig.from_dict(dict(SIZES, **config)), head(),
        make_settings(learning_rate=0.005, optimizer="lamb", use_xla=compiled,
                      train_batch_size=BATCH, **changes),
        Schedule(20, 3), distribution.get_workers())
    tf.train.get_or_create_global_step()
    inputs = {key: tf.placeholder(x.dtype, x.shape)
              for key, x in features.items()}

    def outputs(*tensors):
      spec = model_fn(dict(zip(inputs, tensors)), None, mode, {})
      if mode == tf.estimator.ModeKeys.PREDICT:
        return [spec.predictions[key] for key in sorted(spec.predictions)]
      if mode == tf.estimator.ModeKeys.EVAL:
        return [tf.identity(spec.loss)] + list(spec.eval_metrics[1])
      with tf.control_dependencies([spec.train_op]):
        return [tf.identity(spec.loss)]

    found = tf.xla.experimental.compile(outputs, list(inputs.values())) if (
        compiled) else outputs(*inputs.values())
    session.run(tf.global_variables_initializer())
    for variable in tf.trainable_variables():
      rng = np.random.RandomState(sum(map(ord, variable.op.name)))
      value = 0.1 * rng.normal(size=variable.shape.as_list())
      variable.load(1 + value if "gamma" in variable.op.name else value,
                    session)
    feed = {tensor: features[key] for key, tensor in inputs.items()}
    return [session.run(found, feed) for _ in range(num_steps)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", [
    tf.estimator.ModeKeys.EVAL, tf.estimator.ModeKeys.PREDICT])
@pytest.mark.parametrize("name, layout", CASES)
def test_a_compiled_head_gives_the_same(name, layout, mode):
  plain, compiled = [run(name, LAYOUTS[layout], mode, way)[0]
                     for way in (False, True)]
  assert len(plain) == len(compiled)
  for one, other in zip(plain, compiled):
    np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name, layout", CASES)
def test_a_compiled_training_has_the_same_losses(name, layout, monkeypatch):
  # Compiled, other numbers are drawn.
  monkeypatch.setattr(modeling.AlbertModel, "dropout",
                      lambda model, x, *args, **kwargs: x)
  plain, compiled = [
      run(name, dict(LAYOUTS[layout], num_hidden_layers=1),
          tf.estimator.ModeKeys.TRAIN, way, num_steps=3,
          gradient_accumulation_steps=2) for way in (False, True)]
  np.testing.assert_allclose(compiled, plain, rtol=1e-4)
  assert plain[0] != plain[2]


def products(folder, *recompute):
  """Returns how many matrix products XLA leaves in a step."""
  subprocess.run(
      [sys.executable, __file__, *recompute], check=True, env=dict(
          os.environ, XLA_FLAGS="--xla_dump_to=%s" % folder))
  text = "".join(path.read_text() for path in folder.glob(
      "*after_optimizations.txt"))
  return len(re.findall(r" dot\(", text))


@pytest.mark.slow
def test_layers_are_computed_again(tmp_path):
  """XLA makes one of two equal computations, if nothing keeps them apart."""
  kept, again = [products(tmp_path / name, *args)
                 for name, args in (("kept", []), ("again", ["--again"]))]
  # Each of two layers has 8 products, 16 in its gradient, and the one of
  # queries and keys again; outside of them there are 17.
  assert kept == 2 * (8 + 16 + 1) + 17
  # What a layer's last product gives is not needed again.
  assert again - kept == 2 * 7


if __name__ == "__main__":
  run("pretraining", LAYOUTS["google_preln"], tf.estimator.ModeKeys.TRAIN, True,
      recompute_grads=sys.argv[1:] == ["--again"])
