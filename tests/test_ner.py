"""Named entities: files, characters and tokens, CRF, training, what is left."""

import contextlib
import itertools
import json
import types

import numpy as np
import pytest
import scripting
import tensorflow.compat.v1 as tf
import tpu_step
from scripting import VOCAB, fail, results, succeed

import modeling
import tokenization
from tasks import metrics, ner
from tasks.ner import Entity, Example
from train import crf, estimators, finetuning, tagger
from util import checkpoints
from util.errors import InputError

VOCAB_FILE = VOCAB.split("=")[1]
LABELS = ner.labels_of(["b", "a"])


def texts_of(examples, tokenizer=None, length=16, by_character=True, **kwargs):
  return ner.Texts(examples, tokenizer or tokenization.create_tokenizer(
      VOCAB_FILE), LABELS, length, by_character, **kwargs)


# ---- Characters and tokens.


@pytest.mark.parametrize("name, count", [
    ("train.json", 10747), ("dev.json", 1343)])
def test_all_entities_of_cluener_come_back(real_data, name, count, caplog):
  examples = ner.read_examples(str(real_data / "cluener" / name),
                               skip_bad_rows=True)
  assert len(examples) == count
  if name == "train.json":  # the one row that cannot be labelled
    assert "skipped 1 bad row(s)" in caplog.text
    assert "train.json:1507: " in caplog.text
    with pytest.raises(InputError, match=":1507: .* overlap; correct it, or"):
      ner.read_examples(str(real_data / "cluener" / name))
  labels = ner.labels_of(entity.kind for example in examples
                         for entity in example.entities)
  assert len(labels) == 21
  tokenizer = tokenization.create_tokenizer(VOCAB_FILE)
  # Few texts fit one window.
  texts = ner.Texts(examples, tokenizer, labels, 24, True)
  assert len(texts.windows) > 2 * count
  one_hot = np.eye(len(labels), dtype=np.int32)
  found = texts.join([one_hot[texts.make_features(window)["label_ids"]]
                      for window in texts.windows])
  assert texts.entities([rows.argmax(-1) for rows in found]) == [
      example.entities for example in examples]
  assert texts.count_inexact() == 0
  if name == "dev.json":  # four begin or end inside a piece of a word
    texts = ner.Texts(examples, tokenizer, labels, 24, by_character=False)
    assert texts.count_inexact() == 4


def entities_in(text, *marked):
  """Returns the Example of a text and the words of its entities, in order."""
  entities, end = [], 0
  for words, kind in marked:
    start = text.index(words, end)
    end = start + len(words)
    entities.append(Entity(start, end, kind))
  return Example(0, text, entities)


MADE = [
    entities_in("  我 在 New York  大学2021年 ", ("New York  大学", "a"),
                ("2021", "b")),
    entities_in("iPhone😀12 Pro，😀👨‍👩‍👧好", ("12 Pro", "a"), ("👨‍👩‍👧", "b")),
    entities_in("北\x00京\u200b市\ufffd的\u3000人", ("北\x00京", "a"),
                ("市", "b"), ("人", "a")),
    entities_in("Cafe\u0301 Zürich ΣΑΣ 가나 İstanbul", ("Cafe\u0301", "a"),
                ("ΣΑΣ", "b"), ("가나", "a"), ("İstanbul", "b")),
    entities_in("甲乙丙丁" * 9, ("丙丁甲" * 1, "a"), ("乙丙", "b")),
    Example(0, "一二三四五六七八九十" * 3, [Entity(1, 27, "a"),
                                  Entity(27, 30, "a")]),
    Example(0, "\u200b\x00", []), Example(0, "空", [])]


