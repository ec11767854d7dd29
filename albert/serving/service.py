"""An HTTP service of models: what can be asked, and what is refused.

    GET   /                           the page
    GET   /health, /metrics, /docs    for operators
    GET   /v1/models                  what there is
    POST  /v1/models/NAME:predict     predictions, as JSON
    POST  /v1/models/NAME:similarity  how alike sentences are
    POST  /v1/models/NAME:search      texts of a corpus that are like others
"""

import asyncio
import contextlib
import dataclasses
import hmac
import json
import pathlib
import time
from typing import Any, Dict, List, Union

import fastapi
import numpy as np
import prometheus_client
import pydantic
import swagger_ui_bundle
from fastapi import exceptions, responses, staticfiles
from fastapi.openapi import docs
from starlette.exceptions import HTTPException

from albert.errors import InputError
from albert.predict import results
from albert.serving.batching import Batcher, Full
from albert.settings import USUAL, setting

_PAGE = pathlib.Path(__file__).with_name("page.html")
# The page is self-contained, and may load nothing.
_POLICY = ("default-src 'none'; connect-src 'self'; img-src data:; "
           "style-src 'unsafe-inline'; script-src 'unsafe-inline'")
_OPEN = ("/", "/health", "/docs", "/openapi.json")  # without a key
_MOST_SENTENCES = 32  # of a grid
_PATIENCE = 100  # times the bytes of a request, that are read and forgotten


@dataclasses.dataclass(frozen=True)
class ServiceSettings:
  """How requests are batched, and what is too much."""
  max_batch_size: int = setting(
      32, "Maximum inputs per batch; 1 to predict each request by "
      "itself.", USUAL, least=1)
  max_wait_ms: float = setting(
      2.0, "Milliseconds that the first of them waits for others.", USUAL,
      least=0)
  max_queue_size: int = setting(
      1024, "Inputs that may wait; further requests are refused with status "
      "503.", least=1)
  max_instances: int = setting(
      256, "Inputs of a request; more are refused with status 422.", least=1)
  max_body_bytes: int = setting(
      1 << 20, "Bytes of a request; longer ones are refused with status 413.",
      least=1)


class PredictRequest(pydantic.BaseModel, extra="forbid"):
  """What to predict: texts, or objects with a key for each field."""
  instances: List[Union[str, Dict[str, Any]]] = pydantic.Field(
      min_length=1, examples=[["这部电影真好看"]])
  top_k: int = pydantic.Field(5, ge=1, le=1000)


class SimilarityRequest(pydantic.BaseModel, extra="forbid"):
  """Sentences to compare with each other."""
  sentences: List[str] = pydantic.Field(min_length=2,
                                        max_length=_MOST_SENTENCES)


class SearchRequest(pydantic.BaseModel, extra="forbid"):
  """Texts whose like are to be found in the corpus."""
  queries: List[str] = pydantic.Field(min_length=1,
                                      max_length=_MOST_SENTENCES)
  top_k: int = pydantic.Field(5, ge=1, le=1000)


