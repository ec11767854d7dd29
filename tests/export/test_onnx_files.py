"""ONNX files tell the same as the checkpoint, and need no TensorFlow."""

import functools
import json
import os
import sys

import numpy as np
import pytest
import reference_albert as reference
import scripting
import small_models
import tensorflow.compat.v1 as tf
from onnx_folders import (
    LENGTH,
    MODELS,
    SIGNATURES,
    VOCAB,
    export,
    export_one,
    weights_of,
    write_model,
)
from scripting import ROOT, succeed

import tokenization
from albert import heads, model_folder
from albert.errors import InputError
from albert.export import onnx_files
from albert.files import checkpoints
from albert.heads import base, crf, spans
from albert.heads.vectors import sentence_vectors
from albert.model.config import AlbertConfig
from albert.model.layouts import create_model
from albert.predict import engines
from albert.tasks import bio
from predict_masked import MaskedPredictor
from similarity import BertSim, VectorSim

onnxruntime = pytest.importorskip("onnxruntime")

INPUTS = ("input_ids", "input_mask", "segment_ids")
COUNT = 200


def session_of(content):
  return onnxruntime.InferenceSession(
      content, providers=["CPUExecutionProvider"])


def signatures_of(weights, config, **task):
  """Returns the names of the files that a model becomes."""
  return sorted(heads.restore(
      {name: list(value.shape) for name, value in weights.items()},
      model_folder.ModelFolder(AlbertConfig(**config), None, **task)))


def convert(folder, config, weights, head, int8=False):
  """Returns an onnxruntime.InferenceSession of the converted model."""
  checkpoints.write_checkpoint(str(folder), "model.ckpt", weights)
  return session_of(onnx_files.convert(
      AlbertConfig(**config), head, str(folder / "model.ckpt"), int8))


def one_by_one(session, feed, like):
  """Runs texts without padding.

  Args:
    session: onnxruntime.InferenceSession.
    feed: dict, name -> array [B, ...].
    like: dict, name of an output -> array [B, ...] of its shape in one batch.

  Returns:
    dict, name of an output -> array, 0 at padding.
  """
  outputs = {name: np.zeros_like(x) for name, x in like.items()}
  for row, length in enumerate(feed["input_mask"].sum(1)):
    found = session.run(list(outputs), {
        name: x[row:row + 1, :length] for name, x in feed.items()})
    for x, one in zip(outputs.values(), found):
      x[(row, *map(slice, one.shape[1:]))] = one[0]
  return outputs


class Everything(base.Head):
  """What all signatures of a small model give, in one file."""
  signature = "everything"
  extra_inputs = heads.MaskedLm.extra_inputs

  def outputs(self, model, inputs):
    outputs = {"logits": tf.reshape(
        model.masked_lm_logits(inputs["masked_lm_positions"]),
        small_models.POSITIONS.shape + (model.config.vocab_size,))}
    for head in (heads.Regression(), heads.Encode(), heads.SentenceOrder(),
                 heads.SentenceVector()):
      outputs.update(head.outputs(model, inputs))
    return outputs


