"""Converted models compute the same in Hugging Face's transformers."""

import json
import math

import numpy as np
import pytest
import reference_albert as reference
import safetensors.numpy
import scripting
import sentencepiece
import tensorflow.compat.v1 as tf
import torch
import transformers

import tokenization
from albert import heads
from albert.errors import InputError
from albert.export import pytorch, transformers_tokenizer
from albert.model.config import AlbertConfig
from albert.model.layouts import create_model
from albert.model_folder import ModelFolder

pytestmark = pytest.mark.slow

INPUT_IDS = np.random.RandomState(5).randint(0, 50, size=[3, 8])
INPUT_MASK = np.array([[1] * 8, [1] * 5 + [0] * 3, [1] * 2 + [0] * 6])
SEGMENT_IDS = np.array([[0] * 4 + [1] * 4, [0] * 3 + [1] * 2 + [0] * 3,
                        [0] * 8])
POSITIONS = np.tile(np.arange(8), [3, 1])


def config_of(**changes):
  config = {
      "vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 4,
      "num_attention_heads": 4, "intermediate_size": 40,
      "hidden_act": "gelu_new", "hidden_dropout_prob": 0.0,
      "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 16,
      "type_vocab_size": 2, "initializer_range": 0.02}
  config.update(changes)
  return config


def pretraining_outputs(model):
  return [model.get_sequence_output(), model.get_pooled_output(),
          model.masked_lm_logits(tf.constant(POSITIONS, tf.int32)),
          model.sentence_order_logits()]


def our_outputs(config, weights, build=pretraining_outputs):
  with tf.Graph().as_default(), tf.Session() as sess:
    outputs = build(create_model(
        AlbertConfig.from_dict(config), False,
        tf.constant(INPUT_IDS, tf.int32), tf.constant(INPUT_MASK, tf.int32),
        tf.constant(SEGMENT_IDS, tf.int32)))
    variables = {v.op.name: v for v in tf.trainable_variables()}
    assert set(variables) == set(weights)
    sess.run(tf.global_variables_initializer())
    sess.run([variables[name].assign(value.astype(np.float32))
              for name, value in weights.items()])
    return sess.run(outputs)


def write_folder(folder, config, weights, **task):
  """Writes what transformers read; `task` has fields of a ModelFolder."""
  theirs, state = pytorch.to_pytorch(
      AlbertConfig.from_dict(config),
      {name: value.astype(np.float32) for name, value in weights.items()},
      heads.restore({name: value.shape for name, value in weights.items()},
                    ModelFolder(config, None, **task)))
  (folder / "config.json").write_text(json.dumps(theirs))
  safetensors.numpy.save_file(state, str(folder / "model.safetensors"),
                              metadata={"format": "pt"})


def load(auto_class, folder):
  """Loads as a user does; each parameter must come from the file."""
  model, info = auto_class.from_pretrained(str(folder),
                                           output_loading_info=True)
  assert not info["missing_keys"] and not info["mismatched_keys"]
  return model.eval()


def their_inputs():
  return dict(input_ids=torch.tensor(INPUT_IDS),
              attention_mask=torch.tensor(INPUT_MASK),
              token_type_ids=torch.tensor(SEGMENT_IDS))


def assert_same(folder, config, weights):
  write_folder(folder, config, weights)
  encoder, model, masked_lm = [load(auto_class, folder) for auto_class in (
      transformers.AutoModel, transformers.AutoModelForPreTraining,
      transformers.AutoModelForMaskedLM)]
  with torch.no_grad():
    encoded = encoder(**their_inputs())
    predicted = model(**their_inputs())
    masked = masked_lm(**their_inputs()).logits
  sentence_order = getattr(predicted, "sop_logits", None)
  if sentence_order is None:
    sentence_order = predicted.seq_relationship_logits
  theirs = [encoded.last_hidden_state, encoded.pooler_output,
            predicted.prediction_logits.reshape([-1, 50]), sentence_order]
  ours = our_outputs(config, weights)
  for one, other in zip(ours, theirs):
    np.testing.assert_allclose(one, other.numpy(), rtol=0, atol=1e-4)
  np.testing.assert_allclose(ours[2], masked.reshape([-1, 50]).numpy(), rtol=0,
                             atol=1e-4)


