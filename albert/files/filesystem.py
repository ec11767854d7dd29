"""Files on any file system that TensorFlow supports, written atomically.

Paths may be URLs, such as gs://bucket/folder/file. Local files are read and
written without TensorFlow.
"""

import atexit
import contextlib
import fnmatch
import hashlib
import io
import json
import os
import shutil
import sys
import tempfile
import types

from albert.errors import InputError

STARTER = "albert_tiny_starter"  # a small model that is always there
# What to say of text in a different encoding.
CONVERT = ("convert the text to UTF-8, for instance from GBK: "
           "iconv -f gbk -t utf-8 OLD >NEW")
_BUFFER_SIZE = 1 << 20  # bytes, of a read from a remote file system


# What is used of tf.io.gfile, for local files.
_LOCAL = types.SimpleNamespace(
    GFile=open, exists=os.path.exists, isdir=os.path.isdir,
    listdir=os.listdir, remove=os.remove,
    rename=lambda source, target, overwrite: os.replace(source, target))


def _tensorflow():
  import tensorflow.compat.v1 as tf  # not needed for local files
  return tf


def _gfile(path):
  return _tensorflow().io.gfile if "://" in path else _LOCAL


class _RemoteFile(io.RawIOBase):
  """A file on a file system of TensorFlow's, for Python's readers."""

  def __init__(self, path):
    super().__init__()
    self._file = _tensorflow().io.gfile.GFile(path, "rb")

  def readable(self):
    return True

  def seekable(self):
    return True

  def readinto(self, buffer):
    content = self._file.read(len(buffer))
    buffer[:len(content)] = content
    return len(content)

  def seek(self, offset, whence=os.SEEK_SET):
    self._file.seek(offset, whence)
    return self._file.tell()

  def tell(self):
    return self._file.tell()

  def close(self):
    self._file.close()
    super().close()


def exists(path):
  """Returns whether there is a file or folder."""
  return _gfile(path).exists(path)


def find_files(folder, pattern):
  """Returns the paths of the files of a folder that match, sorted.

  Args:
    folder: str; where there is none, there are no files.
    pattern: str, glob of file names.
  """
  gfile = _gfile(folder)
  names = gfile.listdir(folder) if gfile.isdir(folder) else []
  return [os.path.join(folder, name)
          for name in sorted(fnmatch.filter(names, pattern))]


def find_beside(path, patterns):
  """Returns the first matching file next to a checkpoint, or None.

  Args:
    path: str, path of a checkpoint, or of a folder with some, or None.
    patterns: list of str, globs of file names.
  """
  if not path:
    return None
  gfile = _gfile(path)
  folder = path if gfile.isdir(path) else os.path.dirname(path) or "."
  return next((found for pattern in patterns
               for found in find_files(folder, pattern)), None)


