"""The HTTP API: routes, batching, limits and errors.

Routes:

    GET   /                           demo page
    GET   /health, /ready, /metrics, /docs    for operators
    GET   /v1/models                  list of models
    POST  /v1/models/NAME:predict     predictions, as JSON
    POST  /v1/models/NAME:similarity  similarity of sentences
    POST  /v1/models/NAME:search      most similar texts in a corpus
    POST  /v1/models/NAME:reload      reloads the folder; needs a key
"""

import asyncio
import contextlib
import dataclasses
import pathlib
import threading
import time
from typing import (
  Any,
  Callable,
  Dict,
  List,
  NamedTuple,
  Optional,
  Sequence,
  cast,
)

import fastapi
import numpy as np
import prometheus_client
import swagger_ui_bundle
from absl import logging
from fastapi import responses, staticfiles
from fastapi.openapi import docs
from starlette.exceptions import HTTPException

from albert.errors import InputError
from albert.predict import inputs, predictors, results
from albert.serving.batching import Batcher, Full
from albert.serving.gate import Gate, Keys
from albert.serving.requests import (
  MOST_SENTENCES,
  PredictRequest,
  SearchRequest,
  SimilarityRequest,
  check_candidates,
  check_texts,
  parsed,
  problem_of,
  respond,
  size_of,
  unfit,
)
from albert.settings import USUAL, setting

_PAGE = pathlib.Path(__file__).with_name("page.html")
# The page is self-contained and may load nothing else.
_POLICY = (
  "default-src 'none'; connect-src 'self'; img-src data:; "
  "style-src 'unsafe-inline'; script-src 'unsafe-inline'"
)
_GRACE_SECONDS = 5  # from a reload to the end of the old model


@dataclasses.dataclass(frozen=True)
class ServiceSettings:
  """Batching and limits."""

  max_batch_size: int = setting(
    32, "Maximum inputs per batch; 1 disables batching.", USUAL, least=1
  )
  max_wait_ms: float = setting(
    2.0, "Milliseconds that the first request waits for more.", USUAL, least=0
  )
  max_batch_tokens: int = setting(
    8192,
    "Maximum inputs per batch, times the characters of the longest.",
    least=1,
  )
  max_queue_size: int = setting(
    1024,
    "Maximum inputs in the queue, shared by the clients in it; more "
    "get status 503.",
    least=1,
  )
  max_instances: int = setting(
    256, "Maximum inputs per request; more get status 422.", least=1
  )
  max_characters: int = setting(
    100000, "Maximum characters per request; more get status 422.", least=1
  )
  max_input_characters: int = setting(
    10000,
    "Maximum characters per input, because long inputs delay others.",
    least=1,
  )
  max_body_bytes: int = setting(
    1 << 20, "Maximum bytes per request; more get status 413.", least=1
  )
  request_seconds: float = setting(
    60.0,
    "Maximum seconds per request; slower ones get status 504.",
    least=0.001,
  )
  access_log: str = setting(
    "text",
    "One line per request on standard error, without its texts.",
    choices=["text", "json", "none"],
  )


class Loaded(NamedTuple):
  """A loaded model folder.

  Attributes:
    model: predicts.
    compare: maps N sentences to their similarity with each other, float [N, N];
      None if the model does not compare sentences.
    search: maps (queries, top_k) to a list of similarity.Found per query; None
      if there is no corpus.
    version: identifies weights, vocabulary and settings.
  """

  model: predictors.Predictor
  compare: Optional[Callable[[List[str]], np.ndarray]] = None
  search: Optional[Callable[[List[str], int], List[Any]]] = None
  version: str = ""


