"""run_ner.py: training, and what is made of a trained model."""

import json
import sys

import numpy as np
import pytest
import scripting
import tensorflow.compat.v1 as tf
from scripting import ROOT, VOCAB, fail, results, succeed

import tokenization
from albert import errors
from albert.files import checkpoints
from albert.heads import crf
from albert.predict import tagger
from albert.tasks import entity_files, ner

pytestmark = pytest.mark.once

VOCAB_FILE = VOCAB.split("=")[1]


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
  found = results(out, "test_results.txt")
  assert found == {name: value for name, value in results(out).items()
                   if name != "global_step"}
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
  assert out.splitlines() == [entity_files.marked(*pair) for pair in zip(
      texts[:3], expected)]


@pytest.mark.slow
def test_onnx_runtime_finds_the_same(trained, tmp_path):
  pytest.importorskip("onnxruntime")
  pytest.importorskip("tf2onnx")
  folder, _ = trained
  best = folder / "out" / "best"
  succeed("export_model.py", "--onnx", "--init_checkpoint=%s" % best,
          "--output_dir=%s" % (tmp_path / "onnx"))
  models = {engine: tagger.EntityTagger(str(path), batch_size=5, engine=engine)
            for engine, path in (("tensorflow", best),
                                 ("onnx", tmp_path / "onnx"))}
  texts = [row["text"] for row in rows_of(folder / "test.json")]
  # Of several windows, without a token, with what is no character's own token.
  texts += ["".join(texts[:9]), "", " ", "第3d厅 OK", "\U0001f600" + texts[3]]
  found = {engine: model.predict(texts) for engine, model in models.items()}
  assert found["onnx"] == found["tensorflow"]
  assert sum(map(len, found["onnx"])) > 100
  (tmp_path / "program.py").write_text("""
import sys
sys.modules["tensorflow"] = None  # an import of it fails
sys.path.insert(0, %r)
from albert.predict.tagger import EntityTagger
print([tuple(x) for x in EntityTagger(sys.argv[1], engine="onnx").predict([
    sys.argv[2]])[0]])
""" % str(ROOT))
  out, _ = succeed(tmp_path / "program.py", tmp_path / "onnx", texts[0],
                   python=sys.executable)
  assert out.strip() == str([tuple(entity) for entity in found["onnx"][0]])
  with pytest.raises(errors.InputError, match="has no config.json: give a fol"):
    tagger.EntityTagger(str(tmp_path), engine="onnx")
  (tmp_path / "onnx" / "label_tokens.onnx").unlink()
  with pytest.raises(errors.InputError, match="has no model that finds entit"):
    tagger.EntityTagger(str(tmp_path / "onnx"), engine="onnx")


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
  fail("no train file: add .*train.json or .*train.bio",
       *run_ner(tmp_path, tmp_path / "out2", "--do_train", *args))
  (tmp_path / "task.json").write_text('{"labels": ["0", "1"]}')
  weights = checkpoints.read_weights(checkpoints.latest_checkpoint(
      str(folder / "out" / "best")))
  weights["output_weights"] = weights["output_weights"][:2]
  checkpoints.write_checkpoint(str(tmp_path), "model.ckpt-1", weights)
  for name in ("config.json", "vocab.txt"):
    (tmp_path / name).write_bytes(
        (folder / "out" / "best" / name).read_bytes())
  fail("%s has no model that finds entities: train one" % tmp_path, *run_ner(
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
  examples = [example for example in entity_files.read_examples(
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
  assert task["head"] == "token_labels" and not task["crf"]
  assert tagger.EntityTagger(str(tmp_path / "back")).predict(["甲"])