@pytest.mark.parametrize("hidden_act", ["relu", "gelu_new"])
@pytest.mark.parametrize("sizes", [
    dict(embedding_size=16, num_hidden_groups=1),
    dict(embedding_size=16, num_hidden_groups=2, inner_group_num=2),
    dict(num_hidden_groups=1)])
def test_google_layout(sizes, hidden_act, tmp_path):
  config = dict(AlbertConfig(
      **config_of(hidden_act=hidden_act, **sizes)).to_dict())
  assert_same(tmp_path, config, reference.random_weights(config, seed=1))


@pytest.mark.parametrize("hidden_act", ["relu", "gelu_new"])
@pytest.mark.parametrize("sizes", [
    dict(parameter_sharing="none"), dict(embedding_size=16),
    dict(embedding_size=16, parameter_sharing="attention"),
    dict(parameter_sharing="ffn")])
def test_albert_zh_layout(sizes, hidden_act, tmp_path):
  config = config_of(hidden_act=hidden_act, **sizes)
  assert_same(tmp_path, config, reference.random_weights(config, seed=3))


@pytest.mark.parametrize("layout", [{"num_hidden_groups": 1}, {}])
def test_classifier(layout, tmp_path):
  config = config_of(embedding_size=16, **layout)
  weights = {name: value for name, value in
             reference.random_weights(config, seed=4).items()
             if name.startswith("bert/")}
  rng = np.random.RandomState(5)
  weights["output_weights"] = rng.normal(size=[3, 24])
  weights["output_bias"] = rng.normal(size=[3])
  write_folder(tmp_path, config, weights)
  model = load(transformers.AutoModelForSequenceClassification, tmp_path)
  with torch.no_grad():
    theirs = model(**their_inputs()).logits.numpy()
  np.testing.assert_allclose(
      our_outputs(config, weights, heads.Classifier(3).logits),
      theirs, rtol=0, atol=1e-4)


def test_several_labels(tmp_path):
  config = config_of(embedding_size=16, num_hidden_groups=1)
  weights = {name: value for name, value in
             reference.random_weights(config, seed=4).items()
             if name.startswith("bert/")}
  rng = np.random.RandomState(5)
  weights["output_weights"] = rng.normal(size=[3, 24])
  weights["output_bias"] = rng.normal(size=[3])
  write_folder(tmp_path, config, weights, head="multi_label",
               labels=list("abc"))
  truth = rng.randint(0, 2, [3, 3])
  model = load(transformers.AutoModelForSequenceClassification, tmp_path)
  with torch.no_grad():
    theirs = model(**their_inputs(), labels=torch.tensor(truth).float())
  output = our_outputs(config, weights, lambda built: heads.MultiLabel(3).apply(
      built, {"label_ids": tf.constant(truth)}))
  np.testing.assert_allclose(output.predictions["logits"], theirs.logits,
                             rtol=0, atol=1e-4)
  assert output.losses["example_loss"] / 3 == pytest.approx(
      float(theirs.loss), abs=1e-5)


@pytest.mark.parametrize("layout", [
    {"embedding_size": 16, "num_hidden_groups": 1},
    {"parameter_sharing": "none"}])
