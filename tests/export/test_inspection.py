"""--inspect: sizes, heads, mismatches with a configuration."""

import numpy as np
import pytest
import reference_albert as reference
from refusals import refused
from small_models import CONFIGS

from albert.export import inspection
from albert.files import checkpoints
from albert.model.config import AlbertConfig

TOP = {"output_weights": np.zeros([3, 24]), "output_bias": np.zeros([3])}
TABLE = "bert/embeddings/word_embeddings"


def describe(folder, weights, config=None):
  checkpoints.write_checkpoint(str(folder), "model.ckpt-7", weights)
  return inspection.describe(str(folder / "model.ckpt-7"), config)


@pytest.mark.parametrize(
  "name, lines",
  [
    (
      "google_groups",
      [
        "layout: google",
        "num_hidden_groups: 2",
        "inner_group_num: 2",
        "embedding_size: 16",
      ],
    ),
    ("albert_zh_preln", ["layout: albert_zh", "embedding_size: 16"]),
    (
      "bert",
      ["layout: albert_zh", "num_hidden_layers: 2", "embedding_size: 24"],
    ),
  ],
)
def test_what_weights_tell(name, lines, tmp_path):
  weights = reference.random_weights(CONFIGS[name])
  found = describe(tmp_path, weights)
  assert set(found) >= {
    "vocab_size: 50",
    "hidden_size: 24",
    "intermediate_size: 40",
    "max_position_embeddings: 9",
    "type_vocab_size: 2",
    "step: not saved",
    "on top: masked LM, sentence order",
    "optimizer slots: 0",
    "parameters: {:,}".format(sum(x.size for x in weights.values())),
    *lines,
  }
  # Depth is known only if layers share no weights.
  assert ("of layers" in found[-1]) == (name != "bert")


def test_what_does_not_fit_a_configuration(tmp_path):
  config = AlbertConfig.from_dict(CONFIGS["google"])
  encoder = inspection.encoder_variables(config)
  weights = dict(
    {name: np.zeros(encoder[name]) for name in encoder},
    **TOP,
    **{name + "/adam_m": x for name, x in TOP.items()},
    global_step=np.array(7),
  )
  found = describe(tmp_path, weights, config)
  assert found[-4:] == [
    "optimizer slots: 2",
    "step: 7",
    "configuration: 2 layers, 4 heads, postln",
    "does not fit the configuration: nothing",
  ]
  assert "on top: classifier of 3 label(s)" in found
  (more,) = [name for name in weights if name.endswith("LayerNorm_1/beta")]
  more = more.replace("group_0/inner", "group_1/inner")
  weights.update({TABLE: np.zeros([49, 16]), more: np.zeros([24])})
  assert describe(tmp_path, weights, config)[-1] == (
    "does not fit the configuration: %s ([49, 16], not [50, 16]), %s ([24], "
    "not nothing)" % (TABLE, more)
  )
  refused("model.ckpt-7 .* encoder", describe, tmp_path, TOP)
