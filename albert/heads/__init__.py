"""What is on top of the encoder, one kind of task each."""

from albert.heads.classifier import Choices, Classifier, MultiLabel, Regression
from albert.heads.pretraining import MaskedLm, SentenceOrder
from albert.heads.spans import BeamSpans, Spans
from albert.heads.token_labels import TokenLabels
from albert.heads.vectors import Encode, SentenceVector

# In the order in which an export prefers them.
ALL = (Classifier, MultiLabel, Regression, Choices, TokenLabels, Spans,
       BeamSpans, Encode, SentenceVector, MaskedLm, SentenceOrder)


def restore(saved, folder):
  """Returns the heads that a checkpoint has.

  Args:
    saved: dict, variable name -> shape, of the checkpoint.
    folder: model_folder.ModelFolder it is in.

  Returns:
    dict, signature -> Head.

  Raises:
    InputError: the folder contradicts the variables.
  """
  heads = [cls.restore(saved, folder) for cls in ALL]
  return {head.signature: head for head in heads if head}
