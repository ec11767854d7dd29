"""Similarity by a fine-tuned model and by vectors, against NumPy."""

import numpy as np
import pytest
import reference_albert as reference
from reading import table
from refusals import refused
from scripting import fail, succeed
from small_models import google_config, write_folder
from vocabularies import SPECIAL
from writing import write

import similarity
from albert.predict import load
from similarity import BertSim, VectorSim

TOKENS = SPECIAL + list("中国的首都是北京上海大")
CONFIG = google_config(vocab_size=len(TOKENS), max_position_embeddings=12)
PAIRS = [
  ("中国的首都", "北京"),
  ("上海大", "大上海"),
  ("中", "中国是大国"),
  ("北京的上海", "海"),
]
REFERENCE = [
  "".join(np.random.RandomState(i).choice(TOKENS[5:], 1 + i % 9))
  for i in range(60)
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
  folder = tmp_path_factory.mktemp("pretrained")
  return folder, write_folder(folder, CONFIG, TOKENS)


def vectors(weights, texts, layer, pool=lambda tokens: tokens.mean(0)):
  rows = []
  for text in texts:
    ids = np.array([[2, *map(TOKENS.index, text), 3]])
    output = reference.forward(weights, CONFIG, ids, ids > 0, 0 * ids)
    rows.append(pool(output["all_layers"][layer - 1][0]))
  return np.array(rows)


def cosines(a, b):
  return [x @ y / np.sqrt(x @ x * (y @ y)) for x, y in zip(a, b)]


@pytest.mark.parametrize("layer, texts", [(1, None), (2, REFERENCE)])
def test_score_is_the_cosine_less_the_mean(model, layer, texts):
  folder, weights = model
  a, b = [vectors(weights, side, layer) for side in zip(*PAIRS)]
  mean = (vectors(weights, texts, layer) if texts else (a + b) / 2).mean(0)
  sim = VectorSim(str(folder), texts, layer=layer, batch_size=3)
  expected = cosines(a - mean, b - mean)
  np.testing.assert_allclose(sim.predict_sentences(PAIRS), expected, atol=1e-5)
  if texts:
    np.testing.assert_allclose(
      sim.predict_sentences(PAIRS[:1]), expected[:1], atol=1e-5
    )
    assert sim.predict_sentences([]).shape == (0,)
  else:  # a single pair has no mean
    refused("--reference_file", sim.predict_sentences, PAIRS[:1])
    refused("whitening .*--reference_file", VectorSim, str(folder), whiten=True)


def test_vectors_that_were_trained(model, tmp_path):
  weights = write_folder(
    tmp_path,
    CONFIG,
    TOKENS,
    task=dict(head="sentence_vector", pooling="cls", layer=1, max_seq_length=5),
  )
  a, b = [
    vectors(weights, [text[:3] for text in side], 1, lambda x: x[0])
    for side in zip(*PAIRS)
  ]
  sim = VectorSim(str(tmp_path))
  for found in (
    sim.predict_sentences(PAIRS),
    [sim.compare(pair)[0, 1] for pair in PAIRS],
    [x.score for x in load(str(tmp_path)).predict(PAIRS)],
  ):
    np.testing.assert_allclose(found, cosines(a, b), atol=1e-5)


def test_covariance_of_whitened_vectors_is_the_identity():
  rng = np.random.RandomState(0)
  vectors = rng.normal(size=[50, 6]) @ rng.normal(size=[6, 6]) + 3
  flat = np.concatenate([vectors, vectors[:, :1] - vectors[:, 1:2]], 1)
  for x in (vectors, flat):  # flat: seven columns of rank six
    white = (x - x.mean(0)) @ similarity.whitening(x)
    assert white.shape == (50, 6)
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(6), atol=1e-8)
  refused("50 .* 6 directions, .* 7", similarity.whitening, flat, 7)
  refused("3 sentences .* 0 directions", similarity.whitening, np.ones([3, 2]))


@pytest.mark.slow
def test_whitened_scores_of_the_script(model, tmp_path):
  folder, weights = model
  path = write(tmp_path, "reference.txt", "\n\n".join(REFERENCE))
  command = ["similarity.py", "--model_dir=file://%s" % folder]
  unsupervised = command + ["--unsupervised"]
  pairs = "".join("\t".join(pair) + "\n" for pair in PAIRS).encode()
  out, _ = succeed(
    *unsupervised,
    "--reference_file=" + path,
    "--whitening",
    "--whitening_dim=4",
    "--layer=1",
    input=pairs,
  )
  scores, *sides = zip(*(line.split("\t") for line in out.splitlines()))
  assert list(zip(*sides)) == PAIRS
  # As in the paper: SVD of the covariance.
  a, b, x = [vectors(weights, texts, 1) for texts in (*sides, REFERENCE)]
  u, s, _ = np.linalg.svd(np.cov(x.T))
  w = (u @ np.diag(1 / np.sqrt(s)))[:, :4]
  np.testing.assert_allclose(
    np.array(scores, float),
    cosines((a - x.mean(0)) @ w, (b - x.mean(0)) @ w),
    atol=2e-4,
  )
  write(tmp_path, "reference.txt", "\n")
  fail("--layer .*--unsupervised or --search", *command, "--layer=1")
  for message, *args in (
    ("reference.txt: ", "a", "b", "--reference_file=" + path),
    ("--whitening_dim .*--whitening$", "--whitening_dim=3"),
    ("two sentences", "a"),
    ("input_file.*both", "a", "b", "--input_file=x"),
    ("standard input:2: .* 1$",),
  ):
    fail(message, *unsupervised, *args, input=b"a\tb\na\n")


@pytest.mark.slow
def test_probabilities_are_those_of_the_classifier(trained, tmp_path):
  model = trained("pairs")
  header, *rows = table(model.out / "test_results.tsv")
  expected = [float(row[header.index("1")]) for row in rows]
  assert np.ptp(expected) > 1e-4  # or the order would not matter
  sim = BertSim(str(model.best), batch_size=5)
  np.testing.assert_allclose(
    sim.predict_sentences(model.inputs), expected, atol=1e-6
  )
  command = ["similarity.py", "--model_dir=file://%s" % model.best]
  pairs = write(tmp_path, "pairs.tsv", *map("\t".join, model.inputs))
  assert (
    "p50"
    in succeed(
      *command,
      "--benchmark",
      "--input_file=" + pairs,
      "--output_file=file://%s/scores.tsv" % tmp_path,
    )[1]
  )
  found = table(tmp_path / "scores.tsv")
  assert [tuple(row[1:]) for row in found] == [
    ("same" if score >= 0.5 else "different", *texts)
    for score, texts in zip(expected, model.inputs)
  ]
  np.testing.assert_allclose(
    [float(row[0]) for row in found], expected, atol=1e-4
  )
  assert succeed(*command, *model.inputs[0])[0] == "\t".join(found[0]) + "\n"
