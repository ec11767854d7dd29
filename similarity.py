r"""Judges whether two sentences mean the same.

    python similarity.py 怎么办理银行卡 银行卡如何办理
    python similarity.py --input_file=pairs.tsv --output_file=scores.tsv
    python similarity.py --unsupervised --reference_file=texts.txt \
      --input_file=pairs.tsv

A score of a fine-tuned model is the probability, between 0 and 1, that the two
mean the same. With --unsupervised, a pretrained model is enough: the score is
the cosine, between -1 and 1, of the two sentences' vectors; like pairs score
above unlike ones, but where to draw the line depends on the sentences.
"""

import dataclasses
import time

import numpy as np
from absl import flags, logging

from albert import cli
from albert.errors import InputError
from albert.files import filesystem
from albert.model_folder import FolderSettings
from albert.predict import engines
from albert.settings import NEEDED, USUAL, from_flags, setting

# Whitened, it orders the pairs of LCQMC better than the last one.
DEFAULT_LAYER = 1


class BertSim:
  """Scores pairs of sentences; the graph is built once and stays warm.

  Args:
    model_dir: str, folder with a checkpoint, config.json, task.json and the
      vocabulary, such as the `best` folder of a fine-tuning run with the
      labels "0" (different) and "1" (same meaning).
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
    self._predictor = None

  def start_model(self):
    """Builds the graph and loads the weights.

    Raises:
      InputError: the folder has no such model.
    """
    model = engines.load(self._engine, self._model_dir, self._given)
    self._labels = model.folder.labels or []
    if "1" not in self._labels:
      raise InputError(
          "%s: the labels (%s) are not those of a similarity task: fine-tune "
          "on pairs labelled 0 and 1, or give --unsupervised" % (
              self._model_dir, ", ".join(self._labels) or "none"))
    self._predictor = model.predictor("classify", "probabilities",
                                      batch_size=self._batch_size)

  def predict_sentences(self, pairs):
    """Scores pairs.

    Args:
      pairs: iterable of (str, str), of any length.

    Returns:
      float32 array [number of pairs], in their order: the probability, between
      0 and 1, that the two mean the same.
    """
    if self._predictor is None:
      self.start_model()
    pairs = list(pairs)
    probabilities = np.reshape(self._predictor.predict(pairs),
                               [len(pairs), len(self._labels)])
    return probabilities[:, self._labels.index("1")]


class VectorSim:
  """Scores pairs by the cosine of their vectors, without fine-tuning.

  The vector of a sentence is the mean over its tokens. All vectors of a model
  point much the same way, so the mean of many sentences is subtracted first.

  Args:
    model_dir: str, folder with a checkpoint, its configuration and its
      vocabulary, or path of a checkpoint in one.
    reference: list of str, sentences whose mean is subtracted; None for those
      that are scored together.
    whiten: bool, also whiten the vectors by those of `reference`; see
      `whitening`.
    whitening_dim: int, dimensions to keep, or None; see `whitening`.
    layer: int, see `engines.sentence_vectors`.
    batch_size: int, sentences per call of the model.
    given: FolderSettings, what is not in the folder, or None.
    engine: str, "tensorflow" or "onnx"; see engines.py.

  Raises:
    InputError: the folder has no such model, or the reference does not do.
  """

  def __init__(self, model_dir="albert_tiny_starter", reference=None,
               whiten=False, whitening_dim=None, layer=DEFAULT_LAYER,
               batch_size=64, given=None, engine="tensorflow"):
    model = engines.load(engine, model_dir, given)
    self._predictor = engines.sentence_vectors(
        model, "mean", layer, max_seq_length=512, batch_size=batch_size)
    self._mean = None
    self._matrix = np.identity(model.folder.config.hidden_size)
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
    mean = self._mean
    vectors = self._vectors([text for pair in pairs for text in pair])
    if mean is None:
      if len(pairs) < 2:
        raise InputError("a pair by itself has no mean to compare with: give "
                         "--reference_file, or more pairs")
      mean = vectors.mean(0)
    vectors = (vectors - mean) @ self._matrix
    # A vector that equals the mean has no direction.
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return (vectors[::2] * vectors[1::2]).sum(1)

  def _vectors(self, texts):
    """Returns float64 [number of texts, H]."""
    return np.reshape(self._predictor.predict([(text, None) for text in texts]),
                      [len(texts), len(self._matrix)]).astype(np.float64)


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


def read_pairs(path):
  """Reads pairs separated by a tab.

  Args:
    path: str, or None for standard input.

  Returns:
    list of (str, str).

  Raises:
    InputError: a line has other than two sentences; the message names it.
  """
  pairs = []
  for number, line in enumerate(filesystem.read_lines(path), 1):
    pair = tuple(line.split("\t"))
    if len(pair) != 2:
      raise InputError("%s:%d: expected two sentences separated by a tab, "
                       "found %d" % (path or "standard input", number,
                                     len(pair)))
    pairs.append(pair)
  return pairs


def benchmark(similarity, pairs):
  """Logs the latency of pairs one by one, and the rate of all at once."""
  seconds = []
  for pair in pairs[:20] + pairs:
    start = time.time()
    similarity.predict_sentences([pair])
    seconds.append(time.time() - start)
  seconds = np.array(seconds[min(20, len(pairs)):])  # after a warm-up
  start = time.time()
  similarity.predict_sentences(pairs)
  logging.info(
      "one by one: p50 %.1f ms, p99 %.1f ms; all at once: %.0f pairs/s",
      1e3 * np.percentile(seconds, 50), 1e3 * np.percentile(seconds, 99),
      len(pairs) / (time.time() - start))


@dataclasses.dataclass(frozen=True)
class SimilaritySettings:
  """Which sentences, and how they are compared."""
  model_dir: str = setting(
      None, "Folder with a checkpoint that run_classifier.py made; with "
      "--unsupervised, with a pretrained one. Default: output/lcqmc/best, or "
      "albert_tiny_starter.", NEEDED)
  unsupervised: bool = setting(
      False, "Score by the cosine of the sentences' vectors, with a model that "
      "is not fine-tuned.", USUAL)
  input_file: str = setting(
      None, "Pairs, one a line, separated by a tab; default, if no two "
      "sentences are given: standard input.", USUAL)
  output_file: str = setting(
      None, "Score, judgement (not with --unsupervised) and pair, one a line, "
      "separated by tabs; default: standard output.", USUAL)
  benchmark: bool = setting(
      False, "Score the pairs one by one and show how long each takes.")
  reference_file: str = setting(
      None, "--unsupervised: sentences, one a line, whose mean is subtracted; "
      "default: those of the pairs.", USUAL)
  whitening: bool = setting(
      False, "--unsupervised: whiten the vectors by --reference_file.")
  whitening_dim: int = setting(
      None, "--whitening: dimensions to keep; default: all.", least=1)
  layer: int = setting(
      DEFAULT_LAYER, "--unsupervised: which layer: 1 for the first; 0 "
      "for the embeddings, -1 for the last.")


SETTINGS = (SimilaritySettings, engines.EngineSettings, FolderSettings)


def check_flags(values):
  """Raises an InputError for a flag that would have no effect."""
  for need, names in (
      ("unsupervised", ["reference_file", "whitening", "layer"]),
      ("whitening", ["whitening_dim"])):
    for name in names:
      if values[name].present and not values[need].value:
        raise InputError("without --%s, there is no effect of --%s" % (
            need, name))


def create_similarity(own, engine, given):
  """Returns the BertSim or the VectorSim that the settings ask for."""
  if not own.unsupervised:
    similarity = BertSim(own.model_dir or "output/lcqmc/best", given=given,
                         engine=engine)
    similarity.start_model()
    return similarity
  reference = None
  if own.reference_file:
    reference = [line for line in filesystem.read_lines(own.reference_file)
                 if line.strip()]
    if not reference:
      raise InputError("%s: has no sentences" % own.reference_file)
  return VectorSim(own.model_dir or "albert_tiny_starter", reference,
                   own.whitening, own.whitening_dim, own.layer, given=given,
                   engine=engine)


def main(sentences):
  own = from_flags(SimilaritySettings, flags.FLAGS)
  check_flags(flags.FLAGS)
  if sentences and own.input_file:
    raise InputError("give two sentences or --input_file, not both")
  if len(sentences) == 2:
    pairs = [tuple(sentences)]
  elif sentences:
    raise InputError("give two sentences, or none and pairs by --input_file or "
                     "on standard input, one a line, separated by a tab")
  else:
    pairs = read_pairs(own.input_file)
  similarity = create_similarity(
      own, flags.FLAGS.engine, from_flags(FolderSettings, flags.FLAGS))
  if own.benchmark and pairs:
    benchmark(similarity, pairs)
  text = ""
  for score, pair in zip(similarity.predict_sentences(pairs), pairs):
    judgement = () if own.unsupervised else (
        "same" if score >= 0.5 else "different",)
    text += "\t".join(("%.4f" % score,) + judgement + pair) + "\n"
  if own.output_file:
    filesystem.write_text(own.output_file, text)
  else:
    print(text, end="")


if __name__ == "__main__":
  cli.run(main, SETTINGS, takes_arguments=True)
