"""A tagger as public programs for BERT and ALBERT are: Estimator and model_fn.

    python tagger.py FOLDER STEPS OUTPUT_DIR

FOLDER: model.ckpt, config.json, vocab.txt and texts.tsv. Prints the loss of
each step, then the predicted tag of each token of the first text.
"""

import os
import sys

import numpy as np
import tensorflow.compat.v1 as tf

import modeling
import optimization
import tokenization
from lamb_optimizer import LAMBOptimizer

folder, steps, output_dir = sys.argv[1], int(sys.argv[2]), sys.argv[3]
tf.logging.set_verbosity(tf.logging.ERROR)
checkpoint = os.path.join(folder, "model.ckpt")
config = modeling.AlbertConfig.from_json_file(
    os.path.join(folder, "config.json"))
tokenizer = tokenization.FullTokenizer(os.path.join(folder, "vocab.txt"))

input_ids, label_ids = [], []
with open(os.path.join(folder, "texts.tsv"), encoding="utf-8") as reader:
  for line in reader:
    text = tokenization.convert_to_unicode(line.split("\t")[0])
    tokens = ["[CLS]"] + tokenizer.tokenize(text)[:14] + ["[SEP]"]
    padding = [0] * (16 - len(tokens))
    input_ids.append(tokenizer.convert_tokens_to_ids(tokens) + padding)
    label_ids.append([len(token) % 2 for token in tokens] + padding)
rows = {"input_ids": np.array(input_ids, np.int32),
        "input_mask": np.sign(input_ids).astype(np.int32),
        "segment_ids": np.zeros_like(input_ids, np.int32),
        "label_ids": np.array(label_ids, np.int32)}


def input_fn():
  return tf.data.Dataset.from_tensor_slices(rows).repeat().batch(len(input_ids))


def model_fn(features, mode, params):
  model = modeling.AlbertModel(
      config, mode == tf.estimator.ModeKeys.TRAIN, features["input_ids"],
      features["input_mask"], features["segment_ids"], False)
  hidden = model.get_sequence_output()
  shape = modeling.get_shape_list(hidden, expected_rank=3)
  logits = tf.reshape(tf.layers.dense(
      tf.reshape(hidden, [-1, shape[2]]), 2, name="tags",
      kernel_initializer=modeling.create_initializer(0.02)), [-1, 16, 2])
  mask = tf.cast(features["input_mask"], tf.float32)
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=features["label_ids"], logits=logits)
  loss = tf.reduce_sum(losses * mask) / tf.reduce_sum(mask)
  tvars = tf.trainable_variables()
  assignment_map, _ = modeling.get_assignment_map_from_checkpoint(
      tvars, checkpoint)
  tf.train.init_from_checkpoint(checkpoint, assignment_map)
  if mode == tf.estimator.ModeKeys.PREDICT:
    return tf.estimator.EstimatorSpec(
        mode, predictions={"tags": tf.argmax(logits, -1)})
  global_step = tf.train.get_or_create_global_step()
  optimizer = params["optimizer"](
      learning_rate=1e-3, weight_decay_rate=0.01, beta_1=0.9, beta_2=0.999,
      epsilon=1e-6, exclude_from_weight_decay=["LayerNorm", "bias"])
  grads, tvars = zip(*[pair for pair in zip(tf.gradients(loss, tvars), tvars)
                       if pair[0] is not None])
  grads, _ = tf.clip_by_global_norm(grads, clip_norm=1.0)
  train_op = optimizer.apply_gradients(
      zip(grads, tvars), global_step=global_step)
  train_op = tf.group(train_op, [global_step.assign(global_step + 1)])
  return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


class Losses(tf.train.SessionRunHook):
  def before_run(self, run_context):
    return tf.train.SessionRunArgs(tf.get_collection(tf.GraphKeys.LOSSES))

  def after_run(self, run_context, run_values):
    print("%.8f" % run_values.results[0])


for optimizer in (optimization.AdamWeightDecayOptimizer, LAMBOptimizer):
  estimator = tf.estimator.Estimator(
      model_fn, os.path.join(output_dir, optimizer.__name__),
      tf.estimator.RunConfig(tf_random_seed=1), {"optimizer": optimizer})
  estimator.train(input_fn, steps=steps, hooks=[Losses()])
  assert estimator.get_variable_value("global_step") == steps
  print(*next(estimator.predict(input_fn))["tags"])
