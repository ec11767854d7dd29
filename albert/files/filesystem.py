"""Atomic file access on any file system that TensorFlow supports.

Paths may be URLs, such as gs://bucket/folder/file. Local files are read and
written without TensorFlow.
"""

import atexit
import codecs
import contextlib
import fnmatch
import hashlib
import io
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import types
import uuid
from typing import (
  Any,
  BinaryIO,
  Dict,
  Iterable,
  Iterator,
  List,
  Optional,
  Sequence,
)

from absl import logging

from albert.errors import InputError

STARTER = "albert_tiny_starter"  # the bundled model
# Advice for text in a different encoding.
CONVERT = (
  "convert the text to UTF-8, for instance from GBK: "
  "iconv -f gbk -t utf-8 OLD >NEW"
)
FROM_PYTORCH = "python convert_to_pytorch.py --pytorch_dir=%s --output_dir=NEW"
_BUFFER_SIZE = 1 << 20  # bytes per read from a remote file system


# tf.io.gfile for local files, without importing TensorFlow.
_LOCAL = types.SimpleNamespace(
  GFile=open,
  exists=os.path.exists,
  isdir=os.path.isdir,
  listdir=os.listdir,
  remove=os.remove,
  rename=lambda source, target, overwrite: os.replace(source, target),
)


def _tensorflow():
  import tensorflow.compat.v1 as tf  # local files do not need it

  return tf


def _gfile(path):
  return _tensorflow().io.gfile if "://" in path else _LOCAL


class _RemoteFile(io.RawIOBase):
  """A remote file, as a raw stream for Python's readers."""

  def __init__(self, path):
    super().__init__()
    self._file = _tensorflow().io.gfile.GFile(path, "rb")

  def readable(self):
    return True

  def seekable(self):
    return True

  def readinto(self, buffer):
    content = self._file.read(len(buffer))
    buffer[: len(content)] = content
    return len(content)

  def seek(self, offset, whence=os.SEEK_SET):
    self._file.seek(offset, whence)
    return self._file.tell()

  def tell(self):
    return self._file.tell()

  def close(self):
    self._file.close()
    super().close()


def exists(path: str) -> bool:
  """Returns whether a file or folder exists."""
  return _gfile(path).exists(path)


def find_files(folder: str, pattern: str) -> List[str]:
  """Returns the sorted paths of a folder's matching files.

  Args:
    folder: may not exist.
    pattern: glob of file names.
  """
  gfile = _gfile(folder)
  names = gfile.listdir(folder) if gfile.isdir(folder) else []
  return [
    os.path.join(folder, name)
    for name in sorted(fnmatch.filter(names, pattern))
  ]


def find_beside(path: Optional[str], patterns: Sequence[str]) -> Optional[str]:
  """Returns the path of the first matching file next to a checkpoint, or None.

  Args:
    path: path of a checkpoint or of its folder; None finds nothing.
    patterns: globs of file names, in order of preference.
  """
  if not path:
    return None
  gfile = _gfile(path)
  folder = path if gfile.isdir(path) else os.path.dirname(path) or "."
  return next(
    (found for pattern in patterns for found in find_files(folder, pattern)),
    None,
  )


def open_binary(path: str) -> BinaryIO:
  """Opens a file for buffered reading.

  Raises:
    OSError: the file cannot be opened; `filename` is set.
  """
  if "://" not in path:
    return open(path, "rb")
  tf = _tensorflow()
  try:
    if tf.io.gfile.isdir(path):
      raise IsADirectoryError(21, "Is a directory", path)
    tf.io.gfile.stat(path)  # GFile itself opens at the first read
    return io.BufferedReader(_RemoteFile(path), _BUFFER_SIZE)
  except tf.errors.OpError as error:
    raise OSError(
      error.error_code, error.message.split("\n")[0], path
    ) from error


def size(path: str) -> int:
  """Returns the bytes of a file; raises OSError."""
  with open_binary(path) as reader:
    return reader.seek(0, os.SEEK_END)


def read_bytes(path: str, most: Optional[int] = None) -> bytes:
  """Returns the content of a file.

  Args:
    path: the file.
    most: maximum number of bytes.

  Raises:
    OSError: the file cannot be read.
    InputError: it is too large.
  """
  with open_binary(path) as reader:
    content = reader.read(-1 if most is None else most + 1)
  if most is not None and len(content) > most:
    raise InputError("%s: too large, more than %d MB" % (path, most >> 20))
  return content