@pytest.mark.parametrize("by_character", [True, False])
@pytest.mark.parametrize("length", [5, 8, 64])
@pytest.mark.parametrize("lower", [True, False])
def test_entities_of_made_texts_come_back(by_character, length, lower):
  tokenizer = tokenization.create_tokenizer(VOCAB_FILE, None, lower)
  examples = [example for example in MADE if by_character or "😀" not in
              example.text]  # which the pieces take for part of a word
  texts = texts_of(examples, tokenizer, length, by_character)
  assert texts.entities(texts.label_ids) == [
      example.entities for example in examples]
  one_hot = np.eye(5, dtype=np.int32)
  joined = texts.join([one_hot[texts.make_features(window)["label_ids"]]
                       for window in texts.windows])
  for rows, label_ids in zip(joined, texts.label_ids):
    np.testing.assert_array_equal(rows.argmax(-1), label_ids)
  for window in texts.windows:
    features = texts.make_features(window)
    assert len({len(value) for value in features.values()}) == 1
    assert len(features["input_ids"]) <= length
    assert not features["label_mask"][0] and not features["label_mask"][-1]


def test_entities_of_sentencepiece_come_back(real_data):
  (model,) = (real_data / "sentencepiece").glob("*.model")
  tokenizer = tokenization.create_tokenizer(None, str(model))
  example = entities_in("Angela Merkel besucht  die TU München.",
                        ("Angela Merkel", "a"), ("TU München", "b"))
  for by_character in (True, False):
    texts = texts_of([example], tokenizer, 8, by_character)
    assert texts.entities(texts.label_ids) == [example.entities]


def test_a_token_that_an_entity_begins_or_ends_in_belongs_to_it():
  example = entities_in("第3d厅", ("第3", "a"), ("d厅", "b"))
  texts = texts_of([example], by_character=False)
  assert texts.spans[0].tolist() == [[0, 1], [1, 3], [3, 4]]
  assert [LABELS[i] for i in texts.label_ids[0]] == ["B-a", "I-a", "B-b"]
  assert texts.entities(texts.label_ids)[0] == [(0, 3, "a"), (3, 4, "b")]
  assert texts.count_inexact() == 2
  assert texts_of([example]).count_inexact() == 0


class Letters:
  """A tokenizer whose tokens are the characters, for cases worked by hand."""
  cls_id, sep_id = 1, 2

  def tokenize_plain(self, text):
    return list(text)

  def convert_tokens_to_ids(self, tokens):
    return [ord(token) for token in tokens]


def test_each_token_is_decided_where_it_has_most_context():
  texts = texts_of([Example("x", "abcdefgh", [Entity(3, 5, "a")])], Letters(),
                   6, doc_stride=2)
  rows = [texts.make_features(window) for window in texts.windows]
  assert ["".join(map(chr, row["input_ids"][1:-1])) for row in rows] == [
      "abcd", "cdef", "efgh"]
  # d is third of four in the first window and second in the second.
  assert [row["label_mask"] for row in rows] == [
      [0, 1, 1, 1, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 1, 1, 1, 0]]
  assert [row["label_ids"] for row in rows] == [
      [0, 0, 0, 0, 1, 0], [0, 0, 1, 2, 0, 0], [0, 2, 0, 0, 0, 0]]
  for bad in (dict(length=2), dict(length=6, doc_stride=0)):
    with pytest.raises(InputError, match="max_seq_length must be at least 3"):
      texts_of([Example("x", "ab", [])], Letters(), **bad)


# ---- Files.


def write(tmp_path, name, content):
  (tmp_path / name).write_text(content, encoding="utf-8")
  return "file://%s" % (tmp_path / name)


def test_cluener_layout(tmp_path):
  row = {"text": "李小明在北京北京", "label": {
      "name": {"李小明": [[0, 2]]}, "address": {"北京": [[6, 7], [4, 5]]}}}
  lines = [json.dumps(dict(row, **more)) + "\r\n" for more in ({}, {"id": 7})]
  path = write(tmp_path, "train.json", "\ufeff" + "\n".join(lines))
  entities = [(0, 3, "name"), (4, 6, "address"), (6, 8, "address")]
  examples = ner.read_examples(path)
  assert examples == [Example(0, row["text"], entities),
                      Example(7, row["text"], entities)]
  assert ner.submission(examples[1], entities) == {
      "id": 7, "label": {"name": {"李小明": [[0, 2]]},
                         "address": {"北京": [[4, 5], [6, 7]]}}}
  assert ner.with_offsets(examples[0], entities)["entities"][0] == {
      "kind": "name", "start": 0, "end": 3, "text": "李小明"}
  assert ner.marked(row["text"], entities) == (
      "[李小明](name)在[北京](address)[北京](address)")
  path = write(tmp_path, "test.json", '{"id": 3, "text": "a"}\n')
  assert ner.read_examples(path, True) == [Example(3, "a", None)]


