"""Similarity search against brute force."""

import types
from unittest import mock

import numpy as np
import pytest
from refusals import refused
from scripting import fail, succeed
from writing import write

from albert.predict import similarity as search
from albert.predict.similarity import Corpus, VectorSim

RNG = np.random.RandomState(5)
WORDS = "天地玄黄宇宙洪荒日月盈昃辰宿列张"
TEXTS = [
  "".join(RNG.choice(list(WORDS), RNG.randint(3, 12))) for _ in range(300)
]
QUERIES = ["天地玄黄", "日月盈昃", TEXTS[123]]


class Engine:
  """A fake engine: a text's vector is the sum of its characters' vectors."""

  folder = types.SimpleNamespace(
    vector=None,
    config=types.SimpleNamespace(hidden_size=8, num_hidden_layers=3),
  )

  def __init__(self, seed=0):
    self._seed = seed

  def digest(self):
    return str(self._seed)

  def predictor(self, signature, output, **_):
    assert signature == "sentence_vector"
    seed = self._seed + int(output[len("mean_") :])
    weights = np.random.RandomState(seed).normal(size=[len(WORDS), 8])
    return types.SimpleNamespace(
      predict=lambda texts: [
        1 + np.array([text.count(char) for char in WORDS]) @ weights
        for text, _ in texts
      ]
    )


@pytest.fixture
def corpus_file(tmp_path):
  write(tmp_path, "corpus.txt", *TEXTS[:100], "", "  ", *TEXTS[100:], "")
  return tmp_path / "corpus.txt"


@pytest.mark.parametrize("way", ["at once", "blocks", "faiss"])
def test_it_finds_what_all_scores_say(corpus_file, way, monkeypatch):
  if way == "blocks":
    monkeypatch.setattr(search, "_QUERIES", 2)
    monkeypatch.setattr(search, "_BLOCK", 7)
  if way == "faiss":
    pytest.importorskip("faiss")
    monkeypatch.setattr(search, "_LARGE", 300)
    monkeypatch.setattr(search, "_greatest", None)  # FAISS only
  monkeypatch.setattr(search, "_AT_ONCE", 64)
  corpus = Corpus(str(corpus_file), model_dir=Engine())
  assert len(corpus) == 300
  similarity = VectorSim(Engine(), TEXTS)  # under 2,000: not sampled
  wanted = similarity.directions(QUERIES) @ similarity.directions(TEXTS).T
  lines = corpus_file.read_text(encoding="utf-8").split("\n")
  for row, found in zip(wanted, corpus.search(QUERIES, 6)):
    assert [x.score for x in found] == pytest.approx(
      sorted(row, reverse=True)[:6], abs=1e-5
    )
    for x in found:
      assert x.score == pytest.approx(row[TEXTS.index(x.text)], abs=1e-5)
      assert lines[x.line - 1] == x.text
  first = corpus.search(QUERIES, 1)[2][0]
  assert first.score == pytest.approx(1, abs=1e-5)
  assert sorted(first.text) == sorted(TEXTS[123])
  assert len(corpus.search(QUERIES, 999)[0]) == 300
  assert corpus.search([]) == []


def test_vectors_are_kept_until_something_changes(corpus_file):
  kept = corpus_file.with_name("corpus.txt.vectors.npz")

  def is_made_again(**kwargs):
    """Whether the next start overwrites a mark set in the file."""
    marked = dict(np.load(str(kept)))
    marked["vectors"][0, 0] = 7
    np.savez(str(kept), **marked)
    Corpus(str(corpus_file), **dict({"model_dir": Engine()}, **kwargs))
    return np.load(str(kept))["vectors"][0, 0] != 7

  Corpus(str(corpus_file), model_dir=Engine())
  vectors = np.load(str(kept))["vectors"]
  assert vectors.shape == (300, 8)
  np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
  assert not is_made_again()
  for changes in (
    {"layer": 2},
    {"reference": TEXTS[:20]},
    {"reference": TEXTS, "whiten": True},
    {"model_dir": Engine(9)},
  ):
    assert is_made_again(**changes) and is_made_again()
  marked = dict(np.load(str(kept)))
  np.savez(str(kept), **dict(marked, vectors=marked["vectors"][:-1]))
  assert is_made_again(**changes) and not is_made_again(**changes)
  for text in ("天地\n", "玄黄\n"):
    corpus_file.write_text(text, encoding="utf-8")
    found = Corpus(str(corpus_file), TEXTS[:20], model_dir=Engine()).search(
      [text.strip()]
    )
    assert [(x.text, x.line) for x in found[0]] == [(text.strip(), 1)]
    assert found[0][0].score == pytest.approx(1, abs=1e-5)
  whole = kept.read_bytes()
  for damaged in (b"", b"no archive", whole[:-9]):
    kept.write_bytes(damaged)
    refused("npz: damaged", Corpus, str(corpus_file), model_dir=Engine())


