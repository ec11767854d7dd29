"""Predictions from given outputs, worked by hand, and their display."""

import pathlib

import numpy as np
import pytest
import reference_albert as reference
from given_outputs import Engine, counts
from refusals import refused
from small_models import TOKENS, google_config, write_folder
from vocabularies import small_tokenizer

import tokenization
from albert.predict import load, predictors, results, tagger
from albert.predict.predictors import PredictSettings
from albert.tasks import bio

CLS, JIA, YI = 2, 5, 6  # ids
CHOICE, RATED = dict(head="choices"), dict(head="regression", labels=[])
IDIOM = dict(CHOICE, task_name="chid")
PAIR = dict(head="classifier", labels=["x"], pairs=True)
# Softmax of 2, 1, 0 and of 1, 0.
THREE, TWO = [0.665241, 0.244728, 0.090031], [0.731059, 0.268941]


@pytest.fixture
def model(tmp_path):
  """Returns a function that makes a Predictor from outputs by name."""
  tokenizer = small_tokenizer(tmp_path, "甲乙丙丁")
  return lambda outputs, own=None, **described: predictors.of_engine(
    Engine(tokenizer, outputs, **described), own
  )


def close(numbers):
  return pytest.approx(numbers, abs=1e-6)


def test_labels(model):
  found = model(
    {"logits": counts},
    PredictSettings(batch_size=2),
    head="classifier",
    labels=["x", "y", "z"],
  ).predict(["甲甲乙", "丙", "乙甲丙"], top_k=2)
  assert found[0].candidates == [("x", close(THREE[0])), ("y", close(THREE[1]))]
  assert found[0].cells() == ["x 0.6652", "y 0.2447"]
  assert [(row.label, row.probability) for row in found] == [
    ("x", close(THREE[0])),
    ("z", close(0.576117)),
    ("x", close(1 / 3)),
  ]
  rejected, kept = model(
    {"logits": counts},
    PredictSettings(reject_below=0.55),
    head="classifier",
    labels=list("xyz"),
    calibration_temperature=2.0,
  ).predict(["甲", "丙丙"])
  assert rejected.label is None and rejected.cells()[:2] == [
    "not sure",
    "x 0.4519",
  ]  # of the logits 1/2, 0, 0
  assert (kept.label, kept.probability) == ("z", close(0.576117))
  unnamed = model({"logits": counts}, head="classifier")
  assert unnamed.predict(["丙"])[0].label == "2"
  assert unnamed.predict([]) == []


def test_several_labels(model):
  several = model(
    {"logits": lambda ids, *_: 1e4 * counts(ids) - [1e4, 1, 0]},
    head="multi_label",
    labels=["x", "y", "z"],
    thresholds={"x": 0.6, "y": 0.2},
  )
  with np.errstate(over="raise"):
    found, other = several.predict(["甲", "丙丙"])
  # 0.5 does not exceed the threshold of z, 0.5.
  assert found == (["y"], [("x", 0.5), ("z", 0.5), ("y", close(TWO[1]))])
  assert other == (["y", "z"], [("z", 1), ("y", close(TWO[1])), ("x", 0)])
  assert other.cells()[:2] == ["y|z", "z 1.0000"]


def test_the_mean_of_windows(model):  # of two tokens; the third is dropped
  windows = model(
    {"logits": counts},
    head="classifier",
    labels=list("xyz"),
    max_seq_length=4,
    long_text="windows",
    max_windows=2,
  )
  np.testing.assert_array_equal(
    windows.logits(["甲甲乙丙丙", "丙"]), [[1, 0.5, 0.5], [0, 0, 1]]
  )
  assert list(map(windows.is_cut, ["甲甲乙丙", "甲甲乙丙丙"])) == [False, True]


