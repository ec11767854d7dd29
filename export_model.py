r"""Inspects, strips or exports a model: SavedModel, TFLite, ONNX.

    python export_model.py --inspect --init_checkpoint=albert_tiny
    python export_model.py --strip --init_checkpoint=output/lcqmc/best \
      --output_dir=slim
    python export_model.py --saved_model --init_checkpoint=output/lcqmc/best \
      --output_dir=served
    python export_model.py --tflite --init_checkpoint=output/lcqmc/best \
      --output_dir=phone
    python export_model.py --onnx --init_checkpoint=output/lcqmc/best \
      --output_dir=onnx

The variables determine the signatures of a model:
  classify         probabilities [B, L] of the labels; score [B] if L is 1
  label_tokens     labels [B, S], int32, indices in task.json's list: the most
                   likely sequence in which "I-" follows "B-" or "I-" of its
                   type, by softmax or CRF; 0 at [CLS], [SEP] and padding
  spans            from run_squad.py: start and end, [B, S], scores per token;
                   with its beam head starts, int32 [B, 5], ends [B, 5, 5],
                   start_scores and end_scores, their log-probabilities, and
                   null [B], higher if no answer is more likely
  encode           sequence_output [B, S, H], pooled_output [B, H]
  sentence_vector  vector [B, H], the mean over the tokens, or as trained by
                   run_sentence_vectors.py
  masked_lm        logits [B, P, V] at masked_lm_positions, int32 [B, P]
  sentence_order   probabilities [B, 2] of "in order" and "swapped"
All take input_ids, input_mask, segment_ids, int32 [B, S].
"""

import dataclasses
import os
import tempfile
from typing import Any, Dict, Optional

import numpy as np
from absl import logging

from albert import cli, heads, model_folder
from albert.errors import InputError
from albert.export import code, inspection, onnx_files, tensorflow_files
from albert.files import checkpoints, filesystem
from albert.heads import Regression
from albert.heads.base import Head
from albert.model.config import AlbertConfig
from albert.model_folder import ModelFolder, ModelSettings
from albert.settings import NEEDED, USUAL, from_flags, setting


@dataclasses.dataclass(frozen=True)
class ExportSettings:
  """What to write."""

  output_dir: str = setting(
    None, "Output folder.", NEEDED, required="not inspect"
  )
  inspect: bool = setting(
    False, "Print layout, sizes and missing parts.", NEEDED
  )
  strip: bool = setting(
    False, "Write the weights without optimizer state.", NEEDED
  )
  average: int = setting(
    1,
    "With --strip: number of checkpoints to average, up to and including "
    "--init_checkpoint.",
    least=1,
    demands="strip",
  )
  saved_model: bool = setting(
    False,
    "Write a SavedModel for any batch and length, with all signatures.",
    NEEDED,
  )
  tflite: bool = setting(
    False, "Write model.tflite, with one signature.", NEEDED
  )
  onnx: bool = setting(
    False,
    "Write SIGNATURE.onnx for any batch and length, one file per "
    "signature, for ONNX Runtime.",
    NEEDED,
  )
  int8: bool = setting(
    False,
    "TFLite and ONNX: 8-bit weights (dynamic range).",
    USUAL,
    demands="tflite or onnx",
  )
  standard_ops: bool = setting(
    False, "ONNX: use only standard operators, for any runtime.", needs="onnx"
  )
  with_code: bool = setting(
    False,
    "ONNX: add predict.py, serve.py and their code, so that the "
    "folder works without this repository.",
    USUAL,
    demands="onnx",
  )
  signature: str = setting(
    None,
    "TFLite: the signature; default: the first of these in the model. "
    "ONNX: only this one; default: all.",
    USUAL,
    choices=list(dict.fromkeys(head.signature for head in heads.ALL)),
    demands="tflite or onnx",
  )
  repeat_positions: int = setting(
    None,
    "With --strip: number of trained positions; later ones become "
    "copies of these, and learn faster.",
    least=1,
    demands="strip",
  )
  extend_positions: int = setting(
    None,
    "With --strip: new number of positions; the additional ones are "
    "copies of the trained ones.",
    least=1,
    demands="strip",
  )
  batch_size: int = setting(
    1, "TFLite: texts per call.", least=1, needs="tflite"
  )
  max_seq_length: int = setting(
    128, "TFLite: tokens per text.", least=1, needs="tflite"
  )
  max_predictions_per_seq: int = setting(
    1, "TFLite: positions to predict with masked_lm.", least=1, needs="tflite"
  )


SETTINGS = (ExportSettings, ModelSettings)
DEFAULTS: Dict[str, Any] = dict(init_checkpoint=dict(required=True))


