"""Atomic writes and locks."""

import os
import pathlib
import stat
import subprocess
import sys

from refusals import refused
from scripting import ROOT

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
  is_root = os.getuid() == 0
  if is_root:
    os.chown(str(path), 1234, 1235)
  link.symlink_to(path)
  filesystem.write_text(str(link), "after")
  assert link.is_symlink() and path.read_text() == "after"
  assert path.stat().st_mode & 0o777 == 0o640
  assert not is_root or (path.stat().st_uid, path.stat().st_gid) == (1234, 1235)
  os.mkfifo(str(pipe))
  reader = os.open(str(pipe), os.O_RDONLY | os.O_NONBLOCK)
  filesystem.write_text(str(pipe), "text")
  assert os.read(reader, 9) == b"text"
  os.close(reader)
  assert pipe.is_fifo()
  filesystem.write_text("/dev/null", "text")
  assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


WRITE_AND_DIE = """
import os, sys
from albert.files import filesystem
with filesystem.whole_file(sys.argv[1]) as unfinished:
  open(unfinished, "w").close()
  if sys.argv[2:]:
    print(flush=True)
    input()
  os._exit(1)
"""


def start(program, *args):
  return subprocess.Popen(
    [sys.executable, "-c", program, *args],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    cwd=str(ROOT),
  )


def test_what_killed_processes_leave_is_removed(tmp_path):
  path = str(tmp_path / "file")

  def left():
    filesystem.remove_unfinished(path)
    return sorted(map(str, tmp_path.iterdir()))

  (tmp_path / "file.other-host-1-12345678.tmp").mkdir()
  before = left()
  start(WRITE_AND_DIE, path).wait()
  assert len(list(tmp_path.iterdir())) == 2 and left() == before
  with start(WRITE_AND_DIE, path, "waits") as alive:
    alive.stdout.readline()
    assert len(left()) == 2
    alive.communicate(b"\n")
  assert left() == before


LOCK = """
import sys
from albert.files import filesystem
filesystem.lock(sys.argv[1])
print("locked", flush=True)
input()
"""


def test_a_folder_is_locked_by_one_process_while_it_lives(tmp_path):
  folder = str(tmp_path)
  with start(LOCK, folder) as first:
    assert first.stdout.readline() == b"locked\n"
    refused("another run trains there", filesystem.lock, folder)
    first.kill()
  for _ in range(2):
    filesystem.lock(folder)
  with start(LOCK, folder) as second:
    assert b"another run trains there" in second.communicate()[1]
  filesystem.unlock()
  with start(LOCK, folder) as third:
    assert third.communicate(b"\n")[0] == b"locked\n"
