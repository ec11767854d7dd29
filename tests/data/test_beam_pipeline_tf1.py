"""Beam makes the local tool's records. On TF 1.15 alone: it installs slowly."""

import pytest
import tensorflow.compat.v1 as tf
from scripting import ROOT, VOCAB, run

pytestmark = pytest.mark.full


def make(output_dir, *args):
  """Returns (exit status, standard error, the records in their order)."""
  status, _, log = run(
      "create_pretraining_data.py", VOCAB, "--output_dir=%s" % output_dir,
      "--input_file=%s" % (ROOT / "data" / "text_*.txt"),
      "--num_output_shards=2", "--dupe_factor=2", "--max_seq_length=64",
      "--masking=ngram", "--shard_characters=2000", *args)
  return status, log, sorted(
      record for path in output_dir.glob("*.tfrecord")
      for record in tf.io.tf_record_iterator(str(path)))


def content(folder):
  return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_beam_makes_the_same_records(tmp_path):
  pytest.importorskip("apache_beam")
  _, _, local = make(tmp_path / "local")
  assert len(local) > 300
  beam = tmp_path / "beam"
  status, log, made = make(beam, "--beam_runner=DirectRunner")
  assert status == 0, log
  assert made == local
  before, vocab = content(beam), content(ROOT / "albert_config")["vocab.txt"]
  assert before["vocab.txt"] == vocab
  assert len([name for name in before if name.endswith(".tfrecord")]) == 2
  (tmp_path / "other.txt").write_bytes(
      vocab.replace(b"[unused1]\n", b"[other]\n"))
  status, log, _ = make(beam, "--beam_runner=DirectRunner",
                        "--vocab_file=%s" % (tmp_path / "other.txt"))
  assert status == 1 and "Traceback" not in log
  assert "vocab.txt" in log.splitlines()[-1]
  assert content(beam) == before
