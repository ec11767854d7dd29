"""Measures how much segment boundaries reveal about the order of segments.

    python benchmarks/probe_sentence_order.py --input_file='records/*.tfrecord'

For pretraining records of any tool: accuracy, where 0.5 is chance, of
- punctuation at the end: which segment's last token is punctuation;
- punctuation at the beginning: likewise for the first token;
- logistic regression on the first and last two tokens and the lengths of both
  segments, trained on one half of the records and tested on the other;
- boosted trees on the lengths of both segments, likewise.

With --text_file, the same for pairs of neighbouring lines: whole sentences.
With --cut_text, the accuracy from the lengths of pairs that
create_pretraining_data.py makes from a text, and separately for the last pairs
of documents. Needs scikit-learn.
"""

import collections
import pathlib
import random
import sys

import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import create_pretraining_data  # noqa: E402
import tokenization  # noqa: E402
from albert import characters  # noqa: E402
from albert.data import corpus, masking  # noqa: E402
from albert.files import records  # noqa: E402

FLAGS = flags.FLAGS
flags.DEFINE_string("input_file", None, "Record files: globs.")
flags.DEFINE_string("text_file", None, "Text, instead of records.")
flags.DEFINE_string("cut_text", None, "Text to cut into pairs.")
flags.DEFINE_integer("max_records", 20000, "Maximum records to read.")
flags.DEFINE_integer("max_seq_length", 128, "--cut_text: tokens per pair.")
flags.DEFINE_integer("max_documents", 1000, "--cut_text: maximum documents.")
flags.DEFINE_integer("dupe_factor", 10, "--cut_text: passes over the text.")
flags.DEFINE_float("short_seq_prob", 0.1, "--cut_text: share of short pairs.")
flags.DEFINE_enum(
  "sentence_pair",
  "sop",
  ["sop", "nsp"],
  "--cut_text: see create_pretraining_data.py.",
)


def read_pairs(paths, limit):
  """Yields (ids of the first segment, of the second, label) of records."""
  for path in paths:
    for record in tf.io.tf_record_iterator(path):
      if not limit:
        return
      limit -= 1
      features = tf.train.Example.FromString(record).features.feature
      ids, segments, mask, positions, labels, order = (
        np.array(features[name].int64_list.value)
        for name in (
          "input_ids",
          "segment_ids",
          "input_mask",
          "masked_lm_positions",
          "masked_lm_ids",
          "next_sentence_labels",
        )
      )
      used = np.array(features["masked_lm_weights"].float_list.value) > 0
      ids[positions[used]] = labels[used]  # undoes masking
      first = np.flatnonzero((mask == 1) & (segments == 0))
      second = np.flatnonzero((mask == 1) & (segments == 1))
      # Without [CLS], [SEP] and [SEP].
      yield ids[first[1:-1]], ids[second[:-1]], int(order[0])


def read_lines(path, tokenizer, limit):
  """Yields pairs of neighbouring lines, half of them swapped."""
  lines = pathlib.Path(path).read_text(encoding="utf-8").split("\n")
  numbers = [
    i
    for i in range(len(lines) - 1)
    if lines[i].strip() and lines[i + 1].strip()
  ]
  generator = random.Random(0)
  for i in generator.sample(numbers, min(limit, len(numbers))):
    pair = [
      np.array(tokenizer.convert_tokens_to_ids(tokenizer.tokenize(line)))
      for line in lines[i : i + 2]
    ]
    label = generator.randrange(2)
    if all(map(len, pair)):
      yield (pair[1], pair[0], 1) if label else (pair[0], pair[1], 0)


def best_rule(first, second, labels):
  """Returns the accuracy of the best rule on one feature of each segment.

  Args:
    first, second: bool [N], feature of the first and the second segment.
    labels: int [N].
  """
  right = 0
  for kind in range(4):
    found = labels[2 * first + second == kind]
    right += max((found == 0).sum(), (found == 1).sum())
  return right / len(labels)


def logistic_regression(pairs, labels):
  """Trains on the first half, returns the accuracy on the second half."""
  # Imported here, because the rules do not need scikit-learn.
  from sklearn.feature_extraction import DictVectorizer
  from sklearn.linear_model import LogisticRegression

  rows = []
  for one, two in pairs:
    row = {"length 1": len(one) / 512, "length 2": len(two) / 512}
    for name, ids in (("one", one), ("two", two)):
      for place in (0, 1, -1, -2):
        if len(ids) > 1:
          row["%s[%d]=%d" % (name, place, ids[place])] = 1
    rows.append(row)
  half = len(rows) // 2
  vectorizer = DictVectorizer()
  train = vectorizer.fit_transform(rows[:half])
  model = LogisticRegression(C=0.1, max_iter=1000).fit(train, labels[:half])
  return model.score(vectorizer.transform(rows[half:]), labels[half:])


