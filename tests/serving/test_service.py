"""The service over HTTP: stand-ins for models, a real one, malformed requests.
"""

import concurrent.futures
import json
import random
import re
import threading

import pytest
from live_service import live
from onnx_folders import MODELS, write_model

from albert.errors import InputError
from albert.predict import load, results
from albert.predict.search import Found
from albert.serving.service import ServiceSettings, create_app


class Echo:
  """A model that finds each text itself; of a pair, the first one."""
  kind, labels = "label", None

  def __init__(self, *fields):
    self.fields = fields or ("text",)
    self.batches = []

  def is_cut(self, row):
    return len(row) > 3

  def predict(self, inputs, top_k):
    self.batches.append(inputs)
    if "bad" in inputs:
      raise InputError("input 1: bad")
    if "broken" in inputs:
      raise RuntimeError("broken")
    first = [row if isinstance(row, str) else row[0] for row in inputs]
    return [results.LabelResult(
        text, 0.5, [results.Candidate(text, 0.5)] * top_k) for text in first]


def names(answer):
  assert answer.status == 200, answer.text
  return [row["label"] for row in answer.json["predictions"]]


def test_predictions():
  with live(create_app({"a": Echo(), "b": Echo("text_a", "text_b")})) as ask:
    answer = ask("/v1/models/a:predict", {
        "instances": ["甲", {"text": "乙乙乙乙"}], "top_k": 2})
    one = {"text": "甲", "probability": 0.5}
    assert answer.json["predictions"][0] == {
        "label": "甲", "probability": 0.5, "candidates": [one, one],
        "truncated": False}
    assert answer.json["predictions"][1]["truncated"] is True
    assert names(ask("/v1/models/b:predict", {"instances": [
        {"text_b": "2", "text_a": "1"}]})) == ["1"]
    assert ask("/v1/models").json == {"models": [
        ask("/v1/models/a").json, ask("/v1/models/b").json]}
    assert ask("/v1/models/b").json == {
        "name": "b", "kind": "label", "fields": ["text_a", "text_b"],
        "labels": None, "compares_sentences": False, "searches": False,
        "max_instances": 256}
    assert ask("/health").json == {"status": "ok"}


def test_what_is_refused():
  own = ServiceSettings(max_instances=3, max_body_bytes=1000)
  choice = Echo("text", "choices")
  with live(create_app({"a": Echo(), "b": Echo("text_a", "text_b"),
                        "c": choice}, own)) as ask:

    def refused(status, loc, message, body, name="a"):
      answer = ask("/v1/models/%s:predict" % name, body)
      assert answer.status == status, answer.text
      detail = answer.json["detail"]
      if loc is not None:
        assert detail[0]["loc"] == ["body"] + loc
        detail = detail[0]["msg"]
      assert re.search(message, detail)

    refused(404, None, "there is no model d, only a, b, c",
            {"instances": ["甲"]}, "d")
    refused(422, ["instances"], "more than 3", {"instances": ["甲"] * 4})
    refused(422, ["instances"], "at least 1", {"instances": []})
    refused(422, ["instances"], "required", {})
    refused(422, ["more"], "not permitted", {"instances": ["a"], "more": 1})
    refused(422, ["top_k"], "less than or equal", {
        "instances": ["a"], "top_k": 10 ** 9})
    refused(422, ["instances", 1, "text"], "expected text",
            {"instances": ["a", {"text": 1}]})
    refused(422, ["instances", 0, "file"], "the model takes text",
            {"instances": [{"file": "/etc/passwd"}]})
    refused(422, ["instances", 1], "expected an object of text_a, text_b",
            {"instances": [{"text_a": "a", "text_b": "b"}, "a"]}, "b")
    refused(422, ["instances", 0, "text_b"], "takes text_a, text_b",
            {"instances": [{"text_a": "a"}]}, "b")
    refused(422, ["instances", 0, "text"], "NUL", {"instances": ["a\0"]})
    refused(422, ["instances", 0, "text"], "half of a surrogate",
            b'{"instances": ["\\ud800"]}')
    refused(422, ["instances", 0, "\ud800"], "the model takes",
            b'{"instances": [{"\\ud800": "a"}]}')
    for choices in (["a"], "ab", ["a", 1], {}, None):
      refused(422, ["instances", 0, "choices"], "expected .*text",
              {"instances": [{"text": "a", "choices": choices}]}, "c")
    refused(422, ["instances"], "input 1: bad", {"instances": ["bad"]})
    refused(413, None, "more than 1000 bytes", {"instances": ["a" * 1000]})
    assert ask("/v1/models/a:predict", {"instances": ["broken"]}).status == 500
    assert 'albert_answers_total{status="500"} 1.0' in ask("/metrics").text
    assert ask("/other").status == 404
    assert ask("/v1/models/a:predict").status in (404, 405)
    assert not choice.batches
    assert names(ask("/v1/models/c:predict", {"instances": [
        {"text": "a", "choices": ["b", "c"]}]})) == ["a"]


