"""Turns texts into vectors.

    python extract_features.py --init_checkpoint=albert_tiny \
      --input_file=texts.txt --output_file=vectors.npy

One text a line; row i of the NumPy array, float32 [number of lines, H], is the
vector of line i.
"""

import os

import numpy as np
from absl import flags, logging

import checkpoints
import errors
import heads
import predictor
import tokenization
import training
from errors import InputError

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(tokenization)
flags.declare_key_flag("bert_config_file")
flags.declare_key_flag("init_checkpoint")
flags.DEFINE_string("input_file", None, "Texts, one a line.")
flags.DEFINE_string("output_file", None, "NumPy array to make.")
flags.DEFINE_enum("pooling", "mean", ["mean", "cls", "pooled"],
                  "Mean of the tokens' vectors, [CLS] and [SEP] included; the "
                  "vector of [CLS]; or the model's pooled output.")
flags.DEFINE_integer("layer", -1,
                     "Which layer's vectors: 1 for the first; 0 for the "
                     "embeddings, -1 for the last.")
flags.DEFINE_integer("max_seq_length", 512,
                     "Most tokens of a text; longer ones are truncated.")


def main():
  errors.require_flags("init_checkpoint", "input_file", "output_file")
  training.take_files_beside_checkpoint(FLAGS)
  errors.require_flags("bert_config_file")
  tokenizer = tokenization.create_tokenizer(
      FLAGS.vocab_file, FLAGS.spm_model_file, FLAGS.do_lower_case)
  config = training.load_config(FLAGS.bert_config_file, None, tokenizer)
  with open(FLAGS.input_file, encoding="utf-8", errors="replace") as reader:
    texts = [(line.rstrip("\r\n"), None) for line in reader]
  if not texts:
    raise InputError("%s: has no texts" % FLAGS.input_file)
  vectors = predictor.Predictor(
      config, tokenizer, checkpoints.find_checkpoint(FLAGS.init_checkpoint),
      lambda model: heads.sentence_vectors(model, FLAGS.pooling, FLAGS.layer),
      FLAGS.max_seq_length).predict(texts)
  with open(FLAGS.output_file + ".tmp", "wb") as writer:
    np.save(writer, vectors)
  os.replace(FLAGS.output_file + ".tmp", FLAGS.output_file)
  logging.info("%s: %d vectors of %d", FLAGS.output_file, *vectors.shape)


if __name__ == "__main__":
  errors.run(main)
