"""From text to an export with all files on gs://; training is killed once.

A fake Google Cloud Storage serves TensorFlow's own client: it is the client's
HTTPS proxy and answers for Google's hosts, so the client must trust its
certificate. Objects are kept in memory.
"""

import http.server
import json
import os
import re
import ssl
import subprocess
import threading
import urllib.parse

import pytest
import tensorflow.compat.v1 as tf
from scripting import ROOT, command
from trained_models import write_files

IS_TF1 = tf.__version__.startswith("1.")
# TF 1.15 trusts only the system's CA file: replaced in a mount namespace.
TRUST = "mount --bind %s /etc/ssl/certs/ca-certificates.crt"


class Storage(http.server.ThreadingHTTPServer):
  """The fake server; `folder`, a pathlib.Path, gets its certificate.

  `objects`: dict, name -> bytes, of a single bucket of any name.
  """

  def __init__(self, folder):
    super().__init__(("127.0.0.1", 0), Handler)
    self.objects = {}
    self._certificate = str(folder / "certificate.pem")
    key = str(folder / "key.pem")
    subprocess.run(
      [
        *"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=storage "
        "-addext subjectAltName=DNS:*.googleapis.com".split(),
        "-keyout",
        key,
        "-out",
        self._certificate,
      ],
      check=True,
      stderr=subprocess.DEVNULL,
    )
    self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    self.tls.load_cert_chain(self._certificate, key)
    threading.Thread(target=self.serve_forever, daemon=True).start()

  def start(self, words):
    """Starts a command line; gs: expands to the bucket."""
    args = command(*words.replace("gs:", "gs://bucket/").split())
    if IS_TF1:
      args = [
        "unshare",
        "-m",
        "sh",
        "-c",
        TRUST % self._certificate + ' && exec "$@"',
        "sh",
        *args,
      ]
    return subprocess.Popen(
      args,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      env=dict(
        os.environ,
        TF_CPP_MIN_LOG_LEVEL="2",
        no_proxy="",
        https_proxy="http://127.0.0.1:%d" % self.server_port,
        NO_GCE_CHECK="true",
        GOOGLE_AUTH_TOKEN_FOR_TESTING="token",
        CURL_CA_BUNDLE=self._certificate,
      ),
    )

  def run(self, words):
    process = self.start(words)
    log = process.communicate(timeout=300)[0]
    assert not process.returncode, log
    return log


class Handler(http.server.BaseHTTPRequestHandler):
  protocol_version = "HTTP/1.1"

  def do_CONNECT(self):
    """Serves the connection as storage.googleapis.com from here on."""
    self.send_response(200)
    self.end_headers()
    self.connection = self.server.tls.wrap_socket(
      self.connection, server_side=True
    )
    self.rfile = self.connection.makefile("rb", -1)
    self.wfile = self.connection.makefile("wb", 0)
    self.close_connection = False

  def _read_body(self):
    if self.headers.get("Transfer-Encoding") != "chunked":
      return self.rfile.read(int(self.headers.get("Content-Length", 0)))
    body, size = b"", 1
    while size:
      size = int(self.rfile.readline(), 16)
      body += self.rfile.read(size)
      self.rfile.readline()
    return body

  def _answer(self):
    url = urllib.parse.urlsplit(self.path)
    self._objects = self.server.objects
    try:
      status, headers, content = getattr(self, "_" + self.command.lower())(
        list(map(urllib.parse.unquote, url.path.split("/")[1:])),
        dict(urllib.parse.parse_qsl(url.query)),
        self._read_body(),
      )
    except KeyError:  # no such object
      status, headers, content = 404, {}, b"{}"
    self.send_response(status)
    for header in {**headers, "Content-Length": str(len(content))}.items():
      self.send_header(*header)
    self.end_headers()
    self.wfile.write(content)

  do_GET = do_POST = do_PUT = do_DELETE = _answer

  def _json(self, value):
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()

  def _describe(self, name):
    return {
      "name": name,
      "size": str(len(self._objects[name])),
      "generation": "1",
      "updated": "2020-01-01T00:00:00.000000Z",
    }

  def _get(self, path, query, body):
    if path[:3] != ["storage", "v1", "b"]:  # BUCKET/OBJECT: content
      content = self._objects["/".join(path[1:])]
      first, last = map(int, re.findall(r"\d+", self.headers["Range"]))
      part = content[first : last + 1]
      return (206 if part else 416), {}, part
    if len(path) == 4:  # BUCKET
      return self._json({"name": path[3]})
    if len(path) > 5:  # BUCKET/o/OBJECT: metadata
      return self._json(self._describe(path[5]))
    prefix, items, prefixes = query.get("prefix", ""), [], set()
    for name in sorted(self._objects):
      if name.startswith(prefix):
        folder, slash, _ = name[len(prefix) :].partition("/")
        if slash and "delimiter" in query:
          prefixes.add(prefix + folder + slash)
        else:
          items.append(self._describe(name))
    return self._json({"items": items, "prefixes": sorted(prefixes)})

  def _post(self, path, query, body):
    if "rewriteTo" in path:  # BUCKET/o/OBJECT/rewriteTo/b/BUCKET/o/OBJECT
      self._objects[path[-1]] = self._objects[path[5]]
      return self._json({"done": True})
    if query["uploadType"] == "media":
      self._objects[query["name"]] = body
      return self._json(self._describe(query["name"]))
    return (
      200,
      {
        "Location": "https://storage.googleapis.com/upload?name="
        + urllib.parse.quote(query["name"], "")
      },
      b"",
    )

  def _put(self, path, query, body):
    """Uploads a whole object, or queries the state of an upload."""
    asked = re.match(r"bytes \*/(\d+)", self.headers.get("Content-Range", ""))
    if not asked or asked.group(1) == "0":
      self._objects[query["name"]] = body
    return self._json(self._describe(query["name"]))

  def _delete(self, path, query, body):
    del self._objects[path[5]]
    return 204, {}, b""


