"""Sentence similarity, by a fine-tuned model or by vectors; similarity search.

Tests: tests/scripts/test_similarity.py.
"""

import contextlib
import hashlib
import io
import json
import os
import zipfile
import zlib
from typing import Any, Iterable, List, NamedTuple, Optional, Tuple, Union, cast

import numpy as np
from absl import logging

from albert.errors import InputError
from albert.files import filesystem, tables
from albert.model_folder import FolderSettings
from albert.predict import engines, predictors
from albert.predict.engine import Engine
from albert.progress import Progress

# Whitened, it ranks the pairs of LCQMC better than the last layer.
DEFAULT_LAYER = 1
_BLOCK = 1 << 16  # vectors of the corpus compared at once
_QUERIES = 64  # compared at once
_AT_ONCE = 4096  # texts encoded at once
_REFERENCE = 2000  # maximum texts whose mean is subtracted
_LARGE = 1000000  # minimum texts for faiss, if installed


class BertSim:
  """Scores pairs of sentences; the graph is built once.

  Args:
    model_dir: folder of a model fine-tuned with the labels "0" (different) and
      "1" (same meaning), such as the `best` of a run; or a loaded engine.
    batch_size: pairs per batch.
    given: settings that the folder lacks.
    engine: see EngineSettings.
  """

  def __init__(
    self,
    model_dir: Union[str, Engine] = "output/lcqmc/best",
    batch_size: int = 64,
    given: Optional[FolderSettings] = None,
    engine: str = "auto",
  ):
    self._model_dir = model_dir
    self._batch_size = batch_size
    self._given = given
    self._engine = engine
    self._model: Optional[predictors.Predictor] = None

  def start_model(self) -> None:
    """Builds the graph and loads the weights.

    Raises:
      InputError: the folder has no such model.
    """
    model = (
      engines.load(self._engine, self._model_dir, self._given)
      if isinstance(self._model_dir, str)
      else self._model_dir
    )
    labels = model.folder.labels or []
    if "1" not in labels:
      raise InputError(
        "%s: the labels (%s) are not those of a similarity task: fine-tune "
        "on pairs labelled 0 and 1, or use --unsupervised"
        % (model.folder.where, ", ".join(labels) or "none")
      )
    self._model = predictors.of_engine(
      model, predictors.PredictSettings(batch_size=self._batch_size)
    )
    if model.folder.pairs is None:  # from an earlier version
      self._model.fields = ("text_a", "text_b")

  def predict_sentences(self, pairs: Iterable[Tuple[str, str]]) -> np.ndarray:
    """Scores pairs.

    Args:
      pairs: sentences of any length.

    Returns:
      float32 [number of pairs]: probability, between 0 and 1, that both mean
      the same.
    """
    if self._model is None:
      self.start_model()
    model = cast(predictors.Predictor, self._model)
    found = model.predict(pairs, len(cast(List[str], model.labels)))
    return np.array(
      [dict(result.candidates)["1"] for result in found], np.float32
    )


class VectorSim:
  """Scores pairs by the cosine of their vectors.

  A model from run_sentence_vectors.py gives the vectors it was trained for.
  Otherwise a vector is the mean over the tokens; as these all point in similar
  directions, the mean of many sentences is subtracted first.

  Args:
    model_dir: model folder, or a checkpoint in one; or a loaded engine.
    reference: sentences whose mean is subtracted. By default those that are
      scored together, or none if the model was trained for vectors.
    whiten: whether to also whiten the vectors with those of `reference`; see
      `whitening`.
    whitening_dim: dimensions to keep; see `whitening`.
    layer: see `engines.sentence_vectors`. Defaults to the layer of training,
      otherwise DEFAULT_LAYER.
    batch_size: sentences per batch.
    given: settings that the folder lacks.
    engine: see EngineSettings.
    untrained_reference: default of `reference` for models that were not trained
      for vectors.

  Attributes:
    key: identifies the model and the settings of the vectors.

  Raises:
    InputError: the folder has no such model, or the reference is unsuitable.
  """

  def __init__(
    self,
    model_dir: Union[str, Engine] = "albert_tiny_starter",
    reference: Optional[List[str]] = None,
    whiten: bool = False,
    whitening_dim: Optional[int] = None,
    layer: Optional[int] = None,
    batch_size: int = 64,
    given: Optional[FolderSettings] = None,
    engine: str = "auto",
    untrained_reference: Optional[List[str]] = None,
  ):
    model = (
      engines.load(engine, model_dir, given)
      if isinstance(model_dir, str)
      else model_dir
    )
    is_trained = model.folder.vector is not None
    if layer is None and not is_trained:
      layer = DEFAULT_LAYER
    self._predictor = engines.sentence_vectors(
      model,
      layer=layer,
      max_seq_length=None if is_trained else 512,
      batch_size=batch_size,
    )
    self._mean: Union[None, float, np.ndarray] = 0.0 if is_trained else None
    self._matrix = np.identity(model.folder.config.hidden_size)
    if not is_trained:
      reference = reference or untrained_reference
    self.key = json.dumps(
      [model.digest(), layer, whiten, whitening_dim, reference]
    )
    if reference:
      vectors = self._vectors(reference)
      self._mean = vectors.mean(0)
      if whiten:
        self._matrix = whitening(vectors, whitening_dim)
    elif whiten:
      raise InputError(
        "whitening needs sentences to learn from: give --reference_file"
      )

  @property
  def dim(self) -> int:
    """K, the number of dimensions of the vectors."""
    return self._matrix.shape[1]

  def predict_sentences(self, pairs: Iterable[Tuple[str, str]]) -> np.ndarray:
    """Scores pairs.

    Args:
      pairs: sentences of any length.

    Returns:
      float64 [number of pairs]: cosines, between -1 and 1.

    Raises:
      InputError: there is neither a reference nor more than one pair.
    """
    pairs = list(pairs)
    if self._mean is None and len(pairs) < 2:
      raise InputError(
        "a single pair has no mean to subtract: give "
        "--reference_file, or more pairs"
      )
    vectors = self.directions([text for pair in pairs for text in pair])
    return (vectors[::2] * vectors[1::2]).sum(1)

  def compare(self, sentences: List[str]) -> np.ndarray:
    """Returns the cosines of N sentences with each other, float64 [N, N]."""
    vectors = self.directions(sentences)
    return vectors @ vectors.T

  def directions(self, texts: List[str]) -> np.ndarray:
    """Returns unit vectors, float64 [number of texts, K]."""
    vectors = self._vectors(texts)
    mean = vectors.mean(0) if self._mean is None else self._mean
    vectors = (vectors - mean) @ self._matrix
    # A vector that equals the mean has no direction.
    return vectors / np.maximum(
      np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12
    )

  def _vectors(self, texts):
    """Returns float64 [number of texts, H]."""
    return np.reshape(
      self._predictor.predict([(text, None) for text in texts]),
      [len(texts), len(self._matrix)],
    ).astype(np.float64)


