"""The interface of a head: one kind of task on top of the encoder.

A new head is a class like this one and a line in `albert/heads/__init__.py`;
training, exports, conversion and prediction read it from there.
"""

from typing import Dict, NamedTuple, Optional, Tuple

import tensorflow.compat.v1 as tf


class HeadOutput(NamedTuple):
  """What a head makes of a model and a batch, or a slice of one.

  Attributes:
    predictions: name -> tensor [B, ...].
    losses: name -> float scalar, summed over the examples; empty where there
      are no labels. The loss of a batch is the sum of `losses[name]` divided by
      `totals()[name]` of the head.
    metrics: name -> (values [M], weights [M]); weighted means are shown.
    each: float [B], what `losses` is the sum of, where examples have a loss of
      their own.
  """
  predictions: Dict[str, tf.Tensor]
  losses: Dict[str, tf.Tensor] = {}
  metrics: Dict[str, Tuple[tf.Tensor, tf.Tensor]] = {}
  each: Optional[tf.Tensor] = None


def example_losses(losses, predictions, weights=None, **metrics):
  """Returns the HeadOutput of a task with a loss for each example.

  Args:
    losses: float [B].
    predictions: see HeadOutput.
    weights: float [B], of the examples in the loss, but not in what is shown;
      None where all weigh 1.
    **metrics: float [B], what to show besides the loss.
  """
  shown = dict(metrics, example_loss=losses)
  each = losses if weights is None else losses * weights
  return HeadOutput(
      predictions, {"example_loss": tf.reduce_sum(each)},
      {name: (values, tf.ones_like(values)) for name, values in shown.items()},
      each)


class Head:
  """A kind of task. An instance knows the sizes of one model's.

  Attributes:
    name: str, what `task.json` calls it.
    title: str, the name that --inspect shows; None for what any encoder has.
    marker: str, a variable that a checkpoint has if it has this head.
    signature: str, what exports call it.
    pytorch_suffix: str, of the name of the class in transformers; None where
      they have none.
    pytorch_scopes: dict, "albert" or "bert" -> dict, scope of variables ->
      what transformers call it.
    extra_inputs: names of the inputs of `outputs`, int32 [B, P], besides
      input_ids, input_mask and segment_ids.
    onnx_outputs: names of the outputs that ONNX files have; None for all.
    tensorflow_outputs: the same for SavedModel and TFLite.
  """
  name = None
  title = None
  marker = None
  signature = None
  pytorch_suffix = None
  pytorch_scopes = {"albert": {}, "bert": {}}
  extra_inputs = ()
  onnx_outputs = None
  tensorflow_outputs = None

  @classmethod
  def restore(cls, saved, folder):
    """Returns the head of a checkpoint, None if it has a different one.

    Args:
      saved: dict, variable name -> shape.
      folder: model_folder.ModelFolder.

    Raises:
      InputError: the folder contradicts the variables.
    """
    del folder
    return cls() if cls.marker in saved else None

  @classmethod
  def describe(cls, saved):
    """Returns the name that --inspect shows.

    Args:
      saved: dict, variable name -> shape.
    """
    del saved
    return cls.title

  # Function of a model's weights, name -> array, that returns them as they are
  # to be used; None where they stay as they are trained.
  for_use = None

  def positions(self, inputs):
    """Returns the tokens that `outputs` needs of the last layer, None for all.

    Args:
      inputs: dict, name -> int tensor [B, ...].

    Returns:
      int [B, T].
    """
    del inputs
    return None

  def outputs(self, model, inputs):
    """Returns what an exported model gives, a dict of name -> tensor [B, ...].

    Args:
      model: AlbertModel.
      inputs: dict, name -> int tensor: input_ids, input_mask, segment_ids,
        [B, S], and the extra inputs.
    """
    raise NotImplementedError

  def apply(self, model, features):
    """Returns the HeadOutput of a batch.

    Args:
      model: AlbertModel.
      features: dict, name -> tensor; without labels in prediction.
    """
    raise NotImplementedError

  def totals(self, features):
    """Returns what losses are divided by: name -> float scalar.

    Args:
      features: dict of the whole batch, where `apply` may get a slice of it.
    """
    return {"example_loss": tf.cast(tf.shape(features["input_ids"])[0],
                                    tf.float32)}


def first_token(inputs):
  """Returns the position of [CLS], int [B, 1]; see `Head.positions`."""
  return tf.zeros_like(inputs["input_ids"][:, :1])


def hits(logits, labels):
  """Returns float [M], 1 where the greatest of [M, L] is the label's."""
  return tf.cast(tf.equal(tf.argmax(logits, -1, output_type=tf.int32), labels),
                 tf.float32)