def test_keys():
  with live(create_app({"a": Echo()}, keys=["one", "two"])) as ask:
    body = {"instances": ["甲"]}
    for headers in ({}, {"Authorization": "Bearer three"},
                    {"Authorization": "Bearer "}, {"Authorization": "one"}):
      answer = ask("/v1/models/a:predict", body, headers)
      assert answer.status == 401
      assert answer.headers["WWW-Authenticate"] == "Bearer"
      assert ask("/metrics", None, headers).status == 401
      assert ask("/v1/models", None, headers).status == 401
    for key in ("one", "two"):
      assert names(ask("/v1/models/a:predict", body, {
          "Authorization": "Bearer " + key})) == ["甲"]
    assert [ask(path).status for path in ("/", "/health", "/docs")] == [200] * 3


def test_a_full_queue():
  go = threading.Event()
  model = Echo()
  predict = model.predict
  model.predict = lambda *args: go.wait(60) and predict(*args)
  own = ServiceSettings(max_batch_size=1, max_queue_size=1)
  with live(create_app({"a": model}, own)) as ask, (
      concurrent.futures.ThreadPoolExecutor(8)) as pool:
    found = [pool.submit(ask, "/v1/models/a:predict", {
        "instances": ["甲"]}) for _ in range(8)]
    # One is predicted, one waits; the others come back at once.
    first = concurrent.futures.wait(found, 60, "FIRST_COMPLETED").done
    assert {x.result().status for x in first} == {503}
    while sum(x.done() for x in found) < 6:
      pass
    assert 'waiting_inputs{model="a"} 1.0' in ask("/metrics").text
    go.set()
    statuses = [x.result().status for x in found]
    assert sorted(statuses) == [200] * 2 + [503] * 6
    assert all(x.result().headers["Retry-After"] == "1" for x in found
               if x.result().status == 503)
    metrics = ask("/metrics").text
  assert 'albert_answers_total{status="503"} 6.0' in metrics
  assert 'albert_prediction_seconds_count{model="a"} 2.0' in metrics
  assert 'albert_batch_inputs_count{model="a"} 2.0' in metrics


def test_sentences_are_compared():
  def compare(sentences):
    return [[float(a == b) for b in sentences] for a in sentences]

  with live(create_app({"a": Echo(), "b": Echo()}, compare={
      "a": compare})) as ask:
    path = "/v1/models/a:similarity"
    assert ask(path, {"sentences": ["甲", "乙", "甲"]}).json == {
        "scores": [[1, 0, 1], [0, 1, 0], [1, 0, 1]]}
    assert ask("/v1/models/a").json["compares_sentences"] is True
    assert ask(path, {"sentences": ["甲"]}).status == 422
    assert ask(path, {"sentences": ["甲"] * 33}).status == 422
    assert ask(path, {"sentences": ["甲", "\0"]}).json["detail"][0]["loc"] == [
        "body", "sentences", 1]
    assert ask("/v1/models/b:similarity", {
        "sentences": ["甲", "乙"]}).status == 404


