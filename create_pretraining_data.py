"""Turns text into tfrecords for masked LM and sentence order.

Text has one sentence per line and a blank line between documents.
"""

import collections
import os
import re

import jieba
import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags, logging

import errors
import records
import tokenization
from errors import InputError

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(tokenization)

flags.DEFINE_string("input_file", None,
                    "Text files: globs and comma-separated lists.")
flags.DEFINE_string("output_file", None,
                    "Record files to write, separated by commas.")
flags.DEFINE_bool("non_chinese", False,
                  "Take whole words from spaces and pieces, not from jieba.")
flags.DEFINE_bool("do_whole_word_mask", True,
                  "Whether to mask whole words rather than single tokens.")
flags.DEFINE_integer("max_seq_length", 512, "Tokens per record.")
flags.DEFINE_integer("max_predictions_per_seq", 51,
                     "Most masked tokens per record.")
flags.DEFINE_float("masked_lm_prob", 0.10, "Share of tokens to mask.")
flags.DEFINE_integer("dupe_factor", 10,
                     "Passes over the text, each with other masks.")
flags.DEFINE_float("short_seq_prob", 0.1,
                   "Share of records made shorter than they could be.")
flags.DEFINE_integer("random_seed", 12345, "Seed of everything random.")
flags.DEFINE_bool("per_token_replacement", False,
                  "Draw [MASK] / random / unchanged for each token of a masked "
                  "word rather than once for the word.")
flags.DEFINE_bool("legacy_wwm_labels", False,
                  "Make the label of a Chinese character inside a word the id "
                  "of its '##' form, as the first albert_zh models were "
                  "trained; only to go on from those.")

# A document is its sentences' tokens one after the other: `ids` int32 [T],
# `starts` bool [T], whether a word begins there, and `sentences` int32 [...],
# the positions in (0, T) where a sentence begins.
Document = collections.namedtuple("Document", ["ids", "starts", "sentences"])

# How records are made: the flags of the same names, and the vocabulary as
# arrays: `replacements` int32 [...], ids that may stand in for a masked token,
# `labels` int32 [V], the label of a token inside a word (mostly its own id).
Settings = collections.namedtuple("Settings", [
    "max_seq_length", "max_predictions_per_seq", "masked_lm_prob",
    "dupe_factor", "short_seq_prob", "random_seed", "do_whole_word_mask",
    "per_token_replacement", "cls_id", "sep_id", "mask_id", "replacements",
    "labels"])

_SHARD_CHARACTERS = 2000000  # how much text is shuffled together


class Segmenter:
  """Cuts lines into token ids and says where words begin.

  The ids are those of the tokenizer on the whole line. Words are jieba's own,
  of whatever length; where jieba cuts inside one basic token of the tokenizer
  (as in accented words), the parts are one word.

  Args:
    tokenizer: of `tokenization.py`.
    use_jieba: bool; otherwise spelling tells where words begin.
  """

  _CACHE_SIZE = 200000

  def __init__(self, tokenizer, use_jieba):
    self._tokenizer = tokenizer
    self._segment = self._by_jieba if use_jieba else self._by_spelling
    self._cache = {}

  def segment(self, line):
    """Returns (ids, starts) of a line: lists of int and of bool."""
    return self._segment(line)

  def document(self, lines):
    """Returns the Document of a list of sentences."""
    ids, starts, sentences = [], [], []
    for line in lines:
      line_ids, line_starts = self._segment(line)
      if line_ids:
        sentences.append(len(ids))
        ids += line_ids
        starts += line_starts
    return Document(np.array(ids, np.int32), np.array(starts, np.bool_),
                    np.array(sentences[1:], np.int32))

  def _by_spelling(self, line):
    tokens = self._tokenizer.tokenize_plain(line)
    return (self._tokenizer.convert_tokens_to_ids(tokens),
            [self._tokenizer.is_word_start(token) for token in tokens])

  def _by_jieba(self, line):
    ids, starts = [], []
    word, joins = "", False
    for part in jieba.cut(self._tokenizer.clean(line)):
      if joins and tokenization.is_joined(part[0]):
        word += part
      else:
        self._append(word, ids, starts)
        word = part
      joins = tokenization.is_joined(part[-1])
    self._append(word, ids, starts)
    return ids, starts

  def _append(self, word, ids, starts):
    found = self._cache.get(word)
    if found is None:
      if len(self._cache) >= self._CACHE_SIZE:
        self._cache.clear()
      word_ids = self._tokenizer.convert_tokens_to_ids(
          self._tokenizer.tokenize_plain(word))
      found = word_ids, [True] + [False] * (len(word_ids) - 1)
      self._cache[word] = found
    if found[0]:
      ids += found[0]
      starts += found[1]


