"""The model class of a configuration; its variables: test_modeling.py."""

import pytest
import tensorflow.compat.v1 as tf
from small_models import albert_zh_config, bert_config, google_config

import modeling
import modeling_google
from albert.model import layouts


@pytest.mark.parametrize(
  "config, cls",
  [
    (albert_zh_config(), modeling.AlbertModel),
    (bert_config(), modeling.AlbertModel),
    (google_config(), modeling_google.GoogleAlbertModel),
  ],
)
def test_class(config, cls):
  """By every name that older programs use."""
  config = modeling.BertConfig.from_dict(dict(config, num_hidden_layers=1))
  assert layouts.model_class(config) is cls
  for make in (
    layouts.create_model,
    modeling.AlbertModel,
    modeling.BertModel,
    modeling_google.AlbertModel,
  ):
    tf.reset_default_graph()
    made = make(
      config,
      is_training=False,
      input_ids=tf.zeros([2, 5], tf.int32),
      output_positions=tf.zeros([2, 3], tf.int32),
      scope="other/bert",
    )
    assert type(made) is cls and made.config is config
    assert made.get_sequence_output().shape.as_list() == [2, 3, 24]
    assert all(
      v.op.name.startswith("other/bert/") for v in tf.trainable_variables()
    )
