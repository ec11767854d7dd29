"""Sharded records are as well mixed as by one global shuffle."""

import gc
import json
import os
import pathlib
import resource
import types

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from reading import features
from scripting import ROOT, VOCAB, fail, succeed
from small_steps import full
from vocabularies import VOCAB_FILE

from albert.data import shards
from albert.files import records

SCRIPT = "create_pretraining_data.py"
TEXT = "--input_file=%s" % (ROOT / "data" / "text_train.txt")
SPECS = [records.FeatureSpec("passage", "int", 0)]
PASSES, SHARDS, PASSAGES = 10, 20, 200
TOTAL = SHARDS * PASSAGES
BATCH = 1024


class NumberMaker(shards.ShardMaker):
  """Makes PASSES records of each passage, holding its number."""

  more_counts = {}

  def __init__(self, folder, num_buckets=7):
    super().__init__(
      None,
      types.SimpleNamespace(
        max_seq_length=1,
        max_predictions_per_seq=1,
        random_seed=1,
        dupe_factor=PASSES,
      ),
      num_buckets,
      str(folder),
    )

  def serialized_records(self, texts, shard_index, counts):
    numbers = np.repeat(np.arange(PASSAGES) + shard_index * PASSAGES, PASSES)
    counts.update(self.more_counts, records=len(numbers))
    made = [records.serialize({"passage": int(n)}, SPECS) for n in numbers]
    return made, self._random(1, shard_index).randint(
      self._num_buckets, size=len(made)
    )


def write(paths, num_buckets=7):
  """Makes and writes the records of a text of SHARDS shards."""
  maker = NumberMaker(paths[0].parent, num_buckets)
  reader = types.SimpleNamespace(shards=lambda: [[]] * SHARDS, share_read=1.0)
  num_shards, counts = shards.make_shards(reader, maker, 2)
  shards.write_outputs(
    maker, num_shards, counts["records"], list(map(str, paths)), 2
  )


