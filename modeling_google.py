"""Google's variable layout of ALBERT; `modeling.py` has the computation."""

from typing import List

import tensorflow.compat.v1 as tf

# For programs that import these names from here.
from modeling import *  # noqa: F403
from modeling import AlbertConfig, AlbertModel, BlockScopes


class GoogleAlbertModel(AlbertModel):
  """Embeddings of width E, then one projection; layers in groups."""

  @staticmethod
  def layer_scopes(config: AlbertConfig, layer: int) -> List[BlockScopes]:
    group = layer * config.num_hidden_groups // config.num_hidden_layers
    blocks = []
    for inner in range(config.inner_group_num):
      root = "transformer/group_%d/inner_group_%d/" % (group, inner)
      blocks.append(
        BlockScopes(
          attention=root + "attention_1/self",
          attention_output=root + "attention_1/output/dense",
          attention_norm=root + "LayerNorm",
          intermediate=root + "ffn_1/intermediate/dense",
          output=root + "ffn_1/intermediate/output/dense",
          output_norm=root + "LayerNorm_1",
        )
      )
    return blocks

  def _embed(self, input_ids, token_type_ids):
    with tf.variable_scope("embeddings"):
      x = self._finish_embedding(
        self._look_up_words(input_ids), token_type_ids
      )  # [B*S, E]
    if self.config.embedding_width == self.config.hidden_size:
      return x
    return self._dense(
      x, self.config.hidden_size, scope="encoder/embedding_hidden_mapping_in"
    )

  def _masked_lm_width(self):
    return self.config.embedding_width

  def _to_embedding_width(self, x):
    return x
