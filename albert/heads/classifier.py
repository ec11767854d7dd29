"""Labels of texts and pairs, and numbers; choices among answers."""

import numpy as np
import tensorflow.compat.v1 as tf

import modeling
from albert.errors import InputError
from albert.heads import base

WEIGHTS = "output_weights"  # and output_bias, as in BERT's classifiers
BIAS = "output_bias"
UNITS = "output_units"  # of numbers: mean and deviation
PYTORCH_SCOPES = {"albert": {"": "classifier"}, "bert": {"": "classifier"}}


def label_logits(model, x, num_labels):
  """Takes [M, H] to [M, L]; in training a tenth of it is dropped, as in BERT.

  Variables `output_weights` [L, H] and `output_bias` [L].
  """
  return modeling.row_logits(model.dropout(x, 0.1, salt=-2), num_labels,
                             model.config, scope="")


def has_labels(saved, folder):
  """Returns whether a checkpoint has scores of labels; see `Head.restore`.

  Raises:
    InputError: their number is not that of the folder's labels.
  """
  if WEIGHTS not in saved:
    return False
  if folder.labels and len(folder.labels) != saved[WEIGHTS][0]:
    raise InputError("%s has %d labels, the classifier %d" % (
        folder.where, len(folder.labels), saved[WEIGHTS][0]))
  return True


class Classifier(base.Head):
  """One label for each text.

  Args:
    num_labels: int, L.
    class_weights: list of float, of the labels in the training loss, or None.
    num_windows: int, W, where a text is so many sequences at most, whose logits
      are averaged; None where it is one.
  """
  name = "classifier"
  marker = WEIGHTS
  signature = "classify"
  pytorch_suffix = "ForSequenceClassification"
  pytorch_scopes = PYTORCH_SCOPES
  tensorflow_outputs = ("probabilities",)
  _squash = staticmethod(tf.nn.softmax)

  def __init__(self, num_labels, class_weights=None, num_windows=None):
    self.num_labels = num_labels
    self._class_weights = class_weights
    self._num_windows = num_windows

  @classmethod
  def restore(cls, saved, folder):
    if folder.head not in (None, cls.name) or not has_labels(saved, folder):
      return None
    num_labels = saved[cls.marker][0]
    return cls(num_labels) if num_labels > 1 else None

  @classmethod
  def describe(cls, saved):
    return "classifier of %d label(s)" % saved[cls.marker][0]

  def positions(self, inputs):
    return base.first_token(inputs)

  def logits(self, model):
    """Returns float [B, L]."""
    return label_logits(model, model.get_pooled_output(), self.num_labels)

  def outputs(self, model, inputs):
    logits = self.logits(model)
    return {"probabilities": self._squash(logits), "logits": logits}

  def apply(self, model, features):
    logits = self._mean_logits(model, features)
    predictions = {"logits": logits}
    if "label_ids" not in features:
      return base.HeadOutput(predictions)
    labels = features["label_ids"]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels, logits=logits)  # [B]
    weights = None if self._class_weights is None else tf.gather(
        tf.constant(self._class_weights, tf.float32), labels)
    return base.example_losses(losses, predictions, weights,
                               accuracy=base.hits(logits, labels))

  def _mean_logits(self, model, features):
    """Returns float [B, L], of texts of several windows their mean."""
    logits = self.logits(model)
    if self._num_windows:
      there = tf.sequence_mask(features["num_windows"], self._num_windows,
                               logits.dtype)  # [B, W]
      logits = tf.reduce_sum(
          tf.reshape(logits, [-1, self._num_windows, self.num_labels]) *
          tf.expand_dims(there, -1), 1) / tf.reduce_sum(there, 1, keepdims=True)
    return logits


class MultiLabel(Classifier):
  """Any number of labels per text; each label gets its own sigmoid.

  The loss of an example is the mean over the labels, as in transformers.
  """
  name = "multi_label"
  _squash = staticmethod(tf.nn.sigmoid)

  @classmethod
  def restore(cls, saved, folder):
    return cls(saved[cls.marker][0]) if folder.head == cls.name and (
        has_labels(saved, folder)) else None

  @classmethod
  def describe(cls, saved):
    return None  # the variables are a classifier's

  def apply(self, model, features):
    logits = self._mean_logits(model, features)
    predictions = {"logits": logits}
    if "label_ids" not in features:
      return base.HeadOutput(predictions)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(
        labels=tf.cast(features["label_ids"], tf.float32), logits=logits)
    return base.example_losses(tf.reduce_mean(losses, 1), predictions)


