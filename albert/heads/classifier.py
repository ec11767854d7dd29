"""Classification and regression of texts and pairs; multiple choice."""

from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

import modeling
from albert.errors import InputError
from albert.heads import base
from albert.model_folder import ModelFolder

WEIGHTS = "output_weights"  # and output_bias, as in BERT's classifiers
BIAS = "output_bias"
UNITS = "output_units"  # mean and standard deviation, for regression
PYTORCH_SCOPES = {"albert": {"": "classifier"}, "bert": {"": "classifier"}}


def label_logits(
  model: modeling.AlbertModel, x: tf.Tensor, num_labels: int
) -> tf.Tensor:
  """Scores [M, H] with a dense layer and dropout 0.1, as in BERT.

  Variables `output_weights` [L, H] and `output_bias` [L].

  Returns:
    float [M, L].
  """
  return modeling.row_logits(
    model.dropout(x, 0.1, salt=-2), num_labels, model.config, scope=""
  )


def has_labels(saved: Dict[str, List[int]], folder: ModelFolder) -> bool:
  """Returns whether a checkpoint has a classifier; see `Head.restore`.

  Raises:
    InputError: the classifier and the folder have different numbers of labels.
  """
  if WEIGHTS not in saved:
    return False
  if folder.labels and len(folder.labels) != saved[WEIGHTS][0]:
    raise InputError(
      "%s has %d labels, the classifier %d"
      % (folder.where, len(folder.labels), saved[WEIGHTS][0])
    )
  return True


class Classifier(base.Head):
  """One label per text.

  Args:
    num_labels: L.
    class_weights: factors of the labels in the training loss, or None.
    num_windows: W, maximum number of windows per text, whose logits are
      averaged; None if each text is one sequence.
  """

  name = "classifier"
  marker = WEIGHTS
  signature = "classify"
  pytorch_suffix = "ForSequenceClassification"
  pytorch_scopes = PYTORCH_SCOPES
  tensorflow_outputs = ("probabilities",)
  _squash = staticmethod(tf.nn.softmax)

  def __init__(
    self,
    num_labels: int,
    class_weights: Optional[Sequence[float]] = None,
    num_windows: Optional[int] = None,
  ):
    self.num_labels = num_labels
    self._class_weights = class_weights
    self._num_windows = num_windows

  @classmethod
  def restore(
    cls, saved: Dict[str, List[int]], folder: ModelFolder
  ) -> Optional[base.Head]:
    if folder.head not in (None, cls.name) or not has_labels(saved, folder):
      return None
    num_labels = saved[cls.marker][0]
    return cls(num_labels) if num_labels > 1 else None

  @classmethod
  def describe(cls, saved: Dict[str, List[int]]) -> Optional[str]:
    return "classifier of %d label(s)" % saved[cls.marker][0]

  def positions(self, inputs: Dict[str, tf.Tensor]) -> Optional[tf.Tensor]:
    return base.first_token(inputs)

  def logits(self, model: modeling.AlbertModel) -> tf.Tensor:
    """Returns float [B, L]."""
    return label_logits(model, model.get_pooled_output(), self.num_labels)

  def outputs(
    self, model: modeling.AlbertModel, inputs: Dict[str, tf.Tensor]
  ) -> Dict[str, tf.Tensor]:
    logits = self.logits(model)
    return {"probabilities": self._squash(logits), "logits": logits}

  def apply(
    self, model: modeling.AlbertModel, features: Dict[str, tf.Tensor]
  ) -> base.HeadOutput:
    logits = self._mean_logits(model, features)
    predictions = {"logits": logits}
    if "label_ids" not in features:
      return base.HeadOutput(predictions)
    labels = features["label_ids"]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=labels, logits=logits
    )  # [B]
    weights = None
    if self._class_weights is not None:
      weights = tf.gather(tf.constant(self._class_weights, tf.float32), labels)
    return base.example_losses(
      losses, predictions, weights, accuracy=base.hits(logits, labels)
    )

  def _mean_logits(self, model, features):
    """Returns float [B, L], averaged over windows."""
    logits = self.logits(model)
    if self._num_windows:
      there = tf.sequence_mask(
        features["num_windows"], self._num_windows, logits.dtype
      )  # [B, W]
      logits = tf.reduce_sum(
        tf.reshape(logits, [-1, self._num_windows, self.num_labels])
        * tf.expand_dims(there, -1),
        1,
      ) / tf.reduce_sum(there, 1, keepdims=True)
    return logits


class MultiLabel(Classifier):
  """Any number of labels per text; each label gets its own sigmoid.

  The loss of an example is the mean over the labels, as in transformers.
  `label_ids` are int [B, K], the indices of each text's labels, padded with L.
  """

  name = "multi_label"
  _squash = staticmethod(tf.nn.sigmoid)

  @classmethod
  def restore(
    cls, saved: Dict[str, List[int]], folder: ModelFolder
  ) -> Optional[base.Head]:
    if folder.head != cls.name or not has_labels(saved, folder):
      return None
    return cls(saved[cls.marker][0])

  @classmethod
  def describe(cls, saved: Dict[str, List[int]]) -> Optional[str]:
    return None  # the same variables as a Classifier

  def apply(
    self, model: modeling.AlbertModel, features: Dict[str, tf.Tensor]
  ) -> base.HeadOutput:
    logits = self._mean_logits(model, features)
    predictions = {"logits": logits}
    if "label_ids" not in features:
      return base.HeadOutput(predictions)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(
      labels=self._truth(features["label_ids"]), logits=logits
    )
    return base.example_losses(tf.reduce_mean(losses, 1), predictions)

  def _truth(self, label_ids):
    """Returns float [B, L], 1 for the labels of a text."""
    shape = modeling.get_shape_list(label_ids)
    rows = tf.broadcast_to(tf.expand_dims(tf.range(shape[0]), 1), shape)
    return tf.scatter_nd(
      tf.stack([rows, label_ids], 2),
      tf.ones_like(label_ids, tf.float32),
      [shape[0], self.num_labels + 1],
    )[:, :-1]


