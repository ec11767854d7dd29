"""How alike two sentences are: by a fine-tuned model, or by their vectors.

Tests: tests/scripts/test_similarity.py.
"""

import numpy as np

from albert.errors import InputError
from albert.files import filesystem
from albert.predict import engines, predictors

# Whitened, it orders the pairs of LCQMC better than the last one.
DEFAULT_LAYER = 1


class BertSim:
  """Scores pairs of sentences; the graph is built once and kept.

  Args:
    model_dir: str, folder with a checkpoint, config.json, task.json and the
      vocabulary, such as the `best` folder of a fine-tuning run with the
      labels "0" (different) and "1" (same meaning); or an engine that is
      loaded.
    batch_size: int, pairs per call of the model.
    given: FolderSettings, what is not in the folder, or None.
    engine: str, "tensorflow" or "onnx"; see engines.py.
  """

  def __init__(self, model_dir="output/lcqmc/best", batch_size=64,
               given=None, engine="tensorflow"):
    self._model_dir = model_dir
    self._batch_size = batch_size
    self._given = given
    self._engine = engine
    self._model = None

  def start_model(self):
    """Builds the graph and loads the weights.

    Raises:
      InputError: the folder has no such model.
    """
    model = engines.load(self._engine, self._model_dir, self._given) if (
        isinstance(self._model_dir, str)) else self._model_dir
    labels = model.folder.labels or []
    if "1" not in labels:
      raise InputError(
          "%s: the labels (%s) are not those of a similarity task: fine-tune "
          "on pairs labelled 0 and 1, or give --unsupervised" % (
              model.folder.where, ", ".join(labels) or "none"))
    self._model = predictors.of_engine(
        model, predictors.PredictSettings(batch_size=self._batch_size))
    if model.folder.pairs is None:  # of an earlier version
      self._model.fields = ("text_a", "text_b")

  def predict_sentences(self, pairs):
    """Scores pairs.

    Args:
      pairs: iterable of (str, str), of any length.

    Returns:
      float32 array [number of pairs], in their order: the probability, between
      0 and 1, that the two mean the same.
    """
    if self._model is None:
      self.start_model()
    found = self._model.predict(pairs, len(self._model.labels))
    return np.array([dict(result.candidates)["1"] for result in found],
                    np.float32)


class VectorSim:
  """Scores pairs by the cosine of their vectors.

  Where run_sentence_vectors.py has trained the model, they are what it was
  trained to make. Otherwise the vector of a sentence is the mean over its
  tokens; all of them point much the same way, so the mean of many sentences is
  subtracted first.

  Args:
    model_dir: str, folder with a checkpoint, its configuration and its
      vocabulary, or path of a checkpoint in one; or an engine that is loaded.
    reference: list of str, sentences whose mean is subtracted; None for those
      that are scored together, or nothing from trained vectors.
    whiten: bool, also whiten the vectors by those of `reference`; see
      `whitening`.
    whitening_dim: int, dimensions to keep, or None; see `whitening`.
    layer: int, see `engines.sentence_vectors`; None for the one that vectors
      were trained with, or else DEFAULT_LAYER.
    batch_size: int, sentences per call of the model.
    given: FolderSettings, what is not in the folder, or None.
    engine: str, "tensorflow" or "onnx"; see engines.py.
    untrained_reference: list of str, the same as `reference` where there is
      none and vectors are not trained.

  Raises:
    InputError: the folder has no such model, or the reference does not do.
  """

  def __init__(self, model_dir="albert_tiny_starter", reference=None,
               whiten=False, whitening_dim=None, layer=None, batch_size=64,
               given=None, engine="tensorflow", untrained_reference=None):
    model = engines.load(engine, model_dir, given) if (
        isinstance(model_dir, str)) else model_dir
    is_trained = model.folder.vector is not None
    if layer is None and not is_trained:
      layer = DEFAULT_LAYER
    self._predictor = engines.sentence_vectors(
        model, layer=layer, max_seq_length=None if is_trained else 512,
        batch_size=batch_size)
    self._mean = 0.0 if is_trained else None
    self._matrix = np.identity(model.folder.config.hidden_size)
    if not is_trained:
      reference = reference or untrained_reference
    if reference:
      vectors = self._vectors(reference)
      self._mean = vectors.mean(0)
      if whiten:
        self._matrix = whitening(vectors, whitening_dim)
    elif whiten:
      raise InputError("whitening needs sentences to learn from: give "
                       "--reference_file")

  def predict_sentences(self, pairs):
    """Scores pairs.

    Args:
      pairs: iterable of (str, str), of any length.

    Returns:
      float64 array [number of pairs], in their order: the cosine, between -1
      and 1, of the two vectors.

    Raises:
      InputError: there is neither a reference nor more than one pair.
    """
    pairs = list(pairs)
    if self._mean is None and len(pairs) < 2:
      raise InputError("a pair by itself has no mean to compare with: give "
                       "--reference_file, or more pairs")
    vectors = self.directions([text for pair in pairs for text in pair])
    return (vectors[::2] * vectors[1::2]).sum(1)

  def compare(self, sentences):
    """Scores each sentence with each.

    Args:
      sentences: list of str, N.

    Returns:
      float64 [N, N], the cosines.
    """
    vectors = self.directions(sentences)
    return vectors @ vectors.T

  def directions(self, texts):
    """Returns float64 [number of texts, K], vectors of length 1."""
    vectors = self._vectors(texts)
    mean = vectors.mean(0) if self._mean is None else self._mean
    vectors = (vectors - mean) @ self._matrix
    # A vector that equals the mean has no direction.
    return vectors / np.maximum(
        np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)

  def _vectors(self, texts):
    """Returns float64 [number of texts, H]."""
    return np.reshape(self._predictor.predict([(text, None) for text in texts]),
                      [len(texts), len(self._matrix)]).astype(np.float64)


def read_reference(path):
  """Returns the sentences of a reference, a list of str; None without a path.

  Raises:
    InputError: there are none.
  """
  reference = path and [line for line in filesystem.read_lines(path)
                        if line.strip()]
  if path and not reference:
    raise InputError("%s: has no sentences" % path)
  return reference


def whitening(vectors, dim=None):
  """Returns what makes vectors uncorrelated and of variance 1.

  Su et al., "Whitening Sentence Representations for Better Semantics and Faster
  Retrieval" (arXiv:2103.15316), algorithm 1: where the covariance of n vectors
  with mean m is `C = U diag(e) U^T`, with the eigenvalues e in descending
  order, that of `(x - m) W` is the identity for `W = U diag(1 / sqrt(e))`. The
  first columns of W keep the directions of the greatest variance.

  Args:
    vectors: float [n, H].
    dim: int, K, columns to keep; None for all of the directions that the
      vectors vary in, at most the lesser of n - 1 and H.

  Returns:
    float64 [H, K], W.

  Raises:
    InputError: the vectors vary in fewer than K directions.
  """
  eigenvalues, u = np.linalg.eigh(np.cov(vectors, rowvar=False, bias=True))
  eigenvalues, u = eigenvalues[::-1], u[:, ::-1]
  # Others are 0 but for rounding: LayerNorm alone takes a direction away.
  count = np.sum(eigenvalues > 1e-9 * eigenvalues[0]) if eigenvalues[0] else 0
  kept = dim or max(count, 1)
  if kept > count:
    raise InputError(
        "%d sentences vary in %d directions, too few to whiten %d: give more "
        "in --reference_file, or a lesser --whitening_dim" % (
            len(vectors), count, kept))
  return u[:, :kept] / np.sqrt(eigenvalues[:kept])
