"""Predicts what requests ask for together, in batches."""

import collections
import concurrent.futures
import threading
import time


class Full(Exception):
  """More inputs are waiting than may wait."""


_Request = collections.namedtuple("_Request", "inputs top_k future deadline")


class Batcher:
  """A thread that predicts for all others.

  While it predicts, requests wait; those that have come by then are predicted
  together. When it was idle, the first one waits a little for others.

  Args:
    predict: function of (list of inputs, top_k) that returns a list with a
      result for each; called in one thread only.
    max_batch_size: int, inputs to predict together. A request is not divided,
      so that one of more inputs than this is a batch of its own.
    max_wait: float, seconds that the first request waits for others.
    max_queue_size: int, inputs that may wait.
    on_batch: function of the number of inputs of each batch, or None.
  """

  def __init__(self, predict, max_batch_size, max_wait, max_queue_size,
               on_batch=None):
    self._predict = predict
    self._max_batch_size = max_batch_size
    self._max_wait = max_wait
    self._max_queue_size = max_queue_size
    self._on_batch = on_batch or (lambda size: None)
    self._requests = collections.deque()
    self._waiting = 0  # inputs in the queue
    self._changed = threading.Condition()
    self._closed = False
    self._thread = threading.Thread(target=self._run, daemon=True)
    self._thread.start()

  @property
  def waiting(self):
    """int, inputs in the queue."""
    return self._waiting

  def submit(self, inputs, top_k):
    """Asks for predictions.

    Args:
      inputs: list of inputs, at least one.
      top_k: int; see predictors.Predictor.

    Returns:
      concurrent.futures.Future of a list of results.

    Raises:
      Full: too many inputs are waiting.
    """
    future = concurrent.futures.Future()
    with self._changed:
      if self._closed or (
          self._waiting and self._waiting + len(inputs) > self._max_queue_size):
        raise Full()
      self._requests.append(_Request(inputs, top_k, future,
                                     time.monotonic() + self._max_wait))
      self._waiting += len(inputs)
      self._changed.notify()
    return future

  def close(self):
    """Predicts what is waiting, and ends the thread."""
    with self._changed:
      self._closed = True
      self._changed.notify()
    self._thread.join()

  def _run(self):
    while True:
      batch = self._next_batch()
      if not batch:
        return
      # Without those whose client is gone.
      batch = [request for request in batch
               if request.future.set_running_or_notify_cancel()]
      if batch:
        self._on_batch(sum(len(request.inputs) for request in batch))
        self._answer(batch)

  def _next_batch(self):
    """Returns the next requests, at least one; none once it is closed."""
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
    """Returns whether the next request goes with a batch of `size` inputs."""
    following = self._requests[0]
    return following.top_k == first.top_k and (
        size + len(following.inputs) <= self._max_batch_size)

  def _answer(self, batch):
    """Gives each request its results, or its own error."""
    try:
      results = self._predict(
          [row for request in batch for row in request.inputs], batch[0].top_k)
    except Exception as error:  # of a single request, which others do not share
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