@pytest.mark.full
def test_all_files_are_on_gs(tmp_path, request):
  needed = (
    "openssl version" + (" && unshare -m " + TRUST % "/dev/null") * IS_TF1
  )
  if subprocess.run(needed, shell=True, capture_output=True).returncode:
    pytest.xfail("this machine forbids what the server needs")
  storage = Storage(tmp_path)
  request.addfinalizer(storage.server_close)
  request.addfinalizer(storage.shutdown)
  (tmp_path / "files").mkdir()
  write_files(tmp_path / "files", "labels")
  for path in [
    *(tmp_path / "files").iterdir(),
    ROOT / "data/text_heldout.txt",
    ROOT / "albert_config/vocab.txt",
  ]:
    storage.objects[path.name] = path.read_bytes()
  common = " --vocab_file=gs:vocab.txt --max_seq_length=32"
  storage.run(
    "create_pretraining_data.py --input_file=gs:text_heldout.txt "
    "--output_file=gs:records --max_predictions_per_seq=5 --dupe_factor=1"
    + common
  )
  model = (
    " --bert_config_file=gs:small.json --do_train --train_batch_size=4 "
    "--save_checkpoints_steps="
  )
  pretraining = (
    "run_pretraining.py --input_file=gs:records --output_dir=gs:model "
    "--num_train_steps=30 --num_warmup_steps=1 --log_steps=1" + model + "10"
  )
  killed = storage.start(pretraining)
  assert any("step 15/30" in line for line in killed.stdout)
  killed.kill()
  killed.communicate()
  log = storage.run(pretraining)
  assert "resuming from step 10 of gs://bucket/model" in log
  assert storage.objects["model/command.txt"].count(b"run_pretraining.py") == 2
  assert "model/model.ckpt-30.index" in storage.objects
  storage.run(
    "run_classifier.py --task_name=tsv --do_eval --do_predict "
    "--data_dir=gs: --init_checkpoint=gs:model --output_dir=gs:tuned "
    "--num_train_epochs=1" + model + "1" + common
  )
  best = int(storage.objects["tuned/best/checkpoint"].split(b'"')[1][-1:])
  assert best in (1, 2)
  assert len(storage.objects["tuned/test_results.tsv"].splitlines()) == 10
  storage.run(
    "export_model.py --saved_model --init_checkpoint=gs:tuned/best "
    "--output_dir=gs:served"
  )
  assert len(storage.objects["served/saved_model.pb"]) > 10000
  assert not [name for name in storage.objects if ".tmp" in name]
