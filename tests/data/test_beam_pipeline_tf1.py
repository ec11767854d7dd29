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
VOCAB = ROOT / "albert_config" / "vocab.txt"


def run(output_dir, *args):
  """Returns the exit status and the standard error output."""
  command = [sys.executable, str(ROOT / "create_pretraining_data.py"),
             "--input_file=%s" % (ROOT / "data" / "text_*.txt"),
             "--vocab_file=%s" % VOCAB,
             "--output_dir=%s" % output_dir, "--num_output_shards=2",
             "--dupe_factor=2", "--max_seq_length=64", "--masking=ngram",
             "--shard_characters=2000"]
  done = subprocess.run(command + list(args), capture_output=True, timeout=300)
  return done.returncode, done.stderr.decode()


def make(output_dir, *args):
  status, log = run(output_dir, *args)
  assert status == 0, log
  files = sorted(pathlib.Path(str(output_dir)).glob("*.tfrecord"))
  assert len(files) == 2
  return sorted(record for path in files
                for record in tf.io.tf_record_iterator(str(path)))


def test_beam_makes_the_same_records(tmp_path):
  local = make(tmp_path / "local")
  assert len(local) > 300
  beam = tmp_path / "beam"
  assert make(beam, "--beam_runner=DirectRunner") == local
  assert (beam / "vocab.txt").read_bytes() == VOCAB.read_bytes()
  other = tmp_path / "other.txt"
  other.write_bytes(VOCAB.read_bytes().replace(b"[unused1]\n", b"[other]\n"))
  before = {path.name: path.read_bytes() for path in beam.iterdir()}
  status, log = run(beam, "--beam_runner=DirectRunner",
                    "--vocab_file=%s" % other)
  assert status == 1 and "Traceback" not in log
  assert "vocab.txt is a different vocabulary than" in log.splitlines()[-1]
  assert before == {path.name: path.read_bytes() for path in beam.iterdir()}
