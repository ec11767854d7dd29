"""Record files: finding, checking, writing, parsing, reading in batches."""

import array
import functools
import itertools
import multiprocessing.pool
import os
import time
from typing import (
  Any,
  Callable,
  Dict,
  Iterable,
  List,
  NamedTuple,
  Optional,
  Sequence,
  Set,
  Tuple,
)

import numpy as np
import tensorflow.compat.v1 as tf
import tqdm
from absl import logging

from albert.errors import InputError
from albert.files import filesystem, reading_order


class FeatureSpec(NamedTuple):
  """A feature of a record.

  Attributes:
    name: key in the record.
    dtype: "int" or "float".
    length: number of values; None if it varies (batches are padded with 0), 0
      for a scalar.
    rows: number of equal-length rows to split the values into, or None.
    limit: integers must be at least 0 and lower than this; None for any.
  """

  name: str
  dtype: str
  length: Optional[int]
  rows: Optional[int] = None
  limit: Optional[int] = None


class RecordFile(NamedTuple):
  """A record file.

  Attributes:
    path: path or URL.
    size: bytes before any damage.
    count: approximate number of records to read.
    whole: number of records before the damage; None if there is none.
    bad: indices of records to skip.
  """

  path: str
  size: int
  count: int = 0  # type: ignore[assignment]  # tuple has a `count`
  whole: Optional[int] = None
  bad: Tuple[int, ...] = ()


_READ_RECORDS = 64  # records per read of a file
_MOST_RECORDS = 1 << 60  # in a file
_OPEN_FILES = 16  # files read at the same time
# AutoGraph takes a second or more to find nothing to convert.
_without_autograph = tf.autograph.experimental.do_not_convert


def pretraining_specs(
  max_seq_length: int,
  max_predictions_per_seq: int,
  vocab_size: Optional[int] = None,
) -> List[FeatureSpec]:
  """Returns the features of pretraining records, as in BERT's tfrecords."""
  length, count = max_seq_length, max_predictions_per_seq
  return [
    FeatureSpec(
      name, "float" if name.endswith("weights") else "int", size, limit=limit
    )
    for name, size, limit in (
      ("input_ids", length, vocab_size),
      ("input_mask", length, 2),
      ("segment_ids", length, 2),
      ("masked_lm_positions", count, length),
      ("masked_lm_ids", count, vocab_size),
      ("masked_lm_weights", count, None),
      ("next_sentence_labels", 1, 2),
    )
  ]


def serialize(values: Dict[str, Any], specs: Sequence[FeatureSpec]) -> bytes:
  """Makes one record.

  Args:
    values: list or 1-D array (a number for a scalar) by feature name.
    specs: features in the order of the record.

  Returns:
    a serialized tf.train.Example.
  """
  # Concatenated protobuf messages merge. Serializing features separately fixes
  # their order and allows caching recurring ones.
  encoded = []
  for spec in specs:
    value = values[spec.name]
    if isinstance(value, np.ndarray):
      if value.max() <= 1:
        encoded.append(_encode_mask(spec, value.tobytes(), value.dtype.char))
        continue
      value = value.tolist()  # many times faster than extending with an array
    items = [value] if spec.length == 0 else value
    if len(items) and items[0] in (0, 1):
      encoded.append(_encode_few(spec, tuple(items)))
    else:
      encoded.append(_encode(spec, items))
  return b"".join(encoded)


def _encode(spec, values):
  """Serializes a tf.train.Example with one feature."""
  example = tf.train.Example()
  feature = example.features.feature[spec.name]
  values_of = feature.int64_list if spec.dtype == "int" else feature.float_list
  values_of.value.extend(values)
  return example.SerializeToString()


# Segments, labels and masks have few different values.
_encode_few = functools.lru_cache(maxsize=4096)(_encode)


@functools.lru_cache(maxsize=4096)
def _encode_mask(spec, content, array_dtype):
  """Encodes an array of zeros and ones, of which few different ones occur."""
  return _encode(spec, np.frombuffer(content, array_dtype).tolist())


