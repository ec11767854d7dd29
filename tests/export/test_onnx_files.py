"""ONNX files tell the same as the checkpoint, and need no TensorFlow."""

import json
import os
import sys

import numpy as np
import pytest
import reference_albert as reference
import scripting
import small_models
import tensorflow.compat.v1 as tf
from scripting import ROOT, fail, succeed

import tokenization
from albert.errors import InputError
from albert.export import onnx_signatures
from albert.files import checkpoints
from albert.heads import crf, heads
from albert.predict import engines, predictor, tagger
from modeling import AlbertConfig
from predict_masked import MaskedPredictor
from similarity import BertSim, VectorSim

onnxruntime = pytest.importorskip("onnxruntime")

SIGNATURES = ["classify", "encode", "masked_lm", "sentence_order",
              "sentence_vector"]
VOCAB = ROOT / "albert_config" / "vocab.txt"
SIZES = dict(scripting.SIZES, hidden_size=32, embedding_size=24,
             intermediate_size=64)
MODELS = {"%s %s" % (name, ln_type): dict(AlbertConfig(
    ln_type=ln_type, **SIZES, **more).to_dict())
          for name, more in (("google", {"num_hidden_groups": 1}),
                             ("albert_zh", {}))
          for ln_type in ("postln", "preln")}
LENGTH = 48
COUNT = 200


def session_of(content):
  return onnxruntime.InferenceSession(
      content, providers=["CPUExecutionProvider"])


def weights_of(config, num_labels):
  weights = {name: value.astype(np.float32) for name, value in
             reference.random_weights(config, seed=1).items()}
  hidden = config["hidden_size"]
  rng = np.random.RandomState(2)
  for name, shape in (("output_weights", [num_labels, hidden]),
                      ("output_bias", [num_labels])):
    weights[name] = rng.normal(scale=1.5 / np.sqrt(hidden), size=shape).astype(
        np.float32)
  return weights


@pytest.mark.parametrize("name", sorted(small_models.CONFIGS))
def test_every_kind_of_model_is_that_of_the_reference(name):
  config = small_models.CONFIGS[name]
  weights = weights_of(config, 1)
  files = onnx_signatures.write_signatures(AlbertConfig(**config), weights, {})
  assert sorted(files) == SIGNATURES
  mask = small_models.INPUT_MASK
  feed = {key: value.astype(np.int32) for key, value in (
      ("input_ids", small_models.INPUT_IDS), ("input_mask", mask),
      ("segment_ids", small_models.SEGMENT_IDS))}
  positions = {"masked_lm_positions": small_models.POSITIONS.astype(np.int32)}
  wanted = small_models.run_reference(config, weights)
  pooled = wanted["pooled_output"]

  def mean(x):
    return (x * mask[..., None]).sum(1) / mask.sum(1)[:, None]

  for signature, more, outputs in (
      ("encode", {}, {"sequence_output": wanted["sequence_output"],
                      "pooled_output": pooled}),
      ("classify", {}, {"score": pooled @ weights["output_weights"][0] +
                        weights["output_bias"]}),
      ("masked_lm", positions, {"logits": wanted["masked_lm_logits"].reshape(
          small_models.POSITIONS.shape + (config["vocab_size"],))}),
      ("sentence_order", {}, {"probabilities": reference.softmax(
          wanted["sentence_order_logits"])}),
      ("sentence_vector", {}, {
          "vector": mean(wanted["sequence_output"]), "pooled": pooled,
          "mean_0": mean(wanted["embedding_output"]),
          "mean_1": mean(wanted["all_layers"][0]),
          "cls_1": wanted["all_layers"][0][:, 0]})):
    session = session_of(files[signature])
    for output, x in outputs.items():
      found, = session.run([output], dict(feed, **more))
      np.testing.assert_allclose(found, x, rtol=0, atol=1e-5,
                                 err_msg="%s %s" % (signature, output))


def test_packages_that_are_missing(monkeypatch):
  monkeypatch.setattr(onnx_signatures, "onnx", None)
  with pytest.raises(InputError, match="requirements/onnx.txt"):
    onnx_signatures.write_signatures(None, {}, {})


