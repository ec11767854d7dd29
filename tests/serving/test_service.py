"""The service over HTTP, with fake and real models; malformed requests."""

import concurrent.futures
import contextlib
import importlib
import json
import random
import re
import socket
import threading
from types import SimpleNamespace

import pytest
from live_service import live
from scripting import ROOT
from small_steps import full

from albert.errors import InputError
from albert.predict import load, results
from albert.predict.similarity import Found
from albert.serving import batching, gate, requests
from albert.serving.gate import Keys
from albert.serving.service import Loaded, ServiceSettings, create_app


class Echo:
  """A fake model that waits for `go` and labels each text with itself, a pair
  with its first text, or everything with `label`."""

  labels, reading = None, {"text_b": "other"}

  def __init__(self, *fields, kind="label", label=None):
    self.fields, self.kind, self.label = fields or ("text",), kind, label
    self.batches, self.go = [], threading.Event()
    self.go.set()

  def is_cut(self, row):
    return len(row) > 3

  def predict(self, inputs, top_k):
    self.go.wait(60)
    self.batches.append(inputs)
    if "bad" in inputs:
      raise InputError("input 1: bad")
    if "broken" in inputs:
      raise RuntimeError("broken")
    return [
      results.LabelResult(
        self.label or text, 0.5, [results.Candidate(text, 0.5)] * top_k
      )
      for text in (x if isinstance(x, str) else x[0] for x in inputs)
    ]


@pytest.fixture
def serve():
  """A function that serves until the end of the test; takes the arguments of
  `create_app`, `own` as a dict, and returns a live_service.client."""
  with contextlib.ExitStack() as stack:
    yield lambda models, own=None, **kwargs: stack.enter_context(
      live(
        create_app(
          {
            name: model if isinstance(model, Loaded) else Loaded(model)
            for name, model in models.items()
          },
          ServiceSettings(**own or {}),
          **kwargs,
        )
      )
    )


@pytest.fixture
def models():
  return {
    "a": Echo(),
    "b": Echo("text_a", "text_b"),
    "c": Echo("text", "choices"),
    "masks": Echo(kind="masks"),
  }


def names(answer):
  assert answer.status == 200, answer.text
  return [row["label"] for row in answer.json["predictions"]]


A = "/v1/models/a:predict"


def test_predictions(serve, models):
  ask = serve(models)
  one, other = ask(
    A, {"instances": ["甲", {"text": "乙乙乙乙", "id": 7}], "top_k": 2}
  ).json["predictions"]
  assert one == {
    "label": "甲",
    "probability": 0.5,
    "candidates": [{"text": "甲", "probability": 0.5}] * 2,
    "truncated": False,
  }
  assert (other["truncated"], other["id"]) == (True, 7)
  for name, row in (
    ("b", {"text_b": "2", "text_a": "1"}),
    ("b", {"other": "2", "text_a": "1"}),  # as in training
    ("c", {"text": "1", "choices": ["b", "c"]}),
  ):
    assert names(ask("/v1/models/%s:predict" % name, {"instances": [row]})) == [
      "1"
    ]
  assert ask("/v1/models").json == {
    "models": [ask("/v1/models/" + name).json for name in models]
  }
  assert ask("/v1/models/b").json == dict(
    name="b",
    version="",
    kind="label",
    fields=["text_a", "text_b"],
    labels=None,
    compares_sentences=False,
    searches=False,
    max_instances=256,
  )
  assert ask("/health").json == {"status": "ok"}
  assert ask("/ready").json == {"status": "ready"}
  for name in "ab":
    for path, body in (
      ("similarity", {"sentences": ["甲", "乙"]}),
      ("search", {"queries": ["甲"]}),
    ):
      assert ask("/v1/models/%s:%s" % (name, path), body).status == 404