def test_an_interrupted_computation_goes_on(corpus_file, monkeypatch, caplog):
  caplog.set_level("INFO", "absl")
  monkeypatch.setattr(search, "_AT_ONCE", 64)
  directions, encoded = VectorSim.directions, []

  def interrupted(self, texts):
    encoded.append(len(texts))
    if len(encoded) == 3:
      raise KeyboardInterrupt
    return directions(self, texts)

  monkeypatch.setattr(VectorSim, "directions", interrupted)
  with pytest.raises(KeyboardInterrupt):
    Corpus(str(corpus_file), model_dir=Engine())
  unfinished = corpus_file.with_name("corpus.txt.vectors.part")
  with open(str(unfinished), "ab") as writer:
    writer.write(b"half of a row")
  Corpus(str(corpus_file), model_dir=Engine())
  assert encoded == [64, 64, 64, 64, 64, 44]
  assert "after 128 of an interrupted run" in caplog.text
  assert not unfinished.exists()
  kept = corpus_file.with_name("corpus.txt.vectors.npz")
  vectors = np.load(str(kept))["vectors"]
  kept.unlink()
  Corpus(str(corpus_file), model_dir=Engine())
  np.testing.assert_array_equal(vectors, np.load(str(kept))["vectors"])


def test_vectors_that_cannot_be_kept(corpus_file, monkeypatch, caplog):
  monkeypatch.setattr(
    search.filesystem,
    "write_bytes",
    mock.Mock(side_effect=OSError(30, "Read-only file system")),
  )
  assert Corpus(str(corpus_file), model_dir=Engine()).search(QUERIES)
  assert "are not cached: [Errno 30] Read-only" in caplog.text


@pytest.mark.slow
def test_the_command(trained, corpus_file, tmp_path):
  best = str(trained("labels").best)
  args = [
    "similarity.py",
    "--search",
    "--corpus_file=%s" % corpus_file,
    "--model_dir=" + best,
    "--top_k=3",
  ]
  out, _ = succeed(*args, *QUERIES)
  wanted = Corpus(str(corpus_file), model_dir=best).search(QUERIES, 3)
  assert out.splitlines() == [
    "%s\t%.4f\t%s" % (query, x.score, x.text)
    for query, found in zip(QUERIES, wanted)
    for x in found
  ]
  queries, empty = [
    write(tmp_path, name, *rows)
    for name, rows in (("x.txt", QUERIES), ("empty.txt", ["\n"]))
  ]
  assert succeed(*args, "--input_file=" + queries)[0] == out
  fail("empty.txt: .*no texts", *args, "--corpus_file=" + empty, "天")
  fail("--corpus_file", "similarity.py", "--search", "天")
  fail("--top_k .* --search", "similarity.py", "--top_k=3", "天", "地")


def test_the_first_of_equal_ones_is_first():
  scores = np.array([[1, 3, 2, 3, 3, 0], [5, 5, 5, 5, 5, 5]], np.float32)
  assert search._greatest(scores, 2).tolist() == [[1, 3], [0, 1]]
  assert search._greatest(scores, 4).tolist() == [[1, 3, 4, 2], [0, 1, 2, 3]]
  assert search._greatest(scores, 9).tolist()[0] == [1, 3, 4, 2, 0, 5]
