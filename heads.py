"""The model that a configuration asks for, and heads for fine-tuning."""

import tensorflow.compat.v1 as tf

import modeling
from modeling import AlbertModel
from modeling_google import GoogleAlbertModel


def create_model(config, *args, **kwargs):
  """Returns an AlbertModel in the layout of `config`; arguments as there."""
  model = (GoogleAlbertModel if config.layout == "google" else AlbertModel)
  return model(config, *args, **kwargs)


def classifier_logits(model, num_labels):
  """Scores each label; variables `output_weights` and `output_bias`.

  In training a tenth of the pooled output is dropped, as in BERT's classifier.

  Args:
    model: AlbertModel.
    num_labels: int, L.

  Returns:
    float [B, L].
  """
  pooled_output = model.dropout(model.get_pooled_output(), 0.1, salt=-2)
  weights = tf.get_variable(
      "output_weights", [num_labels, model.config.hidden_size],
      initializer=modeling.initializer(model.config))
  bias = tf.get_variable("output_bias", [num_labels],
                         initializer=tf.zeros_initializer())
  return tf.nn.bias_add(
      tf.matmul(pooled_output, weights, transpose_b=True), bias)