@pytest.mark.parametrize("has_crf", [True, False])
def test_tokens_are_labelled_as_by_tensorflow(has_crf):
  config = small_models.albert_zh_config()
  labels = ["O", "B-a", "I-a", "B-b", "I-b"]
  weights = weights_of(config, len(labels))
  rng = np.random.RandomState(4)
  weights["output_weights"] = 3 * weights["output_weights"]
  if has_crf:
    weights[crf.TRANSITIONS] = rng.normal(size=[5, 5]).astype(np.float32)
  files = onnx_signatures.write_signatures(
      AlbertConfig(**config), weights,
      {"labels": labels, "label_tokens": True})
  assert sorted(files) == sorted(["label_tokens"] + SIGNATURES[1:])
  lengths = rng.randint(2, 10, [40, 1])
  mask = (np.arange(9) < lengths).astype(np.int32)
  feed = {"input_ids": rng.randint(0, 50, [40, 9]).astype(np.int32),
          "input_mask": mask, "segment_ids": mask * 0}
  with tf.Graph().as_default(), tf.Session() as session:
    inputs = [tf.placeholder(tf.int32, [None, None]) for _ in feed]
    model = heads.create_model(AlbertConfig(**config), False, *inputs)
    output = tagger.token_labels(model, labels, has_crf)
    session.run(tf.global_variables_initializer(), {
        v.initial_value: weights[v.op.name] for v in tf.trainable_variables()})
    wanted = session.run(output, dict(zip(inputs, feed.values())))
  assert len(set(wanted.ravel())) == 5
  runtime = session_of(files["label_tokens"])
  np.testing.assert_array_equal(runtime.run(["labels"], feed)[0], wanted)
  for row, (length,) in enumerate(lengths):
    found, = runtime.run(None, {name: x[row:row + 1, :length]
                                for name, x in feed.items()})
    np.testing.assert_array_equal(found[0], wanted[row, :length])
  found, = session_of(onnx_signatures.quantize(files["label_tokens"])).run(
      None, feed)
  assert (found == wanted)[wanted > 0].mean() > 0.9


def write_model(folder, config):
  checkpoints.write_checkpoint(str(folder), "model.ckpt-7",
                               weights_of(config, 2))
  (folder / "config.json").write_text(json.dumps(config))
  (folder / "task.json").write_text(json.dumps(
      {"labels": ["0", "1"], "max_seq_length": LENGTH}))
  (folder / "vocab.txt").write_bytes(VOCAB.read_bytes())


def export(source, target, *args):
  succeed("export_model.py", "--onnx", "--init_checkpoint=file://%s" % source,
          "--output_dir=file://%s" % target, *args)
  assert sorted(os.listdir(str(target))) == sorted(
      [name + ".onnx" for name in SIGNATURES] +
      ["config.json", "task.json", "vocab.txt"])
  return target


@pytest.fixture(scope="module", params=sorted(MODELS))
def model(request, tmp_path_factory):
  """(folder of a checkpoint, folder that was exported)."""
  folder = tmp_path_factory.mktemp("model")
  write_model(folder, MODELS[request.param])
  return folder, export(folder, tmp_path_factory.mktemp("out") / "exported")


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
def test_spans_are_those_of_tensorflow(head, layout, batch):
  config = MODELS[layout]
  weights = dict(weights_of(config, 2),
                 **small_models.span_weights(config["hidden_size"], head))
  files = onnx_signatures.write_signatures(AlbertConfig(**config), weights, {})
  feed = {name: batch[name]
          for name in ("input_ids", "input_mask", "segment_ids")}
  lengths = batch["input_mask"].sum(1)
  with tf.Graph().as_default(), tf.Session() as session:
    inputs = {name: tf.placeholder(tf.int32, [None, None]) for name in feed}
    model = heads.create_model(AlbertConfig(**config), False, *inputs.values())
    allowed = heads.answer_mask(inputs["input_mask"], inputs["segment_ids"])
    outputs = dict(zip(("start", "end"), heads.span_logits(model))) if (
        head == "independent") else heads.BeamSpan(model, allowed).likeliest(
            *heads.BEAM_SIZE)
    session.run(tf.global_variables_initializer(), {
        v.initial_value: weights[v.op.name] for v in tf.trainable_variables()})
    wanted, allowed = session.run(
        [outputs, allowed], {inputs[name]: x for name, x in feed.items()})
  passage = batch["segment_ids"].copy()
  passage[range(COUNT), lengths - 1] = 0  # [SEP]
  passage[:, 0] = 1  # [CLS]
  np.testing.assert_array_equal(allowed, passage)
  runtime = session_of(files["spans"])
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
  for name, x in wanted.items():
    found, = runtime.run([name], feed)
    ones = np.zeros_like(x)
    for row, length in enumerate(lengths):
      one, = runtime.run([name], {key: value[row:row + 1, :length]
                                  for key, value in feed.items()})
      if head == "independent":
        ones[row, :length] = one[0]
      else:
        ones[row] = one[0]
    for y in (found, ones):
      np.testing.assert_allclose(y[there[name]], x[there[name]], rtol=0,
                                 atol=1e-5, err_msg=name)


