"""The starter weights know what their card says."""

import re

import pytest
from reading import table
from scripting import ROOT

from albert.predict import load

STARTER = ROOT / "albert_tiny_starter"


@pytest.mark.slow
def test_sentences_of_the_card():
  card = (STARTER / "MODEL_CARD.md").read_text(encoding="utf-8")
  rows = re.findall(r"^\| (\S*\[MASK\]\S*) \| (\S) \| (.*) \|$", card, re.M)
  assert [[text, answer] for text, answer, _ in rows] == (
      table(ROOT / "data" / "cloze.tsv")[1:])
  filled = load(str(STARTER)).predict([row[0] for row in rows])
  assert [" ".join(token for token, _ in found.masks[0])
          for found in filled] == [likeliest for _, _, likeliest in rows]


def test_size():
  """Weights alone: no optimizer, no graph, no copy of the vocabulary."""
  sizes = [path.stat().st_size for path in STARTER.iterdir()
           if not path.is_symlink()]
  assert sum(sizes) <= 17e6
  assert (STARTER / "vocab.txt").is_symlink()
