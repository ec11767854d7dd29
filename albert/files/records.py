"""One writer, one parser and one `input_fn` for all tfrecord files."""

import contextlib
import functools
import itertools
import multiprocessing.pool
import os
import re
import sys
from typing import NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf
import tqdm
from absl import logging

from albert.errors import InputError
from albert.files import filesystem


class FeatureSpec(NamedTuple):
  """A feature of a record.

  Attributes:
    name: str.
    dtype: "int" or "float".
    length: int, number of values; None for a length that varies (padded with 0
      in a batch), 0 for a scalar.
    rows: int, number of equal-length rows that the values are split into, None
      if they are not.
  """
  name: str
  dtype: str
  length: Optional[int]
  rows: Optional[int] = None


class RecordFile(NamedTuple):
  """A record file.

  Attributes:
    path: str.
    size: int, bytes.
    count: int, how many records it has, about.
  """
  path: str
  size: int
  count: int = 0


class _Scan(NamedTuple):
  """What reading a file found.

  Attributes:
    first: bytes, the first record, or None.
    count, good: int, how many records there are, and their bytes.
    size: int, the file's bytes.
    error: str, what is wrong with the file, or None.
  """
  first: Optional[bytes]
  count: int
  good: int
  size: int
  error: Optional[str]


_THREADS = 32  # most of their time is spent on waiting for a file system
_READ_RECORDS = 64  # at once, of one file


def pretraining_specs(max_seq_length, max_predictions_per_seq):
  """The features of a pretraining record, as released tfrecords have them."""
  return [
      FeatureSpec("input_ids", "int", max_seq_length),
      FeatureSpec("input_mask", "int", max_seq_length),
      FeatureSpec("segment_ids", "int", max_seq_length),
      FeatureSpec("masked_lm_positions", "int", max_predictions_per_seq),
      FeatureSpec("masked_lm_ids", "int", max_predictions_per_seq),
      FeatureSpec("masked_lm_weights", "float", max_predictions_per_seq),
      FeatureSpec("next_sentence_labels", "int", 1),
  ]


def expand_patterns(patterns, flag):
  """Turns a comma-separated list of globs into a sorted list of files.

  Args:
    patterns: str, such as "a.tfrecord,b-*.tfrecord".
    flag: str, name of the flag it came from, for the message.

  Returns:
    list of str, at least one.

  Raises:
    InputError: a pattern matches no file.
  """
  paths = []
  for pattern in filter(None, (p.strip() for p in patterns.split(","))):
    # A file's own name may have brackets.
    try:
      matches = [pattern] if tf.io.gfile.exists(pattern) else (
          tf.io.gfile.glob(pattern))
    except tf.errors.OpError:  # there is no such folder
      matches = []
    if not matches:
      raise InputError("--%s: no file matches %s" % (flag, pattern))
    paths.extend(matches)
  if not paths:
    raise InputError("--%s names no file" % flag)
  return sorted(set(paths))


def serialize(values, specs):
  """Makes one record.

  Args:
    values: dict, feature name -> list or 1-D array (a number for a scalar).
    specs: list of FeatureSpec.

  Returns:
    bytes, a serialized tf.train.Example.
  """
  # Messages one after the other are their union. Kept apart, features come in a
  # fixed order, and those that recur need not be encoded again.
  encoded = []
  for spec in specs:
    value = values[spec.name]
    if isinstance(value, np.ndarray):
      if value.max() <= 1:
        encoded.append(_encode_mask(spec, value.tobytes(), value.dtype.char))
        continue
      value = value.tolist()  # many times faster than element by element
    encoded.append(_encode(spec, [value] if spec.length == 0 else value))
  return b"".join(encoded)


def _encode(spec, values):
  """Returns a tf.train.Example with one feature, serialized."""
  example = tf.train.Example()
  feature = example.features.feature[spec.name]
  values_of = feature.int64_list if spec.dtype == "int" else feature.float_list
  values_of.value.extend(values)
  return example.SerializeToString()


@functools.lru_cache(maxsize=4096)
def _encode_mask(spec, content, array_dtype):
  """Encodes an array of zeros and ones; few of them are different."""
  return _encode(spec, np.frombuffer(content, array_dtype).tolist())


