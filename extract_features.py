r"""Turns texts into vectors.

    python extract_features.py --init_checkpoint=albert_tiny \
      --input_file=texts.txt --output_file=vectors.npy

One text a line; row i of the NumPy array, float32 [number of lines, H], is the
vector of line i.
"""

import io

import numpy as np
from absl import flags, logging

import tokenization
from albert import errors
from albert.errors import InputError
from albert.files import filesystem
from albert.predict import engines
from albert.train import model_flags

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(tokenization)
flags.adopt_module_key_flags(model_flags)
flags.DEFINE_enum("engine", "tensorflow", engines.NAMES, engines.HELP)
flags.DEFINE_string("input_file", None, "Texts, one a line.")
flags.DEFINE_string("output_file", None, "NumPy array to make.")
flags.DEFINE_enum("pooling", "mean", ["mean", "cls", "pooled"],
                  "Mean of the tokens' vectors, [CLS] and [SEP] included; the "
                  "vector of [CLS]; or the model's pooled output.")
flags.DEFINE_integer("layer", -1,
                     "Which layer's vectors: 1 for the first; 0 for the "
                     "embeddings, -1 for the last.")
flags.DEFINE_integer("max_seq_length", 512,
                     "Maximum tokens of a text; longer ones are truncated.")


def main():
  errors.require_flags("init_checkpoint", "input_file", "output_file")
  texts = [(line, None) for line in filesystem.read_lines(FLAGS.input_file)]
  if not texts:
    raise InputError("%s: has no texts" % FLAGS.input_file)
  vectors = engines.load(
      FLAGS.engine, FLAGS.init_checkpoint, FLAGS).sentence_vectors(
          FLAGS.pooling, FLAGS.layer,
          max_seq_length=FLAGS.max_seq_length).predict(texts)
  content = io.BytesIO()
  np.save(content, vectors)
  filesystem.write_bytes(FLAGS.output_file, content.getvalue())
  logging.info("%s: %d vectors of %d", FLAGS.output_file, *vectors.shape)


if __name__ == "__main__":
  errors.run(main)
