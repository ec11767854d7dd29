"""What fills a mask, against the NumPy reference."""

import pathlib

import numpy as np
import reference_albert as reference
from refusals import refused
from small_models import TOKENS, google_config, write_folder

import tokenization
from albert.predict import load


def test_probabilities_are_those_of_the_reference(spm_file, tmp_path):
  tokenizer = tokenization.SentencePieceTokenizer(spm_file)
  config = google_config(vocab_size=tokenizer.vocab_size,
                         max_position_embeddings=30)
  weights = write_folder(tmp_path, config, pathlib.Path(spm_file))
  ids = [tokenizer.cls_id]
  for part in ("in 2000, ", " met", "dogs"):
    ids += tokenizer.convert_tokens_to_ids(tokenizer.tokenize_plain(part))
    ids.append(tokenizer.mask_id)
  ids[-1] = tokenizer.sep_id
  output = reference.forward(weights, config, np.array([ids]),
                             np.ones([1, len(ids)]), np.zeros_like([ids]))
  rows = reference.softmax(reference.masked_lm_logits(
      weights, config, output["sequence_output"],
      [np.flatnonzero(np.equal(ids, tokenizer.mask_id))]))
  tokens = tokenizer.convert_ids_to_tokens(range(tokenizer.vocab_size))
  # No special token is offered.
  wanted = [[i for i in np.argsort(row)[::-1] if tokens[i][0] not in "[<"]
            for row in rows]
  found = load(str(tmp_path)).predict(
      ["in 2000, [MASK] met[MASK]dogs"], 999)[0].masks
  assert [[token for token, _ in choices] for choices in found] == [
      [tokens[i] for i in best] for best in wanted]
  np.testing.assert_allclose(
      [[p for _, p in choices] for choices in found],
      [row[best] for row, best in zip(rows, wanted)], atol=1e-6)


def test_a_model_without_masks(tmp_path):
  write_folder(tmp_path, google_config(), TOKENS,
               top={"output_bias": np.zeros([2])})
  refused("%s has no masked-LM" % tmp_path, load, str(tmp_path))
