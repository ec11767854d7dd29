"""Makes shards of records in parallel, and shuffles them globally.

Text comes in shards of whole documents, which are processed independently. The
records of each shard are assigned to random buckets. The output files are the
sequence of all buckets, each in random order, so that the whole set is shuffled
with one bucket in memory at a time.
"""

import collections
import concurrent.futures.process
import contextlib
import gc
import multiprocessing
import os
from typing import (
  Any,
  Counter,
  Dict,
  Iterator,
  List,
  Optional,
  Sequence,
  Set,
  Tuple,
)

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from albert.data import masking
from albert.data.corpus import Segmenter, TextReader
from albert.errors import InputError
from albert.files import filesystem, records
from albert.progress import Progress

BUCKET_BYTES = 1 << 24  # approximate size of a bucket
_MOST_DROPPED = 0.05  # share of the tokens above which to warn


def count_buckets(
  text_bytes: int, settings: masking.Settings, num_outputs: int
) -> int:
  """Returns the number of buckets, so that each has about BUCKET_BYTES.

  Args:
    text_bytes: total size of the text files.
    settings: see masking.Settings.
    num_outputs: number of record files to write.
  """
  # A Chinese token has 3 bytes in text and about 5 in a record.
  return max(num_outputs, 2 * text_bytes * settings.dupe_factor // BUCKET_BYTES)


class ShardMaker:
  """Makes the records of each shard, and joins the shards.

  Args:
    segmenter: splits text into tokens.
    settings: see masking.Settings.
    num_buckets: number of buckets for the records.
    folder: folder of finished shards; None to write none.
  """

  def __init__(
    self,
    segmenter: Segmenter,
    settings: masking.Settings,
    num_buckets: int,
    folder: Optional[str] = None,
  ):
    self._segmenter = segmenter
    self._settings = settings
    self.dupe_factor = settings.dupe_factor
    self._num_buckets = num_buckets
    self.folder = folder
    self._specs = records.pretraining_specs(
      settings.max_seq_length, settings.max_predictions_per_seq
    )

  def _path(self, shard_index, suffix=""):
    return os.path.join(self.folder, "shard-%07d%s" % (shard_index, suffix))

  def read_counts(self, shard_index: int) -> Optional[Dict[str, int]]:
    """Returns the counts of a shard, None if it is not finished."""
    path, *others = [
      self._path(shard_index, suffix) for suffix in (".json", ".index", "")
    ]
    try:
      counts = filesystem.read_json(path)
      return (
        counts
        if list(map(filesystem.size, others))
        == [16 * (self._num_buckets + 1), counts["bytes"]]
        else None
      )
    except (OSError, InputError, KeyError, TypeError):  # e.g. half-removed
      return None

  def serialized_records(
    self, texts: Sequence[Sequence[str]], shard_index: int, counts: Counter[str]
  ) -> Tuple[List[bytes], np.ndarray]:
    """Makes the records of a shard.

    Args:
      texts: documents, lists of sentences.
      shard_index: seeds the random numbers.
      counts: updated.

    Returns:
      (N records, their buckets, int [N]).
    """
    documents = [self._segmenter.document(lines) for lines in texts]
    made = [
      records.serialize(record, self._specs)
      for record in masking.create_records(
        documents, shard_index, self._settings, counts
      )
    ]
    return made, self._random(1, shard_index).randint(
      self._num_buckets, size=len(made)
    )

  def _random(self, *numbers):
    return np.random.RandomState([self._settings.random_seed, *numbers])

  def make(
    self, texts: Sequence[Sequence[str]], shard_index: int
  ) -> Counter[str]:
    """Writes a shard's records, bucket by bucket, and returns its counts.

    Args:
      texts: documents, lists of sentences.
      shard_index: see `serialized_records`.
    """
    counts: Counter[str] = collections.Counter()
    made, buckets = self.serialized_records(texts, shard_index, counts)
    records.write_records(
      self._path(shard_index),
      (made[i] for i in np.argsort(buckets, kind="stable")),
    )
    # A tfrecord file frames each record with 16 bytes.
    ends = [
      np.bincount(buckets, weights, self._num_buckets).cumsum()
      for weights in (None, [len(record) + 16 for record in made])
    ]
    filesystem.write_bytes(
      self._path(shard_index, ".index"),
      np.array([np.append(0, row) for row in ends], np.uint64).tobytes(),
    )
    counts["bytes"] = int(ends[1][-1])
    filesystem.write_json(self._path(shard_index, ".json"), counts)
    return counts

  def bucket_ends(self, num_shards: int) -> np.ndarray:
    """Returns the number of records before each bucket, int [buckets + 1]."""
    ends = np.zeros(self._num_buckets + 1, np.int64)
    for shard_index in range(num_shards):
      content = filesystem.read_bytes(self._path(shard_index, ".index"))
      ends += np.frombuffer(content, np.uint64, len(ends)).astype(np.int64)
    return ends

  def read_bucket(self, num_shards: int, bucket: int) -> List[bytes]:
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
        end = at + 16 + int.from_bytes(content[at : at + 8], "little")
        framed.append(content[at:end])
        at = end
    return [framed[i] for i in self._random(2, bucket).permutation(len(framed))]

  def write_output(
    self, path: str, num_shards: int, ends: np.ndarray, start: int, stop: int
  ) -> None:
    """Writes records `start` to `stop` of all shards into a file.

    Args:
      path: the file.
      num_shards: number of shards.
      ends: result of `bucket_ends`.
      start, stop: indices in the shuffled set.
    """
    bucket = int(ends.searchsorted(start, "right")) - 1
    with tf.io.gfile.GFile(path, "wb") as writer:
      while bucket < self._num_buckets and ends[bucket] < stop:
        framed = self.read_bucket(num_shards, bucket)
        writer.write(
          b"".join(framed[max(0, start - ends[bucket]) : stop - ends[bucket]])
        )
        bucket += 1


_maker: Any = None  # the ShardMaker of a worker process


def _make(texts, shard_index):
  return _maker.make(texts, shard_index)


def _write_output(*args):
  _maker.write_output(*args)


def _pool(maker, num_workers):
  global _maker
  _maker = maker  # inherited by the workers, which are forks
  # Workers must not collect inherited garbage: that would copy memory, and some
  # objects may wait for a thread that only the parent process has.
  return concurrent.futures.ProcessPoolExecutor(
    num_workers, multiprocessing.get_context("fork"), initializer=gc.freeze
  )


@contextlib.contextmanager
def naming_death() -> Iterator[None]:
  """Converts the error for a killed worker to an InputError."""
  try:
    yield
  except concurrent.futures.process.BrokenProcessPool as error:
    raise InputError(
      "a worker process was killed, perhaps out of memory: resume with the "
      "same command and fewer --num_workers"
    ) from error


def loses_much(counts: Counter[str], dupe_factor: int) -> bool:
  """Warns if many tokens are in documents that cannot be split in two.

  Args:
    counts: see masking.create_records.
    dupe_factor: how many times each dropped token is counted.

  Returns:
    whether it warned.
  """
  share = counts["dropped_tokens"] / max(1, dupe_factor * counts["text_tokens"])
  if share > _MOST_DROPPED:
    logging.warning(
      "%.1f%% of the tokens are dropped so far: their documents are too "
      "short to split in two for the sentence task. A document should have "
      "several lines, one sentence each, and end with a blank line; for text "
      "with a blank line after each paragraph, --paragraphs_per_document",
      100.0 * share,
    )
  return share > _MOST_DROPPED


def make_shards(
  reader: TextReader, maker: ShardMaker, num_workers: int
) -> Tuple[int, Counter[str]]:
  """Makes all shards of a text in parallel, except finished ones.

  Returns:
    (number of shards, their total counts).
  """
  progress = Progress("records")
  counts: Counter[str] = collections.Counter()
  made: Counter[str] = collections.Counter()
  kept = num_shards = 0
  running: Set[concurrent.futures.Future] = set()
  warned = False
  with _pool(maker, num_workers) as pool:
    for texts in reader.shards():
      num_shards += 1
      before = maker.read_counts(num_shards - 1)
      if before:
        kept += 1
        counts.update(before)
        continue
      running.add(pool.submit(_make, texts, num_shards - 1))
      # One shard waits per worker; the rest of the text is not read yet.
      if len(running) >= 2 * num_workers:
        done, running = concurrent.futures.wait(
          running, return_when=concurrent.futures.FIRST_COMPLETED
        )
        for future in done:
          made.update(future.result())
        warned = warned or loses_much(made, maker.dupe_factor)
      progress.log(made["records"], reader.share_read)
    for future in running:
      made.update(future.result())
  if not warned:
    loses_much(made, maker.dupe_factor)
  if kept:
    logging.info("kept %d finished shards from an interrupted run", kept)
  return num_shards, counts + made


def write_outputs(
  maker: ShardMaker,
  num_shards: int,
  num_records: int,
  outputs: Sequence[str],
  num_workers: int,
) -> None:
  """Joins finished shards to the output files, atomically.

  Args:
    maker: made the shards.
    num_shards: number of shards.
    num_records: total number of records.
    outputs: record files to write.
    num_workers: number of processes.
  """
  progress = Progress("files")
  ends = maker.bucket_ends(num_shards)
  bounds = [num_records * i // len(outputs) for i in range(len(outputs) + 1)]
  with contextlib.ExitStack() as stack, _pool(maker, num_workers) as pool:
    unfinished = [
      stack.enter_context(filesystem.whole_file(path)) for path in outputs
    ]
    running = [
      pool.submit(_write_output, path, num_shards, ends, start, stop)
      for path, start, stop in zip(unfinished, bounds, bounds[1:])
    ]
    for number, future in enumerate(running, 1):
      future.result()
      progress.log(number, number / len(outputs))
