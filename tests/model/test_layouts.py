"""Which class a configuration asks for, and which variables its layers have."""

import pytest
import tensorflow.compat.v1 as tf
from small_models import albert_zh_config, bert_config, google_config

from albert.model import layouts
from albert.model.config import AlbertConfig
from modeling import AlbertModel
from modeling_google import GoogleAlbertModel

ZH = ["layer_shared/attention/self", "layer_shared/output/dense"]
GOOGLE = "transformer/group_%d/inner_group_%d/"


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


@pytest.mark.parametrize("sharing, last", [
    ("all", ZH), ("none", [name.replace("shared", "2") for name in ZH]),
    ("attention", [ZH[0], "layer_shared/output_2/dense"]),
    ("ffn", ["layer_shared/attention_2/self", ZH[1]])])
def test_what_the_third_layer_of_albert_zh_has_of_its_own(sharing, last):
  scopes, = AlbertModel.layer_scopes(AlbertConfig.from_dict(albert_zh_config(
      num_hidden_layers=3, parameter_sharing=sharing)), 2)
  assert [scopes.attention, scopes.output] == last
  # What belongs to them is shared as they are.
  assert scopes.attention_norm == last[0].replace("self", "output/LayerNorm")
  assert scopes.intermediate == last[1].replace("output", "intermediate")
  assert scopes.output_norm == last[1].replace("dense", "LayerNorm")


@pytest.mark.parametrize("layers, groups, expected", [
    (3, 1, [0, 0, 0]), (3, 2, [0, 0, 1]), (4, 2, [0, 0, 1, 1]),
    (3, 3, [0, 1, 2])])
def test_groups_of_google_follow_one_another(layers, groups, expected):
  config = AlbertConfig.from_dict(google_config(
      num_hidden_layers=layers, num_hidden_groups=groups, inner_group_num=2))
  for layer, group in enumerate(expected):
    assert [scopes.output for scopes in GoogleAlbertModel.layer_scopes(
        config, layer)] == [GOOGLE % (group, inner) + (
            "ffn_1/intermediate/output/dense") for inner in (0, 1)]
