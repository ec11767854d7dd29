"""One writer, one parser and one `input_fn` for all tfrecord files."""

import collections
import functools
import json
import multiprocessing.pool
import os

import numpy as np
import tensorflow.compat.v1 as tf
import tqdm
from absl import logging

from errors import InputError

# A feature of a record. `dtype` is "int" or "float". `length` is the number of
# values: an int, None for a length that varies (padded with 0 in a batch), or 0
# for a scalar. `rows`, if given, is into how many rows of equal, varying length
# the values are parted.
FeatureSpec = collections.namedtuple(
    "FeatureSpec", ["name", "dtype", "length", "rows"])
FeatureSpec.__new__.__defaults__ = (None,)

# A record file and how many of its records to read, -1 for all of them.
RecordFile = collections.namedtuple("RecordFile", ["path", "limit"])
RecordFile.__new__.__defaults__ = (-1,)


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
    found = tf.io.gfile.glob(pattern)
    if not found:
      raise InputError("--%s: no file matches %s" % (flag, pattern))
    paths.extend(found)
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
  temporary = path + ".tmp"
  count = 0
  with tf.io.TFRecordWriter(temporary) as writer:
    for record in records:
      writer.write(record)
      count += 1
  tf.io.gfile.rename(temporary, path, overwrite=True)
  return count


def check_records(paths, specs, skip_corrupt=False):
  """Reads all files once and compares them with what the model will read.

  TensorFlow's own error does not name the file, days into a training.

  Args:
    paths: list of str.
    specs: list of FeatureSpec.
    skip_corrupt: bool, leave out the rest of a damaged file.

  Returns:
    list of RecordFile.

  Raises:
    InputError: a file is empty or damaged, or its first record lacks a feature
      or has one of another length.
  """
  files = []
  with multiprocessing.pool.ThreadPool(os.cpu_count()) as pool:
    for path, (first, count, size, error) in zip(paths, tqdm.tqdm(
        pool.imap(_scan, paths), "checking records", len(paths),
        disable=None, leave=False)):
      if error and not skip_corrupt:
        raise InputError(
            "%s: not a readable tfrecord file after %d records (%s): make it "
            "again, or leave out its rest with --skip_corrupt_records" % (
                path, count, error))
      if error:
        logging.warning(
            "%s: damaged after %d records, the rest is left out: %d of %d "
            "bytes (%s)", path, count, _file_size(path) - size,
            _file_size(path), error)
      elif not count:
        raise InputError("%s: has no records" % path)
      if count:
        _check_record(path, first, specs)
        files.append(RecordFile(path, count if error else -1))
  if not files:
    raise InputError("%s: no readable record in any file" % ", ".join(paths))
  return files


def _scan(path):
  """Returns (first record, records, bytes of them, what ended them or None)."""
  first, count, size = None, 0, 0
  try:
    for record in tf.io.tf_record_iterator(path):
      first = first or record
      count += 1
      size += 16 + len(record)  # length and two checksums
  except Exception as error:  # what it raises differs between TF releases
    return first, count, size, str(error).split("\n")[0]
  # A file that ends inside the head of a record is no error to TensorFlow.
  cut = size < _file_size(path)
  return first, count, size, "cut off inside a record" if cut else None


def _file_size(path):
  return tf.io.gfile.stat(path).length


def _check_record(path, record, specs):
  """Raises an InputError where a record is not of `specs`."""
  try:
    features = tf.train.Example.FromString(record).features.feature
  except Exception as error:
    raise InputError("%s: its records are no tf.train.Example (%s)" % (
        path, error)) from error
  for spec in specs:
    kind = {"int": "int64_list", "float": "float_list"}[spec.dtype]
    found = len(getattr(features[spec.name], kind).value)
    if not found and spec.length != 0:
      raise InputError("%s: records have no feature %r: made for another task?"
                       % (path, spec.name))
    if spec.length and found != spec.length:
      raise InputError(
          "%s: %r has %d values, but the flags say %d: give the "
          "--max_seq_length and --max_predictions_per_seq that the records "
          "were made with" % (path, spec.name, found, spec.length))


def read_description(path):
  """Returns the dict that says how a record file was made, or None."""
  for candidate in (path + ".json",
                    os.path.join(os.path.dirname(path), "records.json")):
    if tf.io.gfile.exists(candidate):
      with tf.io.gfile.GFile(candidate) as reader:
        return json.loads(reader.read())
  return None


def check_descriptions(paths, expected):
  """Compares how record files were made with what is expected of them.

  Files without a description, made by other tools, are passed over.

  Args:
    paths: list of str.
    expected: dict, a value for each key to compare. A value of None must only
      be the same in all files.

  Raises:
    InputError: a file was made otherwise.
  """
  found = {}  # key -> (value, where it is from)
  for key, value in expected.items():
    if value is not None:
      found[key] = value, "this run"
  for path in paths:
    description = read_description(path) or {}
    for key in expected:
      if key in description:
        value, source = found.setdefault(key, (description[key], path))
        if value != description[key]:
          raise InputError("%s was made with %s %s, but %s has %s" % (
              path, key, description[key], source, value))


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
                     drop_remainder=False, shard=(1, 0)):
  """Makes an `input_fn` for TPUEstimator.

  Training repeats for ever in an order that depends on `seed` alone: give
  another one after a restart. Otherwise every record is read once. Examples
  with a feature of varying length are batched with others of like length and
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
    shard: (number of readers, number of this one): no record is read by two.
      Files are dealt out where there are enough, else records. Hosts of a TPU
      pod deal by themselves.

  Returns:
    function of `params` (which has "batch_size") that returns a dataset of
    dicts: name -> int32 or float32 [B], [B, length] or [B, rows, length].
  """
  varying = [spec.name for spec in specs if spec.length is None]

  def input_fn(params):
    batch_size = params["batch_size"]
    readers, reader = shard
    if is_training and "context" in params:  # on a TPU
      _, reader, readers, _ = params["context"].current_input_fn_deployment()
    own = files[reader::readers] if len(files) >= readers else files
    dataset = tf.data.Dataset.from_tensor_slices(
        ([file.path for file in own], [file.limit for file in own]))
    if is_training:
      dataset = dataset.shuffle(len(own), seed=seed)
    dataset = dataset.interleave(
        lambda path, limit: tf.data.TFRecordDataset(path).take(
            tf.cast(limit, tf.int64)),
        cycle_length=min(len(own), 16),
        num_parallel_calls=min(len(own), os.cpu_count()))
    if len(files) < readers:
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
    options = tf.data.Options()
    # With them TF 1.15 crashes where a session ends while files are read.
    options.experimental_optimization.apply_default_optimizations = False
    return dataset.prefetch(4).with_options(options)

  return input_fn


def _padded_shapes(specs, max_length):
  def shape(spec):
    length = max_length if spec.length is None else spec.length
    return [] if spec.length == 0 else (
        [spec.rows, length] if spec.rows else [length])

  return {spec.name: shape(spec) for spec in specs}