def test_token_classifier(layout, tmp_path):
  """There, and back from a model that transformers have written."""
  config = config_of(**layout)
  weights = {name: value for name, value in
             reference.random_weights(config, seed=9).items()
             if name.startswith("bert/")}
  rng = np.random.RandomState(10)
  weights["output_weights"] = rng.normal(size=[5, 24])
  weights["output_bias"] = rng.normal(size=[5])
  labels = ["O", "B-a", "I-a", "B-b", "I-b"]
  head = heads.TokenLabels(labels, use_crf=False)
  write_folder(tmp_path, config, weights, head=head.name, labels=labels)
  model = load(transformers.AutoModelForTokenClassification, tmp_path)
  with torch.no_grad():
    theirs = model(**their_inputs()).logits.numpy()
  np.testing.assert_allclose(our_outputs(config, weights, head.logits), theirs,
                             rtol=0, atol=1e-4)
  model.save_pretrained(str(tmp_path / "theirs"))
  _, found = pytorch.from_pytorch(
      *pytorch.read_pytorch_folder(str(tmp_path / "theirs")))
  np.testing.assert_allclose(our_outputs(config, found, head.logits), theirs,
                             rtol=0, atol=1e-4)


def span_logits(model):
  found = heads.Spans().outputs(model, {})
  return [found["start"], found["end"]]


def test_answer_span(tmp_path):
  config = config_of(embedding_size=16, num_hidden_groups=1)
  weights = {name: value for name, value in
             reference.random_weights(config, seed=6).items()
             if name.startswith("bert/")}
  rng = np.random.RandomState(7)
  weights["cls/squad/output_weights"] = rng.normal(size=[2, 24])
  weights["cls/squad/output_bias"] = rng.normal(size=[2])
  write_folder(tmp_path, config, weights)
  model = transformers.AutoModelForQuestionAnswering.from_pretrained(
      str(tmp_path)).eval()
  with torch.no_grad():
    theirs = model(**their_inputs())
  for one, other in zip(
      our_outputs(config, weights, span_logits),
      (theirs.start_logits, theirs.end_logits)):
    np.testing.assert_allclose(one, other.numpy(), rtol=0, atol=1e-4)
  # Back again: theirs has no pooler, and old ones other names.
  state = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
      "LayerNorm.bias", "LayerNorm.beta"): value.numpy()
           for name, value in model.state_dict().items()}
  assert not any("pooler" in name for name in state)
  _, found = pytorch.from_pytorch(model.config.to_dict(), state)
  assert set(found) == set(weights)
  for name, value in weights.items():
    np.testing.assert_array_equal(
        found[name], 0 * value if "pooler" in name else
        value.astype(np.float32))


def test_pytorch_model_bin(tmp_path):
  config = config_of(embedding_size=16, num_hidden_groups=1)
  weights = {name: value.astype(np.float32) for name, value in
             reference.random_weights(config, seed=8).items()}
  write_folder(tmp_path, config, weights)
  model = load(transformers.AutoModelForPreTraining, tmp_path)
  (tmp_path / "model.safetensors").unlink()
  torch.save(model.state_dict(), str(tmp_path / "pytorch_model.bin"))
  _, found = pytorch.from_pytorch(
      *pytorch.read_pytorch_folder(str(tmp_path)))
  assert set(found) == set(weights)
  for name, value in weights.items():
    np.testing.assert_array_equal(found[name], value)


def test_wordpiece_tokenizer(real_data, tmp_path):
  vocab = scripting.ROOT / "albert_config" / "vocab.txt"
  (tmp_path / "vocab.txt").write_bytes(vocab.read_bytes())
  write_tokenizer(tmp_path, "Bert")
  theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
  ours = tokenization.create_tokenizer(str(vocab))
  for line in corpus_lines(real_data):
    assert theirs(line, add_special_tokens=False)["input_ids"] == (
        ours.convert_tokens_to_ids(ours.tokenize(line))), line
  assert_same_pair(theirs, ours, "今天下雨", "明天呢")


