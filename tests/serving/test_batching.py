"""Batches of requests, against a model that waits until it may go on."""

import threading
import time

import pytest

from albert.serving.batching import Batcher, Full


class Model:
  """Doubles its inputs; each batch waits for `go`."""

  def __init__(self):
    self.batches = []
    self.go = threading.Semaphore(0)

  def predict(self, inputs, top_k):
    self.go.acquire()
    self.batches.append((list(inputs), top_k))
    if "bad" in inputs:
      raise ValueError("bad")
    return [x * 2 for x in inputs]


@pytest.fixture
def model():
  return Model()


def batcher_of(model, most=4, max_wait=0.0, queue=100, **kwargs):
  return Batcher(model.predict, most, max_wait, queue, **kwargs)


def wait_until(condition):
  end = time.time() + 30
  while not condition():
    assert time.time() < end
    time.sleep(0.001)


def hold(batcher, model):
  """Makes the model busy with one request; returns its Future."""
  first = batcher.submit([0], 5)
  wait_until(lambda: not batcher.waiting)
  return first


def test_what_comes_meanwhile_is_predicted_together(model):
  sizes = []
  batcher = batcher_of(model, on_batch=sizes.append)
  first = hold(batcher, model)
  others = [batcher.submit(inputs, 5) for inputs in ([1], [2, 3], [4, 5], [6])]
  assert batcher.waiting == 6
  for _ in range(3):
    model.go.release()
  assert [x.result() for x in [first] + others] == [
      [0], [2], [4, 6], [8, 10], [12]]
  # Four at most, and a request is not divided.
  assert model.batches == [([0], 5), ([1, 2, 3], 5), ([4, 5, 6], 5)]
  batcher.close()
  assert sizes == [1, 3, 3]


def test_a_request_of_more_than_a_batch_is_one(model):
  batcher = batcher_of(model)
  first = hold(batcher, model)
  others = [batcher.submit(list(range(9)), 5), batcher.submit([1], 5)]
  for _ in range(3):
    model.go.release()
  assert [len(x.result()) for x in [first] + others] == [1, 9, 1]
  assert [len(inputs) for inputs, _ in model.batches] == [1, 9, 1]
  batcher.close()


def test_requests_that_ask_for_other_things_are_apart(model):
  batcher = batcher_of(model)
  hold(batcher, model)
  others = [batcher.submit(["a"], top_k) for top_k in (1, 1, 2, 1)]
  for _ in range(4):
    model.go.release()
  assert [x.result() for x in others] == [["aa"]] * 4
  assert model.batches[1:] == [(["a", "a"], 1), (["a"], 2), (["a"], 1)]
  batcher.close()


def test_the_first_one_waits_for_others(model):
  model.go = threading.Semaphore(100)
  batcher = batcher_of(model, most=2, max_wait=60)
  together = [batcher.submit([x], 5) for x in range(2)]  # full: at once
  assert [x.result(30) for x in together] == [[0], [2]]
  assert model.batches == [([0, 1], 5)]
  alone = batcher.submit([3], 5)
  time.sleep(0.1)
  assert not alone.done()
  batcher.close()  # answers what is waiting
  assert alone.result(0) == [6]


def test_an_error_is_of_its_request_alone(model):
  model.go = threading.Semaphore(100)
  batcher = batcher_of(model, max_wait=0.2)
  found = [batcher.submit([x], 5) for x in ("a", "bad", "b")]
  assert [x.result() for x in found[::2]] == [["aa"], ["bb"]]
  with pytest.raises(ValueError, match="bad"):
    found[1].result()
  assert batcher.submit(["c"], 5).result() == ["cc"]
  batcher.close()


def test_too_many_that_wait_are_refused(model):
  batcher = batcher_of(model, queue=3)
  first = hold(batcher, model)
  waiting = [batcher.submit([1, 2], 5), batcher.submit([3], 5)]
  with pytest.raises(Full):
    batcher.submit([4], 5)
  model.go.release()
  model.go.release()
  assert [len(x.result()) for x in [first] + waiting] == [1, 2, 1]
  # One of many inputs is taken where nothing waits.
  large = batcher.submit(list(range(7)), 5)
  model.go.release()
  assert len(large.result()) == 7
  batcher.close()
  with pytest.raises(Full):
    batcher.submit([1], 5)


def test_a_request_whose_client_is_gone_is_left_out(model):
  batcher = batcher_of(model)
  hold(batcher, model)
  gone, other = batcher.submit([1], 5), batcher.submit([2], 5)
  assert gone.cancel()
  model.go.release()
  model.go.release()
  assert other.result() == [4]
  assert model.batches[1] == ([2], 5)
  batcher.close()


def test_many_threads_get_their_own_answers(model):
  model.go = threading.Semaphore(10 ** 6)
  batcher = batcher_of(model, most=16, max_wait=0.001)
  wrong = []

  def ask(number):
    for i in range(200):
      rows = [number * 1000 + i] * (1 + i % 3)
      if batcher.submit(rows, i % 2).result() != [2 * x for x in rows]:
        wrong.append(rows)

  threads = [threading.Thread(target=ask, args=[n]) for n in range(8)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert not wrong
  assert batcher.waiting == 0
  assert sum(len(inputs) for inputs, _ in model.batches) == 8 * (
      67 + 67 * 2 + 66 * 3)
  batcher.close()
