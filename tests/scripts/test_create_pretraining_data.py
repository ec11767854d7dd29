"""create_pretraining_data.py: workers, resuming, errors."""

import gzip
import os
import re

import pytest
from scripting import ROOT, VOCAB, fail, succeed

import create_pretraining_data
from albert.data.shards import ShardMaker


def make(output_dir, *args):
  return [
    "create_pretraining_data.py",
    VOCAB,
    "--output_dir=%s" % output_dir,
    "--input_file=%s/data/text_*.txt" % ROOT,
    "--max_seq_length=32",
    "--max_predictions_per_seq=5",
    "--num_output_shards=3",
    "--shard_characters=1500",
    "--dupe_factor=10",
    *args,
  ]


def content(folder):
  return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  folder = tmp_path_factory.mktemp("records") / "made"
  succeed(*make(folder, "--num_workers=1"))
  return folder


@pytest.mark.slow
def test_workers_do_not_change_the_records(made, tmp_path):
  parts = ["part-0000%d-of-00003.tfrecord" % i for i in range(3)]
  assert sorted(content(made)) == parts + ["records.json", "vocab.txt"]
  succeed(*make(tmp_path / "two", "--num_workers=2"))
  assert content(tmp_path / "two") == content(made)
  sizes = [len(content(made)[name]) for name in parts]
  assert max(sizes) < 1.1 * min(sizes)


@pytest.mark.slow
def test_what_was_finished_is_kept(made, tmp_path, monkeypatch):
  """After a failure; test_kills.py has kills."""
  args, finish = make(tmp_path / "again", "--num_workers=2"), ShardMaker.make
  with monkeypatch.context() as patch:
    patch.setattr(
      ShardMaker,
      "make",
      lambda self, texts, number: (
        os.listdir("/none") if number == 3 else finish(self, texts, number)
      ),
    )
    fail("/none", *args)
  assert not list(tmp_path.glob("again/part*"))
  _, log = succeed(*args)
  assert 3 <= int(re.search(r"kept (\d+) finished shards", log).group(1))
  assert content(tmp_path / "again") == content(made)


@pytest.mark.slow
def test_a_folder_has_the_records_of_one_run(tmp_path):
  folder = tmp_path / "again"
  args = make(folder, "--dupe_factor=1")
  succeed(*args)
  before = content(folder)
  fail("%s .*part-00000-of-00003" % folder, *args, "--num_output_shards=2")
  args.append("--random_seed=2")
  fail("^%s/records.json: .*random_seed 12345, not 2" % folder, *args)
  assert content(folder) == before
  (folder / "records.json").unlink()
  succeed(*args)
  after = content(folder)
  assert after.keys() == before.keys() and after != before


def test_files_that_are_read_more_often(tmp_path):
  for name in ("a1", "a2", "b"):
    (tmp_path / name).write_text(name)
  assert [
    path[len(str(tmp_path)) + 1 :]
    for path in (
      create_pretraining_data.weighted_paths(
        "{0}/a*:2,{0}/b,{0}/a2:3".format(tmp_path)
      )
    )
  ] == ["a1", "a2", "b", "a1", "a2", "a2"]


@pytest.mark.slow
@pytest.mark.parametrize(
  "args, message",
  [
    (["--input_file=blank.txt"], "^--input_file .*blank.txt"),
    (["--input_file=absent"], "^--input_file: .*absent"),
    (["--input_file=cut.txt.gz"], "^cut.txt.gz: damaged"),
    (["--input_file=pipe"], "^pipe: "),
    (
      ["--do_whole_word_mask", "--masking=ngram"],
      "--do_whole_word_mask=True .*--masking=ngram",
    ),
    (["--user_dict=latin.txt"], "user_dict .*latin.txt: .*utf"),
    (["--only_heldout"], "--only_heldout .*--heldout_share"),
    (["--output_dir=none"], "--output_file or --output_dir"),
    (["--beam_runner=DirectRunner"], "--beam_runner .*--output_dir"),
    (
      ["--output_file=../{}/blank.txt", "--input_file=blank.txt"],
      "blank.txt .* --input_file",
    ),
  ],
)
def test_bad_input(args, message, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for name, text in (
    ("blank.txt", b"\n \n"),
    ("latin.txt", b"\xe9\n"),
    ("cut.txt.gz", gzip.compress(os.urandom(10000))[:-2000]),
  ):
    (tmp_path / name).write_bytes(text)
  os.mkfifo("pipe")
  writer = os.open("pipe", os.O_RDWR)
  fail(
    message,
    "create_pretraining_data.py",
    VOCAB,
    "--output_file=none.tfrecord",
    "--input_file=%s/data/text_heldout.txt" % ROOT,
    *[arg.format(tmp_path.name) for arg in args],
  )
  os.close(writer)
  assert (tmp_path / "blank.txt").read_text() == "\n \n"
  assert not list(tmp_path.glob("none*"))
