"""Turns text into tfrecords for masked LM and a sentence task.

Text has one sentence per line and a blank line between documents. It is read
once, in shards of whole documents. Each shard is segmented and tokenized once
and makes all its passes of records; shards are made in parallel. The records
depend on the text, the flags and the seed alone.
"""

import collections
import concurrent.futures
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import time

import jieba
import numpy as np
from absl import flags, logging

import corpus
import errors
import records
import tokenization
from errors import InputError

FLAGS = flags.FLAGS

# Part of a document, tokens `start` to `end`.
Segment = collections.namedtuple("Segment", ["document", "start", "end"])

# How records are made: the flags of the same names, and the vocabulary as
# arrays: `replacements` int32 [...], ids that may stand in for a masked token;
# `inner_labels` int32 [V], the label of a token inside a word, mostly its id.
Settings = collections.namedtuple("Settings", [
    "max_seq_length", "max_predictions_per_seq", "masked_lm_prob",
    "dupe_factor", "short_seq_prob", "random_seed", "masking", "ngram",
    "sentence_pair", "per_token_replacement", "legacy_wwm_labels", "cls_id",
    "sep_id", "mask_id", "replacements", "inner_labels"])


def define_flags():
  """Defines the flags of this script, for main and for the Beam pipeline."""
  flags.adopt_module_key_flags(tokenization)
  flags.DEFINE_string("input_file", None,
                      "Text files, .gz too: globs, separated by commas.")
  flags.DEFINE_string("output_file", None,
                      "Record files to write, separated by commas.")
  flags.DEFINE_string("output_dir", None,
                      "Folder for --num_output_shards record files, in place "
                      "of --output_file.")
  flags.DEFINE_integer("num_output_shards", 10,
                       "Record files to write into --output_dir.")
  flags.DEFINE_integer("num_workers", None,
                       "Processes to use; all cores by default. The records "
                       "are the same whatever their number.")
  flags.DEFINE_integer("shard_characters", 500000,
                       "Text that is handled, and shuffled, together.")
  flags.DEFINE_bool("non_chinese", False,
                    "Take whole words from spaces and pieces, not from jieba.")
  flags.DEFINE_string("user_dict", None,
                      "Words of your own for jieba, a file in jieba's format.")
  flags.DEFINE_enum("masking", "word", ["token", "word", "ngram"],
                    "Mask single tokens, whole words, or runs of whole words.")
  flags.DEFINE_bool("do_whole_word_mask", None,
                    "Alias: true is --masking=word, false --masking=token.")
  flags.DEFINE_integer("ngram", 3, "Most words in a run for --masking=ngram.")
  flags.DEFINE_enum("sentence_pair", "sop", ["sop", "nsp"],
                    "Label 1 is: the halves are swapped (sop), or the second "
                    "one comes from another document (nsp).")
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
                    "Draw [MASK] / random / unchanged for each token of a "
                    "masked word rather than once for the word.")
  flags.DEFINE_bool("legacy_wwm_labels", False,
                    "Make the label of a Chinese character inside a word the "
                    "id of its '##' form, as the first albert_zh models were "
                    "trained; only to go on from those.")


def create_records(documents, shard_index, settings, counts):
  """Makes the records of one shard, shuffled.

  They depend on the first three arguments alone.

  Args:
    documents: list of Document.
    shard_index: int.
    settings: Settings.
    counts: collections.Counter, to count into.

  Yields:
    dicts, feature name -> array (see `records.pretraining_specs`).
  """
  rng = np.random.RandomState([settings.random_seed, shard_index])
  documents = [document for document in documents if len(document.ids)]
  pairs = []
  for _ in range(settings.dupe_factor):
    for index in range(len(documents)):
      pairs.extend(create_pairs(documents, index, settings, rng, counts))
  for i in rng.permutation(len(pairs)):
    first, second, label = pairs[i]
    yield create_record(first, second, label, settings, rng, counts)