def test_pairs_and_numbers(model):  # counts 甲 in the second text
  pairs = model(
    {"score": lambda ids, _, segments: ((ids == JIA) & (segments == 1)).sum(1)},
    pairs=True,
    **RATED,
  )
  assert (pairs.fields, pairs.labels) == (("text_a", "text_b"), None)
  found = pairs.predict([("甲", "乙甲甲"), ("甲", "乙")])
  assert found == [(2,), (0,)] and found[0].cells() == ["2.0000"]
  cosines = model(
    {"cls_1": counts}, head="sentence_vector", pooling="cls", layer=1
  ).predict([("甲", "甲乙"), ("丁", "甲")])
  assert [x.score for x in cosines] == close([0.5**0.5, 0])


def test_entities(model):
  """甲 begins an entity; 乙 continues it, or begins one if B -> I costs 2."""
  points, labels = {JIA: [1, 2, 0], YI: [0, 2, 3]}, ["O", "B-x", "I-x"]
  allowed, cost = bio.forbidden(labels)[0], np.zeros([3, 3])
  cost[1, 2] = 2
  cheap, dear = [
    model(
      {
        "scores": lambda ids, *_: [
          [points.get(i, [3, 0, 0]) for i in row] for row in ids
        ]
      },
      max_seq_length=6,
      transitions=transitions,
      head="token_labels",
      labels=labels,
      by_character=False,
    )
    for transitions in (allowed, allowed - cost)
  ]
  found, *others = cheap.predict(["丙甲乙 甲", "乙乙", ""])
  assert found.entities == [("甲乙", 1, 3, "x"), ("甲", 4, 5, "x")]
  assert found.cells() == ["甲乙 x 1-3, 甲 x 4-5"]
  # No entity begins with I.
  assert [x.entities for x in others] == [[("乙乙", 0, 2, "x")], []]
  assert [x.text for x in dear.predict(["甲乙"])[0].entities] == ["甲", "乙"]
  # Windows of 4 tokens, merged in order.
  (found,) = cheap.predict(["甲乙乙丙乙甲丙丙甲乙丙丙甲"])
  assert [x[:2] for x in found.entities] == [
    ("甲乙乙", 0),
    ("乙", 4),
    ("甲", 5),
    ("甲乙", 8),
    ("甲", 12),
  ]
  refused(
    "here has no model that finds entities",
    tagger.Tagger,
    Engine(None, {}, path="here", head="classifier"),
  )


@pytest.fixture
def answers(model):
  """Predicts on 丙甲乙丙, where answers begin with 甲 and end with 乙."""
  return lambda top_k=5, own=None, **more: model(
    {
      "start": lambda ids, *_: 3 * (ids == JIA) + (ids == CLS),
      "end": lambda ids, *_: 3 * (ids == YI) + (ids == CLS),
    },
    own,
    head="independent",
    **more,
  ).predict([("丁", "丙甲乙丙")], top_k)[0]


def test_answers(answers):
  found = answers(top_k=2)
  # It scores 6, four others score 3, four score 0.
  likely = np.exp(6) / (np.exp(6) + 4 * np.exp(3) + 4)
  assert found[:4] == ("甲乙", 1, 3, close(likely))
  assert [x.probability for x in found.candidates] == close(
    [likely, likely * np.exp(-3)]
  )
  assert found.null_odds is None
  assert found.cells() == ["甲乙 %.4f 1-3" % likely]
  assert answers(own=PredictSettings(max_answer_length=1)).text == "甲"


@pytest.mark.parametrize(
  "threshold, answer",
  [(0, ("甲乙", 1, 3)), (-4.00005, ("甲乙", 1, 3)), (-4.001, ("", 0, 0))],
)
def test_no_answer_where_odds_exceed_the_threshold(threshold, answer, answers):
  """No answer scores 2, the best answer 6; rounding errors are tolerated."""
  found = answers(has_unanswerable=True, null_threshold=threshold)
  assert found.null_odds == close(-4)
  assert found[:3] == answer
  assert found.candidates[0].text == "甲乙"
  assert (found.cells() == [""]) == (answer[0] == "")