def read_reference(path: Optional[str]) -> Optional[List[str]]:
  """Returns the sentences of a reference file; None without a path.

  Raises:
    InputError: there are none.
  """
  if not path:
    return None
  reference = [line for line in tables.read_lines(path) if line.strip()]
  if not reference:
    raise InputError("%s: has no sentences" % path)
  return reference


def whitening(vectors: np.ndarray, dim: Optional[int] = None) -> np.ndarray:
  """Returns a matrix that makes vectors uncorrelated, with unit variance.

  Su et al., "Whitening Sentence Representations for Better Semantics and Faster
  Retrieval" (arXiv:2103.15316), algorithm 1: if the covariance of n vectors
  with mean m is `C = U diag(e) U^T`, with the eigenvalues e in descending
  order, that of `(x - m) W` is the identity for `W = U diag(1 / sqrt(e))`. The
  first columns of W keep the directions of the greatest variance.

  Args:
    vectors: float [n, H].
    dim: K, columns to keep; None for all directions in which the vectors vary,
      at most min(n - 1, H).

  Returns:
    float64 [H, K], W.
  Raises:
    InputError: the vectors vary in fewer than K directions.
  """
  eigenvalues, u = np.linalg.eigh(np.cov(vectors, rowvar=False, bias=True))
  eigenvalues, u = eigenvalues[::-1], u[:, ::-1]
  # The rest are 0 up to rounding: LayerNorm alone removes one direction.
  count = np.sum(eigenvalues > 1e-9 * eigenvalues[0]) if eigenvalues[0] else 0
  kept = dim or max(count, 1)
  if kept > count:
    raise InputError(
      "%d sentences vary in %d directions, too few to whiten %d: use more in "
      "--reference_file, or a smaller --whitening_dim"
      % (len(vectors), count, kept)
    )
  return u[:, :kept] / np.sqrt(eigenvalues[:kept])


class Found(NamedTuple):
  """A text of a corpus, its line number, and its cosine with the query."""

  text: str
  line: int
  score: float


