"""Facts about pretraining records, read off the records."""

import collections
import pathlib
import types

import numpy as np
import pytest

import create_pretraining_data
import tokenization
from albert import characters
from albert.data import corpus, masking
from albert.files import records

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).resolve().parents[2]
VOCAB = str(ROOT / "albert_config" / "vocab.txt")
TEXT = str(ROOT / "data" / "text_train.txt")


def make_settings(tokenizer, **changes):
  options = dict(
      max_seq_length=64, max_predictions_per_seq=20, masked_lm_prob=0.15,
      dupe_factor=3, short_seq_prob=0.1, random_seed=7, masking="word",
      ngram=3, whole_word_share=0.5, sentence_pair="sop",
      do_whole_word_mask=None, per_token_replacement=False,
      legacy_wwm_labels=False)
  options.update(changes)
  return create_pretraining_data.create_settings(
      types.SimpleNamespace(**options), tokenizer)


@pytest.fixture(scope="module")
def documents(segmenter):
  return [segmenter.document(lines)
          for lines in corpus.TextReader([TEXT]).documents()]


def create(documents, index, settings, counts=None):
  counts = collections.Counter() if counts is None else counts
  return list(masking.create_records(documents, index, settings, counts))


def original(record):
  """Returns the ids before masking, without padding, and the positions."""
  ids = record["input_ids"].copy()
  used = record["masked_lm_weights"] > 0
  positions = record["masked_lm_positions"][used]
  ids[positions] = record["masked_lm_ids"][used]
  return ids[record["input_mask"] > 0], positions


def find(ids, part):
  text, part = ids.astype("<u4").tobytes(), part.astype("<u4").tobytes()
  at = text.find(part)
  while at % 4 and at >= 0:
    at = text.find(part, at + 1)
  return at // 4 if at >= 0 else -1


def pairs_of(documents, index, settings, counts=None):
  """Returns the pairs of a document."""
  texts = [masking.prepare_text(document, settings.max_seq_length - 3)
           for document in documents]
  return list(masking.create_pairs(
      texts, index, settings, np.random.RandomState(index),
      collections.Counter() if counts is None else counts))


@pytest.mark.parametrize("line, clauses", [
    ("他说：“走吧，好不好？”然后，走了3.5公里；累……！",
     ["他说：", "[UNK]走吧，", "好不好？[UNK]", "然后，", "走了3.5公里；",
      "累[UNK][UNK]！"]),
    ("去（很远的）地方。好", ["去（很远的）地方。", "好"]),
    ("用node.js，在12:30 (today), http://a.cn。",
     ["用node.js，", "在12:30(today),", "http://a.cn。"]),
])
def test_clauses(segmenter, tokenizer, line, clauses):
  document = segmenter.document([line])
  tokens = tokenizer.convert_ids_to_tokens(document.ids)
  bounds = [0] + document.clauses.tolist() + [len(tokens)]
  assert ["".join(tokens[begin:end]).replace("##", "")
          for begin, end in zip(bounds, bounds[1:])] == clauses


def test_clauses_of_sentencepiece(real_data):
  tokenizer = tokenization.SentencePieceTokenizer(
      str(real_data / "sentencepiece" / "30k-clean.model"))
  document = corpus.Segmenter(tokenizer, use_jieba=False).document(
      ["Yes (of 3.5 km), at 12:30; no!", "End."])
  pieces = tokenizer.convert_ids_to_tokens(document.ids)
  bounds = [0] + document.clauses.tolist() + [len(pieces)]
  assert ["".join(pieces[begin:end]).replace("\u2581", " ").strip()
          for begin, end in zip(bounds, bounds[1:])] == [
              "yes (of 3.5 km),", "at 12:30;", "no!", "end."]


def make_document(*sentences):
  """Makes a Document of sentences: lists of clauses: lists of word lengths."""
  words, clauses, ends, total = [], [], [], 0
  for sentence in sentences:
    ends.append(total)
    for clause in sentence:
      clauses.append(total)
      for size in clause:
        words.append(total)
        total += size
  return corpus.Document(*(np.array(values, np.int32) for values in (
      range(1000, 1000 + total), words, clauses[1:], ends[1:])))


