"""The writer, the parser and the order in which records are read."""

import itertools
import logging
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tokenization
from albert import errors
from albert.files import record_files, records
from albert.files.records import FeatureSpec

pytestmark = pytest.mark.once

SPECS = [FeatureSpec("input_ids", "int", None),
         FeatureSpec("pair", "float", 2), FeatureSpec("number", "int", 0)]


def write(path, lengths):
  return records.write_records(str(path), (
      records.serialize({"input_ids": [n] * n, "pair": [n, 0.5], "number": n},
                        SPECS) for n in lengths))


def read(paths, count, batch_size=4, **kwargs):
  input_fn = records.input_fn_builder(
      [record_files.record_file(str(p)) for p in paths], SPECS, max_length=20,
      **kwargs)
  batch = tf.data.make_one_shot_iterator(
      input_fn({"batch_size": batch_size})).get_next()
  batches = []
  with tf.Session() as session:
    for _ in range(count):
      batches.append(session.run(batch))
    if not kwargs["is_training"]:
      with pytest.raises(tf.errors.OutOfRangeError):
        session.run(batch)
  return batches


def test_what_is_written_is_read(tmp_path):
  assert write(tmp_path / "a", [1, 3, 2]) == 3
  batch, = read([tmp_path / "a"], 1, is_training=False)
  np.testing.assert_array_equal(batch["number"], [1, 3, 2])
  np.testing.assert_array_equal(batch["pair"], [[1, .5], [3, .5], [2, .5]])
  # Padded to a multiple of 8.
  np.testing.assert_array_equal(batch["input_ids"], [
      [1] + [0] * 7, [3] * 3 + [0] * 5, [2] * 2 + [0] * 6])
  assert batch["number"].dtype == np.int32
  assert not (tmp_path / "a.tmp").exists()