@pytest.mark.once
@pytest.mark.parametrize("name", sorted(small_models.CONFIGS))
def test_every_kind_of_model_is_that_of_the_reference(name, tmp_path):
  config = small_models.CONFIGS[name]
  weights = weights_of(config, 1)
  assert signatures_of(weights, config) == SIGNATURES
  mask = small_models.INPUT_MASK
  feed = {key: value.astype(np.int32) for key, value in zip(
      INPUTS + ("masked_lm_positions",), (
          small_models.INPUT_IDS, mask, small_models.SEGMENT_IDS,
          small_models.POSITIONS))}
  wanted = small_models.run_reference(config, weights)
  pooled = wanted["pooled_output"]

  def mean(x):
    return (x * mask[..., None]).sum(1) / mask.sum(1)[:, None]

  outputs = {
      "sequence_output": wanted["sequence_output"], "pooled_output": pooled,
      "score": pooled @ weights["output_weights"][0] + weights["output_bias"],
      "logits": wanted["masked_lm_logits"].reshape(
          small_models.POSITIONS.shape + (config["vocab_size"],)),
      "probabilities": reference.softmax(wanted["sentence_order_logits"]),
      "vector": mean(wanted["sequence_output"]), "pooled": pooled,
      "mean_0": mean(wanted["embedding_output"]),
      "mean_1": mean(wanted["all_layers"][0]),
      "cls_1": wanted["all_layers"][0][:, 0]}
  session = convert(tmp_path, config, weights, Everything())
  for output, found in zip(outputs, session.run(list(outputs), feed)):
    np.testing.assert_allclose(found, outputs[output], rtol=0, atol=1e-5,
                               err_msg=output)


@pytest.mark.parametrize("package", ["tf2onnx", "onnx", "onnxruntime"])
def test_packages_that_are_missing(package, monkeypatch):
  for name in [name for name in sys.modules if name.startswith(package + ".")]:
    monkeypatch.delitem(sys.modules, name)
  monkeypatch.setitem(sys.modules, package, None)
  with pytest.raises(InputError, match="requirements/onnx.txt"):
    onnx_files.convert(None, None, None)


def from_weights(config, weights, head, feed):
  """Returns what a head gives in TensorFlow: name -> array."""
  with tf.Graph().as_default(), tf.Session() as session:
    inputs = {name: tf.placeholder(tf.int32, [None, None]) for name in feed}
    outputs = head.outputs(create_model(
        AlbertConfig(**config), False, *inputs.values()), inputs)
    session.run(tf.global_variables_initializer(), {
        v.initial_value: weights[v.op.name] for v in tf.trainable_variables()})
    return session.run(outputs, {inputs[name]: x for name, x in feed.items()})


@pytest.mark.parametrize("has_crf", [True, False])
def test_tokens_are_labelled_as_by_tensorflow(has_crf, tmp_path):
  """With the scores and transitions of the file, by bio.best_sequence."""
  config = small_models.albert_zh_config()
  labels = ["O", "B-a", "I-a", "B-b", "I-b"]
  weights = weights_of(config, len(labels))
  rng = np.random.RandomState(4)
  weights["output_weights"] = 3 * weights["output_weights"]
  if has_crf:
    weights[crf.TRANSITIONS] = rng.normal(size=[5, 5]).astype(np.float32)
  assert signatures_of(weights, config, labels=labels, head="token_labels") == (
      sorted(["label_tokens"] + SIGNATURES[1:]))
  lengths = rng.randint(2, 10, [40, 1])
  mask = (np.arange(9) < lengths).astype(np.int32)
  feed = {"input_ids": rng.randint(0, 50, [40, 9]).astype(np.int32),
          "input_mask": mask, "segment_ids": mask * 0}
  head = heads.TokenLabels(labels, has_crf)
  wanted = from_weights(config, weights, head, feed)
  assert len(set(wanted["labels"].ravel())) == 5
  starts = bio.forbidden(labels)[1]

  def labels_of(scores, transitions):
    found = np.zeros([len(scores), 9], np.int32)
    for row, (length,) in enumerate(lengths):
      inside = slice(1, length - 1)
      found[row, inside] = bio.best_sequence(
          scores[row][inside], transitions, starts)
    return found

  runtime = convert(tmp_path, config, weights, head)
  assert [output.name for output in runtime.get_outputs()] == [
      "scores", "transitions"]
  scores, transitions = runtime.run(None, feed)
  np.testing.assert_array_equal(transitions, wanted["transitions"])
  ones = one_by_one(runtime, feed, {"scores": scores})["scores"]
  for found in (scores, ones):
    np.testing.assert_allclose(found[mask > 0], wanted["scores"][mask > 0],
                               rtol=0, atol=1e-5)
    np.testing.assert_array_equal(labels_of(found, transitions),
                                  wanted["labels"])
  found = labels_of(*convert(tmp_path, config, weights, head, int8=True).run(
      ["scores", "transitions"], feed))
  assert (found == wanted["labels"])[wanted["labels"] > 0].mean() > 0.9