class Served:
  """A model of the service.

  Args:
    name: name in the URLs.
    loaded: the model.
    settings: batching and limits.
    metrics: updated with each batch.
  """

  def __init__(
    self,
    name: str,
    loaded: Loaded,
    settings: ServiceSettings,
    metrics: "_Metrics",
  ):
    self.name = name
    self.version = loaded.version
    self._model, compare, search, _ = loaded
    self._settings = settings
    self._metrics = metrics
    self.predictions = Batcher(
      self._predict,
      settings.max_batch_size,
      settings.max_wait_ms / 1e3,
      settings.max_queue_size,
      metrics.batches.labels(name).observe,
      settings.max_batch_tokens,
    )
    metrics.waiting.labels(name).set_function(lambda: self.predictions.waiting)
    self.scores: Optional[Batcher] = None
    if compare:
      self.scores = Batcher(
        lambda inputs, _: [
          np.asarray(compare(sentences)).tolist() for sentences in inputs
        ],
        1,
        0,
        settings.max_queue_size,
      )
    self.found: Optional[Batcher] = None
    if search:
      self.found = Batcher(
        search, settings.max_batch_size, 0, settings.max_queue_size
      )

  def describe(self) -> Dict[str, Any]:
    """Returns the description for the page and clients."""
    return {
      "name": self.name,
      "version": self.version,
      "kind": self._model.kind,
      "fields": self._model.fields,
      "labels": self._model.labels,
      "compares_sentences": bool(self.scores),
      "searches": bool(self.found),
      "max_instances": self._settings.max_instances,
    }

  def close(self, seconds: float = 60.0) -> None:
    """Finishes the queued requests, or refuses them after some seconds."""
    for batcher in filter(None, (self.predictions, self.scores, self.found)):
      batcher.close(seconds)

  def parse(self, request: "PredictRequest") -> List[Any]:
    """Converts the instances of a request to inputs of the model.

    Raises:
      HTTPException: an instance does not fit the model, or the response would
        have too many candidates; status 422.
    """
    rows = [
      self._parse(row, ["instances", number])
      for number, row in enumerate(request.instances)
    ]
    most = self._settings.max_input_characters
    for number, row in enumerate(rows):
      if size_of(row) > most:
        raise unfit(["instances", number], "more than %d characters" % most)
    places = len(rows)
    if self._model.kind == "masks":
      places = sum(row.count("[MASK]") for row in rows)
    most = min(request.top_k, len(self._model.labels or ()) or request.top_k)
    check_candidates(places * most)
    return rows

  def _parse(self, row, where):
    fields = self._model.fields
    if isinstance(row, str) and len(fields) == 1:
      row = {fields[0]: row}
    if not isinstance(row, dict):
      raise unfit(where, "expected an object of " + ", ".join(fields))
    names = {
      inputs.column_of(field, self._model.reading): field for field in fields
    }
    row = {
      names.get(key, key): value for key, value in row.items() if key != "id"
    }
    for key in list(row) + list(fields):
      if key not in fields or key not in row:
        raise unfit(where + [key], "the model takes " + ", ".join(fields))
    for field, value in row.items():
      several = field == "choices"
      if several and not (isinstance(value, list) and len(value) > 1):
        raise unfit(where + [field], "expected a list of two texts or more")
      for text in value if several else [value]:
        if problem_of(text):
          raise unfit(where + [field], problem_of(text))
    values = tuple(row[field] for field in fields)
    return values if len(fields) > 1 else values[0]

  def _predict(self, inputs, top_k):
    """Returns the JSON of each input; runs in the batcher's thread."""
    found = []
    for row, result in zip(inputs, self._model.predict(inputs, top_k)):
      found.append(
        dict(results.to_json(result), truncated=self._model.is_cut(row))
      )
      self._metrics.count(self.name, found[-1])
    return found


class _Metrics:
  """Metrics for Prometheus."""

  def __init__(self):
    self.registry = prometheus_client.CollectorRegistry()
    self.answers = prometheus_client.Counter(
      "albert_answers", "Answers", ["status"], registry=self.registry
    )
    self.seconds = prometheus_client.Histogram(
      "albert_prediction_seconds",
      "From a request's arrival to its answer",
      ["model"],
      buckets=[0.001 * 2**i for i in range(14)],
      registry=self.registry,
    )
    self.batches = prometheus_client.Histogram(
      "albert_batch_inputs",
      "Inputs per batch",
      ["model"],
      buckets=[2**i for i in range(10)],
      registry=self.registry,
    )
    self.waiting = prometheus_client.Gauge(
      "albert_waiting_inputs",
      "Inputs that wait",
      ["model"],
      registry=self.registry,
    )
    self.labels = prometheus_client.Counter(
      "albert_labels",
      "Predicted labels",
      ["model", "label"],
      registry=self.registry,
    )
    self.probabilities = prometheus_client.Histogram(
      "albert_probability",
      "Probability of the predicted label",
      ["model"],
      buckets=[i / 10 for i in range(1, 11)],
      registry=self.registry,
    )
    self.truncated = prometheus_client.Counter(
      "albert_truncated_inputs",
      "Inputs that were truncated",
      ["model"],
      registry=self.registry,
    )

  def count(self, name: str, result: Dict[str, Any]) -> None:
    """Counts a prediction of a model."""
    if "probability" in result and "label" in result:
      self.probabilities.labels(name).observe(result["probability"])
    for label in result.get("labels", [result.get("label")]):
      if label is not None:
        self.labels.labels(name, label).inc()
    if result["truncated"]:
      self.truncated.labels(name).inc()


