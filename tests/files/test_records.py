"""Writing, parsing and reading order of records."""

import itertools
import os
import re
import types

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from refusals import refused
from writing import write as write_file

from albert.files import records
from albert.files.records import FeatureSpec

SPECS = [
  FeatureSpec("input_ids", "int", None),
  FeatureSpec("pair", "float", 2),
  FeatureSpec("number", "int", 0),
]


def write(path, lengths):
  return records.write_records(
    str(path),
    (
      records.serialize(
        {"input_ids": [n] * n, "pair": [n, 0.5], "number": n}, SPECS
      )
      for n in lengths
    ),
  )


def read(
  files,
  batch_size=4,
  count=None,
  specs=SPECS,
  is_training=False,
  params=(),
  **kwargs,
):
  """Reads `count` batches, by default all: a list of dicts of arrays."""
  tf.reset_default_graph()
  input_fn = records.input_fn_builder(
    [
      file
      if isinstance(file, records.RecordFile)
      else records.record_file(str(file))
      for file in files
    ],
    specs,
    is_training,
    max_length=20,
    **kwargs,
  )
  batch = tf.data.make_one_shot_iterator(
    input_fn(dict(params, batch_size=batch_size))
  ).get_next()
  batches = []
  with tf.Session() as session:
    try:
      while len(batches) != count:
        batches.append(session.run(batch))
    except tf.errors.OutOfRangeError:
      assert count is None
  return batches


def numbers(batches):
  return [tuple(batch["number"]) for batch in batches]


def train(files, count, **kwargs):
  """Returns the record numbers of training batches of two."""
  return numbers(
    read(files, 2, count, is_training=True, pad_to_max=True, **kwargs)
  )


def test_what_is_written_is_read(tmp_path):
  sizes = write(tmp_path / "a", [1, 3, 2])
  assert sizes.sum() + 16 * len(sizes) == os.path.getsize(str(tmp_path / "a"))
  (batch,) = read([tmp_path / "a"])
  np.testing.assert_array_equal(batch["number"], [1, 3, 2])
  np.testing.assert_array_equal(batch["pair"], [[1, 0.5], [3, 0.5], [2, 0.5]])
  # Padded to a multiple of 8.
  np.testing.assert_array_equal(
    batch["input_ids"], [[1] + [0] * 7, [3] * 3 + [0] * 5, [2] * 2 + [0] * 6]
  )
  assert batch["number"].dtype == np.int32

  def interrupted():
    yield b"x"
    raise KeyboardInterrupt

  before = (tmp_path / "a").read_bytes()
  with pytest.raises(KeyboardInterrupt):
    records.write_records(str(tmp_path / "a"), interrupted())
  assert (tmp_path / "a").read_bytes() == before
  assert os.listdir(str(tmp_path)) == ["a"]


