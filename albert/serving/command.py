"""Serves models over HTTP, with a demo page.

    python serve.py --model_dir=output/my_task/best
    python serve.py --model_dir=topics=output/one --model_dir=output/two/best
    python serve.py --engine=onnx --model_dir=onnx --port=8000

    curl -H "Content-Type: application/json" -d '{"instances": ["真好看"]}' \\
      http://127.0.0.1:8080/v1/models/my_task:predict

The page is at /, the API documentation at /docs. Concurrent requests are
batched. On SIGTERM or Ctrl-C, the server finishes the requests it has received.
Needs: pip install '.[serve]'.
"""

import contextlib
import dataclasses
import os
import re
import signal
import socket
import sys
import threading
from typing import Any, Dict, List

from absl import logging

from albert import cli
from albert.errors import InputError
from albert.files import filesystem, tables
from albert.model_folder import FolderSettings
from albert.predict import engines, predictors
from albert.predict.similarity import Corpus, VectorSim, read_reference
from albert.settings import NEEDED, USUAL, from_flags, setting

try:
  import uvicorn
  from uvicorn.protocols.http.auto import AutoHTTPProtocol

  from albert.serving import service
  from albert.serving.gate import LOCAL, Keys
except ImportError as problem:
  raise SystemExit(
    "ERROR: serve.py needs more packages (%s): pip install '.[serve]'" % problem
  ) from problem


_MOST_CONNECTIONS = 1000
_IDLE_SECONDS = 30  # without a request
_MEMORY = 4  # times a model's files that loading it takes


@dataclasses.dataclass(frozen=True)
class ServerSettings:
  """The models, the address and the API keys."""

  model_dir: tuple = setting(
    None,
    "Model folder, or NAME=folder; repeat it for more models. NAME "
    "defaults to the folder's, for a `best` folder to its parent's. Default: "
    "albert_tiny_starter.",
    NEEDED,
  )
  host: str = setting(
    "127.0.0.1",
    "Address to listen on; 0.0.0.0 for all, which requires --api_key_file.",
    USUAL,
  )
  port: int = setting(
    8080, "Port; 0 for a free one.", USUAL, least=0, most=65535
  )
  api_key_file: str = setting(
    None, "API keys, one per line; requests need one of them.", USUAL
  )
  reference_file: str = setting(
    None,
    "Sentences, one per line, whose mean vector pretrained models "
    "subtract to compare sentences; default: some of --corpus_file.",
    USUAL,
  )
  corpus_file: str = setting(
    None,
    "Texts, one per line, that pretrained models search for similar "
    "ones; their vectors are cached next to it.",
    USUAL,
  )
  allowed_hosts: list = setting(
    None,
    "Host names that browsers may use; default: localhost and its "
    "addresses, or any with a public --host.",
  )
  shutdown_seconds: float = setting(
    30.0,
    "Maximum seconds to finish queued requests at shutdown; then they "
    "get status 503.",
    least=0,
  )


SETTINGS = (
  ServerSettings,
  service.ServiceSettings,
  engines.EngineSettings,
  predictors.PredictSettings,
  FolderSettings,
)


def named(args: ServerSettings) -> Dict[str, str]:
  """Returns the folders to serve by name."""
  folders = {}
  for given in args.model_dir or ["albert_tiny_starter"]:
    name, equals, path = given.partition("=")
    if not equals:
      *_, above, last = ["model"] + os.path.abspath(given).split(os.sep)
      name, path = above if last == "best" else last, given
    if not re.fullmatch(r"[\w.-]+", name):
      raise InputError(
        "--model_dir=%s: a name has letters, digits, _, . and "
        "-: give NAME=folder" % given
      )
    if name in folders:
      raise InputError(
        "two models are named %s: give --model_dir=NAME=%s" % (name, path)
      )
    folders[name] = path
  return folders


def read_keys(path: str) -> List[str]:
  """Returns the API keys in a file, at least one."""
  keys = [line.strip() for line in tables.read_lines(path) if line.strip()]
  if not keys:
    raise InputError("%s: has no keys" % path)
  return keys


def listen(host: str, port: int) -> socket.socket:
  """Returns a listening socket."""
  try:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((host, port))
    listening.listen(1024)
    return listening
  except OSError as error:
    raise InputError(
      "--host=%s --port=%d: %s" % (host, port, error.strerror or error)
    ) from error


