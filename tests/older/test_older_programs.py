"""Typical public BERT programs on the older modules."""

import numpy as np
import pytest
import reference_albert as reference
import small_steps
import tensorflow.compat.v1 as tf
from small_models import albert_zh_config, google_config, write_folder
from writing import write

import modeling
import modeling_google
import optimization
import tokenization
from albert.heads import Classifier
from lamb_optimizer import LAMB, LAMBOptimizer

TOKENS = [
  "[PAD]",
  "[UNK]",
  "[CLS]",
  "[SEP]",
  "[MASK]",
  "bank",
  "##er",
  "a",
  "##s",
  *"今天气很好我们去公园散步他昨没有来上班",
]
TEXTS = {
  text: list(text)
  for text in ("今天天气很好", "我们去公园散步", "他昨天没有来上班")
}
TEXTS["Banker as 好"] = ["bank", "##er", "a", "##s", "好"]


def write_model(folder, make):
  """Writes a model folder; returns (configuration, weights)."""
  config = make(vocab_size=len(TOKENS), max_position_embeddings=16)
  return config, write_folder(
    folder,
    config,
    TOKENS,
    {"output_weights": np.eye(2, 24), "output_bias": np.array([0.5, -0.5])},
  )


def restore(folder, module=modeling):
  """Loads matching variables; returns the names of the others."""
  tvars, checkpoint = tf.trainable_variables(), str(folder / "model.ckpt-7")
  assignment_map, initialized = module.get_assignment_map_from_checkpoint(
    tvars, checkpoint
  )
  tf.train.init_from_checkpoint(checkpoint, assignment_map)
  return [var.name for var in tvars if var.name not in initialized]


def make_features(**labels):
  ids = np.zeros([len(TEXTS), 16], np.int32)
  for row, tokens in zip(ids, TEXTS.values()):
    row[: len(tokens) + 2] = [
      TOKENS.index(token) for token in ("[CLS]", *tokens, "[SEP]")
    ]
  return dict(
    labels, input_ids=ids, input_mask=np.sign(ids), segment_ids=0 * ids
  )


@pytest.mark.slow
@pytest.mark.parametrize(
  "make, optimizer",
  [(albert_zh_config, "lamb"), small_steps.full(google_config, "adamw")],
)
def test_a_classifier_with_placeholders(make, optimizer, tmp_path, monkeypatch):
  """Its losses equal those of this project's training step."""
  sizes, weights = write_model(tmp_path, make)
  features = make_features(label_ids=np.array([0, 1, 0, 1], np.int32))
  small_steps.without_dropout(monkeypatch)
  monkeypatch.setattr(small_steps, "start_value", lambda name, _: weights[name])
  options = small_steps.make_options(learning_rate=2e-3, optimizer=optimizer)
  wanted, _ = small_steps.train(
    20, options, [features] * 20, head=Classifier(2), **sizes
  )

  config = modeling.BertConfig.from_json_file(str(tmp_path / "config.json"))
  input_ids = tf.placeholder(tf.int32, [None, 16])
  labels = tf.placeholder(tf.int32, [None])
  model = modeling.BertModel(
    config=config,
    is_training=True,
    input_ids=input_ids,
    input_mask=tf.sign(input_ids),
    token_type_ids=None,
    use_one_hot_embeddings=False,
  )
  output_layer = modeling.dropout(model.get_pooled_output(), 0.0)
  output_weights = tf.get_variable(
    "output_weights",
    [2, output_layer.shape.as_list()[-1]],
    initializer=modeling.create_initializer(config.initializer_range),
  )
  output_bias = tf.get_variable("output_bias", [2])
  loss = tf.losses.sparse_softmax_cross_entropy(
    labels,
    tf.nn.bias_add(
      tf.matmul(output_layer, output_weights, transpose_b=True), output_bias
    ),
  )
  train_op = optimization.create_optimizer(
    loss, 2e-3, 20, 3, False, optimizer=optimizer
  )
  assert not restore(tmp_path)
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    feed = {input_ids: features["input_ids"], labels: features["label_ids"]}
    found = [session.run([loss, train_op], feed)[0] for _ in range(20)]
  np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
  assert found[-1] < 0.8 * found[0]


