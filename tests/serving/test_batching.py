"""Batches of requests, against a model that waits until it may go on."""

import concurrent.futures
import contextlib
import threading
import time
from types import SimpleNamespace

import pytest

from albert.serving.batching import Batcher, Full


@pytest.fixture
def model():
  """Doubles its inputs; each batch waits until it may go on.

  `batcher` makes a Batcher of it, which is closed in the end.
  """
  go, batches = threading.Semaphore(0), []

  def let(count):
    for _ in range(count):
      go.release()

  def predict(inputs, top_k):
    go.acquire()
    batches.append((list(inputs), top_k))
    if "bad" in inputs:
      raise ValueError("bad")
    return [x * 2 for x in inputs]

  with contextlib.ExitStack() as stack:
    yield SimpleNamespace(
        let=let, batches=batches,
        batcher=lambda most=4, max_wait=0.0, queue=100, on_batch=None: (
            stack.enter_context(contextlib.closing(Batcher(
                predict, most, max_wait, queue, on_batch)))))
    let(10 ** 5)


def hold(batcher):
  """Makes the model busy with one request; returns its Future."""
  first = batcher.submit([0], 5)
  end = time.time() + 30
  while batcher.waiting:
    assert time.time() < end
    time.sleep(0.001)
  return first


def test_what_comes_meanwhile_is_predicted_together(model):
  sizes = []
  batcher = model.batcher(on_batch=sizes.append)
  given = [[1], [2, 3], [4, 5], [6], list(range(9)), [7]]
  found = [hold(batcher)] + [batcher.submit(inputs, 5) for inputs in given]
  assert batcher.waiting == 16
  model.let(5)
  assert [x.result() for x in found] == [[0]] + [
      [2 * x for x in inputs] for inputs in given]
  # Four at most, and a request is not divided.
  assert model.batches == [(inputs, 5) for inputs in (
      [0], [1, 2, 3], [4, 5, 6], list(range(9)), [7])]
  batcher.close()
  assert sizes == [1, 3, 3, 9, 1]


def test_requests_that_ask_for_other_things_are_apart(model):
  batcher = model.batcher()
  hold(batcher)
  others = [batcher.submit(["a"], top_k) for top_k in (1, 1, 2, 1, 1)]
  assert others.pop().cancel()  # its client is gone
  model.let(4)
  assert [x.result() for x in others] == [["aa"]] * 4
  assert model.batches[1:] == [(["a", "a"], 1), (["a"], 2), (["a"], 1)]


def test_the_first_one_waits_for_others(model):
  model.let(100)
  batcher = model.batcher(most=2, max_wait=60)
  together = [batcher.submit([x], 5) for x in range(2)]  # full: at once
  assert [x.result(30) for x in together] == [[0], [2]]
  assert model.batches == [([0, 1], 5)]
  alone = batcher.submit([3], 5)
  time.sleep(0.1)
  assert not alone.done()
  batcher.close()  # answers what is waiting
  assert alone.result(0) == [6]


def test_an_error_is_of_its_request_alone(model):
  batcher = model.batcher()
  found = [hold(batcher)] + [batcher.submit([x], 5) for x in ("a", "bad", "b")]
  model.let(100)
  assert [x.result() for x in (found[1], found[3])] == [["aa"], ["bb"]]
  assert model.batches[1] == (["a", "bad", "b"], 5)
  with pytest.raises(ValueError, match="bad"):
    found[2].result()
  assert batcher.submit(["c"], 5).result() == ["cc"]


def test_too_many_that_wait_are_refused(model):
  batcher = model.batcher(queue=3)
  found = [hold(batcher), batcher.submit([1, 2], 5), batcher.submit([3], 5)]
  with pytest.raises(Full):
    batcher.submit([4], 5)
  model.let(3)
  assert [len(x.result()) for x in found] == [1, 2, 1]
  # One of many inputs is taken where nothing waits.
  assert len(batcher.submit(list(range(7)), 5).result()) == 7
  batcher.close()
  with pytest.raises(Full):
    batcher.submit([1], 5)


def test_many_threads_get_their_own_answers(model):
  model.let(10 ** 5)
  batcher = model.batcher(most=16, max_wait=0.001)

  def ask(number):
    for i in range(60):
      rows = [number * 1000 + i] * (1 + i % 3)
      assert batcher.submit(rows, i % 2).result() == [2 * x for x in rows]

  with concurrent.futures.ThreadPoolExecutor(8) as pool:
    assert list(pool.map(ask, range(8))) == [None] * 8
  assert batcher.waiting == 0
  assert sum(len(inputs) for inputs, _ in model.batches) == 8 * 20 * (1 + 2 + 3)
