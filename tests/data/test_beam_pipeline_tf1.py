"""The Beam pipeline makes the local tool's records.

On Python 3.7 alone: one platform shows it, and Beam is slow to install.
"""

import pathlib
import subprocess
import sys

import pytest
import tensorflow.compat.v1 as tf

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).resolve().parents[2]


def make(output_dir, *args):
  command = [sys.executable, str(ROOT / "create_pretraining_data.py"),
             "--input_file=%s" % (ROOT / "data" / "text_*.txt"),
             "--vocab_file=%s" % (ROOT / "albert_config" / "vocab.txt"),
             "--output_dir=%s" % output_dir, "--num_output_shards=2",
             "--dupe_factor=2", "--max_seq_length=64", "--masking=ngram",
             "--shard_characters=2000"]
  done = subprocess.run(command + list(args), capture_output=True, timeout=300)
  assert done.returncode == 0, done.stderr.decode()
  files = sorted(pathlib.Path(str(output_dir)).glob("*.tfrecord"))
  assert len(files) == 2
  return sorted(record for path in files
                for record in tf.io.tf_record_iterator(str(path)))


def test_beam_makes_the_same_records(tmp_path):
  local = make(tmp_path / "local")
  assert len(local) > 300
  assert make(tmp_path / "beam", "--beam_runner=DirectRunner") == local
