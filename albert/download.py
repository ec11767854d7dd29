"""Downloads released models and data sets.

    python -m albert.download --item=tnews --target=data/tnews

Existing files are kept. Without a network, the error names the files to put in
the folder.
"""

import base64
import contextlib
import dataclasses
import fnmatch
import functools
import hashlib
import http.client
import os
import re
import shutil
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from typing import List, NamedTuple, Optional, Sequence

import tqdm
from absl import logging

from albert import cli
from albert.errors import InputError
from albert.files import filesystem
from albert.files.filesystem import STARTER
from albert.settings import NEEDED, from_flags, setting


@dataclasses.dataclass(frozen=True)
class DownloadSettings:
  """What to download."""

  item: str = setting(
    None,
    "Model or data set, such as albert_tiny or tnews; any other value "
    "lists all.",
    NEEDED,
    required=True,
  )
  target: str = setting(None, "Folder for its files.", NEEDED)
  or_starter: bool = setting(
    False,
    "Print the folder of the model: --target or, if it cannot be "
    "downloaded, the starter's.",
    NEEDED,
  )


class Item(NamedTuple):
  """Something to download.

  Attributes:
    name: value of --item.
    files: names of its files, or globs.
    urls: addresses to try in turn, of an archive (zip or tar) or, with {} for
      the name, of single files.
    variable: environment variable with addresses that replace `urls`, separated
      by spaces; {item} stands for `name`.
    sha256: checksum of the archive; None if unknown.
  """

  name: str
  files: List[str]
  urls: List[str]
  variable: str
  sha256: Optional[str]


MODEL_URL = "ALBERT_MODEL_URL"
MODELS = "https://storage.googleapis.com/albert_zh/%s.zip"
GOOGLE = "https://storage.googleapis.com/albert_models/%s.tar.gz"
CLUE = "https://storage.googleapis.com/cluebenchmark/tasks/%s_public.zip"
LCQMC = (
  "https://raw.githubusercontent.com/pengming617/text_matching/master/data/{}"
)


def _model(name, url):
  return Item(name, ["*ckpt*.index", "*ckpt*.data-*"], [url], MODEL_URL, None)


ITEMS = {
  name: _model(name, MODELS % name)
  for name in (
    "albert_tiny",
    "albert_tiny_489k",
    "albert_tiny_zh_google",
    "albert_small_zh_google",
    "albert_base_zh",
    "albert_base_zh_additional_36k_steps",
    "albert_large_zh",
    "albert_xlarge_zh_177k",
    "albert_xlarge_zh_183k",
  )
}
# Google's Chinese models; the suffix "_google" is ours, because albert_zh's
# models have the same names.
ITEMS.update(
  {
    name + "_google": _model(name + "_google", GOOGLE % name)
    for name in (
      "albert_base_zh",
      "albert_large_zh",
      "albert_xlarge_zh",
      "albert_xxlarge_zh",
    )
  }
)
CLUE_FILES = dict(
  dict.fromkeys(
    ("afqmc", "tnews", "iflytek", "ocnli", "cmnli", "wsc", "csl"),
    ["train*.json", "dev.json", "test*.json"],
  ),
  cluener=["train.json", "dev.json", "test.json"],
  cmrc2018=["train.json", "dev.json"],
  chid=[
    "train.json",
    "train_answer.json",
    "dev.json",
    "dev_answer.json",
    "test*.json",
  ],
  c3=["*d-train.json", "*m-train.json", "*d-dev.json", "*m-dev.json"],
)
ITEMS.update(
  {
    name: Item(
      name,
      files,
      [CLUE % {"wsc": "cluewsc2020"}.get(name, name)],
      "CLUE_DATA_URL",
      None,
    )
    for name, files in CLUE_FILES.items()
  }
)
ITEMS["lcqmc"] = Item(
  "lcqmc", ["train.txt", "dev.txt", "test.txt"], [LCQMC], "LCQMC_DATA_URL", None
)


