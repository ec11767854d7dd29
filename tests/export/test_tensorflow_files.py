"""What export_model.py writes tells the same as the checkpoint it came from."""

import json
import os
import re
import shutil

import numpy as np
import pytest
import reference_albert as reference
import scripting
import small_models
import tensorflow.compat.v1 as tf
from scripting import VOCAB, fail, run, succeed

import tokenization
from albert import heads, model_folder
from albert.files import checkpoints
from albert.heads import spans
from albert.heads.vectors import sentence_vectors
from albert.model.config import AlbertConfig
from albert.model.layouts import create_model

pytestmark = pytest.mark.slow

LABELS = ["0", "1"]
SIZES = dict(scripting.SIZES, hidden_size=32, embedding_size=32,
             intermediate_size=64)
LAYOUTS = {name: dict(AlbertConfig(**SIZES, **more).to_dict())
           for name, more in (("google", {"num_hidden_groups": 1}),
                              ("albert_zh", {"ln_type": "preln"}))}
LENGTH = 24


@pytest.fixture(scope="module", params=sorted(LAYOUTS))
def model(request, tmp_path_factory):
  """A folder as fine-tuning leaves it, optimizer slots and all."""
  folder = tmp_path_factory.mktemp(request.param)
  config = LAYOUTS[request.param]
  weights = {name: value.astype(np.float32) for name, value in
             reference.random_weights(config, seed=1).items()}
  rng = np.random.RandomState(2)
  weights["output_weights"] = rng.normal(size=[2, 32]).astype(np.float32)
  weights["output_bias"] = rng.normal(size=[2]).astype(np.float32)
  for name in list(weights):
    for slot in ("adam_m", "adam_v"):
      weights["%s/%s" % (name, slot)] = weights[name] * 0
  weights["global_step"] = np.array(7, np.int64)
  checkpoints.write_checkpoint(str(folder), "model.ckpt-7", weights)
  (folder / "config.json").write_text(json.dumps(config))
  (folder / "task.json").write_text(json.dumps(
      {"labels": LABELS, "max_seq_length": LENGTH, "do_lower_case": True}))
  vocab = scripting.ROOT / "albert_config" / "vocab.txt"
  (folder / "vocab.txt").write_bytes(vocab.read_bytes())
  return folder


@pytest.fixture(scope="module")
def batch(real_data):
  """200 pairs as input_ids, input_mask, segment_ids, int32 [200, LENGTH]."""
  lines = (real_data / "lcqmc" / "dev.txt").read_text(encoding="utf-8")
  tokenizer = tokenization.create_tokenizer(VOCAB.split("=")[1])
  arrays = np.zeros([3, 200, LENGTH], np.int32)
  for row, line in enumerate(lines.split("\n")[:200]):
    ids, segments = tokenization.pack_pair(
        tokenizer, *[tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))
                     for text in line.split("\t")[:2]], max_seq_length=LENGTH)
    arrays[0, row, :len(ids)] = ids
    arrays[1, row, :len(ids)] = 1
    arrays[2, row, :len(ids)] = segments
  return dict(zip(("input_ids", "input_mask", "segment_ids"), arrays))


def from_session(folder, batch, build):
  """What a function of a model gives, whose last layer has all tokens."""
  loaded = model_folder.load(model_folder.FolderSettings(), str(folder))
  with tf.Graph().as_default():
    # Fed, as they are to what is exported: constants are folded, and rounding
    # differs.
    inputs = [tf.placeholder(tf.int32, [None, None]) for _ in range(3)]
    output = build(create_model(loaded.config, False, *inputs))
    with checkpoints.restored_session(loaded.checkpoint) as session:
      return session.run(output, dict(zip(inputs, (batch[name] for name in (
          "input_ids", "input_mask", "segment_ids")))))


def probabilities(model):
  return tf.nn.softmax(heads.Classifier(2).logits(model))


def masked_lm(model):
  return tf.reshape(model.masked_lm_logits(tf.fill([tf.shape(
      model.input_mask)[0], 1], 3)), [-1, 1, 21128])


def sentence_order(model):
  return tf.nn.softmax(model.sentence_order_logits())


def export(model, tmp_path, *args):
  target = tmp_path / "exported"
  _, log = succeed("export_model.py", "--init_checkpoint=file://%s" % model,
                   "--output_dir=file://%s" % target, *args)
  assert os.listdir(str(tmp_path)) == ["exported"]  # nothing else, such as .tmp
  return target, log


