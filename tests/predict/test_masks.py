"""What fills a mask, against the NumPy reference."""

import pathlib
import re

import numpy as np
import reference_albert as reference
from refusals import refused
from small_models import google_config, write_folder
from vocabularies import SPECIAL

import tokenization
from albert.predict import load
from albert.predict.predictors import PredictSettings

TOKENS = SPECIAL + list("中国的首都是北京上海大") + ["play", "##ing"]
CONFIG = google_config(vocab_size=len(TOKENS), max_position_embeddings=12)


def assert_expected(found, weights, config, tokens, ids, top_k):
  """What the reference says at each mask, id 4, of one text."""
  output = reference.forward(weights, config, np.array([ids]),
                             np.ones([1, len(ids)]), np.zeros_like([ids]))
  rows = reference.softmax(reference.masked_lm_logits(
      weights, config, output["sequence_output"],
      [np.flatnonzero(np.array(ids) == 4)]))
  # No special token is offered.
  wanted = [[i for i in np.argsort(row)[::-1] if tokens[i][0] not in "[<"]
            [:top_k] for row in rows]
  assert [[token for token, _ in choices] for choices in found] == [
      [tokens[i] for i in best] for best in wanted]
  np.testing.assert_allclose(
      [[p for _, p in choices] for choices in found],
      [row[best] for row, best in zip(rows, wanted)], atol=1e-6)


def test_probabilities_are_those_of_the_reference(tmp_path):
  weights = write_folder(tmp_path, CONFIG, TOKENS)
  masked = load(str(tmp_path), settings=PredictSettings(batch_size=2))
  # In batches of two, those of like length together, with one mask to three.
  texts = ["中国的首[MASK]是北京", "[MASK]京", "上[MASK]",
           "[MASK]海[MASK]大[MASK]", "playing[MASK]playing"]
  for text, result in zip(texts, masked.predict(texts, top_k=3)):
    tokens = ["[CLS]", *re.findall(r"\[MASK\]|##ing|play|.", text.replace(
        "ing", "##ing")), "[SEP]"]
    assert len(result.masks) == tokens.count("[MASK]")
    assert_expected(result.masks, weights, CONFIG, TOKENS,
                    list(map(TOKENS.index, tokens)), 3)
  everything, = masked.predict(["上[MASK]"], top_k=100)[0].masks
  assert {token for token, _ in everything} == set(TOKENS) - set(SPECIAL)
  assert masked.predict([]) == []


def test_sentencepiece(spm_file, tmp_path):
  tokenizer = tokenization.SentencePieceTokenizer(spm_file)
  config = google_config(vocab_size=tokenizer.vocab_size,
                         max_position_embeddings=30)
  weights = write_folder(tmp_path, config, pathlib.Path(spm_file))
  ids = []
  for number, part in enumerate(["in 2000, ", " met", "dogs"]):
    ids += [4] * bool(number) + tokenizer.convert_tokens_to_ids(
        tokenizer.tokenize_plain(part))
  result, = load(str(tmp_path)).predict(["in 2000, [MASK] met[MASK]dogs"], 4)
  assert_expected(
      result.masks, weights, config,
      tokenizer.convert_ids_to_tokens(range(tokenizer.vocab_size)),
      [2, *ids, 3], 4)


def test_a_model_without_masks(tmp_path):
  write_folder(tmp_path, CONFIG, TOKENS, top={"output_bias": np.zeros([2])})
  refused("%s has no masked-LM" % tmp_path, load, str(tmp_path))
