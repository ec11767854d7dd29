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

import dataclasses
import os
import re
import socket
from typing import Any, Dict, List

from absl import logging

from albert import cli
from albert.errors import InputError
from albert.files import tables
from albert.model_folder import FolderSettings
from albert.predict import engines, predictors
from albert.predict.similarity import Corpus, VectorSim, read_reference
from albert.settings import NEEDED, USUAL, from_flags, setting

try:
  import uvicorn

  from albert.serving import service
except ImportError as problem:
  raise SystemExit("ERROR: serve.py needs more packages (%s): pip install "
                   "'.[serve]'" % problem) from problem


@dataclasses.dataclass(frozen=True)
class ServerSettings:
  """The models, and who may use them."""
  model_dir: tuple = setting(
      None, "Model folder, or NAME=folder; repeat it for more models. NAME "
      "defaults to the folder's, for a `best` folder to its parent's. Default: "
      "albert_tiny_starter.", NEEDED)
  host: str = setting(
      "127.0.0.1", "Address to listen on; 0.0.0.0 for all, which requires "
      "--api_key_file.", USUAL)
  port: int = setting(8080, "Port; 0 for a free one.", USUAL, least=0,
                      most=65535)
  api_key_file: str = setting(
      None, "API keys, one per line; requests need one of them.", USUAL)
  reference_file: str = setting(
      None, "Sentences, one per line, whose mean vector is subtracted, so that "
      "pretrained models can compare others; default: some of --corpus_file.",
      USUAL)
  corpus_file: str = setting(
      None, "Texts, one per line, that pretrained models search for similar "
      "ones; their vectors are cached next to it.", USUAL)


SETTINGS = (ServerSettings, service.ServiceSettings, engines.EngineSettings,
            predictors.PredictSettings, FolderSettings)


def named(args: ServerSettings) -> Dict[str, str]:
  """Returns the folders to serve by name."""
  folders = {}
  for given in args.model_dir or ["albert_tiny_starter"]:
    name, equals, path = given.partition("=")
    if not equals:
      *_, above, last = ["model"] + os.path.abspath(given).split(os.sep)
      name, path = above if last == "best" else last, given
    if not re.fullmatch(r"[\w.-]+", name):
      raise InputError("--model_dir=%s: a name has letters, digits, _, . and "
                       "-: give NAME=folder" % given)
    if name in folders:
      raise InputError("two models are called %s: give --model_dir=NAME=%s" % (
          name, path))
    folders[name] = path
  return folders


def read_keys(path: str) -> List[str]:
  """Returns the keys in a file, at least one."""
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
    raise InputError("--host=%s --port=%d: %s" % (
        host, port, error.strerror or error)) from error


def create_app(args: ServerSettings) -> Any:
  """Loads the models and returns the ASGI application that serves them."""
  keys = read_keys(args.api_key_file) if args.api_key_file else []
  if args.host not in ("127.0.0.1", "localhost", "::1") and not keys:
    raise InputError("--host=%s: refusing to listen publicly without a key: "
                     "give --api_key_file" % args.host)
  reference = read_reference(args.reference_file)
  models: Dict[str, predictors.Predictor] = {}
  compare, search = {}, {}
  for name, path in named(args).items():
    engine = engines.load(from_flags(engines.EngineSettings), path,
                          from_flags(FolderSettings))
    models[name] = predictors.of_engine(
        engine, from_flags(predictors.PredictSettings))
    is_trained = engine.folder.vector is not None
    if not is_trained and models[name].kind != "masks":
      continue
    if args.corpus_file:
      corpus = Corpus(args.corpus_file, reference, model_dir=engine)
      compare[name], search[name] = corpus.similarity.compare, corpus.search
    elif reference or is_trained:
      compare[name] = VectorSim(engine, reference).compare
  if (reference or args.corpus_file) and not compare:
    raise InputError("--reference_file and --corpus_file have no effect "
                     "without a pretrained model, or one of "
                     "run_sentence_vectors.py")
  return service.create_app(
      models, from_flags(service.ServiceSettings), keys, compare,
      search)


def main() -> None:
  args = from_flags(ServerSettings)
  listening = listen(args.host, args.port)
  app = create_app(args)
  logging.info("http://%s:%d serves %s", args.host, listening.getsockname()[1],
               ", ".join(named(args)))
  server = uvicorn.Server(uvicorn.Config(
      app, access_log=False, log_level="warning", timeout_graceful_shutdown=30))
  server.run(sockets=[listening])


def run() -> None:
  """Runs `serve.py`, installed as `albert-serve`."""
  # Smaller batches pad short texts less.
  cli.run(main, SETTINGS, description=__doc__, batch_size=16)
