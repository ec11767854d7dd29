"""Downloads, from a server on this machine."""

import hashlib
import http.server
import io
import os
import subprocess
import sys
import tarfile
import threading
import zipfile

import pytest
from scripting import ROOT

from albert import download
from albert.errors import InputError

FILES = ["*ckpt*.index", "vocab.txt"]


def zip_of(contents):
  buffer = io.BytesIO()
  with zipfile.ZipFile(buffer, "w") as writer:
    for name, content in contents.items():
      writer.writestr(name, content)
  return buffer.getvalue()


def tar_of(contents):
  buffer = io.BytesIO()
  with tarfile.open(fileobj=buffer, mode="w:gz") as writer:
    for name, content in contents.items():
      member = tarfile.TarInfo(name)
      member.size = len(content)
      writer.addfile(member, io.BytesIO(content))
  return buffer.getvalue()


MODEL = zip_of({"tiny/model.ckpt.index": os.urandom(3000),
                "tiny/vocab.txt": b"a\nb\n"})
GOOGLE_MODEL = tar_of({"tiny/model.ckpt.index": os.urandom(3000),
                       "tiny/vocab.txt": b"a\nb\n"})


class Handler(http.server.BaseHTTPRequestHandler):
  """Serves the server's `files`; breaks off once, after `limit` bytes."""

  def do_GET(self):
    server = self.server
    asked = self.headers.get("Range")
    server.asked.append((self.path, asked))
    if self.path not in server.files:
      self.send_error(404)
      return
    content = server.files[self.path]
    start = int(asked[len("bytes="):-1]) if asked and server.ranges else 0
    if start >= len(content):
      self.send_error(416)
      return
    self.send_response(206 if start else 200)
    self.send_header("Content-Length", str(len(content) - start))
    self.end_headers()
    self.wfile.write(content[start:][:server.limit])
    server.limit = None  # next time it goes well

  def log_message(self, *args):
    pass


@pytest.fixture
def server(monkeypatch):
  server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
  server.files, server.asked = {"/model.zip": MODEL}, []
  server.limit, server.ranges = None, True
  threading.Thread(target=server.serve_forever, daemon=True).start()
  monkeypatch.setenv("no_proxy", "*")
  yield server
  server.shutdown()
  server.server_close()


def item(server, *names, **changes):
  urls = ["http://127.0.0.1:%d%s" % (server.server_port, name)
          for name in names]
  return download.Item("tiny", FILES, urls, "SOME_URL", None)._replace(
      **changes)


def names(folder):
  return sorted(os.listdir(str(folder)))


@pytest.mark.parametrize("archive", [MODEL, GOOGLE_MODEL], ids=["zip", "tar"])
def test_a_model_is_unpacked_flat_and_downloaded_once(
    server, tmp_path, archive):
  server.files["/model.zip"] = archive
  target = tmp_path / "tiny"
  for _ in range(2):
    download.fetch(item(server, "/model.zip"), str(target))
    assert names(target) == ["model.ckpt.index", "vocab.txt"]
  assert len(server.asked) == 1
  assert (target / "vocab.txt").read_bytes() == b"a\nb\n"


@pytest.mark.parametrize("ranges", [True, False])
def test_it_goes_on_where_it_broke_off(server, tmp_path, ranges):
  server.limit, server.ranges = 1000, ranges
  with pytest.raises(InputError, match="ended after 1000 of"):
    download.fetch(item(server, "/model.zip"), str(tmp_path))
  assert len(names(tmp_path)) == 1
  download.fetch(item(server, "/model.zip"), str(tmp_path))
  assert server.asked[1] == ("/model.zip", "bytes=1000-")
  assert names(tmp_path) == ["model.ckpt.index", "vocab.txt"]


def test_a_whole_download_that_was_not_unpacked(server, tmp_path):
  path = download.download(item(server, "/model.zip").urls[0], str(tmp_path))
  assert download.download(item(server, "/model.zip").urls[0],
                           str(tmp_path)) == path
  with open(path, "rb") as reader:
    assert reader.read() == MODEL


def test_the_next_address_is_tried(server, tmp_path):
  download.fetch(item(server, "/gone.zip", "/model.zip"), str(tmp_path))
  assert names(tmp_path) == ["model.ckpt.index", "vocab.txt"]