def read_documents(paths):
  """Yields documents, lists of str without blank lines.

  A blank line ends a document, and so does the end of a file.
  """
  for path in paths:
    lines = []
    with open(path, encoding="utf-8-sig", errors="replace") as reader:
      for line in reader:
        line = line.strip()
        if line:
          lines.append(line)
        elif lines:
          yield lines
          lines = []
    if lines:
      yield lines


def read_shards(paths):
  """Yields lists of documents of together about `_SHARD_CHARACTERS`."""
  shard, size = [], 0
  for lines in read_documents(paths):
    shard.append(lines)
    size += sum(map(len, lines))
    if size >= _SHARD_CHARACTERS:
      yield shard
      shard, size = [], 0
  if shard:
    yield shard


def create_records(documents, shard_index, settings):
  """Makes the records of one shard, shuffled.

  They depend on the arguments alone.

  Args:
    documents: list of Document.
    shard_index: int.
    settings: Settings.

  Returns:
    list of dicts, feature name -> array (see `records.pretraining_specs`).
  """
  rng = np.random.RandomState([settings.random_seed, shard_index])
  instances = [create_record(document, span, settings, rng)
               for _ in range(settings.dupe_factor)
               for document in documents
               for span in create_spans(document, settings, rng)]
  rng.shuffle(instances)
  return instances


def create_spans(document, settings, rng):
  """Cuts a document into pairs of consecutive segments, losing no token.

  A span is as long as a record allows, or, with `short_seq_prob`, of a random
  shorter length; it has whole words, two at least. It is parted at a random
  sentence boundary inside, or at a random word boundary where it has none.

  Args:
    document: Document.
    settings: Settings.
    rng: np.random.RandomState.

  Yields:
    (start, middle, end), positions in the document. A single word at the end
    of a document makes no pair and is left out. Only a word that fills a whole
    record is cut.
  """
  longest = settings.max_seq_length - 3  # [CLS], [SEP], [SEP]
  total = len(document.ids)
  word_ends = np.append(np.flatnonzero(document.starts)[1:], total)
  start = 0
  while start < total:
    length = longest
    if rng.random_sample() < settings.short_seq_prob:
      length = rng.randint(2, longest + 1)
    first, stop = np.searchsorted(word_ends, [start, start + length], "right")
    end = min(word_ends[min(max(stop - 1, first + 1), len(word_ends) - 1)],
              start + longest)
    sentences = _between(document.sentences, start, end)
    middles = sentences if len(sentences) else _between(word_ends, start, end)
    if len(middles):
      yield start, middles[rng.randint(len(middles))], end
    elif end == start + longest:
      yield start, start + longest // 2, end
    start = end


def _between(positions, start, end):
  """Returns those of the sorted `positions` inside (start, end)."""
  first, stop = np.searchsorted(positions, [start + 1, end])
  return positions[first:stop]


def create_record(document, span, settings, rng):
  """Makes one record: swaps the halves or not, masks, pads.

  Args:
    document: Document.
    span: (start, middle, end), positions in it.
    settings: Settings.
    rng: np.random.RandomState.

  Returns:
    dict, feature name -> array.
  """
  start, middle, end = span
  halves = [slice(start, middle), slice(middle, end)]
  swapped = rng.randint(2)
  first, second = reversed(halves) if swapped else halves
  cls, sep = [settings.cls_id], [settings.sep_id]
  ids = np.concatenate(
      [cls, document.ids[first], sep, document.ids[second], sep])
  starts = np.concatenate(
      [[False], document.starts[first], [False], document.starts[second],
       [False]])
  second_start = 2 + first.stop - first.start
  starts[[1, second_start]] = True  # a cut word is a word of its own
  inside = np.ones(len(ids), np.bool_)  # inside a word: no special token
  inside[[0, second_start - 1, -1]] = False
  masked, positions, labels = mask_words(ids, starts, inside, settings, rng)

  def pad(values, size, dtype=np.int32):
    padded = np.zeros(size, dtype)
    padded[:len(values)] = values
    return padded

  length = settings.max_seq_length
  predictions = settings.max_predictions_per_seq
  segments = np.zeros(len(ids), np.int32)
  segments[second_start:] = 1
  return {
      "input_ids": pad(masked, length),
      "input_mask": pad(np.ones(len(ids)), length),
      "segment_ids": pad(segments, length),
      "masked_lm_positions": pad(positions, predictions),
      "masked_lm_ids": pad(labels, predictions),
      "masked_lm_weights": pad(np.ones(len(labels)), predictions, np.float32),
      "next_sentence_labels": np.array([swapped]),
  }


