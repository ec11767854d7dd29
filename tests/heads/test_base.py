"""Detecting the heads of a checkpoint."""

import pytest
from refusals import refused

from albert import heads
from albert.model_folder import ModelFolder


def restored(saved, **task):
  return heads.restore(
    {"bert/pooler/dense/kernel": [8, 8], **saved},
    ModelFolder(None, None, path="folder", **task),
  )


ONE, THREE = {"output_weights": [1, 8]}, {"output_weights": [3, 8]}


@pytest.mark.parametrize(
  "saved, task, expected",
  [
    ({}, {}, {}),
    (THREE, {}, {"classify": heads.Classifier}),
    (
      THREE,
      dict(head="multi_label", labels=list("abc")),
      {"classify": heads.MultiLabel},
    ),
    (ONE, {}, {"classify": heads.Regression}),
    (ONE, dict(head="choices"), {"classify": heads.Choices}),
    (THREE, dict(head="token_labels"), {"label_tokens": heads.TokenLabels}),
    ({"cls/squad/output_weights": [2, 8]}, {}, {"spans": heads.Spans}),
    ({"start_logits/dense/kernel": [8, 1]}, {}, {"spans": heads.BeamSpans}),
    (
      {
        "cls/predictions/output_bias": [50],
        "cls/seq_relationship/output_bias": [2],
      },
      dict(head="classifier"),
      {"masked_lm": heads.MaskedLm, "sentence_order": heads.SentenceOrder},
    ),
  ],
)
def test_heads_of_a_checkpoint(saved, task, expected):
  found = restored(saved, **task)
  assert {name: type(head) for name, head in found.items()} == dict(
    expected, encode=heads.Encode, sentence_vector=heads.SentenceVector
  )
  if "classify" in expected:  # exported by default
    assert next(iter(found)) == "classify"


def test_what_the_folder_and_the_variables_say_of_a_head():
  assert restored(THREE)["classify"].num_labels == 3
  for crf in ({}, {"crf/transitions": [3, 3]}):
    assert restored(
      dict(THREE, **crf), head="token_labels", labels=["O", "B-a", "I-a"]
    )["label_tokens"].use_crf == bool(crf)
  vector = restored({}, pooling="cls", layer=1)["sentence_vector"]
  assert (vector.pooling, vector.layer) == ("cls", 1)
  refused("folder .* 2 .* 3", restored, THREE, labels=["a", "b"])
