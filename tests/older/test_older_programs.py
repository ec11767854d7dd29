"""Programs against the older modules, as public ones for BERT are written."""

import re

import numpy as np
import pytest
import reference_albert as reference
import small_steps
import tensorflow.compat.v1 as tf
from scripting import ROOT, run
from small_models import albert_zh_config, google_config, write_folder
from writing import write

import modeling
import modeling_google
import optimization
import tokenization
from albert.heads import Classifier
from lamb_optimizer import LAMB, LAMBOptimizer

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "bank", "##er", "a",
          "##s", *"今天气很好我们去公园散步他昨没有来上班"]
TEXTS = {text: list(text) for text in (
    "今天天气很好", "我们去公园散步", "他昨天没有来上班")}
TEXTS["Banker as 好"] = ["bank", "##er", "a", "##s", "好"]
STEPS = 20


def write_model(folder, make):
  """Writes what programs read; returns (configuration, weights)."""
  config = make(vocab_size=len(TOKENS), max_position_embeddings=16)
  write(folder, "texts.tsv", *(
      "%s\t%d" % (text, i % 2) for i, text in enumerate(TEXTS)))
  return config, write_folder(folder, config, TOKENS, {
      "output_weights": np.eye(2, 24), "output_bias": np.array([0.5, -0.5])})


def make_features(**labels):
  ids = np.zeros([len(TEXTS), 16], np.int32)
  for row, tokens in zip(ids, TEXTS.values()):
    row[:len(tokens) + 2] = [TOKENS.index(token) for token in (
        "[CLS]", *tokens, "[SEP]")]
  return dict(labels, input_ids=ids, input_mask=np.sign(ids),
              segment_ids=0 * ids)


@pytest.mark.slow
@pytest.mark.parametrize("make", [
    albert_zh_config, small_steps.full(google_config)])
def test_a_classifier_with_placeholders(make, tmp_path, monkeypatch):
  """The same tokens, and the losses of this project's own step."""
  config, weights = write_model(tmp_path, make)
  features = make_features(
      label_ids=np.arange(len(TEXTS), dtype=np.int32) % 2)
  monkeypatch.setenv("PYTHONPATH", str(ROOT))
  monkeypatch.setattr(modeling.AlbertModel, "dropout",
                      lambda model, x, *args, **kwargs: x)
  monkeypatch.setattr(small_steps, "start_value", lambda name, _: weights[name])
  for optimizer in ("adamw", "lamb"):
    wanted, _ = small_steps.train(STEPS, small_steps.make_options(
        learning_rate=2e-3, optimizer=optimizer), [features] * STEPS,
                                  head=Classifier(2), **config)
    status, out, log = run(
        "tests/older/sentiment.py", tmp_path, STEPS, optimizer)
    assert status == 0, log
    *losses, predicted = out.splitlines()
    np.testing.assert_allclose(
        list(map(float, losses)), wanted, rtol=1e-5, atol=1e-5)
    assert wanted[-1] < 0.8 * wanted[0]
    assert re.fullmatch("[01]( [01]){%d}" % (len(TEXTS) - 1), predicted)


@pytest.mark.slow
@pytest.mark.parametrize("make", [
    google_config, small_steps.full(albert_zh_config)])
@pytest.mark.parametrize("optimizer", [
    optimization.AdamWeightDecayOptimizer, LAMBOptimizer])
def test_a_tagger_with_an_estimator(make, optimizer, tmp_path):
  write_model(tmp_path, make)
  config = modeling.AlbertConfig.from_json_file(str(tmp_path / "config.json"))
  checkpoint = str(tmp_path / "model.ckpt-7")
  features = make_features()
  tags = features["input_ids"] % 2

  def model_fn(features, mode):
    model = modeling.AlbertModel(
        config, mode == tf.estimator.ModeKeys.TRAIN, features["input_ids"],
        features["input_mask"], features["segment_ids"], False)
    hidden = model.get_sequence_output()
    shape = modeling.get_shape_list(hidden, expected_rank=3)
    logits = tf.reshape(tf.layers.dense(
        tf.reshape(hidden, [-1, shape[2]]), 2, name="tags",
        kernel_initializer=modeling.create_initializer(0.02)), [-1, 16, 2])
    loss = tf.losses.sparse_softmax_cross_entropy(
        tags, logits, features["input_mask"])
    tvars = tf.trainable_variables()
    assignment_map, _ = modeling.get_assignment_map_from_checkpoint(
        tvars, checkpoint)
    tf.train.init_from_checkpoint(checkpoint, assignment_map)
    global_step = tf.train.get_or_create_global_step()
    grads, _ = tf.clip_by_global_norm(tf.gradients(loss, tvars), clip_norm=1.0)
    train_op = optimizer(
        learning_rate=3e-3, weight_decay_rate=0.01, beta_1=0.9, beta_2=0.999,
        epsilon=1e-6, exclude_from_weight_decay=["LayerNorm", "bias"]
    ).apply_gradients(zip(grads, tvars), global_step=global_step)
    return tf.estimator.EstimatorSpec(
        mode, {"tags": tf.argmax(logits, -1)}, loss,
        tf.group(train_op, [global_step.assign(global_step + 1)]))

  def input_fn():
    return tf.data.Dataset.from_tensors(features).repeat()

  estimator = tf.estimator.Estimator(
      model_fn, str(tmp_path / "out"), tf.estimator.RunConfig(tf_random_seed=1))
  estimator.train(input_fn, steps=40)
  found = next(estimator.predict(input_fn, yield_single_examples=False))["tags"]
  assert np.average(found == tags, weights=features["input_mask"]) > 0.75