def test_cuts_are_as_coarse_as_the_length_allows():
  short, clauses = [[2] * 8], [[2] * 8] * 3
  long_clause, long_word = [[2] * 25], [[40]]
  document = make_document(short, clauses, long_clause, long_word)
  # 16, 48, 50 and 40 tokens: only the second sentence is longer than 32 tokens
  # and has clauses.
  assert masking.find_cuts(document, 200).tolist() == [
      0, 16, 32, 48, 64, 114, 154]
  # A clause of more than a third of 120 is cut between words.
  assert masking.find_cuts(document, 120).tolist() == [
      0, 16, 32, 48] + list(range(64, 115, 2)) + [154]
  # A word of more than half of 60 is cut anywhere.
  assert masking.find_cuts(document, 60).tolist() == [
      0, 16, 32, 48] + list(range(64, 115, 2)) + list(range(115, 155))


def test_pairs_go_from_cut_to_cut(documents, tokenizer):
  for length in (16, 64, 512):
    settings = make_settings(tokenizer, max_seq_length=length)
    for index, document in enumerate(documents):
      counts = collections.Counter()
      cuts = masking.find_cuts(document, length - 3)
      end = 0
      for first, second, label in pairs_of(documents, index, settings, counts):
        one, two = (second, first) if label else (first, second)
        assert one.document is two.document is document
        # A single piece at the end of a document takes the one before it.
        assert one.start == end or (
            end == cuts[-2] and one.start == cuts[-3] and two.end == cuts[-1])
        assert one.end == two.start
        assert one.start < one.end < two.end <= one.start + length - 3
        assert {one.start, two.start, two.end} <= set(cuts)
        end = two.end
      assert end == len(document.ids) and not counts["dropped_tokens"]


def test_a_single_sentence_makes_no_pair(tokenizer):
  counts = collections.Counter()
  document = make_document([[2] * 8])
  assert not pairs_of([document], 0, make_settings(tokenizer), counts)
  assert counts["dropped_tokens"] == 16


def is_punctuation(tokenizer):
  """Returns bool [V]."""
  return np.array([
      len(token) == 1 and characters.is_punctuation(token) for token in
      tokenizer.convert_ids_to_tokens(range(tokenizer.vocab_size))])


@pytest.fixture(scope="module")
def laws(segmenter, real_data):
  """The hard case: two long texts with long sentences."""
  path = str(real_data / "corpus" / "laws_zh.txt")
  return [segmenter.document(sum(texts, [])) for _, texts in zip(
      range(2), corpus.TextReader([path]).shards())]


@pytest.mark.parametrize("sentence_pair", ["sop", "nsp"])
@pytest.mark.parametrize("length", [64, 128])
def test_ends_do_not_tell_the_order(laws, tokenizer, length, sentence_pair):
  settings = make_settings(tokenizer, max_seq_length=length, short_seq_prob=0.0,
                           sentence_pair=sentence_pair)
  is_mark = is_punctuation(tokenizer)
  ends, begins, labels, sizes, halves = [], [], [], [], []
  for index in (0, 1) * 4:
    for *segments, label in pairs_of(laws, index, settings):
      ids = [s.document.ids[s.start:s.end] for s in segments]
      ends.append([is_mark[part[-1]] for part in ids])
      begins.append([is_mark[part[0]] for part in ids])
      sizes.append(3 + sum(map(len, ids)))
      halves.append([len(part) for part in ids])
      labels.append(label)
  labels, halves = np.array(labels), np.array(halves)
  assert len(labels) > 10000
  error = 2 / np.sqrt(len(labels))
  for marks in (np.array(ends), np.array(begins)):
    rules = [marks[:, 0], marks[:, 1]]
    if sentence_pair == "sop":
      # With two documents in a pair, that they differ in style tells the label.
      rules += [marks[:, 0] & ~marks[:, 1], marks[:, 1] & ~marks[:, 0]]
    for rule in rules:
      assert abs((rule == labels).mean() - 0.5) < 0.012 + error
  longer = halves[:, 0] > halves[:, 1]
  assert abs((longer == labels).mean() - 0.5) < 0.02 + error
  if sentence_pair == "sop":
    assert np.mean(sizes) > {64: 0.88, 128: 0.92}[length] * length


@pytest.mark.parametrize("masking", ["token", "word", "ngram", "mixed"])
def test_records_hold_the_text(documents, tokenizer, masking):
  check_records(documents, tokenizer, make_settings(tokenizer, masking=masking),
                tolerance=0.015)