def local_copy(path: str) -> str:
  """Returns a local path: `path`, or a copy that is deleted at exit."""
  if path.startswith("file://"):
    return path[len("file://") :]
  if "://" not in path:
    return path
  copy = tempfile.NamedTemporaryFile(prefix="albert-", delete=False)
  atexit.register(os.remove, copy.name)
  with copy, open_binary(path) as reader:
    shutil.copyfileobj(reader, copy)
  return copy.name


def sha256(*paths: str) -> str:
  """Returns the hexadecimal checksum of files, in sequence; raises OSError."""
  digest = hashlib.sha256()
  for path in paths:
    with open_binary(path) as reader:
      for block in iter(lambda: reader.read(_BUFFER_SIZE), b""):
        digest.update(block)
  return digest.hexdigest()


def read_text(path: str, most: Optional[int] = None) -> str:
  """Returns the content of a UTF-8 file, without its byte order mark.

  Line endings are kept.

  Args:
    path: the file.
    most: maximum number of bytes.

  Raises:
    OSError: the file cannot be opened.
    InputError: the file is not UTF-8, or too large.
  """
  try:
    return read_bytes(path, most).decode("utf-8-sig")
  except UnicodeDecodeError as error:
    raise InputError(
      "%s: not UTF-8 (%s); %s" % (path, error, CONVERT)
    ) from error


def check_encoding(path: str, num_lines: int, num_bad: int) -> None:
  """Raises an InputError if too many lines are not valid UTF-8.

  Args:
    path: name of the text for the message.
    num_lines: number of lines read so far.
    num_bad: number of lines with invalid bytes. One, and one more per thousand
      lines, are tolerated.
  """
  if num_bad > 1 + num_lines / 1000:
    raise InputError(
      "%s: %d of the first %d lines are not UTF-8; %s"
      % (path, num_bad, num_lines, CONVERT)
    )


def read_json(path: str) -> Any:
  """Returns the content of a JSON file; raises OSError or InputError."""
  try:
    return json.loads(read_text(path))
  except (json.JSONDecodeError, RecursionError) as error:
    raise InputError("%s: not JSON (%s)" % (path, error)) from error


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[str]:
  """Creates a file atomically.

  A link stays one; a replaced file keeps its mode and owner. Pipes, /dev/null
  and the like are written to directly.

  Args:
    path: a file in an existing folder.

  Yields:
    a temporary path to write to; it is renamed to `path` at the end.
  """
  path = os.path.realpath(path) if os.path.islink(path) else path
  if os.path.exists(path) and not os.path.isfile(path):
    yield path
    return
  gfile = _gfile(path)
  unfinished = _unfinished(path)
  try:
    yield unfinished
    if os.path.exists(path) and os.path.exists(unfinished):
      shutil.copymode(path, unfinished)
      _keep_owner(path, unfinished)
    gfile.rename(unfinished, path, overwrite=True)
  except BaseException as error:
    if gfile.exists(unfinished):
      gfile.remove(unfinished)
    if isinstance(error, OSError) and not error.filename:
      error.filename = path  # not set if, for instance, the disk is full
    raise


def _keep_owner(path, other):
  """Changes the owner of `other` to that of `path`, if permitted."""
  found = os.stat(path)
  with contextlib.suppress(PermissionError):
    os.chown(other, found.st_uid, found.st_gid)


def _unfinished(path):
  """Returns a temporary name, unique across processes and containers."""
  path = path.rstrip("/")
  remove_unfinished(path)
  return "%s.%s-%d-%s.tmp" % (
    path,
    platform.node(),
    os.getpid(),
    uuid.uuid4().hex[:8],
  )


@contextlib.contextmanager
def temporary_folder(path: str) -> Iterator[str]:
  """Yields a local folder next to `path` that is removed at the end."""
  path = _unfinished(path)
  os.mkdir(path)
  try:
    yield path
  finally:
    shutil.rmtree(path)


def remove_unfinished(path: str) -> None:
  """Removes leftovers of a file or folder from killed processes of this host.

  Args:
    path: path of the finished file or folder.
  """
  folder, name = os.path.split(path)
  if "://" in path or not os.path.isdir(folder or "."):
    return
  left = re.compile(
    re.escape("%s.%s-" % (name, platform.node())) + r"(\d+)-\w{8}\.tmp"
  )
  for found in filter(None, map(left.fullmatch, os.listdir(folder or "."))):
    path = os.path.join(folder, found.group())
    if _is_alive(int(found.group(1))):
      continue
    logging.info("removing %s, left by a killed process", path)
    if os.path.isdir(path):
      shutil.rmtree(path)
    else:
      os.remove(path)


