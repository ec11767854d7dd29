"""Batching of requests, with a model that waits for permission."""

import concurrent.futures
import contextlib
import threading
import time
from types import SimpleNamespace

import pytest

from albert.predict.predictors import BadInput
from albert.serving.batching import Batcher, Full


@pytest.fixture
def model():
  """Doubles its inputs, one batch per `let`; `batcher` makes its Batcher."""
  go, batches = threading.Semaphore(0), []

  def let(count):
    for _ in range(count):
      go.release()

  def predict(inputs, top_k):
    go.acquire()
    batches.append((list(inputs), top_k))
    if "bad" in inputs:
      raise ValueError("bad")
    if "number" in inputs:
      raise BadInput(inputs.index("number") + 1, "empty")
    return [x * 2 for x in inputs]

  def batcher(most=4, max_wait=0.0, queue=100, **kwargs):
    return stack.enter_context(
      contextlib.closing(Batcher(predict, most, max_wait, queue, **kwargs))
    )

  with contextlib.ExitStack() as stack:
    yield SimpleNamespace(let=let, batches=batches, batcher=batcher)
    let(10**5)


def hold(batcher):
  """Keeps the model busy with one request; returns its Future."""
  first = batcher.submit([0], 5)
  while batcher.waiting:
    time.sleep(0.001)
  return first


def test_what_comes_meanwhile_is_predicted_together(model):
  sizes = []
  batcher = model.batcher(on_batch=sizes.append)
  given = [[1], [2, 3], [4, 5], list(range(9)), [7]]
  found = [hold(batcher)] + [batcher.submit(inputs, 5) for inputs in given]
  assert batcher.waiting == 15
  model.let(5)
  assert [x.result() for x in found] == [[0]] + [
    [2 * x for x in inputs] for inputs in given
  ]
  assert model.batches == [
    (inputs, 5)
    for inputs in ([0], [1, 2, 3, 4], [5, 0, 1, 2], [3, 4, 5, 6], [7, 8, 7])
  ]
  batcher.close()
  assert sizes == [1, 4, 4, 4, 3]


def test_clients_take_turns(model):
  batcher = model.batcher(queue=24)
  hold(batcher)
  many = batcher.submit(list(range(10)), 5, "a")
  few = [batcher.submit([x], 5, x) for x in "bcd"]
  with pytest.raises(Full):
    batcher.submit([7], 5, "a")  # 6 per client
  assert batcher.submit([7], 5, "b") and batcher.submit([8] * 30, 5, "e")
  gone = batcher.submit([9], 5, "f")
  assert gone.cancel()
  model.let(2)
  assert [x.result() for x in few] == [["bb"], ["cc"], ["dd"]]
  model.let(100)
  assert many.result() == [2 * x for x in range(10)]
  batcher.close()
  assert [inputs for inputs, _ in model.batches[1:8]] == [
    [0, "b", "c", "d"],
    [8, 8, 1, 7],
    [2, 3, 8, 8],
    [4, 5, 8, 8],
    [6, 7, 8, 8],
    [8, 9, 8, 8],
    [8] * 4,
  ]


def test_batches_of_at_most_so_many_tokens(model):
  batcher = model.batcher(max_batch_tokens=100)
  hold(batcher)
  long = batcher.submit(["l", "m"], 5, "a", [500, 30])
  short = [batcher.submit([x], 5, x, [25]) for x in "bcde"]
  model.let(100)
  assert long.result() == ["ll", "mm"] and [x.result() for x in short]
  assert [inputs for inputs, _ in model.batches[1:]] == [
    ["l"],
    ["b", "c", "d", "e"],
    ["m"],
  ]


def test_what_is_left_at_the_end_is_refused(model):
  batcher = model.batcher()
  hold(batcher)
  left = batcher.submit([1], 5)
  batcher.close(0.05)
  with pytest.raises(Full):
    left.result(0)


def test_requests_that_ask_for_other_things_are_apart(model):
  batcher = model.batcher()
  hold(batcher)
  others = [batcher.submit(["a"], top_k) for top_k in (1, 1, 2, 1, 1)]
  assert others.pop().cancel()  # its client disconnected
  model.let(4)
  assert [x.result() for x in others] == [["aa"]] * 4
  assert model.batches[1:] == [(["a", "a"], 1), (["a"], 2), (["a"], 1)]


def test_the_first_one_waits_for_others(model):
  model.let(100)
  batcher = model.batcher(most=2, max_wait=60)
  together = [batcher.submit([x], 5) for x in range(2)]  # full: no wait
  assert [x.result(30) for x in together] == [[0], [2]]
  assert model.batches == [([0, 1], 5)]
  alone = batcher.submit([3], 5)
  time.sleep(0.1)
  assert not alone.done()
  batcher.close()  # flushes the queue
  assert alone.result(0) == [6]
  with pytest.raises(Full):
    batcher.submit([1], 5)


def test_an_error_is_of_its_request_alone(model):
  batcher = model.batcher()
  found = [hold(batcher)] + [batcher.submit([x], 5) for x in ("a", "bad", "b")]
  model.let(100)
  assert [x.result() for x in (found[1], found[3])] == [["aa"], ["bb"]]
  assert model.batches[1] == (["a", "bad", "b"], 5)
  with pytest.raises(ValueError, match="bad"):
    found[2].result()
  # Input numbers refer to the request, not to the batch.
  with pytest.raises(BadInput, match="input 5: empty"):
    batcher.submit(["a", "a", "a", "a", "number"], 5).result()
  assert batcher.submit(["c"], 5).result() == ["cc"]


def test_many_threads_get_their_own_answers(model):
  model.let(10**5)
  batcher = model.batcher(most=16, max_wait=0.001)

  def ask(number):
    for i in range(60):
      rows = [number * 1000 + i] * (1 + i % 3)
      assert batcher.submit(rows, i % 2).result() == [2 * x for x in rows]

  with concurrent.futures.ThreadPoolExecutor(8) as pool:
    assert list(pool.map(ask, range(8))) == [None] * 8
  assert batcher.waiting == 0
  assert sum(len(inputs) for inputs, _ in model.batches) == 8 * 20 * (1 + 2 + 3)
