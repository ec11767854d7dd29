"""Atomic writes."""

import os
import pathlib
import stat

import pytest

from albert.files import filesystem


def test_two_writers_do_not_share_a_temporary_name(tmp_path):
  path = tmp_path / "file"
  with filesystem.whole_file(str(path)) as one:
    with filesystem.whole_file(str(path)) as other:
      names = {pathlib.Path(name) for name in (one, other)}
      for name in names:
        name.write_text(name.name)
      assert len(names) == 2 and set(tmp_path.iterdir()) == names
    assert path.read_text() == os.path.basename(other)
  assert path.read_text() == os.path.basename(one)
  assert os.listdir(str(tmp_path)) == ["file"]


def test_links_and_modes_stay_and_pipes_are_written_to(tmp_path):
  path, link, pipe = [tmp_path / name for name in ("file", "link", "pipe")]
  path.write_text("before")
  path.chmod(0o640)
  link.symlink_to(path)
  filesystem.write_text(str(link), "after")
  assert link.is_symlink() and path.read_text() == "after"
  assert path.stat().st_mode & 0o777 == 0o640
  os.mkfifo(str(pipe))
  reader = os.open(str(pipe), os.O_RDONLY | os.O_NONBLOCK)
  filesystem.write_text(str(pipe), "text")
  assert os.read(reader, 9) == b"text"
  os.close(reader)
  assert pipe.is_fifo()
  filesystem.write_text("/dev/null", "text")
  assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_an_interrupted_writer_leaves_what_was_there(tmp_path):
  path = str(tmp_path / "file")
  filesystem.write_text(path, "before")
  with pytest.raises(KeyboardInterrupt):
    with filesystem.whole_file(path) as unfinished:
      pathlib.Path(unfinished).write_text("after")
      raise KeyboardInterrupt
  assert filesystem.read_text(path) == "before"
  assert os.listdir(str(tmp_path)) == ["file"]
