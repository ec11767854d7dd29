"""The three claims of the ALBERT paper, as runnable assertions.

    python test_changes.py

1. Factorized embedding (section 3.1): V x H becomes V x E + E x H.
2. Cross-layer sharing: one set of variables computes every layer.
3. Sentence order: a pair is two consecutive segments, swapped or not.
"""

import collections
import os

import numpy as np
import tensorflow.compat.v1 as tf

import create_pretraining_data
import tokenization
from albert.data import corpus, masking
from albert.model.config import AlbertConfig
from albert.model.layouts import create_model

_ROOT = os.path.dirname(os.path.abspath(__file__))


def build(name, **changes):
  """Builds a model; returns (model, input ids, trainable variables)."""
  tf.reset_default_graph()
  config = AlbertConfig.from_json_file(
    os.path.join(_ROOT, "albert_config", name)
  ).to_dict()
  input_ids = tf.placeholder(tf.int32, [None, None])
  model = create_model(
    AlbertConfig.from_dict(dict(config, **changes)), False, input_ids
  )
  return model, input_ids, tf.trainable_variables()


def count(variables):
  return sum(int(np.prod(v.shape.as_list())) for v in variables)


def show(claim, *rows):
  """Prints a claim and its results, rows of (text, number or text)."""
  print("\n" + claim)
  for text, value in rows:
    print(
      "  {:52s}{:>16s}".format(
        text, "{:,}".format(value) if isinstance(value, int) else value
      )
    )


def test_factorized_embedding():
  sizes, shapes = [], []
  for changes in ({}, {"embedding_size": None}):
    _, _, variables = build(
      "albert_config_xxlarge.json",
      vocab_size=30000,
      num_hidden_layers=1,
      **changes,
    )
    tables = [v for v in variables if "word_embeddings" in v.op.name]
    shapes.append(sorted(v.shape.as_list() for v in tables))
    sizes.append(count(tables))
  assert shapes == [[[128, 4096], [30000, 128]], [[30000, 4096]]], shapes
  factorized, plain = sizes
  assert factorized == 30000 * 128 + 128 * 4096
  show(
    "1. Factorized embedding: a table and a projection, V x E + E x H, "
    "instead of V x H",
    ("word embeddings like BERT's, 30000 x 4096", plain),
    ("xxlarge, 30000 x 128 + 128 x 4096", factorized),
    ("fewer parameters", "%.1f times" % (plain / factorized)),
  )


def test_parameter_counts():
  print(
    "\nBoth together: parameters in Google's layout, V = 30,000\n"
    "  size   encoder+pooler     with heads   paper"
  )
  for size, encoder, with_heads, paper in (  # the paper's table 1
    ("base", 11683584, 11813810, "12M"),
    ("large", 17683968, 17847474, "18M"),
    ("xlarge", 58724864, 59021490, "60M"),
    ("xxlarge", 222595584, 223158450, "235M"),
  ):
    model, _, variables = build(
      "albert_config_%s_google.json" % size, vocab_size=30000
    )
    assert count(variables) == encoder, (size, count(variables))
    model.masked_lm_logits(tf.zeros([1, 1], tf.int32))
    model.sentence_order_logits()
    total = count(tf.trainable_variables())
    assert total == with_heads, (size, total)
    print("  {:8s}{:13,} {:14,} {:>7s}".format(size, encoder, total, paper))
  print("  (rounded in the paper; its 235M is more than its own sizes make)")


def test_cross_layer_sharing():
  totals = {}
  for sharing in ("none", "attention", "ffn", "all"):
    _, _, variables = build(
      "albert_config_tiny.json",
      parameter_sharing=sharing,
      hidden_size=1024,
      intermediate_size=3072,
      vocab_size=100,
      num_hidden_layers=12,
      num_attention_heads=16,
    )
    totals[sharing] = count(
      [v for v in variables if v.op.name.startswith("bert/encoder/")]
    )
  assert totals == {
    "none": 125976576,
    "attention": 79771648,
    "ffn": 56702976,
    "all": 10498048,
  }, totals
  show(
    "2. Cross-layer sharing: 12 layers (hidden 1024, FFN 3072) of fewer "
    "variables",
    ("nothing shared, like BERT", totals["none"]),
    ("attention shared", totals["attention"]),
    ("feed-forward network shared", totals["ffn"]),
    ("all shared, ALBERT", totals["all"]),
    ("fewer parameters", "%.1f times" % (totals["none"] / totals["all"])),
  )


