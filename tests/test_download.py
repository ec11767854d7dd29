"""Downloads from a local server."""

import base64
import hashlib
import http.server
import io
import os
import tarfile
import threading
import types
import zipfile

import pytest
from refusals import refused
from scripting import fail, succeed

from albert import download

pytestmark = pytest.mark.platform_independent("downloads")


def zip_of(contents):
  buffer = io.BytesIO()
  with zipfile.ZipFile(buffer, "w") as writer:
    for item in contents.items():
      writer.writestr(*item)
  return buffer.getvalue()


def tar_of(contents):
  buffer = io.BytesIO()
  with tarfile.open(fileobj=buffer, mode="w:gz") as writer:
    for name, content in contents.items():
      member = tarfile.TarInfo(name)
      member.size = len(content)
      writer.addfile(member, io.BytesIO(content))
  return buffer.getvalue()


CONTENTS = {
  "tiny/model.ckpt.index": os.urandom(3000),
  "tiny/vocab.txt": b"a\nb\n",
}
MODEL, GOOGLE_MODEL = zip_of(CONTENTS), tar_of(CONTENTS)


class Handler(http.server.BaseHTTPRequestHandler):
  """Serves the server's `files`; disconnects once, after `limit` bytes."""

  def do_GET(self):
    server, asked = self.server, self.headers.get("Range")
    server.asked.append((self.path, asked))
    if self.path not in server.files:
      return self.send_error(404)
    content = server.files[self.path]
    tag = '"%s"' % hashlib.sha256(content).hexdigest()
    start = (
      int(asked[len("bytes=") : -1])
      if (server.ranges and self.headers.get("If-Range") == tag)
      else 0
    )
    self.send_response(206 if start else 200)
    self.send_header("Content-Length", str(len(content) - start))
    self.send_header("ETag", tag)
    self.send_header("x-goog-hash", server.checksum)
    self.end_headers()
    self.wfile.write(content[start:][: server.limit])
    server.limit = None  # once


@pytest.fixture
def server(monkeypatch):
  monkeypatch.setenv("no_proxy", "*")
  with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
    server.files, server.asked = {"/model.zip": MODEL}, []
    server.limit, server.ranges, server.checksum = None, True, "crc32c=AA=="
    server.url = "http://127.0.0.1:%d" % server.server_port
    threading.Thread(target=server.serve_forever, args=[0.01]).start()
    yield server
    server.shutdown()


@pytest.fixture
def fetch(server, tmp_path):
  def fetch(*paths, files=("*ckpt*.index", "vocab.txt"), sha256=None):
    urls = [server.url + path for path in paths]
    download.fetch(
      download.Item("tiny", list(files), urls, "SOME_URL", sha256),
      str(tmp_path),
    )
    return sorted(set(os.listdir(str(tmp_path))) - {".sha256"})

  return fetch


@pytest.mark.parametrize("archive", [MODEL, GOOGLE_MODEL], ids=["zip", "tar"])
def test_a_model_is_unpacked_flat_once(server, fetch, tmp_path, archive):
  server.files["/model.zip"] = archive
  refused("sha256 is .* not 00", fetch, "/model.zip", sha256="00")
  for _ in range(2):
    assert fetch("/model.zip", sha256=hashlib.sha256(archive).hexdigest()) == [
      "model.ckpt.index",
      "vocab.txt",
    ]
  assert len(server.asked) == 2
  assert (tmp_path / "vocab.txt").read_bytes() == b"a\nb\n"


@pytest.mark.parametrize("ranges", [True, False])
def test_it_goes_on_where_it_broke_off(server, fetch, tmp_path, ranges):
  server.limit, server.ranges = 1000, ranges
  refused("ended after 1000 of", fetch, "/model.zip")
  assert len(list(tmp_path.iterdir())) == 2
  assert fetch("/model.zip") == ["model.ckpt.index", "vocab.txt"]
  assert server.asked[1] == ("/model.zip", "bytes=1000-")


