"""Serves models over HTTP, with a page to try them.

    python serve.py --model_dir=output/my_task/best
    python serve.py --model_dir=topics=output/one --model_dir=output/two/best
    python serve.py --engine=onnx --model_dir=onnx --port=8000

    curl -H "Content-Type: application/json" -d '{"instances": ["真好看"]}' \\
      http://127.0.0.1:8080/v1/models/my_task:predict

The page is at /, the API's description at /docs. Concurrent requests are
batched. On SIGTERM or Ctrl-C, the server finishes the requests that it has
received. Needs: pip install '.[serve]'.
"""

import dataclasses
import os
import re
import socket

from absl import logging

from albert import cli
from albert.errors import InputError
from albert.files import filesystem
from albert.model_folder import FolderSettings
from albert.predict import engines, predictors
from albert.predict.search import Corpus
from albert.predict.similarity import VectorSim, read_reference
from albert.settings import NEEDED, USUAL, from_flags, setting

try:
  import uvicorn

  from albert.serving import service
except ImportError as problem:
  raise SystemExit("ERROR: serve.py needs more packages (%s): pip install "
                   "'.[serve]'" % problem) from problem


@dataclasses.dataclass(frozen=True)
class ServerSettings:
  """Which models, and to whom."""
  model_dir: tuple = setting(
      None, "Folder with a model, or NAME=folder; once for each model. Default "
      "of NAME: the folder's own, or that of what `best` is in. Default: "
      "albert_tiny_starter.", NEEDED)
  host: str = setting(
      "127.0.0.1", "Address to listen at; 0.0.0.0 for all, which takes "
      "--api_key_file.", USUAL)
  port: int = setting(8080, "Port; 0 for a free one.", USUAL, least=0,
                      most=65535)
  api_key_file: str = setting(
      None, "Keys, one a line; requests need one of them.", USUAL)
  reference_file: str = setting(
      None, "Sentences, one a line, whose mean vector is subtracted before "
      "others are compared, which pretrained models do with it; default: some "
      "of --corpus_file.", USUAL)
  corpus_file: str = setting(
      None, "Texts, one a line, that pretrained models find like ones among; "
      "their vectors are kept next to it.", USUAL)


SETTINGS = (ServerSettings, service.ServiceSettings, engines.EngineSettings,
            predictors.PredictSettings, FolderSettings)


def named(args):
  """Returns the folders to serve: dict, name -> path."""
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


def read_keys(path):
  """Returns the keys in a file, at least one."""
  keys = [line.strip() for line in filesystem.read_lines(path) if line.strip()]
  if not keys:
    raise InputError("%s: has no keys" % path)
  return keys


def listen(host, port):
  """Returns a socket that listens."""
  try:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    args = socket.socket(family)
    args.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    args.bind((host, port))
    args.listen(1024)
    return args
  except OSError as error:
    raise InputError("--host=%s --port=%d: %s" % (
        host, port, error.strerror or error)) from error


def create_app(args):
  """Loads the models; returns the ASGI application that serves them."""
  keys = read_keys(args.api_key_file) if args.api_key_file else []
  if args.host not in ("127.0.0.1", "localhost", "::1") and not keys:
    raise InputError("--host=%s: refusing to listen publicly without a key: "
                     "give --api_key_file" % args.host)
  reference = read_reference(args.reference_file)
  models, compare, search = {}, {}, {}
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


def main():
  args = from_flags(ServerSettings)
  listening = listen(args.host, args.port)
  app = create_app(args)
  logging.info("http://%s:%d serves %s", args.host, listening.getsockname()[1],
               ", ".join(named(args)))
  server = uvicorn.Server(uvicorn.Config(
      app, access_log=False, log_level="warning", timeout_graceful_shutdown=30))
  server.run(sockets=[listening])


def run():
  """Runs `serve.py`, which is `albert-serve` where it is installed."""
  # Short texts are padded less in smaller batches.
  cli.run(main, SETTINGS, description=__doc__, batch_size=16)
