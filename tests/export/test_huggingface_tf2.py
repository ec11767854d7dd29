"""Converted models give the same outputs in Hugging Face Transformers."""

import math
import re
import unicodedata

import numpy as np
import pytest
import reference_albert as reference
import sentencepiece
import small_models
import tensorflow.compat.v1 as tf
from random_texts import random_texts
from scripting import ROOT
from small_models import INPUT_IDS, INPUT_MASK, POSITIONS, SEGMENT_IDS
from small_steps import assert_equal_variables
from vocabularies import VOCAB_FILE
from writing import write as write_file

import tokenization
from albert import characters, heads
from albert.export import pytorch, transformers_tokenizer
from albert.model.config import AlbertConfig
from albert.model_folder import ModelFolder
from albert.tasks import ner

pytestmark = pytest.mark.full
LABELS = ["O", "B-a", "I-a"]
RNG = np.random.RandomState(5)
ONE = {
  "output_weights": RNG.normal(size=[3, 24]),
  "output_bias": RNG.normal(size=[3]),
}
# (head, weights, Transformers class, {our output: theirs})
HEADS = [
  (heads.Classifier(3), ONE, "SequenceClassification", {"logits": "logits"}),
  (heads.MultiLabel(3), ONE, "SequenceClassification", {"logits": "logits"}),
  (
    heads.TokenLabels(LABELS, False),
    ONE,
    "TokenClassification",
    {"scores": "logits"},
  ),
  (
    heads.Spans(),
    small_models.span_weights(24, "independent"),
    "QuestionAnswering",
    {"start": "start_logits", "end": "end_logits"},
  ),
]


def write(folder, config, weights, **task):
  """Writes a Transformers folder; `task`: fields of ModelFolder."""
  theirs, state = pytorch.to_pytorch(
    AlbertConfig.from_dict(config),
    {name: value.astype(np.float32) for name, value in weights.items()},
    heads.restore(
      {name: value.shape for name, value in weights.items()},
      ModelFolder(config, None, **task),
    ),
  )
  write_file(folder, "config.json", theirs)
  pytest.importorskip("safetensors.numpy").save_file(
    state, str(folder / "model.safetensors"), metadata={"format": "pt"}
  )


def run(name, folder):
  """Loads a model without missing parameters; returns (model, outputs)."""
  torch = pytest.importorskip("torch")
  cls = getattr(pytest.importorskip("transformers"), "AutoModel" + name)
  model, info = cls.from_pretrained(str(folder), output_loading_info=True)
  assert not info["missing_keys"] and not info["mismatched_keys"]
  with torch.no_grad():
    return model, model.eval()(
      input_ids=torch.tensor(INPUT_IDS),
      attention_mask=torch.tensor(INPUT_MASK),
      token_type_ids=torch.tensor(SEGMENT_IDS),
    )


def close(found, expected):
  np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
  "name",
  [
    "albert_zh",
    "albert_zh_attention",
    "bert",
    "google",
    "google_groups",
    "google_unfactorized",
    "google_relu",
  ],
)
def test_pretrained_model(name, tmp_path):
  config = small_models.CONFIGS[name]
  weights = reference.random_weights(config, seed=1)
  write(tmp_path, config, weights)
  ours = small_models.run_model(config, weights)
  (_, encoded), (model, predicted), (_, masked) = [
    run(which, tmp_path) for which in ("", "ForPreTraining", "ForMaskedLM")
  ]
  close(encoded.last_hidden_state, ours["sequence_output"])
  close(encoded.pooler_output, ours["pooled_output"])
  for logits in (predicted.prediction_logits, masked.logits):
    close(
      np.take_along_axis(logits.numpy(), POSITIONS[..., np.newaxis], 1).reshape(
        [-1, 50]
      ),
      ours["masked_lm_logits"],
    )
  order = getattr(predicted, "sop_logits", None)
  close(
    predicted.seq_relationship_logits if order is None else order,
    ours["sentence_order_logits"],
  )
  if name == "google":  # and back, from a pickled file
    (tmp_path / "model.safetensors").unlink()
    pytest.importorskip("torch").save(
      model.state_dict(), str(tmp_path / "pytorch_model.bin")
    )
    _, found = pytorch.from_pytorch(*pytorch.read_pytorch_folder(str(tmp_path)))
    assert set(found) == set(weights)
    assert_equal_variables(found, weights, 0)


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_characters_are_tokens(do_lower_case, tmp_path):
  tokenizer = tokenization.WordPieceTokenizer(VOCAB_FILE, do_lower_case)
  write_file(
    tmp_path,
    "tokenizer.json",
    transformers_tokenizer.character_tokenizer(tokenizer.vocab, do_lower_case),
  )
  theirs = pytest.importorskip("transformers").PreTrainedTokenizerFast(
    tokenizer_file=str(tmp_path / "tokenizer.json"),
    **transformers_tokenizer.WORDPIECE,
  )
  different = [
    x
    for x in map(chr, range(0x20000))
    if unicodedata.category(x) not in ("Cn", "Co", "Cs", "Mn", "Mc", "Cf")
    and theirs.tokenize("他 用%s3.5！" % x)
    != ner.tokenize(tokenizer, "他 用%s3.5！" % x, by_character=True)[0]
  ]
  # A decomposable character is several [UNK] in theirs, one in ours.
  assert len(different) == (20 if do_lower_case else 0)
  assert all(len(unicodedata.normalize("NFD", x)) > 1 for x in different)