def test_records_hold_words_of_the_vocabulary(tmp_path):
  """Also such as jieba cuts apart, or that join parts of two of its words."""
  vocab = tmp_path / "vocab.txt"
  vocab.write_bytes(pathlib.Path(VOCAB).read_bytes() + "".join(
      word + "\n" for word in "充电 他一 的时 ，他 一个".split()).encode())
  tokenizer = tokenization.WordPieceTokenizer(str(vocab))
  segmenter = corpus.Segmenter(tokenizer, use_jieba=True)
  documents = [segmenter.document(lines)
               for lines in corpus.TextReader([TEXT]).documents()]
  assert set(range(21128, 21133)) < set(np.concatenate(
      [document.ids for document in documents]))
  check_records(documents, tokenizer, make_settings(tokenizer),
                tolerance=0.015)


def test_records_hold_real_text(segmenter, tokenizer, real_data):
  reader = corpus.TextReader([str(real_data / "corpus" / "lctt_zh.txt")])
  texts = [lines for _, lines in zip(range(400), reader.documents())]
  documents = [segmenter.document(lines) for lines in texts]
  check_records(documents, tokenizer, make_settings(
      tokenizer, max_seq_length=512, max_predictions_per_seq=51,
      masked_lm_prob=0.1), tolerance=0.005)


def check_records(documents, tokenizer, settings, tolerance):
  """Reads back what docs/pretraining.md says about records."""
  whole_words = settings.masking in ("word", "ngram")
  masked = tokens = 0
  kinds = collections.Counter()
  swapped = []
  for index, document in enumerate(documents):
    for record in create([document], index, settings):
      ids, positions = original(record)
      segments = record["segment_ids"][:len(ids)]
      second = int(np.argmax(segments))
      assert ids[0] == tokenizer.cls_id
      assert ids[second - 1] == ids[-1] == tokenizer.sep_id
      assert not segments[:second].any() and segments[second:].all()
      halves = [ids[1:second - 1], ids[second:-1]]
      label = int(record["next_sentence_labels"][0])
      swapped.append(label)
      if label:
        halves.reverse()
      at = find(document.ids, np.concatenate(halves))
      assert at >= 0

      # Back to positions in the document: whole words only.
      offset = np.zeros(len(ids), np.int64)
      first_length = second - 2
      offset[1:second - 1] = np.arange(first_length)
      offset[second:-1] = np.arange(len(ids) - second - 1)
      size = len(halves[0])
      if label:
        offset[1:second - 1] += size
      else:
        offset[second:-1] += size
      chosen = set(offset[positions] + at)
      assert len(chosen) == len(positions)
      assert list(positions) == sorted(positions)
      assert not set(positions) & {0, second - 1, len(ids) - 1}
      if whole_words:
        span = (at, at + size, at + size + len(halves[1]))
        starts = np.zeros(len(document.ids), np.bool_)
        starts[document.words] = True
        starts[[span[0], span[1]]] = True
        for position in chosen:
          if not starts[position]:
            assert position - 1 in chosen
          if position + 1 < span[2] and position + 1 != span[1] and (
              not starts[position + 1]):
            assert position + 1 in chosen
      masked += len(positions)
      tokens += len(ids) - 3
      now = record["input_ids"][positions]
      kinds["mask"] += (now == tokenizer.mask_id).sum()
      kinds["same"] += (now == ids[positions]).sum()
      unmasked = np.ones(len(ids), bool)
      unmasked[positions] = False
      assert (record["input_ids"][:len(ids)] == ids)[unmasked].all()
      for name in ("input_ids", "input_mask", "segment_ids"):
        assert not record[name][len(ids):].any()
  assert abs(masked / tokens - settings.masked_lm_prob) < tolerance
  # Five standard deviations; whole words are drawn as one.
  error = 5 * np.sqrt(0.8 * 0.2 / masked * (2 if whole_words else 1))
  assert abs(kinds["mask"] / masked - 0.8) < error
  assert abs(kinds["same"] / masked - 0.1) < error
  assert abs(np.mean(swapped) - 0.5) < 2.5 / np.sqrt(len(swapped))


def test_random_tokens_are_never_special(tokenizer):
  replacements = make_settings(tokenizer).replacements
  tokens = tokenizer.convert_ids_to_tokens(replacements)
  assert len(tokens) == 21128 - 99 - 5 - 2
  assert not [t for t in tokens if t.startswith("[unused")]
  assert not set(tokens) & set(tokenization.SPECIAL_TOKENS)