@pytest.fixture(scope="module")
def models(tmp_path_factory):
  """A function of a name; returns the folders of a model and of its export."""
  @functools.lru_cache(maxsize=None)
  def make(name):
    folder = tmp_path_factory.mktemp("model")
    write_model(folder, MODELS[name])
    return folder, export(folder, tmp_path_factory.mktemp("out") / "exported")

  return make


@pytest.fixture(scope="module")
def batch():
  """Texts and pairs of 3 to 48 tokens: int32 [200, 48] by name."""
  tokenizer = tokenization.create_tokenizer(str(VOCAB))
  lines = [line for line in (ROOT / "data" / "text_train.txt").read_text(
      encoding="utf-8").split("\n") if line]
  arrays = np.zeros([3, COUNT, LENGTH], np.int32)
  for row, (a, b) in enumerate(zip(lines[:COUNT], lines[1:])):
    ids, segments = tokenization.encode_texts(
        tokenizer, a[:1 + row % 60], b if row % 3 else None, LENGTH)
    arrays[:, row, :len(ids)] = ids, np.ones_like(ids), segments
  assert len(set(arrays[1].sum(1))) > 20
  values = dict(zip(("input_ids", "input_mask", "segment_ids"), arrays))
  values["masked_lm_positions"] = np.stack(
      [np.ones(COUNT, np.int32), arrays[1].sum(1) - 1], 1).astype(np.int32)
  return values


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["google postln", "albert_zh preln"])
@pytest.mark.parametrize("head", ["independent", "beam"])
def test_spans_are_those_of_tensorflow(head, layout, batch, tmp_path):
  config = MODELS[layout]
  weights = dict(weights_of(config, 2),
                 **small_models.span_weights(config["hidden_size"], head))
  feed = {name: batch[name] for name in INPUTS}
  lengths = batch["input_mask"].sum(1)
  cls = heads.Spans if head == "independent" else heads.BeamSpans
  wanted = from_weights(config, weights, cls(), feed)
  with tf.Session() as session:
    allowed = session.run(spans.answer_mask(*[
        tf.constant(feed[name]) for name in ("input_mask", "segment_ids")]))
  passage = batch["segment_ids"].copy()
  passage[range(COUNT), lengths - 1] = 0  # [SEP]
  passage[:, 0] = 1  # [CLS]
  np.testing.assert_array_equal(allowed, passage)
  runtime = convert(tmp_path, config, weights, cls())
  assert {output.name for output in runtime.get_outputs()} == set(wanted)
  # Beyond the last place that is allowed, all places are as likely.
  if head == "beam":
    there = wanted["start_scores"] > -1e29
    ends = (wanted["end_scores"] > -1e29) & there[..., np.newaxis]
    there = {"starts": there, "start_scores": there, "ends": ends,
             "end_scores": ends, "null": lengths > 0}
    assert 0.3 < ends.mean() < 1
  else:
    there = dict.fromkeys(wanted, batch["input_mask"] > 0)
  found = dict(zip(wanted, runtime.run(list(wanted), feed)))
  for outputs in (found, one_by_one(runtime, feed, wanted)):
    for name, x in wanted.items():
      np.testing.assert_allclose(outputs[name][there[name]], x[there[name]],
                                 rtol=0, atol=1e-5, err_msg=name)


