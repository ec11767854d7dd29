"""Vectors of tokens, as BERT's extract_features.py and its copies make them.

    python features.py FOLDER

FOLDER: model.ckpt, config.json, vocab.txt and texts.tsv. Prints the tokens of
the first text, then the first three values of each layer at [CLS].
"""

import os
import sys

import numpy as np
import tensorflow.compat.v1 as tf

import modeling_google
import tokenization

folder = sys.argv[1]
config = modeling_google.AlbertConfig.from_json_file(
    os.path.join(folder, "config.json"))
vocab = tokenization.load_vocab(os.path.join(folder, "vocab.txt"))
inv_vocab = {v: k for k, v in vocab.items()}
basic = tokenization.BasicTokenizer(do_lower_case=True)
wordpiece = tokenization.WordpieceTokenizer(vocab=vocab)
with open(os.path.join(folder, "texts.tsv"), encoding="utf-8") as reader:
  text = tokenization.convert_to_unicode(reader.readline().split("\t")[0])
tokens = ["[CLS]"] + [piece for token in basic.tokenize(text)
                      for piece in wordpiece.tokenize(token)] + ["[SEP]"]
print(*[tokenization.printable_text(token) for token in tokens])
ids = tokenization.convert_tokens_to_ids(vocab, tokens)
assert tokenization.convert_ids_to_tokens(inv_vocab, ids) == tokens

model = modeling_google.AlbertModel(
    config=config, is_training=False, input_ids=tf.constant([ids]),
    input_mask=tf.ones([1, len(ids)], tf.int32),
    token_type_ids=tf.zeros([1, len(ids)], tf.int32))
assert model.get_embedding_table().shape.as_list() == [
    config.vocab_size, config.embedding_size]
layers = [model.get_embedding_output()] + model.all_encoder_layers
assert len(model.get_all_encoder_layers()) == config.num_hidden_layers
tvars = tf.trainable_variables()
checkpoint = os.path.join(folder, "model.ckpt")
assignment_map, _ = modeling_google.get_assignment_map_from_checkpoint(
    tvars, checkpoint)
tf.train.init_from_checkpoint(checkpoint, assignment_map)
with tf.Session() as session:
  session.run(tf.global_variables_initializer())
  for layer in session.run(layers):
    print(*["%.6f" % value for value in np.ravel(layer)[:3]])