def from_session(folder, batch):
  """What TensorFlow tells: (signature, output) -> array."""
  loaded = predictor.load_folder(str(folder))
  with tf.Graph().as_default():
    inputs = {name: tf.placeholder(tf.int32, [None, None]) for name in batch}
    encoder = heads.create_model(loaded.config, False, *[
        inputs[name] for name in ("input_ids", "input_mask", "segment_ids")])
    outputs = {
        ("classify", "probabilities"): tf.nn.softmax(
            heads.classifier_logits(encoder, 2)),
        ("encode", "sequence_output"): encoder.get_sequence_output(),
        ("encode", "pooled_output"): encoder.get_pooled_output(),
        ("masked_lm", "logits"): heads.masked_lm_logits(
            encoder, inputs["masked_lm_positions"]),
        ("sentence_order", "probabilities"): tf.nn.softmax(
            encoder.sentence_order_logits()),
        ("sentence_vector", "vector"): heads.sentence_vectors(encoder)}
    with predictor.restored_session(loaded.checkpoint) as session:
      return session.run(outputs, {inputs[name]: batch[name]
                                   for name in batch})


@pytest.mark.slow
def test_as_in_a_session_in_one_batch_and_one_by_one(model, batch):
  folder, exported = model
  wanted = from_session(folder, batch)
  lengths = batch["input_mask"].sum(1)
  for (signature, output), x in wanted.items():
    session = session_of(str(exported / (signature + ".onnx")))
    names = [tensor.name for tensor in session.get_inputs()]
    found, = session.run([output], {name: batch[name] for name in names})
    np.testing.assert_allclose(found, x, rtol=0, atol=1e-5, err_msg=signature)
    for row, length in enumerate(lengths):
      found, = session.run([output], {
          name: batch[name][row:row + 1, :length] for name in names})
      same = x[row, :length] if output == "sequence_output" else x[row]
      np.testing.assert_allclose(found[0], same, rtol=0, atol=1e-5,
                                 err_msg=signature)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["", "_google"])
def test_tiny_in_8_bits(layout, tmp_path, batch):
  config = json.loads((ROOT / "albert_config" / (
      "albert_config_tiny%s.json" % layout)).read_text())
  source = tmp_path / "source"
  source.mkdir()
  write_model(source, config)
  exported = export(source, tmp_path / "exported", "--int8")
  assert (exported / "classify.onnx").stat().st_size < 5e6
  inputs = {name: batch[name]
            for name in ("input_ids", "input_mask", "segment_ids")}
  wanted = from_session(source, batch)
  found, = session_of(str(exported / "classify.onnx")).run(None, inputs)
  expected = wanted["classify", "probabilities"]
  assert np.abs(found - expected).mean() < 0.02
  assert np.ptp(expected[:, 0]) > 0.1
  logits, = session_of(str(exported / "masked_lm.onnx")).run(None, batch)
  expected = wanted["masked_lm", "logits"]
  assert np.corrcoef(logits.ravel(), expected.ravel())[0, 1] > 0.98


