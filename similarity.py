r"""Scores the similarity of two sentences; searches for similar ones.

    python similarity.py --unsupervised --model_dir=albert_tiny_starter \
      --reference_file=data/text_train.txt 怎么办理银行卡 银行卡如何办理
    python similarity.py 怎么办理银行卡 银行卡如何办理
    python similarity.py --input_file=pairs.tsv --output_file=scores.tsv
    python similarity.py --search --corpus_file=texts.txt 怎么办理银行卡

The score of a fine-tuned model is the probability, between 0 and 1, that both
mean the same. With a model from run_sentence_vectors.py, or a pretrained one
and --unsupervised, it is the cosine, between -1 and 1, of the two vectors;
similar pairs score higher, but the threshold depends on the sentences. --search
prints the texts of a file that are most similar to each query, by the same
score.
"""

import dataclasses
import time
from typing import Any, Dict, List, Optional, Tuple, Union

import numpy as np
from absl import logging

from albert import cli
from albert.errors import InputError
from albert.files import filesystem, tables
from albert.model_folder import FolderSettings
from albert.predict import engines
from albert.predict.engine import Engine
from albert.predict.similarity import (
  DEFAULT_LAYER,
  BertSim,
  Corpus,
  VectorSim,
  read_reference,
)
from albert.predict.similarity import whitening as whitening
from albert.settings import NEEDED, USUAL, from_flags, setting


def read_pairs(path: Optional[str]) -> List[Tuple[str, str]]:
  """Reads pairs separated by a tab.

  Args:
    path: None for standard input.

  Raises:
    InputError: a line does not have two sentences; the message names it.
  """
  pairs = []
  for number, line in enumerate(tables.read_lines(path), 1):
    texts = line.split("\t")
    if len(texts) != 2:
      raise InputError(
        "%s:%d: expected two sentences separated by a tab, "
        "found %d" % (path or "standard input", number, len(texts))
      )
    pairs.append((texts[0], texts[1]))
  return pairs


def benchmark(
  similarity: Union[BertSim, VectorSim], pairs: List[Tuple[str, str]]
) -> None:
  """Logs the latency of single pairs and the throughput of all in batches."""
  times = []
  for pair in pairs[:20] + pairs:
    start = time.monotonic()
    similarity.predict_sentences([pair])
    times.append(time.monotonic() - start)
  seconds = np.array(times[min(20, len(pairs)) :])  # without the warm-up
  start = time.monotonic()
  similarity.predict_sentences(pairs)
  logging.info(
    "one by one: p50 %.1f ms, p99 %.1f ms; all at once: %.0f pairs/s",
    1e3 * np.percentile(seconds, 50),
    1e3 * np.percentile(seconds, 99),
    len(pairs) / (time.monotonic() - start),
  )


@dataclasses.dataclass(frozen=True)
class SimilaritySettings:
  """The sentences and how to compare them."""

  model_dir: str = setting(
    None,
    "Folder of a model from run_classifier.py or "
    "run_sentence_vectors.py; with --unsupervised, of a pretrained one. "
    "Default: output/lcqmc/best, or albert_tiny_starter.",
    NEEDED,
  )
  unsupervised: bool = setting(
    False,
    "Score by the cosine of sentence vectors, with a model that is "
    "not fine-tuned.",
    USUAL,
  )
  input_file: str = setting(
    None,
    "Pairs, one per line, separated by a tab; default, without two "
    "sentences as arguments: standard input.",
    USUAL,
  )
  output_file: str = setting(
    None,
    "Score, judgement (not with cosines) and pair, one per line, "
    "separated by tabs; default: standard output.",
    USUAL,
  )
  search: bool = setting(
    False,
    "Search --corpus_file; queries are arguments, or one per line.",
    USUAL,
  )
  corpus_file: str = setting(
    None,
    "--search: texts, one per line; vectors are cached next to it.",
    USUAL,
    required="search",
    demands="search",
  )
  top_k: int = setting(
    5, "--search: texts per query.", USUAL, least=1, demands="search"
  )
  benchmark: bool = setting(False, "Measure the latency of single pairs.")
  reference_file: str = setting(
    None,
    "--unsupervised, --search: sentences, one per line, whose mean "
    "vector is subtracted; default: the pairs, or some of the corpus.",
    USUAL,
    demands="unsupervised or search",
  )
  whitening: bool = setting(
    False,
    "--unsupervised: whiten the vectors by --reference_file.",
    demands="unsupervised or search",
  )
  whitening_dim: int = setting(
    None,
    "--whitening: dimensions to keep; default: all.",
    least=1,
    demands="whitening",
  )
  layer: int = setting(
    None,
    "--unsupervised: layer: 1 for the first, 0 for the embeddings, -1 "
    "for the last. Default: as trained, otherwise %d." % DEFAULT_LAYER,
    demands="unsupervised or search",
  )


