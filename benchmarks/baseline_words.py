r"""What words alone tell of labels: logistic regression on characters.

    pip install scikit-learn
    python benchmarks/baseline_words.py --data_dir=data/topics

Prints accuracies on dev and test of the most frequent label, and of
scikit-learn's logistic regression (C = 10) on TF-IDF of one and two characters:
what a model must beat to have learnt more than which words go with which label.
"""

import collections
import dataclasses
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from albert import cli
from albert.errors import InputError
from albert.settings import NEEDED, from_flags, setting
from albert.tasks import classification


@dataclasses.dataclass(frozen=True)
class BaselineSettings:
  """Which task."""
  task_name: str = setting("tsv", "Task, of single texts or pairs.", NEEDED)
  data_dir: str = setting(None, "Folder with its files.", NEEDED, required=True)


SETTINGS = (BaselineSettings,)


def read(task, data_dir, split):
  """Returns (texts, labels) of a split; the texts of a pair in one."""
  rows = classification.read_examples(
      task, classification.find_file(task, data_dir, split), split == "test")
  return ([row.text_a + "\n" + (row.text_b or "") for row in rows],
          [row.label for row in rows])


def main():
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
      LogisticRegression(C=10, max_iter=1000)).fit(texts, labels)
  frequent, _ = collections.Counter(labels).most_common(1)[0]
  print("split\tmost frequent label\tlogistic regression")
  for split in ("dev", "test"):
    texts, labels = read(task, args.data_dir, split)
    print("%s\t%.3f\t%.3f" % (
        split, labels.count(frequent) / len(labels),
        model.score(texts, labels)))


if __name__ == "__main__":
  cli.run(main, SETTINGS)