class Corpus:
  """A corpus to search; its vectors are computed once.

  They are cached next to the corpus, in PATH.vectors.npz: `vectors`, float32
  [N, K], and `key`, a checksum of the corpus, the model and the settings. A
  change in any of these invalidates them.

  Args:
    path: file with one text per line; blank lines are skipped.
    reference: texts whose mean is subtracted. By default up to 2,000 of the
      corpus, or none if the model was trained for vectors.
    **kwargs: of the model; see VectorSim.

  Attributes:
    similarity: compares the texts.

  Raises:
    InputError: the file has no texts, or the folder has no model.
  """

  def __init__(
    self, path: str, reference: Optional[List[str]] = None, **kwargs: Any
  ):
    lines = tables.read_lines(path)
    self._lines = [i for i, line in enumerate(lines) if line.strip()]
    self._texts = [lines[i] for i in self._lines]
    if not self._texts:
      raise InputError("%s: has no texts" % path)
    step = -(-len(self._texts) // _REFERENCE)
    self.similarity = VectorSim(
      reference=reference, untrained_reference=self._texts[::step], **kwargs
    )
    # Hashes the lines that were read, even if the file changes meanwhile.
    self._vectors = self._read_or_make(
      path,
      hashlib.sha256(
        "\n".join([self.similarity.key, *lines]).encode()
      ).hexdigest(),
    )
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
    return [
      [
        Found(self._texts[i], 1 + self._lines[i], float(score))
        for score, i in zip(*row)
      ]
      for start in range(0, len(vectors), _QUERIES)
      for row in zip(*self._nearest(vectors[start : start + _QUERIES], top_k))
    ]

  def _nearest(self, vectors, top_k):
    """Returns the highest cosines with each of `vectors`, and their texts.

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
      block = vectors @ self._vectors[start : start + _BLOCK].T
      scores = np.concatenate([scores, block], 1)
      places = np.concatenate(
        [
          places,
          np.broadcast_to(
            np.arange(start, start + block.shape[1]), block.shape
          ),
        ],
        1,
      )
      best = _greatest(scores, top_k)
      scores, places = [
        np.take_along_axis(x, best, 1) for x in (scores, places)
      ]
    return scores, places

  def _read_or_make(self, path, key):
    """Returns the vectors of all texts, float32 [N, K].

    Args:
      path: the corpus; the vectors are cached next to it.
      key: identifies the corpus, the model and the settings.
    """
    vectors_file, unfinished = path + ".vectors.npz", path + ".vectors.part"
    vectors = None
    if filesystem.exists(vectors_file):
      kept = _read_arrays(vectors_file)
      if kept.get("key") == key and len(kept["vectors"]) == len(self):
        vectors = kept["vectors"]
      else:
        logging.info("%s: from a different model or corpus", vectors_file)
    try:
      if vectors is None:
        vectors = self._make(unfinished, key)
        content = io.BytesIO()
        np.savez(content, vectors=vectors, key=key)
        filesystem.write_bytes(vectors_file, content.getvalue())
      if os.path.exists(unfinished):
        os.remove(unfinished)
    except OSError as error:
      logging.warning("the vectors are not cached: %s", error)
    return vectors

  def _make(self, unfinished, key):
    """Computes the vectors; saves finished ones in a file.

    Args:
      unfinished: path of the file: a line with the key, then float32 [n, K].
      key: see `_read_or_make`.
    """
    header, dim = key.encode() + b"\n", self.similarity.dim
    done = np.zeros([0, dim], np.float32)
    if os.path.exists(unfinished):
      content = filesystem.read_bytes(unfinished)
      if content.startswith(header):
        count = (len(content) - len(header)) // (4 * dim)
        done = np.frombuffer(content, np.float32, count * dim, len(header))
        done = done.reshape([count, dim])[: count - count % _AT_ONCE]
    parts = [done]
    logging.info(
      "computing the vectors of %d texts%s",
      len(self),
      ", after %d of an interrupted run" % len(done) if len(done) else "",
    )
    progress = Progress("texts")
    with contextlib.ExitStack() as stack:
      try:
        writer = stack.enter_context(open(unfinished, "wb"))
        writer.write(header + done.tobytes())
      except OSError:  # not a writable folder
        writer = None
      for i in range(len(done), len(self), _AT_ONCE):
        progress.log(i, i / len(self))
        parts.append(
          self.similarity.directions(self._texts[i : i + _AT_ONCE]).astype(
            np.float32
          )
        )
        if writer:
          writer.write(parts[-1].tobytes())
          writer.flush()
    return np.concatenate(parts)


def _read_arrays(path):
  """Returns the arrays of a .npz file by name."""
  try:
    arrays = dict(np.load(io.BytesIO(filesystem.read_bytes(path))))
    if arrays["vectors"].ndim != 2:
      raise ValueError("vectors are not a matrix")
    return arrays
  except (
    EOFError,
    KeyError,
    NotImplementedError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
  ) as error:
    raise InputError("%s: damaged (%s): delete it" % (path, error)) from error


def _faiss_index(vectors):
  """Returns a faiss index for exact search; False without faiss.

  Args:
    vectors: float32 [N, K].
  """
  try:
    import faiss
  except ImportError:
    logging.warning(
      "%d texts: `pip install '.[faiss]'` for faster search", len(vectors)
    )
    return False
  index = faiss.IndexFlatIP(vectors.shape[1])
  index.add(vectors)
  return index


def _greatest(scores, count):
  """Returns the indices of the highest scores per row; the first of ties wins.

  Args:
    scores: float [Q, N].
    count: maximum number per row.

  Returns:
    int [Q, min(count, N)].
  """
  if count < scores.shape[1]:
    limit = -np.partition(-scores, count - 1, 1)[:, count - 1 : count]
    rows = []
    for row, least in zip(scores, limit):
      there = np.flatnonzero(row >= least)
      rows.append(there[np.argsort(-row[there], kind="stable")][:count])
    return np.array(rows)
  return np.argsort(-scores, 1, kind="stable")