class Api:
  """The routes, one per public method.

  Args:
    served: models by name; a reload replaces one.
    metrics: updated with each request.
    settings: limits.
    keys: see `Gate`.
    load: reloads a model, by name, and the keys; None if not supported.
  """

  def __init__(
    self,
    served: Dict[str, Served],
    metrics: _Metrics,
    settings: ServiceSettings,
    keys: Keys,
    load: Optional[Callable[[str], Loaded]],
  ):
    self.served = served
    self.is_ending = False
    self._metrics = metrics
    self._settings = settings
    self._keys = keys
    self._load = load
    self._loading = threading.Lock()

  def _find(self, name):
    if name not in self.served:
      raise HTTPException(
        404, "there is no model %s, only %s" % (name, ", ".join(self.served))
      )
    return self.served[name]

  async def _answer(self, request, one, batcher, inputs, top_k=None):
    """Returns the results from a batcher."""
    start = time.perf_counter()
    client = request.headers.get("authorization") or (
      request.client.host if request.client else ""
    )
    gone = asyncio.ensure_future(_gone(request))
    try:
      found = asyncio.wrap_future(
        batcher.submit(inputs, top_k, client, list(map(size_of, inputs)))
      )
      await asyncio.wait(
        {found, gone},
        timeout=self._settings.request_seconds,
        return_when=asyncio.FIRST_COMPLETED,
      )
      if not found.done():  # drops the rest
        found.cancel()
        raise HTTPException(
          504, "no answer within %g s" % self._settings.request_seconds
        )
      result = found.result()
    except Full as error:
      raise HTTPException(
        503, "%d inputs are waiting" % (batcher.waiting), {"Retry-After": "1"}
      ) from error
    except InputError as error:
      raise unfit(["instances"], str(error)) from error
    finally:
      gone.cancel()
    self._metrics.seconds.labels(one.name).observe(time.perf_counter() - start)
    return result

  def _respond(self, one, content):
    return respond(content, headers={"X-Model-Version": one.version})

  def page(self) -> responses.Response:
    return responses.HTMLResponse(
      _PAGE.read_bytes(), headers={"Content-Security-Policy": _POLICY}
    )

  def openapi_page(self) -> responses.Response:
    return docs.get_swagger_ui_html(
      openapi_url="openapi.json",
      title="Models",
      swagger_favicon_url="data:,",
      swagger_js_url="static/swagger-ui-bundle.js",
      swagger_css_url="static/swagger-ui.css",
    )

  def health(self) -> Dict[str, str]:
    return {"status": "ok"}

  def ready(self) -> Dict[str, str]:
    """Whether requests are served: not during shutdown."""
    if self.is_ending:
      raise HTTPException(503, "shutting down")
    return {"status": "ready"}

  def prometheus(self) -> responses.Response:
    return responses.PlainTextResponse(
      prometheus_client.generate_latest(self._metrics.registry),
      media_type=prometheus_client.CONTENT_TYPE_LATEST,
    )

  def list_models(self) -> Dict[str, Any]:
    """All models."""
    return {"models": [one.describe() for one in self.served.values()]}

  def describe_model(self, name: str) -> Dict[str, Any]:
    """The inputs and outputs of a model."""
    return self._find(name).describe()

  async def predict(
    self, name: str, request: fastapi.Request
  ) -> responses.Response:
    """A prediction per instance, its `id`, and whether it was truncated."""
    one = self._find(name)
    asked = await self._read(
      PredictRequest, request, self._settings.max_instances
    )
    found = await self._answer(
      request, one, one.predictions, one.parse(asked), asked.top_k
    )
    return self._respond(
      one,
      {
        "predictions": [
          dict({"id": row["id"]}, **result)
          if isinstance(row, dict) and "id" in row
          else result
          for row, result in zip(asked.instances, found)
        ]
      },
    )

  async def similarity(
    self, name: str, request: fastapi.Request
  ) -> responses.Response:
    """The cosines of the sentences with each other: one row per sentence."""
    one = self._find(name)
    if not one.scores:
      raise HTTPException(404, "%s does not compare sentences" % name)
    asked = await self._read(SimilarityRequest, request, MOST_SENTENCES)
    check_texts("sentences", asked.sentences)
    (scores,) = await self._answer(request, one, one.scores, [asked.sentences])
    return self._respond(one, {"scores": scores})

  async def search(
    self, name: str, request: fastapi.Request
  ) -> responses.Response:
    """The most similar texts in the corpus for each query."""
    one = self._find(name)
    if not one.found:
      raise HTTPException(404, "%s has no corpus to search" % name)
    asked = await self._read(SearchRequest, request, MOST_SENTENCES)
    check_texts("queries", asked.queries)
    check_candidates(len(asked.queries) * asked.top_k)
    found = await self._answer(
      request, one, one.found, asked.queries, asked.top_k
    )
    return self._respond(
      one, {"results": [[x._asdict() for x in row] for row in found]}
    )

  async def _read(self, kind, request, most):
    return parsed(
      kind, await request.body(), most, self._settings.max_characters
    )

  async def reload(self, name: str) -> responses.Response:
    """Reloads the folder of a model, and the keys; needs a key."""
    one = self._find(name)
    if not (self._load and self._keys.values):
      raise HTTPException(403, "needs --api_key_file")
    await asyncio.get_event_loop().run_in_executor(None, self.replace, one)
    return self._respond(self._find(name), self._find(name).describe())

  def replace(self, one: Served) -> None:
    """Reloads a model; the old one finishes queued requests.

    Raises:
      HTTPException: it cannot be loaded; the old one is kept.
    """
    if not self._loading.acquire(blocking=False):
      raise HTTPException(409, "another model is being loaded")
    try:
      loaded = cast(Callable, self._load)(one.name)
    except (InputError, OSError, MemoryError) as error:
      logging.warning("%s cannot be reloaded: %s", one.name, error)
      raise HTTPException(500, "the old model stays: %s" % (error)) from error
    finally:
      self._loading.release()
    self.served[one.name] = Served(
      one.name, loaded, self._settings, self._metrics
    )
    logging.info(
      "%s: version %s, was %s", one.name, loaded.version, one.version
    )
    # Later, because requests that found it may not be in its queue yet.
    closing = threading.Timer(_GRACE_SECONDS, one.close)
    closing.daemon = True
    closing.start()