def test_saved_model(model, tmp_path, batch):
  folder, _ = export(model, tmp_path, "--saved_model")
  assert sorted(os.listdir(str(folder / "assets"))) == [
      "config.json", "task.json", "vocab.txt"]
  found = {}
  with tf.Graph().as_default(), tf.Session() as session:
    loaded = tf.saved_model.loader.load(session, ["serve"], str(folder))
    for name, signature in loaded.signature_def.items():
      feed = {signature.inputs[key].name: value for key, value in batch.items()}
      if name == "masked_lm":
        positions = signature.inputs["masked_lm_positions"].name
        feed[positions] = np.full([200, 1], 3)
      found[name] = session.run(
          {key: x.name for key, x in signature.outputs.items()}, feed)
  assert set(found) == {"serving_default", "classify", "encode", "masked_lm",
                        "sentence_order", "sentence_vector"}
  for signature, output, build in (
      ("serving_default", "probabilities", probabilities),
      ("classify", "probabilities", probabilities),
      ("encode", "sequence_output", lambda m: m.get_sequence_output()),
      ("encode", "pooled_output", lambda m: m.get_pooled_output()),
      ("masked_lm", "logits", masked_lm),
      ("sentence_order", "probabilities", sentence_order),
      ("sentence_vector", "vector", sentence_vectors)):
    np.testing.assert_allclose(
        found[signature][output], from_session(model, batch, build), rtol=0,
        atol=1e-5, err_msg=signature)
    assert len(found[signature]) == 1 + (signature == "encode")


def run_tflite(path, batch):
  """Runs a file batch by batch; returns its outputs for all rows, by name."""
  interpreter = tf.lite.Interpreter(model_path=str(path))
  interpreter.allocate_tensors()
  places = interpreter.get_input_details()
  count = places[0]["shape"][0]
  found = []
  for start in range(0, 200, count):
    for detail in places:
      assert detail["name"] in batch
      interpreter.set_tensor(detail["index"],
                             batch[detail["name"]][start:start + count])
    interpreter.invoke()
    found.append({detail["name"].split("/")[-1]: interpreter.get_tensor(
        detail["index"]) for detail in interpreter.get_output_details()})
  return {name: np.concatenate([outputs[name] for outputs in found])
          for name in found[0]}


@pytest.mark.parametrize("signature, batch_size, build", [
    ("classify", 1, probabilities),
    ("sentence_vector", 50, sentence_vectors),
    ("masked_lm", 50, masked_lm)])
def test_tflite(signature, batch_size, build, model, tmp_path, batch):
  folder, _ = export(
      model, tmp_path, "--tflite", "--signature=" + signature,
      "--batch_size=%d" % batch_size, "--max_seq_length=%d" % LENGTH)
  assert sorted(os.listdir(str(folder))) == [
      "config.json", "model.tflite", "task.json", "vocab.txt"]
  inputs = dict(batch)
  if signature == "masked_lm":
    inputs["masked_lm_positions"] = np.full([200, 1], 3, np.int32)
  found, = run_tflite(folder / "model.tflite", inputs).values()
  np.testing.assert_allclose(found, from_session(model, batch, build), rtol=0,
                             atol=1e-5)


@pytest.mark.parametrize("model", ["google"], indirect=True)
@pytest.mark.parametrize("head", ["independent", "beam"])
def test_spans(head, model, tmp_path, batch):
  source = copy_to(tmp_path / "source", model)
  weights = {name: value for name, value in checkpoints.read_weights(
      str(model / "model.ckpt-7")).items() if not name.startswith("output_")}
  (source / "task.json").write_text(json.dumps({"head": head}))
  checkpoints.write_checkpoint(str(source), "model.ckpt-7", dict(
      weights, **small_models.span_weights(32, head)))

  def build(model):
    if head == "independent":
      return heads.Spans().outputs(model, {})
    return spans.BeamScores(model, tf.constant(allowed)).likeliest(5, 5)

  allowed = batch["segment_ids"] * np.pad(
      batch["input_mask"][:, 1:], [(0, 0), (0, 1)], "constant")
  allowed[:, 0] = 1
  wanted = from_session(source, batch, build)
  served, phone = tmp_path / "served", tmp_path / "phone"
  for way, folder in (("--saved_model", served), ("--tflite", phone)):
    succeed("export_model.py", way, "--init_checkpoint=%s" % source,
            "--output_dir=%s" % folder, "--batch_size=50",
            "--max_seq_length=%d" % LENGTH)
  with tf.Graph().as_default(), tf.Session() as session:
    signature = tf.saved_model.loader.load(
        session, ["serve"], str(served)).signature_def["serving_default"]
    found = session.run(
        {key: x.name for key, x in signature.outputs.items()},
        {signature.inputs[key].name: value for key, value in batch.items()})
  for outputs in (found, run_tflite(phone / "model.tflite", batch)):
    assert set(outputs) == set(wanted)
    for name, x in wanted.items():
      np.testing.assert_allclose(outputs[name], x, rtol=0, atol=1e-5,
                                 err_msg=name)