# Entities of one, two and three rows, two in a row.
SCHEMES = {
    "BIO": "B-a I-a B-a B-b I-b I-b O",
    "BIOES": "B-a E-a S-a B-b I-b E-b O",
    "BILOU": "B_a L_a U_a B_b I_b L_b O",
    "BMES": "B-a E-a S-a B-b M-b E-b O",
    "BMEO": "B-a E-a B-a B-b M-b E-b O",
}


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_columns(scheme, tmp_path):
  """The scheme follows from the file; characters are put together as is."""
  tags = SCHEMES[scheme].split()
  rows = "".join("%s\tx %s\n" % pair for pair in zip("甲 AB9\u2028乙", tags))
  path = write(tmp_path, "train.txt",
               "-DOCSTART- -X- O\n\n%s\n\n%s" % (rows, rows.strip("\n")))
  kinds = [(0, 2, "a"), (2, 3, "a"), (3, 6, "b")]
  assert ner.read_examples(path) == [
      Example(number, "甲 AB9\u2028乙", kinds) for number in range(2)]


def test_words_of_columns(tmp_path):
  path = write(tmp_path, "dev.bio", "\n".join([
      "Angela B-a", "Merkel I-a", "visits O", "7 O", "universities O", ", O",
      "TU B-b", "in O", "北京 B-b", "C O", "B O", "A O", "7 O"]) + "\n")
  (example,) = ner.read_examples(path)
  assert example.text == "Angela Merkel visits 7 universities,TU in北京CBA7"
  assert [example.text[start:end] for start, end, _ in example.entities] == [
      "Angela Merkel", "TU", "北京"]
  path = write(tmp_path, "test.txt", "甲\n乙\n\n丙\n")
  assert ner.read_examples(path, True) == [
      Example(0, "甲乙", None), Example(1, "丙", None)]


def cluener(text="甲乙丙", **label):
  return json.dumps({"text": text, "label": label})


@pytest.mark.parametrize("name, content, message", [
    ("a.json", "{", "a.json:1: .*; correct it, or leave such rows out with"),
    ("a.json", "\n[]", 'a.json:2: not a JSON object with a "text"'),
    ("a.json", '{"text": "\\ud83d", "label": {}}', "a.json:1: .*surrogates"),
    ("a.json", '{"text": "甲"}', "a.json:1: the labels are missing"),
    ("a.json", cluener(" "), "a.json:1: the text is empty"),
    ("a.json", cluener(x={"乙丙": [[1, 3]]}), "1 to 3 of .* are not '乙丙'"),
    ("a.json", cluener(x={"乙": [[-2, -2]]}), "-2 to -2 of .* are not '乙'"),
    ("a.json", cluener(x={"甲": [[1, 1]]}), "1 to 1 of .* are not '甲'"),
    ("a.json", cluener(x={"甲": [0, 0]}), '"label" is not {kind: {entity'),
    ("a.json", cluener(x={"甲乙": [[0, 1]]}, y={"乙": [[1, 1]]}),
     "a.json:1: '甲乙' and '乙' overlap"),
    ("a.json", "", "a.json: has no texts"),
    ("a.txt", "甲 O\n\n乙 X-a\n", "a.txt:3: unknown tag 'X-a': tags are O, or"),
    ("a.txt", "甲 B\n", "a.txt:1: unknown tag 'B'"),
    ("a.txt", "甲 O\n乙\n", "a.txt:2: unknown tag ''"),
    ("a.txt", "甲\n", "a.txt:1: the labels are missing"),
    ("a.txt", "甲 O\n乙 I-a\n", "a.txt:2: I-a without B-a before it"),
    ("a.txt", "甲 B-a\n乙 I-b\n", "a.txt:2: I-b without B-b before it"),
    ("a.txt", "甲 O\n乙 E-a\n", "a.txt:2: E-a without B-a before it"),
    ("a.txt", "甲 S-a\n乙 E-a\n", "a.txt:2: E-a without B-a before it"),
    ("a.txt", "甲 B-a\n乙 E-a\n丙 I-a\n", "a.txt:3: I-a without B-a"),
    ("a.txt", "甲 B-a\n乙 O\n\n丙 S-a\n", "a.txt:2: .* kind a has no end"),
    ("a.txt", "甲 B-a\n乙 M-a\n\n丙 B-a\n丙 E-a\n",
     "a.txt:2: an entity of kind a has no end before O"),
    ("a.txt", "甲 B-a\n乙 I-a\n丙 M-a\n",
     r"a.txt:3: tags of two schemes, M- and I- \(line 2\): use one"),
])
def test_bad_rows_are_named(tmp_path, name, content, message):
  path = write(tmp_path, name, content)
  with pytest.raises(InputError, match=message):
    ner.read_examples(path)


