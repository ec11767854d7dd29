"""Finding entities: the head, its decoder, a model that stays warm."""

import numpy as np
import tensorflow.compat.v1 as tf

from albert.errors import InputError
from albert.heads import crf, heads
from albert.predict import predictor
from albert.tasks import ner
from albert.train import estimators


def head_builder(labels, use_crf):
  """Returns the head; see estimators.model_fn_builder.

  Args:
    labels: list of str, see ner.labels_of.
    use_crf: bool.
  """

  def head(model, features):
    logits = heads.token_logits(model, len(labels))  # [B, S, L]
    label_ids = features["label_ids"]
    mask = tf.cast(features["label_mask"], tf.float32)
    if use_crf:
      totals = -crf.log_likelihood(logits, label_ids, mask,
                                   crf.transition_scores(labels))
    else:
      totals = tf.reduce_sum(
          mask * tf.nn.sparse_softmax_cross_entropy_with_logits(
              labels=label_ids, logits=logits), 1)
    losses = tf.div_no_nan(totals, tf.reduce_sum(mask, 1))  # [B]
    return estimators.HeadOutput(
        losses={"example_loss": tf.reduce_sum(losses)},
        metrics={"example_loss": (losses, tf.ones_like(losses))},
        predictions={"logits": logits, "loss": losses})

  return head


def token_labels(model, labels, has_crf):
  """Labels the tokens between [CLS] and [SEP].

  Args:
    model: AlbertModel.
    labels: list of str, see ner.labels_of.
    has_crf: bool.

  Returns:
    int32 [B, S], numbers of labels; 0 at [CLS], [SEP] and padding.
  """
  logits = heads.token_logits(model, len(labels))
  mask = tf.cast(model.input_mask, tf.float32)
  # Neither the first one nor the last.
  inside = tf.pad(mask[:, 2:], [[0, 0], [1, 1]])
  transitions, starts = crf.forbidden(labels)
  if has_crf:
    transitions = crf.transition_scores(labels)
  # A loop cannot be converted to TFLite.
  scan = tf.scan if logits.shape.as_list()[1] is None else crf.unrolled_scan
  return crf.viterbi(logits, inside, transitions, starts, scan)


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
    for number, values in self._predictor.run(
        [(row["input_ids"], row["segment_ids"]) for row in features]):
      scores[number] = values
    return texts.entities(
        self._decoder.decode(texts.join(scores), self._transitions))