def test_tflite_of_8_bits(model, tmp_path, batch):
  folder, _ = export(model, tmp_path, "--tflite", "--batch_size=50", "--int8",
                     "--max_seq_length=%d" % LENGTH)
  found, = run_tflite(folder / "model.tflite", batch).values()
  expected = from_session(model, batch, probabilities)
  # A quarter of the word embeddings' bytes alone, and many small operations.
  size = (folder / "model.tflite").stat().st_size
  assert size < 0.6 * 4 * 21128 * 32
  assert np.abs(found - expected).mean() < 0.02
  assert not np.array_equal(found, expected)


def test_strip(model, tmp_path):
  folder, _ = export(model, tmp_path, "--strip")
  assert sorted(os.listdir(str(folder))) == [
      "checkpoint", "config.json", "model.ckpt-7.data-00000-of-00001",
      "model.ckpt-7.index", "task.json", "vocab.txt"]
  old, new = [tf.train.load_checkpoint(str(path)) for path in (model, folder)]
  names = set(old.get_variable_to_shape_map())
  kept = set(new.get_variable_to_shape_map())
  assert names - kept == {
      name for name in names
      if name.endswith(("/adam_m", "/adam_v")) or name == "global_step"}
  for name in kept:
    np.testing.assert_array_equal(old.get_tensor(name), new.get_tensor(name))
  data = "model.ckpt-7.data-00000-of-00001"
  assert (folder / data).stat().st_size * 2.9 < (model / data).stat().st_size


@pytest.mark.parametrize("flag, period, count", [
    ("--repeat_positions=5", 5, 512), ("--extend_positions=700", 512, 700)])
def test_positions_are_repeated(flag, period, count, model, tmp_path):
  folder, _ = export(model, tmp_path, "--strip", flag)
  config = json.loads((folder / "config.json").read_text())
  assert config["max_position_embeddings"] == count
  old, new = [tf.train.load_checkpoint(str(path)) for path in (model, folder)]
  for name in new.get_variable_to_shape_map():
    found, wanted = new.get_tensor(name), old.get_tensor(name)
    if name == "bert/embeddings/position_embeddings":
      assert len(found) == count
      for i, x in enumerate(found):
        np.testing.assert_array_equal(x, wanted[i % period])
    else:
      np.testing.assert_array_equal(found, wanted)


def test_inspect(model):
  out, _ = succeed("export_model.py", "--inspect",
                   "--init_checkpoint=%s" % model)
  lines = out.splitlines()
  config = json.loads((model / "config.json").read_text())
  google = "num_hidden_groups" in config
  for line in ("layout: %s" % ("google" if google else "albert_zh"),
               "vocab_size: 21128", "embedding_size: 32", "hidden_size: 32",
               "intermediate_size: 64", "max_position_embeddings: 512",
               "type_vocab_size: 2", "step: 7",
               "on top: classifier of 2 label(s), masked LM, sentence order",
               "configuration: 2 layers, 2 heads, %s" % (
                   "postln" if google else "preln"),
               "does not fit the configuration: nothing"):
    assert line in lines
  weights = len(reference.random_weights(config)) + 2
  assert "optimizer slots: %d" % (2 * weights) in lines
  assert "parameters: {:,}".format(66 + sum(
      value.size for value in reference.random_weights(config).values())
                                   ) in lines


