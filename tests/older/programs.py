"""Programs as public ones for BERT and ALBERT are.

    python programs.py classify FOLDER STEPS OPTIMIZER
    python programs.py tag FOLDER STEPS OUTPUT_DIR

The first one has placeholders and a session, the second one an Estimator.
FOLDER: model.ckpt-7, config.json, vocab.txt and texts.tsv. Prints the loss of
each step, then the labels of all texts, or of the tokens of the first text.
"""

import os
import sys

import numpy as np
import tensorflow.compat.v1 as tf

import modeling
import optimization
import tokenization
from lamb_optimizer import LAMBOptimizer

kind, folder, steps, option = sys.argv[1:]
steps = int(steps)
checkpoint = os.path.join(folder, "model.ckpt-7")
tokenization.validate_case_matches_checkpoint(True, checkpoint)
tokenizer = tokenization.FullTokenizer(
    vocab_file=os.path.join(folder, "vocab.txt"), do_lower_case=True)
config_file = os.path.join(folder, "config.json")

all_ids, all_labels, all_tags = [], [], []
with open(os.path.join(folder, "texts.tsv"), encoding="utf-8") as reader:
  for line in reader:
    text, label = line.rstrip("\n").split("\t")
    tokens = ["[CLS]"] + tokenizer.tokenize(text)[:14] + ["[SEP]"]
    ids = tokenizer.convert_tokens_to_ids(tokens)
    assert tokenizer.convert_ids_to_tokens(ids) == tokens
    padding = [0] * (16 - len(tokens))
    all_ids.append(ids + padding)
    all_labels.append(int(label))
    all_tags.append([len(token) % 2 for token in tokens] + padding)


def restore():
  tvars = tf.trainable_variables()
  assignment_map, initialized = modeling.get_assignment_map_from_checkpoint(
      tvars, checkpoint)
  tf.train.init_from_checkpoint(checkpoint, assignment_map)
  return [var for var in tvars if var.name not in initialized]


def classify():
  config = modeling.BertConfig.from_json_file(config_file)
  input_ids = tf.placeholder(tf.int32, [None, 16])
  labels = tf.placeholder(tf.int32, [None])
  model = modeling.BertModel(
      config=config, is_training=True, input_ids=input_ids,
      input_mask=tf.sign(input_ids), token_type_ids=None,
      use_one_hot_embeddings=False)
  pooled = model.get_pooled_output()
  output_weights = tf.get_variable(
      "output_weights", [2, pooled.shape.as_list()[-1]],
      initializer=modeling.create_initializer(config.initializer_range))
  output_bias = tf.get_variable(
      "output_bias", [2], initializer=tf.zeros_initializer())
  logits = tf.nn.bias_add(tf.matmul(
      modeling.dropout(pooled, 0.0), output_weights, transpose_b=True),
      output_bias)
  loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
  train_op = optimization.create_optimizer(
      loss, 2e-3, 20, 3, False, optimizer=option)
  assert not restore()
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    feed = {input_ids: all_ids, labels: all_labels}
    for _ in range(steps):
      print("%.8f" % session.run([loss, train_op], feed)[0])
    print(*session.run(tf.argmax(logits, -1), feed))


def input_fn():
  ids = np.array(all_ids, np.int32)
  return tf.data.Dataset.from_tensors({
      "input_ids": ids, "input_mask": np.sign(ids), "segment_ids": 0 * ids,
      "label_ids": np.array(all_tags, np.int32)}).repeat()


def model_fn(features, mode, params):
  model = modeling.AlbertModel(
      modeling.AlbertConfig.from_json_file(config_file),
      mode == tf.estimator.ModeKeys.TRAIN, features["input_ids"],
      features["input_mask"], features["segment_ids"], False)
  hidden = model.get_sequence_output()
  shape = modeling.get_shape_list(hidden, expected_rank=3)
  logits = tf.reshape(tf.layers.dense(
      tf.reshape(hidden, [-1, shape[2]]), 2, name="tags",
      kernel_initializer=modeling.create_initializer(0.02)), [-1, 16, 2])
  loss = tf.losses.sparse_softmax_cross_entropy(
      features["label_ids"], logits, features["input_mask"])
  restore()
  if mode == tf.estimator.ModeKeys.PREDICT:
    return tf.estimator.EstimatorSpec(
        mode, predictions={"tags": tf.argmax(logits, -1)})
  global_step = tf.train.get_or_create_global_step()
  optimizer = params["optimizer"](
      learning_rate=1e-3, weight_decay_rate=0.01, beta_1=0.9, beta_2=0.999,
      epsilon=1e-6, exclude_from_weight_decay=["LayerNorm", "bias"])
  tvars = tf.trainable_variables()
  grads, _ = tf.clip_by_global_norm(tf.gradients(loss, tvars), clip_norm=1.0)
  train_op = optimizer.apply_gradients(
      zip(grads, tvars), global_step=global_step)
  train_op = tf.group(train_op, [global_step.assign(global_step + 1)])
  return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


class Losses(tf.train.SessionRunHook):
  def before_run(self, run_context):
    return tf.train.SessionRunArgs(tf.get_collection(tf.GraphKeys.LOSSES))

  def after_run(self, run_context, run_values):
    print("%.8f" % run_values.results[0])


def tag():
  for optimizer in (optimization.AdamWeightDecayOptimizer, LAMBOptimizer):
    estimator = tf.estimator.Estimator(
        model_fn, os.path.join(option, optimizer.__name__),
        tf.estimator.RunConfig(tf_random_seed=1), {"optimizer": optimizer})
    estimator.train(input_fn, steps=steps, hooks=[Losses()])
    print(*next(estimator.predict(input_fn))["tags"])


(classify if kind == "classify" else tag)()
