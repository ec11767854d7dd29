"""What fills a mask, against the NumPy reference."""

import pathlib
import re

import numpy as np
import pytest
import reference_albert as reference
from scripting import succeed
from small_models import albert_zh_config, google_config, write_folder
from vocabularies import SPECIAL

import tokenization
from albert.errors import InputError
from albert.predict import load
from albert.predict.predictors import PredictSettings

TOKENS = SPECIAL + list("中国的首都是北京上海大") + ["play", "##ing"]
CONFIGS = {"albert_zh": albert_zh_config, "google": google_config}
LENGTH = 12


@pytest.fixture(scope="module", params=sorted(CONFIGS))
def model(request, tmp_path_factory):
  """(folder, configuration, weights, what they predict)."""
  folder = tmp_path_factory.mktemp(request.param)
  config = CONFIGS[request.param](
      vocab_size=len(TOKENS), max_position_embeddings=LENGTH)
  weights = write_folder(folder, config, TOKENS)
  return folder, config, weights, load(
      str(folder), settings=PredictSettings(batch_size=2))


def expected(weights, config, tokens, ids, top_k):
  """What the reference says at each mask, id 4, of one text."""
  positions = np.flatnonzero(np.array(ids) == 4)
  output = reference.forward(weights, config, np.array([ids]),
                             np.ones([1, len(ids)]), np.zeros_like([ids]))
  rows = reference.softmax(reference.masked_lm_logits(
      weights, config, output["sequence_output"], [positions]))
  # No special token is offered.
  return [[(tokens[i], row[i]) for i in np.argsort(row)[::-1]
           if tokens[i][0] not in "[<"][:top_k] for row in rows]


def assert_same(found, wanted):
  assert [[token for token, _ in choices] for choices in found] == [
      [token for token, _ in choices] for choices in wanted]
  np.testing.assert_allclose(
      [[p for _, p in choices] for choices in found],
      [[p for _, p in choices] for choices in wanted], atol=1e-6)


def wordpiece_ids(text):
  tokens = re.findall(r"\[MASK\]|##ing|play|.", text.replace("ing", "##ing"))
  return [TOKENS.index(t) for t in ["[CLS]"] + tokens + ["[SEP]"]]


def test_probabilities_are_those_of_the_reference(model):
  _, config, weights, masked = model
  # In batches of two, those of like length together, with one mask to three.
  texts = ["中国的首[MASK]是北京", "[MASK]京", "上[MASK]",
           "[MASK]海[MASK]大[MASK]", "playing[MASK]playing"]
  found = [result.masks for result in masked.predict(texts, top_k=3)]
  assert [len(masks) for masks in found] == [1, 1, 1, 3, 1]
  for text, masks in zip(texts, found):
    assert_same(masks, expected(weights, config, TOKENS, wordpiece_ids(text),
                                3))
  everything, = masked.predict(["上[MASK]"], top_k=100)[0].masks
  assert {token for token, _ in everything} == set(TOKENS) - set(SPECIAL)
  assert masked.predict([]) == []


def test_sentencepiece(spm_file, tmp_path):
  tokenizer = tokenization.SentencePieceTokenizer(spm_file)
  config = google_config(vocab_size=tokenizer.vocab_size,
                         max_position_embeddings=30)
  weights = write_folder(tmp_path, config, pathlib.Path(spm_file))
  text = "in 2000, [MASK] met[MASK]dogs"
  found = load(str(tmp_path)).predict([text], top_k=4)[0].masks
  ids = []
  for number, part in enumerate(["in 2000, ", " met", "dogs"]):
    ids += [4] * bool(number) + tokenizer.convert_tokens_to_ids(
        tokenizer.tokenize_plain(part))
  pieces = tokenizer.convert_ids_to_tokens(range(tokenizer.vocab_size))
  assert_same(found, expected(weights, config, pieces, [2] + ids + [3], 4))


def test_a_model_without_masks(model, tmp_path):
  write_folder(tmp_path, model[1], TOKENS, top={"output_bias": np.zeros([2])})
  with pytest.raises(InputError, match="%s has no masked-LM" % tmp_path):
    load(str(tmp_path))


def test_what_has_no_mask(model, tmp_path):
  _, _, _, masked = model
  with pytest.raises(InputError, match=r"text 2 \(中国\) has no \[MASK\]"):
    masked.predict(["[MASK]", "中国"])


@pytest.mark.slow
@pytest.mark.parametrize("model", ["google"], indirect=True)
def test_script(model):
  folder, _, _, masked = model
  texts = ["中国的首[MASK]是北京", "[MASK]海[MASK]"]
  wanted = [[" ".join("%s %.4f" % choice for choice in choices)
             for choices in result.masks] + [text]
            for text, result in zip(texts, masked.predict(texts, top_k=2))]
  out, _ = succeed("predict.py", "--model_dir=file://%s" % folder, "--top_k=2",
                   *texts)
  assert [line.split("\t") for line in out.splitlines()] == wanted