def test_batches_are_of_like_length(tmp_path):
  lengths = list(range(1, 21)) * 4
  write(tmp_path / "a", lengths)
  seen = []
  for batch in read([tmp_path / "a"], 20, is_training=False):
    longest = batch["number"].max()
    assert batch["input_ids"].shape[1] == min(-(-longest // 8) * 8, 20)
    seen += list(batch["number"])
  assert sorted(seen) == sorted(lengths)
  for batch in read([tmp_path / "a"], 20, is_training=False, pad_to_max=True):
    assert batch["input_ids"].shape == (4, 20)


def test_training_order_depends_on_the_seed(tmp_path):
  write(tmp_path / "a", range(1, 9))
  write(tmp_path / "b", range(9, 17))

  def order(seed):
    tf.reset_default_graph()
    return [tuple(batch["number"]) for batch in read(
        [tmp_path / "a", tmp_path / "b"], 8, batch_size=2, is_training=True,
        pad_to_max=True, seed=seed)]

  first = order(1)
  assert sorted(n for batch in first for n in batch) == list(range(1, 17))
  assert order(1) == first
  assert order(2) != first


def test_a_file_that_does_not_fit_is_named(tmp_path):
  path = str(tmp_path / "a")
  write(path, [3])
  record_files.check_records([path], SPECS)
  with pytest.raises(errors.InputError, match="a: 'pair' has 2 values.*say 3"):
    record_files.check_records([path], [FeatureSpec("pair", "float", 3)])
  with pytest.raises(errors.InputError, match="a: records have no feature 'x'"):
    record_files.check_records([path], [FeatureSpec("x", "int", 4)])
  (tmp_path / "empty").write_bytes(b"")
  with pytest.raises(errors.InputError, match="empty: has no records"):
    record_files.check_records([str(tmp_path / "empty")], SPECS)
  (tmp_path / "text").write_bytes(b"not a record file at all")
  with pytest.raises(errors.InputError, match="text: not a readable tfrecord"):
    record_files.check_records([str(tmp_path / "text")], SPECS)


def read_numbers(files, **kwargs):
  tf.reset_default_graph()
  input_fn = records.input_fn_builder(files, SPECS, False, 20, **kwargs)
  batch = tf.data.make_one_shot_iterator(
      input_fn({"batch_size": 1})).get_next()
  numbers = []
  with tf.Session() as session, records.naming_damage():
    try:
      while True:
        numbers.extend(session.run(batch)["number"])
    except tf.errors.OutOfRangeError:
      return numbers


@pytest.mark.parametrize("damage, good", [
    (lambda data, size: data[:3 * size - 5], 2),  # cut off inside a record
    (lambda data, size: data[:2 * size + 4], 2),  # and inside its length
    # A byte of the fourth record's content, and of the third's length.
    (lambda data, size: flip(data, 3 * size + size // 2), 3),
    (lambda data, size: flip(data, 2 * size + 1), 2)])
def test_a_damaged_file_is_named_or_its_rest_left_out(
    tmp_path, damage, good, caplog, capfd):
  write(tmp_path / "whole", [15] * 4)
  path = str(tmp_path / "\u574f [1]")
  write(path, [5] * 8)
  with open(path, "rb") as reader:
    data = reader.read()
  record = len(data) // 8
  data = damage(data, record)
  with open(path, "wb") as writer:
    writer.write(data)
  paths = [path, str(tmp_path / "whole")]
  lost = "%d of %d bytes" % (len(data) - good * record, len(data))
  # All is read before training.
  with pytest.raises(errors.InputError, match="\u574f .1.: not a readable "
                     "tfrecord file after %d records" % good):
    record_files.check_records(paths, SPECS, read_all=True)
  with caplog.at_level(logging.WARNING, "absl"):
    record_files.check_records(paths, SPECS, skip_corrupt=True, read_all=True)
  assert "%s: damaged after %d records, the rest is left out: %s" % (
      path, good, lost) in caplog.text
  # First records are, and damage is met in training.
  caplog.clear()
  files = record_files.check_records(paths, SPECS)
  with pytest.raises(errors.InputError) as raised:
    read_numbers(files)
  message = "%s: damaged after %d records, %s cannot be read" % (
      path, good, lost)
  assert str(raised.value).startswith(message + ": make it again")
  assert sorted(read_numbers(files, skip_corrupt=True)) == (
      [5] * good + [15] * 4)
  assert "damaged" not in caplog.text
  assert capfd.readouterr().err.count(
      message + " and are left out\n") == 1
  assert record_files.count_batches(files, 2) == (good + 4) // 2
  with pytest.raises(errors.InputError, match="less than one batch of 13"):
    record_files.count_batches(files, 13)


def test_a_start_does_not_take_longer_for_large_files(tmp_path, monkeypatch):
  read = []
  iterator = tf.io.tf_record_iterator
  monkeypatch.setattr(tf.io, "tf_record_iterator",
                      lambda path: read.append(path) or iterator(path))
  paths = [str(tmp_path / str(number)) for number in range(200)]
  for path in paths:
    write(path, [5] * 3)
    os.truncate(path, 1 << 35)  # sparse, and damaged after three records
  files = record_files.check_records(paths, SPECS)
  assert [file[:2] for file in files] == [(path, 1 << 35) for path in paths]
  assert not read
  with pytest.raises(errors.InputError, match="0: not a readable tfrecord file "
                     "after 3 records"):
    record_files.check_records(paths[:1], SPECS, read_all=True)
  assert read == paths[:1]


def flip(data, position):
  return (data[:position] + bytes([data[position] ^ 1]) +
          data[position + 1:])


def test_no_readable_record_at_all(tmp_path):
  (tmp_path / "a").write_bytes(b"damaged from the first byte on")
  with pytest.raises(errors.InputError, match="no readable record"):
    record_files.check_records([str(tmp_path / "a")], SPECS, skip_corrupt=True)


@pytest.mark.parametrize("lengths", [[range(1, 9), range(9, 17)],
                                     [range(1, 9), range(9, 13), range(13, 17)],
                                     [range(1, 17)]])
def test_readers_share_the_records_without_overlap(tmp_path, lengths):
  """By files where there are enough for two readers, else by records."""
  paths = [tmp_path / str(number) for number in range(len(lengths))]
  for path, numbers in zip(paths, lengths):
    write(path, numbers)
  seen = []
  for reader in (0, 1):
    tf.reset_default_graph()
    batches = read(paths, 6, batch_size=2, is_training=True, pad_to_max=True,
                   shard=(2, reader))
    seen.append({n for batch in batches for n in batch["number"]})
  assert not seen[0] & seen[1]
  assert seen[0] | seen[1] == set(range(1, 17))


def test_parts_of_files_are_equally_large():
  """As counted in records of one size, whatever the numbers."""
  for number, readers in itertools.product(range(1, 17), range(1, 10)):
    sizes = [100 * (1 + i * 7 % 5) for i in range(number)]
    files = [record_files.RecordFile(str(i), size)
             for i, size in enumerate(sizes)]
    read = [[(file.path, record) for file, start, end in
             records.file_parts(files, readers, reader)
             for record in range(0, file.size, 20) if start <= record < end]
            for reader in range(readers)]
    assert sorted(itertools.chain(*read)) == sorted(
        (file.path, record) for file in files
        for record in range(0, file.size, 20))
    assert max(map(len, read)) - min(map(len, read)) <= 1, (number, readers)


@pytest.mark.parametrize("number, readers", [(1, 1), (10, 8), (5, 3), (2, 9)])
def test_readers_read_each_record_once(tmp_path, number, readers):
  paths = [str(tmp_path / str(i)) for i in range(number)]
  for i, path in enumerate(paths):
    write(path, [1 + i % 3] * (i * 7 % 5 + 4))  # records of different sizes
  files = [record_files.record_file(path) for path in paths]
  shares = [read_numbers(files, shard=(readers, reader))
            for reader in range(readers)]
  count = sum(i * 7 % 5 + 4 for i in range(number))
  assert sorted(itertools.chain(*shares)) == sorted(read_numbers(files))
  assert max(abs(len(share) - count / readers) for share in shares) <= 1


def test_two_readers_read_the_batch_of_one(tmp_path):
  write(tmp_path / "a", range(1, 13))

  def batches(batch_size, shard):
    tf.reset_default_graph()
    return [set(batch["number"]) for batch in read(
        [tmp_path / "a"], 3, batch_size=batch_size, is_training=True,
        pad_to_max=True, shuffle_buffer=1, shard=shard)]

  first, second = batches(2, (2, 0)), batches(2, (2, 1))
  assert [a | b for a, b in zip(first, second)] == batches(4, (1, 0))


_MANY_SESSIONS = """
import sys
import tensorflow.compat.v1 as tf
from albert.files import record_files, records
tf.disable_eager_execution()
files = [record_files.record_file(path) for path in sys.argv[1:]]
specs = [records.FeatureSpec("input_ids", "int", 64)]
for number in range(30):
  tf.reset_default_graph()
  batch = tf.data.make_one_shot_iterator(records.input_fn_builder(
      files, specs, is_training=True)({"batch_size": 64})).get_next()
  with tf.Session() as session:
    for _ in range(3):
      session.run(batch)
"""


def test_a_session_may_end_while_files_are_read(tmp_path):
  specs = [FeatureSpec("input_ids", "int", 64)]
  paths = [str(tmp_path / name) for name in "abc"]
  for path in paths:
    records.write_records(path, [records.serialize(
        {"input_ids": list(range(64))}, specs)] * 3000)
  done = subprocess.run(
      [sys.executable, "-c", _MANY_SESSIONS] + paths, cwd=os.path.dirname(
          tokenization.__file__), stderr=subprocess.PIPE)
  assert done.returncode == 0, done.stderr.decode()[-2000:]


def test_hosts_of_a_tpu_pod_share_the_records(tmp_path):
  write(tmp_path / "a", range(1, 9))

  class Context:
    def __init__(self, host):
      self.host = host

    def current_input_fn_deployment(self):
      return "/task:%d/device:CPU:0" % self.host, self.host, 2, 4

  seen = []
  for host in (0, 1):
    tf.reset_default_graph()
    input_fn = records.input_fn_builder(
        [record_files.record_file(str(tmp_path / "a"))], SPECS, True, 20, True)
    batch = tf.data.make_one_shot_iterator(input_fn(
        {"batch_size": 4, "context": Context(host)})).get_next()
    with tf.Session() as session:
      seen.append(set(session.run(batch)["number"]))
  assert seen[0] | seen[1] == set(range(1, 9))


def test_patterns(tmp_path):
  for name in ("a1", "a2", "b"):
    (tmp_path / name).write_bytes(b"")
  pattern = "%s/a*,%s/b" % (tmp_path, tmp_path)
  assert record_files.expand_patterns(pattern, "x") == [
      str(tmp_path / name) for name in ("a1", "a2", "b")]
  with pytest.raises(errors.InputError, match="--x: no file matches .*/c"):
    record_files.expand_patterns(str(tmp_path / "c"), "x")


def test_an_interrupted_writer_leaves_no_file(tmp_path):
  def interrupted():
    yield b"x"
    raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    records.write_records(str(tmp_path / "a"), interrupted())
  assert not os.listdir(str(tmp_path))
