"""Judges whether two sentences mean the same, with a fine-tuned model.

    python similarity.py 怎么办理银行卡 银行卡如何办理
    python similarity.py --input_file=pairs.tsv --output_file=scores.tsv

A score is the probability, between 0 and 1, that the two mean the same.
"""

import sys
import time

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags, logging

from train import heads, predictor
from util import checkpoints, errors, filesystem
from util.errors import InputError

FLAGS = flags.FLAGS


class BertSim:
  """Scores pairs of sentences; the graph is built once and stays warm.

  Args:
    model_dir: str, folder with a checkpoint, config.json, task.json and the
      vocabulary, such as the `best` folder of a fine-tuning run with the
      labels "0" (different) and "1" (same meaning).
    batch_size: int, pairs per call of the model.
  """

  def __init__(self, model_dir="output/lcqmc/best", batch_size=64):
    self._model_dir = model_dir
    self._batch_size = batch_size
    self._predictor = None

  def start_model(self):
    """Builds the graph and loads the weights.

    Raises:
      InputError: the folder has no such model.
    """
    if not checkpoints.latest_checkpoint(self._model_dir):
      raise InputError("%s has no checkpoint: fine-tune one with "
                       "run_classifier.py" % self._model_dir)
    model = predictor.load_folder(self._model_dir)
    labels = model.task.get("labels", [])
    if "1" not in labels:
      raise InputError("%s: the labels %s are not those of a similarity task"
                       % (self._model_dir, ", ".join(labels)))

    def scores(encoder):
      logits = heads.classifier_logits(encoder, len(labels))
      return tf.nn.softmax(logits)[:, labels.index("1")]

    self._predictor = predictor.Predictor(
        model.config, model.tokenizer, model.checkpoint, scores,
        model.task["max_seq_length"], self._batch_size)

  def predict_sentences(self, pairs):
    """Scores pairs.

    Args:
      pairs: iterable of (str, str), of any length.

    Returns:
      float32 array [number of pairs], in their order: the probability, between
      0 and 1, that the two mean the same.
    """
    if self._predictor is None:
      self.start_model()
    return self._predictor.predict(list(pairs))


def read_pairs(path):
  """Reads pairs separated by a tab.

  Args:
    path: str, or None for standard input.

  Returns:
    list of (str, str).

  Raises:
    InputError: a line has other than two sentences; the message names it.
  """
  pairs = []
  with filesystem.open_binary(path) if path else (
      sys.stdin.buffer) as reader:
    for number, line in enumerate(reader, 1):
      pair = line.decode("utf-8", "replace").rstrip("\r\n").split("\t")
      if len(pair) != 2:
        raise InputError("%s:%d: expected two sentences separated by a tab, "
                         "found %d" % (path or "standard input", number,
                                       len(pair)))
      pairs.append(tuple(pair))
  return pairs


def benchmark(similarity, pairs):
  """Logs the latency of pairs one by one, and the rate of all at once."""
  seconds = []
  for pair in pairs[:20] + pairs:
    start = time.time()
    similarity.predict_sentences([pair])
    seconds.append(time.time() - start)
  seconds = np.array(seconds[min(20, len(pairs)):])  # after a warm-up
  start = time.time()
  similarity.predict_sentences(pairs)
  logging.info(
      "one by one: p50 %.1f ms, p99 %.1f ms; all at once: %.0f pairs/s",
      1e3 * np.percentile(seconds, 50), 1e3 * np.percentile(seconds, 99),
      len(pairs) / (time.time() - start))


def define_flags():
  """Defines the script's flags; who imports BertSim has others."""
  flags.DEFINE_string("model_dir", "output/lcqmc/best",
                      "Folder with a checkpoint that run_classifier.py made.")
  flags.DEFINE_string("input_file", None,
                      "Pairs, one a line, separated by a tab; default, if no "
                      "two sentences are given: standard input.")
  flags.DEFINE_string("output_file", None,
                      "Score, judgement and pair, one a line, separated by "
                      "tabs; default: standard output.")
  flags.DEFINE_bool("benchmark", False,
                    "Score the pairs one by one and show how long each takes.")


def main(sentences):
  if len(sentences) == 2:
    pairs = [tuple(sentences)]
  elif sentences:
    raise InputError("give two sentences, or none and pairs by --input_file or "
                     "on standard input, one a line, separated by a tab")
  else:
    pairs = read_pairs(FLAGS.input_file)
  similarity = BertSim(FLAGS.model_dir)
  similarity.start_model()
  if FLAGS.benchmark:
    benchmark(similarity, pairs)
  scores = similarity.predict_sentences(pairs)
  text = "".join("%.4f\t%s\t%s\t%s\n" % (
      (score, "same" if score >= 0.5 else "different") + pair)
                 for score, pair in zip(scores, pairs))
  if FLAGS.output_file:
    filesystem.write_text(FLAGS.output_file, text)
  else:
    print(text, end="")


if __name__ == "__main__":
  define_flags()
  errors.run(main, takes_arguments=True)