def test_bad_rows_can_be_left_out_but_not_of_a_test_file(tmp_path, caplog):
  good, bad = '{"text": "甲", "label": {}}\n', '{"text": 5, "label": {}}\n'
  path = write(tmp_path, "a.json", bad + good + bad)
  assert ner.read_examples(path, skip_bad_rows=True) == [Example(0, "甲", [])]
  assert "skipped 2 bad row(s), the first: file:" in caplog.text
  with pytest.raises(InputError, match='a.json:1: .*"text"; correct it$'):
    ner.read_examples(path, True, skip_bad_rows=True)
  path = write(tmp_path, "test.json", good + '{"text": "乙"}\n')
  with pytest.raises(InputError, match="1 of 2 texts have no labels"):
    ner.read_examples(path, True)


def test_scores():
  true = [[Entity(0, 2, "a"), Entity(3, 4, "b")], [Entity(0, 1, "a")], []]
  claimed = [[Entity(0, 2, "a"), Entity(3, 4, "a")], [Entity(0, 1, "a")],
             [Entity(0, 2, "c")]]
  found, report = metrics.entities(true, claimed)
  assert found == {"precision": 0.5, "recall": 2 / 3, "f1": 4 / 7}
  assert [line.split() for line in report.splitlines()] == [
      ["kind", "precision", "recall", "f1", "entities"],
      ["a", "0.6667", "1.0000", "0.8000", "2"],
      ["b", "0.0000", "0.0000", "0.0000", "1"],
      ["c", "0.0000", "0.0000", "0.0000", "0"],
      ["all", "0.5000", "0.6667", "0.5714", "3"]]
  assert metrics.entities([[]], [[]])[0] == dict.fromkeys(found, 0.0)


# ---- CRF.

NUM_LABELS, LENGTH = 5, 6
MASK = np.array([[1] * 6, [0, 1, 1, 1, 1, 0], [0, 0, 0, 1, 0, 0], [0] * 6],
                np.float64)


def random_crf(seed=0):
  rng = np.random.RandomState(seed)
  return (rng.normal(size=[4, LENGTH, NUM_LABELS]),
          rng.randint(NUM_LABELS, size=[4, LENGTH]),
          rng.normal(size=[NUM_LABELS, NUM_LABELS]),
          rng.normal(size=[NUM_LABELS]))


def score_of(labels, scores, transitions):
  return sum(row[label] for row, label in zip(scores, labels)) + sum(
      transitions[pair] for pair in zip(labels, labels[1:]))


def sequences(length):
  return itertools.product(range(NUM_LABELS), repeat=length)


@contextlib.contextmanager
def log_likelihood(labels, static=True):
  """Yields a function of scores and transitions, and that of its gradients."""
  with tf.Graph().as_default(), tf.Session() as session:
    inputs = [tf.placeholder(tf.float64, shape) for shape in (
        labels.shape + (NUM_LABELS,) if static else [None, None, NUM_LABELS],
        [NUM_LABELS] * 2)]
    found = crf.log_likelihood(inputs[0], tf.constant(labels),
                               tf.constant(MASK), inputs[1])
    yield [session.make_callable(output, inputs)
           for output in (found, tf.gradients(found, inputs))]


