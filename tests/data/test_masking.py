"""Pretraining records: pairs, labels, masking."""

import collections
import re

import numpy as np
import pytest
from scripting import ROOT
from writing import write

import create_pretraining_data
import tokenization
from albert import characters
from albert.data import corpus, masking
from albert.files import records


def make_settings(tokenizer, **changes):
  return create_pretraining_data.create_settings(
    create_pretraining_data.RecordSettings(
      **dict(
        dict(
          max_seq_length=64,
          max_predictions_per_seq=20,
          masked_lm_prob=0.15,
          dupe_factor=3,
          random_seed=7,
        ),
        **changes,
      )
    ),
    tokenizer,
  )


@pytest.fixture(scope="module")
def texts():
  return list(
    corpus.TextReader([str(ROOT / "data" / "text_train.txt")]).documents()
  )


@pytest.fixture(scope="module")
def documents(segmenter, texts):
  return list(map(segmenter.document, texts))


def pairs_of(documents, settings, passes=1):
  """Yields (document, cut points, pairs, counts)."""
  texts = [
    masking.prepare_text(document, settings.max_seq_length - 3)
    for document in documents
  ]
  for number in range(passes * len(texts)):
    text, counts = texts[number % len(texts)], collections.Counter()
    yield (
      *text[:2],
      list(
        masking.create_pairs(
          text, settings, np.random.RandomState(number), counts
        )
      ),
      counts,
    )


def size(segment):
  return segment.end - segment.start


@pytest.mark.parametrize(
  "line, clauses",
  [
    (
      "他说：“走吧，好不好？”然后，走了3.5公里；累……！",
      "他说： [UNK]走吧， 好不好？[UNK] 然后， 走了3.5公里； 累[UNK][UNK]！",
    ),
    ("去（很远的）地方。好", "去（很远的）地方。 好"),
    (
      "用node.js，在12:30 (today), http://a.cn。",
      "用node.js， 在12:30(today), http://a.cn。",
    ),
  ],
)
def test_clauses(segmenter, tokenizer, line, clauses):
  assert clauses_of(segmenter, tokenizer, line) == clauses.split()


def clauses_of(segmenter, tokenizer, *lines):
  document = segmenter.document(lines)
  tokens = tokenizer.convert_ids_to_tokens(document.ids)
  bounds = [0, *document.clauses, len(tokens)]
  return [
    re.sub("##|\u2581", "", "".join(tokens[begin:end]))
    for begin, end in zip(bounds, bounds[1:])
  ]


def test_clauses_of_sentencepiece(real_data):
  tokenizer = tokenization.SentencePieceTokenizer(
    str(real_data / "sentencepiece" / "30k-clean.model")
  )
  found = clauses_of(
    corpus.Segmenter(tokenizer, use_jieba=False),
    tokenizer,
    "Yes (of 3.5 km), at 12:30; no!",
    "End.",
  )
  assert found == ["yes(of3.5km),", "at12:30;", "no!", "end."]


def make_document(*sentences):
  """Builds a Document from nested lists: sentences, clauses, word lengths."""
  clauses = sum(sentences, [])
  words = sum(clauses, [])
  word_ends, *more = [
    np.cumsum(sizes, dtype=np.int32)[:-1]
    for sizes in (
      words,
      list(map(sum, clauses)),
      [sum(map(sum, x)) for x in sentences],
    )
  ]
  return corpus.Document(
    np.arange(1000, 1000 + sum(words), dtype=np.int32),
    np.append(np.int32(0), word_ends),
    *more,
  )


@pytest.mark.parametrize(
  "length, clause, word",
  [
    (310, 50, 40),
    (200, 2, 40),  # longer than length / 6: cut between words
    (79, 2, 1),
  ],
)  # longer than length / 2: cut anywhere
def test_cuts_are_as_coarse_as_the_length_allows(length, clause, word):
  # Sentences of 12, 36, 50 and 40 tokens; of those longer than 32, only the
  # second has clauses.
  document = make_document([[2] * 6], [[2] * 6] * 3, [[2] * 25], [[40]])
  assert masking.find_cuts(document, length).tolist() == [
    0,
    12,
    24,
    36,
    *range(48, 98, clause),
    *range(98, 139, word),
  ]