def test_shared_layers_compute_with_one_set_of_variables():
  # A pre-LN layer with zero output weights and biases is the identity. If all
  # layers share one set of variables, a single assignment silences them.
  model, input_ids, variables = build(
    "albert_config_tiny.json", ln_type="preln"
  )
  outputs = [model.get_embedding_output()] + model.get_all_encoder_layers()
  silence = [
    v.assign(tf.zeros_like(v))
    for v in variables
    if "/output/dense/" in v.op.name
  ]
  assert len(silence) == 4  # kernel and bias, of attention and of the FFN
  feed = {input_ids: [[101, 1920, 2157, 102]]}
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    before = session.run(outputs, feed)
    session.run(silence)
    after = session.run(outputs, feed)
  changes = [np.abs(x - y).max() for x, y in zip(before[1:], before[:-1])]
  assert min(changes) > 1e-3, changes
  assert all(np.array_equal(layer, after[0]) for layer in after[1:])
  show(
    "   The layers do compute with one set: its outputs set to 0 silence",
    ("layers of tiny", "all %d" % model.config.num_hidden_layers),
  )


def test_sentence_order():
  tokenizer = tokenization.WordPieceTokenizer(
    os.path.join(_ROOT, "albert_config", "vocab.txt")
  )
  segmenter = corpus.Segmenter(tokenizer, use_jieba=True)
  reader = corpus.TextReader([os.path.join(_ROOT, "data", "text_train.txt")])
  settings = create_pretraining_data.create_settings(
    create_pretraining_data.RecordSettings(
      max_seq_length=96,
      max_predictions_per_seq=20,
      masked_lm_prob=0.15,
      dupe_factor=1,
      masking="ngram",
    ),
    tokenizer,
  )
  swapped = []
  for index, lines in enumerate(reader.documents()):
    document = segmenter.document(lines)
    text = list(document.ids)
    for record in masking.create_records(
      [document], index, settings, collections.Counter()
    ):
      first, second = unmask_halves(record, tokenizer)
      label = int(record["next_sentence_labels"][0])
      in_order, other_way = [first + second, second + first][:: 1 - 2 * label]
      assert contains(text, in_order), "halves are not consecutive"
      if min(len(first), len(second)) > 4:  # "。" is ambiguous
        assert not contains(text, other_way), "the label is wrong"
      swapped.append(label)
  share = np.mean(swapped)
  # Five standard deviations of a fair coin.
  assert abs(share - 0.5) < 2.5 / np.sqrt(len(swapped)), share
  show(
    "3. Sentence order: a pair is two consecutive parts of one document",
    ("label 0: in the order of the text", swapped.count(0)),
    ("label 1: swapped", swapped.count(1)),
    ("found in the text, in the order that the label says", len(swapped)),
  )


def unmask_halves(record, tokenizer):
  """Returns the original ids of both segments of a record."""
  ids = np.array(record["input_ids"])
  used = record["masked_lm_weights"] > 0
  ids[record["masked_lm_positions"][used]] = record["masked_lm_ids"][used]
  segments = np.where(record["input_mask"] > 0, record["segment_ids"], -1)
  first, second = (list(ids[segments == s]) for s in (0, 1))
  assert first[0] == tokenizer.cls_id
  assert first[-1] == second[-1] == tokenizer.sep_id
  return first[1:-1], second[:-1]


def contains(ids, part):
  return any(
    ids[i : i + len(part)] == part for i in range(len(ids) - len(part) + 1)
  )


if __name__ == "__main__":
  tf.logging.set_verbosity(tf.logging.ERROR)
  for name, test in list(globals().items()):
    if name.startswith("test_"):
      test()
  print("\nAll three claims hold.")