def _is_alive(process):
  try:
    os.kill(process, 0)
  except ProcessLookupError:
    return False
  except PermissionError:
    pass
  return True


_locks: Dict[str, Any] = {}  # path -> the open file that holds the lock


def lock(folder: str) -> None:
  """Locks a folder until `unlock`, so that only one process trains there.

  The kernel unlocks the folders of a process when it ends. Locking a folder
  again has no effect. Logs a warning if locks are not supported.

  Raises:
    InputError: another process has locked it.
  """
  path = os.path.join(resolve(folder), "run.lock")
  if path in _locks:
    return
  try:
    import fcntl  # not on every system

    if "://" in path:
      raise OSError("not a local folder")
    _locks[path] = open(path, "w")
    fcntl.flock(_locks[path], fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError as error:
    _locks.pop(path).close()
    raise InputError(
      "--output_dir=%s: another run trains there: wait for it, "
      "or choose a different folder" % folder
    ) from error
  except (ImportError, OSError) as error:
    logging.warning(
      "%s cannot be locked (%s): make sure that no other run trains there",
      folder,
      error,
    )


def unlock() -> None:
  """Unlocks all folders that this process has locked."""
  while _locks:
    _locks.popitem()[1].close()


def write_bytes(path: str, content: bytes) -> None:
  """Writes a file atomically."""
  with whole_file(path) as unfinished:
    with _gfile(path).GFile(unfinished, "wb") as writer:
      writer.write(content)


def copy(source: str, target: str) -> None:
  """Copies a file atomically; raises OSError."""
  with whole_file(target) as unfinished, open_binary(source) as reader:
    with _gfile(target).GFile(unfinished, "wb") as writer:
      for block in iter(lambda: reader.read(_BUFFER_SIZE), b""):
        writer.write(block)


def write_text(path: str, text: str) -> None:
  """Writes a UTF-8 file atomically."""
  write_bytes(path, text.encode("utf-8"))


@contextlib.contextmanager
def text_writer(path: Optional[str]) -> Iterator[Any]:
  """Opens a UTF-8 file that is written atomically, or standard output.

  Yields:
    text file object. If nothing is written, there is no file.
  """
  if not path:
    yield sys.stdout
    return
  with whole_file(path) as unfinished:
    with _gfile(path).GFile(unfinished, "wb") as binary:
      yield codecs.getwriter("utf-8")(binary)


def write_lines(path: Optional[str], lines: Iterable[str]) -> None:
  """Writes lines as they come to a UTF-8 file, atomically; see text_writer."""
  with text_writer(path) as writer:
    for line in lines:
      writer.write(line + "\n")


def write_table(path: str, rows: Iterable[Sequence[Any]]) -> None:
  """Writes rows of cells; see table_line."""
  write_lines(path, map(table_line, rows))


def table_line(row: Iterable[Any]) -> str:
  """Joins cells by tabs; white space in a cell becomes one space."""
  return "\t".join(" ".join(str(cell).split()) for cell in row)


def write_json(path: str, values: Any) -> None:
  """Writes a UTF-8 JSON file atomically."""
  write_text(path, json_text(values))


def json_text(values: Any) -> str:
  """Formats the content of a JSON file."""
  return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def make_folder(path: str) -> None:
  """Creates a folder and its parents if they do not exist.

  Raises:
    InputError: the folder cannot be created.
  """
  tf = _tensorflow()
  try:
    tf.io.gfile.makedirs(path)
  except tf.errors.OpError as error:
    raise InputError("cannot create %s: %s" % (path, error.message)) from error


@contextlib.contextmanager
def whole_folder(path: str) -> Iterator[str]:
  """Creates a folder atomically.

  Yields:
    a temporary folder to write into; it is renamed to `path` at the end.

  Raises:
    InputError: `path` already exists.
  """
  gfile = _tensorflow().io.gfile
  if gfile.exists(path):
    raise InputError(
      "%s already exists: remove it, or choose a different --output_dir" % path
    )
  unfinished = _unfinished(path)
  make_folder(unfinished)
  try:
    yield unfinished
    gfile.rename(unfinished, path)
  except BaseException:
    gfile.rmtree(unfinished)
    raise


def resolve(path: str) -> str:
  """Returns the canonical path of a local file; other URLs are unchanged."""
  path = path[len("file://") :] if path.startswith("file://") else path
  return path if "://" in path else os.path.realpath(path)


def is_same(path: str, other: str) -> bool:
  """Returns whether two paths name the same file."""
  return resolve(path) == resolve(other)