def test_the_environment_names_other_addresses(server, tmp_path, monkeypatch):
  monkeypatch.setenv("SOME_URL", " ".join(
      item(server, "/{item}.zip", "/model.zip").urls))
  download.fetch(item(server, "/other.zip"), str(tmp_path))
  assert [path for path, _ in server.asked] == ["/tiny.zip", "/model.zip"]


@pytest.mark.parametrize("content, message", [
    (MODEL[:-30], "not a zip file"),
    (MODEL.replace(b"a\nb\n", b"a\nc\n"), "Bad CRC-32"),
    (GOOGLE_MODEL[:-300], "ended before the end-of-stream"),
    (zip_of({"vocab.txt": "a"}), r"there is no \*ckpt\*.index inside"),
    (zip_of({"../vocab.txt": "a", "x.ckpt.index": "b"}), "leads out of it"),
    (zip_of({"/tmp/vocab.txt": "a", "x.ckpt.index": "b"}), "leads out of it"),
    (tar_of({"../vocab.txt": b"a", "x.ckpt.index": b"b"}), "leads out of it"),
], ids=["cut", "damaged", "cut tar", "incomplete", "parent", "absolute",
        "parent in tar"])
def test_a_bad_archive_leaves_nothing(server, tmp_path, content, message):
  server.files["/model.zip"] = content
  target = tmp_path / "a" / "b"
  with pytest.raises(InputError, match=message):
    download.fetch(item(server, "/model.zip"), str(target))
  assert names(tmp_path) == ["a"]
  assert not names(tmp_path / "a")


def test_sha256(server, tmp_path):
  with pytest.raises(InputError, match="sha256 is .* not 00"):
    download.fetch(item(server, "/model.zip", sha256="00"), str(tmp_path))
  download.fetch(item(server, "/model.zip", sha256=hashlib.sha256(
      MODEL).hexdigest()), str(tmp_path))


def test_separate_files_and_those_that_are_there(server, tmp_path):
  server.files.update({"/train.txt": b"t", "/dev.txt": b"d"})
  (tmp_path / "dev.txt").write_text("own")
  separate = item(server, "/{}", files=["train.txt", "dev.txt"])
  download.fetch(separate, str(tmp_path))
  assert names(tmp_path) == ["dev.txt", "train.txt"]
  assert (tmp_path / "dev.txt").read_text() == "own"
  (tmp_path / "train.txt").unlink()
  server.files["/data.zip"] = zip_of({"train.txt": "t", "dev.txt": "other"})
  download.fetch(item(server, "/data.zip", files=["train.txt", "dev.txt"]),
                 str(tmp_path))
  assert (tmp_path / "dev.txt").read_text() == "own"
  assert (tmp_path / "train.txt").read_text() == "t"


def test_no_network(tmp_path):
  nothing = download.Item("a", ["a.txt"], ["http://127.0.0.1:9/a.zip"],
                          "SOME_URL", None)
  with pytest.raises(InputError, match=(
      r"refused.*: put a.txt into .*, or set SOME_URL to an address "
      "that has them$")):
    download.fetch(nothing, str(tmp_path))


@pytest.mark.parametrize("there", [[], ["a.ckpt.index", "a.ckpt.data-0"]])
def test_the_starter_weights_stand_in(tmp_path, there):
  for name in there:
    (tmp_path / name).write_bytes(b"")
  done = subprocess.run(
      [sys.executable, "-m", "albert.download", "--item=albert_tiny",
       "--or_starter", "--target=%s" % tmp_path], cwd=str(ROOT),
      env=dict(os.environ, ALBERT_MODEL_URL="http://127.0.0.1:9/a.zip"),
      capture_output=True)
  assert not done.returncode, done.stderr.decode()
  assert done.stdout.decode().strip() == (
      str(tmp_path) if there else "albert_tiny_starter")


def test_the_starter_weights_are_here():
  done = subprocess.run(
      [sys.executable, "-m", "albert.download", "--item=albert_tiny_starter"],
      cwd=str(ROOT), capture_output=True)
  assert not done.returncode
  assert b"is in this project, there is nothing to download" in done.stderr