def fetch(item: Item, target: str) -> None:
  """Downloads the missing files of an item.

  Args:
    item: what to download.
    target: folder, created if necessary; existing files are kept.

  Raises:
    InputError: no address has the files; the message lists the reasons.
  """
  others = os.environ.get(item.variable, "").replace("{item}", item.name)
  urls = others.split() or item.urls
  filesystem.remove_unfinished(os.path.join(target, "files"))
  missing = _missing(item.files, target)
  if not missing:  # a killed process may have left the archive
    for path in [_part(url, target) for url in urls]:
      _remove(path)
      _remove(path + _VERSION)
    return
  os.makedirs(target, exist_ok=True)
  failures = []
  for url in urls:
    try:
      for name in missing if "{}" in url else [None]:
        address = url.format(name) if name else url
        path = download(address, target)
        try:
          with _checked(path, address, target, item.sha256):
            if name:
              os.replace(path, os.path.join(target, name))
            else:
              unpack(path, target, item.files)
        finally:
          _remove(path)  # complete, so there is nothing to resume
      return
    except (
      OSError,
      http.client.HTTPException,
      zipfile.BadZipFile,
      tarfile.TarError,
      zlib.error,
      EOFError,
      ValueError,
    ) as error:
      failures.append("%s: %s" % (url, error))
      logging.warning("%s", failures[-1])
  if not os.listdir(target):
    os.rmdir(target)
  raise InputError(
    "%s cannot be downloaded (%s): put %s into %s, or set %s to an address "
    "that has them%s"
    % (
      item.name,
      "; ".join(failures),
      ", ".join(missing),
      target,
      item.variable,
      "; or use the small bundled model, MODEL=%s for the "
      "shell scripts" % STARTER
      if (item.variable == MODEL_URL)
      else "",
    )
  )


def _missing(patterns, folder):
  names = os.listdir(folder) if os.path.isdir(folder) else []
  return [pattern for pattern in patterns if not fnmatch.filter(names, pattern)]


def download(url: str, folder: str) -> str:
  """Downloads a file, resuming an interrupted download of the same version.

  Returns:
    path of the complete file, whose name is unique to the address.

  Raises:
    OSError: the server cannot be reached, or refused or closed the connection;
      the next attempt resumes from the downloaded part.
  """
  path = _part(url, folder)
  version_file = path + _VERSION
  request, have = urllib.request.Request(url), 0
  if os.path.exists(path) and os.path.exists(version_file):
    have = os.path.getsize(path)
    with open(version_file, encoding="utf-8") as reader:
      # The server sends a different version from the beginning.
      request.add_header("If-Range", reader.read())
    request.add_header("Range", "bytes=%d-" % have)
  try:
    response = urllib.request.urlopen(request, timeout=60)
  except urllib.error.HTTPError as error:
    if error.code != 416 or not have:
      raise
    os.remove(path)  # already complete, or of a different file
    return download(url, folder)
  with response:
    # A file:// response has no status in Python 3.7.
    if getattr(response, "status", None) != 206:  # not resumed
      have = 0
      _write_version(version_file, response.headers)
    left = response.headers.get("Content-Length")
    total = have + int(left) if left else None
    with open(path, "ab" if have else "wb") as writer, tqdm.tqdm(
      initial=have,
      total=total,
      unit="B",
      unit_scale=True,
      desc=os.path.basename(url),
      disable=None,
    ) as bar:
      for chunk in iter(lambda: response.read(2**16), b""):
        writer.write(chunk)
        bar.update(len(chunk))
  size = os.path.getsize(path)
  if total and size != total:
    raise OSError("ended after %d of %d bytes" % (size, total))
  _remove(version_file)
  md5 = re.search(
    r"md5=([\w+/]+=*)", ",".join(response.headers.get_all("x-goog-hash") or [])
  )
  if md5 and base64.b64decode(md5.group(1)) != _digest(path, "md5"):
    os.remove(path)
    raise OSError("the checksum differs from the server's")
  return path


_VERSION = ".version"


def _part(url, folder):
  """Returns the path of a partially downloaded file."""
  return os.path.join(
    folder, ".download-" + hashlib.sha256(url.encode()).hexdigest()[:16]
  )


def _write_version(path, headers):
  """Writes the server's version tag of a file, if there is one."""
  tag = headers.get("ETag", "W/")
  version = headers.get("Last-Modified") if tag.startswith("W/") else tag
  _remove(path)
  if version:
    with open(path, "w", encoding="utf-8") as writer:
      writer.write(version)


def _remove(path):
  if os.path.exists(path):
    os.remove(path)