def test_the_beam_gives_its_own_null_odds(model):
  (found,) = model(
    {
      name: lambda *_, x=x: x
      for name, x in (
        ("starts", [[4]]),
        ("start_scores", [[1]]),
        ("ends", [[[4, 5]]]),
        ("end_scores", [[[1, 2]]]),
        ("null", [0.25]),
      )
    },
    head="beam",
    has_unanswerable=True,
  ).predict([("丁", "丙甲乙丙")])
  assert found[:4] == ("", 0, 0, 0)
  assert found.candidates == [
    ("甲乙", close(TWO[0]), 1, 3),
    ("甲", close(TWO[1]), 1, 2),
  ]
  assert found.null_odds == 0.25


def test_choices(model):
  choices = model({"score": lambda ids, *_: counts(ids)[:, 0]}, **CHOICE)
  found = choices.predict(
    [("丙", "乙", ["甲", "甲甲", "丁"]), ("丙", "乙", ("丁", "甲"))]
  )
  assert [row[:2] for row in found] == [(1, "甲甲"), (1, "甲")]
  assert found[0].candidates == [
    ("甲", close(THREE[1])),
    ("甲甲", close(THREE[0])),
    ("丁", close(THREE[2])),
  ]
  assert [x.probability for x in found[1].candidates] == close(TWO[::-1])
  assert found[0].cells() == ["甲甲 0.6652"]


def test_each_idiom_is_used_once(model):
  """甲 is more likely for both blanks, most of all for the first."""
  idioms = model(
    {"score": lambda ids, *_: counts(ids)[:, 0] * (1 + (ids[:, 1] == JIA))},
    **IDIOM,
  )
  found, other = idioms.predict(
    [("#idiom1#丙#idiom2#", ["乙", "甲"]), ("#idiom7#", ["甲", "丁"])]
  )
  assert [blank[:2] for blank in found.blanks] == [(1, "甲"), (0, "乙")]
  assert [blank[:2] for blank in other.blanks] == [(0, "甲")]
  assert found.cells() == ["甲 0.8808", "乙 0.2689"]
  assert results.to_json(found)["blanks"][1] == {
    "choice": 0,
    "text": "乙",
    "candidates": [
      {"text": "乙", "probability": close(TWO[1])},
      {"text": "甲", "probability": close(TWO[0])},
    ],
  }
  refused(
    "input 2: ",
    idioms.predict,
    [("#idiom#", ["甲", "乙"]), ("甲", ["甲", "乙"])],
  )


def test_masks(model):
  """The logit of 乙 is the mask's position, all others are 0."""
  masks = model(
    {
      "logits": lambda ids, mask, segments, places: (
        places[..., np.newaxis] * (np.arange(9) == YI)
      )
    }
  )
  both, one = masks.predict(["甲[MASK]丙[MASK]", "[MASK]"], top_k=2)
  assert both.masks == [
    [
      ("乙", close(np.exp(n) / (np.exp(n) + 8))),
      ("甲", close(1 / (np.exp(n) + 8))),
    ]
    for n in (2, 4)
  ]
  assert both.cells() == ["乙 0.4802 甲 0.0650", "乙 0.8722 甲 0.0160"]
  assert [rows[0].text for rows in one.masks] == ["乙"]
  assert masks.predict([]) == []
  assert len(masks.predict(["甲" * 9 + "[MASK]"])) == 1
  for text, message in (
    ("甲", "no .MASK."),
    ("甲" * 10 + "[MASK]", "more than the 12 tokens"),
  ):
    refused("input 2: .*" + message, masks.predict, ["[MASK]", text])