def create_app(args: ServerSettings) -> Any:
  """Loads the models and returns the ASGI application that serves them."""
  keys = Keys(read_keys(args.api_key_file) if args.api_key_file else ())
  is_local = args.host in ("127.0.0.1", "localhost", "::1")
  if not (is_local or keys.values):
    raise InputError(
      "--host=%s: refusing to listen publicly without a key: "
      "give --api_key_file" % args.host
    )
  folders, engine_settings, given, predict_settings = (
    named(args),
    *map(
      from_flags,
      (engines.EngineSettings, FolderSettings, predictors.PredictSettings),
    ),
  )

  def load(name):
    reference = read_reference(args.reference_file)
    engine = engines.load(engine_settings, folders[name], given)
    model = predictors.of_engine(engine, predict_settings)
    version = engine.digest()[:16]
    is_trained = engine.folder.vector is not None
    if not is_trained and model.kind != "masks":
      return service.Loaded(model, version=version)
    if args.corpus_file:
      corpus = Corpus(args.corpus_file, reference, model_dir=engine)
      return service.Loaded(
        model, corpus.similarity.compare, corpus.search, version
      )
    compares = reference or is_trained
    return service.Loaded(
      model,
      VectorSim(engine, reference).compare if (compares) else None,
      None,
      version,
    )

  def load_anew(name):
    check_memory(folders[name])
    loaded = load(name)
    if args.api_key_file:
      keys.values = read_keys(args.api_key_file)
    return loaded

  models = {name: load(name) for name in folders}
  if (args.reference_file or args.corpus_file) and not any(
    loaded.compare for loaded in models.values()
  ):
    raise InputError(
      "--reference_file and --corpus_file have no effect "
      "without a pretrained model, or one from "
      "run_sentence_vectors.py"
    )
  return service.create_app(
    models,
    from_flags(service.ServiceSettings),
    keys,
    load_anew,
    args.allowed_hosts or (LOCAL if is_local else None),
  )


def check_memory(folder: str) -> None:
  """Raises an InputError without enough memory for a second copy of a model."""
  if not os.path.exists("/proc/meminfo"):
    return
  with open("/proc/meminfo", encoding="ascii") as reader:
    free = 1024 * int(re.findall(r"MemAvailable:\s+(\d+)", reader.read())[0])
  size = sum(map(filesystem.size, filesystem.find_files(folder, "*.*")))
  if free < _MEMORY * size:
    raise InputError(
      "%s: %d MB free, %d MB needed"
      % (folder, free >> 20, _MEMORY * size >> 20)
    )


class Protocol(AutoHTTPProtocol):  # type: ignore[valid-type,misc]
  """Closes connections without a request."""

  def connection_made(self, transport: Any) -> None:
    super().connection_made(transport)
    self.loop.call_later(_IDLE_SECONDS, self._close_if_idle)

  def _close_if_idle(self):
    if self.cycle is None:
      self.transport.close()


class Server(uvicorn.Server):
  """Exits with status 0 at a signal, after finishing the queued requests.

  Args:
    config: of uvicorn.
    api: the routes.
    seconds: after which requests are refused.
  """

  def __init__(self, config: uvicorn.Config, api: service.Api, seconds: float):
    super().__init__(config)
    self._api = api
    self._seconds = seconds

  def handle_exit(self, sig: int, frame: Any) -> None:
    self.force_exit = self.should_exit
    self.should_exit = True

  async def shutdown(self, sockets: Any = None) -> None:
    self._api.is_ending = True
    for one in self._api.served.values():
      threading.Thread(
        target=one.close, args=[self._seconds], daemon=True
      ).start()
    await super().shutdown(sockets)


def main() -> None:
  args = from_flags(ServerSettings)
  listening = listen(args.host, args.port)
  app = create_app(args)
  logging.info(
    "http://%s:%d serves %s",
    args.host,
    listening.getsockname()[1],
    ", ".join(named(args)),
  )
  server = Server(
    uvicorn.Config(
      app,
      http=Protocol,
      access_log=False,
      log_level="warning",
      limit_concurrency=_MOST_CONNECTIONS,
      timeout_graceful_shutdown=int(args.shutdown_seconds) + 5,
    ),
    app.state.api,
    args.shutdown_seconds,
  )
  if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # not under nohup
    signal.signal(signal.SIGHUP, server.handle_exit)
  signal.signal(
    signal.SIGUSR1,
    lambda *_: threading.Thread(
      target=reload_all, args=[app.state.api], daemon=True
    ).start(),
  )
  server.run(sockets=[listening])
  logging.info("ended")
  # Without waiting for running predictions.
  sys.stderr.flush()
  os._exit(0)


def reload_all(api: service.Api) -> None:
  """Reloads all models; keeps the old one if that fails."""
  for one in list(api.served.values()):
    with contextlib.suppress(service.HTTPException):  # logged
      api.replace(one)


def run() -> None:
  """Runs `serve.py`, installed as `albert-serve`."""
  # Smaller batches pad short texts less.
  cli.run(main, SETTINGS, description=__doc__, batch_size=16)
