"""A model that stays warm and predicts texts of any number and length."""

import json
import os

import numpy as np
import tensorflow.compat.v1 as tf

import checkpoints
import heads
import modeling
import tokenization
from errors import InputError


def restored_session(checkpoint, session_config=None):
  """Returns a session whose variables, the default graph's, are a checkpoint's.

  Args:
    checkpoint: str.
    session_config: tf.ConfigProto, or None.

  Raises:
    InputError: the checkpoint is of another model, or damaged.
  """
  checkpoints.check_fits(checkpoint, {v.op.name: v.shape.as_list()
                                  for v in tf.global_variables()})
  session = tf.Session(config=session_config)
  with checkpoints.reading(checkpoint):
    tf.train.Saver().restore(session, checkpoint)
  return session


class Predictor:
  """Runs a graph that is built once, on batches of texts of like length.

  Args:
    config: AlbertConfig.
    tokenizer: of tokenization.py.
    checkpoint: str, where all variables come from.
    build: function of the model that returns a tensor [B, ...].
    max_seq_length: int, most tokens of a text or pair; longer ones are
      truncated.
    batch_size: int, texts per call of the model.

  Raises:
    InputError: the checkpoint is of another model, or damaged.
  """

  def __init__(self, config, tokenizer, checkpoint, build, max_seq_length=512,
               batch_size=64):
    self._tokenizer = tokenizer
    self._max_seq_length = min(max_seq_length, config.max_position_embeddings)
    self._batch_size = batch_size
    with tf.Graph().as_default():
      inputs = [tf.placeholder(tf.int32, [None, None]) for _ in range(3)]
      output = build(heads.create_model(config, False, *inputs))
      session = restored_session(checkpoint)
      self._call = session.make_callable(output, inputs)

  def predict(self, texts):
    """Predicts texts.

    Args:
      texts: list of (str, str or None), single texts or pairs.

    Returns:
      float32 array [number of texts, ...], in their order.
    """
    packed = [tokenization.pack_pair(
        self._tokenizer, self._ids(a), None if b is None else self._ids(b),
        self._max_seq_length) for a, b in texts]
    # Those of like length go together, so that little is padding.
    order = sorted(range(len(packed)), key=lambda i: len(packed[i][0]))
    found = None
    for start in range(0, len(order), self._batch_size):
      batch = order[start:start + self._batch_size]
      length = len(packed[batch[-1]][0])
      arrays = np.zeros([3, len(batch), length], np.int32)
      for row, i in enumerate(batch):
        input_ids, segment_ids = packed[i]
        arrays[0, row, :len(input_ids)] = input_ids
        arrays[1, row, :len(input_ids)] = 1
        arrays[2, row, :len(input_ids)] = segment_ids
      values = self._call(*arrays)
      if found is None:
        found = np.zeros((len(packed),) + values.shape[1:], np.float32)
      found[batch] = values
    return np.zeros([0], np.float32) if found is None else found

  def _ids(self, text):
    return self._tokenizer.convert_tokens_to_ids(self._tokenizer.tokenize(text))


def load_folder(folder):
  """Reads what run_classifier.py keeps beside its best checkpoint.

  Args:
    folder: str, such as the `best` folder of a fine-tuning run.

  Returns:
    (AlbertConfig, tokenizer, checkpoint, dict of task.json)

  Raises:
    InputError: something is not there.
  """
  checkpoint = checkpoints.latest_checkpoint(folder)
  if not checkpoint:
    raise InputError("%s has no checkpoint: fine-tune one with "
                     "run_classifier.py" % folder)
  with open(os.path.join(folder, "task.json"), encoding="utf-8") as reader:
    task = json.load(reader)
  spm_model_file = os.path.join(folder, "spm.model")
  if not os.path.exists(spm_model_file):
    spm_model_file = None
  tokenizer = tokenization.create_tokenizer(
      os.path.join(folder, "vocab.txt"), spm_model_file, task["do_lower_case"])
  config = modeling.AlbertConfig.from_json_file(
      os.path.join(folder, "config.json"))
  return config, tokenizer, checkpoint, task
