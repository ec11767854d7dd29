"""Similarity without fine-tuning, worked out by hand from the reference."""

import numpy as np
import pytest
import reference_albert as reference
from scripting import ROOT, fail, succeed
from small_models import google_config, write_folder

import similarity
from albert.errors import InputError
from similarity import VectorSim

pytestmark = pytest.mark.once

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + list(
    "中国的首都是北京上海大")
CONFIG = google_config(vocab_size=len(TOKENS), max_position_embeddings=12)
PAIRS = [("中国的首都", "北京"), ("上海大", "大上海"), ("中", "中国是大国"),
         ("北京的上海", "海")]
REFERENCE = ["".join(np.random.RandomState(i).choice(TOKENS[5:], 1 + i % 9))
             for i in range(60)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
  folder = tmp_path_factory.mktemp("pretrained")
  return folder, write_folder(folder, CONFIG, TOKENS)


def vectors(weights, texts, layer):
  """The mean over the tokens, text by text."""
  rows = []
  for text in texts:
    ids = [[TOKENS.index(t) for t in ["[CLS]"] + list(text) + ["[SEP]"]]]
    output = reference.forward(weights, CONFIG, ids, np.ones([1, len(ids[0])]),
                               np.zeros_like(ids))
    rows.append(output["all_layers"][layer][0].mean(0))
  return np.array(rows)


def cosines(a, b):
  return [x @ y / np.sqrt(x @ x * (y @ y)) for x, y in zip(a, b)]


@pytest.mark.parametrize("layer", [1, 2])
@pytest.mark.parametrize("texts", [None, REFERENCE])
def test_score_is_the_cosine_less_the_mean(model, layer, texts):
  folder, weights = model
  a, b = [vectors(weights, side, layer - 1) for side in zip(*PAIRS)]
  mean = np.concatenate([a, b]).mean(0) if texts is None else (
      vectors(weights, texts, layer - 1).mean(0))
  found = VectorSim(str(folder), texts, layer=layer,
                    batch_size=3).predict_sentences(PAIRS)
  np.testing.assert_allclose(found, cosines(a - mean, b - mean), atol=1e-5)


def test_whitened_score(model):
  folder, weights = model
  a, b = [vectors(weights, side, 1) for side in zip(*PAIRS)]
  x = vectors(weights, REFERENCE, 1)
  # The paper's own way: singular values of the covariance.
  u, s, _ = np.linalg.svd(np.cov(x.T))
  w = (u @ np.diag(1 / np.sqrt(s)))[:, :5]
  found = VectorSim(str(folder), REFERENCE, whiten=True, whitening_dim=5,
                    layer=2).predict_sentences(PAIRS)
  np.testing.assert_allclose(
      found, cosines((a - x.mean(0)) @ w, (b - x.mean(0)) @ w), atol=1e-4)


def test_whitening_by_hand():
  # Variances 2 and 1/2.
  vectors = np.array([[2, 0], [-2, 0], [0, 1], [0, -1]]) + [7, 5]
  np.testing.assert_allclose(np.abs(similarity.whitening(vectors)),
                             np.diag([2 ** -0.5, 2 ** 0.5]), atol=1e-12)
  np.testing.assert_allclose(np.abs(similarity.whitening(vectors, 1)),
                             [[2 ** -0.5], [0]], atol=1e-12)


def test_covariance_of_whitened_vectors_is_the_identity():
  rng = np.random.RandomState(0)
  vectors = rng.normal(size=[50, 6]) @ rng.normal(size=[6, 6]) + 3
  flat = np.concatenate([vectors, vectors[:, :1] - vectors[:, 1:2]], 1)
  for x in (vectors, flat):  # flat has seven columns and varies in six
    white = (x - x.mean(0)) @ similarity.whitening(x)
    assert white.shape == (50, 6)
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(6), atol=1e-8)
  with pytest.raises(InputError, match="50 sentences vary in 6 directions, too "
                     "few to whiten 7"):
    similarity.whitening(flat, 7)
  with pytest.raises(InputError, match="3 sentences vary in 0 directions"):
    similarity.whitening(np.ones([3, 2]))


def test_bad_input(model):
  folder, _ = model
  with pytest.raises(InputError, match="--layer=3: the model has layers 0 to"):
    VectorSim(str(folder), layer=3)
  with pytest.raises(InputError, match="give --reference_file, or more pairs"):
    VectorSim(str(folder)).predict_sentences(PAIRS[:1])
  with pytest.raises(InputError, match="whitening needs .*--reference_file"):
    VectorSim(str(folder), whiten=True)


def test_a_pair_by_itself(model):
  by_reference = VectorSim(str(model[0]), REFERENCE)
  np.testing.assert_allclose(by_reference.predict_sentences(PAIRS[:1]),
                             by_reference.predict_sentences(PAIRS)[:1],
                             atol=1e-6)
  assert by_reference.predict_sentences([]).shape == (0,)


@pytest.mark.slow
def test_script(model, tmp_path):
  folder, _ = model
  command = ["similarity.py", "--model_dir=file://%s" % folder]
  (tmp_path / "reference.txt").write_text("\n\n".join(REFERENCE),
                                          encoding="utf-8")
  (tmp_path / "empty.txt").write_text("\n")
  unsupervised = command + ["--unsupervised"]
  reference_file = "--reference_file=file://%s" % (tmp_path / "reference.txt")
  pairs = "".join("\t".join(pair) + "\n" for pair in PAIRS).encode()
  out, _ = succeed(*unsupervised, reference_file, "--whitening",
                   "--whitening_dim=4", "--layer=1", input=pairs)
  rows = [line.split("\t") for line in out.splitlines()]
  assert [tuple(row[1:]) for row in rows] == PAIRS
  scores = VectorSim(str(folder), REFERENCE, True, 4, 1).predict_sentences(
      PAIRS)
  np.testing.assert_allclose([float(row[0]) for row in rows], scores,
                             atol=1e-4)
  fail("empty.txt: has no sentences", *unsupervised, "a", "b",
       "--reference_file=%s" % (tmp_path / "empty.txt"))
  fail("without --unsupervised or --search, there is no effect of --layer",
       *command, "--layer=1", input=pairs)
  fail("without --whitening, there is no effect of --whitening_dim",
       *unsupervised, "--whitening_dim=3", input=pairs)


def test_the_first_example_of_the_help_needs_nothing_else():
  example = similarity.__doc__.split("python ")[1].replace("\\\n", " ")
  out, _ = succeed(*example.split(), cwd=str(ROOT))
  assert 0.5 < float(out.split("\t")[0]) < 1
