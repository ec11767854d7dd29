"""Labels of tokens, by a softmax for each or by a CRF over all."""

import tensorflow.compat.v1 as tf

import modeling
from albert.heads import base, classifier, crf
from albert.tasks import bio


class TokenLabels(base.Head):
  """A label for each token between [CLS] and [SEP].

  Args:
    labels: list of str, L; see ner.labels_of.
    use_crf: bool.
  """
  name = "token_labels"
  marker = classifier.WEIGHTS
  signature = "label_tokens"
  pytorch_suffix = "ForTokenClassification"
  pytorch_scopes = classifier.PYTORCH_SCOPES
  # Loops cannot be converted to ONNX; `bio.best_sequence` finds the labels.
  onnx_outputs = ("scores", "transitions")
  tensorflow_outputs = ("labels",)

  def __init__(self, labels, use_crf):
    self._labels = labels
    self.use_crf = use_crf

  @classmethod
  def restore(cls, saved, folder):
    if folder.head != cls.name or not classifier.has_labels(saved, folder):
      return None
    return cls(folder.labels, crf.TRANSITIONS in saved)

  @classmethod
  def describe(cls, saved):
    return "CRF" if crf.TRANSITIONS in saved else None

  def logits(self, model):
    """Returns float [B, S, L]."""
    x = model.get_sequence_output()
    batch, length, hidden = modeling.get_shape_list(x, 3, "sequence output")
    num_labels = len(self._labels)
    return tf.reshape(
        classifier.label_logits(model, tf.reshape(x, [-1, hidden]), num_labels),
        [batch, length, num_labels])

  def outputs(self, model, inputs):
    logits = self.logits(model)
    mask = tf.cast(model.input_mask, tf.float32)
    # Neither the first one nor the last.
    inside = tf.pad(mask[:, 2:], [[0, 0], [1, 1]])
    # A loop cannot be converted to TFLite.
    scan = tf.scan if logits.shape.as_list()[1] is None else crf.unrolled_scan
    transitions = tf.convert_to_tensor(self._transitions())
    starts = tf.constant(bio.forbidden(self._labels)[1])
    return {"labels": crf.viterbi(logits, inside, transitions, starts, scan),
            "scores": logits, "transitions": transitions}

  def apply(self, model, features):
    logits = self.logits(model)
    if "label_ids" not in features:
      return base.HeadOutput({"logits": logits})
    label_ids = features["label_ids"]
    mask = tf.cast(features["label_mask"], tf.float32)
    if self.use_crf:
      totals = -crf.log_likelihood(logits, label_ids, mask, self._transitions())
    else:
      totals = tf.reduce_sum(
          mask * tf.nn.sparse_softmax_cross_entropy_with_logits(
              labels=label_ids, logits=logits), 1)
    losses = tf.div_no_nan(totals, tf.reduce_sum(mask, 1))  # [B]
    return base.example_losses(losses, {"logits": logits, "loss": losses})

  def _transitions(self):
    return crf.transition_scores(self._labels) if self.use_crf else (
        bio.forbidden(self._labels)[0])
