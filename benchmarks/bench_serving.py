r"""Throughput, latency and memory of serve.py under load.

    python benchmarks/bench_serving.py --model_dir=output/topics/best \
      --input_file=data/text_train.txt

Each client sends a text of 20 to 60 characters, waits for the response and
sends the next; all clients share a second process on this machine. Servers
with the same weights:
  batched    serve.py --engine=onnx
  unbatched  the same with --max_batch_size=1
  int8       batched, from export_model.py --int8
  pipeline   FastAPI around transformers.pipeline, with torch and transformers
Memory is that of the server before the first and after the last response.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from typing import List, Tuple

import numpy as np
import psutil
from absl import app, flags

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

FLAGS = flags.FLAGS
flags.DEFINE_string(
  "model_dir", None, "Folder of a fine-tuned classifier.", required=True
)
flags.DEFINE_string(
  "input_file", None, "Text to take texts from.", required=True
)
flags.DEFINE_list(
  "servers", ["batched", "unbatched", "int8", "pipeline"], "What to measure."
)
flags.DEFINE_list("clients", ["1", "8", "64"], "Numbers of clients to measure.")
flags.DEFINE_float("seconds", 20.0, "Duration of each measurement.")
flags.DEFINE_integer("serve_pipeline", None, "Internal.")


def read_texts(path: str) -> List[str]:
  """Returns texts of 20 to 60 characters."""
  with open(path, encoding="utf-8") as reader:
    text = "".join(line.strip() for line in reader)
  lengths = np.random.RandomState(0).randint(20, 61, size=1000)
  starts = np.cumsum(lengths) % (len(text) - 60)
  return [
    text[start : start + length] for start, length in zip(starts, lengths)
  ]


class Client:
  """Keep-alive connections; responses are only counted."""

  def __init__(self, port: int, path: str, texts: List[str]):
    self._port = port
    self._requests = []
    for text in texts:
      body = json.dumps({"instances": [text]}).encode()
      self._requests.append(
        (
          "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/"
          "json\r\nContent-Length: %d\r\n\r\n" % (path, len(body))
        ).encode()
        + body
      )
    self.seconds, self.errors = [], 0

  async def run(self, number: int, end: float) -> None:
    """Sends requests until the time `end`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
    while time.perf_counter() < end:
      start = time.perf_counter()
      writer.write(self._requests[number % len(self._requests)])
      head = await reader.readuntil(b"\r\n\r\n")
      length = re.search(rb"content-length: (\d+)", head, re.I).group(1)
      await reader.readexactly(int(length))
      self.seconds.append(time.perf_counter() - start)
      self.errors += b" 200 " not in head.split(b"\r\n")[0]
      number += 97
    writer.close()


def load_server(
  port: int, path: str, texts: List[str], clients: int, seconds: float
) -> Tuple[float, List[float], int]:
  """Returns requests/s, the seconds of each request, and errors."""

  async def run():
    client = Client(port, path, texts)
    end = time.perf_counter() + seconds
    await asyncio.gather(
      *[client.run(31 * number, end) for number in range(clients)]
    )
    return client

  client = asyncio.run(run())
  return len(client.seconds) / seconds, client.seconds, client.errors


def serve_pipeline(folder: str, port: int) -> None:
  """Serves a transformers folder in the usual way, one text at a time."""
  import fastapi
  import transformers
  import uvicorn

  classify = transformers.pipeline(
    "text-classification", model=folder, tokenizer=folder, top_k=None
  )
  service = fastapi.FastAPI()

  @service.post("/predict")
  def predict(body: dict):
    return {"predictions": classify(body["instances"])}

  uvicorn.run(service, port=port, log_level="warning")


def start(server: str, folder: str) -> Tuple[subprocess.Popen, int, str]:
  """Starts a server; returns (process, port, path) once it responds."""
  port = 8200 + FLAGS.servers.index(server)
  if server == "pipeline":
    command = [
      os.path.abspath(__file__),
      "--model_dir=" + folder,
      "--input_file=-",
      "--serve_pipeline=%d" % port,
    ]
    path = "/predict"
  else:
    command = [
      "serve.py",
      "--engine=onnx",
      "--model_dir=model=" + folder,
      "--port=%d" % port,
    ]
    if server == "unbatched":
      command.append("--max_batch_size=1")
    path = "/v1/models/model:predict"
  process = subprocess.Popen([sys.executable] + command, cwd=ROOT)
  texts = ["今天天气很好"]
  for _ in range(600):
    time.sleep(0.1)
    try:
      load_server(port, path, texts, 1, 1.0)
      return process, port, path
    except OSError:
      if process.poll() is not None:
        break
  raise RuntimeError("%s did not start" % server)


def megabytes(process):
  return psutil.Process(process.pid).memory_info().rss / 1e6


def make_folder(server: str, target: str) -> None:
  """Exports the model of a server."""
  script = ["export_model.py", "--onnx", "--signature=classify"]
  if server == "pipeline":
    script = ["convert_to_pytorch.py"]
  elif server == "int8":
    script.append("--int8")
  subprocess.run(
    [sys.executable]
    + script
    + [
      "--init_checkpoint=" + os.path.abspath(FLAGS.model_dir),
      "--output_dir=" + target,
      "--verbosity=-1",
    ],
    cwd=ROOT,
    check=True,
  )


def main(_):
  if FLAGS.serve_pipeline:
    serve_pipeline(FLAGS.model_dir, FLAGS.serve_pipeline)
    return
  texts = read_texts(FLAGS.input_file)
  print("server\tclients\trequests/s\tp50 ms\tp99 ms\terrors\tMB before\tafter")
  with tempfile.TemporaryDirectory() as folder:
    for server in FLAGS.servers:
      target = os.path.join(folder, server)
      make_folder(server, target)
      process, port, path = start(server, target)
      try:
        for clients in map(int, FLAGS.clients):
          before = megabytes(process)
          rate, seconds, errors = load_server(
            port, path, texts, clients, FLAGS.seconds
          )
          print(
            "%s\t%d\t%.0f\t%.1f\t%.1f\t%d\t%.0f\t%.0f"
            % (
              server,
              clients,
              rate,
              *1e3 * np.percentile(seconds, [50, 99]),
              errors,
              before,
              megabytes(process),
            ),
            flush=True,
          )
      finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
  app.run(main)