class Served:
  """A model of the service.

  Args:
    name: str.
    model: predictors.Predictor.
    settings: ServiceSettings.
    compare: function of a list of sentences, N, that returns float [N, N], how
      alike each is to each; or None.
    search: function of (list of queries, top_k) that returns a list of
      search.Found for each; or None.
    on_batch: see Batcher.
  """

  def __init__(self, name, model, settings, compare, search, on_batch):
    self.name = name
    self._model = model
    self._settings = settings
    self.predictions = Batcher(
        self._predict, settings.max_batch_size, settings.max_wait_ms / 1e3,
        settings.max_queue_size, on_batch)
    self.scores = compare and Batcher(
        lambda inputs, _: [np.asarray(compare(sentences)).tolist()
                           for sentences in inputs],
        1, 0, settings.max_queue_size)
    self.found = search and Batcher(
        search, settings.max_batch_size, 0, settings.max_queue_size)

  def describe(self):
    """Returns what the page and clients need to know, a dict."""
    return {"name": self.name, "kind": self._model.kind,
            "fields": self._model.fields, "labels": self._model.labels,
            "compares_sentences": bool(self.scores),
            "searches": bool(self.found),
            "max_instances": self._settings.max_instances}

  def close(self):
    """Answers what is waiting."""
    for batcher in filter(None, (self.predictions, self.scores, self.found)):
      batcher.close()

  def parse(self, instances):
    """Returns the inputs that the instances of a request are.

    Raises:
      HTTPException: one is of a different kind; status 422.
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
    """Returns what the service answers to each input; in the batcher's thread.
    """
    return [dict(results.to_json(result), truncated=self._model.is_cut(row))
            for row, result in zip(inputs, self._model.predict(inputs, top_k))]


def _problem_of(text):
  """Returns what is wrong with a text, or None."""
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
  """Returns JSON; half of a surrogate pair, which has no UTF-8, is escaped."""
  text = json.dumps(content, ensure_ascii=False)
  return responses.Response(text.encode("utf-8", "backslashreplace"), status,
                            headers, "application/json")


class _Gate:
  """What each request passes first: its key, and the size of its body.

  Args:
    app: the ASGI application behind it.
    keys: list of str; with none, everybody passes.
    max_body_bytes: int.
    on_status: function of the status of each answer.
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
    # What is too much was read too: most clients send all before they listen.
    if size > self._most:
      app = _respond({"detail": "more than %d bytes" % self._most}, 413,
                     {"Connection": "close"})
    whole = [{"type": "http.request", "body": body}]

    async def given():
      return whole.pop() if whole else await receive()

    try:
      await app(scope, given, counted_send)
    except Exception:  # answered, and logged, by what is around this
      self._on_status(500)
      raise

  def _may_pass(self, scope):
    if not self._keys or scope["path"] in _OPEN or (
        scope["path"].startswith("/static/")):
      return True
    key = dict(scope["headers"]).get(b"authorization", b"")
    return any(hmac.compare_digest(key, known.encode()) for known in self._keys)


class _Metrics:
  """What Prometheus reads at /metrics."""

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
  """What can be asked of the models; each public method is a route.

  Args:
    served: dict, name -> Served.
    metrics: _Metrics.
  """

  def __init__(self, served, metrics):
    self._served = served
    self._metrics = metrics

  def _find(self, name):
    if name not in self._served:
      raise HTTPException(404, "there is no model %s, only %s" % (
          name, ", ".join(self._served)))
    return self._served[name]

  async def _answer(self, one, batcher, inputs, top_k=None):
    """Returns the results of a batcher, when they are there."""
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

  def page(self):
    return responses.HTMLResponse(_PAGE.read_bytes(), headers={
        "Content-Security-Policy": _POLICY})

  def openapi_page(self):
    return docs.get_swagger_ui_html(
        openapi_url="openapi.json", title="Models",
        swagger_favicon_url="data:,",
        swagger_js_url="static/swagger-ui-bundle.js",
        swagger_css_url="static/swagger-ui.css")

  def health(self):
    return {"status": "ok"}

  def prometheus(self):
    return responses.PlainTextResponse(
        prometheus_client.generate_latest(self._metrics.registry),
        media_type=prometheus_client.CONTENT_TYPE_LATEST)

  def list_models(self):
    """The models that are served."""
    return {"models": [one.describe() for one in self._served.values()]}

  def describe_model(self, name: str):
    """What a model takes and returns."""
    return self._find(name).describe()

  async def predict(self, name: str, request: PredictRequest):
    """A prediction for each instance, and whether it was truncated."""
    one = self._find(name)
    return _respond({"predictions": await self._answer(
        one, one.predictions, one.parse(request.instances), request.top_k)})

  async def similarity(self, name: str, request: SimilarityRequest):
    """The cosine of each sentence with each: a row per sentence."""
    one = self._find(name)
    if not one.scores:
      raise HTTPException(404, "%s compares no sentences" % name)
    _check_texts("sentences", request.sentences)
    scores, = await self._answer(one, one.scores, [request.sentences])
    return _respond({"scores": scores})

  async def search(self, name: str, request: SearchRequest):
    """The texts of the corpus that are most similar to each query."""
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


def create_app(models, settings=None, keys=(), compare=None, search=None):
  """Returns the service, an ASGI application.

  Args:
    models: dict, name -> predictors.Predictor.
    settings: ServiceSettings, or None.
    keys: list of str; with some, requests need one, but not the page.
    compare, search: dict, name -> function of those that have one; see Served.
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
  app.get("/health")(api.health)
  app.get("/metrics")(api.prometheus)
  app.get("/v1/models")(api.list_models)
  app.get("/v1/models/{name}")(api.describe_model)
  app.post("/v1/models/{name}:predict")(api.predict)
  app.post("/v1/models/{name}:similarity")(api.similarity)
  app.post("/v1/models/{name}:search")(api.search)
  return app
