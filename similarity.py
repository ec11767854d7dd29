r"""Judges whether two sentences mean the same; finds like ones.

    python similarity.py --unsupervised --model_dir=albert_tiny_starter \
      --reference_file=data/text_train.txt 怎么办理银行卡 银行卡如何办理
    python similarity.py 怎么办理银行卡 银行卡如何办理
    python similarity.py --input_file=pairs.tsv --output_file=scores.tsv
    python similarity.py --search --corpus_file=texts.txt 怎么办理银行卡

A score of a fine-tuned model is the probability, between 0 and 1, that the two
mean the same. Of a model of run_sentence_vectors.py, and with --unsupervised of
any pretrained one, it is the cosine, between -1 and 1, of the two sentences'
vectors; like pairs score above unlike ones, but where to draw the line depends
on the sentences. With --search, the texts of a file that are most like each
query, by the same score.
"""

import dataclasses
import time

import numpy as np
from absl import logging

from albert import cli
from albert.errors import InputError
from albert.files import filesystem
from albert.model_folder import FolderSettings
from albert.predict import engines
from albert.predict.search import Corpus
from albert.predict.similarity import (
  DEFAULT_LAYER,
  BertSim,
  VectorSim,
  read_reference,
)
from albert.predict.similarity import whitening as whitening
from albert.settings import NEEDED, USUAL, from_flags, setting


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
      None, "Folder with a checkpoint that run_classifier.py or "
      "run_sentence_vectors.py made; with --unsupervised, with a pretrained "
      "one. Default: output/lcqmc/best, or albert_tiny_starter.", NEEDED)
  unsupervised: bool = setting(
      False, "Score by the cosine of the sentences' vectors, with a model that "
      "is not fine-tuned.", USUAL)
  input_file: str = setting(
      None, "Pairs, one a line, separated by a tab; default, if no two "
      "sentences are given: standard input.", USUAL)
  output_file: str = setting(
      None, "Score, judgement (not with cosines) and pair, one a line, "
      "separated by tabs; default: standard output.", USUAL)
  search: bool = setting(
      False, "Find texts of --corpus_file: queries are given as arguments, or "
      "one a line.", USUAL)
  corpus_file: str = setting(
      None, "--search: texts, one a line; their vectors are kept next to it.",
      USUAL, required="search", demands="search")
  top_k: int = setting(5, "--search: texts to find for each query.", USUAL,
                       least=1, demands="search")
  benchmark: bool = setting(
      False, "Score the pairs one by one and show how long each takes.")
  reference_file: str = setting(
      None, "--unsupervised, --search: sentences, one a line, whose mean is "
      "subtracted; default: those of the pairs, or some of the corpus.", USUAL,
      demands="unsupervised or search")
  whitening: bool = setting(
      False, "--unsupervised: whiten the vectors by --reference_file.",
      demands="unsupervised or search")
  whitening_dim: int = setting(
      None, "--whitening: dimensions to keep; default: all.", least=1,
      demands="whitening")
  layer: int = setting(
      None, "--unsupervised: which layer: 1 for the first; 0 for the "
      "embeddings, -1 for the last. Default: the one that vectors were trained "
      "with, or else %d." % DEFAULT_LAYER, demands="unsupervised or search")


SETTINGS = (SimilaritySettings, engines.EngineSettings, FolderSettings)


def create_similarity(args, engine, given):
  """Returns the BertSim or the VectorSim that the settings ask for."""
  model = load(args, "albert_tiny_starter" if args.unsupervised else
               "output/lcqmc/best", engine, given)
  if args.unsupervised or model.folder.vector:
    return VectorSim(model, read_reference(args.reference_file),
                     **vectors_of(args))
  similarity = BertSim(model)
  similarity.start_model()
  return similarity


def load(args, default, engine, given):
  """Returns the engine of --model_dir."""
  return engines.load(engine, args.model_dir or default, given)


def vectors_of(args):
  """Returns the arguments of VectorSim, but model and reference."""
  return dict(whiten=args.whitening, whitening_dim=args.whitening_dim,
              layer=args.layer)


def search(args, queries, engine, given):
  """Returns lines of what is found: query, score and text."""
  corpus = Corpus(args.corpus_file, read_reference(args.reference_file),
                  model_dir=load(args, "albert_tiny_starter", engine, given),
                  **vectors_of(args))
  return ["%s\t%.4f\t%s" % (query, found.score, found.text)
          for query, row in zip(queries, corpus.search(queries, args.top_k))
          for found in row]


def main(sentences):
  args = from_flags(SimilaritySettings)
  model = (from_flags(engines.EngineSettings),
           from_flags(FolderSettings))
  if sentences and args.input_file:
    raise InputError("give sentences or --input_file, not both")
  if args.search:
    lines = search(args, sentences or filesystem.read_lines(args.input_file),
                   *model)
  else:
    lines = score(args, sentences, *model)
  text = "".join(line + "\n" for line in lines)
  if args.output_file:
    filesystem.write_text(args.output_file, text)
  else:
    print(text, end="")


def score(args, sentences, engine, given):
  """Returns lines of scores of pairs, and the pairs."""
  if len(sentences) not in (0, 2):
    raise InputError("give two sentences, or none and pairs by --input_file or "
                     "on standard input, one a line, separated by a tab")
  pairs = [tuple(sentences)] if sentences else read_pairs(args.input_file)
  similarity = create_similarity(args, engine, given)
  if args.benchmark and pairs:
    benchmark(similarity, pairs)
  return ["\t".join(("%.4f" % value,) + (
      () if isinstance(similarity, VectorSim) else
      ("same" if value >= 0.5 else "different",)) + pair)
          for value, pair in zip(similarity.predict_sentences(pairs), pairs)]


if __name__ == "__main__":
  cli.run(main, SETTINGS, takes_arguments=True)
