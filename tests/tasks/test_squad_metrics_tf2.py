"""CMRC2018's segmentation, against NLTK on real text."""

import random
import re

from nltk.tokenize import NLTKWordTokenizer

from albert.tasks import squad, squad_metrics

# The list of the published rule; one entry is of two characters.
PUNCTUATION = list(
    "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』") + ["……"]


def segments(text):
  """The published rule, character by character."""
  found, other = [], ""
  for char in text.lower().strip():
    if char in PUNCTUATION:
      continue
    if re.match("[\u4e00-\u9fa5]", char):
      found += NLTKWordTokenizer().tokenize(other) + [char]
      other = ""
    else:
      other += char
  found += NLTKWordTokenizer().tokenize(other)
  return ['"' if token in ("``", "''") else token for token in found]


def test_segmentation_is_that_of_nltk(real_data):
  rng = random.Random(0)
  checked = differ = 0
  for name in ("cmrc2018/cmrc2018_trial.json", "drcd/DRCD_dev.json",
               "squad2/dev-v2.0-small.json"):
    for question in squad.read_questions(str(real_data / name)):
      texts = list(question.answers)
      for _ in range(3):
        start = rng.randrange(len(question.context))
        texts.append(question.context[start:start + rng.randint(1, 25)])
      for text in texts:
        checked += 1
        if squad_metrics.cmrc_tokens(text) != segments(text):
          differ += 1
          assert "cannot" in text.lower(), text  # NLTK has a list of such words
  assert checked > 10000
  assert differ < 5
