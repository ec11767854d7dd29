"""The two pretraining tasks: masked LM and sentence order.

Tests: tests/train/test_step.py.
"""

from typing import Dict, Optional

import tensorflow.compat.v1 as tf

import modeling
from albert.heads import base


class MaskedLm(base.Head):
  """Scores every vocabulary entry at the masked positions."""

  name = "masked_lm"
  title = "masked LM"
  marker = modeling.MASKED_LM + "/output_bias"
  signature = "masked_lm"
  pytorch_suffix = "ForPreTraining"
  pytorch_scopes = {
    "albert": {
      modeling.MASKED_LM: "predictions",
      modeling.MASKED_LM + "/transform/dense": "predictions.dense",
      modeling.MASKED_LM + "/transform/LayerNorm": "predictions.LayerNorm",
    },
    "bert": {},
  }
  extra_inputs = ("masked_lm_positions",)

  def positions(self, inputs: Dict[str, tf.Tensor]) -> Optional[tf.Tensor]:
    return inputs["masked_lm_positions"]

  def outputs(
    self, model: modeling.AlbertModel, inputs: Dict[str, tf.Tensor]
  ) -> Dict[str, tf.Tensor]:
    batch, count = modeling.get_shape_list(
      inputs["masked_lm_positions"], 2, "masked_lm_positions"
    )
    return {
      "logits": tf.reshape(
        model.masked_lm_logits(), [batch, count, model.config.vocab_size]
      )
    }


class SentenceOrder(base.Head):
  """Whether two segments are in order or swapped."""

  name = "sentence_order"
  title = "sentence order"
  marker = modeling.SENTENCE_ORDER + "/output_bias"
  signature = "sentence_order"
  pytorch_suffix = "ForPreTraining"
  pytorch_scopes = {
    "albert": {modeling.SENTENCE_ORDER: "sop_classifier.classifier"},
    "bert": {},
  }

  def positions(self, inputs: Dict[str, tf.Tensor]) -> Optional[tf.Tensor]:
    return base.first_token(inputs)

  def outputs(
    self, model: modeling.AlbertModel, inputs: Dict[str, tf.Tensor]
  ) -> Dict[str, tf.Tensor]:
    return {"probabilities": tf.nn.softmax(model.sentence_order_logits())}


class Pretraining(base.Head):
  """Trains both tasks on the features of `records.pretraining_specs`.

  Args:
    sentence_loss_weight: factor of the sentence-order loss; with 0, variables
      that only this loss uses are not trained.
  """

  def __init__(self, sentence_loss_weight: float = 1.0):
    self._sentence_loss_weight = sentence_loss_weight

  def outputs(
    self, model: modeling.AlbertModel, inputs: Dict[str, tf.Tensor]
  ) -> Dict[str, tf.Tensor]:
    return {
      "sequence_output": model.get_sequence_output(),
      "pooled_output": model.get_pooled_output(),
    }

  def apply(
    self, model: modeling.AlbertModel, features: Dict[str, tf.Tensor]
  ) -> base.HeadOutput:
    predictions = self.outputs(model, features)
    if "masked_lm_ids" not in features:
      return base.HeadOutput(predictions)
    lm_logits = model.masked_lm_logits(features["masked_lm_positions"])
    lm_labels = tf.reshape(features["masked_lm_ids"], [-1])
    lm_weights = tf.reshape(features["masked_lm_weights"], [-1])
    lm_losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=lm_labels, logits=lm_logits
    )  # [B*P]
    order_logits = model.sentence_order_logits()
    order_labels = tf.reshape(features["next_sentence_labels"], [-1])
    order_losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=order_labels, logits=order_logits
    )  # [B]
    order_weights = tf.ones_like(order_losses)
    losses = {"masked_lm_loss": tf.reduce_sum(lm_losses * lm_weights)}
    if self._sentence_loss_weight:  # with gradients of 0, weights would decay
      losses["sentence_order_loss"] = (
        self._sentence_loss_weight * tf.reduce_sum(order_losses)
      )
    return base.HeadOutput(
      predictions,
      losses,
      {
        "masked_lm_loss": (lm_losses, lm_weights),
        "masked_lm_accuracy": (base.hits(lm_logits, lm_labels), lm_weights),
        "sentence_order_loss": (order_losses, order_weights),
        "sentence_order_accuracy": (
          base.hits(order_logits, order_labels),
          order_weights,
        ),
      },
    )

  def totals(self, features: Dict[str, tf.Tensor]) -> Dict[str, tf.Tensor]:
    """Returns the numbers of masked tokens and of examples."""
    return {
      "masked_lm_loss": tf.reduce_sum(features["masked_lm_weights"]),
      "sentence_order_loss": tf.cast(
        tf.size(features["next_sentence_labels"]), tf.float32
      ),
    }
