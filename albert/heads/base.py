"""The interface of a head: one kind of task on top of the encoder.

To add a head, write a subclass and list it in `albert/heads/__init__.py`, where
training, export, conversion and prediction find it.
"""

from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

from albert.model_folder import ModelFolder
from modeling import AlbertModel


class HeadOutput(NamedTuple):
  """The output of a head for a batch or a slice of one.

  Attributes:
    predictions: name -> tensor [B, ...].
    losses: name -> float scalar, summed over the examples; empty without
      labels. The loss of a batch is the sum of `losses[name]` divided by
      `totals()[name]` of the head.
    metrics: name -> (values [M], weights [M]), shown as weighted means.
    each: float [B], loss of each example, summed up in `losses`; None if the
      loss is not per example.
  """

  predictions: Dict[str, tf.Tensor]
  losses: Dict[str, tf.Tensor] = {}
  metrics: Dict[str, Tuple[tf.Tensor, tf.Tensor]] = {}
  each: Optional[tf.Tensor] = None


def example_losses(
  losses: tf.Tensor,
  predictions: Dict[str, tf.Tensor],
  weights: Optional[tf.Tensor] = None,
  **metrics: tf.Tensor,
) -> HeadOutput:
  """Returns the HeadOutput of a task with one loss per example.

  Args:
    losses: float [B].
    predictions: see HeadOutput.
    weights: float [B], factors of the examples in the training loss, not in the
      metrics; None for all 1.
    **metrics: float [B], shown next to the loss.
  """
  shown = dict(metrics, example_loss=losses)
  each = losses if weights is None else losses * weights
  return HeadOutput(
    predictions,
    {"example_loss": tf.reduce_sum(each)},
    {name: (values, tf.ones_like(values)) for name, values in shown.items()},
    each,
  )


class Head:
  """A kind of task; an instance has the sizes of one model's head.

  Attributes:
    name: value of `head` in `task.json`.
    title: the name that --inspect shows; None for outputs of every encoder.
    marker: name of a variable in every checkpoint with this head.
    signature: name of the exported signature.
    pytorch_suffix: suffix of the class in transformers; None if there is none.
    pytorch_scopes: "albert" or "bert" -> variable scope -> name of the module
      in transformers.
    extra_inputs: names of additional inputs of `outputs`, int32 [B, P], besides
      input_ids, input_mask and segment_ids.
    onnx_outputs: names of the outputs in ONNX files; None for all.
    tensorflow_outputs: names of the outputs in SavedModel and TFLite; None for
      all.
    for_use: function that converts trained weights, by name, to those for
      inference; None if they are the same.
  """

  name: str = ""
  title: Optional[str] = None
  marker: str = ""
  signature: str = ""
  pytorch_suffix: Optional[str] = None
  pytorch_scopes: Dict[str, Dict[str, str]] = {"albert": {}, "bert": {}}
  extra_inputs: Tuple[str, ...] = ()
  onnx_outputs: Optional[Tuple[str, ...]] = None
  tensorflow_outputs: Optional[Tuple[str, ...]] = None
  for_use: Optional[
    Callable[[Dict[str, np.ndarray]], Dict[str, np.ndarray]]
  ] = None

  @classmethod
  def restore(
    cls, saved: Dict[str, List[int]], folder: ModelFolder
  ) -> Optional["Head"]:
    """Returns the head of a checkpoint; None if it has a different one.

    Args:
      saved: shapes of the checkpoint's variables by name.
      folder: the checkpoint's folder.

    Raises:
      InputError: the folder contradicts the variables.
    """
    del folder
    return cls() if cls.marker in saved else None

  @classmethod
  def describe(cls, saved: Dict[str, List[int]]) -> Optional[str]:
    """Returns the name that --inspect shows; None for none.

    Args:
      saved: shapes of the checkpoint's variables by name.
    """
    del saved
    return cls.title

  def positions(self, inputs: Dict[str, tf.Tensor]) -> Optional[tf.Tensor]:
    """Returns the positions in the last layer that `outputs` needs.

    Args:
      inputs: int tensors [B, ...] by name.

    Returns:
      int [B, T]; None for all positions.
    """
    del inputs
    return None

  def outputs(
    self, model: AlbertModel, inputs: Dict[str, tf.Tensor]
  ) -> Dict[str, tf.Tensor]:
    """Returns the outputs of an exported model, tensors [B, ...] by name.

    Args:
      model: the encoder.
      inputs: int tensors by name: input_ids, input_mask, segment_ids, [B, S],
        and the extra inputs.
    """
    raise NotImplementedError

  def apply(
    self, model: AlbertModel, features: Dict[str, tf.Tensor]
  ) -> HeadOutput:
    """Returns the HeadOutput of a batch.

    Args:
      model: the encoder.
      features: tensors by name; no labels for prediction.
    """
    raise NotImplementedError

  def totals(self, features: Dict[str, tf.Tensor]) -> Dict[str, tf.Tensor]:
    """Returns the divisors of the losses, float scalars by name.

    Args:
      features: tensors of the whole batch, of which `apply` may get a slice.
    """
    return {
      "example_loss": tf.cast(tf.shape(features["input_ids"])[0], tf.float32)
    }


def first_token(inputs: Dict[str, tf.Tensor]) -> tf.Tensor:
  """Returns the position of [CLS], int [B, 1]; see `Head.positions`."""
  return tf.zeros_like(inputs["input_ids"][:, :1])


def hits(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
  """Returns float [M], 1 where the highest of logits [M, L] is the label's."""
  return tf.cast(
    tf.equal(tf.argmax(logits, -1, output_type=tf.int32), labels), tf.float32
  )
