"""The HTTP API: routes, batching, limits and errors.

    GET   /                           demo page
    GET   /health, /metrics, /docs    for operators
    GET   /v1/models                  list of models
    POST  /v1/models/NAME:predict     predictions, as JSON
    POST  /v1/models/NAME:similarity  similarity of sentences
    POST  /v1/models/NAME:search      most similar texts of a corpus
"""

import asyncio
import contextlib
import dataclasses
import hmac
import json
import pathlib
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

import fastapi
import numpy as np
import prometheus_client
import pydantic
import swagger_ui_bundle
from fastapi import exceptions, responses, staticfiles
from fastapi.openapi import docs
from starlette.exceptions import HTTPException

from albert.errors import InputError
from albert.predict import inputs, predictors, results
from albert.serving.batching import Batcher, Full
from albert.settings import USUAL, setting

_PAGE = pathlib.Path(__file__).with_name("page.html")
# The page is self-contained and may load nothing else.
_POLICY = ("default-src 'none'; connect-src 'self'; img-src data:; "
           "style-src 'unsafe-inline'; script-src 'unsafe-inline'")
_OPEN = ("/", "/health", "/docs", "/openapi.json")  # without a key
_MOST_SENTENCES = 32  # per request
_PATIENCE = 100  # times the limit: a body up to this size is read and discarded


@dataclasses.dataclass(frozen=True)
class ServiceSettings:
  """Batching and limits."""
  max_batch_size: int = setting(
      32, "Maximum inputs per batch; 1 disables batching.", USUAL, least=1)
  max_wait_ms: float = setting(
      2.0, "Milliseconds that the first request waits for others.", USUAL,
      least=0)
  max_queue_size: int = setting(
      1024, "Maximum inputs in the queue; further requests get status 503.",
      least=1)
  max_instances: int = setting(
      256, "Maximum inputs per request; more get status 422.", least=1)
  max_body_bytes: int = setting(
      1 << 20, "Maximum bytes per request; more get status 413.", least=1)


class PredictRequest(pydantic.BaseModel, extra="forbid"):
  """Texts, or objects with a key for each field and perhaps an `id`."""
  instances: List[Union[str, Dict[str, Any]]] = pydantic.Field(
      min_length=1, examples=[["这部电影真好看"]])
  top_k: int = pydantic.Field(5, ge=1, le=1000)


class SimilarityRequest(pydantic.BaseModel, extra="forbid"):
  """Sentences to compare with each other."""
  sentences: List[str] = pydantic.Field(min_length=2,
                                        max_length=_MOST_SENTENCES)


class SearchRequest(pydantic.BaseModel, extra="forbid"):
  """Texts to find similar ones for in the corpus."""
  queries: List[str] = pydantic.Field(min_length=1,
                                      max_length=_MOST_SENTENCES)
  top_k: int = pydantic.Field(5, ge=1, le=1000)