def test_what_is_refused(serve, models):
  ask = serve(
    models,
    {
      "max_instances": 3,
      "max_body_bytes": 1000,
      "max_characters": 200,
      "max_input_characters": 150,
    },
  )
  rows = "instances"
  for name, place, message, body in (
    ("a", [rows], "more than 3", ["甲"] * 4),
    ("a", [rows], "at least 1", []),
    ("a", [rows], "required", {}),
    ("a", ["more"], "not permitted", {rows: ["a"], "more": 1}),
    ("a", ["top_k"], "less than", {rows: ["a"], "top_k": 10**9}),
    ("a", [rows, 1, "text"], "expected text", ["a", {"text": 1}]),
    ("a", [rows, 0, "file"], "takes text", [{"file": "/etc/passwd"}]),
    (
      "b",
      [rows, 1],
      "an object of text_a, text_b",
      [{"text_a": "a", "text_b": "b"}, "a"],
    ),
    ("b", [rows, 0, "text_b"], "takes text_a, text_b", [{"text_a": "a"}]),
    ("a", [rows, 0, "text"], "NUL", ["a\0"]),
    ("a", [rows, 0, "text"], "surrogate", b'{"instances": ["\\ud800"]}'),
    ("a", [rows, 0, "\ud800"], "takes", b'{"instances":[{"\\ud800": "a"}]}'),
    ("a", [rows], "input 1: bad", ["bad"]),
    ("a", [rows], "more than 200 characters", ["a" * 99, "a" * 102]),
    ("a", [rows, 1], "more than 150 char", ["a", "a" * 151]),
    ("a", [], "not JSON", b'{"instances": ["a"]'),
    (
      "masks",
      ["top_k"],
      "24000 candidates",
      {rows: ["[MASK]" * 12] * 2, "top_k": 1000},
    ),
    *[
      (
        "c",
        [rows, 0, "choices"],
        "expected .*text",
        [{"text": "a", "choices": choices}],
      )
      for choices in (["a"], "ab", ["a", 1], {}, None)
    ],
  ):
    answer = ask(
      "/v1/models/%s:predict" % name,
      {rows: body} if (isinstance(body, list)) else body,
    )
    assert answer.status == 422, answer.text
    detail = answer.json["detail"][0]
    assert detail["loc"] == ["body"] + place
    assert re.search(message, detail["msg"])
  for path, status, message, texts in (
    ("/v1/models/d:predict", 404, "no model d, only a, b, c, masks", ["甲"]),
    (A, 413, "more than 1000 bytes", ["a" * 1000]),
    (A, 500, "", ["broken"]),
  ):
    answer = ask(path, {rows: texts})
    assert answer.status == status and message in answer.text
  assert 'albert_answers_total{status="500"} 1.0' in ask("/metrics").text
  assert ask("/other").status == 404 and ask(A).status in (404, 405)
  assert not models["c"].batches


def test_the_client_of_the_documents(serve, models, monkeypatch):
  monkeypatch.syspath_prepend(str(ROOT / "docs" / "deploy"))
  client, waited = importlib.import_module("client"), []
  monkeypatch.setattr(client, "time", SimpleNamespace(sleep=waited.append))
  ask = serve(models, keys=Keys(["key"]))
  url = "http://127.0.0.1:%d" % ask.port + A
  submit, refusals = batching.Batcher.submit, [batching.Full()] * 2

  def busy(*args):
    if refusals:
      raise refusals.pop()
    return submit(*args)

  monkeypatch.setattr(batching.Batcher, "submit", busy)
  (row,) = client.predict(url, ["甲"], "key")
  assert row["label"] == "甲" and waited == [1, 1]
  with pytest.raises(RuntimeError, match="401.*give a key"):
    client.predict(url, ["甲"])


def test_many_inputs_are_refused_before_anything_is_made_of_each(
  serve, models, monkeypatch
):
  ask = serve(models)
  assert len(ask(A, {"instances": [1] * 20}).json["detail"]) == 10
  monkeypatch.setattr(requests.PredictRequest, "model_validate", None)
  for rows in ([1] * 300000, [[]] * 300, [{}] * 300):
    answer = ask(A, {"instances": rows})
    assert answer.status == 422 and "more than 256" in answer.text


def test_a_browser_asks_for_nobody_else(serve, models):
  body = {"instances": ["甲"]}
  ask = serve(models, allowed_hosts=gate.LOCAL)
  for host in ("127.0.0.1", "localhost:80", "[::1]:8080"):
    for headers in ({}, {"Origin": "http://" + host}):
      assert ask(A, body, {"Host": host, **headers}).status == 200
  for headers in (
    {"Host": "evil.com"},
    {"Origin": "http://evil.com"},
    {"Origin": "null"},
    {"Host": "127.0.0.1.evil.com"},
  ):
    assert ask(A, body, headers).status == 403
    assert ask("/v1/models", None, headers).status == 403
    assert ask("/health", None, headers).status == 200
  for kind in ("text/plain", "", "application/x-www-form-urlencoded"):
    assert ask(A, body, {"Content-Type": kind}).status == 415
  assert serve(models)(A, body, {"Host": "evil.com"}).status == 200