def test_inspect_says_what_is_missing(model, tmp_path):
  config = json.loads((model / "config.json").read_text())
  other = tmp_path / "other.json"
  other.write_text(json.dumps(dict(config, vocab_size=21127)))
  out, _ = succeed("export_model.py", "--inspect", "--init_checkpoint=%s"
                   % model, "--bert_config_file=%s" % other)
  assert re.search(r"does not fit the configuration: \S*word_embeddings "
                   r"\(\[21128, 32\], not \[21127, 32\]\)\n", out)


def test_bad_input(model, tmp_path):
  target = tmp_path / "exported"

  def fails(message, *args):
    fail(message, "export_model.py", "--init_checkpoint=%s" % model,
         "--output_dir=%s" % target, *args)
    assert not target.exists()
    assert not list(tmp_path.glob("*.tmp"))

  out = run("export_model.py", "--tflite", "--batch_size=0",
            "--init_checkpoint=%s" % model, "--output_dir=%s" % target)
  assert out[0] == 1 and "0 is not a positive integer" in out[2]
  fails("give one of --inspect, --strip, --saved_model, --tflite", "--strip",
        "--tflite")
  fails("--repeat_positions and --extend_positions need --strip", "--onnx",
        "--repeat_positions=5")
  for flag in ("--int8", "--signature=encode"):
    fails("--int8 and --signature need --tflite or --onnx", "--saved_model",
          flag)
  fails("--repeat_positions=999: the model has 512", "--strip",
        "--repeat_positions=999")
  fails("--extend_positions=9: the model has 512", "--strip",
        "--extend_positions=9")
  fail("exists already", "export_model.py", "--strip",
       "--init_checkpoint=%s" % model, "--output_dir=%s" % tmp_path)
  config = json.loads((model / "config.json").read_text())
  (tmp_path / "other.json").write_text(json.dumps(
      dict(config, intermediate_size=65)))
  for what in ("--saved_model", "--strip"):
    fails(r"has \[32, 64\] for .*, the model \[32, 65\]", what,
          "--bert_config_file=%s" % (tmp_path / "other.json"))
  short = tmp_path / "short.txt"
  short.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
  fails("short.txt is not the vocabulary that the model was made with, .*: "
        "leave the flag out", "--tflite", "--vocab_file=%s" % short)
  source = copy_to(tmp_path / "source", model)
  shutil.copy(str(short), str(source / "vocab.txt"))
  fails("vocab.txt has 5 entries, but .* says vocab_size 21128", "--tflite",
        "--init_checkpoint=%s" % source)


def copy_to(folder, model):
  shutil.copytree(str(model), str(folder))
  return folder


def test_part_of_an_encoder_is_no_model(model, tmp_path):
  config = json.loads((model / "config.json").read_text())
  old, new = ("/group_0/", "/group_1/") if "num_hidden_groups" in config else (
      "/layer_shared/", "/layer_1/")
  source = copy_to(tmp_path / "more", model)
  weights = checkpoints.read_weights(str(model / "model.ckpt-7"))
  weights.update((name.replace(old, new), value)
                 for name, value in list(weights.items()) if old in name)
  checkpoints.write_checkpoint(str(source), "model.ckpt-7", weights)
  for what in ("--strip", "--saved_model"):
    fail("has .* for bert/encoder.*%s.*, the model nothing" % new,
         "export_model.py", what, "--init_checkpoint=%s" % source,
         "--output_dir=%s" % (tmp_path / "out"))
  out, _ = succeed("export_model.py", "--inspect",
                   "--init_checkpoint=%s" % source)
  assert re.search("does not fit the configuration: bert/encoder.*" + new, out)


@pytest.mark.parametrize("model", ["google"], indirect=True)
@pytest.mark.parametrize("way, inside", [("--saved_model", "assets"),
                                         ("--tflite", "")])
def test_how_text_is_read_is_in_what_is_written(way, inside, model, tmp_path):
  """Even if the model's own folder does not say it."""
  source = copy_to(tmp_path / "source", model)
  for name in ("task.json", "vocab.txt"):
    (source / name).unlink()
  target = tmp_path / "out"
  succeed("export_model.py", way, "--init_checkpoint=%s" % source, VOCAB,
          "--nodo_lower_case", "--max_seq_length=8", "--output_dir=%s" % target)
  folder = target / inside
  assert json.loads((folder / "task.json").read_text()) == {
      "do_lower_case": False}
  with open(VOCAB.split("=")[1], "rb") as reader:
    assert (folder / "vocab.txt").read_bytes() == reader.read()
  assert json.loads((folder / "config.json").read_text()) == LAYOUTS["google"]