class Regression(base.Head):
  """One number per text, trained with squared error.

  The model learns standardized numbers. Their mean and standard deviation are
  in a variable, `output_units` [2]; inputs and outputs are in the data's units.

  Args:
    units: initial mean and standard deviation. None for a model without the
      variable, whose outputs are in the data's units.
  """

  name = "regression"
  marker = WEIGHTS
  signature = "classify"
  pytorch_suffix = "ForSequenceClassification"
  pytorch_scopes = PYTORCH_SCOPES

  def __init__(self, units: Optional[Tuple[float, float]] = None):
    self._units = units

  @classmethod
  def restore(
    cls, saved: Dict[str, List[int]], folder: ModelFolder
  ) -> Optional[base.Head]:
    is_one = saved.get(cls.marker, [0])[0] == 1
    if not is_one or folder.head not in (None, cls.name):
      return None
    return cls((0.0, 1.0) if UNITS in saved else None)

  @staticmethod
  def for_use(weights: Dict[str, np.ndarray]) -> Dict[str, np.ndarray]:
    """Folds the units into weights and bias; see `Head.for_use`."""
    if UNITS not in weights:
      return weights
    mean, deviation = weights[UNITS]
    return dict(
      weights,
      **{
        WEIGHTS: weights[WEIGHTS] * deviation,
        BIAS: weights[BIAS] * deviation + mean,
        UNITS: np.array([0.0, 1.0], np.float32),
      },
    )

  def positions(self, inputs: Dict[str, tf.Tensor]) -> Optional[tf.Tensor]:
    return base.first_token(inputs)

  def outputs(
    self, model: modeling.AlbertModel, inputs: Dict[str, tf.Tensor]
  ) -> Dict[str, tf.Tensor]:
    return {"score": self._scores(model)}

  def apply(
    self, model: modeling.AlbertModel, features: Dict[str, tf.Tensor]
  ) -> base.HeadOutput:
    scores = self._scores(model)
    predictions = {"logits": tf.expand_dims(scores, 1)}
    if "label_ids" not in features:
      return base.HeadOutput(predictions)
    return base.example_losses(
      self.squared_errors(scores, features["label_ids"]), predictions
    )

  def squared_errors(self, scores: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Returns the squared errors of two float [B], standardized, float [B]."""
    return tf.square((scores - numbers) / self._mean_and_deviation()[1])

  def _scores(self, model):
    mean, deviation = self._mean_and_deviation()
    return mean + deviation * tf.reshape(
      label_logits(model, model.get_pooled_output(), 1), [-1]
    )

  def _mean_and_deviation(self):
    if self._units is None:
      return 0.0, 1.0
    with tf.variable_scope(tf.get_variable_scope(), reuse=tf.AUTO_REUSE):
      units = tf.get_variable(
        UNITS,
        [2],
        tf.float32,
        tf.constant_initializer(self._units),
        trainable=False,
        collections=[
          tf.GraphKeys.GLOBAL_VARIABLES,
          tf.GraphKeys.MODEL_VARIABLES,
        ],
      )
    return units[0], units[1]


class Choices(base.Head):
  """Multiple choice; each choice of a question is one sequence.

  Args:
    num_choices: C, maximum number of choices per question.
  """

  name = "choices"
  marker = WEIGHTS
  signature = "classify"
  pytorch_suffix = "ForMultipleChoice"
  pytorch_scopes = PYTORCH_SCOPES

  def __init__(self, num_choices: int):
    self._num_choices = num_choices

  @classmethod
  def restore(
    cls, saved: Dict[str, List[int]], folder: ModelFolder
  ) -> Optional[base.Head]:
    is_one = saved.get(cls.marker, [0])[0] == 1
    return cls(1) if is_one and folder.head == cls.name else None

  def positions(self, inputs: Dict[str, tf.Tensor]) -> Optional[tf.Tensor]:
    return base.first_token(inputs)

  def outputs(
    self, model: modeling.AlbertModel, inputs: Dict[str, tf.Tensor]
  ) -> Dict[str, tf.Tensor]:
    return {
      "score": tf.reshape(
        label_logits(model, model.get_pooled_output(), 1), [-1]
      )
    }

  def apply(
    self, model: modeling.AlbertModel, features: Dict[str, tf.Tensor]
  ) -> base.HeadOutput:
    logits = tf.reshape(
      label_logits(model, model.get_pooled_output(), 1), [-1, self._num_choices]
    )
    # Padding never scores above a real choice.
    logits = tf.where(
      tf.sequence_mask(features["num_choices"], self._num_choices),
      logits,
      tf.fill(tf.shape(logits), -1e9),
    )
    predictions = {"log_probabilities": tf.nn.log_softmax(logits)}
    if "label" not in features:
      return base.HeadOutput(predictions)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=features["label"], logits=logits
    )
    return base.example_losses(
      losses, predictions, accuracy=base.hits(logits, features["label"])
    )
