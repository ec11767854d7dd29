"""Exact match and F1 of extractive QA, by the official rules.

SQuAD 1.1 and 2.0: Rajpurkar et al., arXiv:1606.05250 and arXiv:1806.03822.
CMRC2018: Cui et al., arXiv:1810.07366; its rule also gives the published scores
of DRCD (Shao et al., arXiv:1806.00920).
"""

import collections
import re
import string
from typing import Any, Dict, List, Tuple

# Punctuation in CMRC2018's rule.
_CMRC_PUNCTUATION = frozenset(
  "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』"
)

# Splits a sentence like NLTK's `word_tokenize` (3.9), except for contractions
# such as "gonna"; CMRC2018's rule applies it to text that is not Chinese.
_MARKS = r";@#$%&?!()\[\]{}<>\"‘„«»"
_SUFFIX = r"n't(?![\w'])|'(?:s|m|d|ll|re|ve)?(?![\w'])"
_LAST_DOT = r"\.(?=[\])}>\"'» ]*$)"
_ENGLISH = re.compile(
  r"""
    \.{2,} | [MARKS] | SUFFIX | LAST_DOT
    | (?: (?!SUFFIX | LAST_DOT)  # words; numbers such as 3.14 and 6,476
          (?: [^\s,.MARKS] | ,(?=\d) | \.(?!\.) ) )+
    | [,.]""".replace("MARKS", _MARKS)
  .replace("SUFFIX", _SUFFIX)
  .replace("LAST_DOT", _LAST_DOT),
  re.VERBOSE,
)


def squad_tokens(text: str) -> List[str]:
  """SQuAD's normalization: lower case, no punctuation, no a / an / the."""
  text = "".join(c for c in text.lower() if c not in string.punctuation)
  return re.sub(r"\b(a|an|the)\b", " ", text).split()


def _cmrc_exact(text):
  return "".join(
    char for char in text.lower().strip() if char not in _CMRC_PUNCTUATION
  )


def cmrc_tokens(text: str) -> List[str]:
  """CMRC2018's mixed segmentation, without punctuation.

  Each Chinese character is a token; the text between is split like English,
  into words, numbers and the remaining marks.
  """
  return [
    token
    for part in re.split("([\u4e00-\u9fa5])", _cmrc_exact(text))
    for token in _ENGLISH.findall(part)
  ]


def bag_f1(answer: List[str], prediction: List[str]) -> float:
  """SQuAD 1.1's F1: tokens in common, in any order."""
  common = sum(
    (collections.Counter(answer) & collections.Counter(prediction)).values()
  )
  return 2.0 * common / max(len(answer) + len(prediction), 1)


def bag_f1_or_none(answer: List[str], prediction: List[str]) -> float:
  """SQuAD 2.0's F1: `bag_f1`, but 1.0 if both are empty."""
  return bag_f1(answer, prediction) if answer or prediction else 1.0


def substring_f1(answer: List[str], prediction: List[str]) -> float:
  """CMRC2018's F1: tokens of the longest common substring."""
  longest = 0
  lengths = [0] * (len(prediction) + 1)
  for token in answer:
    previous = 0
    for i, other in enumerate(prediction, 1):
      previous, lengths[i] = lengths[i], (previous + 1 if token == other else 0)
      longest = max(longest, lengths[i])
  return 2.0 * longest / max(len(answer) + len(prediction), 1)


# Rule -> normalization for exact match, tokens for F1, F1 of two token lists.
RULES = {
  "squad": (squad_tokens, squad_tokens, bag_f1),
  "squad2": (squad_tokens, squad_tokens, bag_f1_or_none),
  "cmrc2018": (_cmrc_exact, cmrc_tokens, substring_f1),
}


def scores(
  rule: str, answers: List[str], prediction: str
) -> Tuple[float, float]:
  """Compares a prediction with the reference answers.

  Args:
    rule: key of RULES.
    answers: empty if the question has no answer.
    prediction: "" for "no answer".

  Returns:
    exact match and F1, the best over the answers, in [0, 1].
  """
  whole, cut, f1 = RULES[rule]
  if rule == "squad2":
    answers = [answer for answer in answers if whole(answer)]
  pairs = [
    (
      float(whole(answer) == whole(prediction)),
      f1(cut(answer), cut(prediction)),
    )
    for answer in answers or [""]
  ]
  return max(exact for exact, _ in pairs), max(value for _, value in pairs)


def evaluate(
  rule: str, answers: Dict[Any, List[str]], predictions: Dict[Any, str]
) -> Dict[str, float]:
  """Averages over questions; a missing prediction counts as wrong.

  Args:
    rule: key of RULES.
    answers: id -> answers, see `scores`.
    predictions: id -> prediction.

  Returns:
    "exact" and "f1" in percent, and "total"; if there are questions both with
    and without answers, also "HasAns_..." and "NoAns_...".
  """
  each = {
    key: scores(rule, golds, predictions[key])
    if key in predictions
    else (0.0, 0.0)
    for key, golds in answers.items()
  }
  results = _means("", each.values())
  parts = {
    "HasAns_": [each[key] for key in answers if answers[key]],
    "NoAns_": [each[key] for key in answers if not answers[key]],
  }
  if all(parts.values()):
    for prefix, part in parts.items():
      results.update(_means(prefix, part))
  return results


def _means(prefix, pairs):
  pairs = list(pairs)
  return {
    prefix + "exact": 100.0 * sum(p[0] for p in pairs) / len(pairs),
    prefix + "f1": 100.0 * sum(p[1] for p in pairs) / len(pairs),
    prefix + "total": len(pairs),
  }


def best_threshold(
  values: Dict[Any, float],
  null_scores: Dict[Any, float],
  has_answer: Dict[Any, bool],
) -> Tuple[float, float]:
  """Finds the null score above which to predict "no answer" (SQuAD 2.0).

  Args:
    values: id -> exact match or F1 if "no answer" is not predicted; 1.0 for a
      question without answer if no span was found.
    null_scores: id -> score of "no answer".
    has_answer: id -> whether the question has an answer.

  Returns:
    the best mean in percent, and the threshold, which the null score must
    exceed.
  """
  # The lowest threshold predicts "no answer" for all questions.
  total = float(sum(not has_answer[key] for key in values))
  order = sorted(values, key=lambda key: null_scores[key])
  best, threshold = total, (null_scores[order[0]] - 1.0 if order else 0.0)
  for i, key in enumerate(order):
    total += values[key] - (not has_answer[key])
    last = i + 1 == len(order)
    if total > best and (last or null_scores[order[i + 1]] > null_scores[key]):
      best, threshold = total, null_scores[key]
  return 100.0 * best / len(values), threshold