def write_records(path: str, records: Iterable[bytes]) -> np.ndarray:
  """Writes serialized records atomically.

  Returns:
    int64 [N], bytes of each record.
  """
  sizes = array.array("L")
  with filesystem.whole_file(path) as unfinished:
    with tf.io.TFRecordWriter(unfinished) as writer:
      for record in records:
        writer.write(record)
        sizes.append(len(record))
  return np.array(sizes, np.int64)


class _Scan(NamedTuple):
  """The result of reading a file.

  Attributes:
    records, good: number and bytes of readable records.
    size: bytes of the file.
    bad: index of a record that does not fit the model -> reason.
    error: why the file is unreadable, or None.
  """

  records: int
  good: int
  size: int
  bad: Dict[int, str]
  error: Optional[str]


_THREADS = 32  # mostly waiting for the file system


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
      matches = (
        [pattern]
        if tf.io.gfile.exists(pattern)
        else (tf.io.gfile.glob(pattern))
      )
    except tf.errors.OpError:  # no such folder
      matches = []
    if not matches:
      raise InputError("--%s: no file matches %s" % (flag, pattern))
    paths.extend(matches)
  if not paths:
    raise InputError("--%s has no file name" % flag)
  return sorted(set(paths))


def record_file(path: str) -> RecordFile:
  """Returns the RecordFile of a path."""
  return RecordFile(path, tf.io.gfile.stat(path).length)


