"""Entities of every scheme, read and scored, against seqeval in strict mode."""

import random

import pytest
import seqeval.metrics
from seqeval import scheme

from albert.tasks import entity_files, metrics

# Letters of an entity of one row, and of the first, inner and last of several.
SCHEMES = {"BIO": ("B", "B", "I", "I", scheme.IOB2),
           "BIOES": ("S", "B", "I", "E", scheme.IOBES),
           "BILOU": ("U", "B", "I", "L", scheme.BILOU),
           "BMES": ("S", "B", "M", "E", scheme.IOBES),
           "BMEO": ("B", "B", "M", "E", None)}


def random_tags(rng, letters):
  only, first, inner, last = letters
  tags = []
  while len(tags) < rng.randint(1, 20):
    kind, length = rng.choice("abc"), rng.choice([1, 1, 2, 3, 5])
    if rng.random() < 0.5:
      tags += ["O"] * length
    else:
      tags += [letter + "-" + kind for letter in (
          [only] if length == 1 else
          [first] + [inner] * (length - 2) + [last])]
  return tags


def changed(rng, tags, letters):
  """Other tags, of which some entities are the same."""
  other = random_tags(rng, letters)
  cuts = [i for i in range(min(len(tags), len(other))) if
          tags[i] == other[i] == "O"]
  place = rng.choice(cuts) if cuts else 0
  found = tags[:place] + other[place:]
  return (found + ["O"] * len(tags))[:len(tags)] if (
      len(found) <= len(tags)) else tags


@pytest.mark.parametrize("name", sorted(SCHEMES))
def test_scores_are_those_of_seqeval(name, tmp_path):
  *letters, theirs = SCHEMES[name]
  rng = random.Random(name)
  true = [random_tags(rng, letters) for _ in range(1000)]
  claimed = [changed(rng, tags, letters) for tags in true]
  entities = []
  for number, sentences in enumerate((true, claimed)):
    path = tmp_path / ("%d.txt" % number)
    path.write_text("\n\n".join("\n".join("甲 " + tag for tag in tags)
                                for tags in sentences), encoding="utf-8")
    entities.append([example.entities
                     for example in entity_files.read_examples(str(path))])
  found, report = metrics.entities(*entities)
  if name == "BMEO":  # which seqeval does not know
    true, claimed, theirs = [[as_bio(tags) for tags in sentences]
                             for sentences in (true, claimed)] + [scheme.IOB2]
  else:
    true, claimed = [[[tag.replace("M-", "I-") for tag in tags]
                      for tags in sentences] for sentences in (true, claimed)]
  expected = seqeval.metrics.classification_report(
      true, claimed, mode="strict", scheme=theirs, output_dict=True)
  assert 0.3 < found["f1"] < 0.9
  for ours, key in (("precision", "precision"), ("recall", "recall"),
                    ("f1", "f1-score")):
    assert found[ours] == pytest.approx(expected["micro avg"][key])
  rows = {line.split()[0]: line.split()[1:] for line in report.splitlines()}
  for kind in "abc":
    assert rows[kind] == ["%.4f" % expected[kind][key] for key in (
        "precision", "recall", "f1-score")] + [str(expected[kind]["support"])]


def as_bio(tags):
  return [{"M": "I", "E": "I"}.get(tag[0], tag[0]) + tag[1:] for tag in tags]
