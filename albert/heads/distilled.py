"""A head that learns from labels and the logits of a teacher.

Hinton et al., "Distilling the Knowledge in a Neural Network"
(arXiv:1503.02531): (1 - w) CE + w T^2 KL; squared errors for regression.
"""

from typing import Dict, Union

import tensorflow.compat.v1 as tf

from albert.heads import base
from albert.heads.classifier import Classifier, MultiLabel, Regression
from albert.heads.token_labels import TokenLabels
from modeling import AlbertModel

LOGITS = "teacher_logits"
IS_LABELLED = "is_labelled"
TOKENS = "teacher_mask"  # tokens that the teacher also has


def softmax_divergence(
  logits: tf.Tensor, teacher: tf.Tensor, temperature: float
) -> tf.Tensor:
  """Returns T^2 KL(teacher || student) over L exclusive labels.

  The factor makes the scale of the gradient independent of T.

  Args:
    logits, teacher: float [..., L].
    temperature: T, the divisor of both.

  Returns:
    float [...].
  """
  ours = tf.nn.log_softmax(logits / temperature)
  theirs = tf.nn.log_softmax(teacher / temperature)
  return temperature**2 * tf.reduce_sum(tf.exp(theirs) * (theirs - ours), -1)


def sigmoid_divergence(
  logits: tf.Tensor, teacher: tf.Tensor, temperature: float
) -> tf.Tensor:
  """The same for independent sigmoid labels, averaged over labels."""
  ours, theirs = logits / temperature, teacher / temperature
  there = tf.nn.sigmoid(theirs)
  each = there * (tf.nn.softplus(-ours) - tf.nn.softplus(-theirs)) + (
    1.0 - there
  ) * (tf.nn.softplus(ours) - tf.nn.softplus(theirs))
  return temperature**2 * tf.reduce_mean(each, -1)


_DIVERGENCES = {
  Classifier.name: softmax_divergence,
  MultiLabel.name: sigmoid_divergence,
  TokenLabels.name: softmax_divergence,
}


class Distilled(base.Head):
  """Trains a head on `teacher_logits`, if the features have them.

  The loss of an example is (1 - w) times the head's plus w times the
  divergence; only the divergence if `is_labelled` is 0. For token labels, the
  divergence is summed over tokens in both `label_mask` and `teacher_mask` and
  divided by the number in `label_mask`; a CRF's token scores are compared like
  those of a softmax.

  Args:
    head: the student's head.
    weight: w, in (0, 1].
    temperature: T.
  """

  def __init__(
    self,
    head: Union[Classifier, Regression, TokenLabels],
    weight: float,
    temperature: float,
  ):
    self._head = head
    self._weight = weight
    self._temperature = temperature
    self.name = head.name
    self.for_use = head.for_use

  def apply(
    self, model: AlbertModel, features: Dict[str, tf.Tensor]
  ) -> base.HeadOutput:
    output = self._head.apply(model, features)
    if LOGITS not in features:
      return output
    divergence = self._divergence(output.predictions["logits"], features)
    labelled = tf.cast(features[IS_LABELLED], tf.float32)  # [B]
    own = labelled * (1.0 - self._weight)
    mixed = own * output.each + (1.0 - own) * divergence
    shown = {
      name: (values, weights * labelled)
      for name, (values, weights) in output.metrics.items()
    }
    return base.HeadOutput(
      output.predictions,
      {"example_loss": tf.reduce_sum(mixed)},
      dict(shown, teacher_loss=(divergence, tf.ones_like(divergence))),
      mixed,
    )

  def _divergence(self, logits, features):
    """Returns float [B]."""
    teacher = features[LOGITS]
    if self.name == Regression.name:  # no logits, so no temperature
      return self._head.squared_errors(logits[:, 0], teacher[:, 0])
    diverge = _DIVERGENCES[self.name]
    if self.name != TokenLabels.name:
      return diverge(logits, teacher, self._temperature)
    each = diverge(
      logits,
      tf.transpose(teacher, [0, 2, 1]),  # from [B, L, S]
      self._temperature,
    )
    mask = tf.cast(features["label_mask"], tf.float32)
    known = mask * tf.cast(features[TOKENS], tf.float32)
    return tf.div_no_nan(tf.reduce_sum(known * each, 1), tf.reduce_sum(mask, 1))