@pytest.mark.parametrize("name", ["google", "bert"])
@pytest.mark.parametrize("head, weights, suffix, outputs", HEADS)
def test_head(head, weights, suffix, outputs, name, tmp_path):
  config = small_models.CONFIGS[name]
  weights = dict(
    weights,
    **{
      key: x
      for key, x in reference.random_weights(config).items()
      if key.startswith("bert/")
    },
  )
  write(tmp_path, config, weights, head=head.name, labels=LABELS)
  model, theirs = run("For" + suffix, tmp_path)
  model.save_pretrained(str(tmp_path / "theirs"))
  back, found = pytorch.from_pytorch(
    *pytorch.read_pytorch_folder(str(tmp_path / "theirs"))
  )
  for settings, values in ((config, weights), (back.to_dict(), found)):
    with tf.Graph().as_default():
      ours = small_models.evaluate(
        head.outputs(small_models.create(settings), {}), values
      )
    for own, other in outputs.items():
      close(ours[own], theirs[other])


def test_words_of_a_vocabulary(tmp_path):
  words = ["充电宝", "他一", "六点半，闹", "Café里", "5g网络", "chroot"]
  ours = tokenization.create_tokenizer(
    write_file(
      tmp_path, "vocab.txt", *tokenization.load_vocab(VOCAB_FILE), *words
    )
  )
  theirs = load_tokenizer(
    tmp_path, None, {word: ours.vocab[word] for word in ours.words.values()}
  )
  found = set()
  for line in [
    *(ROOT / "data" / "text_train.txt").read_text("utf-8").split("\n"),
    "去CAF\u00c9里，用5G网络3天，chroots",
    "充 电 宝，充\u200b电宝[MASK]",
  ]:
    ids = ids_of(ours, line)
    assert theirs(line, add_special_tokens=False)["input_ids"] == ids, line
    found.update(ids)
  assert found > set(range(21128, 21128 + len(words)))
  assert_same_pair(theirs, ours, "今天下雨", "明天呢")
  theirs.add_tokens(["指示灯"])
  theirs.save_pretrained(str(tmp_path / "theirs"))
  assert not (tmp_path / "theirs" / "vocab.txt").exists()
  # Transformers strips the entry U+2028.
  assert transformers_tokenizer.read_vocabulary(str(tmp_path / "theirs")) == [
    *map(str.strip, ours.vocab),
    "指示灯",
  ]


def test_sentencepiece_tokenizer(real_data, tmp_path):
  model_file = str(real_data / "sentencepiece" / "30k-clean.model")
  write_file(
    tmp_path,
    "tokenizer.json",
    transformers_tokenizer.unigram_tokenizer(model_file, True),
  )
  theirs = load_tokenizer(tmp_path, transformers_tokenizer.SENTENCEPIECE)
  ours = tokenization.create_tokenizer(spm_model_file=model_file)
  for text in ("हिन्दी में", "a\x1cb\x0bc", "Ǻ ộ"):
    assert theirs.tokenize(text) == ours.tokenize(text)
  pieces = sentencepiece.SentencePieceProcessor(model_file)
  corpus, pairs = [
    (real_data / name).read_text(encoding="utf-8").split("\n")
    for name in ("corpus/lctt_zh.txt", "glue/MRPC/train.tsv")
  ]
  # Theirs has no final sigma and a newer Unicode version.
  lines = (
    corpus[:200000:40]
    + pairs
    + [
      text
      for text in random_texts(3000, 3)
      if not re.search("[Σ\u03f9]", text)
      and all(characters.category(char) != "Cn" for char in text)
    ]
  )
  differ = 0
  for line in lines:
    found = theirs(line, add_special_tokens=False)["input_ids"]
    expected = ids_of(ours, line)
    if found != expected:
      # SentencePiece sums scores in float32, theirs are float64: rounding
      # decides between 44 4 and 4 44.
      differ += 1
      assert (
        0
        <= math.fsum(map(pieces.GetScore, found))
        - math.fsum(map(pieces.GetScore, expected))
        < 1e-4
      ), line
  assert differ < 0.0005 * len(lines)
  assert_same_pair(theirs, ours, "It rains today.", "And tomorrow?")


def load_tokenizer(folder, special, words=None):
  given = transformers_tokenizer.tokenizer_settings(special, True, 512, words)
  write_file(folder, "tokenizer_config.json", given)
  write_file(folder, "config.json", {"model_type": "albert"})
  return pytest.importorskip("transformers").AutoTokenizer.from_pretrained(
    str(folder)
  )


def ids_of(tokenizer, text):
  return tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))


def assert_same_pair(theirs, ours, *texts):
  pair = theirs(*texts)
  assert (pair["input_ids"], pair["token_type_ids"]) == tokenization.pack_pair(
    ours, *[ids_of(ours, text) for text in texts], max_seq_length=64
  )