class Regression(base.Head):
  """A number for each text, by squared error.

  What is learnt are standardized numbers; their mean and standard deviation are
  a variable, `output_units` [2], and all that is given and returned is in the
  units of the data.

  Args:
    units: (float, float), mean and deviation to begin with. None for a model
      without that variable, whose weights give the units of the data.
  """
  name = "regression"
  marker = WEIGHTS
  signature = "classify"
  pytorch_suffix = "ForSequenceClassification"
  pytorch_scopes = PYTORCH_SCOPES

  def __init__(self, units=None):
    self._units = units

  @classmethod
  def restore(cls, saved, folder):
    is_one = saved.get(cls.marker, [0])[0] == 1
    return cls((0.0, 1.0) if UNITS in saved else None) if (
        is_one and folder.head in (None, cls.name)) else None

  @staticmethod
  def for_use(weights):
    """Returns weights and bias that give the units of the data by themselves.

    Args:
      weights: dict, variable name -> array.
    """
    if UNITS not in weights:
      return weights
    mean, deviation = weights[UNITS]
    return dict(weights, **{
        WEIGHTS: weights[WEIGHTS] * deviation,
        BIAS: weights[BIAS] * deviation + mean,
        UNITS: np.array([0.0, 1.0], np.float32)})

  def positions(self, inputs):
    return base.first_token(inputs)

  def outputs(self, model, inputs):
    return {"score": self._scores(model)}

  def apply(self, model, features):
    scores = self._scores(model)
    predictions = {"logits": tf.expand_dims(scores, 1)}
    if "label_ids" not in features:
      return base.HeadOutput(predictions)
    return base.example_losses(
        self.squared_errors(scores, features["label_ids"]), predictions)

  def squared_errors(self, scores, numbers):
    """Returns float [B], of standardized numbers, of two float [B]."""
    return tf.square((scores - numbers) / self._mean_and_deviation()[1])

  def _scores(self, model):
    mean, deviation = self._mean_and_deviation()
    return mean + deviation * tf.reshape(
        label_logits(model, model.get_pooled_output(), 1), [-1])

  def _mean_and_deviation(self):
    if self._units is None:
      return 0.0, 1.0
    with tf.variable_scope(tf.get_variable_scope(), reuse=tf.AUTO_REUSE):
      units = tf.get_variable(
          UNITS, [2], tf.float32, tf.constant_initializer(self._units),
          trainable=False, collections=[tf.GraphKeys.GLOBAL_VARIABLES,
                                        tf.GraphKeys.MODEL_VARIABLES])
    return units[0], units[1]


class Choices(base.Head):
  """One of several answers, each of which is a sequence of its own.

  Args:
    num_choices: int, C, most answers that a question has.
  """
  name = "choices"
  marker = WEIGHTS
  signature = "classify"
  pytorch_suffix = "ForMultipleChoice"
  pytorch_scopes = PYTORCH_SCOPES

  def __init__(self, num_choices):
    self._num_choices = num_choices

  @classmethod
  def restore(cls, saved, folder):
    is_one = saved.get(cls.marker, [0])[0] == 1
    return cls(1) if is_one and folder.head == cls.name else None

  def positions(self, inputs):
    return base.first_token(inputs)

  def outputs(self, model, inputs):
    return {"score": tf.reshape(
        label_logits(model, model.get_pooled_output(), 1), [-1])}

  def apply(self, model, features):
    logits = tf.reshape(label_logits(model, model.get_pooled_output(), 1),
                        [-1, self._num_choices])
    # An absent choice is never above one that is there.
    logits = tf.where(
        tf.sequence_mask(features["num_choices"], self._num_choices), logits,
        tf.fill(tf.shape(logits), -1e9))
    predictions = {"log_probabilities": tf.nn.log_softmax(logits)}
    if "label" not in features:
      return base.HeadOutput(predictions)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=features["label"], logits=logits)
    return base.example_losses(
        losses, predictions, accuracy=base.hits(logits, features["label"]))