@pytest.mark.slow
@pytest.mark.parametrize("num_outputs", [10, full(1), full(100)])
def test_batches_are_as_mixed_as_a_perfect_shuffle(tmp_path, num_outputs):
  paths = [tmp_path / ("out-%d" % i) for i in range(num_outputs)]
  write(paths, max(7, num_outputs))
  numbers = [[row["passage"][0] for row in features(path)] for path in paths]
  assert {len(part) for part in numbers} == {PASSES * TOTAL // num_outputs}
  assert (np.bincount(np.concatenate(numbers)) == PASSES).all()

  input_fn = records.input_fn_builder(
    [records.record_file(str(path)) for path in paths],
    SPECS,
    is_training=True,
    seed=3,
  )
  with tf.Session() as session:
    batch = tf.data.make_one_shot_iterator(
      input_fn({"batch_size": BATCH})
    ).get_next()["passage"]
    order = np.concatenate(
      [session.run(batch) for _ in range(PASSES * TOTAL // BATCH)]
    )
  expected = TOTAL * (1 - (1 - BATCH / (PASSES * TOTAL)) ** PASSES)
  for batch in order.reshape(-1, BATCH):
    assert len(set(batch)) > 0.95 * expected
  # The first 14 of 20 shards stand for one source.
  for tenth in np.array_split(order, 10):
    assert abs((tenth < 0.7 * TOTAL).mean() - 0.7) < 0.03


def test_more_files_than_may_be_open(tmp_path):
  paths = [tmp_path / ("out-%d" % i) for i in range(150)]
  limits = resource.getrlimit(resource.RLIMIT_NOFILE)
  resource.setrlimit(
    resource.RLIMIT_NOFILE,
    (max(map(int, os.listdir("/proc/self/fd"))) + 50, limits[1]),
  )
  try:
    write(paths)
  finally:
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
  assert all(path.stat().st_size for path in paths)


def test_outputs_appear_together_or_not_at_all(tmp_path, monkeypatch):
  read = NumberMaker.read_bucket

  def read_bucket(maker, num_shards, bucket):
    if bucket == 6:  # the last bucket
      raise OSError(28, "No space left on device")
    return read(maker, num_shards, bucket)

  monkeypatch.setattr(NumberMaker, "read_bucket", read_bucket)
  paths = [tmp_path / ("out-%d" % i) for i in range(3)]
  for path in paths:
    path.write_text("before")
  with pytest.raises(OSError, match="No space left on device: .*out-"):
    write(paths)
  assert [path.read_text() for path in paths] == ["before"] * 3
  assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.slow
@pytest.mark.parametrize(
  "content, message",
  [
    ("一句话。\n又一句话。\n".encode(), " 3 files"),
    ("这是一句话。\n".encode("gbk") * 99, "a.txt: 99 .*iconv -f gbk"),
  ],
)
def test_text_that_makes_no_records(content, message, tmp_path):
  (tmp_path / "a.txt").write_bytes(content)
  fail(
    message,
    SCRIPT,
    VOCAB,
    "--input_file=%s" % (tmp_path / "a.txt"),
    "--output_dir=%s" % tmp_path,
    "--num_output_shards=3",
    "--dupe_factor=1",
  )
  assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.slow
def test_the_vocabulary_is_next_to_the_records(tmp_path, spm_file):
  """A folder has exactly one, so that a model can be built from it."""
  content = pathlib.Path(VOCAB_FILE).read_bytes()
  folders = [tmp_path / name for name in ("a", "b")]
  args = [SCRIPT, TEXT.replace("=", "=file://"), "--dupe_factor=1"]
  outputs = "--output_file=" + ",".join(
    "file://%s" % (folder / "x.tfrecord") for folder in folders
  )

  def found():
    return [
      {path.name: path.read_bytes() for path in folder.iterdir()}
      for folder in folders
    ]

  for _ in range(2):  # the same vocabulary may exist
    succeed(*args, VOCAB.replace("=", "=file://"), outputs)
    for files in found():
      assert files["vocab.txt"] == content
      assert set(files) == {"vocab.txt", "x.tfrecord", "x.tfrecord.json"}
  before, other = found(), tmp_path / "other.txt"
  other.write_bytes(content.replace(b"[unused1]\n", b"[unused0]\n"))
  for output in (outputs, "--output_dir=%s" % folders[1]):
    fail("[ab]/vocab.txt .*other.txt", *args, "--vocab_file=%s" % other, output)
  assert found() == before
  succeed(
    *args,
    "--spm_model_file=" + spm_file,
    "--output_dir=%s" % tmp_path,
    "--num_output_shards=1",
  )
  assert (tmp_path / "spm.model").read_bytes() == (
    pathlib.Path(spm_file).read_bytes()
  )
  assert not (tmp_path / "vocab.txt").exists()


def test_a_shard_is_finished_where_all_its_files_are_whole(tmp_path):
  maker, counts = NumberMaker(tmp_path, 1), {"records": 3, "bytes": 9}
  files = {".json": json.dumps(counts), ".index": "i" * 32, "": "r" * 9}
  for are_there in (False, True):
    for suffix, content in files.items():
      path = tmp_path / ("shard-0000001" + suffix)
      if are_there:
        path.write_text(content[:-1])
      assert maker.read_counts(1) is None
      path.write_text(content)
    assert list(map(maker.read_counts, range(3))) == [None, counts, None]


@pytest.mark.parametrize("dropped, warned", [(9, False), (11, True)])
def test_much_text_that_is_left_out_is_warned_of(dropped, warned, caplog):
  counts = {"dropped_tokens": dropped, "text_tokens": 100}
  assert shards.loses_much(counts, 2) == warned
  assert ("5.5% of the tokens are dropped" in caplog.text) == warned


def test_it_is_warned_of_while_the_text_is_read(tmp_path, caplog, monkeypatch):
  monkeypatch.setattr(
    NumberMaker,
    "more_counts",
    {"dropped_tokens": PASSES * 50, "text_tokens": 100},
  )
  warned = []

  def read():
    for _ in range(SHARDS):
      warned.append("50.0% of the tokens are dropped so far" in caplog.text)
      yield []

  shards.make_shards(
    types.SimpleNamespace(shards=read, share_read=1.0), NumberMaker(tmp_path), 1
  )
  assert warned[-1] and caplog.text.count("dropped so far") == 1


def test_a_worker_collects_nothing_that_it_inherits():
  """Collecting an inherited ONNX Runtime session would hang on its threads."""
  with shards._pool(None, 1) as pool:
    assert pool.submit(gc.get_freeze_count).result() > 10000
