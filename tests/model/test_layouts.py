"""Which class a configuration asks for; its variables: test_modeling.py."""

import pytest
import tensorflow.compat.v1 as tf
from small_models import albert_zh_config, bert_config, google_config

from albert.model import layouts
from albert.model.config import AlbertConfig
from modeling import AlbertModel
from modeling_google import GoogleAlbertModel


@pytest.mark.parametrize("config, cls", [
    (albert_zh_config(), AlbertModel), (bert_config(), AlbertModel),
    (google_config(), GoogleAlbertModel)])
def test_class(config, cls):
  config = AlbertConfig.from_dict(dict(config, num_hidden_layers=1))
  assert layouts.model_class(config) is cls
  model = layouts.create_model(config, False, tf.zeros([2, 5], tf.int32),
                               output_positions=tf.zeros([2, 3], tf.int32))
  assert type(model) is cls and model.config is config
  assert model.get_sequence_output().shape.as_list() == [2, 3, 24]