def test_masks_are_those_of_the_reference(spm_file, tmp_path):
  tokenizer = tokenization.SentencePieceTokenizer(spm_file)
  config = google_config(
    vocab_size=tokenizer.vocab_size, max_position_embeddings=30
  )
  weights = write_folder(tmp_path, config, pathlib.Path(spm_file))
  ids = [tokenizer.cls_id]
  for part in ("in 2000, ", " met", "dogs"):
    ids += tokenizer.convert_tokens_to_ids(tokenizer.tokenize_plain(part))
    ids.append(tokenizer.mask_id)
  ids[-1] = tokenizer.sep_id
  output = reference.forward(
    weights,
    config,
    np.array([ids]),
    np.ones([1, len(ids)]),
    np.zeros_like([ids]),
  )
  rows = reference.softmax(
    reference.masked_lm_logits(
      weights,
      config,
      output["sequence_output"],
      [np.flatnonzero(np.equal(ids, tokenizer.mask_id))],
    )
  )
  tokens = tokenizer.convert_ids_to_tokens(range(tokenizer.vocab_size))
  # Special tokens are not offered.
  wanted = [
    [i for i in np.argsort(row)[::-1] if tokens[i][0] not in "[<"]
    for row in rows
  ]
  found = (
    load(str(tmp_path)).predict(["in 2000, [MASK] met[MASK]dogs"], 999)[0].masks
  )
  assert [[token for token, _ in choices] for choices in found] == [
    [tokens[i] for i in best] for best in wanted
  ]
  np.testing.assert_allclose(
    [[p for _, p in choices] for choices in found],
    [row[best] for row, best in zip(rows, wanted)],
    atol=1e-6,
  )
  other = tmp_path / "other"
  write_folder(other, google_config(), TOKENS, {"output_bias": np.zeros([2])})
  refused("%s has no masked-LM" % other, load, str(other))


@pytest.mark.parametrize(
  "described, row, cut",
  [
    (RATED, lambda n: "甲" * (n - 2), True),
    (PAIR, lambda n: ("甲" * 5, "乙" * (n - 8)), True),
    (dict(head="sentence_vector"), lambda n: ("甲", "乙" * (n - 2)), True),
    (dict(head="independent"), lambda n: ("甲" * (n - 8), "乙" * 99), True),
    (CHOICE, lambda n: ("甲" * (n - 7), "乙" * 2, ["丙", "丁丁"]), True),
    (CHOICE, lambda n: ("", "乙" * (n - 10), ["丙", "丁丁"]), True),
    (IDIOM, lambda n: ("甲" * (n - 6) + "#idiom1#", ["丙", "丁" * 4]), True),
    (
      dict(head="token_labels", labels=["O"], by_character=False),
      lambda n: "甲" * n,
      False,
    ),
  ],
)
def test_what_is_cut(described, row, cut, model):
  """At exactly 12 tokens, including [CLS] and a [SEP] after each text."""
  predictor = model({}, PredictSettings(max_query_length=4), **described)
  assert [predictor.is_cut(row(n)) for n in (11, 12, 13)] == [False, False, cut]


@pytest.mark.parametrize(
  "described, rows",
  [
    (RATED, [("甲", "乙"), None, [1]]),
    (PAIR, ["甲", ("甲", None)]),
    (IDIOM, [(["甲"], ["乙", "丙"])]),
    (
      CHOICE,
      [
        ("甲", "乙", "丙"),
        ("甲", "乙", ["丙"]),
        ("甲", "乙", ["丙", 1]),
        ("甲", ["丙", "丁"], "乙"),
      ],
    ),
  ],
)
def test_what_is_no_input(described, rows, model):
  predictor = model({}, **described)
  good = tuple(
    ["甲", "乙"] if field == "choices" else "甲" for field in predictor.fields
  )
  for row in rows:
    refused(
      "input 2: .*" + ", ".join(predictor.fields),
      predictor.predict,
      [good, row],
    )


@pytest.mark.parametrize(
  "described, kind",
  [
    (dict(labels=["0", "1"]), "label"),
    (dict(labels=[]), "score"),
    (dict(head="multi_label", labels=["x"]), "labels"),
    (IDIOM, "idioms"),
    (dict(CHOICE, task_name="c3"), "choice"),
    (dict(head="beam"), "answer"),
    ({}, "masks"),
  ],
)
def test_what_a_folder_is_for(described, kind, model):
  """Folders of earlier versions do not name a head."""
  assert model({}, **described).kind == kind
  refused("no predictor for the head 'other'", model, {}, head="other")