def test_words_of_a_vocabulary(tmp_path):
  """The same ids there; back, with what was added there too."""
  words = ["充电宝", "他一", "六点半，闹", "Café里", "5g网络", "chroot"]
  content = (scripting.ROOT / "albert_config" / "vocab.txt").read_bytes()
  (tmp_path / "vocab.txt").write_bytes(
      content + "".join(word + "\n" for word in words).encode())
  ours = tokenization.create_tokenizer(str(tmp_path / "vocab.txt"))
  write_tokenizer(tmp_path, "Bert", {
      word: ours.vocab[word] for word in ours.words.values()})
  theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
  found = set()
  for line in (scripting.ROOT / "data" / "text_train.txt").read_text(
      encoding="utf-8").split("\n") + [
          "去CAF\u00c9里，用5G网络3天，chroots",
          "充 电 宝，充\u200b电宝[MASK]"]:
    ids = ours.convert_tokens_to_ids(ours.tokenize(line))
    assert theirs(line, add_special_tokens=False)["input_ids"] == ids, line
    found.update(ids)
  assert found > set(range(21128, 21128 + len(words)))

  theirs.add_tokens(["指示灯"])
  theirs.save_pretrained(str(tmp_path / "theirs"))
  assert not (tmp_path / "theirs" / "vocab.txt").exists()
  # They strip the entry U+2028.
  assert transformers_tokenizer.read_vocabulary(str(tmp_path / "theirs")) == [
      *map(str.strip, ours.vocab), "指示灯"]
  # As older versions save it.
  added = tmp_path / "added_tokens.json"
  added.write_text('{"指示灯": 21134}', encoding="utf-8")
  assert transformers_tokenizer.read_vocabulary(str(tmp_path)) == [
      *ours.vocab, "指示灯"]
  added.write_text('{"指示灯": 21135}', encoding="utf-8")
  with pytest.raises(InputError, match="21135 tokens are not 0 to 21134"):
    transformers_tokenizer.read_vocabulary(str(tmp_path))


def test_sentencepiece_tokenizer(real_data, tmp_path):
  model_file = str(real_data / "sentencepiece" / "30k-clean.model")
  (tmp_path / "tokenizer.json").write_text(json.dumps(
      transformers_tokenizer.unigram_tokenizer(model_file, do_lower_case=True)))
  write_tokenizer(tmp_path, "Albert")
  theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
  ours = tokenization.create_tokenizer(spm_model_file=model_file)
  pieces = sentencepiece.SentencePieceProcessor()
  pieces.Load(model_file)
  lines = corpus_lines(real_data) + (
      real_data / "glue" / "MRPC" / "train.tsv").read_text(
          encoding="utf-8").split("\n")
  differ = 0
  for line in lines:
    found = theirs(line, add_special_tokens=False)["input_ids"]
    expected = ours.convert_tokens_to_ids(ours.tokenize(line))
    if found != expected:
      # SentencePiece adds up scores in float32, whose rounding decides between
      # 44 4 and 4 44; theirs are float64.
      differ += 1
      assert 0 <= math.fsum(map(pieces.GetScore, found)) - math.fsum(
          map(pieces.GetScore, expected)) < 1e-4, line
  assert differ < 0.0005 * len(lines)
  assert_same_pair(theirs, ours, "It rains today.", "And tomorrow?")


def corpus_lines(real_data):
  text = (real_data / "corpus" / "lctt_zh.txt").read_text(encoding="utf-8")
  return text.split("\n")[:200000:40]


def assert_same_pair(theirs, ours, *texts):
  pair = theirs(*texts)
  assert (pair["input_ids"], pair["token_type_ids"]) == tokenization.pack_pair(
      ours, *[ours.convert_tokens_to_ids(ours.tokenize(text))
              for text in texts], max_seq_length=64)


def write_tokenizer(folder, kind, words=None):
  (folder / "tokenizer_config.json").write_text(json.dumps(
      transformers_tokenizer.tokenizer_settings(kind, True, 512, words)))
  (folder / "config.json").write_text('{"model_type": "albert"}')