def from_session(folder, batch):
  """What TensorFlow tells: (signature, output) -> array."""
  loaded = model_folder.load(model_folder.FolderSettings(), str(folder))
  with tf.Graph().as_default():
    inputs = {name: tf.placeholder(tf.int32, [None, None]) for name in batch}
    model = create_model(loaded.config, False, *[
        inputs[name] for name in INPUTS])
    outputs = {
        ("classify", "probabilities"): tf.nn.softmax(
            heads.Classifier(2).logits(model)),
        ("encode", "sequence_output"): model.get_sequence_output(),
        ("encode", "pooled_output"): model.get_pooled_output(),
        ("masked_lm", "logits"): tf.reshape(
            model.masked_lm_logits(inputs["masked_lm_positions"]),
            [COUNT, 2, loaded.config.vocab_size]),
        ("sentence_order", "probabilities"): tf.nn.softmax(
            model.sentence_order_logits()),
        ("sentence_vector", "vector"): sentence_vectors(model)}
    with checkpoints.restored_session(loaded.checkpoint) as session:
      return session.run(outputs, {inputs[name]: batch[name]
                                   for name in batch})


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MODELS))
def test_as_in_a_session_in_one_batch_and_one_by_one(name, models, batch):
  folder, exported = models(name)
  wanted = from_session(folder, batch)
  for signature in SIGNATURES:
    like = {output: x for (of, output), x in wanted.items() if of == signature}
    session = session_of(str(exported / (signature + ".onnx")))
    feed = {tensor.name: batch[tensor.name] for tensor in session.get_inputs()}
    for found, x in zip(session.run(list(like), feed), like.values()):
      np.testing.assert_allclose(found, x, rtol=0, atol=1e-5,
                                 err_msg=signature)
    for output, found in one_by_one(session, feed, like).items():
      there = batch["input_mask"] > 0 if output == "sequence_output" else ...
      np.testing.assert_allclose(found[there], like[output][there], rtol=0,
                                 atol=1e-5, err_msg=signature)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MODELS))
def test_masked_lm_has_the_embedding_table_once(name, models):
  """Its transpose, by which the file would be nearly twice as large, is not."""
  folder, exported = models(name)
  count = sum(value.size for value in checkpoints.read_weights(
      str(folder / "model.ckpt-7")).values())
  assert (exported / "masked_lm.onnx").stat().st_size <= 1.15 * 4 * count


@pytest.mark.once
@pytest.mark.slow
@pytest.mark.parametrize("layout", ["", "_google"])
def test_tiny_in_8_bits(layout, tmp_path, batch):
  config = json.loads((ROOT / "albert_config" / (
      "albert_config_tiny%s.json" % layout)).read_text())
  source = tmp_path / "source"
  source.mkdir()
  write_model(source, config)
  classify, masked_lm = [
      export_one(source, tmp_path / name, name, "--int8")
      for name in ("classify", "masked_lm")]
  assert os.path.getsize(classify) < 5e6
  wanted = from_session(source, batch)
  found, = session_of(classify).run(["probabilities"], {
      name: batch[name] for name in INPUTS})
  expected = wanted["classify", "probabilities"]
  assert np.abs(found - expected).mean() < 0.02
  assert np.ptp(expected[:, 0]) > 0.1
  logits, = session_of(masked_lm).run(None, batch)
  expected = wanted["masked_lm", "logits"]
  assert np.corrcoef(logits.ravel(), expected.ravel())[0, 1] > 0.98