def create_pairs(documents, index, settings, rng, counts):
  """Cuts a document into pairs of segments, losing no token.

  A pair is as long as a record allows, or, with `short_seq_prob`, of a random
  shorter length; it has whole words, two at least. It is parted at a random
  sentence boundary inside, or, where it has none, at a random word boundary,
  near the middle if it can. The next pair goes on where it ends. Only a word
  that fills a whole record is cut.

  Args:
    documents: list of Document.
    index: int, which of them to cut.
    settings: Settings. With "sop" half of the pairs are swapped, with "nsp"
      half get another document's text for a second segment; label 1 says so.
    rng: np.random.RandomState.
    counts: collections.Counter; "dropped_tokens" counts the single word that
      may be left at the end of a document and makes no pair.

  Yields:
    (Segment, Segment, label).
  """
  document = documents[index]
  longest = settings.max_seq_length - 3  # [CLS], [SEP], [SEP]
  total = len(document.ids)
  word_ends = np.append(document.words[1:], total)
  start = 0
  while start < total:
    length = longest
    if rng.random_sample() < settings.short_seq_prob:
      length = rng.randint(2, longest + 1)
    first, stop = word_ends.searchsorted([start, start + length], "right")
    end = min(word_ends[min(max(stop - 1, first + 1), len(word_ends) - 1)],
              start + longest)
    quarter = (end - start) // 4
    middles = _inside(document.sentences, start, end)
    if not len(middles):
      middles = _inside(word_ends, start + quarter, end - quarter)
    if not len(middles):
      middles = _inside(word_ends, start, end)
    if len(middles):
      middle = middles[rng.randint(len(middles))]
    elif end == start + longest:
      middle = start + longest // 2
    else:
      counts["dropped_tokens"] += int(end - start)
      return
    label = rng.randint(2)
    one = Segment(document, start, middle)
    two = Segment(document, middle, end)
    if settings.sentence_pair == "sop":
      yield (two, one, 1) if label else (one, two, 0)
    elif label and len(documents) > 1:
      other = rng.randint(len(documents) - 1)
      other = documents[other + (other >= index)]
      yield one, _random_segment(other, end - middle, rng), 1
      end = middle  # the second half is still to come
    else:
      yield one, two, 0
    start = end


def _inside(positions, start, end):
  """Returns those of the sorted `positions` inside (start, end)."""
  return positions[positions.searchsorted(start + 1):
                   positions.searchsorted(end)]


def _random_segment(document, length, rng):
  """Returns whole words from a random sentence on, `length` tokens at most."""
  sentence = rng.randint(len(document.sentences) + 1)
  start = document.sentences[sentence - 1] if sentence else 0
  end = min(start + length, len(document.ids))
  if end < len(document.ids):
    words = _inside(document.words, start, end + 1)
    end = words[-1] if len(words) else end
  return Segment(document, start, end)


def create_record(first, second, label, settings, rng, counts):
  """Makes one record: joins two segments, masks, pads.

  Args:
    first: Segment.
    second: Segment.
    label: int, of the sentence task.
    settings: Settings.
    rng: np.random.RandomState.
    counts: collections.Counter, to count into.

  Returns:
    dict, feature name -> array.
  """
  ids = np.zeros(settings.max_seq_length, np.int32)
  segments = np.zeros(settings.max_seq_length, np.int32)
  mask = np.zeros(settings.max_seq_length, np.int32)
  ids[0] = settings.cls_id
  end, begins, ends = 1, [], []  # of the words
  for segment in (first, second):
    start, end = end, end + int(segment.end - segment.start)
    document = segment.document
    ids[start:end] = document.ids[segment.start:segment.end]
    ids[end] = settings.sep_id
    # A cut word is a word of its own.
    inner = _inside(document.words, segment.start, segment.end)
    begins.append(start)
    begins += (inner + (start - segment.start)).tolist()
    ends += begins[len(ends) + 1:] + [end]
    end += 1
  segments[start:end] = 1
  mask[:end] = 1

  limit = min(settings.max_predictions_per_seq,
              max(1, int(round((end - 3) * settings.masked_lm_prob))))
  if settings.masking == "token":
    begins = [i for begin, stop in zip(begins, ends)
              for i in range(begin, stop)]
    ends = [begin + 1 for begin in begins]
  chosen = choose_words(begins, ends, limit, settings, rng, counts)
  masked, positions, labels = mask_words(
      ids, [(begins[word], ends[word]) for word in chosen], settings, rng)

  counts["records"] += 1
  counts["tokens"] += end
  counts["words"] += len(begins)
  counts["label_1"] += int(label)
  counts["masked_tokens"] += len(positions)
  counts["masked_words"] += len(chosen)
  predictions = np.zeros([2, settings.max_predictions_per_seq], np.int32)
  predictions[:, :len(positions)] = positions, labels
  weights = np.zeros(settings.max_predictions_per_seq, np.float32)
  weights[:len(positions)] = 1
  return {
      "input_ids": masked,
      "input_mask": mask,
      "segment_ids": segments,
      "masked_lm_positions": predictions[0],
      "masked_lm_ids": predictions[1],
      "masked_lm_weights": weights,
      "next_sentence_labels": np.array([label]),
  }