@pytest.mark.parametrize("static", [True, False])
def test_log_likelihood_is_that_of_all_sequences(static):
  scores, labels, transitions, _ = random_crf()
  with log_likelihood(labels, static) as (run, _):
    found = run(scores, transitions)
  for row in range(4):
    places = np.flatnonzero(MASK[row])
    every = [score_of(y, scores[row, places], transitions)
             for y in sequences(len(places))]
    own = score_of(labels[row, places], scores[row, places], transitions)
    assert found[row] == pytest.approx(own - np.log(np.sum(np.exp(every))))


def test_gradient_is_that_of_finite_differences():
  scores, labels, transitions, _ = random_crf(1)
  rng = np.random.RandomState(2)
  with log_likelihood(labels) as (run, run_gradients):
    gradients = run_gradients(scores, transitions)
    for _ in range(10):
      moves = [1e-5 * rng.normal(size=x.shape) for x in (scores, transitions)]
      ends = [run(scores + sign * moves[0], transitions + sign * moves[1]).sum()
              for sign in (1, -1)]
      assert sum((gradient * move).sum() for gradient, move in zip(
          gradients, moves)) == pytest.approx((ends[0] - ends[1]) / 2, rel=1e-6)


def run_viterbi(scores, mask, transitions, starts, **kwargs):
  with tf.Graph().as_default(), tf.Session() as session:
    tensors = [tf.constant(x, tf.float32)
               for x in (scores, mask, transitions, starts)]
    return session.run(crf.viterbi(*tensors, **kwargs))


@pytest.mark.parametrize("scan", [tf.scan, crf.unrolled_scan])
def test_viterbi_finds_the_best_of_all_sequences(scan):
  scores, _, transitions, starts = random_crf(3)
  found = run_viterbi(scores, MASK, transitions, starts, scan=scan)
  for row in range(4):
    places = np.flatnonzero(MASK[row])
    if len(places):
      best = max(sequences(len(places)), key=lambda y, row=row, places=places: (
          starts[y[0]] + score_of(y, scores[row, places], transitions)))
      assert tuple(found[row, places]) == best
    assert not found[row, MASK[row] == 0].any()


def test_what_the_scheme_forbids_is_never_predicted():
  """Softmax: the best of the sequences that are allowed."""
  def allowed(y):
    names = ["O"] + [LABELS[label] for label in y]
    return all(name[0] != "I" or before[1:] == name[1:]
               for before, name in zip(names, names[1:]))

  assert LABELS == ["O", "B-a", "I-a", "B-b", "I-b"]
  rng = np.random.RandomState(4)
  scores = [30 * rng.normal(size=[length, 5]).astype(np.float32)
            for length in [6] * 20 + [1, 0, 3]]
  transitions, _ = crf.forbidden(LABELS)
  found = tagger.Decoder(LABELS, 7).decode(scores, transitions)
  for x, y in zip(scores, found):
    assert tuple(y) == max(
        filter(allowed, sequences(len(x))),
        key=lambda y, x=x: score_of(y, x, np.zeros([5, 5])))
  assert sum(tuple(x.argmax(-1)) != tuple(y)
             for x, y in zip(scores, found)) > 10
  (only,) = tagger.Decoder(LABELS).decode([scores[-2]], transitions)
  assert not len(only)
  with pytest.raises(InputError, match="'S-a' is not of the scheme BIO"):
    crf.forbidden(["O", "B-a", "I-a", "S-a"])


SIZES = {"vocab_size": 50, "hidden_size": 16, "embedding_size": 8,
         "num_hidden_layers": 1, "num_attention_heads": 2,
         "intermediate_size": 16, "hidden_act": "gelu",
         "max_position_embeddings": 8, "initializer_range": 0.2}


def step_of(use_tpu=False):
  options = types.SimpleNamespace(
      optimizer="adamw", learning_rate=0.01, poly_power=1.0,
      weight_decay_rate=0.01, gradient_accumulation_steps=2,
      recompute_grads=False, use_fp16=False, use_xla=False, use_horovod=False,
      use_tpu=use_tpu, init_checkpoint=None, output_dir="/nowhere", log_steps=1)
  return estimators.model_fn_builder(
      modeling.AlbertConfig(**SIZES), options,
      tagger.head_builder(LABELS, use_crf=True), finetuning._loss_totals, 20)


