"""Checks record files before training: size, origin, damage.

Tests: tests/files/test_records.py.
"""

import itertools
import multiprocessing.pool
import os
from typing import (
  TYPE_CHECKING,
  Any,
  Dict,
  List,
  NamedTuple,
  Optional,
  Sequence,
  Set,
)

import tensorflow.compat.v1 as tf
import tqdm
from absl import logging

from albert.errors import InputError
from albert.files import filesystem

if TYPE_CHECKING:  # it imports this module
  from albert.files.records import FeatureSpec


class RecordFile(NamedTuple):
  """A record file.

  Attributes:
    path: path or URL.
    size: bytes.
    count: approximate number of records.
  """
  path: str
  size: int
  count: int = 0  # type: ignore[assignment]  # tuple has a `count`


class _Scan(NamedTuple):
  """The result of reading a file.

  Attributes:
    first: the first record, or None.
    records, good: number and bytes of readable records.
    size: bytes of the file.
    error: why the file is unreadable, or None.
  """
  first: Optional[bytes]
  records: int
  good: int
  size: int
  error: Optional[str]


_THREADS = 32  # they mostly wait for the file system


def expand_patterns(patterns: str, flag: str) -> List[str]:
  """Expands a comma-separated list of globs to a sorted list of files.

  Args:
    patterns: such as "a.tfrecord,b-*.tfrecord".
    flag: name of the flag, for the message.

  Raises:
    InputError: a pattern matches no file.
  """
  paths: List[str] = []
  for pattern in filter(None, (p.strip() for p in patterns.split(","))):
    # File names may contain brackets, so try an exact match first.
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


def record_file(path: str) -> RecordFile:
  """Returns the RecordFile of a path."""
  return RecordFile(path, tf.io.gfile.stat(path).length)


def check_records(paths: Sequence[str], specs: "Sequence[FeatureSpec]",
                  skip_corrupt: bool = False,
                  read_all: bool = False) -> List[RecordFile]:
  """Checks that record files have the features that the model reads.

  Args:
    paths: record files.
    specs: expected features.
    skip_corrupt: skip the rest of a damaged file instead of raising.
    read_all: read all records instead of the first of each file.

  Raises:
    InputError: a file is empty or damaged, or a feature of its first record is
      missing or has a different length.
  """
  files = []
  scans = _in_threads(_scan if read_all else _look, paths)
  for path, scan in zip(paths, tqdm.tqdm(
      scans, "checking records", len(paths), disable=None, leave=False)):
    if scan.error and not skip_corrupt:
      raise InputError(
          "%s: not a readable tfrecord file after %d records (%s): make it "
          "again, or leave out its rest with --skip_corrupt_records" % (
              path, scan.records, scan.error))
    if scan.error:
      logging.warning(
          "%s: damaged after %d records, the rest is left out: %d of %d "
          "bytes (%s)", path, scan.records, scan.size - scan.good, scan.size,
          scan.error)
    elif not scan.records:
      raise InputError("%s: has no records" % path)
    if scan.records:
      _check_record(path, scan.first, specs)
      files.append(RecordFile(
          path, scan.size, scan.records * scan.size // max(1, scan.good)))
  if not files:
    raise InputError("%s: no readable record in any file" % ", ".join(paths))
  return files


def count_batches(files: Sequence[RecordFile], batch_size: int) -> int:
  """Returns the number of full batches; reads all files.

  Raises:
    InputError: there is no full batch.
  """
  count = sum(scan.records for scan in _in_threads(
      _scan, [file.path for file in files]))
  if count < batch_size:
    raise InputError("%s: %d records are less than one batch of %d" % (
        ", ".join(file.path for file in files), count, batch_size))
  return count // batch_size


def _in_threads(function, paths):
  """Yields the results of an I/O-bound function, in order."""
  with multiprocessing.pool.ThreadPool(min(len(paths), _THREADS)) as pool:
    yield from pool.imap(function, paths)


def _look(path):
  """Returns the _Scan of a file's first record.

  TensorFlow's reader would read 16 MB to return it, and checks more.
  """
  size = record_file(path).size
  with filesystem.open_binary(path) as reader:
    length = int.from_bytes(reader.read(12)[:8], "little")
    first = reader.read(min(length, size))
  try:
    if 16 + length <= size and tf.train.Example.FromString(first).features:
      return _Scan(first, 1, 16 + length, size, None)
  except Exception:  # the type depends on the release of protobuf
    pass
  return _scan(path, limit=1)


def _scan(path, limit=None):
  """Returns the _Scan of a file, or of its first `limit` records."""
  first, count, good, error = None, 0, 0, None
  size = record_file(path).size
  try:
    for record in itertools.islice(tf.io.tf_record_iterator(path), limit):
      first = first or record
      count += 1
      good += 16 + len(record)  # length and two checksums
  except Exception as exception:  # the type depends on the TensorFlow release
    error = str(exception).split("\n")[0]
  # TensorFlow does not report a file that ends inside a record's header.
  if not error and count != limit and good < size:
    error = "cut off inside a record"
  return _Scan(first, count, good, size, error)


def _check_record(path, record, specs):
  """Raises an InputError if a record does not match `specs`."""
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


def read_description(path: str) -> Optional[Dict[str, Any]]:
  """Returns the description of how a record file was made, or None."""
  for candidate in (path + ".json",
                    os.path.join(os.path.dirname(path), "records.json")):
    if tf.io.gfile.exists(candidate):
      return filesystem.read_json(candidate)
  return None


def check_descriptions(paths: Sequence[str], expected: Dict[str, Any],
                       may_differ: Sequence[str] = ()) -> Dict[str, Any]:
  """Checks how record files were made.

  Skips files without a description, which other tools made.

  Args:
    paths: record files.
    expected: expected values by key. None matches any value that is the same in
      all files.
    may_differ: keys whose first difference is only logged.

  Returns:
    the expected or described value of each key.

  Raises:
    InputError: a description differs from `expected` or another file's.
  """
  known: Dict[str, Any] = {}  # key -> (value, its source)
  differing: Set[str] = set()
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
