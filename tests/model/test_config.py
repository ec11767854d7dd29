"""AlbertConfig: round trip, defaults, errors."""

import pytest
from refusals import refused
from small_models import CONFIGS, albert_zh_config, bert_config, google_config
from writing import write

from albert.model.config import AlbertConfig


def test_there_and_back(tmp_path):
  for config in CONFIGS.values():
    parsed = AlbertConfig.from_json_file(write(tmp_path, "config.json", config))
    written = parsed.to_dict()
    assert config.items() <= written.items()
    assert AlbertConfig.from_dict(written).to_dict() == written
    assert {key: getattr(parsed, key) for key in config} == config


@pytest.mark.parametrize(
  "config, without, expected",
  [
    (
      albert_zh_config(),
      "hidden_dropout_prob",
      {
        "layout": "albert_zh",
        "ln_type": "postln",
        "embedding_width": 16,
        "parameter_sharing": "all",
        "hidden_dropout_prob": 0.0,
      },
    ),
    (
      bert_config(),
      "parameter_sharing",
      {"parameter_sharing": "none", "embedding_width": 24},
    ),
    (
      google_config(),
      "inner_group_num",
      {"layout": "google", "inner_group_num": 1, "parameter_sharing": None},
    ),
  ],
)
def test_defaults(config, without, expected):
  del config[without]
  parsed = AlbertConfig.from_dict(config)
  assert {key: getattr(parsed, key) for key in expected} == expected


def test_keys_of_others_are_understood(tmp_path):
  others = [
    "directionality",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
    "net_structure_type",
    "gap_size",
    "num_memory_blocks",
    "down_scale_factor",
    "layers_to_keep",
  ]
  AlbertConfig.from_dict(dict(google_config(), **dict.fromkeys(others, 0)))
  for share_type, sharing in (("ffn", "ffn"), ("all", "all"), (None, "none")):
    config = dict(albert_zh_config(), share_type=share_type)
    config.pop("parameter_sharing", None)
    assert AlbertConfig.from_dict(config).parameter_sharing == sharing
  path = write(tmp_path, "config.json", dict(google_config(), model_type=""))
  refused(
    "convert_to_pytorch.py --pytorch_dir=.*%s --" % tmp_path,
    AlbertConfig.from_json_file,
    path,
  )


@pytest.mark.parametrize(
  "make, key, value",
  [
    *(
      (albert_zh_config, *case)
      for case in (
        ("hiden_size", 24),
        ("num_attention_heads", 5),
        ("hidden_size", 0),
        ("embedding_size", 1.5),
        ("hidden_dropout_prob", 1),
        ("inner_group_num", 1),
        ("ln_type", "pre"),
        ("hidden_act", "swish"),
        ("parameter_sharing", "some"),
        ("initializer_range", -0.02),
      )
    ),
    *(
      (google_config, *case)
      for case in (
        ("num_hidden_group", 1),
        ("num_hidden_groups", 3),
        ("parameter_sharing", "none"),
        ("parameter_sharing", "attention"),
      )
    ),
    *(
      (google_config, key, None)
      for key in (
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "hidden_act",
        "num_attention_heads",
        "intermediate_size",
      )
    ),
  ],
)
def test_errors_name_the_key(make, key, value):
  config = make(**{key: value})
  if value is None:
    del config[key]
  refused(key, AlbertConfig.from_dict, config)
