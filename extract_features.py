r"""Turns texts into vectors.

    python extract_features.py --init_checkpoint=albert_tiny \
      --input_file=texts.txt --output_file=vectors.npy

One text a line; row i of the NumPy array, float32 [number of lines, H], is the
vector of line i.
"""

import dataclasses
import io

import numpy as np
from absl import flags, logging

from albert import cli
from albert.errors import InputError
from albert.files import filesystem
from albert.model_folder import FolderSettings, ModelSettings
from albert.predict import engines
from albert.settings import NEEDED, USUAL, from_flags, setting


@dataclasses.dataclass(frozen=True)
class VectorSettings:
  """Which texts, which vectors."""
  input_file: str = setting(None, "Texts, one a line.", NEEDED)
  output_file: str = setting(None, "NumPy array to make.", NEEDED)
  pooling: str = setting(
      "mean", "Mean of the tokens' vectors, [CLS] and [SEP] included; the "
      "vector of [CLS]; or the model's pooled output.", USUAL,
      choices=["mean", "cls", "pooled"])
  layer: int = setting(
      -1, "Which layer: 1 for the first; 0 for the embeddings, -1 for "
      "the last.", USUAL)
  max_seq_length: int = setting(
      None, "Maximum tokens of a text; longer ones are truncated. Default: as "
      "the model was trained.")


SETTINGS = (VectorSettings, ModelSettings, engines.EngineSettings)


def main():
  cli.require_flags(flags.FLAGS, "init_checkpoint", "input_file", "output_file")
  own = from_flags(VectorSettings, flags.FLAGS)
  texts = [(line, None) for line in filesystem.read_lines(own.input_file)]
  if not texts:
    raise InputError("%s: has no texts" % own.input_file)
  model = engines.load(
      flags.FLAGS.engine, flags.FLAGS.init_checkpoint,
      from_flags(FolderSettings, flags.FLAGS))
  vectors = engines.sentence_vectors(
      model, own.pooling, own.layer,
      max_seq_length=own.max_seq_length).predict(texts)
  content = io.BytesIO()
  np.save(content, vectors)
  filesystem.write_bytes(own.output_file, content.getvalue())
  logging.info("%s: %d vectors of %d", own.output_file, *vectors.shape)


if __name__ == "__main__":
  cli.run(main, SETTINGS)