class Served:
  """A model of the service.

  Args:
    name: name in the URLs.
    model: predicts.
    settings: batching and limits.
    compare: maps N sentences to their similarity with each other, float [N, N];
      None if the model does not compare sentences.
    search: maps (queries, top_k) to a list of similarity.Found per query; None
      if there is no corpus.
    on_batch: see Batcher.
  """

  def __init__(self, name: str, model: predictors.Predictor,
               settings: ServiceSettings,
               compare: Optional[Callable[[List[str]], np.ndarray]],
               search: Optional[Callable[[List[str], int], List[Any]]],
               on_batch: Callable[[int], Any]):
    self.name = name
    self._model = model
    self._settings = settings
    self.predictions = Batcher(
        self._predict, settings.max_batch_size, settings.max_wait_ms / 1e3,
        settings.max_queue_size, on_batch)
    self.scores: Optional[Batcher] = None
    if compare:
      self.scores = Batcher(
          lambda inputs, _: [np.asarray(compare(sentences)).tolist()
                             for sentences in inputs],
          1, 0, settings.max_queue_size)
    self.found: Optional[Batcher] = None
    if search:
      self.found = Batcher(
          search, settings.max_batch_size, 0, settings.max_queue_size)

  def describe(self) -> Dict[str, Any]:
    """Returns what the page and clients need to know."""
    return {"name": self.name, "kind": self._model.kind,
            "fields": self._model.fields, "labels": self._model.labels,
            "compares_sentences": bool(self.scores),
            "searches": bool(self.found),
            "max_instances": self._settings.max_instances}

  def close(self) -> None:
    """Finishes the queued requests."""
    for batcher in filter(None, (self.predictions, self.scores, self.found)):
      batcher.close()

  def parse(self, instances: List[Any]) -> List[Any]:
    """Converts the instances of a request to inputs of the model.

    Raises:
      HTTPException: an instance does not fit the model; status 422.
    """
    if len(instances) > self._settings.max_instances:
      raise _unfit(["instances"], "more than %d" % self._settings.max_instances)
    return [self._parse(row, ["instances", number])
            for number, row in enumerate(instances)]

  def _parse(self, row, where):
    fields = self._model.fields
    if isinstance(row, str) and len(fields) == 1:
      row = {fields[0]: row}
    if not isinstance(row, dict):
      raise _unfit(where, "expected an object of " + ", ".join(fields))
    names = {inputs.column_of(field, self._model.reading): field
             for field in fields}
    row = {names.get(key, key): value for key, value in row.items()
           if key != "id"}
    for key in list(row) + list(fields):
      if key not in fields or key not in row:
        raise _unfit(where + [key], "the model takes " + ", ".join(fields))
    for field, value in row.items():
      several = field == "choices"
      if several and not (isinstance(value, list) and len(value) > 1):
        raise _unfit(where + [field], "expected a list of two texts or more")
      for text in value if several else [value]:
        if _problem_of(text):
          raise _unfit(where + [field], _problem_of(text))
    values = tuple(row[field] for field in fields)
    return values if len(fields) > 1 else values[0]

  def _predict(self, inputs, top_k):
    """Returns the JSON of each input; runs in the batcher's thread."""
    return [dict(results.to_json(result), truncated=self._model.is_cut(row))
            for row, result in zip(inputs, self._model.predict(inputs, top_k))]


def _problem_of(text):
  """Returns an error message for a text, or None."""
  if not isinstance(text, str):
    return "expected text"
  if "\0" in text:
    return "has a NUL character"
  try:
    text.encode()
  except UnicodeEncodeError:
    return "has half of a surrogate pair, which is no character"
  return None


def _unfit(where, message):
  return HTTPException(422, [
      {"loc": ["body"] + where, "msg": message, "type": "value_error"}])


def _respond(content, status=200, headers=None):
  """Returns a JSON response; escapes lone surrogates, invalid in UTF-8."""
  text = json.dumps(content, ensure_ascii=False)
  return responses.Response(text.encode("utf-8", "backslashreplace"), status,
                            headers, "application/json")


