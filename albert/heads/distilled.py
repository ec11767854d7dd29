"""A head that learns from labels and from a teacher's logits.

Hinton et al., "Distilling the Knowledge in a Neural Network"
(arXiv:1503.02531): (1 - w) CE + w T^2 KL, for numbers squared errors instead.
"""

import tensorflow.compat.v1 as tf

from albert.heads import base
from albert.heads.classifier import Classifier, MultiLabel, Regression
from albert.heads.token_labels import TokenLabels

LOGITS = "teacher_logits"
IS_LABELLED = "is_labelled"
TOKENS = "teacher_mask"  # of token labels: those that the teacher has too


def softmax_divergence(logits, teacher, temperature):
  """Returns T^2 KL(teacher || student) of one of L labels.

  The factor keeps the gradient as large as that of a label, whatever T.

  Args:
    logits, teacher: float [..., L].
    temperature: float, T, which both are divided by.

  Returns:
    float [...].
  """
  ours = tf.nn.log_softmax(logits / temperature)
  theirs = tf.nn.log_softmax(teacher / temperature)
  return temperature**2 * tf.reduce_sum(tf.exp(theirs) * (theirs - ours), -1)


def sigmoid_divergence(logits, teacher, temperature):
  """The same where each label is there or not: the mean over the labels."""
  ours, theirs = logits / temperature, teacher / temperature
  there = tf.nn.sigmoid(theirs)
  each = there * (tf.nn.softplus(-ours) - tf.nn.softplus(-theirs)) + (
      1.0 - there) * (tf.nn.softplus(ours) - tf.nn.softplus(theirs))
  return temperature**2 * tf.reduce_mean(each, -1)


_DIVERGENCES = {Classifier.name: softmax_divergence,
                MultiLabel.name: sigmoid_divergence,
                TokenLabels.name: softmax_divergence}


class Distilled(base.Head):
  """Trains a head on `teacher_logits`, where the features have them.

  The loss of an example is (1 - w) of the head's own and w of the divergence;
  where `is_labelled` is 0, the divergence alone. The divergence of a sequence
  of tokens is summed over those of `label_mask` and `teacher_mask` and divided
  by the number of the first; a CRF's scores of tokens are compared as those of
  a softmax are.

  Args:
    head: Classifier, MultiLabel, Regression or TokenLabels.
    weight: float, w, above 0, at most 1.
    temperature: float, T.
  """

  def __init__(self, head, weight, temperature):
    self._head = head
    self._weight = weight
    self._temperature = temperature
    self.name = head.name
    self.for_use = head.for_use

  def apply(self, model, features):
    output = self._head.apply(model, features)
    if LOGITS not in features:
      return output
    divergence = self._divergence(output.predictions["logits"], features)
    labelled = tf.cast(features[IS_LABELLED], tf.float32)  # [B]
    own = labelled * (1.0 - self._weight)
    mixed = own * output.each + (1.0 - own) * divergence
    shown = {name: (values, weights * labelled)
             for name, (values, weights) in output.metrics.items()}
    return base.HeadOutput(
        output.predictions, {"example_loss": tf.reduce_sum(mixed)},
        dict(shown, teacher_loss=(divergence, tf.ones_like(divergence))), mixed)

  def _divergence(self, logits, features):
    """Returns float [B]."""
    teacher = features[LOGITS]
    if self.name == Regression.name:  # numbers have no temperature
      return self._head.squared_errors(logits[:, 0], teacher[:, 0])
    diverge = _DIVERGENCES[self.name]
    if self.name != TokenLabels.name:
      return diverge(logits, teacher, self._temperature)
    each = diverge(logits, tf.transpose(teacher, [0, 2, 1]),  # from [B, L, S]
                   self._temperature)
    mask = tf.cast(features["label_mask"], tf.float32)
    known = mask * tf.cast(features[TOKENS], tf.float32)
    return tf.div_no_nan(tf.reduce_sum(known * each, 1), tf.reduce_sum(mask, 1))