def test_batches_are_of_like_length(tmp_path):
  lengths = list(range(1, 21)) * 4
  write(tmp_path / "a", lengths)
  batches = read([tmp_path / "a"])
  for batch in batches:
    longest = batch["number"].max()
    assert batch["input_ids"].shape[1] == min(-(-longest // 8) * 8, 20)
  assert sorted(sum(numbers(batches), ())) == sorted(lengths)
  for batch in read([tmp_path / "a"], count=20, pad_to_max=True):
    assert batch["input_ids"].shape == (4, 20)


@pytest.mark.parametrize(
  "sizes, more, starts",
  [
    ([9, 4, 30, 0, 17], {}, (1, 4, 15, 49)),
    ([60], {"shard": (2, 1)}, (14, 31)),
    ([20] * 3, {"shard": (2, 0)}, (14, 30)),
  ],
)
def test_training_goes_on_in_the_middle(tmp_path, sizes, more, starts):
  """Of a pass, a file and a shuffle window."""
  files, numbers_of = [], itertools.cycle(range(1, 21))
  for number, size in enumerate(sizes):
    files.append(tmp_path / str(number))
    write(files[-1], itertools.islice(numbers_of, size))
  whole = train(files, 50, shuffle_buffer=8, seed=3, **more)
  assert len(set(whole[:15])) > 5
  assert train(files, 50, shuffle_buffer=8, seed=4, **more) != whole
  for start in starts:
    assert (
      train(files, 50 - start, shuffle_buffer=8, seed=3, start=start, **more)
      == whole[start:]
    )


def test_a_file_that_does_not_fit_is_named(tmp_path):
  write(tmp_path / "a", [3])
  write_file(tmp_path, "empty")
  write_file(tmp_path, "text", "not a record file at all")
  segments = FeatureSpec("segment_ids", "int", None, limit=2)
  for name, ids in (("two", [0, 1, 1]), ("three", [0, 1, 2])):
    records.write_records(
      str(tmp_path / name),
      [records.serialize({"segment_ids": ids}, [segments])],
    )
  records.check_records([str(tmp_path / "two")], [segments])
  for name, message, *args in (
    ("a", "2 .*'pair'.* 3", [FeatureSpec("pair", "float", 3)]),
    ("a", "'x'", [FeatureSpec("x", "int", 4)]),
    ("empty", "no rec", SPECS),
    ("text", "not a readable tfrecord", SPECS),
    ("text", "no readable record", SPECS, True),
    ("three", "record 1 .*'segment_ids' .* 0 and 1", [segments]),
  ):
    refused(
      name + ": .*" + message,
      records.check_records,
      [str(tmp_path / name)],
      *args,
    )


@pytest.mark.parametrize(
  "whole, byte, is_cut, good",
  [
    (3, -5, True, 2),
    (2, 4, True, 2),  # truncated in a record, in its length
    # A flipped bit in the fourth record's content, in the third's length.
    (3, 30, False, 3),
    pytest.param(2, 1, False, 2, marks=pytest.mark.slow),
  ],
)
def test_a_damaged_file(tmp_path, whole, byte, is_cut, good, caplog):
  write(tmp_path / "whole", [15] * 4)
  bad = tmp_path / "\u574f [1]"
  write(bad, [5] * 8)
  data = bytearray(bad.read_bytes())
  record = len(data) // 8
  data[whole * record + byte] ^= 1
  if is_cut:
    del data[whole * record + byte :]
  bad.write_bytes(data)
  paths, size = [str(bad), str(tmp_path / "whole")], len(data)
  lost = "%d of %d bytes" % (size - good * record, size)
  # A full scan before training.
  refused(
    "\u574f .1.: .* after %d rec" % good,
    records.check_records,
    paths,
    SPECS,
    read_all=True,
  )
  files = records.check_records(paths, SPECS, skip_corrupt=True)
  message = "%s: damaged after %d records, %s" % (bad, good, lost)
  assert message in caplog.text
  assert sorted(sum(numbers(read(files)), ())) == [5] * good + [15] * 4
  assert records.count_batches(files, 2) == (good + 4) // 2
  refused("less than .* 13", records.count_batches, files, 13)
  # Only first records are checked: training meets the damage.
  reader = records.Reader(paths, SPECS)
  with pytest.raises(tf.errors.OpError) as raised:
    read(reader.files())
  refused("^" + re.escape(message), reader.files, raised.value)


@pytest.mark.parametrize("readers", [1, 2])
def test_records_that_do_not_fit_are_named_or_left_out(tmp_path, readers):
  specs = [FeatureSpec("x", "int", 2, limit=9), FeatureSpec("number", "int", 0)]

  def record(number, *x):
    return records.serialize(
      {"x": x, "number": number}, [specs[0]._replace(length=len(x)), specs[1]]
    )

  for name, x in (("a", (9, 1)), ("b", (-1, 1)), ("c", (1, 1, 1))):
    records.write_records(
      str(tmp_path / name),
      [record(1, 1, 1), record(2, *x), *[record(3, 8, 0)] * 98],
    )
  paths = sorted(map(str, tmp_path.iterdir()))
  for path, what in zip(paths, ("'x' .* 0 and 8", "'x' .* 0 and 8", "3 val")):
    refused(
      "%s: record 2 has .*%s" % (path, what),
      records.check_records,
      [path],
      specs,
      read_all=True,
    )
  files = records.check_records(paths, specs, skip_corrupt=True)
  assert [file.count for file in files] == [99] * 3
  shares = [
    numbers(
      read(files, 33, 9 // readers, specs, True, params={}, shard=(readers, i))
    )
    for i in range(readers)
  ]
  assert not any(2 in batch for share in shares for batch in share)
  found = sum(numbers(read(files, specs=specs)), ())
  assert sorted(found) == [1] * 3 + [3] * 294


@pytest.mark.parametrize("state", "gone folder back empty cut whole".split())
@pytest.mark.parametrize("skip_corrupt", [False, True])
def test_files_that_are_gone(tmp_path, state, skip_corrupt, monkeypatch):
  for name in "ab":
    write(tmp_path / name, [5] * 4)
  path, slept = tmp_path / "a", []
  content = path.read_bytes()
  reader = records.Reader([str(path), str(tmp_path / "b")], SPECS, skip_corrupt)
  path.unlink()
  if state == "folder":
    path.mkdir()
  elif state in ("empty", "cut"):
    path.write_bytes(content[: len(content) // 2 if state == "cut" else 0])
  with pytest.raises(tf.errors.OpError) as raised:
    read(reader.files())
  if state == "whole":
    path.write_bytes(content)

  def sleep(seconds):
    slept.append(seconds)
    if state == "back" and len(slept) == 2:
      path.write_bytes(content)

  monkeypatch.setattr(records, "time", types.SimpleNamespace(sleep=sleep))
  kept = {"back": 8, "whole": 8}.get(state, 4 + 2 * (state == "cut"))
  if kept < 8 and not skip_corrupt:
    message = {"empty": "no records", "cut": "has changed"}.get(
      state, "not a readable tfrecord file .*director"
    )
    refused("^%s: .*%s" % (path, message), reader.files, raised.value)
  else:
    assert len(sum(numbers(read(reader.files(raised.value))), ())) == kept
  assert len(slept) == {"gone": 3, "folder": 3, "back": 2}.get(state, 0)


def test_an_error_that_stays_or_is_not_of_reading_is_raised(tmp_path):
  write(tmp_path / "a", [5, 15, 15, 15])  # different sizes: no count
  for kind, message, tries in (
    (tf.errors.UnknownError, "in IteratorGetNext", 3),
    (tf.errors.InvalidArgumentError, "in Gather", 0),
  ):
    reader = records.Reader([str(tmp_path / "a")], SPECS)
    for _ in range(tries):
      reader.files(kind(None, None, message))
    with pytest.raises(kind):
      reader.files(kind(None, None, message))
  (tmp_path / "a").unlink()  # not read again
  with pytest.raises(tf.errors.ResourceExhaustedError):
    reader.files(tf.errors.ResourceExhaustedError(None, None, "in MatMul"))


def test_a_start_does_not_take_longer_for_large_files(tmp_path, monkeypatch):
  scanned = []
  iterator = tf.io.tf_record_iterator
  monkeypatch.setattr(
    tf.io,
    "tf_record_iterator",
    lambda path: scanned.append(path) or iterator(path),
  )
  paths = [str(tmp_path / str(number)) for number in range(9)]
  for path in paths:
    write(path, [5] * 3)
    os.truncate(path, 1 << 35)  # sparse, damaged after three records
  files = records.check_records(paths, SPECS)
  assert [file[:2] for file in files] == [(path, 1 << 35) for path in paths]
  assert not scanned
  refused(
    "0: .* after 3 records",
    records.check_records,
    paths[:1],
    SPECS,
    read_all=True,
  )
  assert scanned == paths[:1]


def test_parts_of_files_are_equally_large():
  """To within one record, for any number of files and readers."""
  for number, readers in itertools.product(range(1, 17), range(1, 10)):
    sizes = [100 * (1 + i * 7 % 5) for i in range(number)]
    files = [records.RecordFile(str(i), size) for i, size in enumerate(sizes)]
    shares = [
      [
        (file.path, record)
        for file, start, end in records.file_parts(files, readers, reader)
        for record in range(0, file.size, 20)
        if start <= record < end
      ]
      for reader in range(readers)
    ]
    assert sorted(sum(shares, [])) == sorted(
      (str(i), record)
      for i, size in enumerate(sizes)
      for record in range(0, size, 20)
    )
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def of_host(number):
  """Params of input_fn on one of two TPU hosts with four cores each."""
  return {
    "context": types.SimpleNamespace(
      current_input_fn_deployment=lambda: (
        "/task:%d/device:CPU:0" % number,
        number,
        2,
        4,
      )
    )
  }


def test_readers_share_the_records_without_overlap(tmp_path):
  """By file if there are enough files for the readers, else by record."""
  files = [tmp_path / str(i) for i in range(3)]
  for i, path in enumerate(files):
    write(path, [1 + i % 3] * (i * 7 % 5 + 4))  # records of different sizes
  shares = [
    sum(train(files, count, shard=(2, reader)), ())
    for reader, count in ((0, 5), (1, 4))
  ]
  assert sorted(sum(shares, ())) == [1] * 4 + [2] * 6 + [3] * 8
  write(files[0], range(1, 13))
  halves = [
    train(files[:1], 3, shuffle_buffer=1, **more)
    for more in ({"shard": (2, 0)}, {"shard": (2, 1)})
  ]
  assert halves == [
    train(files[:1], 3, shuffle_buffer=1, params=of_host(host))
    for host in range(2)
  ]
  # Per step, a host reads one batch for each of its four cores.
  assert train(files[:1], 3, start=1, params=of_host(1)) == train(
    files[:1], 3, start=4, shard=(2, 1)
  )
  # Together they read the batches of a single reader.
  assert [set(a + b) for a, b in zip(*halves)] == list(
    map(
      set,
      numbers(
        read(
          files[:1], 4, 3, is_training=True, pad_to_max=True, shuffle_buffer=1
        )
      ),
    )
  )


@pytest.mark.full
def test_a_session_may_end_while_files_are_read(tmp_path):
  """TF 1.15 must not crash."""
  specs = [FeatureSpec("input_ids", "int", 64)]
  files = [tmp_path / name for name in "abc"]
  record = records.serialize({"input_ids": list(range(64))}, specs)
  for path in files:
    records.write_records(str(path), [record] * 3000)
  for _ in range(10):
    assert len(read(files, 64, 3, specs, is_training=True)) == 3


def test_patterns(tmp_path):
  for name in ("a1", "a2", "b"):
    write_file(tmp_path, name)
  assert records.expand_patterns("%s/a*,%s/b" % (tmp_path, tmp_path), "x") == [
    str(tmp_path / name) for name in ("a1", "a2", "b")
  ]


def test_descriptions_that_differ(tmp_path, caplog):
  """Different labels are an error, different masking is logged once."""
  caplog.set_level("INFO", "absl")
  for i, (masking, pair) in enumerate(
    (("word", "sop"), ("ngram", "sop"), ("ngram", "sop"), ("word", "nsp"))
  ):
    write_file(
      tmp_path, "%d.json" % i, {"masking": masking, "sentence_pair": pair}
    )
  paths = [str(tmp_path / name) for name in "0123x"]

  def check(paths):
    return records.check_descriptions(
      paths, {"sentence_pair": None}, may_differ=["masking"]
    )

  assert check(paths[:3] + paths[4:]) == {
    "sentence_pair": "sop",
    "masking": "word",
  }
  assert caplog.messages == [
    "%s was made with masking ngram, but %s has word" % (paths[1], paths[0])
  ]
  refused("3 was .* sentence_pair nsp, .*/0 has sop", check, paths)
