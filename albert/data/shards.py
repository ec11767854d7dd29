"""Makes shards of records in parallel, and shuffles them as a whole.

Text comes in shards of whole documents. Each is handled on its own; its records
are divided at random into buckets. The output files are all buckets one after
the other, each in random order: the whole set is shuffled with one bucket in
memory at a time.
"""

import collections
import concurrent.futures
import contextlib
import gc
import multiprocessing
import os

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from albert.data import masking
from albert.files import filesystem, records
from albert.progress import Progress

BUCKET_BYTES = 1 << 24  # about how much of the records makes a bucket
_MOST_DROPPED = 0.05  # of the tokens, without a warning


def count_buckets(text_bytes, settings, num_outputs):
  """Returns the number of buckets, so that each fits into little memory.

  Args:
    text_bytes: int, of all text files.
    settings: masking.Settings.
    num_outputs: int, record files to write.
  """
  # A token of Chinese has 3 bytes in text, about 5 in a record.
  return max(num_outputs,
             2 * text_bytes * settings.dupe_factor // BUCKET_BYTES)


class ShardMaker:
  """Makes the records of one shard after the other, and puts them together.

  Args:
    segmenter: corpus.Segmenter.
    settings: masking.Settings.
    num_buckets: int, into which the records of each shard are divided.
    folder: str, where finished shards are kept.
  """

  def __init__(self, segmenter, settings, num_buckets, folder=None):
    self._segmenter = segmenter
    self._settings = settings
    self.dupe_factor = settings.dupe_factor
    self._num_buckets = num_buckets
    self.folder = folder
    self._specs = records.pretraining_specs(
        settings.max_seq_length, settings.max_predictions_per_seq)

  def _path(self, shard_index, suffix=""):
    return os.path.join(self.folder, "shard-%07d%s" % (shard_index, suffix))

  def read_counts(self, shard_index):
    """Returns the counts of a shard, or None if it is not finished."""
    path = self._path(shard_index, ".json")
    return filesystem.read_json(path) if tf.io.gfile.exists(path) else None

  def serialized_records(self, texts, shard_index, counts):
    """Makes the records of a shard.

    Args:
      texts: list of documents, lists of str.
      shard_index: int.
      counts: collections.Counter, to count into.

    Returns:
      (list of bytes, int [N], their buckets).
    """
    documents = [self._segmenter.document(lines) for lines in texts]
    made = [records.serialize(record, self._specs)
            for record in masking.create_records(
                documents, shard_index, self._settings, counts)]
    return made, self._random(1, shard_index).randint(
        self._num_buckets, size=len(made))

  def _random(self, *numbers):
    return np.random.RandomState([self._settings.random_seed, *numbers])

  def make(self, texts, shard_index):
    """Writes a shard's records, bucket after bucket.

    Args:
      texts: list of documents, lists of str.
      shard_index: int.

    Returns:
      collections.Counter.
    """
    counts = collections.Counter()
    made, buckets = self.serialized_records(texts, shard_index, counts)
    records.write_records(self._path(shard_index), (
        made[i] for i in np.argsort(buckets, kind="stable")))
    # A tfrecord file frames each record with 16 bytes.
    ends = [np.bincount(buckets, weights, self._num_buckets).cumsum()
            for weights in (None, [len(record) + 16 for record in made])]
    filesystem.write_bytes(self._path(shard_index, ".index"), np.array(
        [np.append(0, row) for row in ends], np.uint64).tobytes())
    filesystem.write_json(self._path(shard_index, ".json"), counts)
    return counts

  def bucket_ends(self, num_shards):
    """Returns int [buckets + 1], how many records lie before each bucket."""
    width = self._num_buckets + 1
    return sum(np.frombuffer(filesystem.read_bytes(
        self._path(shard_index, ".index")), np.uint64, width).astype(np.int64)
               for shard_index in range(num_shards))

  def read_bucket(self, num_shards, bucket):
    """Returns a bucket's records in random order, framed as in a file."""
    framed = []
    for shard_index in range(num_shards):
      with filesystem.open_binary(self._path(shard_index, ".index")) as reader:
        reader.seek(8 * (self._num_buckets + 1 + bucket))
        start, end = np.frombuffer(reader.read(16), np.uint64).tolist()
      if start == end:
        continue
      with filesystem.open_binary(self._path(shard_index)) as reader:
        reader.seek(start)
        content = reader.read(end - start)
      at = 0
      while at < len(content):
        end = at + 16 + int.from_bytes(content[at:at + 8], "little")
        framed.append(content[at:end])
        at = end
    return [framed[i] for i in self._random(2, bucket).permutation(len(framed))]

  def write_output(self, path, num_shards, ends, start, stop):
    """Writes records `start` to `stop` of all into a file.

    Args:
      path: str.
      num_shards: int.
      ends: what `bucket_ends` returned.
      start, stop: int.
    """
    bucket = int(ends.searchsorted(start, "right")) - 1
    with tf.io.gfile.GFile(path, "wb") as writer:
      while bucket < self._num_buckets and ends[bucket] < stop:
        framed = self.read_bucket(num_shards, bucket)
        writer.write(b"".join(framed[max(0, start - ends[bucket]):
                                     stop - ends[bucket]]))
        bucket += 1


_maker = None  # of a worker process


def _make(texts, shard_index):
  return _maker.make(texts, shard_index)


def _write_output(*args):
  _maker.write_output(*args)


def _pool(maker, num_workers):
  global _maker
  _maker = maker  # workers are forks, and find it there
  # A worker does not collect what it inherits: that would copy memory, and an
  # object of another library may wait for a thread that only its parent has.
  return concurrent.futures.ProcessPoolExecutor(
      num_workers, multiprocessing.get_context("fork"), initializer=gc.freeze)


def loses_much(counts, dupe_factor):
  """Warns where many tokens are of documents that cannot be cut in two.

  Args:
    counts: collections.Counter; see masking.make_records.
    dupe_factor: int, how often each token is counted as dropped.

  Returns:
    bool, whether they are.
  """
  share = counts["dropped_tokens"] / max(
      1, dupe_factor * counts["text_tokens"])
  if share > _MOST_DROPPED:
    logging.warning(
        "%.1f%% of the tokens are left out so far: their documents are too "
        "short to be cut in two, as the sentence task needs. A document should "
        "have several lines, a sentence in each, and a blank line behind it",
        100.0 * share)
  return share > _MOST_DROPPED


def make_shards(reader, maker, num_workers):
  """Makes all shards of a text in parallel, but for those made before.

  Args:
    reader: corpus.TextReader.
    maker: ShardMaker.
    num_workers: int.

  Returns:
    (int, number of shards; collections.Counter, the counts of all).
  """
  progress = Progress("records")
  counts, made = collections.Counter(), collections.Counter()
  kept = num_shards = 0
  running, warned = set(), False
  with _pool(maker, num_workers) as pool:
    for texts in reader.shards():
      num_shards += 1
      before = maker.read_counts(num_shards - 1)
      if before:
        kept += 1
        counts.update(before)
        continue
      running.add(pool.submit(_make, texts, num_shards - 1))
      # One shard waits for each worker; the text stays on the disk.
      if len(running) >= 2 * num_workers:
        done, running = concurrent.futures.wait(
            running, return_when=concurrent.futures.FIRST_COMPLETED)
        for future in done:
          made.update(future.result())
        warned = warned or loses_much(made, maker.dupe_factor)
      progress.log(made["records"], reader.share_read)
    for future in running:
      made.update(future.result())
  warned or loses_much(made, maker.dupe_factor)
  if kept:
    logging.info("kept %d finished shards of an interrupted run", kept)
  return num_shards, counts + made


def write_outputs(maker, num_shards, num_records, outputs, num_workers):
  """Puts finished shards together into the output files, all or none.

  Args:
    maker: ShardMaker.
    num_shards: int.
    num_records: int, of all shards.
    outputs: list of str, record files to write.
    num_workers: int.
  """
  progress = Progress("files")
  ends = maker.bucket_ends(num_shards)
  bounds = [num_records * i // len(outputs) for i in range(len(outputs) + 1)]
  with contextlib.ExitStack() as stack, _pool(maker, num_workers) as pool:
    unfinished = [stack.enter_context(filesystem.whole_file(path))
                  for path in outputs]
    running = [pool.submit(_write_output, path, num_shards, ends, start, stop)
               for path, start, stop in zip(unfinished, bounds, bounds[1:])]
    for number, future in enumerate(running, 1):
      future.result()
      progress.log(number, number / len(outputs))