@pytest.mark.parametrize("length", [16, 64, 512])
def test_pairs_go_from_cut_to_cut(documents, tokenizer, length):
  settings = make_settings(tokenizer, max_seq_length=length)
  for document, cuts, pairs, counts in pairs_of(documents, settings):
    end, longest = 0, length - 3
    for one, two in pairs:
      assert one.document is two.document is document
      assert min(size(one), size(two)) > 0
      assert size(one) + size(two) <= longest
      assert one.end == two.start
      assert {one.start, one.end, two.end} <= set(cuts)
      if two.end < cuts[-1]:
        assert one.start == end
      else:  # the last pair fills a record, split near the middle
        first = min(end, cuts[cuts >= cuts[-1] - longest][0])
        assert one.start == first
        middle = (first + two.end) / 2
        inner = cuts[(cuts > first) & (cuts < two.end)]
        assert (
          abs(one.end - middle)
          <= 0.15 * (two.end - first)
          + np.abs(inner - middle).min()
          + np.diff(cuts).max() / 2
        )
      end = two.end
    assert end == len(document.ids)
    assert not counts["dropped_tokens"]


@pytest.mark.parametrize("sentence_pair", ["sop", "nsp"])
def test_labels_of_pairs(documents, tokenizer, sentence_pair):
  settings = make_settings(tokenizer, sentence_pair=sentence_pair)
  pairs = [
    pair for _, _, found, _ in pairs_of(documents, settings) for pair in found
  ]
  made = masking.label_pairs(pairs, settings, np.random.RandomState(0))
  for (one, two), (first, second, label) in zip(pairs, made):
    if sentence_pair == "sop":
      assert (first, second) == ((two, one) if label else (one, two))
    else:
      assert first is one and size(first) + size(second) <= 61
      assert (second is two) == (not label)
      assert (second.document is two.document) == (not label)
  if sentence_pair == "nsp":  # second segments are permuted
    begins = [
      sorted((id(two.document), two.start) for _, two, *_ in rows)
      for rows in (pairs, made)
    ]
    assert begins[0] == begins[1]
  labels = [label for *_, label in made]
  assert abs(np.mean(labels) - 0.5) < 2.5 / np.sqrt(len(labels))


def share_told(rows, width=8):
  """Accuracy of guessing labels from lengths: majority labels per length bucket
  of the first half of `rows`, (length, length, label), tested on the second."""
  keys = rows[:, 0] // width * 1000 + rows[:, 1] // width
  half = len(rows) // 2
  sums = np.bincount(keys[:half], 2 * rows[:half, 2] - 1, keys.max() + 1)
  return np.mean((sums[keys[half:]] > 0) == rows[half:, 2])


@pytest.mark.parametrize("sentence_pair", ["sop", "nsp"])
def test_lengths_do_not_tell_the_label(tokenizer, sentence_pair):
  """Even if documents end in short lines, as articles do."""
  rng, settings = (
    np.random.RandomState(0),
    make_settings(tokenizer, max_seq_length=128, sentence_pair=sentence_pair),
  )
  documents = [
    make_document(
      *(
        [[1] * size]
        for size in (*rng.randint(4, 32, size=rng.randint(9, 40)), 5, 8)
      )
    )
    for _ in range(1000)
  ]
  pairs, is_last = zip(
    *[
      (pair, pair[1].end == len(document.ids))
      for document, _, found, _ in pairs_of(documents, settings, 4)
      for pair in found
    ]
  )
  rows = np.array(
    [
      (size(first), size(second), label)
      for first, second, label in masking.label_pairs(pairs, settings, rng)
    ]
  )
  assert share_told(rows) < 0.52
  assert share_told(rows[np.array(is_last)], 16) < 0.55


def test_a_single_sentence_makes_no_pair(tokenizer):
  ((_, _, pairs, counts),) = pairs_of(
    [make_document([[10]])], make_settings(tokenizer)
  )
  assert not pairs and counts["dropped_tokens"] == 10


