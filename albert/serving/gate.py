"""Checks requests before they are processed, and logs them.

Tests: tests/serving/test_service.py.
"""

import asyncio
import hmac
import json
import re
import time
import uuid
from typing import Sequence

from absl import logging

from albert.serving.requests import respond

LOCAL = ("localhost", "127.0.0.1", "[::1]")
PROBES = ("/health", "/ready")  # any Host header
_OPEN = ("/", "/docs", "/openapi.json", *PROBES)  # without a key
_PATIENCE = 100  # times the limit: bodies up to this size are read to the end
_BODY_SECONDS = 30  # within which a body must arrive


class Keys:
  """API keys, replaced by a reload."""

  def __init__(self, keys: Sequence[str] = ()):
    self.values = list(keys)

  def has(self, header: bytes) -> bool:
    """Returns whether an Authorization header has one of the keys."""
    return any(
      [
        hmac.compare_digest(header, b"Bearer " + key.encode())
        for key in self.values
      ]
    )


class Gate:
  """ASGI middleware that checks each request before it is processed.

  Args:
    app: ASGI application behind it.
    keys: if empty, every request passes.
    allowed_hosts: allowed values of the Host header, without ports, against DNS
      rebinding; None for any.
    settings: limits.
    on_status: called with the status of each response.
  """

  def __init__(self, app, keys, allowed_hosts, settings, on_status):
    self._app = app
    self._keys = keys
    self._hosts = allowed_hosts
    self._settings = settings
    self._on_status = on_status

  async def __call__(self, scope, receive, send):
    if scope["type"] != "http":
      await self._app(scope, receive, send)
      return
    start, status = time.perf_counter(), []
    headers = {
      name.decode("latin-1"): value for name, value in scope["headers"]
    }
    known = re.fullmatch(rb"[\w.-]{1,64}", headers.get("x-request-id", b""))
    request_id = known.group() if known else uuid.uuid4().hex.encode()

    async def counted_send(message):
      if message["type"] == "http.response.start":
        status.append(message["status"])
        message = dict(
          message, headers=[*message["headers"], (b"x-request-id", request_id)]
        )
      await send(message)

    try:
      await self._pass(scope, headers, receive, counted_send)
    except Exception:  # the server responds and logs
      status.append(500)
      raise
    finally:
      for number in status[:1]:
        self._on_status(number)
        self._log(scope, number, time.perf_counter() - start, request_id)

  async def _pass(self, scope, headers, receive, send):
    refused = self._refused(scope, headers)
    most, body, size, more = self._settings.max_body_bytes, b"", 0, not refused
    end = time.monotonic() + _BODY_SECONDS
    while more:
      try:
        message = await asyncio.wait_for(receive(), end - time.monotonic())
      except asyncio.TimeoutError:
        refused = respond(
          {"detail": "the body did not arrive in %d s" % _BODY_SECONDS},
          408,
          {"Connection": "close"},
        )
        break
      if message["type"] == "http.disconnect":
        return
      more = message.get("more_body", False)
      size += len(message.get("body", b""))
      if size <= most:
        body += message.get("body", b"")
      elif size > _PATIENCE * most:
        break
    # Even a body that is too large was read: most clients send all of it first.
    if size > most:
      refused = respond(
        {"detail": "more than %d bytes" % most}, 413, {"Connection": "close"}
      )
    whole = [{"type": "http.request", "body": body}]

    async def given():
      return whole.pop() if whole else await receive()

    await (refused or self._app)(scope, given, send)

  def _refused(self, scope, headers):
    """Returns the response to a refused request, or None."""
    path = scope["path"]
    if self._hosts is not None and path not in PROBES:
      origin = headers.get("origin")
      hosts = [headers.get("host", b"")]
      if origin is not None:
        hosts.append(origin.split(b"://", 1)[-1])
      for host in hosts:
        if re.sub(r":\d*$", "", host.decode("latin-1")) not in self._hosts:
          return respond(
            {"detail": "%r is not in --allowed_hosts" % host.decode("latin-1")},
            403,
          )
    is_open = path in _OPEN or path.startswith("/static/")
    if (
      self._keys.values
      and not is_open
      and not self._keys.has(headers.get("authorization", b""))
    ):
      return respond(
        {"detail": "give a key: Authorization: Bearer KEY"},
        401,
        {"WWW-Authenticate": "Bearer"},
      )
    kind = headers.get("content-type", b"").split(b";")[0].strip().lower()
    if scope["method"] == "POST" and kind != b"application/json":
      return respond({"detail": "give Content-Type: application/json"}, 415)
    return None

  def _log(self, scope, status, seconds, request_id):
    if self._settings.access_log == "none":
      return
    line = {
      "method": scope["method"],
      "path": scope["path"][:200],
      "status": status,
      "ms": round(1000 * seconds, 1),
      "client": (scope.get("client") or ["-"])[0],
      "id": request_id.decode(),
    }
    logging.info(
      "%s",
      json.dumps(line, ensure_ascii=True)
      if (self._settings.access_log == "json")
      else " ".join(
        ascii(value)[1:-1] if isinstance(value, str) else str(value)
        for value in line.values()
      ),
    )
