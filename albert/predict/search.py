"""Finds the texts of a corpus that are most similar to a query, by vectors."""

import io
import zipfile
from typing import Any, List, NamedTuple, Optional

import numpy as np
from absl import logging

from albert.errors import InputError
from albert.files import filesystem
from albert.predict.similarity import VectorSim

_PROBE = "今天天气很好。"  # its vector identifies the model
_BLOCK = 1 << 16  # vectors of the corpus compared at once
_QUERIES = 64  # compared at once
_AT_ONCE = 4096  # texts encoded at once
_REFERENCE = 2000  # maximum texts whose mean is subtracted
_LARGE = 1000000  # texts from which on faiss is used, if installed


class Found(NamedTuple):
  """A text of a corpus, its line number, and its cosine with the query."""
  text: str
  line: int
  score: float


class Corpus:
  """A corpus to search; its vectors are computed once.

  They are cached next to the corpus, in PATH.vectors.npz: `vectors`, float32
  [N, K], with `sha256` of the corpus and `probe`, a sentence vector that
  identifies the model and its settings. A change in either invalidates them.

  Args:
    path: file with one text per line; blank lines are skipped.
    reference: texts whose mean is subtracted. By default up to 2,000 of the
      corpus, or none if the model was trained to give vectors.
    **kwargs: of the model; see VectorSim.

  Attributes:
    similarity: compares the texts.

  Raises:
    InputError: the file has no texts, or the folder no model.
  """

  def __init__(self, path: str, reference: Optional[List[str]] = None,
               **kwargs: Any):
    lines = filesystem.read_lines(path)
    self._lines = [i for i, line in enumerate(lines) if line.strip()]
    self._texts = [lines[i] for i in self._lines]
    if not self._texts:
      raise InputError("%s: has no texts" % path)
    step = -(-len(self._texts) // _REFERENCE)
    self.similarity = VectorSim(
        reference=reference, untrained_reference=self._texts[::step], **kwargs)
    self._vectors = self._read_or_make(path)
    self._index = None  # faiss index; False if faiss is not installed

  def __len__(self):
    return len(self._texts)

  def search(self, queries: List[str], top_k: int = 5) -> List[List[Found]]:
    """Finds the texts that are most similar to each query, exactly.

    Args:
      queries: texts.
      top_k: maximum number of texts per query.

    Returns:
      for each query, most similar first; ties in the order of the file.
    """
    if not queries:
      return []
    vectors = self.similarity.directions(queries).astype(np.float32)
    return [[Found(self._texts[i], 1 + self._lines[i], float(score))
             for score, i in zip(*row)]
            for start in range(0, len(vectors), _QUERIES)
            for row in zip(*self._nearest(
                vectors[start:start + _QUERIES], top_k))]

  def _nearest(self, vectors, top_k):
    """Returns the greatest cosines with each of `vectors`, and their texts.

    Args:
      vectors: float32 [Q, K].
      top_k: maximum number of texts.

    Returns:
      (float32 [Q, T], int [Q, T]), where T is `top_k` or the number of texts.
    """
    if len(self) >= _LARGE and self._index is None:
      self._index = _faiss_index(self._vectors)
    if self._index:
      return self._index.search(vectors, min(top_k, len(self)))
    scores = np.empty([len(vectors), 0], np.float32)
    places = np.empty([len(vectors), 0], np.int64)
    for start in range(0, len(self._vectors), _BLOCK):
      block = vectors @ self._vectors[start:start + _BLOCK].T
      scores = np.concatenate([scores, block], 1)
      places = np.concatenate([places, np.broadcast_to(
          np.arange(start, start + block.shape[1]), block.shape)], 1)
      best = _greatest(scores, top_k)
      scores, places = [np.take_along_axis(x, best, 1)
                        for x in (scores, places)]
    return scores, places

  def _read_or_make(self, path):
    """Returns the vectors of all texts, float32 [N, K]."""
    vectors_file = path + ".vectors.npz"
    probe = self.similarity.directions([_PROBE])[0]
    checksum = filesystem.sha256(path)
    if filesystem.exists(vectors_file):
      kept = _read_arrays(vectors_file)
      same_model = len(kept["probe"]) == len(probe) and np.allclose(
          kept["probe"], probe, atol=1e-4)
      if kept["sha256"] == checksum and same_model:
        return kept["vectors"]
      logging.info("%s: %s", vectors_file, "the corpus has changed" if (
          same_model) else "of another model")
    logging.info("computing the vectors of %d texts", len(self))
    vectors = np.concatenate([
        self.similarity.directions(self._texts[i:i + _AT_ONCE]).astype(
            np.float32) for i in range(0, len(self), _AT_ONCE)])
    content = io.BytesIO()
    np.savez(content, vectors=vectors, sha256=checksum, probe=probe)
    filesystem.write_bytes(vectors_file, content.getvalue())
    return vectors


def _read_arrays(path):
  """Returns the arrays of a .npz file by name."""
  try:
    return dict(np.load(io.BytesIO(filesystem.read_bytes(path))))
  except (EOFError, ValueError, zipfile.BadZipFile) as error:
    raise InputError("%s: damaged (%s): delete it" % (path, error)) from error


def _faiss_index(vectors):
  """Returns a faiss index for exact search; False without faiss.

  Args:
    vectors: float32 [N, K].
  """
  try:
    import faiss
  except ImportError:
    logging.warning("%d texts: `pip install '.[faiss]'` makes "
                    "the search faster", len(vectors))
    return False
  index = faiss.IndexFlatIP(vectors.shape[1])
  index.add(vectors)
  return index


def _greatest(scores, count):
  """Returns the indices of the greatest of each row; the first of ties wins.

  Args:
    scores: float [Q, N].
    count: maximum number per row.

  Returns:
    int [Q, min(count, N)].
  """
  if count < scores.shape[1]:
    limit = -np.partition(-scores, count - 1, 1)[:, count - 1:count]
    rows = []
    for row, least in zip(scores, limit):
      there = np.flatnonzero(row >= least)
      rows.append(there[np.argsort(-row[there], kind="stable")][:count])
    return np.array(rows)
  return np.argsort(-scores, 1, kind="stable")