@pytest.mark.slow
@pytest.mark.parametrize(
  "make, optimizer",
  [
    (google_config, optimization.AdamWeightDecayOptimizer),
    small_steps.full(albert_zh_config, LAMBOptimizer),
  ],
)
def test_a_tagger_with_an_estimator(make, optimizer, tmp_path):
  write_model(tmp_path, make)
  config = modeling.AlbertConfig.from_json_file(str(tmp_path / "config.json"))
  features = make_features()
  tags = features["input_ids"] % 2

  def model_fn(features, mode):
    model = modeling.AlbertModel(
      config,
      mode == tf.estimator.ModeKeys.TRAIN,
      features["input_ids"],
      features["input_mask"],
      features["segment_ids"],
      False,
    )
    logits = tf.layers.dense(
      model.get_sequence_output(),
      2,
      name="tags",
      kernel_initializer=modeling.create_initializer(0.02),
    )
    loss = tf.losses.sparse_softmax_cross_entropy(
      tags, logits, features["input_mask"]
    )
    assert restore(tmp_path) == ["tags/kernel:0", "tags/bias:0"]
    tvars = tf.trainable_variables()
    global_step = tf.train.get_or_create_global_step()
    grads, _ = tf.clip_by_global_norm(tf.gradients(loss, tvars), clip_norm=1.0)
    train_op = optimizer(
      learning_rate=3e-3,
      weight_decay_rate=0.01,
      beta_1=0.9,
      beta_2=0.999,
      epsilon=1e-6,
      exclude_from_weight_decay=["LayerNorm", "bias"],
    ).apply_gradients(zip(grads, tvars), global_step=global_step)
    return tf.estimator.EstimatorSpec(
      mode,
      {"tags": tf.argmax(logits, -1)},
      loss,
      tf.group(train_op, [global_step.assign(global_step + 1)]),
    )

  def input_fn():
    return tf.data.Dataset.from_tensors(features).repeat()

  estimator = tf.estimator.Estimator(
    model_fn, str(tmp_path / "out"), tf.estimator.RunConfig(tf_random_seed=1)
  )
  estimator.train(input_fn, steps=40)
  found = next(estimator.predict(input_fn, yield_single_examples=False))["tags"]
  assert np.average(found == tags, weights=features["input_mask"]) > 0.75


@pytest.mark.slow
@pytest.mark.parametrize("make", [albert_zh_config, google_config])
def test_vectors_of_tokens(make, tmp_path):
  """As in BERT's extract_features.py and its copies."""
  config, weights = write_model(tmp_path, make)
  features = make_features()
  input_ids, input_mask, token_type_ids = map(tf.constant, features.values())
  made = modeling_google.AlbertModel(
    modeling_google.AlbertConfig.from_json_file(str(tmp_path / "config.json")),
    is_training=False,
    input_ids=input_ids,
    input_mask=input_mask,
    token_type_ids=token_type_ids,
  )
  assert made.get_embedding_table().shape.as_list() == [
    config["vocab_size"],
    config["embedding_size"],
  ]
  restore(tmp_path, modeling_google)
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    found = session.run([made.get_embedding_output()] + made.all_encoder_layers)
  wanted = reference.forward(weights, config, *features.values())
  np.testing.assert_allclose(
    found, [wanted["embedding_output"], *wanted["all_layers"]], atol=1e-5
  )