def make_features():
  rng = np.random.RandomState(0)
  ones = np.ones([4, 8], np.int32)
  mask = np.array([[0] + [1] * 6 + [0], [0, 0, 0] + [1] * 4 + [0]] * 2,
                  np.int32)
  return {"input_ids": rng.randint(50, size=[4, 8]).astype(np.int32),
          "input_mask": ones, "segment_ids": 0 * ones, "label_mask": mask,
          "label_ids": np.array([[0, 0, 1, 2, 2, 3, 0, 0]] * 4, np.int32),
          "number": np.arange(4, dtype=np.int32)}


@pytest.mark.slow
def test_a_step_of_the_crf_compiles_for_a_tpu(monkeypatch):
  ops, shapes = tpu_step.ops(step_of(use_tpu=True), make_features())
  assert not tpu_step.without_kernel(ops)
  assert "GatherNd" not in ops and "Where" not in ops  # sizes not static
  assert all(shape.is_fully_defined() for shape in shapes
             if shape.rank is not None and shape.rank > 1)
  # Compiled, other numbers are drawn.
  monkeypatch.setattr(modeling.AlbertModel, "dropout",
                      lambda model, x, *args, **kwargs: x)
  features = make_features()
  names, losses = sorted(features), []
  for compiled in (False, True):
    with tf.Graph().as_default(), tf.Session() as session:
      inputs = [tf.placeholder(features[name].dtype, features[name].shape)
                for name in names]

      def step(*tensors):
        spec = step_of()(dict(zip(names, tensors)), None,
                         tf.estimator.ModeKeys.TRAIN, {})
        with tf.control_dependencies([spec.train_op]):
          return tf.identity(spec.loss)

      tf.train.get_or_create_global_step()
      loss = tf.xla.experimental.compile(step, inputs)[0] if compiled else (
          step(*inputs))
      session.run(tf.global_variables_initializer())
      session.run([variable.assign(
          0.1 * np.random.RandomState(len(variable.op.name)).normal(
              size=variable.shape.as_list()))
                   for variable in tf.trainable_variables()])
      losses.append([session.run(loss, dict(zip(inputs, (
          features[name] for name in names)))) for _ in range(4)])
  np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
  assert losses[0][-1] < losses[0][0]


# ---- Training, and what is left.


def run_ner(folder, out, *args):
  """The command; its paths are URLs, as on another file system."""
  return ["run_ner.py", "--data_dir=file://%s" % folder,
          "--output_dir=file://%s" % out, "--max_seq_length=32",
          "--train_batch_size=25", "--learning_rate=0.005", *args]


@pytest.fixture(scope="module", params=[
    ("albert_zh", "--crf"), ("google", "--nocrf")], ids=lambda x: x[0])
def trained(request, real_data, tmp_path_factory):
  """Fifty sentences of CLUENER learnt by heart."""
  layout, crf_flag = request.param
  folder = tmp_path_factory.mktemp(layout)
  lines = (real_data / "cluener" / "train.json").read_text(
      encoding="utf-8").split("\n")[:50]
  for name in ("train", "dev", "test"):
    (folder / (name + ".json")).write_text("\n".join(lines), encoding="utf-8")
  (folder / "small.json").write_text(json.dumps(dict(
      scripting.SIZES, hidden_size=64, embedding_size=64, num_hidden_layers=1,
      num_attention_heads=4, intermediate_size=128, initializer_range=0.2,
      ln_type="preln", **({"num_hidden_groups": 1} if layout == "google" else
                          {}))))
  _, log = succeed(*run_ner(
      folder, folder / "out", "--task_name=CLUENER", "--do_train", "--do_eval",
      "--do_predict", crf_flag, "--num_train_epochs=40",
      "--save_checkpoints_steps=1000", VOCAB.replace("=", "=file://"),
      "--bert_config_file=file://%s" % (folder / "small.json")))
  return folder, log


def rows_of(path):
  return [json.loads(line) for line in
          path.read_text(encoding="utf-8").strip().split("\n")]