@pytest.mark.slow
def test_a_fine_tuned_model_in_8_bits(tmp_path):
  """The starter weights after three epochs, on 600 texts, 240 of them new."""
  topics = ROOT / "data" / "topics"
  succeed("run_classifier.py", "--task_name=tsv", "--data_dir=%s" % topics,
          "--init_checkpoint=%s" % (ROOT / "albert_tiny_starter"),
          "--output_dir=%s" % tmp_path, "--do_train", "--num_train_epochs=3",
          "--max_seq_length=64", "--train_batch_size=16",
          "--learning_rate=1e-4")
  texts = [(line.split("\t")[1], None) for name in ("train", "dev", "test")
           for line in (topics / ("%s.tsv" % name)).read_text(
               encoding="utf-8").splitlines()[1:]]
  wanted = engines.load("tensorflow", str(tmp_path)).classify(
      max_seq_length=64).predict(texts)
  for flags, mean, labels in (([], 1e-6, 1), (["--int8"], 0.02, 0.99)):
    folder = str(tmp_path / ("exported" + "".join(flags)))
    succeed("export_model.py", "--onnx", "--init_checkpoint=%s" % tmp_path,
            "--output_dir=%s" % folder, *flags)
    found = engines.load("onnx", folder).classify(
        max_seq_length=64).predict(texts)
    assert np.abs(found - wanted).mean() <= mean
    assert np.mean(found.argmax(1) == wanted.argmax(1)) >= labels


PAIRS = [("怎么办理银行卡", "银行卡如何办理"), ("今天会下雨吗", "上海"),
         ("北京", "中国的首都是北京，上海是最大的城市")]
MASKED = ["中国的首[MASK]是北京", "[MASK]海[MASK]"]


@pytest.mark.slow
def test_scripts_where_there_is_no_tensorflow(model, tmp_path, monkeypatch):
  folder, exported = model
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
    vectors = predictor.TensorFlowEngine(str(folder)).sentence_vectors(
        pooling, -1, max_seq_length=9).predict(
            [("\t".join(pair), None) for pair in PAIRS])
    np.testing.assert_allclose(np.load(str(tmp_path / "vectors.npy")), vectors,
                               atol=1e-5)
  status, _, log = scripting.run("similarity.py", "--model_dir=%s" % folder,
                                 "a", "b", python=sys.executable)
  assert status == 1 and "no TensorFlow" in log  # or it is there after all


@pytest.mark.slow
@pytest.mark.parametrize("model", ["google postln"], indirect=True)
def test_bad_input(model, tmp_path):
  folder, exported = model
  with pytest.raises(InputError, match="nowhere has no config.json: give a "
                     "folder that export_model.py --onnx made"):
    engines.load("onnx", str(tmp_path / "nowhere"))
  engine = engines.load("onnx", "file://%s" % exported)
  assert engine.tokenizer.do_lower_case
  with pytest.raises(InputError, match="--layer=3: the model has layers 0 to"):
    engine.sentence_vectors("mean", 3)
  for path in folder.glob("*.*"):
    (tmp_path / path.name).write_bytes(path.read_bytes())
  (tmp_path / "encode.onnx").write_bytes(b"damaged")
  checkpoints.write_checkpoint(
      str(tmp_path), "model.ckpt-7",
      {name: value for name, value in weights_of(
          MODELS["google postln"], 2).items() if name.startswith("bert/")})
  (tmp_path / "task.json").unlink()
  succeed("export_model.py", "--onnx", "--init_checkpoint=%s" % tmp_path,
          "--output_dir=%s" % (tmp_path / "bare"), "--nodo_lower_case")
  (tmp_path / "bare" / "sentence_vector.onnx").write_bytes(b"damaged")
  engine = engines.load("onnx", str(tmp_path / "bare"))
  assert not engine.tokenizer.do_lower_case
  with pytest.raises(InputError, match="bare has no masked_lm.onnx: give a"):
    engine.masked_lm()
  with pytest.raises(InputError, match="sentence_vector.onnx cannot be read"):
    engine.sentence_vectors("cls", -1)
  with pytest.raises(InputError, match=r"the labels \(none\) are not those of"):
    BertSim(str(tmp_path / "bare"), engine="onnx").start_model()
  fail("with --engine=onnx, there is no effect of --vocab_file",
       "similarity.py", "--engine=onnx", "--model_dir=%s" % exported, "a", "b",
       scripting.VOCAB)
  (folder / "other.json").write_text(json.dumps(
      dict(MODELS["google postln"], intermediate_size=65)))
  fail(r"has \[32, 64\] for .*, the model \[32, 65\]", "export_model.py",
       "--onnx", "--init_checkpoint=%s" % folder, "--bert_config_file=%s" % (
           folder / "other.json"), "--output_dir=%s" % (tmp_path / "out"))
  assert not (tmp_path / "out").exists()
