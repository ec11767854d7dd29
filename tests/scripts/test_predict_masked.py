"""What fills a mask, against the NumPy reference."""

import pathlib
import re

import numpy as np
import pytest
import reference_albert as reference
from scripting import fail, succeed
from small_models import albert_zh_config, google_config, write_folder
from vocabularies import SPECIAL

import tokenization
from albert.errors import InputError
from predict_masked import MaskedPredictor

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
  return folder, config, weights, MaskedPredictor(str(folder), batch_size=2)


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
  found = masked.predict(texts, top_k=3)
  assert [len(masks) for masks in found] == [1, 1, 1, 3, 1]
  for text, masks in zip(texts, found):
    assert_same(masks, expected(weights, config, TOKENS, wordpiece_ids(text),
                                3))
  everything, = masked.predict(["上[MASK]"], top_k=100)[0]
  assert {token for token, _ in everything} == set(TOKENS) - set(SPECIAL)
  assert masked.predict([]) == []


def test_sentencepiece(spm_file, tmp_path):
  tokenizer = tokenization.SentencePieceTokenizer(spm_file)
  config = google_config(vocab_size=tokenizer.vocab_size,
                         max_position_embeddings=30)
  weights = write_folder(tmp_path, config, pathlib.Path(spm_file))
  text = "in 2000, [MASK] met[MASK]dogs"
  found, = MaskedPredictor(str(tmp_path)).predict([text], top_k=4)
  ids = []
  for number, part in enumerate(["in 2000, ", " met", "dogs"]):
    ids += [4] * bool(number) + tokenizer.convert_tokens_to_ids(
        tokenizer.tokenize_plain(part))
  pieces = tokenizer.convert_ids_to_tokens(range(tokenizer.vocab_size))
  assert_same(found, expected(weights, config, pieces, [2] + ids + [3], 4))


def test_a_model_without_masks(model, tmp_path):
  write_folder(tmp_path, model[1], TOKENS, top={"output_bias": np.zeros([2])})
  with pytest.raises(InputError, match="%s has no masked-LM" % tmp_path):
    MaskedPredictor(str(tmp_path))


@pytest.mark.full
@pytest.mark.parametrize("model", ["google"], indirect=True)
def test_script(model, tmp_path):
  folder, _, _, masked = model
  texts = ["中国的首[MASK]是北京", "[MASK]海[MASK]"]
  wanted = [[text, str(number)] + ["%s %.4f" % choice for choice in choices]
            for text, masks in zip(texts, masked.predict(texts, top_k=2))
            for number, choices in enumerate(masks, 1)]
  flags = ["--model_dir=file://%s" % folder, "--top_k=2"]
  command = ["predict_masked.py", *flags]
  source, target = tmp_path / "texts.txt", tmp_path / "filled.tsv"
  source.write_text("\n".join(texts) + "\n", encoding="utf-8")
  to_target = [*command, "--output_file=file://%s" % target]

  def rows(text):
    return [line.split("\t") for line in text.splitlines()]

  assert rows(succeed(*command, *texts)[0]) == wanted
  # For a pretrained model, predict.py says the same in its own way.
  assert rows(succeed("predict.py", *flags, texts[0])[0]) == [
      [" ".join(wanted[0][2:]), texts[0]]]
  fail(r"text 2 \(中国\) has no \[MASK\]", *to_target,
       input="[MASK]\r\n中国\r\n".encode())
  fail("standard input: has no texts", *to_target, input=b"")
  fail("--input_file, not both", *to_target, "--input_file=x", "[MASK]")
  assert not target.exists()
  assert succeed(*to_target, "--input_file=file://%s" % source)[0] == ""
  assert rows(target.read_text(encoding="utf-8")) == wanted
