"""Atomic writes."""

import os
import pathlib

import pytest

from albert.files import filesystem


def test_two_processes_do_not_share_a_temporary_name(tmp_path, monkeypatch):
  path = tmp_path / "file"
  with filesystem.whole_file(str(path)) as one:
    monkeypatch.setattr(os, "getpid", lambda: -7)
    with filesystem.whole_file(str(path)) as other:
      names = {pathlib.Path(name) for name in (one, other)}
      for name in names:
        name.write_text(name.name)
      assert len(names) == 2 and set(tmp_path.iterdir()) == names
    assert path.read_text() == os.path.basename(other)
  assert path.read_text() == os.path.basename(one)
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