def test_a_corpus_is_searched():
  def search(queries, top_k):
    return [[Found(query * 2, 3, 0.5)] * top_k for query in queries]

  with live(create_app({"a": Echo(), "b": Echo()}, search={
      "a": search})) as ask:
    path = "/v1/models/a:search"
    answer = ask(path, {"queries": ["甲", "乙"], "top_k": 1})
    assert answer.json == {"results": [
        [{"text": "甲甲", "line": 3, "score": 0.5}],
        [{"text": "乙乙", "line": 3, "score": 0.5}]]}
    assert ask("/v1/models/a").json["searches"] is True
    assert ask(path, {"queries": []}).status == 422
    assert ask(path, {"queries": ["\0"]}).status == 422
    assert ask("/v1/models/b:search", {"queries": ["甲"]}).status == 404


def test_the_pages_need_nothing_from_elsewhere():
  with live(create_app({"a": Echo()})) as ask:
    page = ask("/")
    assert page.headers["Content-Security-Policy"].startswith(
        "default-src 'none'; connect-src 'self'")
    assert not re.search("https?://", page.text)
    api = ask("/docs")
    sources = re.findall(r'(?:src|href)="([^"]+)"', api.text)
    assert not [x for x in sources if "//" in x]
    assert {ask("/" + x).status for x in sources if ":" not in x} == {200}
    paths = ask("/openapi.json").json["paths"]
    assert {"/v1/models/{name}:predict", "/health"} < set(paths)


def broken(rng):
  """Returns a body that is no request."""
  good = json.dumps({"instances": ["今天天气很好"]}).encode()
  deep = 10 ** rng.randint(1, 4)
  text = rng.choice(["\\ud800", "\\udfff好", "a\\u0000b"])
  return rng.choice([
      lambda: good[:rng.randrange(len(good) - 1)],
      lambda: good + rng.choice([b"x", b"}", b"\0"]),
      lambda: bytes(rng.randrange(256) for _ in range(rng.randrange(60))),
      lambda: json.dumps({"instances": rng.choice([
          None, 1, "甲", {}, [1], [None], [[]], [{}], [["甲"]], [True],
          [{"text": ["甲"]}], [{"text": None}], [{"text": "甲", "x": 1}]
      ])}).encode(),
      lambda: json.dumps({"instances": ["甲"], "top_k": rng.choice(
          [0, -1, 1.5, "a", None, [], 10 ** 30])}).encode(),
      lambda: ('{"instances": ["%s"]}' % text).encode(),
      lambda: ('{"instances": [{"%s": "a"}]}' % text).encode(),
      lambda: b'{"instances": []}',
      lambda: json.dumps({"instances": ["a"] * 10000}).encode(),
      lambda: b"[" * deep + b"]" * deep,
      lambda: b'{"instances": ' + b"[" * deep + b"]" * deep + b"}",
      lambda: b'{"instances": [' + b'{"text":' * deep + b"1" + b"}" * deep + (
          b"]}"),
      lambda: b"NaN", lambda: b"",
      lambda: json.dumps(["甲"]).encode()])()


@pytest.mark.slow
def test_malformed_requests(tmp_path):
  """Of a real model, whose good answers in between stay the same."""
  write_model(tmp_path, MODELS["google postln"])
  rng = random.Random(7)
  good = {"instances": ["今天天气很好", "我们去公园"]}
  with live(create_app({"a": load(str(tmp_path))})) as ask:
    path = "/v1/models/a:predict"
    wanted = ask(path, good)
    assert len(names(wanted)) == 2
    for number in range(2000):
      body = broken(rng)
      if number % 500 == 0:
        body = b'{"instances": ["%s"]}' % (b"a" * 10 ** 7)
      status = ask(path, body).status
      assert 400 <= status < 500, (status, body[:100])
      if number % 50 == 0:
        assert ask(path, good).json == wanted.json
    assert ask(path, good).json == wanted.json