def lengths_of_pairs(tokenizer):
  """Returns lengths and labels of the pairs of a text, and which ones are last.

  Args:
    tokenizer: tokenizer.

  Returns:
    int [N, 2], int [N] and bool [N], with the pairs of a document in sequence.
  """
  texts = create_pretraining_data.TextSettings()
  segmenter = create_pretraining_data.create_segmenter(texts, tokenizer)
  settings = create_pretraining_data.create_settings(
    create_pretraining_data.RecordSettings(
      max_seq_length=FLAGS.max_seq_length,
      short_seq_prob=FLAGS.short_seq_prob,
      sentence_pair=FLAGS.sentence_pair,
    ),
    tokenizer,
  )
  rng, pairs = np.random.RandomState(0), []
  for _, lines in zip(
    range(FLAGS.max_documents), corpus.TextReader([FLAGS.cut_text]).documents()
  ):
    document = segmenter.document(lines)
    if len(document.ids):
      text = masking.prepare_text(document, FLAGS.max_seq_length - 3)
      for _ in range(FLAGS.dupe_factor):
        pairs.extend(
          masking.create_pairs(text, settings, rng, collections.Counter())
        )
  sizes, labels = zip(
    *[
      ((first.end - first.start, second.end - second.start), label)
      for first, second, label in masking.label_pairs(pairs, settings, rng)
    ]
  )
  return (
    np.array(sizes),
    np.array(labels),
    np.array([two.end == len(two.document.ids) for _, two in pairs]),
  )


def boosted_trees(lengths, labels):
  """Returns which labels are predicted by trees trained on the other half.

  Args:
    lengths: int [N, 2].
    labels: int [N].

  Returns:
    bool [N].
  """
  from sklearn.ensemble import HistGradientBoostingClassifier

  half, right = len(labels) // 2, []
  for part, other in (
    (slice(half), slice(half, None)),
    (slice(half, None), slice(half)),
  ):
    model = HistGradientBoostingClassifier(
      max_iter=60, max_leaf_nodes=15, min_samples_leaf=100
    ).fit(lengths[other], labels[other])
    right.append(model.predict(lengths[part]) == labels[part])
  return np.concatenate(right)


def main(argv):
  del argv
  tokenizer = tokenization.create_tokenizer(
    str(ROOT / "albert_config" / "vocab.txt")
  )
  if FLAGS.cut_text:
    lengths, labels, are_last = lengths_of_pairs(tokenizer)
    print(
      "%d pairs, %.3f with label 1; boosted trees on the lengths: %.3f; on "
      "those of the %d last pairs of documents: %.3f"
      % (
        len(labels),
        labels.mean(),
        boosted_trees(lengths, labels).mean(),
        are_last.sum(),
        boosted_trees(lengths[are_last], labels[are_last]).mean(),
      )
    )
    return
  if FLAGS.text_file:
    found = read_lines(FLAGS.text_file, tokenizer, FLAGS.max_records)
  else:
    paths = records.expand_patterns(FLAGS.input_file, "input_file")
    found = read_pairs(paths, FLAGS.max_records)
  pairs, labels = [], []
  for one, two, label in found:
    pairs.append((one, two))
    labels.append(label)
  labels = np.array(labels)
  is_punctuation = np.array(
    [
      len(token) == 1 and characters.is_punctuation(token)
      for token in tokenizer.convert_ids_to_tokens(range(tokenizer.vocab_size))
    ]
  )
  print("%d records, %.3f with label 1" % (len(labels), labels.mean()))
  for name, place in (("end", -1), ("beginning", 0)):
    first, second = (
      is_punctuation[[pair[i][place] for pair in pairs]] for i in range(2)
    )
    print(
      "punctuation at the %-9s  %.3f" % (name, best_rule(first, second, labels))
    )
  print(
    "logistic regression           %.3f" % logistic_regression(pairs, labels)
  )
  print(
    "boosted trees on the lengths  %.3f"
    % boosted_trees(
      np.array([list(map(len, pair)) for pair in pairs]), labels
    ).mean()
  )


if __name__ == "__main__":
  app.run(main)
