r"""Bag-of-characters baseline: logistic regression on n-grams of characters.

    pip install scikit-learn
    python benchmarks/baseline_words.py --data_dir=data/topics

Prints dev and test accuracy of the majority class and of scikit-learn's
logistic regression (C = 10) on TF-IDF of character unigrams and bigrams: a
baseline that only learns word-label association.
"""

import collections
import dataclasses
import os
import sys
from typing import Any, List, Tuple

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from albert import cli
from albert.errors import InputError
from albert.settings import NEEDED, from_flags, setting
from albert.tasks import classification


@dataclasses.dataclass(frozen=True)
class BaselineSettings:
  """The task."""

  task_name: str = setting("tsv", "Task, of single texts or pairs.", NEEDED)
  data_dir: str = setting(None, "Folder with its files.", NEEDED, required=True)


SETTINGS = (BaselineSettings,)


def read(
  task: classification.Task, data_dir: str, split: str
) -> Tuple[List[str], List[Any]]:
  """Returns the texts, with pairs joined, and labels of a split."""
  rows = classification.read_examples(
    task, classification.find_file(task, data_dir, split), split == "test"
  )
  return (
    [row.text_a + "\n" + (row.text_b or "") for row in rows],
    [row.label for row in rows],
  )


def main() -> None:
  args = from_flags(BaselineSettings)
  try:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
  except ImportError as error:
    raise InputError("pip install scikit-learn (%s)" % error) from error
  task = classification.get_task(args.task_name)
  texts, labels = read(task, args.data_dir, "train")
  model = make_pipeline(
    TfidfVectorizer(analyzer="char", ngram_range=(1, 2)),
    LogisticRegression(C=10, max_iter=1000),
  ).fit(texts, labels)
  frequent, _ = collections.Counter(labels).most_common(1)[0]
  print("split\tmajority class\tlogistic regression")
  for split in ("dev", "test"):
    texts, labels = read(task, args.data_dir, split)
    print(
      "%s\t%.3f\t%.3f"
      % (
        split,
        labels.count(frequent) / len(labels),
        model.score(texts, labels),
      )
    )


if __name__ == "__main__":
  cli.run(main, SETTINGS)