def choose_words(begins, ends, limit, settings, rng, counts):
  """Draws the words to mask.

  Words come in random order, each with the words after it that an n-gram takes:
  n is drawn with p(n) = (1/n) / sum(1/k) (ALBERT, section 4.1), and a run that
  meets a segment's end, a word chosen before, or the limit is clipped there. A
  word that would exceed the limit is passed over.

  Args:
    begins, ends: lists of int, the tokens of each word.
    limit: int, most tokens to choose.
    settings: Settings.
    rng: np.random.RandomState.
    counts: collections.Counter; n-grams count as "drawn_N" and "placed_N",
      and as "clipped" where these differ.

  Returns:
    list of int, the chosen words in order.
  """
  order = rng.permutation(len(begins)).tolist()
  runs = None
  if settings.masking == "ngram":
    weights = 1.0 / np.arange(1, settings.ngram + 1)
    runs = 1 + np.searchsorted(np.cumsum(weights / weights.sum())[:-1],
                               rng.random_sample(len(order)), "right")
  chosen = set()
  for word in order:
    if word in chosen or ends[word] - begins[word] > limit:
      continue
    run = 1 if runs is None else int(runs[word])
    placed = 0
    for follower in range(word, min(word + run, len(begins))):
      size = ends[follower] - begins[follower]
      if follower in chosen or size > limit or (
          placed and begins[follower] != ends[follower - 1]):
        break
      chosen.add(follower)
      limit -= size
      placed += 1
    if runs is not None:
      counts["drawn_%d" % run] += 1
      counts["placed_%d" % placed] += 1
      counts["clipped"] += placed < run
    if not limit:
      break
  return sorted(chosen)


def mask_words(ids, words, settings, rng):
  """Masks words: 80% become [MASK], 10% stay, 10% become random tokens.

  Args:
    ids: int [S].
    words: list of (begin, end), in order.
    settings: Settings.
    rng: np.random.RandomState.

  Returns:
    (masked ids int [S], positions int [M], labels int [M]).
  """
  positions = np.array([i for begin, end in words for i in range(begin, end)],
                       np.int32)
  labels = ids[positions]
  if settings.per_token_replacement:
    draws = rng.random_sample(len(positions))
  else:
    draws = np.repeat(rng.random_sample(len(words)),
                      [end - begin for begin, end in words])
  random_ids = settings.replacements[
      rng.randint(len(settings.replacements), size=len(positions))]
  masked = ids.copy()
  masked[positions] = np.where(draws < 0.8, settings.mask_id,
                               np.where(draws < 0.9, labels, random_ids))
  if settings.legacy_wwm_labels:
    inner = np.ones(len(positions), np.bool_)
    inner[np.searchsorted(positions, [begin for begin, _ in words])] = False
    labels = np.where(inner, settings.inner_labels[labels], labels)
  return masked, positions, labels


def create_settings(options, tokenizer):
  """Returns the Settings of the flags and the tokenizer."""
  if options.max_seq_length < 5:
    raise InputError("--max_seq_length must be at least 5")
  if not 0 < options.masked_lm_prob < 1:
    raise InputError("--masked_lm_prob must lie between 0 and 1")
  for name in ("max_predictions_per_seq", "dupe_factor", "ngram"):
    if getattr(options, name) < 1:
      raise InputError("--%s must be at least 1" % name)
  tokens = tokenizer.convert_ids_to_tokens(range(tokenizer.vocab_size))
  special = re.compile(r"\[unused\d+\]$|<.+>$|\[(PAD|UNK|CLS|SEP|MASK)\]$")
  ids = {token: i for i, token in enumerate(tokens)}
  inner_labels = np.arange(len(tokens), dtype=np.int32)
  for i, token in enumerate(tokens):
    if len(token) == 1 and tokenization.is_chinese(token):
      inner_labels[i] = ids.get("##" + token, i)
  values = {name: getattr(options, name) for name in Settings._fields
            if hasattr(options, name)}
  if options.do_whole_word_mask is not None:
    values["masking"] = "word" if options.do_whole_word_mask else "token"
  return Settings(
      cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id,
      mask_id=tokenizer.mask_id, inner_labels=inner_labels,
      replacements=np.array([i for i, token in enumerate(tokens)
                             if not special.match(token)], np.int32),
      **values)


def create_segmenter(options, tokenizer):
  """Returns the Segmenter of the flags, with jieba's dictionary loaded."""
  use_jieba = not (options.non_chinese or options.spm_model_file)
  if use_jieba:
    jieba.setLogLevel("WARNING")
    jieba.initialize()
    if options.user_dict:
      jieba.load_userdict(options.user_dict)
  return corpus.Segmenter(tokenizer, use_jieba)


