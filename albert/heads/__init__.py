"""Task heads on top of the encoder."""

from typing import Dict, List

from albert.heads.base import Head
from albert.heads.classifier import Choices, Classifier, MultiLabel, Regression
from albert.heads.pretraining import MaskedLm, SentenceOrder
from albert.heads.spans import BeamSpans, Spans
from albert.heads.token_labels import TokenLabels
from albert.heads.vectors import Encode, SentenceVector
from albert.model_folder import ModelFolder

# In order of preference for exports.
ALL = (
  Classifier,
  MultiLabel,
  Regression,
  Choices,
  TokenLabels,
  Spans,
  BeamSpans,
  Encode,
  SentenceVector,
  MaskedLm,
  SentenceOrder,
)


def restore(
  saved: Dict[str, List[int]], folder: ModelFolder
) -> Dict[str, Head]:
  """Returns the heads of a checkpoint by signature.

  Args:
    saved: shapes of the checkpoint's variables by name.
    folder: the checkpoint's folder.

  Raises:
    InputError: the folder contradicts the variables.
  """
  heads = [cls.restore(saved, folder) for cls in ALL]
  return {head.signature: head for head in heads if head}