def repeat_positions(
  weights: Dict[str, np.ndarray],
  length: Optional[int] = None,
  count: Optional[int] = None,
) -> None:
  """Replaces later positions with copies of the first ones.

  As in Longformer, arXiv:2004.05150, section 5.

  Args:
    weights: by name; `bert/embeddings/position_embeddings`, [P, E], is
      replaced.
    length: number of trained positions, at most P; defaults to P.
    count: new number of positions, at least P; defaults to P.

  Raises:
    InputError: `length` or `count` is out of range.
  """
  name = "bert/embeddings/position_embeddings"
  positions: Any = weights.get(name, ())
  length, count = length or len(positions), count or len(positions)
  if length > len(positions):
    raise InputError(
      "--repeat_positions=%d: the model has %d positions"
      % (length, len(positions))
    )
  if count < len(positions):
    raise InputError(
      "--extend_positions=%d: the model has %d positions"
      % (count, len(positions))
    )
  weights[name] = positions[np.arange(count) % length]


def choose_heads(
  on_top: Dict[str, Head], signature: Optional[str]
) -> Dict[str, Head]:
  """Returns the requested heads by signature; by default all."""
  if not signature:
    return on_top
  if signature not in on_top:
    raise InputError(
      "the model has no %s: --signature can be %s"
      % (signature, ", ".join(sorted(on_top)))
    )
  return {signature: on_top[signature]}


def export(args: ExportSettings, folder: ModelFolder, target: str) -> None:
  """Exports a model into the folder `target`."""
  checkpoint = folder.checkpoint
  on_top = choose_heads(
    heads.restore(checkpoints.saved_shapes(checkpoint), folder), args.signature
  )
  if args.saved_model:
    with tempfile.TemporaryDirectory() as temporary:
      folder.write(temporary)
      tensorflow_files.save_model(
        folder.config,
        on_top,
        checkpoint,
        target,
        [os.path.join(temporary, name) for name in folder.contents()],
      )
    return
  folder.write(target)
  if args.onnx:
    files = {
      name + ".onnx": onnx_files.convert(
        folder.config, head, checkpoint, args.int8, args.standard_ops
      )
      for name, head in on_top.items()
    }
    if args.with_code:
      files.update(code.files(folder.is_sentencepiece))
  else:
    files = {
      "model.tflite": tensorflow_files.to_tflite(
        folder.config,
        next(iter(on_top.values())),
        checkpoint,
        args.batch_size,
        args.max_seq_length,
        args.max_predictions_per_seq,
        args.int8,
      )
    }
  for name, content in files.items():
    path = os.path.join(target, name)
    filesystem.make_folder(os.path.dirname(path))
    filesystem.write_bytes(path, content)
    if name.endswith((".onnx", ".tflite")):
      logging.info("%s: %.1f MB", name, len(content) / 1e6)


def strip(
  args: ExportSettings,
  folder: Optional[ModelFolder],
  checkpoint: str,
  target: str,
) -> None:
  """Writes the weights and the files that describe the model."""
  weights = Regression.for_use(
    checkpoints.read_average(checkpoint, args.average)
    if args.average > 1
    else checkpoints.read_weights(checkpoint)
  )
  if args.repeat_positions or args.extend_positions:
    repeat_positions(weights, args.repeat_positions, args.extend_positions)
  if args.extend_positions:
    config = dict(
      folder.config.to_dict(), max_position_embeddings=args.extend_positions
    )
    folder = dataclasses.replace(folder, config=AlbertConfig.from_dict(config))
  if folder:
    folder.write(target)
  checkpoints.write_checkpoint(target, os.path.basename(checkpoint), weights)


def main() -> None:
  args = from_flags(ExportSettings)
  model = from_flags(ModelSettings)
  ways = ("inspect", "strip", "saved_model", "tflite", "onnx")
  if sum(getattr(args, name) for name in ways) != 1:
    raise InputError("give one of --" + ", --".join(ways))
  checkpoint = checkpoints.find_checkpoint(model.init_checkpoint)
  folder = None
  if model_folder.find_config(model.init_checkpoint, model.bert_config_file):
    folder = model_folder.load(model, model.init_checkpoint)
  description = inspection.describe(checkpoint, folder and folder.config)
  if args.inspect:
    print("\n".join(description))
    return
  if args.extend_positions or not args.strip:
    folder = folder or model_folder.load(model, model.init_checkpoint)
  if not args.strip:
    folder.create_tokenizer()  # fails early
    folder.check_length(args.max_seq_length if args.tflite else 1)
  if folder:
    checkpoints.check_fits(
      checkpoint, inspection.encoder_variables(folder.config)
    )
  with filesystem.whole_folder(args.output_dir) as target:
    if args.strip:
      strip(args, folder, checkpoint, target)
    else:
      export(args, folder, target)
  logging.info("wrote %s", args.output_dir)


if __name__ == "__main__":
  cli.run(main, SETTINGS, **DEFAULTS)
