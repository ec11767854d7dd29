"""The writer, the parser and the order in which records are read."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import errors
import records
from records import FeatureSpec

SPECS = [FeatureSpec("input_ids", "int", None),
         FeatureSpec("pair", "float", 2), FeatureSpec("number", "int", 0)]


def write(path, lengths):
  return records.write_records(str(path), (
      records.serialize({"input_ids": [n] * n, "pair": [n, 0.5], "number": n},
                        SPECS) for n in lengths))


def read(paths, count, batch_size=4, **kwargs):
  input_fn = records.input_fn_builder(
      [records.RecordFile(str(p)) for p in paths], SPECS, max_length=20, **kwargs)
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


def test_predictions_keep_the_order(tmp_path):
  lengths = [20, 1, 9, 3, 17, 2]
  write(tmp_path / "a", lengths)
  batches = read([tmp_path / "a"], 3, batch_size=2, is_training=False,
                 keep_order=True)
  assert [n for batch in batches for n in batch["number"]] == lengths
  assert [batch["input_ids"].shape for batch in batches] == [
      (2, 20), (2, 9), (2, 17)]


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
  records.check_records([path], SPECS)
  with pytest.raises(errors.InputError, match="a: 'pair' has 2 values.*say 3"):
    records.check_records([path], [FeatureSpec("pair", "float", 3)])
  with pytest.raises(errors.InputError, match="a: records have no feature 'x'"):
    records.check_records([path], [FeatureSpec("x", "int", 4)])
  (tmp_path / "empty").write_bytes(b"")
  with pytest.raises(errors.InputError, match="empty: has no records"):
    records.check_records([str(tmp_path / "empty")], SPECS)
  (tmp_path / "text").write_bytes(b"not a record file at all")
  with pytest.raises(errors.InputError, match="text: not a readable tfrecord"):
    records.check_records([str(tmp_path / "text")], SPECS)


def test_patterns(tmp_path):
  for name in ("a1", "a2", "b"):
    (tmp_path / name).write_bytes(b"")
  pattern = "%s/a*,%s/b" % (tmp_path, tmp_path)
  assert records.expand_patterns(pattern, "x") == [
      str(tmp_path / name) for name in ("a1", "a2", "b")]
  with pytest.raises(errors.InputError, match="--x: no file matches .*/c"):
    records.expand_patterns(str(tmp_path / "c"), "x")


def test_an_interrupted_writer_leaves_no_file(tmp_path):
  def interrupted():
    yield b"x"
    raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    records.write_records(str(tmp_path / "a"), interrupted())
  assert not (tmp_path / "a").exists()