def test_records_depend_on_documents_index_and_seed_alone(documents, tokenizer):
  settings = make_settings(tokenizer)
  specs = records.pretraining_specs(64, 20)

  def make(index, **changes):
    return [records.serialize(record, specs) for record in create(
        documents[:5], index, settings._replace(**changes))]

  np.random.seed(1)
  first = make(3)
  np.random.seed(2)
  assert make(3) == first
  assert make(4) != first
  assert make(3, random_seed=8) != first


def test_legacy_labels(segmenter, tokenizer):
  document = segmenter.document(["他胸有成竹，说明天出发。"] * 8)
  settings = make_settings(tokenizer, legacy_wwm_labels=True,
                           masked_lm_prob=0.9, max_predictions_per_seq=60,
                           short_seq_prob=0.0)
  record = create([document], 0, settings)[0]
  tokens = tokenizer.convert_ids_to_tokens(
      record["masked_lm_ids"][record["masked_lm_weights"] > 0])
  text = "".join(tokens)
  assert "胸##有##成##竹" in text and "明##天" in text
  assert "##。" not in text and "##胸" not in text


def test_spelled_words():
  tokenizer = tokenization.WordPieceTokenizer(VOCAB)
  segmenter = corpus.Segmenter(tokenizer, use_jieba=False)
  ids, begins, _ = segmenter.segment("unbelievable story")
  tokens = tokenizer.convert_ids_to_tokens(ids)
  assert len(tokens) > 2
  assert begins == [i for i, token in enumerate(tokens)
                    if not token.startswith("##")]
  assert len(begins) == 2


def test_ngrams_follow_the_papers_distribution(documents, tokenizer):
  settings = make_settings(tokenizer, masking="ngram", dupe_factor=10)
  counts = collections.Counter()
  for _ in create(documents, 0, settings, counts):
    pass
  drawn = np.array([counts["drawn_%d" % n] for n in (1, 2, 3)])
  placed = np.array([counts["placed_%d" % n] for n in (1, 2, 3)])
  assert drawn.sum() == placed.sum() > 5000
  # p(n) = (1/n) / (1 + 1/2 + 1/3)
  expected = np.array([6, 3, 2]) / 11
  error = 4 * np.sqrt(expected * (1 - expected) / drawn.sum())
  assert (np.abs(drawn / drawn.sum() - expected) < error).all()
  # Clipped runs become shorter ones.
  assert placed[0] > drawn[0] and placed[2] < drawn[2]
  assert placed @ [1, 2, 3] == counts["masked_words"]
  assert 0 < counts["clipped"] <= drawn[1] + drawn[2]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_mixed_masks_words_whole_or_by_one_token(tokenizer, share):
  settings = make_settings(tokenizer, masking="mixed", whole_word_share=share)
  begins = list(range(1, 3000, 3)) + list(range(3001, 4000))
  ends = list(range(4, 3003, 3)) + list(range(3002, 4001))
  first, last = map(np.array, masking.keep_one_token(
      begins, ends, settings.whole_word_share, np.random.RandomState(1)))
  # A thousand words of three tokens: any of the three, each as often.
  offsets, sizes = first[:1000] - begins[:1000], (last - first)[:1000]
  assert set(sizes) <= {1, 3}
  assert abs((sizes == 3).mean() - share) <= 4 * np.sqrt(
      share * (1 - share) / 1000)
  assert not offsets[sizes == 3].any()
  for offset in range(3):
    found = (offsets[sizes == 1] == offset).mean() if share < 1 else 1 / 3
    assert abs(found - 1 / 3) < 4 * np.sqrt(2 / 9 / max(1, (sizes == 1).sum()))
  assert list(first[1000:]) == begins[1000:]
  assert list(last[1000:]) == ends[1000:]


def test_nsp_takes_the_second_half_from_another_document(documents, tokenizer):
  settings = make_settings(tokenizer, sentence_pair="nsp")
  labels = []
  for index, document in enumerate(documents):
    end = 0
    cuts = masking.find_cuts(document, settings.max_seq_length - 3)
    for first, second, label in pairs_of(documents, index, settings):
      assert first.document is document
      assert first.start == end or first.start == cuts[-3]
      assert (second.document is document) == (not label)
      assert second.start < second.end
      end = first.end if label else second.end
      labels.append(label)
  assert abs(np.mean(labels) - 0.5) < 2.5 / np.sqrt(len(labels))