def check_records(
  paths: Sequence[str],
  specs: "Sequence[FeatureSpec]",
  skip_corrupt: bool = False,
  read_all: bool = False,
) -> List[RecordFile]:
  """Checks that record files have the features of the model.

  Args:
    paths: record files.
    specs: expected features.
    skip_corrupt: skip unreadable and empty files, the rest of damaged files,
      and records that do not fit, instead of raising; reads all records.
    read_all: read all records instead of the first of each file.

  Raises:
    InputError: a file is unreadable, empty or damaged; or a feature of its
      first record, or with `read_all` of any record, is missing or has a
      different length or a value out of range.
  """
  files = []
  scan_one = functools.partial(
    _scan if read_all or skip_corrupt else _look, specs
  )
  for path, scan in zip(
    paths,
    tqdm.tqdm(
      _in_threads(scan_one, paths),
      "checking records",
      len(paths),
      disable=None,
      leave=False,
    ),
  ):
    problems = _problems(path, scan)
    if problems and not skip_corrupt:
      raise InputError(
        "%s: make it again, or skip bad records with "
        "--skip_corrupt_records" % problems[0]
      )
    for problem in problems:
      logging.warning("%s: skipped", problem)
    count = scan.records - len(scan.bad)
    if count and problems:
      files.append(
        RecordFile(path, scan.good, count, scan.records, tuple(scan.bad))
      )
    elif count:
      files.append(
        RecordFile(path, scan.size, count * scan.size // max(1, scan.good))
      )
  if not files:
    raise InputError("%s: no readable record in any file" % ", ".join(paths))
  return files


def _problems(path, scan):
  """Returns the problems of a file, one line each."""
  found = []
  if scan.bad:
    number, what = min(scan.bad.items())
    more = len(scan.bad) - 1
    found.append(
      "%s: record %d %s%s"
      % (path, number + 1, what, ", and %d more" % more if more else "")
    )
  if scan.error and scan.records:
    found.append(
      "%s: damaged after %d records, %d of %d bytes (%s)"
      % (path, scan.records, scan.size - scan.good, scan.size, scan.error)
    )
  elif scan.error:
    found.append("%s: not a readable tfrecord file (%s)" % (path, scan.error))
  elif not scan.records:
    found.append("%s: has no records" % path)
  return found


class Reader:
  """Record files that are checked again after read errors.

  Args: see `check_records`.
  """

  def __init__(
    self,
    paths: Sequence[str],
    specs: Sequence[FeatureSpec],
    skip_corrupt: bool = False,
    read_all: bool = False,
  ):
    self.specs = specs
    self._skip_corrupt = skip_corrupt
    self._files = check_records(paths, specs, skip_corrupt, read_all)
    self._failures = 0

  def count(self) -> int:
    """Returns the number of records, estimated unless all were read."""
    return sum(file.count for file in self._files)

  def files(
    self, error: Optional[tf.errors.OpError] = None
  ) -> List[RecordFile]:
    """Returns the files that can be read.

    Args:
      error: error of the last use of the files; None the first time.

    Raises:
      InputError: a file is unreadable, even after some seconds, or damaged.
      error: the files are not its cause, or it keeps occurring.
    """
    if error:
      # Other errors, such as out of memory, do not justify reading all records.
      if _INPUT not in error.message and not isinstance(
        error, tf.errors.InvalidArgumentError
      ):
        raise error
      before, self._files = self._files, self._check_again(error)
      self._failures += 1
      changed = [
        file.path
        for file, old in zip(self._files, before)
        if file.path == old.path and file.size != old.size
      ]
      if changed and not self._skip_corrupt:
        raise InputError("%s: has changed while being read" % changed[0])
      is_same = [file._replace(count=0) for file in before] == [
        file._replace(count=0) for file in self._files
      ]
      if is_same and (
        self._failures > len(_WAITS) or _INPUT not in error.message
      ):
        raise error
    return self._files

  def _check_again(self, error):
    paths = [file.path for file in self._files]
    logging.warning(
      "%s: reading all records to find the cause", error.message.split("\n")[0]
    )
    for seconds in _WAITS:
      closed = [path for path in paths if _open_error(path)]
      if not closed:
        break
      logging.warning(
        "%s cannot be read (%s): retrying in %d s",
        closed[0],
        _open_error(closed[0]),
        seconds,
      )
      time.sleep(seconds)
    try:
      return check_records(paths, self.specs, self._skip_corrupt, True)
    except InputError as found:
      raise found from error


_WAITS = (2, 5, 15)  # seconds between attempts to read a file
_INPUT = "IteratorGetNext"  # part of the messages of read errors


def _open_error(path):
  """Returns why a file cannot be read, None if it can."""
  try:
    with filesystem.open_binary(path) as reader:
      reader.read(1)
  except (OSError, tf.errors.OpError) as error:
    return getattr(error, "strerror", None) or str(error).split("\n")[0]
  return None


def count_batches(files: Sequence[RecordFile], batch_size: int) -> int:
  """Returns the number of full batches; reads all files.

  Raises:
    InputError: there is no full batch.
  """
  count = sum(_in_threads(_count, files))
  if count < batch_size:
    raise InputError(
      "%s: %d records are less than one batch of %d"
      % (", ".join(file.path for file in files), count, batch_size)
    )
  return count // batch_size


def _count(file):
  if file.whole is not None:
    return file.count
  return _scan([], file.path).records


def _in_threads(function, items):
  """Yields the results of an I/O-bound function, in order."""
  with multiprocessing.pool.ThreadPool(min(len(items), _THREADS)) as pool:
    yield from pool.imap(function, items)


def _look(specs, path):
  """Returns the _Scan of a file's first record.

  TensorFlow's reader would read 16 MB for it.
  """
  try:
    size = record_file(path).size
    with filesystem.open_binary(path) as reader:
      length = int.from_bytes(reader.read(12)[:8], "little")
      first = reader.read(min(length, size))
    if 16 + length <= size and tf.train.Example.FromString(first).features:
      what = _misfit(first, specs)
      return _Scan(1, 16 + length, size, {0: what} if what else {}, None)
  except Exception:  # the type depends on the release of protobuf
    pass
  return _scan(specs, path, limit=1)


def _scan(specs, path, limit=None):
  """Returns the _Scan of a file, or of its first `limit` records."""
  count, good, size, bad, error = 0, 0, 0, {}, _open_error(path)
  if error:
    return _Scan(0, 0, 0, {}, error)
  size = record_file(path).size
  try:
    for record in itertools.islice(tf.io.tf_record_iterator(path), limit):
      what = _misfit(record, specs)
      if what:
        bad[count] = what
      count += 1
      good += 16 + len(record)  # length and two checksums
  except Exception as exception:  # the type depends on the TensorFlow release
    error = str(exception).split("\n")[0]
  # TensorFlow does not report a file that ends inside a record's header.
  if not error and count != limit and good < size:
    error = "cut off inside a record"
  return _Scan(count, good, size, bad, error)


def _misfit(record, specs):
  """Returns why a record does not fit `specs`, None if it does."""
  if not specs:
    return None
  try:
    features = tf.train.Example.FromString(record).features.feature
  except Exception as error:  # the type depends on the release of protobuf
    return "is not of type tf.train.Example (%s)" % error
  for spec in specs:
    kind = {"int": "int64_list", "float": "float_list"}[spec.dtype]
    values = getattr(features[spec.name], kind).value
    if not values and spec.length != 0:
      return "has no feature %r: is it for a different task?" % spec.name
    if spec.length and len(values) != spec.length:
      return (
        "has %d values of %r, but the flags require %d: use the "
        "--max_seq_length and --max_predictions_per_seq that the records "
        "were made with" % (len(values), spec.name, spec.length)
      )
    if spec.limit and not (0 <= min(values) and max(values) < spec.limit):
      return "has a value of %r that is not between 0 and %d" % (
        spec.name,
        spec.limit - 1,
      )
  return None


def read_description(path: str) -> Optional[Dict[str, Any]]:
  """Returns the description of how a record file was made, or None."""
  for candidate in (
    path + ".json",
    os.path.join(os.path.dirname(path), "records.json"),
  ):
    if tf.io.gfile.exists(candidate):
      return filesystem.read_json(candidate)
  return None


def check_descriptions(
  paths: Sequence[str], expected: Dict[str, Any], may_differ: Sequence[str] = ()
) -> Dict[str, Any]:
  """Checks how record files were made.

  Skips files without a description, made by other tools.

  Args:
    paths: record files.
    expected: expected values by key; None for any value that all files share.
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
          path,
          key,
          description[key],
          source,
          value,
        )
        if key in expected:
          raise InputError(message)
        if key not in differing:
          logging.info(message)
          differing.add(key)
  return {key: value for key, (value, _) in known.items()}


def _parse(serialized, specs, batched):
  """Parses one record or a batch to a dict of int32 or float32 tensors."""
  features = {}
  for spec in specs:
    dtype = tf.int64 if spec.dtype == "int" else tf.float32
    if spec.length is None:
      features[spec.name] = tf.io.FixedLenSequenceFeature(
        [], dtype, allow_missing=True
      )
    else:
      shape = [spec.length] if spec.length else []
      features[spec.name] = tf.io.FixedLenFeature(shape, dtype)
  parse = tf.io.parse_example if batched else tf.io.parse_single_example
  parsed = parse(serialized, features)
  for spec in specs:
    value = parsed[spec.name]
    if spec.rows:
      value = tf.reshape(value, [spec.rows, -1])
    if spec.dtype == "int":
      value = tf.cast(value, tf.int32)  # TPUs do not support int64
    parsed[spec.name] = value
  return parsed


def input_fn_builder(
  files: Sequence[RecordFile],
  specs: Sequence[FeatureSpec],
  is_training: bool,
  max_length: Optional[int] = None,
  pad_to_max: bool = False,
  seed: int = 0,
  start: int = 0,
  shuffle_buffer: int = 10000,
  drop_remainder: bool = False,
  shard: Tuple[int, int] = (1, 0),
) -> Callable[[Dict[str, Any]], tf.data.Dataset]:
  """Returns an `input_fn` for TPUEstimator that streams record files.

  Training repeats forever. This is for pretraining, whose data is large, and
  for TPUs; otherwise, use `ordered_input_fn_builder`. Each epoch reads the
  files in random order, 16 at a time, and shuffles records within windows. The
  order depends only on `seed`, and `start` resumes in the middle of it.

  Evaluation reads every record once. Examples with a feature of varying length
  are batched by similar length and padded to a multiple of 8, unless
  `pad_to_max`.

  Args:
    files: record files.
    specs: features to parse.
    is_training: whether to shuffle and repeat.
    max_length: maximum length of features of varying length, if there are any.
    pad_to_max: pad these features to `max_length`; always done in training.
    seed: seed of the order.
    start: number of batches that training has already read.
    shuffle_buffer: records per shuffling window.
    drop_remainder: drop the last batch if it is not full.
    shard: (number of readers, index of this one). Readers get disjoint, equally
      large shares: parts of files if there are at least as many files as
      readers, otherwise every n-th record. TPU hosts override it.

  Returns:
    function of `params` (which has "batch_size") that returns a dataset of
    dicts: name -> int32 or float32 [B], [B, length] or [B, rows, length].
  """

  @_without_autograph
  def read(params):
    batch_size = params["batch_size"]
    (readers, reader), cores = shard, 1
    if is_training and "context" in params:  # one call per TPU host
      _, reader, readers, cores = params[
        "context"
      ].current_input_fn_deployment()
    if is_training:
      dataset = _passes(
        Parts.of(files, readers, reader),
        seed,
        start * batch_size * cores,
        shuffle_buffer,
      )
    else:
      dataset = Parts.of(files, 1, 0).read()
    return _batched(
      dataset,
      specs,
      batch_size,
      max_length,
      pad_to_max or is_training,
      drop_remainder,
    ).prefetch(4)

  # TPUEstimator looks for an argument named `params`.
  return lambda params: read(params)


def _batched(
  dataset, specs, batch_size, max_length, pad_to_max, drop_remainder
):
  """Returns a dataset of parsed batches; see `input_fn_builder`."""
  varying = [spec.name for spec in specs if spec.length is None]
  if not varying:
    dataset = dataset.batch(batch_size, drop_remainder)
  dataset = dataset.map(
    lambda serialized: _parse(serialized, specs, batched=not varying),
    num_parallel_calls=os.cpu_count(),
  )
  if not varying:
    return dataset
  if pad_to_max:
    return dataset.padded_batch(
      batch_size,
      _padded_shapes(specs, max_length),
      drop_remainder=drop_remainder,
    )
  ends = list(range(9, max_length + 1, 8)) + [max_length + 1]
  return dataset.apply(
    tf.data.experimental.bucket_by_sequence_length(
      lambda example: tf.shape(example[varying[0]])[-1],
      ends,
      [batch_size] * (len(ends) + 1),
      _padded_shapes(specs, None),
      pad_to_bucket_boundary=True,
      drop_remainder=drop_remainder,
    )
  )


class Parts(NamedTuple):
  """The parts of record files that one reader reads.

  Attributes:
    paths: the file of each part, P of them.
    sizes: int64 [P, ...]: bytes of the file, start and end of the part; maximum
      number of records; indices of bad ones, padded with -1.
    every: (number of readers, index of this one) if each reads every n-th
      record, else (1, 0).
  """

  paths: List[str]
  sizes: np.ndarray
  every: Tuple[int, int]

  @classmethod
  def of(
    cls, files: Sequence[RecordFile], readers: int, reader: int
  ) -> "Parts":
    """Returns the Parts of a reader; see `input_fn_builder`."""
    if len(files) < readers:
      own, every = [(file, 0, file.size) for file in files], (readers, reader)
    else:
      own, every = file_parts(files, readers, reader), (1, 0)
    most = max(1, *(len(file.bad) for file, _, _ in own))
    sizes = [
      (
        file.size,
        start,
        end,
        _MOST_RECORDS if file.whole is None else file.whole,
        *file.bad,
        *[-1] * (most - len(file.bad)),
      )
      for file, start, end in own
    ]
    return cls(
      [file.path for file, _, _ in own], np.array(sizes, np.int64), every
    )

  @property
  def cycle(self) -> int:
    """Number of parts read at the same time."""
    return min(len(self.paths), _OPEN_FILES)

  def read_one(self, path: tf.Tensor, sizes: tf.Tensor) -> tf.data.Dataset:
    """Returns a dataset of the records of a part."""
    dataset = _read_file(path, sizes)
    return dataset if self.every == (1, 0) else dataset.shard(*self.every)

  def read(self, order: Any = None, skips: Any = None) -> tf.data.Dataset:
    """Returns a dataset of all records.

    Args:
      order: int [...], array or tensor: parts in reading order, `cycle` at a
        time; None for all.
      skips: int64 [...], number of records to skip in each; None for none.
    """
    order = np.arange(len(self.paths)) if order is None else order
    skips = tf.zeros_like(order, tf.int64) if skips is None else skips
    # Each file prefetches by itself: TF 1.15 crashes if a session ends during
    # an interleave with num_parallel_calls.
    return tf.data.Dataset.from_tensor_slices(
      (tf.gather(self.paths, order), tf.gather(self.sizes, order), skips)
    ).interleave(
      lambda path, sizes, skip: (
        self.read_one(path, sizes).skip(skip).prefetch(64)
      ),
      cycle_length=self.cycle,
    )

  @_without_autograph
  def counts(self) -> np.ndarray:
    """Returns the number of records of each part, int [P]; reads all files."""

    def count(path, sizes):
      return (
        self.read_one(path, sizes)
        .batch(1000)
        .reduce(
          np.int64(0),
          lambda total, batch: total + tf.size(batch, out_type=tf.int64),
        )
      )

    with tf.Graph().as_default(), tf.Session(
      config=tf.ConfigProto(device_count={"GPU": 0})
    ) as session:
      counts = tf.data.make_one_shot_iterator(
        tf.data.Dataset.from_tensor_slices((self.paths, self.sizes)).map(
          count, os.cpu_count()
        )
      ).get_next()
      return np.array([session.run(counts) for _ in self.paths])


def _passes(parts, seed, start, window):
  """Returns a dataset of the records of all epochs from a position on.

  Args:
    parts: what to read.
    seed: seed of the order.
    start: number of records to skip.
    window: number of records that are shuffled together.
  """
  first = after = 0
  if start:
    counts = parts.counts()
    first, after = divmod(start, int(counts.sum()))

  def order_of(number):
    return tf.argsort(
      tf.random.stateless_uniform([len(parts.paths)], tf.stack([seed, number]))
    )

  def shuffled(records, number, first_window):
    def shuffle(index, batch):
      return tf.gather(
        batch,
        tf.argsort(
          tf.random.stateless_uniform(
            [tf.size(batch)],
            tf.stack(
              [(seed + 1) % 2**31, tf.cast(index, tf.int32) + 65536 * number]
            ),
          )
        ),
      )

    return (
      records.batch(window)
      .apply(tf.data.experimental.enumerate_dataset(first_window))
      .map(shuffle)
      .prefetch(1)
      .unbatch()
    )

  def one_pass(number):
    number = tf.cast(number, tf.int32)
    return shuffled(parts.read(order_of(number)), number, 0)

  following = tf.data.Dataset.range(first + bool(after), 2**31).flat_map(
    one_pass
  )
  if not after:
    return following
  with tf.Graph().as_default(), tf.Session() as session:
    order = session.run(order_of(first))
  windows = after // window
  begun = shuffled(
    parts.read(
      *reading_order.resumed(order, counts, parts.cycle, windows * window)
    ),
    first,
    windows,
  ).skip(after % window)
  return begun.concatenate(following)


class Index(NamedTuple):
  """The positions of a file's records, for reading them in any order.

  Attributes:
    path: path or URL of the file.
    sizes: int [N], bytes of each record.
    lengths: int [N], tokens of each example.
  """

  path: str
  sizes: np.ndarray
  lengths: np.ndarray


def ordered_input_fn_builder(
  index: Index,
  specs: Sequence[FeatureSpec],
  max_length: int,
  pad_to_max: bool,
  seed: int,
  start: int,
  shard: Tuple[int, int] = (1, 0),
) -> Callable[[Dict[str, Any]], tf.data.Dataset]:
  """Returns an `input_fn` for training batches of examples of similar length.

  See `reading_order.batches` for the order. Batches are padded to a multiple of
  8, or to `max_length` with `pad_to_max`.

  Args:
    index: the file to read.
    specs: features to parse.
    max_length: maximum length of features of varying length.
    pad_to_max: whether to pad to `max_length`.
    seed, start: see `reading_order.batches`.
    shard: (number of processes, index of this one); each process gets a share
      of the rows of every batch.

  Returns:
    see `input_fn_builder`.
  """
  processes, process = shard
  # A record follows its length and a checksum (12 bytes); a checksum (4 bytes)
  # follows the record.
  starts = np.cumsum(index.sizes + 16) - index.sizes - 4

  @_without_autograph
  def read(params):
    batch_size = params["batch_size"]

    def generate():
      content = np.memmap(filesystem.local_copy(index.path), mode="r")
      for batch in reading_order.batches(
        index.lengths, batch_size * processes, seed, start
      ):
        rows = batch[process * batch_size : (process + 1) * batch_size]
        yield [
          content[first : first + size].tobytes()
          for first, size in zip(starts[rows], index.sizes[rows])
        ]

    def pad(batch):
      for spec in specs:
        if spec.length is None:
          x = batch[spec.name]
          length = tf.shape(x)[-1]
          wanted = max_length
          if not pad_to_max:
            wanted = tf.minimum(length + -length % 8, max_length)
          batch[spec.name] = tf.pad(
            x, [[0, 0]] * (x.shape.ndims - 1) + [[0, wanted - length]]
          )
      return batch

    dataset = tf.data.Dataset.from_generator(generate, tf.string, [None])
    return (
      dataset.unbatch()
      .map(
        lambda serialized: _parse(serialized, specs, batched=False),
        num_parallel_calls=os.cpu_count(),
      )
      .padded_batch(
        batch_size, _padded_shapes(specs, None), drop_remainder=True
      )
      .map(pad)
      .prefetch(4)
    )

  # TPUEstimator looks for an argument named `params`.
  return lambda params: read(params)


def file_parts(
  files: Sequence[RecordFile], readers: int, reader: int
) -> List[Tuple[RecordFile, int, int]]:
  """Returns one reader's share of the files, equal in bytes.

  Args:
    files: record files.
    readers: number of readers.
    reader: index of this one.

  Returns:
    list of (file, start, end): byte ranges in which the reader's records start.
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


def _read_file(path, sizes):
  """Returns a dataset of the records of a part.

  TensorFlow does not report a file that ends inside a record's header.

  Args:
    path: string scalar.
    sizes: a row of `Parts.sizes`.
  """
  (size, start, end, whole), bad = tf.unstack(sizes[:4]), sizes[4:]

  def check(good, read):
    numbers, batch = read
    lengths = 16 + tf.cast(tf.strings.length(batch), tf.int64)
    starts = good + tf.cumsum(lengths, exclusive=True)
    good += tf.reduce_sum(lengths)
    is_whole = tf.Assert(
      tf.logical_or(tf.size(batch) > 0, good >= size), [path, " is damaged"]
    )
    kept = tf.reduce_all(tf.not_equal(numbers[:, None], bad), 1)
    with tf.control_dependencies([is_whole]):
      return good, tf.boolean_mask(
        batch, kept & (starts >= start) & (starts < end)
      )

  # The empty batch marks the end.
  return (
    tf.data.Dataset.zip(
      (tf.data.Dataset.range(whole), tf.data.TFRecordDataset(path))
    )
    .batch(_READ_RECORDS)
    .concatenate(
      tf.data.Dataset.from_tensors(
        (tf.constant([], tf.int64), tf.constant([], tf.string))
      )
    )
    .apply(tf.data.experimental.scan(np.int64(0), check))
    .unbatch()
  )


def _padded_shapes(specs, max_length):
  def shape(spec):
    if spec.length == 0:
      return []
    length = max_length if spec.length is None else spec.length
    return [spec.rows, length] if spec.rows else [length]

  return {spec.name: shape(spec) for spec in specs}