def test_two_versions_are_not_mixed(server, fetch, tmp_path):
  server.limit = 1000
  refused("ended after 1000 of", fetch, "/model.zip")
  server.files["/model.zip"] = zip_of({"a.ckpt.index": "i", "vocab.txt": "b"})
  assert fetch("/model.zip") == ["a.ckpt.index", "vocab.txt"]
  (tmp_path / "vocab.txt").unlink()
  server.checksum = "md5=" + base64.b64encode(b"0" * 16).decode()
  refused("checksum", fetch, "/model.zip")
  server.files["/model.zip"], server.checksum = MODEL, ""
  refused("sha256 is .* first download; .*/.sha256", fetch, "/model.zip")
  assert sorted(os.listdir(str(tmp_path))) == [".sha256", "a.ckpt.index"]
  (tmp_path / ".sha256").unlink()
  assert "vocab.txt" in fetch("/model.zip")


def test_other_addresses_are_tried(server, fetch, monkeypatch, tmp_path):
  assert fetch("/gone.zip", "/model.zip")
  (tmp_path / "vocab.txt").unlink()
  monkeypatch.setenv(
    "SOME_URL", "{0}/{{item}}.zip {0}/model.zip".format(server.url)
  )
  fetch("/other.zip")
  assert [path for path, _ in server.asked] == [
    "/gone.zip",
    "/model.zip",
    "/tiny.zip",
    "/model.zip",
  ]


@pytest.mark.parametrize(
  "content, message",
  [
    (MODEL[:-30], "not a zip file"),
    (MODEL.replace(b"a\nb\n", b"a\nc\n"), "Bad CRC-32"),
    (GOOGLE_MODEL[:-300], "ended before the end-of-stream"),
    (zip_of({"vocab.txt": "a"}), r"\*ckpt\*.index"),
    (tar_of({"vocab.txt": bytes(10**6)}), "too much for its size"),
    *(
      (make({name: b"a", "x.ckpt.index": b"b"}), "leads out of it")
      for make, name in (
        (zip_of, "../vocab.txt"),
        (zip_of, "/tmp/vocab.txt"),
        (tar_of, "../vocab.txt"),
      )
    ),
  ],
  ids=range(8),
)
def test_a_bad_archive(server, fetch, tmp_path, content, message):
  server.files["/model.zip"] = content
  refused(message, fetch, "/model.zip")
  assert not tmp_path.exists()


def test_separate_files_and_those_that_are_there(server, fetch, tmp_path):
  server.files.update({"/train.txt": b"t", "/dev.txt": b"d"})
  (tmp_path / "dev.txt").write_text("own")
  files = ["dev.txt", "train.txt"]
  assert fetch("/{}", files=files) == files
  (tmp_path / "train.txt").unlink()
  server.files["/data.zip"] = zip_of({"train.txt": "t", "dev.txt": "other"})
  assert fetch("/data.zip", files=files) == files
  assert [(tmp_path / name).read_text() for name in files] == ["own", "t"]


COMMAND = types.SimpleNamespace(
  __name__="download", SETTINGS=[download.DownloadSettings], main=download.main
)


def test_the_starter_weights_stand_in(tmp_path, monkeypatch):
  """Without a network; without --or_starter, the error says what to do."""
  monkeypatch.setenv("ALBERT_MODEL_URL", "http://127.0.0.1:9/a.zip")
  args = [COMMAND, "--item=albert_tiny", "--target=%s" % tmp_path]
  for name in ("a.ckpt.index", "a.ckpt.data-0"):
    (tmp_path / name).write_bytes(b"")
  assert succeed(*args, "--or_starter")[0] == "%s\n" % tmp_path
  args[-1] += "/none"
  assert succeed(*args, "--or_starter")[0] == "albert_tiny_starter\n"
  fail("refused.* ALBERT_MODEL_URL", *args)


def test_items():
  out, log = succeed(COMMAND, "--item=albert_tiny_starter")
  assert not out and "albert_tiny_starter is bundled" in log
  for args, message in (
    ([], "^--item"),
    (["--item=a"], "^--item: .*'a'"),
    (["--item=lcqmc"], "^--target"),
  ):
    fail(message, COMMAND, *args)