def describe(settings, options, tokenizer):
  """Returns a dict that says how records are made, for their JSON file."""
  description = collections.OrderedDict(
      (name, value) for name, value in settings._asdict().items()
      if isinstance(value, (int, float, str)))
  description["vocab_size"] = tokenizer.vocab_size
  for name in ("do_lower_case", "non_chinese", "shard_characters"):
    description[name] = getattr(options, name)
  for name in ("vocab_file", "spm_model_file", "user_dict"):
    if getattr(options, name):
      with open(getattr(options, name), "rb") as reader:
        description[name + "_sha256"] = hashlib.sha256(
            reader.read()).hexdigest()
  return description


class ShardMaker:
  """Makes the records of one shard after the other.

  Args:
    segmenter: Segmenter.
    settings: Settings.
    num_outputs: int, record files that each shard is dealt out to.
    folder: str, where finished shards are kept.
  """

  def __init__(self, segmenter, settings, num_outputs=1, folder=None):
    self._segmenter = segmenter
    self._settings = settings
    self._num_outputs = num_outputs
    self._folder = folder
    self._specs = records.pretraining_specs(
        settings.max_seq_length, settings.max_predictions_per_seq)

  def path(self, shard_index):
    """Returns the path of a shard's records."""
    return os.path.join(self._folder, "shard-%07d" % shard_index)

  def read_summary(self, shard_index):
    """Returns what `make` has returned, or None if it has not finished."""
    path = self.path(shard_index) + ".json"
    if not os.path.exists(path):
      return None
    with open(path, encoding="utf-8") as reader:
      return json.load(reader)

  def serialized_records(self, texts, shard_index, counts):
    """Yields the records, as bytes, of a list of documents (lists of str)."""
    documents = [self._segmenter.document(lines) for lines in texts]
    for record in create_records(documents, shard_index, self._settings,
                                 counts):
      yield records.serialize(record, self._specs)

  def make(self, texts, shard_index):
    """Writes a shard's records, the first output's first.

    Args:
      texts: list of documents, lists of str.
      shard_index: int.

    Returns:
      dict: "sizes", bytes for each output, and "counts".
    """
    counts = collections.Counter()
    made = list(self.serialized_records(texts, shard_index, counts))
    # Start with another output each time, or small shards all favour the first.
    parts = [made[(output - shard_index) % self._num_outputs::self._num_outputs]
             for output in range(self._num_outputs)]
    path = self.path(shard_index)
    records.write_records(path, (record for part in parts for record in part))
    # A tfrecord file frames each record with 16 bytes.
    summary = {"sizes": [sum(len(record) + 16 for record in part)
                         for part in parts], "counts": counts}
    _write_json(path + ".json", summary)
    return summary


_maker = None  # of a worker process


def _make_shard(texts, shard_index):
  return _maker.make(texts, shard_index)


def make_shards(reader, maker, num_workers):
  """Makes all shards of a text in parallel, but for those made before.

  Args:
    reader: TextReader.
    maker: ShardMaker.
    num_workers: int.

  Returns:
    int, number of shards.
  """
  global _maker
  _maker = maker  # workers are forks, and find it there
  start = last_log = time.time()
  num_records = kept = num_shards = 0
  running = set()
  with concurrent.futures.ProcessPoolExecutor(
      num_workers, multiprocessing.get_context("fork")) as pool:
    for texts in reader.shards():
      num_shards += 1
      if maker.read_summary(num_shards - 1):
        kept += 1
        continue
      running.add(pool.submit(_make_shard, texts, num_shards - 1))
      # One shard waits for each worker; the text stays on the disk.
      if len(running) >= 2 * num_workers:
        done, running = concurrent.futures.wait(
            running, return_when=concurrent.futures.FIRST_COMPLETED)
        num_records += sum(f.result()["counts"]["records"] for f in done)
      if time.time() > last_log + 10:
        last_log = time.time()
        seconds = last_log - start
        left = int(seconds * (1 / reader.share_read - 1))
        logging.info("%d documents, %d records, %.0f records/s, %d:%02d:%02d "
                     "left", reader.counts["documents"], num_records,
                     num_records / seconds, left // 3600, left // 60 % 60,
                     left % 60)
    for future in running:
      future.result()
  if kept:
    logging.info("kept %d finished shards of an interrupted run", kept)
  return num_shards