def _digest(path, algorithm):
  digest = hashlib.new(algorithm)
  with open(path, "rb") as reader:
    for chunk in iter(lambda: reader.read(2**20), b""):
      digest.update(chunk)
  return digest.digest()


_SUMS = ".sha256"  # lines of checksum and address


@contextlib.contextmanager
def _checked(path, url, folder, expected):
  """Checks a complete download by `expected` or the address's first download.

  The checksum is recorded in the folder if the block succeeds.
  """
  sums, found = os.path.join(folder, _SUMS), _digest(path, "sha256").hex()
  lines = filesystem.read_text(sums).split() if os.path.exists(sums) else []
  first = dict(zip(lines[1::2], lines[::2])).get(url)
  if found != (expected or first or found):
    raise ValueError(
      "sha256 is %s, not %s%s"
      % (
        found,
        expected or first,
        ""
        if expected
        else " as in the first "
        "download; to accept the new file, remove %s" % sums,
      )
    )
  yield
  if not first:
    with open(sums, "a", encoding="utf-8") as writer:
      writer.write("%s  %s\n" % (found, url))


_MOST_UNPACKED = 100  # bytes per byte of an archive


@contextlib.contextmanager
def _open_archive(path):
  """Yields a list of (path, size, function that opens it) of the files."""
  if tarfile.is_tarfile(path):
    with tarfile.open(path) as reader:
      yield [
        (
          member.name,
          member.size,
          functools.partial(reader.extractfile, member),
        )
        for member in reader
        if member.isfile()
      ]
  else:
    with zipfile.ZipFile(path) as reader:
      yield [
        (
          member.filename,
          member.file_size,
          functools.partial(reader.open, member),
        )
        for member in reader.infolist()
        if not member.is_dir()
      ]


def unpack(archive: str, target: str, files: Sequence[str]) -> None:
  """Unpacks a zip or tar archive, without its folder structure.

  Existing files in `target` are kept.

  Args:
    archive: path of the archive.
    target: an existing folder.
    files: names or globs that must be in the archive.

  Raises:
    zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError: the file is
      damaged, or not an archive.
    ValueError: a file is missing, a path leads out of the archive, or the
      files are more than a hundred times as large as the archive.
  """
  with _open_archive(archive) as members:
    size = sum(size for _, size, _ in members)
    if size > _MOST_UNPACKED * os.path.getsize(archive):
      raise ValueError("%d MB unpacked, too much for its size" % (size >> 20))
    for path, _, _ in members:
      if os.path.isabs(path) or ".." in path.split("/"):
        raise ValueError("path %r leads out of it" % path)
    names = [os.path.basename(path) for path, _, _ in members]
    for pattern in files:
      if not fnmatch.filter(names, pattern):
        raise ValueError("it has no %s" % pattern)
    with filesystem.temporary_folder(os.path.join(target, "files")) as folder:
      for name, (_, _, open_member) in zip(names, members):
        with open_member() as source, open(
          os.path.join(folder, name), "wb"
        ) as writer:
          shutil.copyfileobj(source, writer)
      # The required ones last: their presence marks the item as complete.
      for name in sorted(
        names,
        key=lambda name: any(
          fnmatch.fnmatch(name, pattern) for pattern in files
        ),
      ):
        if not os.path.exists(os.path.join(target, name)):
          os.replace(os.path.join(folder, name), os.path.join(target, name))


def main() -> None:
  args = from_flags(DownloadSettings)
  if args.item == STARTER:
    logging.info("%s is bundled, nothing to download", STARTER)
    if args.or_starter:
      print(STARTER)
    return
  if args.item not in ITEMS:
    raise InputError(
      "--item: unknown %r; choose one of %s"
      % (args.item, ", ".join(sorted(ITEMS)))
    )
  if not args.target:
    raise InputError("--target is required; see --help")
  try:
    fetch(ITEMS[args.item], args.target)
  except InputError as error:
    if not args.or_starter:
      raise
    logging.warning("%s", error)
    print(STARTER)
    return
  logging.info("%s has %s", args.target, ", ".join(ITEMS[args.item].files))
  if args.or_starter:
    print(args.target)


if __name__ == "__main__":
  cli.run(main, [DownloadSettings])
