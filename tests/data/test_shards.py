"""Records come out as if all of them had been shuffled once."""

import pathlib
import resource
import subprocess
import types

import numpy as np
import pytest
import scripting
import tensorflow.compat.v1 as tf
from scripting import ROOT, VOCAB, fail, succeed

from albert.data import shards
from albert.files import filesystem, record_files, records

pytestmark = [pytest.mark.slow, pytest.mark.once]

TEXT = ROOT / "data" / "text_train.txt"
SPECS = [records.FeatureSpec("passage", "int", 0)]
PASSES, SHARDS, PASSAGES = 10, 20, 1000


class NumberMaker(shards.ShardMaker):
  """Makes records that are the numbers of passages, each PASSES times."""

  def __init__(self, num_buckets, folder):
    super().__init__(None, types.SimpleNamespace(
        max_seq_length=1, max_predictions_per_seq=1, random_seed=1),
                     num_buckets, folder)

  def serialized_records(self, texts, shard_index, counts):
    numbers = np.repeat(np.arange(PASSAGES) + shard_index * PASSAGES, PASSES)
    counts["records"] += len(numbers)
    made = [records.serialize({"passage": int(n)}, SPECS) for n in numbers]
    return made, self._random(1, shard_index).randint(
        self._num_buckets, size=len(made))


class NumberReader:
  """Stands for a text of SHARDS shards."""
  share_read = 1.0

  def shards(self):
    return ([] for _ in range(SHARDS))