def open_binary(path):
  """Opens a file for reading.

  Args:
    path: str.

  Returns:
    binary file object, buffered.

  Raises:
    OSError: it cannot be opened; `filename` is set.
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
    raise OSError(error.error_code, error.message.split("\n")[0],
                  path) from error


def read_bytes(path):
  """Returns the content of a file; raises OSError."""
  with open_binary(path) as reader:
    return reader.read()


def local_copy(path):
  """Returns the path of a local file: this one, or a copy until the end."""
  if path.startswith("file://"):
    return path[len("file://"):]
  if "://" not in path:
    return path
  copy = tempfile.NamedTemporaryFile(prefix="albert-", delete=False)
  atexit.register(os.remove, copy.name)
  with copy, open_binary(path) as reader:
    shutil.copyfileobj(reader, copy)
  return copy.name


def sha256(path):
  """Returns the checksum of a file, hexadecimal; raises OSError."""
  return hashlib.sha256(read_bytes(path)).hexdigest()


def read_text(path):
  """Returns the content of a UTF-8 file, without a byte order mark.

  Line ends stay as they are.

  Raises:
    OSError: it cannot be opened.
    InputError: it is not UTF-8.
  """
  try:
    return read_bytes(path).decode("utf-8-sig")
  except UnicodeDecodeError as error:
    raise InputError("%s: not UTF-8 (%s); %s" % (
        path, error, CONVERT)) from error


def read_lines(path):
  """Reads what has one text a line.

  Lines end at "\\n" only; bytes that are not UTF-8 become U+FFFD, where these
  are few.

  Args:
    path: str, or None for standard input.

  Returns:
    list of str, without the line ends.

  Raises:
    OSError: it cannot be opened.
    InputError: it is not UTF-8.
  """
  lines, count_bad = [], 0
  with open_binary(path) if path else sys.stdin.buffer as reader:
    for line in reader:
      text = line.decode("utf-8", "replace")
      count_bad += "\ufffd" in text and text.encode() != line
      lines.append(text.rstrip("\r\n"))
  check_encoding(path or "standard input", len(lines), count_bad)
  return lines


def check_encoding(path, num_lines, num_bad):
  """Raises an InputError where so many lines are bad that it is no UTF-8.

  Args:
    path: str, what to call the text.
    num_lines: int.
    num_bad: int, lines with bytes that are not UTF-8. One, and one in a
      thousand, may be damage.
  """
  if num_bad > 1 + num_lines / 1000:
    raise InputError("%s: %d of the first %d lines are not UTF-8; %s" % (
        path, num_bad, num_lines, CONVERT))


def read_json(path):
  """Returns what a JSON file holds; raises OSError or InputError."""
  try:
    return json.loads(read_text(path))
  except json.JSONDecodeError as error:
    raise InputError("%s: not JSON (%s)" % (path, error)) from error


@contextlib.contextmanager
def whole_file(path):
  """Creates a file atomically.

  Args:
    path: str; its folder exists.

  Yields:
    str, path to write to, which is renamed to `path` at the end.
  """
  gfile = _gfile(path)
  # Another process may be writing the same file.
  unfinished = "%s.%d.tmp" % (path, os.getpid())
  try:
    yield unfinished
    gfile.rename(unfinished, path, overwrite=True)
  except BaseException as error:
    if gfile.exists(unfinished):
      gfile.remove(unfinished)
    if isinstance(error, OSError) and not error.filename:
      error.filename = path  # for instance of a full disk
    raise


def write_bytes(path, content):
  """Writes a file atomically."""
  with whole_file(path) as unfinished:
    with _gfile(path).GFile(unfinished, "wb") as writer:
      writer.write(content)


def write_text(path, text):
  """Writes a UTF-8 file atomically."""
  write_bytes(path, text.encode("utf-8"))


def write_json(path, values):
  """Writes a UTF-8 JSON file atomically."""
  write_text(path, json_text(values))


def json_text(values):
  """Returns the text of a JSON file."""
  return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def make_folder(path):
  """Makes a folder and those above it, where they do not exist.

  Raises:
    InputError: it cannot be made.
  """
  tf = _tensorflow()
  try:
    tf.io.gfile.makedirs(path)
  except tf.errors.OpError as error:
    raise InputError("%s cannot be made: %s" % (path, error.message)) from error


@contextlib.contextmanager
def whole_folder(path):
  """Creates a folder atomically.

  Args:
    path: str.

  Yields:
    str, folder to write into, which is renamed to `path` at the end.

  Raises:
    InputError: it exists already.
  """
  gfile = _tensorflow().io.gfile
  if gfile.exists(path):
    raise InputError("%s exists already: remove it, or choose a different "
                     "--output_dir" % path)
  unfinished = "%s.%d.tmp" % (path.rstrip("/"), os.getpid())
  make_folder(unfinished)
  try:
    yield unfinished
    gfile.rename(unfinished, path)
  except BaseException:
    gfile.rmtree(unfinished)
    raise


def resolve(path):
  """Returns the one path that all names of a local file stand for."""
  path = path[len("file://"):] if path.startswith("file://") else path
  return path if "://" in path else os.path.realpath(path)


def is_same(path, other):
  """Returns whether two paths are of one file."""
  return resolve(path) == resolve(other)