SETTINGS = (SimilaritySettings, engines.EngineSettings, FolderSettings)


def create_similarity(
  args: SimilaritySettings,
  engine: engines.EngineSettings,
  given: FolderSettings,
) -> Union[BertSim, VectorSim]:
  """Returns the requested scorer."""
  default = "albert_tiny_starter" if args.unsupervised else "output/lcqmc/best"
  model = load(args, default, engine, given)
  if args.unsupervised or model.folder.vector:
    return VectorSim(
      model, read_reference(args.reference_file), **vectors_of(args)
    )
  similarity = BertSim(model)
  similarity.start_model()
  return similarity


def load(
  args: SimilaritySettings,
  default: str,
  engine: engines.EngineSettings,
  given: FolderSettings,
) -> Engine:
  """Returns the model of --model_dir."""
  return engines.load(engine, args.model_dir or default, given)


def vectors_of(args: SimilaritySettings) -> Dict[str, Any]:
  """Returns the arguments of VectorSim except model and reference."""
  return dict(
    whiten=args.whitening, whitening_dim=args.whitening_dim, layer=args.layer
  )


def search(
  args: SimilaritySettings,
  queries: List[str],
  engine: engines.EngineSettings,
  given: FolderSettings,
) -> List[str]:
  """Returns lines of query, score and text."""
  corpus = Corpus(
    args.corpus_file,
    read_reference(args.reference_file),
    model_dir=load(args, "albert_tiny_starter", engine, given),
    **vectors_of(args),
  )
  return [
    "%s\t%.4f\t%s" % (query, found.score, found.text)
    for query, row in zip(queries, corpus.search(queries, args.top_k))
    for found in row
  ]


def main(sentences: List[str]) -> None:
  args = from_flags(SimilaritySettings)
  model = (from_flags(engines.EngineSettings), from_flags(FolderSettings))
  if sentences and args.input_file:
    raise InputError("give sentences or --input_file, not both")
  if args.search:
    lines = search(
      args, sentences or tables.read_lines(args.input_file), *model
    )
  else:
    lines = score(args, sentences, *model)
  filesystem.write_lines(args.output_file, lines)


def score(
  args: SimilaritySettings,
  sentences: List[str],
  engine: engines.EngineSettings,
  given: FolderSettings,
) -> List[str]:
  """Returns lines of score and pair."""
  if len(sentences) not in (0, 2):
    raise InputError(
      "give two sentences, or pairs in --input_file or on "
      "standard input, one per line, separated by a tab"
    )
  pairs = (
    [(sentences[0], sentences[1])]
    if sentences
    else (read_pairs(args.input_file))
  )
  similarity = create_similarity(args, engine, given)
  if args.benchmark and pairs:
    benchmark(similarity, pairs)
  lines = []
  for value, pair in zip(similarity.predict_sentences(pairs), pairs):
    cells = ["%.4f" % value, *pair]
    if not isinstance(similarity, VectorSim):
      cells.insert(1, "same" if value >= 0.5 else "different")
    lines.append("\t".join(cells))
  return lines


if __name__ == "__main__":
  cli.run(main, SETTINGS, takes_arguments=True)
