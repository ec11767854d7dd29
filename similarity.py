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

import time

import numpy as np
from absl import flags, logging

import tokenization
from albert import errors
from albert.errors import InputError
from albert.files import filesystem
from albert.predict import engines

FLAGS = flags.FLAGS
# Whitened, it orders the pairs of LCQMC better than the last one.
DEFAULT_LAYER = 1


class BertSim:
  """Scores pairs of sentences; the graph is built once and stays warm.

  Args:
    model_dir: str, folder with a checkpoint, config.json, task.json and the
      vocabulary, such as the `best` folder of a fine-tuning run with the
      labels "0" (different) and "1" (same meaning).
    batch_size: int, pairs per call of the model.
    options: flags that say what is not in the folder, see
      `predictor.load_folder`, or None.
    engine: str, "tensorflow" or "onnx"; see `engines.load`.
  """

  def __init__(self, model_dir="output/lcqmc/best", batch_size=64,
               options=None, engine="tensorflow"):
    self._model_dir = model_dir
    self._batch_size = batch_size
    self._options = options
    self._engine = engine
    self._predictor = None

  def start_model(self):
    """Builds the graph and loads the weights.

    Raises:
      InputError: the folder has no such model.
    """
    model = engines.load(self._engine, self._model_dir, self._options)
    self._labels = model.task.get("labels", [])
    if "1" not in self._labels:
      raise InputError(
          "%s: the labels (%s) are not those of a similarity task: fine-tune "
          "on pairs labelled 0 and 1, or give --unsupervised" % (
              self._model_dir, ", ".join(self._labels) or "none"))
    self._predictor = model.classify(
        max_seq_length=model.task["max_seq_length"],
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
    layer: int, see `heads.sentence_vectors`.
    batch_size: int, sentences per call of the model.
    options: flags that say what is not in the folder, see
      `predictor.load_folder`, or None.
    engine: str, "tensorflow" or "onnx"; see `engines.load`.

  Raises:
    InputError: the folder has no such model, or the reference does not do.
  """

  def __init__(self, model_dir="albert_tiny_starter", reference=None,
               whiten=False, whitening_dim=None, layer=DEFAULT_LAYER,
               batch_size=64, options=None, engine="tensorflow"):
    model = engines.load(engine, model_dir, options)
    self._predictor = model.sentence_vectors("mean", layer,
                                             batch_size=batch_size)
    self._mean = None
    self._matrix = np.identity(model.config.hidden_size)
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


def define_flags():
  """Defines the script's flags; who imports its classes has others."""
  flags.adopt_module_key_flags(tokenization)
  flags.DEFINE_string("model_dir", None,
                      "Folder with a checkpoint that run_classifier.py made; "
                      "with --unsupervised, with a pretrained one. Default: "
                      "output/lcqmc/best, or albert_tiny_starter.")
  flags.DEFINE_enum("engine", "tensorflow", engines.NAMES, engines.HELP)
  flags.DEFINE_string("bert_config_file", None, "Configuration of the model "
                      "(JSON); default: the one in --model_dir.")
  flags.DEFINE_string("input_file", None,
                      "Pairs, one a line, separated by a tab; default, if no "
                      "two sentences are given: standard input.")
  flags.DEFINE_string("output_file", None,
                      "Score, judgement (not with --unsupervised) and pair, "
                      "one a line, separated by tabs; default: standard "
                      "output.")
  flags.DEFINE_bool("benchmark", False,
                    "Score the pairs one by one and show how long each takes.")
  flags.DEFINE_bool("unsupervised", False,
                    "Score by the cosine of the sentences' vectors, with a "
                    "model that is not fine-tuned.")
  flags.DEFINE_string("reference_file", None,
                      "--unsupervised: sentences, one a line, whose mean is "
                      "subtracted; default: those of the pairs.")
  flags.DEFINE_bool("whitening", False,
                    "--unsupervised: whiten the vectors by --reference_file.")
  flags.DEFINE_integer("whitening_dim", None,
                       "--whitening: dimensions to keep; default: all.", 1)
  flags.DEFINE_integer("layer", DEFAULT_LAYER,
                       "--unsupervised: which layer's vectors: 1 for the "
                       "first; 0 for the embeddings, -1 for the last.")


def check_flags():
  """Raises an InputError for a flag that would have no effect."""
  for need, names in (
      ("unsupervised", ["reference_file", "whitening", "layer"]),
      ("whitening", ["whitening_dim"])):
    for name in names:
      if FLAGS[name].present and not FLAGS[need].value:
        raise InputError("without --%s, there is no effect of --%s" % (
            need, name))


def create_similarity():
  """Returns the BertSim or the VectorSim that the flags ask for."""
  if not FLAGS.unsupervised:
    similarity = BertSim(FLAGS.model_dir or "output/lcqmc/best", options=FLAGS,
                         engine=FLAGS.engine)
    similarity.start_model()
    return similarity
  reference = None
  if FLAGS.reference_file:
    reference = [line for line in filesystem.read_lines(FLAGS.reference_file)
                 if line.strip()]
    if not reference:
      raise InputError("%s: has no sentences" % FLAGS.reference_file)
  return VectorSim(FLAGS.model_dir or "albert_tiny_starter", reference,
                   FLAGS.whitening, FLAGS.whitening_dim, FLAGS.layer,
                   options=FLAGS, engine=FLAGS.engine)


def main(sentences):
  check_flags()
  if sentences and FLAGS.input_file:
    raise InputError("give two sentences or --input_file, not both")
  if len(sentences) == 2:
    pairs = [tuple(sentences)]
  elif sentences:
    raise InputError("give two sentences, or none and pairs by --input_file or "
                     "on standard input, one a line, separated by a tab")
  else:
    pairs = read_pairs(FLAGS.input_file)
  similarity = create_similarity()
  if FLAGS.benchmark and pairs:
    benchmark(similarity, pairs)
  text = ""
  for score, pair in zip(similarity.predict_sentences(pairs), pairs):
    judgement = () if FLAGS.unsupervised else (
        "same" if score >= 0.5 else "different",)
    text += "\t".join(("%.4f" % score,) + judgement + pair) + "\n"
  if FLAGS.output_file:
    filesystem.write_text(FLAGS.output_file, text)
  else:
    print(text, end="")


if __name__ == "__main__":
  define_flags()
  errors.run(main, takes_arguments=True)