class _Gate:
  """ASGI middleware that checks the key and the body size of each request.

  Args:
    app: ASGI application behind it.
    keys: without any, every request passes.
    max_body_bytes: larger bodies get status 413.
    on_status: called with the status of each response.
  """

  def __init__(self, app, keys, max_body_bytes, on_status):
    self._app = app
    self._keys = ["Bearer %s" % key for key in keys]
    self._most = max_body_bytes
    self._on_status = on_status

  async def __call__(self, scope, receive, send):
    if scope["type"] != "http":
      await self._app(scope, receive, send)
      return

    async def counted_send(message):
      if message["type"] == "http.response.start":
        self._on_status(message["status"])
      await send(message)

    app, body = self._app, b""
    if not self._may_pass(scope):
      app = _respond({"detail": "give a key: Authorization: Bearer KEY"}, 401,
                     {"WWW-Authenticate": "Bearer"})
    size, more = 0, app is self._app
    while more:
      message = await receive()
      if message["type"] == "http.disconnect":
        return
      more = message.get("more_body", False)
      size += len(message.get("body", b""))
      if size <= self._most:
        body += message.get("body", b"")
      elif size > _PATIENCE * self._most:
        break
    # The body was read even if too large: most clients send it all first.
    if size > self._most:
      app = _respond({"detail": "more than %d bytes" % self._most}, 413,
                     {"Connection": "close"})
    whole = [{"type": "http.request", "body": body}]

    async def given():
      return whole.pop() if whole else await receive()

    try:
      await app(scope, given, counted_send)
    except Exception:  # the server around this responds and logs
      self._on_status(500)
      raise

  def _may_pass(self, scope):
    if not self._keys or scope["path"] in _OPEN or (
        scope["path"].startswith("/static/")):
      return True
    key = dict(scope["headers"]).get(b"authorization", b"")
    return any(hmac.compare_digest(key, known.encode()) for known in self._keys)


class _Metrics:
  """Metrics for Prometheus."""

  def __init__(self):
    self.registry = prometheus_client.CollectorRegistry()
    self.answers = prometheus_client.Counter(
        "albert_answers", "Answers", ["status"], registry=self.registry)
    self.seconds = prometheus_client.Histogram(
        "albert_prediction_seconds", "From a request's arrival to its answer",
        ["model"], buckets=[.001 * 2 ** i for i in range(14)],
        registry=self.registry)
    self.batches = prometheus_client.Histogram(
        "albert_batch_inputs", "Inputs per batch", ["model"],
        buckets=[2 ** i for i in range(10)], registry=self.registry)
    self.waiting = prometheus_client.Gauge(
        "albert_waiting_inputs", "Inputs that wait", ["model"],
        registry=self.registry)


class Api:
  """The routes, one per public method.

  Args:
    served: models by name.
    metrics: updated with each request.
  """

  def __init__(self, served: Dict[str, Served], metrics: _Metrics):
    self._served = served
    self._metrics = metrics

  def _find(self, name):
    if name not in self._served:
      raise HTTPException(404, "there is no model %s, only %s" % (
          name, ", ".join(self._served)))
    return self._served[name]

  async def _answer(self, one, batcher, inputs, top_k=None):
    """Returns the results from a batcher."""
    start = time.perf_counter()
    try:
      found = await asyncio.wrap_future(batcher.submit(inputs, top_k))
    except Full as error:
      raise HTTPException(503, "%d inputs are waiting" % (
          batcher.waiting), {"Retry-After": "1"}) from error
    except InputError as error:
      raise _unfit(["instances"], str(error)) from error
    self._metrics.seconds.labels(one.name).observe(time.perf_counter() - start)
    return found

  def page(self) -> responses.Response:
    return responses.HTMLResponse(_PAGE.read_bytes(), headers={
        "Content-Security-Policy": _POLICY})

  def openapi_page(self) -> responses.Response:
    return docs.get_swagger_ui_html(
        openapi_url="openapi.json", title="Models",
        swagger_favicon_url="data:,",
        swagger_js_url="static/swagger-ui-bundle.js",
        swagger_css_url="static/swagger-ui.css")

  def health(self) -> Dict[str, str]:
    return {"status": "ok"}

  def prometheus(self) -> responses.Response:
    return responses.PlainTextResponse(
        prometheus_client.generate_latest(self._metrics.registry),
        media_type=prometheus_client.CONTENT_TYPE_LATEST)

  def list_models(self) -> Dict[str, Any]:
    """All models."""
    return {"models": [one.describe() for one in self._served.values()]}

  def describe_model(self, name: str) -> Dict[str, Any]:
    """The inputs and outputs of a model."""
    return self._find(name).describe()

  async def predict(
      self, name: str, request: PredictRequest) -> responses.Response:
    """A prediction per instance, its `id`, and whether it was truncated."""
    one = self._find(name)
    found = await self._answer(
        one, one.predictions, one.parse(request.instances), request.top_k)
    return _respond({"predictions": [
        dict({"id": row["id"]}, **result)
        if isinstance(row, dict) and "id" in row else result
        for row, result in zip(request.instances, found)]})

  async def similarity(
      self, name: str, request: SimilarityRequest) -> responses.Response:
    """The cosines of the sentences with each other: one row per sentence."""
    one = self._find(name)
    if not one.scores:
      raise HTTPException(404, "%s compares no sentences" % name)
    _check_texts("sentences", request.sentences)
    scores, = await self._answer(one, one.scores, [request.sentences])
    return _respond({"scores": scores})

  async def search(
      self, name: str, request: SearchRequest) -> responses.Response:
    """The texts of the corpus most similar to each query."""
    one = self._find(name)
    if not one.found:
      raise HTTPException(404, "%s searches no corpus" % name)
    _check_texts("queries", request.queries)
    found = await self._answer(one, one.found, request.queries, request.top_k)
    return _respond({"results": [[x._asdict() for x in row] for row in found]})


