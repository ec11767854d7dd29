"""The model that a configuration asks for, and heads for fine-tuning."""

import tensorflow.compat.v1 as tf

import modeling
from modeling import AlbertModel
from modeling_google import GoogleAlbertModel


def create_model(config, *args, **kwargs):
  """Returns an AlbertModel in the layout of `config`; arguments as there."""
  model = (GoogleAlbertModel if config.layout == "google" else AlbertModel)
  return model(config, *args, **kwargs)


def classifier_logits(config, pooled_output, num_labels, is_training):
  """Scores each label; variables `output_weights` and `output_bias`.

  Args:
    config: AlbertConfig.
    pooled_output: float [B, H].
    num_labels: int, L.
    is_training: bool; in training a tenth of `pooled_output` is dropped, as
      in BERT's classifier.

  Returns:
    float [B, L].
  """
  if is_training:
    pooled_output = modeling.dropout(pooled_output, 0.1, salt=-2)
  weights = tf.get_variable("output_weights", [num_labels, config.hidden_size],
                            initializer=modeling.initializer(config))
  bias = tf.get_variable("output_bias", [num_labels],
                         initializer=tf.zeros_initializer())
  return tf.nn.bias_add(
      tf.matmul(pooled_output, weights, transpose_b=True), bias)
