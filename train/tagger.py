"""From scores of tokens to entities; a model that stays warm and marks them."""

import numpy as np
import tensorflow.compat.v1 as tf

from tasks import ner
from train import crf, heads, predictor
from util.errors import InputError


class Decoder:
  """Finds the likeliest labels of whole texts that the scheme allows.

  Args:
    labels: list of str, L; see ner.labels_of.
    batch_size: int, texts at a time.
  """

  def __init__(self, labels, batch_size=64):
    self._batch_size = batch_size
    self._num_labels = len(labels)
    _, starts = crf.forbidden(labels)
    with tf.Graph().as_default():
      inputs = [tf.placeholder(tf.float32, shape) for shape in (
          [None, None, len(labels)], [None, None], [len(labels)] * 2)]
      self._call = tf.Session().make_callable(
          crf.viterbi(*inputs, starts), inputs)

  def decode(self, scores, transitions):
    """Labels tokens.

    Args:
      scores: list of float arrays [tokens, L], one for each text.
      transitions: float [L, L]; see crf.load_transitions.

    Returns:
      list of int arrays [tokens], numbers of labels.
    """
    order = sorted(range(len(scores)), key=lambda i: len(scores[i]))
    found = [None] * len(scores)
    for start in range(0, len(order), self._batch_size):
      batch = order[start:start + self._batch_size]
      length = max(1, len(scores[batch[-1]]))
      padded = np.zeros([len(batch), length, self._num_labels], np.float32)
      mask = np.zeros([len(batch), length], np.float32)
      for row, i in enumerate(batch):
        padded[row, :len(scores[i])] = scores[i]
        mask[row, :len(scores[i])] = 1
      for i, labels in zip(batch, self._call(padded, mask, transitions)):
        found[i] = labels[:len(scores[i])]
    return found


class EntityTagger:
  """Marks entities in texts; the graph is built once and stays warm.

  Args:
    model_dir: str, folder with a checkpoint, config.json, task.json and the
      vocabulary, such as the `best` folder of a run of run_ner.py.
    batch_size: int, windows of texts per call of the model.

  Raises:
    InputError: the folder has no such model.
  """

  def __init__(self, model_dir, batch_size=64):
    model = predictor.load_folder(model_dir)
    if not model.task.get("label_tokens"):
      raise InputError("%s has no model that finds entities: fine-tune one "
                       "with run_ner.py" % model_dir)
    self._tokenizer, self._task = model.tokenizer, model.task
    labels = model.task["labels"]
    self._transitions = crf.load_transitions(model.checkpoint, labels)
    self._decoder = Decoder(labels, batch_size)
    self._predictor = predictor.Predictor(
        model.config, model.tokenizer, model.checkpoint,
        lambda encoder: heads.token_logits(encoder, len(labels)),
        model.task["max_seq_length"], batch_size)

  def predict(self, texts):
    """Finds entities.

    Args:
      texts: iterable of str, of any length.

    Returns:
      list of lists of ner.Entity (start, end, kind), for each text, in their
      order: text[start:end] is an entity of that kind.
    """
    texts = ner.Texts(
        [ner.Example(number, text, None) for number, text in enumerate(texts)],
        self._tokenizer, self._task["labels"], self._task["max_seq_length"],
        self._task["by_character"])
    features = map(texts.make_features, texts.windows)
    scores = [None] * len(texts.windows)
    for batch, values in self._predictor.run(
        [(row["input_ids"], row["segment_ids"]) for row in features]):
      for number, value in zip(batch, values):
        scores[number] = value
    return texts.entities(
        self._decoder.decode(texts.join(scores), self._transitions))