def deal_out(maker, num_shards, outputs):
  """Puts finished shards together into the output files.

  Args:
    maker: ShardMaker.
    num_shards: int.
    outputs: list of str, record files to write.
  """
  writers = [open(path + ".tmp", "wb") for path in outputs]
  for shard_index in range(num_shards):
    with open(maker.path(shard_index), "rb") as reader:
      for size, writer in zip(maker.read_summary(shard_index)["sizes"],
                              writers):
        writer.write(reader.read(size))
  for path, writer in zip(outputs, writers):
    writer.close()
    os.replace(path + ".tmp", path)


def report(counts, settings):
  """Logs a table of what was made."""
  made = counts["records"]
  usable = counts["tokens"] - 3 * made
  rows = [
      ("documents", "%d" % counts["documents"]),
      ("records", "%d, %.1f%% with label 1" % (
          made, 100.0 * counts["label_1"] / made)),
      ("tokens per record", "%.1f of %d, %.1f%% padding" % (
          counts["tokens"] / made, settings.max_seq_length,
          100 - 100.0 * counts["tokens"] / made / settings.max_seq_length)),
      ("masked words", "%d, %.2f%%" % (
          counts["masked_words"],
          100.0 * counts["masked_words"] / counts["words"])),
      ("masked tokens", "%d, %.2f%%" % (
          counts["masked_tokens"], 100.0 * counts["masked_tokens"] / usable)),
  ]
  if settings.masking == "ngram":
    for kind in ("drawn", "placed"):
      found = [counts["%s_%d" % (kind, n)]
               for n in range(1, settings.ngram + 1)]
      rows.append(("n-grams " + kind, ", ".join(
          "%d: %.2f%%" % (n, 100.0 * count / sum(found))
          for n, count in enumerate(found, 1))))
    rows.append(("n-grams clipped", "%.2f%%" % (
        100.0 * counts["clipped"] / sum(found))))
  rows += [
      ("dropped tokens", "%d, last words of documents, without a partner"
       % counts["dropped_tokens"]),
      ("cut lines", "%d times, after %d characters" % (
          counts["cut_lines"], corpus.LONGEST_LINE)),
      ("invalid bytes", "%d, not UTF-8" % counts["invalid_bytes"])]
  for row in rows:
    logging.info("%18s  %s", *row)


def _write_json(path, values):
  with open(path + ".tmp", "w", encoding="utf-8") as writer:
    json.dump(values, writer, indent=2)
  os.replace(path + ".tmp", path)


def main():
  errors.require_flags("input_file")
  if bool(FLAGS.output_file) == bool(FLAGS.output_dir):
    raise InputError("give --output_file or --output_dir")
  if FLAGS.output_dir:
    outputs = [os.path.join(FLAGS.output_dir, "part-%05d-of-%05d.tfrecord" % (
        i, FLAGS.num_output_shards)) for i in range(FLAGS.num_output_shards)]
    described = [os.path.join(FLAGS.output_dir, "records.json")]
  else:
    outputs = [path for path in FLAGS.output_file.split(",") if path]
    described = [path + ".json" for path in outputs]
  paths = records.expand_patterns(FLAGS.input_file, "input_file")
  tokenizer = tokenization.create_tokenizer(
      FLAGS.vocab_file, FLAGS.spm_model_file, FLAGS.do_lower_case)
  settings = create_settings(FLAGS, tokenizer)
  description = describe(settings, FLAGS, tokenizer)

  # Finished shards are kept apart for each text and way to make records.
  state = json.dumps([description, outputs, [
      (path, os.path.getsize(path), os.path.getmtime(path))
      for path in paths]])
  folder = os.path.join(
      os.path.dirname(outputs[0]),
      "unfinished-" + hashlib.sha256(state.encode()).hexdigest()[:16])
  for path in [os.path.dirname(path) for path in outputs] + [folder]:
    os.makedirs(path or ".", exist_ok=True)

  reader = corpus.TextReader(paths, FLAGS.shard_characters)
  maker = ShardMaker(create_segmenter(FLAGS, tokenizer), settings, len(outputs),
                     folder)
  num_shards = make_shards(reader, maker, FLAGS.num_workers or os.cpu_count())
  counts = reader.counts
  for shard_index in range(num_shards):
    counts.update(maker.read_summary(shard_index)["counts"])
  if not counts["records"]:
    shutil.rmtree(folder)
    raise InputError("--input_file %s: no text to make a record of"
                     % FLAGS.input_file)
  deal_out(maker, num_shards, outputs)
  for path in described:
    _write_json(path, dict(description, counts=counts))
  shutil.rmtree(folder)
  report(counts, settings)
  logging.info("made %s", ", ".join(outputs) if len(outputs) < 5 else
               "%s ... %s" % (outputs[0], outputs[-1]))


if __name__ == "__main__":
  define_flags()
  errors.run(main)