@pytest.mark.slow
@pytest.mark.parametrize("make", [albert_zh_config, google_config])
def test_vectors_of_tokens(make, tmp_path):
  """As BERT's extract_features.py and its copies make them."""
  config, weights = write_model(tmp_path, make)
  vocab = tokenization.load_vocab(str(tmp_path / "vocab.txt"))
  basic = tokenization.BasicTokenizer(do_lower_case=True)
  wordpiece = tokenization.WordpieceTokenizer(vocab=vocab)
  text = next(iter(TEXTS))
  tokens = ["[CLS]", *(
      piece for token in basic.tokenize(tokenization.convert_to_unicode(text))
      for piece in wordpiece.tokenize(token)), "[SEP]"]
  assert [tokenization.printable_text(token) for token in tokens] == [
      "[CLS]", *text, "[SEP]"]
  ids = tokenization.convert_tokens_to_ids(vocab, tokens)
  assert ids == list(map(TOKENS.index, tokens))
  assert tokenization.convert_ids_to_tokens(TOKENS, ids) == tokens
  ones = np.ones([1, len(ids)], np.int32)
  made = modeling_google.AlbertModel(
      config=modeling_google.AlbertConfig.from_json_file(
          str(tmp_path / "config.json")), is_training=False,
      input_ids=tf.constant([ids]), input_mask=tf.constant(ones),
      token_type_ids=tf.zeros_like(ones))
  assert made.get_embedding_table().shape.as_list() == [
      config["vocab_size"], config["embedding_size"]]
  checkpoint = str(tmp_path / "model.ckpt-7")
  assignment_map, _ = modeling_google.get_assignment_map_from_checkpoint(
      tf.trainable_variables(), checkpoint)
  tf.train.init_from_checkpoint(checkpoint, assignment_map)
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    found = session.run([made.get_embedding_output()] + made.all_encoder_layers)
  wanted = reference.forward(weights, config, [ids], ones, 0 * ones)
  np.testing.assert_allclose(found, [wanted["embedding_output"],
                                     *wanted["all_layers"]], atol=1e-5)


def test_small_functions():
  x = tf.constant([[1.0, 3.0], [2.0, 2.0]])
  assert modeling.get_shape_list(x) == modeling.get_shape_list(x, [2, 3]) == [
      2, 2]
  with pytest.raises(ValueError, match="rank 3"):
    modeling.get_shape_list(x, expected_rank=3)
  assert modeling.get_activation("linear") is None
  assert modeling.get_activation(tf.tanh) is tf.tanh
  relu = modeling.get_activation("relu")(x - 2)
  for _ in range(2):  # each with variables of its own
    normal = modeling.layer_norm_and_dropout(x, None)
  assert [v.op.name for v in tf.global_variables()] == [
      "LayerNorm/beta", "LayerNorm/gamma", "LayerNorm_1/beta",
      "LayerNorm_1/gamma"]
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    normal, relu, values = session.run([
        normal, relu, modeling.dropout(tf.ones([1000]), 0.25)])
  np.testing.assert_allclose(normal, [[-1, 1], [0, 0]], atol=1e-5)
  np.testing.assert_array_equal(relu, [[0, 1], [0, 0]])
  assert set(np.round(values, 4)) == {0, np.float32(1.3333)}
  assert 650 < np.count_nonzero(values) < 850


@pytest.mark.parametrize("theirs, own, settings", [
    (optimization.AdamWeightDecayOptimizer, optimization.AdamW, (0.1, 0.01)),
    (LAMBOptimizer, LAMB, (0.1, 0.01, 0.8, 0.99, 1e-5))])
def test_optimizers_leave_the_global_step(theirs, own, settings):
  def train(make):
    with tf.Graph().as_default(), tf.Session() as session:
      x = tf.get_variable("x", initializer=[1.0, -2.0])
      step = tf.train.get_or_create_global_step()
      train = make(*settings, exclude_from_weight_decay=["bias"]).minimize(
          tf.reduce_sum(x * x), step)
      session.run(tf.global_variables_initializer())
      for _ in range(3):
        session.run(train)
      return session.run([x, step])

  (found, found_step), (wanted, step) = train(theirs), train(own)
  np.testing.assert_allclose(found, wanted, rtol=1e-6)
  assert (found_step, step) == (0, 3)


def test_a_tokenizer_knows_its_vocabulary(tmp_path):
  tokenizer = tokenization.FullTokenizer(write(tmp_path, "vocab.txt", *TOKENS))
  assert tokenizer.vocab == {token: i for i, token in enumerate(TOKENS)}
  assert tokenizer.inv_vocab[3] == "[SEP]"
  # As in BERT, what looks like a special token is text.
  assert tokenizer.tokenize("我Banker[MASK]".encode()) == [
      "我", "bank", "##er", "[UNK]", "[UNK]", "[UNK]"]
  with pytest.raises(KeyError):
    tokenizer.convert_tokens_to_ids(["unheard"])
  assert tokenization.BasicTokenizer(do_lower_case=False).tokenize(
      "我 Banker, ok") == ["我", "Banker", ",", "ok"]
  assert tokenization.WordpieceTokenizer(tokenizer.vocab).tokenize(
      "as x") == ["a", "##s", "[UNK]"]


@pytest.mark.parametrize("name, is_lower", [
    ("uncased", True), ("cased", False), ("multi_cased", False),
    ("chinese", True), ("multilingual", True)])
def test_the_case_of_released_models(name, is_lower):
  path = "/models/%s_L-12_H-768_A-12/bert_model.ckpt" % name
  tokenization.validate_case_matches_checkpoint(is_lower, path)
  with pytest.raises(ValueError, match=name):
    tokenization.validate_case_matches_checkpoint(not is_lower, path)
  tokenization.validate_case_matches_checkpoint(not is_lower, "albert_tiny")