@pytest.mark.once
@pytest.mark.slow
def test_a_fine_tuned_model_in_8_bits(tmp_path):
  """The starter weights after an epoch, on 600 texts, 240 of them new."""
  topics = ROOT / "data" / "topics"
  succeed("run_classifier.py", "--task_name=tsv", "--data_dir=%s" % topics,
          "--init_checkpoint=%s" % (ROOT / "albert_tiny_starter"),
          "--output_dir=%s" % tmp_path, "--do_train", "--num_train_epochs=1",
          "--max_seq_length=48", "--train_batch_size=16",
          "--learning_rate=3e-4")
  texts = [(line.split("\t")[1], None) for name in ("train", "dev", "test")
           for line in (topics / ("%s.tsv" % name)).read_text(
               encoding="utf-8").splitlines()[1:]]

  def predict(engine, folder):
    return engines.load(engine, folder).predictor(
        "classify", "probabilities", max_seq_length=64).predict(texts)

  wanted = predict("tensorflow", str(tmp_path))
  for flags, mean, labels in (([], 1e-6, 1), (["--int8"], 0.02, 0.99)):
    folder = tmp_path / ("exported" + "".join(flags))
    export_one(tmp_path, folder, "classify", *flags)
    found = predict("onnx", str(folder))
    assert np.abs(found - wanted).mean() <= mean
    assert np.mean(found.argmax(1) == wanted.argmax(1)) >= labels


PAIRS = [("怎么办理银行卡", "银行卡如何办理"), ("今天会下雨吗", "上海"),
         ("北京", "中国的首都是北京，上海是最大的城市")]
MASKED = ["中国的首[MASK]是北京", "[MASK]海[MASK]"]


@pytest.mark.once
@pytest.mark.slow
@pytest.mark.parametrize("name", ["google postln", "albert_zh preln"])
def test_scripts_where_there_is_no_tensorflow(
    name, models, tmp_path, monkeypatch):
  folder, exported = models(name)
  stub = tmp_path / "stub" / "tensorflow"
  stub.mkdir(parents=True)
  (stub / "__init__.py").write_text("raise ImportError('no TensorFlow')\n")
  monkeypatch.setenv("PYTHONPATH", os.pathsep.join(
      [str(stub.parent), os.environ.get("PYTHONPATH", "")]))

  def run(script, *args, **kwargs):
    return succeed(script, *args, "--engine=onnx", python=sys.executable,
                   **kwargs)[0]

  def scores(*args, **kwargs):
    out = run("similarity.py", "--model_dir=%s" % exported, *args, **kwargs)
    return [float(line.split("\t")[0]) for line in out.splitlines()]

  pairs = "\n".join("\t".join(pair) for pair in PAIRS).encode()
  np.testing.assert_allclose(
      scores(input=pairs), BertSim(str(folder)).predict_sentences(PAIRS),
      atol=1e-4)
  for layer in (1, -2):
    np.testing.assert_allclose(
        scores("--unsupervised", "--layer=%d" % layer, input=pairs),
        VectorSim(str(folder), layer=layer).predict_sentences(PAIRS),
        atol=1e-4)
  filled = tmp_path / "filled.tsv"
  run("predict_masked.py", "--model_dir=%s" % exported, "--top_k=3",
      "--output_file=%s" % filled, *MASKED)
  wanted = [[token for token, _ in choices]
            for masks in MaskedPredictor(str(folder)).predict(MASKED, 3)
            for choices in masks]
  assert [[choice.split(" ")[0] for choice in line.split("\t")[2:]]
          for line in filled.read_text(encoding="utf-8").splitlines()
          ] == wanted
  (tmp_path / "texts.txt").write_bytes(pairs)
  for pooling in ("cls", "pooled"):
    run("extract_features.py", "--init_checkpoint=%s" % exported,
        "--pooling=%s" % pooling, "--max_seq_length=9",
        "--input_file=%s" % (tmp_path / "texts.txt"),
        "--output_file=%s" % (tmp_path / "vectors.npy"))
    vectors = engines.sentence_vectors(
        engines.load("tensorflow", str(folder)), pooling, -1,
        max_seq_length=9).predict(
            [("\t".join(pair), None) for pair in PAIRS])
    np.testing.assert_allclose(np.load(str(tmp_path / "vectors.npy")), vectors,
                               atol=1e-5)
  status, _, log = scripting.run("similarity.py", "--model_dir=%s" % folder,
                                 "a", "b", python=sys.executable)
  assert status == 1 and "no TensorFlow" in log  # or it is there after all
