"""A classifier as many public programs for BERT are: placeholders, a session.

    python sentiment.py FOLDER STEPS OPTIMIZER

FOLDER: model.ckpt-7, config.json, vocab.txt and texts.tsv. Prints the loss of
each step, then the predicted labels.
"""

import os
import sys

import tensorflow.compat.v1 as tf

import modeling
import optimization
import tokenization

folder, steps = sys.argv[1], int(sys.argv[2])
checkpoint = os.path.join(folder, "model.ckpt-7")
tokenization.validate_case_matches_checkpoint(True, checkpoint)
tokenizer = tokenization.FullTokenizer(
    vocab_file=os.path.join(folder, "vocab.txt"), do_lower_case=True)
config = modeling.BertConfig.from_json_file(os.path.join(folder, "config.json"))

all_ids, all_labels = [], []
with open(os.path.join(folder, "texts.tsv"), encoding="utf-8") as reader:
  for line in reader:
    text, label = line.rstrip("\n").split("\t")
    tokens = ["[CLS]"] + tokenizer.tokenize(text)[:14] + ["[SEP]"]
    ids = tokenizer.convert_tokens_to_ids(tokens)
    assert tokenizer.convert_ids_to_tokens(ids) == tokens
    all_ids.append(ids + [0] * (16 - len(ids)))
    all_labels.append(int(label))

input_ids = tf.placeholder(tf.int32, [None, 16])
labels = tf.placeholder(tf.int32, [None])
model = modeling.BertModel(
    config=config, is_training=True, input_ids=input_ids,
    input_mask=tf.sign(input_ids), token_type_ids=None,
    use_one_hot_embeddings=False)
output_layer = model.get_pooled_output()
output_weights = tf.get_variable(
    "output_weights", [2, output_layer.shape.as_list()[-1]],
    initializer=modeling.create_initializer(config.initializer_range))
output_bias = tf.get_variable(
    "output_bias", [2], initializer=tf.zeros_initializer())
logits = tf.nn.bias_add(
    tf.matmul(modeling.dropout(output_layer, 0.0), output_weights,
              transpose_b=True), output_bias)
loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
train_op = optimization.create_optimizer(
    loss, 2e-3, 20, 3, False, optimizer=sys.argv[3])

tvars = tf.trainable_variables()
assignment_map, initialized = modeling.get_assignment_map_from_checkpoint(
    tvars, checkpoint)
assert all(var.name in initialized for var in tvars)
tf.train.init_from_checkpoint(checkpoint, assignment_map)

with tf.Session() as session:
  session.run(tf.global_variables_initializer())
  feed = {input_ids: all_ids, labels: all_labels}
  for _ in range(steps):
    print("%.8f" % session.run([loss, train_op], feed)[0])
  print(*session.run(tf.argmax(logits, -1), feed))