@pytest.mark.parametrize(
  "length, share, sentence_pair", [(64, 0.88, "nsp"), (128, 0.92, "sop")]
)
def test_ends_do_not_tell_the_order(
  segmenter, tokenizer, real_data, length, share, sentence_pair
):
  """Hard case: two long texts with long sentences."""
  laws = [
    segmenter.document(sum(texts, []))
    for _, texts in zip(
      range(2),
      corpus.TextReader([str(real_data / "corpus" / "laws_zh.txt")]).shards(),
    )
  ]
  settings = make_settings(
    tokenizer,
    max_seq_length=length,
    short_seq_prob=0.0,
    sentence_pair=sentence_pair,
  )
  is_mark = np.array(
    [
      len(token) == 1 and characters.is_punctuation(token)
      for token in tokenizer.convert_ids_to_tokens(range(tokenizer.vocab_size))
    ]
  )
  rows = []
  for *segments, label in masking.label_pairs(
    [
      pair
      for _, _, pairs, _ in pairs_of(laws, settings, passes=4)
      for pair in pairs
    ],
    settings,
    np.random.RandomState(0),
  ):
    ids = [s.document.ids[s.start : s.end] for s in segments]
    rows.append(
      (
        *([is_mark[part[at]] for part in ids] for at in (-1, 0)),
        list(map(len, ids)),
        label,
      )
    )
  ends, begins, halves, labels = map(np.array, zip(*rows))
  assert len(labels) > 10000
  error = 2 / np.sqrt(len(labels))
  for marks in (ends, begins):
    rules = [marks[:, 0], marks[:, 1]]
    if sentence_pair == "sop":
      # In NSP, different styles of the two documents give away the label.
      rules += [marks[:, 0] & ~marks[:, 1], marks[:, 1] & ~marks[:, 0]]
    for rule in rules:
      assert abs((rule == labels).mean() - 0.5) < 0.012 + error
  longer = halves[:, 0] > halves[:, 1]
  assert abs((longer == labels).mean() - 0.5) < 0.02 + error
  if sentence_pair == "sop":
    assert np.mean(halves.sum(1) + 3) > share * length


@pytest.mark.parametrize("masking", ["token", "word", "ngram", "mixed"])
def test_records_hold_the_text(documents, tokenizer, masking):
  check_records(documents, tokenizer, make_settings(tokenizer, masking=masking))


def test_records_hold_words_of_the_vocabulary(tmp_path, tokenizer, texts):
  """Including words that jieba splits, or that overlap two of its words."""
  tokenizer = tokenization.WordPieceTokenizer(
    write(
      tmp_path, "v.txt", *tokenizer.vocab, *"充电 他一 的时 ，他 一个".split()
    )
  )
  documents = list(map(corpus.Segmenter(tokenizer, True).document, texts))
  assert set(range(21128, 21133)) < set(
    np.concatenate([document.ids for document in documents])
  )
  check_records(documents, tokenizer, make_settings(tokenizer))


def check_records(documents, tokenizer, settings):
  """Checks records against docs/pretraining.md."""
  whole_words = settings.masking in ("word", "ngram")
  counts = collections.Counter()
  for index, document in enumerate(documents):
    text = "".join(map(chr, document.ids))
    for record in masking.create_records(
      [document], index, settings, collections.Counter()
    ):
      positions, labels = [
        record[name][record["masked_lm_weights"] > 0]
        for name in ("masked_lm_positions", "masked_lm_ids")
      ]
      length = record["input_mask"].sum()
      for name in ("input_ids", "input_mask", "segment_ids"):
        assert not record[name][length:].any()
      ids = record["input_ids"][:length].copy()
      now = ids[positions]
      ids[positions] = labels
      segments = record["segment_ids"][:length]
      second = int(np.argmax(segments))
      assert not segments[:second].any() and segments[second:].all()
      assert ids[0] == tokenizer.cls_id
      assert ids[second - 1] == ids[-1] == tokenizer.sep_id
      swapped = int(record["next_sentence_labels"][0])
      parts = [np.arange(1, second - 1), np.arange(second, length - 1)]
      one, two = parts[::-1] if swapped else parts
      both = np.concatenate([one, two])
      start = text.index("".join(map(chr, ids[both])))

      # No special tokens, no duplicates.
      places = dict(zip(both, range(start, start + len(both))))
      chosen = {places[position] for position in positions}
      assert list(positions) == sorted(positions)
      assert len(chosen) == len(positions)
      if whole_words:
        begins = {*document.words, start, start + len(one), start + len(both)}
        for place in chosen:
          assert place in begins or place - 1 in chosen
          assert place + 1 in begins or place + 1 in chosen
      counts.update(
        masked=len(chosen),
        tokens=len(both),
        swapped=swapped,
        records=1,
        mask=(now == tokenizer.mask_id).sum(),
        same=(now == labels).sum(),
      )
  masked = counts["masked"]
  assert abs(masked / counts["tokens"] - settings.masked_lm_prob) < 0.015
  # Five standard deviations; a whole word is one draw.
  error = 5 * np.sqrt(0.8 * 0.2 / masked * (2 if whole_words else 1))
  assert abs(counts["mask"] / masked - 0.8) < error
  assert abs(counts["same"] / masked - 0.1) < error
  assert abs(counts["swapped"] / counts["records"] - 0.5) < (
    2.5 / np.sqrt(counts["records"])
  )


