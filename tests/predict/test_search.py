"""Search among texts, against every score computed one by one."""

import numpy as np
import pytest
from onnx_folders import MODELS, export_one, write_model
from scripting import fail, succeed

from albert import errors
from albert.predict import search
from albert.predict.search import Corpus
from albert.predict.similarity import VectorSim

pytestmark = [pytest.mark.slow, pytest.mark.once]

RNG = np.random.RandomState(5)
WORDS = "天 地 玄 黄 宇 宙 洪 荒 日 月 盈 昃 辰 宿 列 张".split()
TEXTS = ["".join(RNG.choice(WORDS, RNG.randint(3, 12))) for _ in range(300)]
QUERIES = ["天地玄黄", "日月盈昃", TEXTS[123]]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
  folder = tmp_path_factory.mktemp("model")
  write_model(folder, MODELS["google postln"])
  return str(folder)


@pytest.fixture
def corpus_file(tmp_path):
  path = tmp_path / "corpus.txt"
  path.write_text("\n".join(TEXTS[:100] + ["", "  "] + TEXTS[100:]) + "\n",
                  encoding="utf-8")
  return path


@pytest.mark.parametrize("way", ["at once", "blocks", "faiss"])
def test_it_finds_what_all_scores_say(model, corpus_file, way, monkeypatch):
  if way == "blocks":
    monkeypatch.setattr(search, "_QUERIES", 2)
    monkeypatch.setattr(search, "_BLOCK", 7)
  if way == "faiss":
    pytest.importorskip("faiss")
    monkeypatch.setattr(search, "_LARGE", 300)
    monkeypatch.setattr(search, "_greatest", None)  # not the other way
  monkeypatch.setattr(search, "_AT_ONCE", 64)
  corpus = Corpus(str(corpus_file), model_dir=model)
  assert len(corpus) == 300
  similarity = VectorSim(model, TEXTS)  # fewer than 2,000: all
  wanted = similarity.directions(QUERIES) @ similarity.directions(TEXTS).T
  lines = corpus_file.read_text(encoding="utf-8").split("\n")
  for row, found in zip(wanted, corpus.search(QUERIES, 6)):
    assert [x.score for x in found] == pytest.approx(
        sorted(row, reverse=True)[:6], abs=1e-5)
    for x in found:
      assert x.score == pytest.approx(row[TEXTS.index(x.text)], abs=1e-5)
      assert lines[x.line - 1] == x.text
  first = corpus.search(QUERIES, 1)[2][0]
  assert first.text == TEXTS[123] and first.score == pytest.approx(1, abs=1e-5)
  assert len(corpus.search(QUERIES, 999)[0]) == 300
  assert corpus.search([]) == []


def test_vectors_are_kept_until_something_changes(model, corpus_file, tmp_path):
  kept = corpus_file.with_name("corpus.txt.vectors.npz")
  Corpus(str(corpus_file), model_dir=model)
  vectors = np.load(str(kept))["vectors"]
  assert vectors.shape == (300, 32)
  np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)

  def is_made_again(**kwargs):
    """Whether a mark that is set in the file is gone after the next start."""
    marked = dict(np.load(str(kept)))
    marked["vectors"][0, 0] = 7
    np.savez(str(kept), **marked)
    Corpus(str(corpus_file), **dict({"model_dir": model}, **kwargs))
    return np.load(str(kept))["vectors"][0, 0] != 7

  assert not is_made_again()
  assert is_made_again(layer=2)
  assert is_made_again()
  assert is_made_again(reference=TEXTS[:20])
  assert is_made_again()
  assert is_made_again(reference=TEXTS, whiten=True)
  other = tmp_path / "other"
  other.mkdir()
  write_model(other, MODELS["albert_zh postln"])
  assert is_made_again(model_dir=str(other))
  assert is_made_again()
  corpus_file.write_text("天地\n", encoding="utf-8")
  found = Corpus(str(corpus_file), model_dir=model).search(["天"])
  assert [x.line for x in found[0]] == [1]
  assert len(np.load(str(kept))["vectors"]) == 1
  # The reference is not of the corpus: the model says the same as before.
  for text in ("天地\n", "玄黄\n"):
    corpus_file.write_text(text, encoding="utf-8")
    found = Corpus(str(corpus_file), TEXTS[:20], model_dir=model).search(
        [text.strip()])
    assert found[0][0].score == pytest.approx(1, abs=1e-5)
  whole = kept.read_bytes()
  for damaged in (b"", b"no archive", whole[:-9]):
    kept.write_bytes(damaged)
    with pytest.raises(errors.InputError, match="npz: damaged .* delete it"):
      Corpus(str(corpus_file), model_dir=model)


def test_the_command(model, corpus_file, tmp_path):
  args = ["similarity.py", "--search", "--corpus_file=%s" % corpus_file,
          "--model_dir=%s" % model, "--top_k=3"]
  out, _ = succeed(*args, *QUERIES)
  wanted = Corpus(str(corpus_file), model_dir=model).search(QUERIES, 3)
  assert out.splitlines() == [
      "%s\t%.4f\t%s" % (query, x.score, x.text)
      for query, found in zip(QUERIES, wanted) for x in found]
  (tmp_path / "queries.txt").write_text("\n".join(QUERIES) + "\n",
                                        encoding="utf-8")
  assert succeed(*args, "--input_file=%s" % (
      tmp_path / "queries.txt"))[0] == out
  pytest.importorskip("onnxruntime")
  onnx = tmp_path / "onnx"
  export_one(model, onnx, "sentence_vector")
  same, log = succeed(*args, "--engine=onnx", "--model_dir=%s" % onnx, *QUERIES)
  assert "computing the vectors" not in log  # the same model
  assert [line.split("\t")[2] for line in same.splitlines()] == [
      line.split("\t")[2] for line in out.splitlines()]
  empty = tmp_path / "empty.txt"
  empty.write_text("\n")
  fail("empty.txt: has no texts", *args, "--corpus_file=%s" % empty, "天")
  fail("--corpus_file is required", "similarity.py", "--search", "天")
  fail("without --search, there is no effect of --top_k", "similarity.py",
       "--top_k=3", "天", "地")


def test_the_first_of_equal_ones_is_first():
  scores = np.array([[1, 3, 2, 3, 3, 0], [5, 5, 5, 5, 5, 5]], np.float32)
  assert search._greatest(scores, 2).tolist() == [[1, 3], [0, 1]]
  assert search._greatest(scores, 4).tolist() == [[1, 3, 4, 2], [0, 1, 2, 3]]
  assert search._greatest(scores, 9).tolist()[0] == [1, 3, 4, 2, 0, 5]