async def _gone(request):
  """Returns once the client has disconnected."""
  while (await request.receive())["type"] != "http.disconnect":
    pass


def _refuse(request, error):
  return respond({"detail": error.detail}, error.status_code, error.headers)


def create_app(
  models: Dict[str, Loaded],
  settings: Optional[ServiceSettings] = None,
  keys: Optional[Keys] = None,
  load: Optional[Callable[[str], Loaded]] = None,
  allowed_hosts: Optional[Sequence[str]] = None,
) -> fastapi.FastAPI:
  """Returns the service, an ASGI application; its `state.api` is the Api.

  Args:
    models: models by name.
    settings: None for the defaults.
    keys: if not empty, all routes but the page require one.
    load: see `Api`.
    allowed_hosts: see `Gate`.
  """
  settings, keys = settings or ServiceSettings(), keys or Keys()
  metrics = _Metrics()
  api = Api(
    {
      name: Served(name, loaded, settings, metrics)
      for name, loaded in models.items()
    },
    metrics,
    settings,
    keys,
    load,
  )

  @contextlib.asynccontextmanager
  async def lifespan(app):
    yield
    for one in api.served.values():
      one.close(0.0 if api.is_ending else 60.0)

  app = fastapi.FastAPI(
    title="Models",
    lifespan=lifespan,
    docs_url=None,
    redoc_url=None,
    exception_handlers={HTTPException: _refuse},
  )
  app.state.api = api
  app.add_middleware(
    Gate,
    keys=keys,
    allowed_hosts=allowed_hosts,
    settings=settings,
    on_status=lambda status: metrics.answers.labels(status).inc(),
  )
  app.mount(
    "/static",
    staticfiles.StaticFiles(directory=swagger_ui_bundle.swagger_ui_path),
  )
  app.get("/", include_in_schema=False)(api.page)
  app.get("/docs", include_in_schema=False)(api.openapi_page)
  # response_model=None: plain dicts, with no schema derived from annotations.
  app.get("/health", response_model=None)(api.health)
  app.get("/ready", response_model=None)(api.ready)
  app.get("/metrics")(api.prometheus)
  app.get("/v1/models", response_model=None)(api.list_models)
  app.get("/v1/models/{name}", response_model=None)(api.describe_model)
  for route, kind in (
    (api.predict, PredictRequest),
    (api.similarity, SimilarityRequest),
    (api.search, SearchRequest),
  ):
    # FastAPI would parse all inputs before they are counted.
    app.post(
      "/v1/models/{name}:" + route.__name__,
      openapi_extra={
        "requestBody": {
          "required": True,
          "content": {"application/json": {"schema": kind.model_json_schema()}},
        }
      },
    )(route)
  app.post("/v1/models/{name}:reload")(api.reload)
  return app