@pytest.mark.slow
def test_fifty_sentences_are_learnt_by_heart(trained):
  folder, log = trained
  out = folder / "out"
  assert "train: 50 texts, 98 windows, 106 entities" in log
  found = results(out)
  assert found["eval_f1"] >= 0.95
  assert found["eval_token_accuracy"] >= 0.95
  assert {"eval_precision", "eval_recall", "eval_loss", "loss",
          "global_step"} < set(found)
  assert (out / "best" / "eval_report.txt").read_text().split()[:5] == [
      "kind", "precision", "recall", "f1", "entities"]
  task = json.loads((out / "best" / "task.json").read_text())
  assert len(task["labels"]) == 21 and task["by_character"]
  # The test file has labels: their score is that of the submission.
  assert (out / "test_results.txt").read_text() == (
      out / "eval_results.txt").read_text()
  assert (out / "test_report.txt").exists()
  true, claimed = [
      {(number, kind, words, *span)
       for number, row in enumerate(rows_of(path))
       for kind, places in row["label"].items()
       for words, spans in places.items() for span in spans}
      for path in (folder / "test.json", out / "cluener_predict.json")]
  assert 2 * len(true & claimed) / (len(true) + len(claimed)) == (
      pytest.approx(found["eval_f1"]))
  assert claimed == {
      (row["id"], entity["kind"], entity["text"], entity["start"],
       entity["end"] - 1) for row in rows_of(out / "test_entities.jsonl")
      for entity in row["entities"]}


@pytest.mark.slow
def test_the_warm_model_finds_the_same(trained):
  folder, _ = trained
  best = folder / "out" / "best"
  rows = rows_of(folder / "out" / "test_entities.jsonl")
  model = tagger.EntityTagger("file://%s" % best, batch_size=7)
  texts = [row["text"] for row in rows]
  expected = [[(entity["start"], entity["end"], entity["kind"])
               for entity in row["entities"]] for row in rows]
  assert model.predict(texts) == expected
  assert model.predict(["", texts[3]]) == [[], expected[3]]
  assert model.predict([]) == []
  out, _ = succeed("run_ner.py", "--mark", "--init_checkpoint=%s" % best,
                   input="\n".join(texts[:3] + [""]).encode())
  assert out.splitlines() == [ner.marked(*pair) for pair in zip(
      texts[:3], expected)]


@pytest.mark.slow
def test_a_model_that_goes_on_elsewhere(trained, tmp_path):
  """--do_eval alone takes labels, CRF and characters from the model."""
  folder, _ = trained
  args = ["--task_name=file",
          "--init_checkpoint=%s" % (folder / "out" / "best")]
  succeed(*run_ner(folder, tmp_path / "out", "--do_eval", *args))
  found, before = results(tmp_path / "out"), results(folder / "out")
  assert found["eval_f1"] == before["eval_f1"]
  (tmp_path / "dev.txt").write_text("甲 B-zoo\n", encoding="utf-8")
  fail("the dev file has the kind.s. zoo, which are unknown: the labels are O,",
       *run_ner(tmp_path, tmp_path / "out2", "--do_eval", *args))
  fail("no train file: put .*train.json or .*train.bio in place",
       *run_ner(tmp_path, tmp_path / "out2", "--do_train", *args))
  (tmp_path / "task.json").write_text('{"labels": ["0", "1"]}')
  weights = checkpoints.read_weights(checkpoints.latest_checkpoint(
      str(folder / "out" / "best")))
  weights["output_weights"] = weights["output_weights"][:2]
  checkpoints.write_checkpoint(str(tmp_path), "model.ckpt-1", weights)
  for name in ("config.json", "vocab.txt"):
    (tmp_path / name).write_bytes(
        (folder / "out" / "best" / name).read_bytes())
  fail("model.ckpt-1 has no model that finds entities: train one", *run_ner(
      tmp_path, tmp_path / "out2", "--do_eval", "--task_name=file",
      "--init_checkpoint=%s" % tmp_path))
  fail("has no model that finds entities: fine-tune one", "run_ner.py",
       "--mark", "--init_checkpoint=%s" % tmp_path)
  assert not (tmp_path / "out2").exists()