def training_order(paths):
  """Returns the passages in the order in which training reads them."""
  input_fn = records.input_fn_builder(
      list(map(record_files.record_file, paths)), SPECS, is_training=True,
      seed=3)
  with tf.Graph().as_default(), tf.Session() as session:
    batch = tf.data.make_one_shot_iterator(
        input_fn({"batch_size": 4096})).get_next()["passage"]
    total = PASSES * SHARDS * PASSAGES
    return np.concatenate([session.run(batch) for _ in range(
        total // 4096)])


@pytest.mark.parametrize("num_outputs", [1, 10, 100])
def test_batches_are_as_mixed_as_a_perfect_shuffle(tmp_path, num_outputs):
  maker = NumberMaker(max(7, num_outputs), str(tmp_path))
  num_shards, counts = shards.make_shards(NumberReader(), maker, 2)
  paths = [str(tmp_path / ("out-%d" % i)) for i in range(num_outputs)]
  shards.write_outputs(maker, num_shards, counts["records"], paths, 2)

  numbers = [records_of(path) for path in paths]
  assert {len(part) for part in numbers} == {
      PASSES * SHARDS * PASSAGES // num_outputs}
  assert (np.bincount(np.concatenate(numbers)) == PASSES).all()

  order = training_order(paths)
  total = SHARDS * PASSAGES
  expected = total * (1 - (1 - 4096 / (PASSES * total)) ** PASSES)
  for batch in order.reshape(-1, 4096):
    assert len(set(batch)) > 0.95 * expected
  # The first 14 of the 20 shards are one source.
  for tenth in np.array_split(order, 10):
    assert abs((tenth < 0.7 * total).mean() - 0.7) < 0.03


class FailingMaker(NumberMaker):
  """Cannot read its last bucket."""

  def read_bucket(self, num_shards, bucket):
    if bucket == self._num_buckets - 1:
      raise OSError(28, "No space left on device")
    return super().read_bucket(num_shards, bucket)


def test_outputs_appear_together_or_not_at_all(tmp_path):
  maker = FailingMaker(7, str(tmp_path))
  num_shards, counts = shards.make_shards(NumberReader(), maker, 2)
  paths = [tmp_path / ("out-%d" % i) for i in range(3)]
  for path in paths:
    path.write_text("before")
  with pytest.raises(OSError, match="No space left on device: .*out-"):
    shards.write_outputs(maker, num_shards, counts["records"],
                         [str(path) for path in paths], 2)
  assert [path.read_text() for path in paths] == ["before"] * 3
  assert not list(tmp_path.glob("*.tmp"))


def records_of(path):
  return [tf.train.Example.FromString(record).features.feature[
      "passage"].int64_list.value[0] for record in tf.io.tf_record_iterator(
          str(path))]


def make(folder, *args, **kwargs):
  succeed("create_pretraining_data.py", VOCAB, "--input_file=%s" % TEXT,
          "--max_seq_length=32", "--max_predictions_per_seq=5",
          "--shard_characters=2000", "--dupe_factor=2", *args, **kwargs)
  return [path.read_bytes() for path in sorted(
      pathlib.Path(folder).glob("*.tfrecord"))]


def test_workers_and_buckets(tmp_path):
  """The number of workers does not matter; a file system may be remote."""
  local = make(tmp_path / "a", "--output_dir=%s" % (tmp_path / "a"),
               "--num_output_shards=3", "--num_workers=1")
  assert len(local) == 3
  assert make(
      tmp_path / "b", "--output_dir=file://%s" % (tmp_path / "b"),
      "--num_output_shards=3", "--num_workers=3",
      "--input_file=file://%s" % TEXT,
      VOCAB.replace("=", "=file://")) == local
  assert filesystem.read_json(str(tmp_path / "a" / "records.json")) == (
      filesystem.read_json(str(tmp_path / "b" / "records.json")))


def test_more_files_than_may_be_open(tmp_path):
  subprocess.run(
      scripting.command(
          "create_pretraining_data.py", VOCAB, "--input_file=%s" % TEXT,
          "--max_seq_length=16", "--max_predictions_per_seq=3",
          "--num_output_shards=2000", "--output_dir=%s" % tmp_path),
      check=True, stderr=subprocess.PIPE,
      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)))
  assert len(list(tmp_path.glob("*.tfrecord"))) == 2000
  assert all(path.stat().st_size for path in tmp_path.glob("*.tfrecord"))


def test_fewer_records_than_files(tmp_path):
  (tmp_path / "short.txt").write_text("一句话。\n又一句话。\n",
                                      encoding="utf-8")
  fail("1 records are too few for 3 files", "create_pretraining_data.py", VOCAB,
       "--input_file=%s" % (tmp_path / "short.txt"), "--dupe_factor=1",
       "--output_dir=%s" % tmp_path, "--num_output_shards=3")
  assert [path.name for path in tmp_path.iterdir()] == ["short.txt"]


def test_text_of_another_encoding(tmp_path):
  (tmp_path / "gbk.txt").write_bytes("这是一句话。\n".encode("gbk") * 99)
  fail("gbk.txt: 99 of the first .* lines are not UTF-8; .*iconv -f gbk",
       "create_pretraining_data.py", VOCAB, "--output_dir=%s" % tmp_path,
       "--input_file=%s" % (tmp_path / "gbk.txt"))
  assert [path.name for path in tmp_path.iterdir()] == ["gbk.txt"]


def test_the_vocabulary_is_next_to_the_records(tmp_path):
  """So that a model can be made of the folder; it has one vocabulary."""
  content = pathlib.Path(VOCAB.split("=")[1]).read_bytes()
  folders = [tmp_path / name for name in ("a", "b")]
  outputs = "--output_file=" + ",".join(
      "file://%s" % (folder / "x.tfrecord") for folder in folders)
  for _ in range(2):  # the same vocabulary may be there
    before = make(folders[0], outputs)
    assert len(before) == 1
    for folder in folders:
      assert (folder / "vocab.txt").read_bytes() == content
      assert sorted(path.name for path in folder.iterdir()) == [
          "vocab.txt", "x.tfrecord", "x.tfrecord.json"]
  other = tmp_path / "other.txt"
  other.write_bytes(content.replace(b"[unused1]\n", b"[unused0]\n"))
  for args in ([outputs], ["--output_dir=%s" % folders[1]]):
    fail("[ab]/vocab.txt is a different vocabulary than .*other.txt: choose a "
         "different folder", "create_pretraining_data.py",
         "--input_file=%s" % TEXT, "--vocab_file=%s" % other, *args)
  assert [(folders[0] / "x.tfrecord").read_bytes()] == before
  assert len(list(folders[1].iterdir())) == 3


def test_a_sentencepiece_model_is_next_to_the_records(tmp_path, real_data):
  model, = (real_data / "sentencepiece").glob("*.model")
  succeed("create_pretraining_data.py", "--spm_model_file=%s" % model,
          "--input_file=%s" % TEXT, "--dupe_factor=1", "--output_dir=%s" % (
              tmp_path), "--num_output_shards=1", "--max_seq_length=64")
  assert (tmp_path / "spm.model").read_bytes() == model.read_bytes()
  assert not (tmp_path / "vocab.txt").exists()