def mask_words(ids, starts, inside, settings, rng):
  """Masks random words: 80% [MASK], 10% unchanged, 10% random tokens.

  Words are taken in random order until `masked_lm_prob` of the tokens are
  covered; one that would exceed it is passed over.

  Args:
    ids: int [T].
    starts: bool [T], where a word begins.
    inside: bool [T], False for special tokens, which are never masked.
    settings: Settings.
    rng: np.random.RandomState.

  Returns:
    (masked ids int [T], positions int [M] in order, labels int [M]).
  """
  if not settings.do_whole_word_mask:
    starts = inside
  # Word w covers bounds[w] to the next word or special token.
  begins = np.flatnonzero(starts & inside)
  stops = np.flatnonzero(starts | ~inside)
  ends = stops[np.searchsorted(stops, begins, side="right")]
  left = min(settings.max_predictions_per_seq,
             max(1, int(round(inside.sum() * settings.masked_lm_prob))))
  chosen = []
  for word in rng.permutation(len(begins)):
    size = ends[word] - begins[word]
    if size <= left:
      chosen.append(word)
      left -= size
      if not left:
        break
  chosen.sort()
  sizes = (ends - begins)[chosen]
  positions = np.concatenate(
      [np.arange(begins[word], ends[word]) for word in chosen] or [[]]
  ).astype(np.int64)
  labels = ids[positions]
  labels = np.where(starts[positions], labels, settings.labels[labels])

  if settings.per_token_replacement:
    draws = rng.random_sample(len(positions))
  else:
    draws = np.repeat(rng.random_sample(len(chosen)), sizes)
  random_ids = settings.replacements[
      rng.randint(len(settings.replacements), size=len(positions))]
  masked = ids.copy()
  masked[positions] = np.where(
      draws < 0.8, settings.mask_id,
      np.where(draws < 0.9, ids[positions], random_ids))
  return masked, positions, labels


def create_settings(options, tokenizer):
  """Returns the Settings of the flags and the tokenizer."""
  longest = options.max_seq_length - 3
  if longest < 2:
    raise InputError("--max_seq_length must be at least 5")
  if not 0 < options.masked_lm_prob < 1:
    raise InputError("--masked_lm_prob must lie between 0 and 1")
  if options.max_predictions_per_seq < 1 or options.dupe_factor < 1:
    raise InputError("--max_predictions_per_seq and --dupe_factor must be at "
                     "least 1")
  tokens = tokenizer.convert_ids_to_tokens(range(tokenizer.vocab_size))
  ids = {token: i for i, token in enumerate(tokens)}
  special = re.compile(r"\[unused\d+\]$|<.*>$|\[(PAD|UNK|CLS|SEP|MASK)\]$")
  labels = np.arange(len(tokens), dtype=np.int32)
  if options.legacy_wwm_labels:
    for token, i in ids.items():
      if len(token) == 1 and tokenization.is_chinese(token):
        labels[i] = ids.get("##" + token, i)
  values = {name: getattr(options, name) for name in Settings._fields
            if name in options}
  return Settings(
      cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id,
      mask_id=tokenizer.mask_id, labels=labels,
      replacements=np.array([i for i, token in enumerate(tokens)
                             if not special.match(token)], np.int32),
      **values)


def main():
  errors.require_flags("input_file", "output_file")
  paths = records.expand_patterns(FLAGS.input_file, "input_file")
  outputs = [path for path in FLAGS.output_file.split(",") if path]
  tokenizer = tokenization.create_tokenizer(
      FLAGS.vocab_file, FLAGS.spm_model_file, FLAGS.do_lower_case)
  segmenter = Segmenter(
      tokenizer, use_jieba=not (FLAGS.non_chinese or FLAGS.spm_model_file))
  settings = create_settings(FLAGS, tokenizer)
  specs = records.pretraining_specs(settings.max_seq_length,
                                    settings.max_predictions_per_seq)
  jieba.setLogLevel("WARNING")

  for path in outputs:
    tf.io.gfile.makedirs(os.path.dirname(path) or ".")
  writers = [tf.io.TFRecordWriter(path + ".tmp") for path in outputs]
  counts = collections.Counter()
  for shard_index, texts in enumerate(read_shards(paths)):
    documents = [segmenter.document(lines) for lines in texts]
    for record in create_records(documents, shard_index, settings):
      writer = writers[counts["records"] % len(writers)]
      writer.write(records.serialize(record, specs))
      counts["records"] += 1
      counts["tokens"] += int(record["input_mask"].sum())
      counts["masked"] += int(record["masked_lm_weights"].sum())
    counts["documents"] += len(documents)
    logging.info("%d documents, %d records", counts["documents"],
                 counts["records"])
  for writer in writers:
    writer.close()
  if not counts["records"]:
    for path in outputs:
      tf.io.gfile.remove(path + ".tmp")
    raise InputError("--input_file %s: no text to make a record of"
                     % FLAGS.input_file)
  for path in outputs:
    tf.io.gfile.rename(path + ".tmp", path, overwrite=True)
  logging.info(
      "%d records of %d documents in %s; mean length %.1f of %d, %.1f%% masked",
      counts["records"], counts["documents"], ", ".join(outputs),
      counts["tokens"] / counts["records"], settings.max_seq_length,
      100.0 * counts["masked"] / counts["tokens"])


if __name__ == "__main__":
  errors.run(main)