def load_signature(folder, feed):
  with tf.Graph().as_default(), tf.Session() as session:
    loaded = tf.saved_model.loader.load(session, ["serve"], str(folder))
    signature = loaded.signature_def["label_tokens"]
    assert loaded.signature_def["serving_default"] == signature
    return session.run(signature.outputs["labels"].name, {
        signature.inputs[name].name: value for name, value in feed.items()})


@pytest.mark.slow
def test_exported_models_label_the_same(trained, tmp_path):
  folder, _ = trained
  best = str(folder / "out" / "best")
  task = json.loads((folder / "out" / "best" / "task.json").read_text())
  examples = [example for example in ner.read_examples(
      str(folder / "dev.json")) if len(example.text) <= 30]
  texts = ner.Texts(examples, tokenization.create_tokenizer(VOCAB_FILE),
                    task["labels"], 32, True)
  feed = {name: np.zeros([len(examples), 32], np.int32)
          for name in ("input_ids", "input_mask", "segment_ids")}
  for row, window in enumerate(texts.windows):
    features = texts.make_features(window)
    for name, values in feed.items():
      values[row, :len(features[name])] = features[name]
  for kind in ("saved_model", "tflite"):
    succeed("export_model.py", "--" + kind, "--init_checkpoint=" + best,
            "--max_seq_length=32", "--output_dir=%s" % (tmp_path / kind))
  labels = load_signature(tmp_path / "saved_model", feed)
  interpreter = tf.lite.Interpreter(
      model_path=str(tmp_path / "tflite" / "model.tflite"))
  interpreter.allocate_tensors()
  for row in range(len(examples)):
    for detail in interpreter.get_input_details():
      interpreter.set_tensor(detail["index"],
                             feed[detail["name"]][row:row + 1])
    interpreter.invoke()
    (output,) = interpreter.get_output_details()
    np.testing.assert_array_equal(
        interpreter.get_tensor(output["index"])[0], labels[row])
  inside = [labels[row, 1:len(spans) + 1]
            for row, spans in enumerate(texts.spans)]
  assert sum(map(np.sum, inside)) == labels.sum()  # 0 elsewhere
  assert texts.entities(inside) == tagger.EntityTagger(best).predict(
      [example.text for example in examples])


@pytest.mark.slow
def test_conversion_to_transformers_and_back(trained, tmp_path):
  pytest.importorskip("safetensors")
  folder, _ = trained
  weights = checkpoints.read_weights(checkpoints.latest_checkpoint(
      str(folder / "out" / "best")))
  post = folder / "postln"  # what is trained here has ln_type preln
  if not post.exists():
    post.mkdir()
    checkpoints.write_checkpoint(str(post), "model.ckpt-1", weights)
    for name in ("task.json", "vocab.txt"):
      (post / name).write_bytes((folder / "out" / "best" / name).read_bytes())
    config = json.loads((folder / "out" / "best" / "config.json").read_text())
    (post / "config.json").write_text(json.dumps(dict(
        config, ln_type="postln")))
  there = ["convert_to_pytorch.py", "--init_checkpoint=%s" % post,
           "--output_dir=%s" % (tmp_path / "there")]
  if crf.TRANSITIONS in weights:
    fail("a CRF cannot be converted: .*; fine-tune without --crf", *there)
    assert not list(tmp_path.iterdir())
    return
  succeed(*there)
  config = json.loads((tmp_path / "there" / "config.json").read_text())
  assert config["architectures"] == ["AlbertForTokenClassification"]
  assert config["id2label"]["1"] == "B-address"
  succeed("convert_to_pytorch.py", "--pytorch_dir=%s" % (tmp_path / "there"),
          "--output_dir=%s" % (tmp_path / "back"))
  back = checkpoints.read_weights(str(tmp_path / "back" / "model.ckpt"))
  assert set(back) == set(weights)
  for name, value in weights.items():
    np.testing.assert_array_equal(
        back[name], value * 0 if "pooler" in name else value, err_msg=name)
  task = json.loads((tmp_path / "back" / "task.json").read_text())
  assert task["label_tokens"] and not task["crf"]
  assert tagger.EntityTagger(str(tmp_path / "back")).predict(["甲"])
