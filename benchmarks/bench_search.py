r"""Time and memory of similarity search, checked against all cosines.

    python benchmarks/bench_search.py --corpus_file=texts.txt --num_queries=1000

The queries are texts of the corpus, each with one character removed.
"""

import os
import resource
import sys
import time

import numpy as np
from absl import app, flags

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from albert.predict.similarity import Corpus  # noqa: E402

FLAGS = flags.FLAGS
flags.DEFINE_string("model_dir", "albert_tiny_starter", "Folder of the model.")
flags.DEFINE_string("engine", "tensorflow", "See predict.py.")
flags.DEFINE_string("corpus_file", None, "Texts, one per line.", required=True)
flags.DEFINE_integer("num_queries", 1000, "Number of queries.")
flags.DEFINE_integer("top_k", 5, "Texts per query.")


def timed(what, function):
  start = time.time()
  found = function()
  print(
    "%s\t%.2f s\tpeak so far %d MB"
    % (
      what,
      time.time() - start,
      resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    ),
    flush=True,
  )
  return found


def main(_):
  def load():
    return Corpus(
      FLAGS.corpus_file, model_dir=FLAGS.model_dir, engine=FLAGS.engine
    )

  corpus = timed("vectors computed or loaded", load)
  corpus = timed("vectors loaded", load)
  with open(FLAGS.corpus_file, encoding="utf-8") as reader:
    texts = [line.rstrip("\n") for line in reader if line.strip()]
  picked = np.random.RandomState(0).choice(len(texts), FLAGS.num_queries)
  queries = [texts[i][:2] + texts[i][3:] for i in picked]
  timed("one query", lambda: corpus.search(queries[:1], FLAGS.top_k))
  found = timed(
    "%d queries, %d texts" % (len(queries), len(texts)),
    lambda: corpus.search(queries, FLAGS.top_k),
  )
  vectors = [corpus.similarity.directions(x) for x in (texts, queries)]
  same = 0
  for row, query in zip(found, vectors[1]):
    best = np.sort(vectors[0] @ query)[::-1][: FLAGS.top_k]
    same += np.allclose([x.score for x in row], best, atol=1e-5)
  print(
    "%d of %d queries: same top %d as by all cosines"
    % (same, len(queries), FLAGS.top_k)
  )


if __name__ == "__main__":
  app.run(main)
