"""A small model with all heads, exported to one file."""

import numpy as np
import reference_albert as reference
import small_models
import tensorflow.compat.v1 as tf

from albert import heads
from albert.files import checkpoints
from albert.heads import base, signatures
from albert.model.config import AlbertConfig

LABELS = ["O", "B-a", "I-a", "B-b", "I-b"]
HEADS = {
  heads.Classifier(5): ["probabilities"],
  heads.TokenLabels(LABELS, True): ["labels", "scores"],
  heads.Spans(): ["start", "end"],
  heads.BeamSpans(): ["starts", "start_scores", "ends", "end_scores", "null"],
  heads.Encode(): ["sequence_output", "pooled_output"],
  heads.SentenceOrder(): ["probabilities"],
  heads.SentenceVector(): ["vector", "mean_0", "cls_1"],
}
LENGTHS = np.array([16, 12, 10, 16, 11, 13])
_MASK = (np.arange(16) < LENGTHS[:, np.newaxis]).astype(np.int32)
FEED = {
  "input_ids": np.random.RandomState(1).randint(0, 50, [6, 16]),
  "input_mask": _MASK,
  "segment_ids": _MASK * (np.arange(16) > 2),
  "masked_lm_positions": np.array([[1, 3]] * 6),
}
FEED = {name: x.astype(np.int32) for name, x in FEED.items()}


class Everything(base.Head):
  """The outputs of all heads, named HEAD_OUTPUT."""

  signature = "everything"
  extra_inputs = heads.MaskedLm.extra_inputs

  def outputs(self, model, inputs):
    positions = inputs["masked_lm_positions"]
    found = {
      "masked_lm_logits": tf.reshape(
        model.masked_lm_logits(positions), [-1, 2, model.config.vocab_size]
      )
    }
    for head, names in HEADS.items():
      outputs = head.outputs(model, inputs)
      found.update(
        ("%s_%s" % (head.name, name), outputs[name]) for name in names
      )
    # As in TokenLabels: no loops in ONNX.
    self.onnx_outputs = [name for name in found if not name.endswith("labels")]
    return found


def write(folder, name):
  """Writes a checkpoint of CONFIGS[name]; returns (AlbertConfig, path)."""
  config = dict(small_models.CONFIGS[name], max_position_embeddings=16)
  hidden, rng = config["hidden_size"], np.random.RandomState(4)
  small_models.write_folder(
    folder,
    config,
    small_models.TOKENS,
    dict(
      reference.random_weights(config),
      **small_models.span_weights(hidden, "independent"),
      **small_models.span_weights(hidden, "beam"),
      **{
        "output_weights": 0.3 * rng.normal(size=[5, hidden]),
        "output_bias": rng.normal(size=[5]),
        "crf/transitions": rng.normal(size=[5, 5]),
      },
    ),
  )
  return AlbertConfig.from_dict(config), str(folder / "model.ckpt-7")


def in_session(config, checkpoint, head, feed):
  with tf.Graph().as_default():
    signature = signatures.build_signature(config, head)
    with checkpoints.restored_session(checkpoint) as session:
      return session.run(
        signature.outputs,
        {x: feed[name] for name, x in signature.inputs.items()},
      )


def assert_same(found, wanted):
  assert found
  for name, x in found.items():
    np.testing.assert_allclose(x, wanted[name], 0, 1e-5, err_msg=name)


def assert_8_bits(found, wanted):
  """Asserts that int8 outputs are close, but not equal, to float outputs."""
  name = "classifier_probabilities"
  assert 0 < np.abs(found[name] - wanted[name]).mean() < 0.02
  assert (
    np.corrcoef(*(x["masked_lm_logits"].ravel() for x in (found, wanted)))[0, 1]
    > 0.98
  )
