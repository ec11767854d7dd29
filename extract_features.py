r"""Computes vectors of texts or tokens.

    python extract_features.py --init_checkpoint=albert_tiny \
      --input_file=texts.txt --output_file=vectors.npy

One text per line; row i of the NumPy array, float32 [number of lines, H], is
the vector of line i.

    python extract_features.py --pooling=tokens --layers=-1,-2 \
      --init_checkpoint=albert_tiny --input_file=texts.txt \
      --output_file=tokens.jsonl

writes one object per line: its `text` and `tokens`, each with the `token`, its
character offsets `start` and `end`, exclusive, and `layers`, number -> vector.
"""

import dataclasses
import io
import json
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
from absl import logging

from albert import cli
from albert.errors import InputError
from albert.files import filesystem, tables
from albert.model_folder import FolderSettings, ModelSettings
from albert.predict import engines
from albert.predict.engine import Engine
from albert.settings import NEEDED, USUAL, from_flags, setting


@dataclasses.dataclass(frozen=True)
class VectorSettings:
  """The texts and their vectors."""

  input_file: str = setting(None, "Texts, one per line.", NEEDED, required=True)
  output_file: str = setting(
    None,
    "NumPy array to write; with --pooling=tokens, JSON lines.",
    NEEDED,
    required=True,
  )
  pooling: str = setting(
    None,
    "Mean over the tokens, including [CLS] and [SEP]; the vector of "
    "[CLS]; the pooled output; or a vector per token. Default: tokens with "
    "--layers, otherwise as trained, otherwise the mean.",
    USUAL,
    choices=["mean", "cls", "pooled", "tokens"],
  )
  layer: int = setting(
    None,
    "Layer: 1 for the first, 0 for the embeddings, -1 for the last. "
    "Default: as trained, otherwise the last.",
    USUAL,
  )
  layers: list = setting(
    None, "--pooling=tokens: several layers; default: that of --layer.", USUAL
  )
  max_seq_length: int = setting(
    None,
    "Maximum tokens of a text; longer ones are truncated. Default: "
    "that of the model.",
  )
  batch_size: int = setting(64, "Texts per batch.", least=1)


SETTINGS = (VectorSettings, ModelSettings, engines.EngineSettings)
DEFAULTS: Dict[str, Any] = dict(init_checkpoint=dict(required=True))


def token_vectors(
  model: Engine,
  texts: List[str],
  layers: List[int],
  max_seq_length: Optional[int] = None,
  batch_size: int = 64,
) -> List[Tuple[Any, ...]]:
  """Computes the vectors of tokens.

  Args:
    model: the model.
    texts: longer ones are truncated.
    layers: 1 for the first, 0 for the embeddings, -1 for the last.
    max_seq_length: None for that of the model.
    batch_size: texts per batch.

  Returns:
    tokens, (start, end) character offsets and vectors, float [layers, tokens,
    H], of each text.

  Raises:
    InputError: the model has no such layer.
  """
  names = [
    "layer_%d" % engines.number_of_layer(model, layer) for layer in layers
  ]
  predictor = model.predictor(
    "encode", *names, max_seq_length=max_seq_length, batch_size=batch_size
  )
  tokenizer, room = model.tokenizer, model.folder.length(max_seq_length) - 2
  found: List[Any] = [
    [part[:room] for part in tokenizer.tokenize_whole_with_offsets(text)]
    for text in texts
  ]
  features = []
  for tokens, _ in found:
    ids = [
      tokenizer.cls_id,
      *tokenizer.convert_tokens_to_ids(tokens),
      tokenizer.sep_id,
    ]
    features.append((ids, [0] * len(ids)))
  for number, values in predictor.run(features):
    tokens, spans = found[number]
    found[number] = tokens, spans, np.stack(values)[:, 1 : len(tokens) + 1]
  return found


def token_line(
  text: str,
  layers: List[int],
  tokens: List[str],
  spans: List[Tuple[int, int]],
  vectors: np.ndarray,
) -> str:
  """Returns the tokens of a text as JSON; see `token_vectors`."""
  return json.dumps(
    {
      "text": text,
      "tokens": [
        {
          "token": token,
          "start": start,
          "end": end,
          "layers": dict(zip(layers, np.round(rows.astype(float), 6).tolist())),
        }
        for token, (start, end), rows in zip(
          tokens, spans, np.swapaxes(vectors, 0, 1)
        )
      ],
    },
    ensure_ascii=False,
  )


def layers_of(args: VectorSettings) -> List[int]:
  """Returns the requested layers."""
  try:
    return [
      int(layer)
      for layer in args.layers or [-1 if args.layer is None else args.layer]
    ]
  except ValueError as error:
    raise InputError(
      "--layers=%s: expected numbers" % ",".join(args.layers)
    ) from error


def main() -> None:
  args = from_flags(VectorSettings)
  pooling = args.pooling or ("tokens" if args.layers else None)
  if args.layers and pooling != "tokens":
    raise InputError("--layers has no effect without --pooling=tokens")
  texts = tables.read_lines(args.input_file)
  if not texts:
    raise InputError("%s: has no texts" % args.input_file)
  model = engines.load(
    from_flags(engines.EngineSettings),
    from_flags(ModelSettings).init_checkpoint,
    from_flags(FolderSettings),
  )
  if pooling == "tokens":
    layers = layers_of(args)
    filesystem.write_lines(
      args.output_file,
      (
        token_line(text, layers, *found)
        for text, found in zip(
          texts,
          token_vectors(
            model, texts, layers, args.max_seq_length, args.batch_size
          ),
        )
      ),
    )
    logging.info(
      "%s: the vectors of the tokens of %d texts", args.output_file, len(texts)
    )
    return
  vectors = engines.sentence_vectors(
    model,
    pooling,
    args.layer,
    max_seq_length=args.max_seq_length,
    batch_size=args.batch_size,
  ).predict([(text, None) for text in texts])
  content = io.BytesIO()
  np.save(content, vectors)
  filesystem.write_bytes(args.output_file, content.getvalue())
  logging.info("%s: %d vectors of %d", args.output_file, *vectors.shape)


if __name__ == "__main__":
  cli.run(main, SETTINGS, **DEFAULTS)
