"""Similarity of two sentences, by a fine-tuned model or by their vectors.

Tests: tests/scripts/test_similarity.py.
"""

from typing import Iterable, List, Optional, Tuple, Union, cast

import numpy as np

from albert.errors import InputError
from albert.files import filesystem
from albert.model_folder import FolderSettings
from albert.predict import engines, predictors

# Whitened, it ranks the pairs of LCQMC better than the last layer.
DEFAULT_LAYER = 1


class BertSim:
  """Scores pairs of sentences; the graph is built once.

  Args:
    model_dir: folder of a model fine-tuned with the labels "0" (different) and
      "1" (same meaning), such as the `best` of a run; or a loaded engine.
    batch_size: pairs per call of the model.
    given: settings that the folder lacks.
    engine: "tensorflow" or "onnx"; see engines.py.
  """

  def __init__(self,
               model_dir: Union[str, engines.Engine] = "output/lcqmc/best",
               batch_size: int = 64, given: Optional[FolderSettings] = None,
               engine: str = "tensorflow"):
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
    model = (engines.load(self._engine, self._model_dir, self._given)
             if isinstance(self._model_dir, str) else self._model_dir)
    labels = model.folder.labels or []
    if "1" not in labels:
      raise InputError(
          "%s: the labels (%s) are not those of a similarity task: fine-tune "
          "on pairs labelled 0 and 1, or give --unsupervised" % (
              model.folder.where, ", ".join(labels) or "none"))
    self._model = predictors.of_engine(
        model, predictors.PredictSettings(batch_size=self._batch_size))
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
    return np.array([dict(result.candidates)["1"] for result in found],
                    np.float32)


class VectorSim:
  """Scores pairs by the cosine of their vectors.

  A model from run_sentence_vectors.py gives the vectors it was trained for.
  Otherwise a vector is the mean over the tokens; these all point in similar
  directions, so the mean of many sentences is subtracted first.

  Args:
    model_dir: model folder, or a checkpoint in one; or a loaded engine.
    reference: sentences whose mean is subtracted. By default those that are
      scored together, or none if the model was trained to give vectors.
    whiten: whether to also whiten the vectors by those of `reference`; see
      `whitening`.
    whitening_dim: dimensions to keep; see `whitening`.
    layer: see `engines.sentence_vectors`. Defaults to the layer that vectors
      were trained with, otherwise DEFAULT_LAYER.
    batch_size: sentences per call of the model.
    given: settings that the folder lacks.
    engine: "tensorflow" or "onnx"; see engines.py.
    untrained_reference: the default of `reference` for models that were not
      trained to give vectors.

  Raises:
    InputError: the folder has no such model, or the reference is unsuitable.
  """

  def __init__(self,
               model_dir: Union[str, engines.Engine] = "albert_tiny_starter",
               reference: Optional[List[str]] = None, whiten: bool = False,
               whitening_dim: Optional[int] = None,
               layer: Optional[int] = None, batch_size: int = 64,
               given: Optional[FolderSettings] = None,
               engine: str = "tensorflow",
               untrained_reference: Optional[List[str]] = None):
    model = (engines.load(engine, model_dir, given)
             if isinstance(model_dir, str) else model_dir)
    is_trained = model.folder.vector is not None
    if layer is None and not is_trained:
      layer = DEFAULT_LAYER
    self._predictor = engines.sentence_vectors(
        model, layer=layer, max_seq_length=None if is_trained else 512,
        batch_size=batch_size)
    self._mean: Union[None, float, np.ndarray] = 0.0 if is_trained else None
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
      raise InputError("a pair by itself has no mean to compare with: give "
                       "--reference_file, or more pairs")
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
        np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)

  def _vectors(self, texts):
    """Returns float64 [number of texts, H]."""
    return np.reshape(self._predictor.predict([(text, None) for text in texts]),
                      [len(texts), len(self._matrix)]).astype(np.float64)


def read_reference(path: Optional[str]) -> Optional[List[str]]:
  """Returns the sentences of a reference file; None without a path.

  Raises:
    InputError: there are none.
  """
  if not path:
    return None
  reference = [line for line in filesystem.read_lines(path) if line.strip()]
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
  # The others are 0 up to rounding: LayerNorm alone removes one direction.
  count = np.sum(eigenvalues > 1e-9 * eigenvalues[0]) if eigenvalues[0] else 0
  kept = dim or max(count, 1)
  if kept > count:
    raise InputError(
        "%d sentences vary in %d directions, too few to whiten %d: give more "
        "in --reference_file, or a lesser --whitening_dim" % (
            len(vectors), count, kept))
  return u[:, :kept] / np.sqrt(eigenvalues[:kept])