@pytest.mark.parametrize("signature, scopes", [
    ("encode", ("bert/",)), ("masked_lm", ("bert/", "cls/predictions/"))])
def test_tflite_has_each_weight_once(signature, scopes, tmp_path):
  """TFLite's converter copies a layer that is multiplied by a constant."""
  starter = str(scripting.ROOT / "albert_tiny_starter")
  target = tmp_path / "phone"
  succeed("export_model.py", "--tflite", "--init_checkpoint=" + starter,
          "--signature=" + signature, "--output_dir=%s" % target)
  weights = checkpoints.read_weights(checkpoints.find_checkpoint(starter))
  count = sum(value.size for name, value in weights.items()
              if name.startswith(scopes))
  assert (target / "model.tflite").stat().st_size <= 1.02 * 4 * count


def test_damaged_checkpoint(model, tmp_path):
  source = copy_to(tmp_path / "source", model)
  arguments = ["export_model.py", "--strip", "--init_checkpoint=%s" % source,
               "--output_dir=%s" % (tmp_path / "out")]
  data = source / "model.ckpt-7.data-00000-of-00001"
  data.write_bytes(data.read_bytes()[:-1000])
  fail("model.ckpt-7 cannot be read, it is damaged or not whole", *arguments)
  (source / "model.ckpt-7.index").write_bytes(b"")
  fail("model.ckpt-7 cannot be read, it is damaged or not whole", *arguments)
  (source / "checkpoint").write_bytes(b"")
  fail("model.ckpt-7 cannot be read, it is damaged or not whole", *arguments)
  assert os.listdir(str(tmp_path)) == ["source"]


def test_what_lies_beside_the_target_stays(model, tmp_path):
  source = copy_to(tmp_path / "model.tmp", model)
  succeed("export_model.py", "--strip", "--init_checkpoint=%s" % source,
          "--output_dir=%s" % (tmp_path / "model"))
  assert sorted(os.listdir(str(tmp_path))) == ["model", "model.tmp"]
  assert (source / "config.json").exists()
  fail("sub.* cannot be made", "export_model.py", "--strip",
       "--init_checkpoint=%s" % source,
       "--output_dir=%s" % (source / "config.json" / "sub"))


def test_a_folder_that_was_moved(model, tmp_path):
  source = copy_to(tmp_path / "moved", model)
  for end in ("data-00000-of-00001", "index"):
    for step in (10, 9):
      (source / ("model.ckpt-%d.%s" % (step, end))).write_bytes(
          (model / ("model.ckpt-7." + end)).read_bytes())
  (source / "checkpoint").write_text(
      'model_checkpoint_path: "/gone/model.ckpt-10"\n')
  out, _ = succeed("export_model.py", "--inspect",
                   "--init_checkpoint=%s" % source)
  assert "checkpoint: %s" % (source / "model.ckpt-10") in out.splitlines()


def test_signature_that_is_not_there(model, tmp_path):
  bare = tmp_path / "bare"
  bare.mkdir()
  weights = {name: value for name, value in checkpoints.read_weights(
      str(model / "model.ckpt-7")).items() if name.startswith("bert/")}
  checkpoints.write_checkpoint(str(bare), "model.ckpt", weights)
  (bare / "config.json").write_bytes((model / "config.json").read_bytes())
  args = ["export_model.py", "--init_checkpoint=%s" % bare,
          "--output_dir=%s" % (tmp_path / "exported")]
  fail("--vocab_file or --spm_model_file is", *args + ["--saved_model"])
  fail("has no classify: --signature can be encode, sentence_vector",
       *args + ["--tflite", VOCAB, "--signature=classify"])


def test_what_is_not_a_model(tmp_path):
  fail("no checkpoint at .*nowhere/model.ckpt", "export_model.py", "--inspect",
       "--init_checkpoint=%s" % (tmp_path / "nowhere" / "model.ckpt"))
  checkpoints.write_checkpoint(str(tmp_path), "model.ckpt",
                           {"w": np.zeros([2], np.float32)})
  for what in ("--inspect", "--strip"):
    fail("has no word embeddings, encoder and pooler", "export_model.py",
         what, "--init_checkpoint=%s" % tmp_path,
         "--output_dir=%s" % (tmp_path / "out"))