def write_records(path, records):
  """Writes serialized records; the file appears whole or not at all.

  Args:
    path: str.
    records: iterable of bytes.

  Returns:
    int, number of records.
  """
  count = 0
  with filesystem.whole_file(path) as unfinished:
    with tf.io.TFRecordWriter(unfinished) as writer:
      for record in records:
        writer.write(record)
        count += 1
  return count


def record_file(path):
  """Returns the RecordFile of a path."""
  return RecordFile(path, tf.io.gfile.stat(path).length)


def check_records(paths, specs, skip_corrupt=False, read_all=False):
  """Compares record files with what the model will read.

  Args:
    paths: list of str.
    specs: list of FeatureSpec.
    skip_corrupt: bool, leave out the rest of a damaged file.
    read_all: bool, read all records, instead of the first one of each file.

  Returns:
    list of RecordFile.

  Raises:
    InputError: a file is empty or damaged, or its first record lacks a feature
      or has one of a different length.
  """
  files = []
  scans = _in_threads(_scan if read_all else _look, paths)
  for path, scan in zip(paths, tqdm.tqdm(
      scans, "checking records", len(paths), disable=None, leave=False)):
    if scan.error and not skip_corrupt:
      raise InputError(
          "%s: not a readable tfrecord file after %d records (%s): make it "
          "again, or leave out its rest with --skip_corrupt_records" % (
              path, scan.count, scan.error))
    if scan.error:
      logging.warning(
          "%s: damaged after %d records, the rest is left out: %d of %d "
          "bytes (%s)", path, scan.count, scan.size - scan.good, scan.size,
          scan.error)
    elif not scan.count:
      raise InputError("%s: has no records" % path)
    if scan.count:
      _check_record(path, scan.first, specs)
      files.append(RecordFile(
          path, scan.size, scan.count * scan.size // max(1, scan.good)))
  if not files:
    raise InputError("%s: no readable record in any file" % ", ".join(paths))
  return files


def count_batches(files, batch_size):
  """Returns the number of full batches, which takes reading all files.

  Raises:
    InputError: there is none.
  """
  count = sum(scan.count for scan in _in_threads(
      _scan, [file.path for file in files]))
  if count < batch_size:
    raise InputError("%s: %d records are less than one batch of %d" % (
        ", ".join(file.path for file in files), count, batch_size))
  return count // batch_size


def _in_threads(function, paths):
  """Yields the results of a function that mostly waits, in order."""
  with multiprocessing.pool.ThreadPool(min(len(paths), _THREADS)) as pool:
    yield from pool.imap(function, paths)


def _look(path):
  """Returns the _Scan of a file's first record.

  TensorFlow's reader would read 16 MB for it, and checks more.
  """
  size = record_file(path).size
  with filesystem.open_binary(path) as reader:
    length = int.from_bytes(reader.read(12)[:8], "little")
    first = reader.read(min(length, size))
  try:
    if 16 + length <= size and tf.train.Example.FromString(first).features:
      return _Scan(first, 1, 16 + length, size, None)
  except Exception:  # what it raises differs between releases of protobuf
    pass
  return _scan(path, limit=1)


def _scan(path, limit=None):
  """Reads a file, or its first `limit` records; returns a _Scan."""
  first, count, good, error = None, 0, 0, None
  size = record_file(path).size
  try:
    for record in itertools.islice(tf.io.tf_record_iterator(path), limit):
      first = first or record
      count += 1
      good += 16 + len(record)  # length and two checksums
  except Exception as exception:  # what it raises differs between TF releases
    error = str(exception).split("\n")[0]
  # A file that ends inside the head of a record is no error to TensorFlow.
  if not error and count != limit and good < size:
    error = "cut off inside a record"
  return _Scan(first, count, good, size, error)


def _check_record(path, record, specs):
  """Raises an InputError where a record is not of `specs`."""
  try:
    features = tf.train.Example.FromString(record).features.feature
  except Exception as error:
    raise InputError("%s: its records are not of type tf.train.Example (%s)" % (
        path, error)) from error
  for spec in specs:
    kind = {"int": "int64_list", "float": "float_list"}[spec.dtype]
    length = len(getattr(features[spec.name], kind).value)
    if not length and spec.length != 0:
      raise InputError("%s: records have no feature %r: are they of a "
                       "different task?" % (path, spec.name))
    if spec.length and length != spec.length:
      raise InputError(
          "%s: %r has %d values, but the flags say %d: give the "
          "--max_seq_length and --max_predictions_per_seq that the records "
          "were made with" % (path, spec.name, length, spec.length))


def read_description(path):
  """Returns the dict that says how a record file was made, or None."""
  for candidate in (path + ".json",
                    os.path.join(os.path.dirname(path), "records.json")):
    if tf.io.gfile.exists(candidate):
      return filesystem.read_json(candidate)
  return None


def check_descriptions(paths, expected):
  """Compares how record files were made with what is expected of them.

  Files without a description, made by other tools, are passed over.

  Args:
    paths: list of str.
    expected: dict, a value for each key to compare. A value of None must only
      be the same in all files.

  Returns:
    dict, the value of each key that is expected or described.

  Raises:
    InputError: a file was made otherwise.
  """
  known = {}  # key -> (value, where it is from)
  for key, value in expected.items():
    if value is not None:
      known[key] = value, "this run"
  for path, description in zip(paths, _in_threads(read_description, paths)):
    for key in expected:
      if key in (description or {}):
        value, source = known.setdefault(key, (description[key], path))
        if value != description[key]:
          raise InputError("%s was made with %s %s, but %s has %s" % (
              path, key, description[key], source, value))
  return {key: value for key, (value, _) in known.items()}


def _parse(serialized, specs, batched):
  """Parses one record or a batch: a dict of int32 or float32 tensors."""
  features = {}
  for spec in specs:
    dtype = tf.int64 if spec.dtype == "int" else tf.float32
    if spec.length is None:
      features[spec.name] = tf.io.FixedLenSequenceFeature(
          [], dtype, allow_missing=True)
    else:
      shape = [spec.length] if spec.length else []
      features[spec.name] = tf.io.FixedLenFeature(shape, dtype)
  parse = tf.io.parse_example if batched else tf.io.parse_single_example
  parsed = parse(serialized, features)
  for spec in specs:
    value = parsed[spec.name]
    if spec.rows:
      value = tf.reshape(value, [spec.rows, -1])
    # A TPU has no int64.
    parsed[spec.name] = tf.cast(value, tf.int32) if (
        spec.dtype == "int") else value
  return parsed


def input_fn_builder(files, specs, is_training, max_length=None,
                     pad_to_max=False, seed=0, shuffle_buffer=10000,
                     drop_remainder=False, shard=(1, 0), skip_corrupt=False):
  """Makes an `input_fn` for TPUEstimator.

  Training repeats forever in an order that depends on `seed` alone: give
  a different one after a restart. Otherwise every record is read once. Examples
  with a feature of varying length are batched with others of similar length and
  padded to a multiple of 8, unless `pad_to_max`.

  Args:
    files: list of RecordFile.
    specs: list of FeatureSpec.
    is_training: bool.
    max_length: int, longest feature of varying length, if there is one.
    pad_to_max: bool, pad those features to `max_length` always.
    seed: int.
    shuffle_buffer: int, number of records to draw the next one from.
    drop_remainder: bool, drop a last batch that is not full.
    shard: (number of readers, number of this one): no record is read by two,
      and all read equally much. Parts of files are distributed where there are
      enough files, else records, one to each reader in turn. Hosts of a TPU pod
      say themselves which reader they are.
    skip_corrupt: bool, leave out the rest of a damaged file and say so on the
      standard error output of the process that reads it; otherwise reading it
      is an error: see `naming_damage`.

  Returns:
    function of `params` (which has "batch_size") that returns a dataset of
    dicts: name -> int32 or float32 [B], [B, length] or [B, rows, length].
  """
  varying = [spec.name for spec in specs if spec.length is None]

  # AutoGraph would take seconds to find that it has nothing to convert.
  @tf.autograph.experimental.do_not_convert
  def read(params):
    batch_size = params["batch_size"]
    readers, reader = shard
    if is_training and "context" in params:  # on a TPU
      _, reader, readers, _ = params["context"].current_input_fn_deployment()
    by_record = len(files) < readers
    own = [(file, 0, file.size) for file in files] if by_record else (
        file_parts(files, readers, reader))
    dataset = tf.data.Dataset.from_tensor_slices((
        [file.path for file, _, _ in own],
        np.array([(file.size, start, end) for file, start, end in own],
                 np.int64)))
    if is_training:
      dataset = dataset.shuffle(len(own), seed=seed)
    # Every file reads ahead by itself: TF 1.15 crashes where a session ends
    # while an interleave with num_parallel_calls reads.
    dataset = dataset.interleave(
        lambda *part: _read_file(*part, skip_corrupt=skip_corrupt).prefetch(64),
        cycle_length=min(len(own), 16))
    if by_record:
      dataset = dataset.shard(readers, reader)
    if is_training:
      dataset = dataset.shuffle(shuffle_buffer, seed=seed).repeat()
    if not varying:
      dataset = dataset.batch(batch_size, drop_remainder)
    dataset = dataset.map(
        lambda serialized: _parse(serialized, specs, batched=not varying),
        num_parallel_calls=os.cpu_count())
    if varying and pad_to_max:
      dataset = dataset.padded_batch(
          batch_size, _padded_shapes(specs, max_length),
          drop_remainder=drop_remainder)
    elif varying:
      ends = list(range(9, max_length + 1, 8)) + [max_length + 1]
      dataset = dataset.apply(tf.data.experimental.bucket_by_sequence_length(
          lambda example: tf.shape(example[varying[0]])[-1], ends,
          [batch_size] * (len(ends) + 1), _padded_shapes(specs, None),
          pad_to_bucket_boundary=True, drop_remainder=drop_remainder))
    return dataset.prefetch(4)

  return lambda params: read(params)  # TPUEstimator looks for that name


def file_parts(files, readers, reader):
  """Returns the parts of files that a reader reads, which are equally large.

  Args:
    files: list of RecordFile.
    readers: int, how many there are.
    reader: int, number of this one.

  Returns:
    list of (RecordFile, start, end): records that start in there, in bytes.
  """
  total = sum(file.size for file in files)
  first, last = [total * i // readers for i in (reader, reader + 1)]
  parts, before = [], 0
  for file in files:
    start, end = max(first - before, 0), min(last - before, file.size)
    if start < end:
      parts.append((file, start, end))
    before += file.size
  return parts


def _read_file(path, sizes, skip_corrupt):
  """Returns a dataset of the records of a part, which notices damage.

  Args:
    path: string scalar tensor.
    sizes: int64 [3], of the file in bytes, and where the part starts and ends.
    skip_corrupt: bool; see `input_fn_builder`.
  """
  size, start, end = tf.unstack(sizes)

  def check(so_far, batch):
    count, good = so_far
    count += tf.size(batch, out_type=tf.int64)
    lengths = 16 + tf.cast(tf.strings.length(batch), tf.int64)
    starts = good + tf.cumsum(lengths, exclusive=True)
    good += tf.reduce_sum(lengths)
    is_whole = tf.logical_or(tf.size(batch) > 0, good >= size)
    damage = tf.strings.join([
        path, ": damaged after ", tf.as_string(count), " records, ",
        tf.as_string(size - good), " of ", tf.as_string(size),
        " bytes cannot be read"])
    if skip_corrupt:
      report = tf.cond(is_whole, tf.no_op, lambda: tf.print(
          tf.strings.join([damage, " and are left out"]),
          output_stream=sys.stderr))
    else:
      report = tf.Assert(is_whole, [damage])
    with tf.control_dependencies([report]):
      return (count, good), tf.boolean_mask(
          batch, tf.logical_and(starts >= start, starts < end))

  # An error ends the file without a word; the empty batch marks its end.
  return tf.data.TFRecordDataset(path).apply(
      tf.data.experimental.ignore_errors()).batch(_READ_RECORDS).concatenate(
          tf.data.Dataset.from_tensors(tf.constant([], tf.string))).apply(
              tf.data.experimental.scan(
                  (np.int64(0), np.int64(0)), check)).unbatch()


@contextlib.contextmanager
def naming_damage():
  """Makes an InputError of the error that ends reading at a damaged file."""
  try:
    yield
  except tf.errors.InvalidArgumentError as error:
    match = re.search(r"assertion failed: \[(.*: damaged after .*)\]",
                      error.message)
    if not match:
      raise
    # TensorFlow escapes what it asserts, TF 1.15 all that is not ASCII.
    damage = match.group(1).encode().decode("unicode_escape")
    raise InputError(
        "%s: make it again, or leave out its rest with --skip_corrupt_records"
        % damage.encode("latin-1").decode()) from error


def _padded_shapes(specs, max_length):
  def shape(spec):
    length = max_length if spec.length is None else spec.length
    return [] if spec.length == 0 else (
        [spec.rows, length] if spec.rows else [length])

  return {spec.name: shape(spec) for spec in specs}
