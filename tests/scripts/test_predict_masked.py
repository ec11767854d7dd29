"""What fills a mask, against the NumPy reference."""

import re

import numpy as np
import pytest
import reference_albert as reference
from scripting import ROOT, fail, succeed
from small_models import albert_zh_config, google_config, write_folder
from test_sentencepiece import spm_file  # noqa: F401

import tokenization
from albert.errors import InputError
from albert.files import checkpoints
from predict_masked import MaskedPredictor

pytestmark = pytest.mark.once

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
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
  return [[(tokens[i], row[i]) for i in np.argsort(row)[::-1][:top_k]]
          for row in rows]


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
  assert {token for token, _ in everything} == set(TOKENS)
  assert sum(p for _, p in everything) == pytest.approx(1, abs=1e-5)
  assert masked.predict([]) == []


def test_each_mask_is_predicted_given_that_the_others_are_masked(model):
  first, second = model[3].predict(["[MASK][MASK]大"])[0]
  best = first[0][0]
  given_the_first, = model[3].predict(["%s[MASK]大" % best])[0]
  assert second[0][1] != pytest.approx(given_the_first[0][1], abs=1e-4)


def test_sentencepiece(spm_file, tmp_path):  # noqa: F811
  tokenizer = tokenization.SentencePieceTokenizer(spm_file)
  config = google_config(vocab_size=tokenizer.vocab_size,
                         max_position_embeddings=30)
  weights = write_folder(tmp_path, config, spm_file)
  text = "in 2000, [MASK] met[MASK]dogs"
  found, = MaskedPredictor(str(tmp_path)).predict([text], top_k=4)
  ids = []
  for number, part in enumerate(["in 2000, ", " met", "dogs"]):
    ids += [4] * bool(number) + tokenizer.convert_tokens_to_ids(
        tokenizer.tokenize_plain(part))
  pieces = tokenizer.convert_ids_to_tokens(range(tokenizer.vocab_size))
  assert_same(found, expected(weights, config, pieces, [2] + ids + [3], 4))


def test_bad_input(model, tmp_path):
  folder, config, weights, masked = model
  with pytest.raises(InputError, match=r"^text 2 \(中国\) has no \[MASK\]: "):
    masked.predict(["[MASK]", "中国"])
  full = "中" * (LENGTH - 3) + "[MASK]"
  assert len(masked.predict([full])[0]) == 1
  with pytest.raises(InputError, match=r"^text 1 \(.*\) has more than the 12 "
                     "tokens that the model can read"):
    masked.predict(["中" + full])
  with pytest.raises(InputError, match="no checkpoint at .*nowhere"):
    MaskedPredictor(str(tmp_path / "nowhere"))
  for path in folder.glob("*.*"):
    (tmp_path / path.name).write_bytes(path.read_bytes())
  checkpoints.write_checkpoint(
      str(tmp_path), "model.ckpt-7",
      {name: value.astype(np.float32) for name, value in weights.items()
       if not name.startswith("cls/predictions")})
  with pytest.raises(InputError,
                     match="%s has no masked-LM weights" % tmp_path):
    MaskedPredictor(str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["google"], indirect=True)
def test_script(model, tmp_path):
  folder, _, _, masked = model
  texts = ["中国的首[MASK]是北京", "[MASK]海[MASK]"]
  wanted = [[text, str(number)] + ["%s %.4f" % choice for choice in choices]
            for text, masks in zip(texts, masked.predict(texts, top_k=2))
            for number, choices in enumerate(masks, 1)]
  command = ["predict_masked.py", "--model_dir=file://%s" % folder,
             "--top_k=2"]
  (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n",
                                      encoding="utf-8")
  source = "--input_file=file://%s" % (tmp_path / "texts.txt")
  target = "--output_file=file://%s" % (tmp_path / "filled.tsv")

  def rows(text):
    return [line.split("\t") for line in text.splitlines()]

  assert rows(succeed(*command, *texts)[0]) == wanted
  assert succeed(*command, source, target)[0] == ""
  assert rows((tmp_path / "filled.tsv").read_text(encoding="utf-8")) == wanted
  (tmp_path / "filled.tsv").unlink()
  fail(r"text 2 \(中国\) has no \[MASK\]", *command, target,
       input="[MASK]\r\n中国\r\n".encode())
  fail("standard input: has no texts", *command, target, input=b"")
  assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["google"], indirect=True)
def test_programs_have_flags_of_their_own(model, tmp_path):
  (tmp_path / "program.py").write_text("""
import sys
sys.path.insert(0, %r)
from absl import flags
for name in ("model_dir", "input_file", "init_checkpoint", "layer", "top_k"):
  flags.DEFINE_string(name, None, "The program's own.")
from predict_masked import MaskedPredictor
from similarity import VectorSim
print(len(MaskedPredictor(%r).predict(["[MASK]"], 3)[0][0]))
print(len(VectorSim(%r).predict_sentences([("a", "b"), ("b", "a b")])))
""" % (str(ROOT), str(model[0]), str(model[0])))
  out, _ = succeed(str(tmp_path / "program.py"))
  assert out.split() == ["3", "2"]
