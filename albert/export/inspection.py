"""Describes the content of a checkpoint."""

import re
from typing import Dict, List, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from albert import heads
from albert.errors import InputError
from albert.files import checkpoints
from albert.model.config import AlbertConfig
from albert.model.layouts import create_model


def describe(checkpoint: str, config: Optional[AlbertConfig]) -> List[str]:
  """Returns a description of a checkpoint, a list of lines.

  Args:
    checkpoint: path of the checkpoint.
    config: configuration to compare with the checkpoint, or None.

  Raises:
    InputError: the checkpoint is not an ALBERT.
  """
  saved = checkpoints.saved_shapes(checkpoint)
  everything = dict(tf.train.list_variables(checkpoint))

  def shape(*names):
    return next((saved[name] for name in names if name in saved), None)

  words = shape("bert/embeddings/word_embeddings")
  pooler = shape("bert/pooler/dense/kernel")
  matches = [
    re.match("bert/encoder/(transformer|layer_shared|layer_[0-9]+)/", name)
    for name in saved
  ]
  layers = {match.group(1) for match in matches if match}
  if not (words and pooler and layers):
    raise InputError(
      "%s lacks word embeddings, encoder or pooler of an "
      "ALBERT or BERT" % checkpoint
    )
  sizes = [
    ("vocab_size", words[0]),
    ("embedding_size", words[1]),
    ("hidden_size", pooler[0]),
  ]
  for key, name in (
    ("max_position_embeddings", "position_embeddings"),
    ("type_vocab_size", "token_type_embeddings"),
  ):
    sizes.append((key, (shape("bert/embeddings/" + name) or ["?"])[0]))
  sizes += [
    ("intermediate_size", saved[name][1])
    for name in sorted(saved)
    if re.search("intermediate(_[0-9]+)?/dense/kernel$", name)
  ][:1]
  google = "transformer" in layers
  if google:
    sizes += [
      (
        key,
        1
        + max(
          int(number)
          for name in saved
          for number in re.findall("/%s_([0-9]+)/" % part, name)
        ),
      )
      for key, part in (
        ("num_hidden_groups", "group"),
        ("inner_group_num", "inner_group"),
      )
    ]
  elif "layer_shared" not in layers:
    sizes.append(("num_hidden_layers", len(layers)))
  lines = [
    "checkpoint: %s" % checkpoint,
    "layout: %s" % ("google" if google else "albert_zh"),
  ]
  lines += ["%s: %s" % item for item in sizes]
  tops = [head.describe(saved) for head in heads.ALL if head.marker in saved]
  lines.append(
    "on top: %s" % (", ".join(dict.fromkeys(filter(None, tops))) or "nothing")
  )
  lines.append(
    "parameters: %s"
    % "{:,}".format(sum(int(np.prod(s)) for s in saved.values()))
  )
  slots = len([name for name in everything if re.search("/adam_[mv]$", name)])
  lines.append("optimizer slots: %d" % slots)
  with checkpoints.reading(checkpoint):
    lines.append(
      "step: %s"
      % (
        tf.train.load_checkpoint(checkpoint).get_tensor("global_step")
        if "global_step" in everything
        else "not saved"
      )
    )
  if config:
    lines += _compare(saved, config)
  else:
    lines.append(
      "no configuration next to it: weights do not determine the "
      "number of heads%s" % ("" if len(layers) > 1 else " and of layers")
    )
  return lines


def encoder_variables(config: AlbertConfig) -> Dict[str, List[int]]:
  """Returns the shapes of an encoder's variables by name."""
  with tf.Graph().as_default():
    create_model(config, False, tf.placeholder(tf.int32, [None, None]))
    return {v.op.name: v.shape.as_list() for v in tf.global_variables()}


def _compare(saved, config):
  """Returns lines on a configuration and its differences from a checkpoint."""
  wanted = encoder_variables(config)
  lines = [
    "configuration: %d layers, %d heads, %s"
    % (config.num_hidden_layers, config.num_attention_heads, config.ln_type)
  ]
  bad = [
    "%s (%s, not %s)" % misfit for misfit in checkpoints.misfits(saved, wanted)
  ]
  return lines + [
    "does not fit the configuration: %s" % (", ".join(bad) or "nothing")
  ]
