"""What is known of record files before they are read: size, origin, damage.

Tests: tests/files/test_records.py.
"""

import itertools
import multiprocessing.pool
import os
from typing import NamedTuple, Optional

import tensorflow.compat.v1 as tf
import tqdm
from absl import logging

from albert.errors import InputError
from albert.files import filesystem


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
    if spec.name == "segment_ids" and not set(
        getattr(features[spec.name], kind).value) <= {0, 1}:
      raise InputError("%s: segment_ids are to be 0 and 1" % path)
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


def check_descriptions(paths, expected, may_differ=()):
  """Compares how record files were made with what is expected of them.

  Files without a description, made by other tools, are passed over.

  Args:
    paths: list of str.
    expected: dict, a value for each key to compare. A value of None must only
      be the same in all files.
    may_differ: keys whose first difference is only logged.

  Returns:
    dict, the value of each key that is expected or described.

  Raises:
    InputError: a file was made otherwise.
  """
  known, differing = {}, set()  # key -> (value, where it is from)
  for key, value in expected.items():
    if value is not None:
      known[key] = value, "this run"
  for path, description in zip(paths, _in_threads(read_description, paths)):
    for key in (*expected, *may_differ):
      if key in (description or {}):
        value, source = known.setdefault(key, (description[key], path))
        if value == description[key]:
          continue
        message = "%s was made with %s %s, but %s has %s" % (
            path, key, description[key], source, value)
        if key in expected:
          raise InputError(message)
        if key not in differing:
          logging.info(message)
          differing.add(key)
  return {key: value for key, (value, _) in known.items()}
