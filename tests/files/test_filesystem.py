"""Files that appear whole or not at all."""

import os
import pathlib
import subprocess
import sys

import pytest

from albert.files import filesystem

ROOT = pathlib.Path(__file__).resolve().parents[2]

_WRITER = """
import sys
from albert.files import filesystem
with filesystem.whole_file(sys.argv[1]) as unfinished:
  with open(unfinished, "w") as writer:
    writer.write(sys.argv[2])
  print(unfinished, flush=True)
  sys.stdin.readline()
"""


def test_two_writers_of_a_file_do_not_share_a_temporary_name(tmp_path):
  path = tmp_path / "file"
  texts = ["one", "two" * 1000]
  writers = [subprocess.Popen(
      [sys.executable, "-c", _WRITER, str(path), text], cwd=str(ROOT),
      stdin=subprocess.PIPE, stdout=subprocess.PIPE) for text in texts]
  unfinished = {writer.stdout.readline().decode().strip()
                for writer in writers}
  assert {str(name) for name in tmp_path.iterdir()} == unfinished
  assert len(unfinished) == 2 and str(path) not in unfinished
  for writer, text in zip(writers, texts):
    writer.communicate(b"\n")
    assert writer.returncode == 0
    assert path.read_text() == text
  assert os.listdir(str(tmp_path)) == ["file"]


def test_an_interrupted_writer_leaves_what_was_there(tmp_path):
  path = str(tmp_path / "file")
  filesystem.write_text(path, "before")
  with pytest.raises(KeyboardInterrupt):
    with filesystem.whole_file(path) as unfinished:
      pathlib.Path(unfinished).write_text("after")
      raise KeyboardInterrupt
  assert filesystem.read_text(path) == "before"
  assert os.listdir(str(tmp_path)) == ["file"]