def test_small_functions():
  x = tf.constant([[1.0, 3.0], [2.0, 2.0]])
  assert (
    modeling.get_shape_list(x) == modeling.get_shape_list(x, [2, 3]) == [2, 2]
  )
  with pytest.raises(ValueError, match="rank 3"):
    modeling.get_shape_list(x, expected_rank=3)
  assert modeling.get_activation("linear") is None
  assert modeling.get_activation(tf.tanh) is tf.tanh
  relu = modeling.get_activation("relu")(x - 2)
  for _ in range(2):  # new variables each time
    normal = modeling.layer_norm_and_dropout(x, None)
  assert [v.op.name for v in tf.global_variables()] == [
    "LayerNorm" + name for name in ("/beta", "/gamma", "_1/beta", "_1/gamma")
  ]
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    normal, relu, values = session.run(
      [normal, relu, modeling.dropout(tf.ones([1000]), 0.25)]
    )
  np.testing.assert_allclose(normal, [[-1, 1], [0, 0]], atol=1e-5)
  np.testing.assert_array_equal(relu, [[0, 1], [0, 0]])
  assert set(np.round(values, 4)) == {0, np.float32(1.3333)}
  assert 650 < np.count_nonzero(values) < 850


@pytest.mark.parametrize(
  "theirs, own, settings",
  [
    (optimization.AdamWeightDecayOptimizer, optimization.AdamW, (0.1, 0.01)),
    (LAMBOptimizer, LAMB, (0.1, 0.01, 0.8, 0.99, 1e-5)),
  ],
)
def test_optimizers_leave_the_global_step(theirs, own, settings):
  def train(make):
    with tf.Graph().as_default(), tf.Session() as session:
      x = tf.get_variable("x", initializer=[1.0, -2.0])
      step = tf.train.get_or_create_global_step()
      train = make(*settings, exclude_from_weight_decay=["bias"]).minimize(
        tf.reduce_sum(x * x), step
      )
      session.run(tf.global_variables_initializer())
      for _ in range(3):
        session.run(train)
      return session.run([x, step])

  (found, found_step), (wanted, step) = train(theirs), train(own)
  np.testing.assert_allclose(found, wanted, rtol=1e-6)
  assert (found_step, step) == (0, 3)


def test_a_tokenizer_knows_its_vocabulary(tmp_path):
  path = write(tmp_path, "vocab.txt", *TOKENS)
  tokenizer = tokenization.FullTokenizer(vocab_file=path, do_lower_case=True)
  vocab, inv_vocab = tokenizer.vocab, tokenizer.inv_vocab
  assert vocab == tokenization.load_vocab(path) == dict(zip(TOKENS, range(99)))
  for text, tokens in TEXTS.items():
    assert tokenizer.tokenize(text) == tokens
    ids = tokenization.convert_tokens_to_ids(vocab, tokens)
    assert (
      ids
      == tokenizer.convert_tokens_to_ids(tokens)
      == [TOKENS.index(token) for token in tokens]
    )
    assert (
      tokens
      == tokenizer.convert_ids_to_tokens(ids)
      == (tokenization.convert_ids_to_tokens(inv_vocab, ids))
    )
    assert tokens == list(map(tokenization.printable_text, tokens))
  # As in BERT, special tokens in a text are plain text.
  assert tokenizer.tokenize("我Banker[MASK]".encode()) == [
    "我",
    "bank",
    "##er",
    "[UNK]",
    "[UNK]",
    "[UNK]",
  ]
  with pytest.raises(KeyError):
    tokenizer.convert_tokens_to_ids(["unheard"])
  assert tokenization.BasicTokenizer(do_lower_case=False).tokenize(
    "我 Banker, ok"
  ) == ["我", "Banker", ",", "ok"]
  assert tokenization.WordpieceTokenizer(vocab=vocab).tokenize("as x") == [
    "a",
    "##s",
    "[UNK]",
  ]


def test_the_case_of_released_models():
  check = tokenization.validate_case_matches_checkpoint
  for name in "uncased cased multi_cased chinese multilingual".split():
    path = "/models/%s_L-12_H-768_A-12/bert_model.ckpt" % name
    is_lower = name not in ("cased", "multi_cased")
    check(is_lower, path)
    with pytest.raises(ValueError, match=name):
      check(not is_lower, path)
    check(not is_lower, "albert_tiny")