def test_random_tokens_are_never_special(tokenizer):
  tokens = tokenizer.convert_ids_to_tokens(
    make_settings(tokenizer).replacements
  )
  assert len(tokens) == 21128 - 99 - 5 - 2
  assert not [t for t in tokens if t.startswith("[unused")]
  assert not set(tokens) & set(tokenization.SPECIAL_TOKENS)


def test_records_depend_on_documents_index_and_seed_alone(documents, tokenizer):
  specs = records.pretraining_specs(64, 20)

  def make(index, noise, **changes):
    np.random.seed(noise)
    return [
      records.serialize(record, specs)
      for record in (
        masking.create_records(
          documents[:5],
          index,
          make_settings(tokenizer, **changes),
          collections.Counter(),
        )
      )
    ]

  assert make(3, 1) == make(3, 2)
  assert make(4, 1) != make(3, 1) != make(3, 1, random_seed=8)


def test_legacy_labels(segmenter, tokenizer):
  document = segmenter.document(["他胸有成竹，说明天出发。"] * 8)
  settings = make_settings(
    tokenizer,
    legacy_wwm_labels=True,
    short_seq_prob=0,
    masked_lm_prob=0.9,
    max_predictions_per_seq=60,
  )
  record = next(
    masking.create_records([document], 0, settings, collections.Counter())
  )
  text = "".join(
    tokenizer.convert_ids_to_tokens(
      record["masked_lm_ids"][record["masked_lm_weights"] > 0]
    )
  )
  assert "胸##有##成##竹" in text and "明##天" in text
  assert "##。" not in text and "##胸" not in text


@pytest.mark.parametrize("length", [64, 128])
def test_ngrams_follow_the_papers_distribution(documents, tokenizer, length):
  counts = collections.Counter()
  settings = make_settings(
    tokenizer, masking="ngram", dupe_factor=15, max_seq_length=length
  )
  list(masking.create_records(documents, 0, settings, counts))
  placed = np.array([counts["placed_%d" % n] for n in (1, 2, 3)])
  assert placed.sum() > 5000 and placed @ [1, 2, 3] == counts["masked_words"]
  # p(n) = (1/n) / (1 + 1/2 + 1/3)
  np.testing.assert_allclose(
    placed / placed.sum(), np.array([6, 3, 2]) / 11, atol=0.02
  )
  usable = counts["tokens"] - 3 * counts["records"]
  assert counts["masked_tokens"] > 0.145 * usable


def test_what_cannot_fit_does_not_wait_for_ever(documents, tokenizer):
  counts = collections.Counter()
  list(
    masking.create_records(
      documents,
      0,
      make_settings(tokenizer, masking="ngram", max_predictions_per_seq=1),
      counts,
    )
  )
  assert counts["placed_1"] == counts["masked_tokens"] > 100
  assert not counts["placed_2"]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_mixed_masks_words_whole_or_by_one_token(share):
  begins = np.array([*range(1, 3000, 3), *range(3001, 4000)])
  ends = np.append(begins[1:], 4000)
  first, last = map(
    np.array,
    masking.keep_one_token(begins, ends, share, np.random.RandomState(1)),
  )
  # In 1,000 words of three tokens, each token is equally likely.
  offsets, sizes = (first - begins)[:1000], (last - first)[:1000]
  assert set(sizes) <= {1, 3}
  assert abs((sizes == 3).mean() - share) <= 4 * np.sqrt(
    share * (1 - share) / 1000
  )
  assert not offsets[sizes == 3].any()
  counts = np.bincount(offsets[sizes == 1], minlength=3)
  assert (
    np.abs(counts - counts.sum() / 3) <= 4 * np.sqrt(2 / 9 * counts.sum())
  ).all()
  assert np.array_equal(first[1000:], begins[1000:])
  assert np.array_equal(last[1000:], ends[1000:])
