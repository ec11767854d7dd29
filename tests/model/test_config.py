"""The configuration: round trip, defaults, errors."""

import json

import pytest
from small_models import (
  CONFIGS,
  albert_zh_config,
  bert_config,
  google_config,
)

from albert.model.config import AlbertConfig


def test_config_round_trip(tmp_path):
  for config in CONFIGS.values():
    parsed = AlbertConfig.from_dict(config)
    written = parsed.to_dict()
    for key in config:
      assert written[key] == config[key]
    assert AlbertConfig.from_dict(written).to_dict() == written
    path = str(tmp_path / "config.json")
    with open(path, "w") as f:
      json.dump(config, f)
    from_file = AlbertConfig.from_json_file(path)
    assert from_file.to_dict() == written
    for key, value in config.items():
      assert getattr(from_file, key) == value
    assert from_file.layout == parsed.layout


def test_config_defaults():
  factorized = AlbertConfig.from_dict(albert_zh_config())
  assert factorized.layout == "albert_zh"
  assert factorized.ln_type == "postln"
  assert factorized.parameter_sharing == "all"
  plain = bert_config()
  del plain["parameter_sharing"]
  assert AlbertConfig.from_dict(plain).parameter_sharing == "none"
  grouped = google_config()
  del grouped["inner_group_num"]
  grouped = AlbertConfig.from_dict(grouped)
  assert grouped.layout == "google"
  assert grouped.inner_group_num == 1


def test_legacy_keys_are_accepted():
  legacy = {
      "directionality": "bidi", "pooler_fc_size": 768,
      "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3,
      "pooler_size_per_head": 128, "pooler_type": "first_token_transform",
      "net_structure_type": 0, "gap_size": 0, "num_memory_blocks": 0,
      "down_scale_factor": 1, "layers_to_keep": []}
  for config in (albert_zh_config(), google_config()):
    AlbertConfig.from_dict(dict(config, **legacy))


@pytest.mark.parametrize("config,message", [
    (albert_zh_config(hiden_size=24), "hiden_size"),
    (google_config(num_hidden_group=1), "num_hidden_group"),
    (albert_zh_config(num_attention_heads=5), "num_attention_heads|heads"),
    (albert_zh_config(ln_type="pre"), "ln_type"),
    (albert_zh_config(parameter_sharing="some"), "parameter_sharing"),
    (albert_zh_config(hidden_act="swish"), "hidden_act"),
    (albert_zh_config(initializer_range=-0.02), "initializer_range"),
    (google_config(parameter_sharing="none"), "parameter_sharing"),
    (google_config(parameter_sharing="attention"), "parameter_sharing"),
])
def test_config_errors_name_the_key(config, message):
  with pytest.raises(ValueError, match=message):
    AlbertConfig.from_dict(config)


@pytest.mark.parametrize("key", [
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
    "intermediate_size"])
@pytest.mark.parametrize("make", [albert_zh_config, google_config])
def test_missing_key_is_named(make, key):
  config = make()
  del config[key]
  with pytest.raises(ValueError, match=key):
    AlbertConfig.from_dict(config)
