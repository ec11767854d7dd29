"""Runs a service in a thread, with a client."""

import contextlib
import http.client
import json
import threading
import time
import types


@contextlib.contextmanager
def live(app):
  """Serves an ASGI application; yields its `client`."""
  import uvicorn

  server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
  server.install_signal_handlers = lambda: None
  server.capture_signals = contextlib.nullcontext
  thread = threading.Thread(target=server.run)
  thread.start()
  while not server.started and thread.is_alive():
    time.sleep(0.01)
  try:
    yield client(server.servers[0].sockets[0].getsockname()[1])
  finally:
    server.should_exit = True
    thread.join()


def client(port):
  """Returns a function that sends requests to 127.0.0.1.

  `body`: object or bytes to POST, None to GET.
  """

  def ask(path, body=None, headers=()):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    if body is not None and not isinstance(body, bytes):
      body = json.dumps(body).encode()
    with contextlib.closing(connection):
      connection.request(
        "GET" if body is None else "POST",
        path,
        body,
        dict({"Content-Type": "application/json"}, **dict(headers)),
      )
      response = connection.getresponse()
      text = response.read().decode()
      is_json = "json" in response.headers.get("Content-Type", "")
      return types.SimpleNamespace(
        status=response.status,
        headers=response.headers,
        text=text,
        json=json.loads(text) if is_json else None,
      )

  ask.port = port
  return ask
