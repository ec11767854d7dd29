"""Batches the inputs of concurrent requests, with clients taking turns."""

import collections
import concurrent.futures
import threading
import time
from typing import (
  Any,
  Callable,
  Deque,
  Dict,
  List,
  Optional,
  OrderedDict,
  Sequence,
)


class Full(Exception):
  """The queue is full, or the service is shutting down."""


class _Request:
  """A request in the queue.

  Attributes:
    inputs, sizes, top_k, client: see `Batcher.submit`.
    future: of the results.
    results: of the first inputs.
    taken: number of inputs that have left the queue.
    deadline: time until which the batch may wait for more requests.
  """

  def __init__(self, inputs, sizes, top_k, client, deadline):
    self.inputs, self.sizes, self.top_k = inputs, sizes, top_k
    self.client, self.deadline = client, deadline
    self.future: concurrent.futures.Future = concurrent.futures.Future()
    self.results: List[Any] = []
    self.taken = 0

  def finish(self, set_result, value):
    try:
      set_result(value)
    except Exception:  # cancelled meanwhile; of different classes
      pass


class Batcher:
  """A thread that predicts the inputs of all other threads in batches.

  A batch takes one input from each client in turn until it is full, so that
  small requests do not wait for large ones; a request may span several batches.
  Inputs that arrive during a prediction form the next batch. If the thread was
  idle, the first request waits briefly for more.

  Args:
    predict: maps (inputs, top_k) to one result per input; called in one thread
      only.
    max_batch_size: maximum inputs per batch.
    max_wait: seconds that the first request waits for more.
    max_queue_size: maximum inputs in the queue, shared by the clients in it. A
      client with an empty queue may always submit a request.
    on_batch: called with the number of inputs of each batch.
    max_batch_tokens: maximum number of inputs times size of the longest, unless
      the batch is a single input.
  """

  def __init__(
    self,
    predict: Callable[[List[Any], Any], List[Any]],
    max_batch_size: int,
    max_wait: float,
    max_queue_size: int,
    on_batch: Optional[Callable[[int], Any]] = None,
    max_batch_tokens: int = 1 << 60,
  ):
    self._predict = predict
    self._max_batch_size = max_batch_size
    self._max_batch_tokens = max_batch_tokens
    self._max_wait = max_wait
    self._max_queue_size = max_queue_size
    self._on_batch = on_batch or (lambda size: None)
    # Clients with queued inputs; the first one is next.
    self._clients: OrderedDict[str, Deque[_Request]] = collections.OrderedDict()
    self._changed = threading.Condition()
    self._closed = False
    self._thread = threading.Thread(target=self._run, daemon=True)
    self._thread.start()

  @property
  def waiting(self) -> int:
    """Inputs in the queue."""
    with self._changed:
      return sum(map(_count, self._clients.values()))

  def submit(
    self,
    inputs: List[Any],
    top_k: Optional[int],
    client: str = "",
    sizes: Optional[Sequence[int]] = None,
  ) -> concurrent.futures.Future:
    """Queues a request.

    Args:
      inputs: at least one.
      top_k: see predictors.Predictor.
      client: identifies the client.
      sizes: tokens of each input; 1 by default.

    Returns:
      future of the list of results. If cancelled, the rest is not predicted.

    Raises:
      Full: too many inputs of the client are queued.
    """
    request = _Request(
      inputs,
      sizes or [1] * len(inputs),
      top_k,
      client,
      time.monotonic() + self._max_wait,
    )
    with self._changed:
      queue = self._clients.get(client, ())
      count = len(self._clients) + (client not in self._clients)
      if self._closed or (
        queue and _count(queue) + len(inputs) > (self._max_queue_size // count)
      ):
        raise Full()
      self._clients.setdefault(client, collections.deque()).append(request)
      self._changed.notify()
    request.future.add_done_callback(
      lambda future: future.cancelled() and self._drop(request)
    )
    return request.future

  def close(self, seconds: float = 60.0) -> None:
    """Ends the thread; finishes the queued requests, or refuses them.

    Args:
      seconds: after which requests that are still queued are refused.
    """
    with self._changed:
      self._closed = True
      self._changed.notify()
    self._thread.join(seconds)
    with self._changed:
      for queue in self._clients.values():
        for request in queue:
          request.finish(request.future.set_exception, Full())
      self._clients.clear()

  def _run(self):
    while True:
      batch = self._next_batch()
      if not batch:
        return
      self._on_batch(sum(count for _, count in batch))
      self._answer(batch)

  def _next_batch(self):
    """Returns the next batch, pairs of a request and its number of inputs.

    There is at least one; none once closed.
    """
    with self._changed:
      while True:
        self._changed.wait_for(lambda: self._clients or self._closed)
        if self._clients:
          first = next(iter(self._clients.values()))[0]
          self._changed.wait_for(
            lambda: (
              self._closed
              or sum(map(_count, self._clients.values()))
              >= self._max_batch_size
            ),
            max(0, first.deadline - time.monotonic()),
          )
        taken = self._take()
        if taken or self._closed:
          return list(taken.items())

  def _take(self):
    """Takes a batch from the queue: request -> number of its inputs."""
    taken: Dict[_Request, int] = collections.OrderedDict()
    count, longest, top_k, skipped = 0, 0, None, []
    while self._clients and count < self._max_batch_size:
      client, queue = next(iter(self._clients.items()))
      request = queue[0]
      size = max(longest, request.sizes[request.taken])
      if count and (
        request.top_k != top_k or size * (count + 1) > self._max_batch_tokens
      ):
        # Other clients may fit; this one keeps its turn.
        skipped.append((client, self._clients.pop(client)))
        continue
      taken[request] = taken.get(request, 0) + 1
      request.taken += 1
      count, longest, top_k = count + 1, size, request.top_k
      if request.taken == len(request.inputs):
        self._drop(request)
      if client in self._clients:
        self._clients.move_to_end(client)
    for client, queue in reversed(skipped):
      self._clients[client] = queue
      self._clients.move_to_end(client, last=False)
    return taken

  def _drop(self, request):
    """Removes a request from the queue, if it is there."""
    with self._changed:
      queue = self._clients.get(request.client, ())
      if request in queue:
        queue.remove(request)
        if not queue:
          del self._clients[request.client]

  def _answer(self, batch):
    """Adds results to each request, or sets its error."""
    inputs = [
      row
      for request, count in batch
      for row in request.inputs[
        len(request.results) : len(request.results) + count
      ]
    ]
    try:
      results = self._predict(inputs, batch[0][0].top_k)
    except Exception as error:
      if len(batch) > 1:  # retried alone: the rest may still succeed
        for one in batch:
          self._answer([one])
        return
      request, _ = batch[0]
      if hasattr(error, "number"):  # a predictors.BadInput
        error = type(error)(error.number + len(request.results), error.problem)
      request.finish(request.future.set_exception, error)
      self._drop(request)
      return
    for request, count in batch:
      request.results += results[:count]
      results = results[count:]
      if len(request.results) == len(request.inputs):
        request.finish(request.future.set_result, request.results)


def _count(queue):
  """Returns the number of queued inputs of a client."""
  return sum(len(request.inputs) - request.taken for request in queue)
