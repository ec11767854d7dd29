"""Beam and the local tool make the same records."""

import pytest
import tensorflow.compat.v1 as tf
from scripting import ROOT, VOCAB, run

pytestmark = pytest.mark.full


def make(output_dir, *args):
  """Returns the sorted records."""
  status, _, log = run(
    "create_pretraining_data.py",
    VOCAB,
    "--output_dir=%s" % output_dir,
    "--input_file=%s" % (ROOT / "data" / "text_*.txt"),
    "--num_output_shards=2",
    "--dupe_factor=2",
    "--max_seq_length=64",
    "--masking=ngram",
    "--shard_characters=2000",
    *args,
  )
  assert status == 0, log
  paths = list(output_dir.glob("*.tfrecord"))
  assert len(paths) == 2 and (output_dir / "vocab.txt").exists()
  return sorted(
    record for path in paths for record in tf.io.tf_record_iterator(str(path))
  )


def test_beam_makes_the_same_records(tmp_path):
  """PortableRunner has its job service in the same process."""
  pytest.importorskip("apache_beam")
  local = make(tmp_path / "local", "--heldout_share=0.2")
  assert len(local) > 300
  for runner, *options in (
    ("DirectRunner",),
    ("PortableRunner", "--job_endpoint=embed", "--environment_type=LOOPBACK"),
  ):
    assert local == make(
      tmp_path / runner,
      "--heldout_share=0.2",
      "--beam_runner=" + runner,
      "--beam_options=" + " ".join(options),
    )
