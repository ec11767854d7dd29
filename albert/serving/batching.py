"""Batches the predictions of concurrent requests."""

import collections
import concurrent.futures
import threading
import time
from typing import Any, Callable, Deque, List, Optional


class Full(Exception):
  """The queue is full."""


_Request = collections.namedtuple("_Request", "inputs top_k future deadline")


class Batcher:
  """A thread that batches the requests of all others.

  Requests that arrive during a prediction form the next batch. When the thread
  was idle, the first request waits briefly for others.

  Args:
    predict: maps (inputs, top_k) to one result per input; called in one thread
      only.
    max_batch_size: maximum inputs per batch. A request is never split, so one
      with more inputs is a batch by itself.
    max_wait: seconds that the first request waits for others.
    max_queue_size: maximum inputs in the queue.
    on_batch: called with the number of inputs of each batch.
  """

  def __init__(self, predict: Callable[[List[Any], Any], List[Any]],
               max_batch_size: int, max_wait: float, max_queue_size: int,
               on_batch: Optional[Callable[[int], Any]] = None):
    self._predict = predict
    self._max_batch_size = max_batch_size
    self._max_wait = max_wait
    self._max_queue_size = max_queue_size
    self._on_batch = on_batch or (lambda size: None)
    self._requests: Deque[_Request] = collections.deque()
    self._waiting = 0  # inputs, not requests
    self._changed = threading.Condition()
    self._closed = False
    self._thread = threading.Thread(target=self._run, daemon=True)
    self._thread.start()

  @property
  def waiting(self) -> int:
    """Inputs in the queue."""
    return self._waiting

  def submit(self, inputs: List[Any],
             top_k: Optional[int]) -> concurrent.futures.Future:
    """Queues a request.

    Args:
      inputs: at least one.
      top_k: see predictors.Predictor.

    Returns:
      future of the list of results.

    Raises:
      Full: too many inputs are waiting.
    """
    future: concurrent.futures.Future = concurrent.futures.Future()
    with self._changed:
      if self._closed or (
          self._waiting and self._waiting + len(inputs) > self._max_queue_size):
        raise Full()
      self._requests.append(_Request(inputs, top_k, future,
                                     time.monotonic() + self._max_wait))
      self._waiting += len(inputs)
      self._changed.notify()
    return future

  def close(self) -> None:
    """Finishes the queued requests and ends the thread."""
    with self._changed:
      self._closed = True
      self._changed.notify()
    self._thread.join()

  def _run(self):
    while True:
      batch = self._next_batch()
      if not batch:
        return
      # Drops requests whose client has disconnected.
      batch = [request for request in batch
               if request.future.set_running_or_notify_cancel()]
      if batch:
        self._on_batch(sum(len(request.inputs) for request in batch))
        self._answer(batch)

  def _next_batch(self):
    """Returns the next requests, at least one; none once closed."""
    with self._changed:
      self._changed.wait_for(lambda: self._requests or self._closed)
      if self._requests:
        self._changed.wait_for(
            lambda: self._waiting >= self._max_batch_size or self._closed,
            max(0, self._requests[0].deadline - time.monotonic()))
      batch, size = [], 0
      while self._requests and (not batch or self._joins(batch[0], size)):
        batch.append(self._requests.popleft())
        size += len(batch[-1].inputs)
      self._waiting -= size
      return batch

  def _joins(self, first, size):
    """Returns whether the next request fits a batch of `size` inputs."""
    following = self._requests[0]
    return following.top_k == first.top_k and (
        size + len(following.inputs) <= self._max_batch_size)

  def _answer(self, batch):
    """Sets the results of each request, or its error."""
    try:
      results = self._predict(
          [row for request in batch for row in request.inputs], batch[0].top_k)
    except Exception as error:  # retried alone: others may still succeed
      if len(batch) == 1:
        batch[0].future.set_exception(error)
      else:
        for request in batch:
          self._answer([request])
      return
    first = 0
    for request in batch:
      request.future.set_result(results[first:first + len(request.inputs)])
      first += len(request.inputs)