def _check_texts(field, texts):
  for number, text in enumerate(texts):
    if _problem_of(text):
      raise _unfit([field, number], _problem_of(text))


def _refuse(request, error):
  return _respond({"detail": error.detail}, error.status_code, error.headers)


def _refuse_unfit(request, error):
  return _respond({"detail": [
      {key: problem[key] for key in ("loc", "msg", "type")}
      for problem in error.errors()]}, 422)


def create_app(models: Dict[str, predictors.Predictor],
               settings: Optional[ServiceSettings] = None,
               keys: Sequence[str] = (),
               compare: Optional[Dict[str, Callable]] = None,
               search: Optional[Dict[str, Callable]] = None) -> fastapi.FastAPI:
  """Returns the service, an ASGI application.

  Args:
    models: models by name.
    settings: None for the defaults.
    keys: API keys; if there are any, all but the page requires one.
    compare, search: functions by name of the model; see Served.
  """
  settings = settings or ServiceSettings()
  metrics = _Metrics()
  served = {name: Served(
      name, model, settings, (compare or {}).get(name),
      (search or {}).get(name), metrics.batches.labels(name).observe)
            for name, model in models.items()}
  for name, one in served.items():
    metrics.waiting.labels(name).set_function(
        lambda batcher=one.predictions: batcher.waiting)

  @contextlib.asynccontextmanager
  async def lifespan(app):
    yield
    for one in served.values():
      one.close()

  app = fastapi.FastAPI(
      title="Models", lifespan=lifespan, docs_url=None, redoc_url=None,
      exception_handlers={
          HTTPException: _refuse,
          exceptions.RequestValidationError: _refuse_unfit})
  app.add_middleware(
      _Gate, keys=keys, max_body_bytes=settings.max_body_bytes,
      on_status=lambda status: metrics.answers.labels(status).inc())
  app.mount("/static", staticfiles.StaticFiles(
      directory=swagger_ui_bundle.swagger_ui_path))
  api = Api(served, metrics)
  app.get("/", include_in_schema=False)(api.page)
  app.get("/docs", include_in_schema=False)(api.openapi_page)
  # response_model=None: plain dicts, with no schema derived from annotations.
  app.get("/health", response_model=None)(api.health)
  app.get("/metrics")(api.prometheus)
  app.get("/v1/models", response_model=None)(api.list_models)
  app.get("/v1/models/{name}", response_model=None)(api.describe_model)
  app.post("/v1/models/{name}:predict")(api.predict)
  app.post("/v1/models/{name}:similarity")(api.similarity)
  app.post("/v1/models/{name}:search")(api.search)
  return app
