"""Judges whether two sentences mean the same, with a fine-tuned model."""

import json
import os
import sys

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags

import errors
import heads
import modeling
import outputs
import tokenization
from errors import InputError

FLAGS = flags.FLAGS

flags.DEFINE_string("model_dir", "output/lcqmc/best",
                    "Folder with a checkpoint that run_classifier.py made.")


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
    self._session = None

  def start_model(self):
    """Builds the graph and loads the weights.

    Raises:
      InputError: the folder has no such model.
    """
    checkpoint = outputs.latest_checkpoint(self._model_dir)
    if not checkpoint:
      raise InputError("%s has no checkpoint: fine-tune one with "
                       "run_classifier_lcqmc.sh" % self._model_dir)
    with open(self._path("task.json"), encoding="utf-8") as reader:
      task = json.load(reader)
    if "1" not in task["labels"]:
      raise InputError("%s: the labels %s are not those of a similarity task"
                       % (self._path("task.json"), ", ".join(task["labels"])))
    self._max_seq_length = task["max_seq_length"]
    spm = os.path.exists(self._path("spm.model"))
    self._tokenizer = tokenization.create_tokenizer(
        None if spm else self._path("vocab.txt"),
        self._path("spm.model") if spm else None, task["do_lower_case"])
    config = modeling.AlbertConfig.from_json_file(self._path("config.json"))
    with tf.Graph().as_default():
      self._inputs = [tf.placeholder(tf.int32, [None, None])
                      for _ in range(3)]
      model = heads.create_model(config, False, *self._inputs)
      logits = heads.classifier_logits(model, len(task["labels"]))
      self._scores = tf.nn.softmax(logits)[:, task["labels"].index("1")]
      saver = tf.train.Saver()
      self._session = tf.Session()
      saver.restore(self._session, checkpoint)

  def predict_sentences(self, pairs):
    """Scores pairs.

    Args:
      pairs: iterable of (str, str), of any length.

    Returns:
      float32 array [number of pairs], in their order: the probability, between
      0 and 1, that the two mean the same.
    """
    if self._session is None:
      self.start_model()
    packed = [tokenization.pack_pair(
        self._tokenizer, self._ids(a), self._ids(b), self._max_seq_length)
              for a, b in pairs]
    scores = np.zeros(len(packed), np.float32)
    # Pairs of like length go together, so that little is padding.
    order = sorted(range(len(packed)), key=lambda i: len(packed[i][0]))
    for start in range(0, len(order), self._batch_size):
      batch = order[start:start + self._batch_size]
      length = max(len(packed[i][0]) for i in batch)
      arrays = np.zeros([3, len(batch), length], np.int32)
      for row, i in enumerate(batch):
        input_ids, segment_ids = packed[i]
        arrays[0, row, :len(input_ids)] = input_ids
        arrays[1, row, :len(input_ids)] = 1
        arrays[2, row, :len(input_ids)] = segment_ids
      scores[batch] = self._session.run(
          self._scores, dict(zip(self._inputs, arrays)))
    return scores

  def _ids(self, text):
    return self._tokenizer.convert_tokens_to_ids(self._tokenizer.tokenize(text))

  def _path(self, name):
    return os.path.join(self._model_dir, name)


def main(sentences):
  if len(sentences) == 2:
    pairs = [tuple(sentences)]
  elif sentences:
    raise InputError("give two sentences, or none and pairs on standard input, "
                     "one a line, parted by a tab")
  else:
    pairs = []
    for number, line in enumerate(sys.stdin, 1):
      pair = line.rstrip("\r\n").split("\t")
      if len(pair) != 2:
        raise InputError("standard input:%d: expected two sentences parted by "
                         "a tab, found %d" % (number, len(pair)))
      pairs.append(tuple(pair))
  similarity = BertSim(FLAGS.model_dir)
  similarity.start_model()
  for score, pair in zip(similarity.predict_sentences(pairs), pairs):
    print("%.4f\t%s\t%s" % ((score,) + pair))


if __name__ == "__main__":
  errors.run(main, takes_arguments=True)