def test_time_limit_and_clients_that_are_gone(serve):
  model = Echo()
  model.go.clear()
  ask = serve({"a": model}, {"max_batch_size": 2, "request_seconds": 1.5})
  body = json.dumps({"instances": ["甲"] * 200}).encode()
  with socket.create_connection(("127.0.0.1", ask.port)) as gone:
    gone.sendall(
      b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      b"application/json\r\nContent-Length: %d\r\n\r\n"
      % (A.encode(), len(body))
      + body
    )
    while 'waiting_inputs{model="a"} 198.0' not in ask("/metrics").text:
      pass
  while 'waiting_inputs{model="a"} 0.0' not in ask("/metrics").text:
    pass
  assert ask(A, {"instances": ["乙"] * 4}).status == 504
  model.go.set()
  assert names(ask(A, {"instances": ["丙"]})) == ["丙"]
  assert model.batches == [["甲"] * 2, ["丙"]]


def test_answers_are_counted_and_logged(serve, models, caplog):
  caplog.set_level("INFO", "absl")
  for kind, first in (
    ("text", r"POST %s 200 [\d.]+ 127.0.0.1 x-1" % A),
    (
      "json",
      r'{"method": "POST", "path": "%s", "status": 200, "ms": [\d.]+, '
      '"client": "127.0.0.1", "id": "x-1"}' % A,
    ),
    ("none", None),
  ):
    caplog.clear()
    ask = serve(models, {"access_log": kind})
    answer = ask(A, {"instances": ["甲", "乙乙乙乙"]}, {"X-Request-Id": "x-1"})
    assert answer.headers["X-Request-Id"] == "x-1"
    assert (
      ask("/%0aa", None, {"X-Request-Id": "a b"}).headers["X-Request-Id"]
      != "a b"
    )
    assert "甲" not in caplog.text
    assert len(caplog.messages) == 2 * bool(first)
    assert not first or re.fullmatch(first, caplog.messages[0])
    assert not [line for line in caplog.messages if "\n" in line]
  for line in (
    'labels_total{label="甲",model="a"} 1.0',
    'truncated_inputs_total{model="a"} 1.0',
    'albert_probability_bucket{le="0.5",model="a"} 2.0',
  ):
    assert line in ask("/metrics").text


def test_models_are_loaded_anew(serve):  # without losing requests
  versions, keys = iter("0123456789"), Keys(["key"])

  def load(name):
    version = next(versions)
    if version == "4":
      raise InputError("damaged")
    if version > "0":
      keys.values = ["key", "new"]
    return Loaded(Echo(label=version), version=version)

  ask = serve({"a": load("a")}, keys=keys, load=load)
  key, path = {"Authorization": "Bearer key"}, "/v1/models/a:reload"
  assert ask(path, {}).status == 401

  def check(_):
    answer = ask(A, {"instances": ["甲"] * 3}, key)
    (label,) = set(names(answer))
    assert answer.headers["X-Model-Version"] == label
    return label

  with concurrent.futures.ThreadPoolExecutor(8) as pool:
    found = pool.map(check, range(300))
    for number in range(1, 7):
      answer = ask(path, {}, key)
      if number == 4:
        assert answer.status == 500 and "stays: damaged" in answer.text
      else:
        assert answer.json["version"] == str(number)
    assert set(found) <= set("012356")
  assert check(0) == "6"
  assert ask(path, {}, {"Authorization": "Bearer new"}).status == 200
  assert serve({"a": Echo()}, load=load)(path, {}).status == 403


def test_keys(serve, models):
  ask = serve(models, keys=Keys(["one", "two"]))
  body = {"instances": ["甲"]}
  for headers in (
    {},
    {"Authorization": "Bearer three"},
    {"Authorization": "Bearer "},
    {"Authorization": "one"},
  ):
    for args in ((A, body), ("/metrics", None), ("/v1/models", None)):
      answer = ask(*args, headers)
      assert answer.status == 401
      assert answer.headers["WWW-Authenticate"] == "Bearer"
  for key in ("one", "two"):
    assert names(ask(A, body, {"Authorization": "Bearer " + key})) == ["甲"]
  assert [ask(path).status for path in ("/", "/health", "/docs")] == [200] * 3


def test_a_full_queue(serve):
  model = Echo()
  model.go.clear()
  ask = serve({"a": model}, {"max_batch_size": 1, "max_queue_size": 1})
  with concurrent.futures.ThreadPoolExecutor(8) as pool:
    found = [pool.submit(ask, A, {"instances": ["甲"]}) for _ in range(8)]
    # One is predicted, one queued, six rejected at once.
    while sum(x.done() for x in found) < 6:
      pass
    assert 'waiting_inputs{model="a"} 1.0' in ask("/metrics").text
    model.go.set()
    answers = [x.result() for x in found]
  assert sorted((x.status, x.headers["Retry-After"]) for x in answers) == (
    [(200, None)] * 2 + [(503, "1")] * 6
  )
  for line in (
    'albert_answers_total{status="503"} 6.0',
    'albert_prediction_seconds_count{model="a"} 2.0',
    'albert_batch_inputs_count{model="a"} 2.0',
  ):
    assert line in ask("/metrics").text


