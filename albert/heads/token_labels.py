"""Token labels, from a softmax per token or a CRF."""

from typing import Dict, List, Optional, Sequence, cast

import tensorflow.compat.v1 as tf

import modeling
from albert.heads import base, classifier, crf
from albert.model_folder import ModelFolder
from albert.tasks import bio


class TokenLabels(base.Head):
  """One label per token between [CLS] and [SEP].

  Args:
    labels: L labels; see `ner.labels_of`.
    use_crf: whether to train transitions.
  """

  name = "token_labels"
  marker = classifier.WEIGHTS
  signature = "label_tokens"
  pytorch_suffix = "ForTokenClassification"
  pytorch_scopes = classifier.PYTORCH_SCOPES
  # Loops cannot be converted to ONNX; `bio.best_sequence` decodes instead.
  onnx_outputs = ("scores", "transitions")
  tensorflow_outputs = ("labels",)

  def __init__(self, labels: Sequence[str], use_crf: bool):
    self._labels = labels
    self.use_crf = use_crf

  @classmethod
  def restore(
    cls, saved: Dict[str, List[int]], folder: ModelFolder
  ) -> Optional[base.Head]:
    if folder.head != cls.name or not classifier.has_labels(saved, folder):
      return None
    return cls(cast(List[str], folder.labels), crf.TRANSITIONS in saved)

  @classmethod
  def describe(cls, saved: Dict[str, List[int]]) -> Optional[str]:
    return "CRF" if crf.TRANSITIONS in saved else None

  def logits(self, model: modeling.AlbertModel) -> tf.Tensor:
    """Returns float [B, S, L]."""
    x = model.get_sequence_output()
    batch, length, hidden = modeling.get_shape_list(x, 3, "sequence output")
    num_labels = len(self._labels)
    return tf.reshape(
      classifier.label_logits(model, tf.reshape(x, [-1, hidden]), num_labels),
      [batch, length, num_labels],
    )

  def outputs(
    self, model: modeling.AlbertModel, inputs: Dict[str, tf.Tensor]
  ) -> Dict[str, tf.Tensor]:
    logits = self.logits(model)
    mask = tf.cast(model.input_mask, tf.float32)
    # Without [CLS] and the last [SEP].
    inside = tf.pad(mask[:, 2:], [[0, 0], [1, 1]])
    # Loops cannot be converted to TFLite, whose length is static.
    scan = tf.scan if logits.shape.as_list()[1] is None else crf.unrolled_scan
    transitions = tf.convert_to_tensor(self._transitions())
    starts = tf.constant(bio.forbidden(self._labels)[1])
    return {
      "labels": crf.viterbi(logits, inside, transitions, starts, scan),
      "scores": logits,
      "transitions": transitions,
    }

  def apply(
    self, model: modeling.AlbertModel, features: Dict[str, tf.Tensor]
  ) -> base.HeadOutput:
    logits = self.logits(model)
    if "label_ids" not in features:
      return base.HeadOutput({"logits": logits})
    label_ids = features["label_ids"]
    mask = tf.cast(features["label_mask"], tf.float32)
    if self.use_crf:
      totals = -crf.log_likelihood(logits, label_ids, mask, self._transitions())
    else:
      totals = tf.reduce_sum(
        mask
        * tf.nn.sparse_softmax_cross_entropy_with_logits(
          labels=label_ids, logits=logits
        ),
        1,
      )
    losses = tf.div_no_nan(totals, tf.reduce_sum(mask, 1))  # [B]
    return base.example_losses(losses, {"logits": logits, "loss": losses})

  def _transitions(self):
    if self.use_crf:
      return crf.transition_scores(self._labels)
    return bio.forbidden(self._labels)[0]
