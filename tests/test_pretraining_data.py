"""Facts about pretraining records, read off the records."""

import collections
import pathlib

import numpy as np
import pytest

import create_pretraining_data as data
import records
import tokenization

ROOT = pathlib.Path(__file__).resolve().parent.parent
VOCAB = str(ROOT / "albert_config" / "vocab.txt")
TEXT = str(ROOT / "data" / "text_train.txt")



class FlagValues(dict):
  """Stands in for absl's FLAGS: attributes, and `in`."""

  __getattr__ = dict.__getitem__


def make_settings(tokenizer, **changes):
  options = FlagValues(
      max_seq_length=64, max_predictions_per_seq=20, masked_lm_prob=0.15,
      dupe_factor=3, short_seq_prob=0.1, random_seed=7,
      do_whole_word_mask=True, per_token_replacement=False,
      legacy_wwm_labels=False)
  options.update(changes)
  return data.create_settings(options, tokenizer)


@pytest.fixture(scope="module")
def tokenizer():
  return tokenization.WordPieceTokenizer(VOCAB)


@pytest.fixture(scope="module")
def segmenter(tokenizer):
  return data.Segmenter(tokenizer, use_jieba=True)


@pytest.fixture(scope="module")
def documents(segmenter):
  return [segmenter.document(lines) for lines in data.read_documents([TEXT])]


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


def test_documents_end_at_blank_lines_and_file_ends(tmp_path):
  (tmp_path / "a.txt").write_bytes("一。\r\n二。\n \n\n三。".encode())
  (tmp_path / "b.txt").write_bytes("\ufeff四。\n".encode())
  paths = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
  assert list(data.read_documents(paths)) == [
      ["一。", "二。"], ["三。"], ["四。"]]


@pytest.mark.parametrize("line, words", [
    ("我们喜欢红烧肉。", ["我们", "喜欢", "红烧肉", "。"]),
    ("他胸有成竹，说", ["他", "胸有成竹", "，", "说"]),
    ("用Python3写", ["用", "python ##3", "写"]),
    ("去café吃饭", ["去", "cafe", "吃饭"]),
    ("中\u200b国很大", ["中国", "很大"]),
    ("a b", ["a", "b"]),
])
def test_words_are_jiebas(segmenter, tokenizer, line, words):
  ids, starts = segmenter.segment(line)
  tokens = tokenizer.convert_ids_to_tokens(ids)
  assert tokens == tokenizer.tokenize(line)
  found, sizes = [], []
  for token, start in zip(tokens, starts):
    if start:
      found.append("")
      sizes.append(0)
    found[-1] += token
    sizes[-1] += 1
  assert [w.replace("##", "") for w in found] == [
      w.replace(" ##", "") for w in words]


def test_ids_are_those_of_the_whole_line(segmenter, tokenizer, real_data):
  path = real_data / "corpus" / "lctt_zh.txt"
  with open(path, encoding="utf-8") as reader:
    lines = [line for _, line in zip(range(20000), reader)][::5]
  for line in lines:
    ids, starts = segmenter.segment(line)
    assert ids == tokenizer.convert_tokens_to_ids(
        tokenizer.tokenize_plain(line)), line
    assert len(ids) == len(starts)


def test_spans_lose_no_token(documents, tokenizer):
  for length in (16, 64):
    settings = make_settings(tokenizer, max_seq_length=length)
    rng = np.random.RandomState(0)
    for document in documents:
      spans = list(data.create_spans(document, settings, rng))
      assert spans[0][0] == 0
      for (_, _, end), (start, _, _) in zip(spans, spans[1:]):
        assert end == start and document.starts[start]
      assert len(document.ids) - spans[-1][2] <= 1
      for start, middle, end in spans:
        assert start < middle < end <= start + length - 3
        sentences = document.sentences
        inside = sentences[(sentences > start) & (sentences < end)]
        assert not len(inside) or middle in inside
        assert document.starts[middle]


def test_a_word_longer_than_a_record_is_cut_not_lost(tokenizer):
  ids = np.arange(1000, 1050, dtype=np.int32)
  document = data.Document(ids, np.arange(50) == 0, np.array([], np.int32))
  settings = make_settings(tokenizer, max_seq_length=13, short_seq_prob=0.0)
  spans = list(data.create_spans(document, settings, np.random.RandomState(0)))
  assert [(start, end) for start, _, end in spans] == [
      (0, 10), (10, 20), (20, 30), (30, 40), (40, 50)]


@pytest.mark.parametrize("whole_words", [True, False])
def test_records_hold_the_text(documents, tokenizer, whole_words):
  settings = make_settings(tokenizer, do_whole_word_mask=whole_words)
  masked = tokens = 0
  kinds = collections.Counter()
  swapped = []
  for index, document in enumerate(documents):
    for record in data.create_records([document], index, settings):
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
        starts = document.starts.copy()
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
  assert abs(masked / tokens - 0.15) < 0.015
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
    return [records.serialize(record, specs) for record in data.create_records(
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
  record = data.create_records([document], 0, settings)[0]
  tokens = tokenizer.convert_ids_to_tokens(
      record["masked_lm_ids"][record["masked_lm_weights"] > 0])
  text = "".join(tokens)
  assert "胸##有##成##竹" in text and "明##天" in text
  assert "##。" not in text and "##胸" not in text


def test_spelled_words():
  tokenizer = tokenization.WordPieceTokenizer(VOCAB)
  segmenter = data.Segmenter(tokenizer, use_jieba=False)
  ids, starts = segmenter.segment("unbelievable story")
  tokens = tokenizer.convert_ids_to_tokens(ids)
  assert starts == [not token.startswith("##") for token in tokens]
  assert sum(starts) == 2