def test_sentences_are_compared_and_a_corpus_is_searched(serve, models):
  ask = serve(
    {
      "a": Loaded(
        models["a"],
        lambda sentences: [
          [float(x == y) for y in sentences] for x in sentences
        ],
      ),
      "b": Loaded(
        models["b"],
        search=lambda queries, top_k: [
          [Found(query * 2, 3, 0.5)] * top_k for query in queries
        ],
      ),
    }
  )
  compare, search = "/v1/models/a:similarity", "/v1/models/b:search"
  assert ask(compare, {"sentences": ["甲", "乙", "甲"]}).json == {
    "scores": [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
  }
  assert ask(search, {"queries": ["甲", "乙"], "top_k": 1}).json == {
    "results": [
      [{"text": text * 2, "line": 3, "score": 0.5}] for text in "甲乙"
    ]
  }
  for path, field, texts, place in (
    (compare, "sentences", ["甲"], []),
    (search, "queries", [], []),
    (compare, "sentences", ["甲"] * 33, []),
    (search, "queries", ["\0"], [0]),
    (compare, "sentences", ["甲", "\0"], [1]),
  ):
    answer = ask(path, {field: texts})
    assert answer.status == 422
    assert answer.json["detail"][0]["loc"] == ["body", field, *place]
  assert [
    [ask("/v1/models/" + name).json[key] for name in "ab"]
    for key in ("compares_sentences", "searches")
  ] == [[True, False], [False, True]]


def test_the_pages_need_nothing_from_elsewhere(serve):
  ask = serve({"a": Echo()})
  page = ask("/")
  assert page.headers["Content-Security-Policy"].startswith(
    "default-src 'none'; connect-src 'self'"
  )
  assert not re.search("https?://", page.text)
  sources = re.findall(r'(?:src|href)="([^"]+)"', ask("/docs").text)
  assert not [x for x in sources if "//" in x]
  assert {ask("/" + x).status for x in sources if ":" not in x} == {200}
  assert {"/v1/models/{name}:predict", "/health"} < set(
    ask("/openapi.json").json["paths"]
  )


def broken(rng):
  """Returns a malformed request body."""
  good = json.dumps({"instances": ["今天天气很好"]}).encode()
  text = rng.choice(["\\ud800", "\\udfff好", "a\\u0000b"]).encode()
  deep = 10 ** rng.randint(1, 4)
  nested = b"[" * deep + b"]" * deep
  return rng.choice(
    [
      good[: rng.randrange(len(good) - 1)],
      good + rng.choice([b"x", b"}", b"\0"]),
      bytes(rng.randrange(256) for _ in range(rng.randrange(60))),
      json.dumps(
        {
          "instances": rng.choice(
            [
              None,
              1,
              "甲",
              {},
              [],
              [1],
              [None],
              [[]],
              [{}],
              [["甲"]],
              [True],
              [{"text": ["甲"]}],
              [{"text": None}],
              [{"text": "甲", "x": 1}],
              ["a"] * 10000,
            ]
          )
        }
      ).encode(),
      json.dumps(
        {
          "instances": ["甲"],
          "top_k": rng.choice([0, -1, 1.5, "a", None, [], 10**30]),
        }
      ).encode(),
      b'{"instances": ["%s"]}' % text,
      b'{"instances": [{"%s": "a"}]}' % text,
      nested,
      b'{"instances": %s}' % nested,
      b'{"instances": [%s1%s]}' % (b'{"text":' * deep, b"}" * deep),
      b"NaN",
      b"",
      b'["a"]',
    ]
  )


@pytest.mark.slow
@pytest.mark.parametrize("count", [200, full(2000)])
def test_malformed_requests(trained, serve, count):
  """To a real model; valid requests in between get the same response."""
  rng, good = random.Random(count), {"instances": ["今天天气很好", "去公园"]}
  ask = serve({"a": load(str(trained("labels").best))})
  wanted = ask(A, good)
  assert len(names(wanted)) == 2
  for number in range(1, count + 1):
    body = (
      broken(rng) if number % 200 else b'{"instances": ["%s"]}' % (b"a" * 10**7)
    )
    status = ask(A, body).status
    assert 400 <= status < 500, (status, body[:100])
    if number % 50 == 0:
      assert ask(A, good).json == wanted.json
