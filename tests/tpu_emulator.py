"""Runs a script on an emulated TPU.

    python tests/tpu_emulator.py HOSTS CORES_PER_HOST SCRIPT flags

Dropout is off: a replica draws different random numbers than a device that has
the whole batch.

TPUEstimator takes its TPU code path; servers in this process stand in for hosts
and cores. Infeed, outfeed and cross-replica sums are queues. A TPU has a copy
of all variables on each core; here replicas share one set of variables, which
the first one updates once all have their gradients.
"""

import os
import re
import runpy
import socket
import sys
import types

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import resource_variable_ops
from tensorflow.python.tpu import tpu, tpu_feed, tpu_system_metadata
from tensorflow.python.tpu.ops import tpu_ops
from tensorflow_estimator.python.estimator.tpu import tpu_estimator

_DEVICE = "/job:tpu_worker/task:0/device:CPU:0"


class Emulator:
  """Replaces TensorFlow's TPU system and builds the replicas' graphs."""

  def __init__(self, hosts, cores):
    self._cores, self._count = cores, hosts * cores
    self._replica = None  # the one being built
    self._num_sums = 0  # of that replica
    self._queues = {}
    addresses = [_free_address() for _ in range(hosts)]
    cluster = tf.train.ClusterSpec({"tpu_worker": addresses})
    config = tf.ConfigProto(inter_op_parallelism_threads=8)
    self._servers = [
      tf.train.Server(cluster, "tpu_worker", task, config=config)
      for task in range(hosts)
    ]
    self.master = "grpc://" + addresses[0]
    self._system = types.SimpleNamespace(
      num_cores=self._count,
      num_hosts=hosts,
      num_of_cores_per_host=cores,
      topology=None,
      devices=[],
    )

  def install(self):
    tpu_system_metadata._query_tpu_system_metadata = lambda *args, **kwargs: (
      self._system
    )
    tpu_ops.infeed_enqueue_tuple = lambda inputs, device_ordinal, **_: (
      self._put("in", self._replica_of(device_ordinal), inputs)
    )
    tpu_ops.infeed_dequeue_tuple = lambda **_: self._take("in", self._replica)
    tpu_ops.outfeed_enqueue_tuple = lambda tensors: self._put(
      "out", self._replica, tensors
    )
    tpu_ops.outfeed_dequeue_tuple = lambda device_ordinal, **_: self._take(
      "out", self._replica_of(device_ordinal)
    )
    for module in (tpu, tf.tpu, getattr(tpu_feed, "tpu_name_util", tpu)):
      module.core = lambda number: ""
      module.initialize_system = module.shutdown_system = (
        lambda *args, **kwargs: tf.no_op()
      )
    tf.tpu.cross_replica_sum = self._cross_replica_sum
    tpu.split_compile_and_shard = self._make_replicas
    self._let_the_first_replica_write()
    self._make_again()

  def _make_again(self):
    """Lets the estimator build a graph for each replica instead of once."""
    tpu_estimator._validate_tpu_training_graph = lambda *args: None

    def capture(captured, value):
      captured._captured, captured._object = True, value

    tpu_estimator._CapturedObject.capture = capture
    record = tpu_estimator._OutfeedHostCall.record

    def record_anew(call, host_calls):
      call._names = []
      for recorded in (
        call._host_fns,
        call._tensor_keys,
        call._tensors,
        call._tensor_dtypes,
        call._tensor_shapes,
      ):
        recorded.clear()
      return record(call, host_calls)

    tpu_estimator._OutfeedHostCall.record = record_anew
    generate = tpu_feed.InfeedQueue.generate_dequeue_op

    def generate_anew(queue, *args, **kwargs):
      queue._generated_dequeue_op = False
      return generate(queue, *args, **kwargs)

    tpu_feed.InfeedQueue.generate_dequeue_op = generate_anew

  def _queue(self, *key, like=()):
    """Returns the queue of a key; `like`: tensors such as it will hold."""
    graph = tf.get_default_graph()
    while hasattr(graph, "outer_graph"):
      graph = graph.outer_graph
    key = (graph,) + key  # keeps the graph alive, and so its id
    if key not in self._queues:
      with tf.init_scope(), tf.device(_DEVICE):
        self._queues[key] = tf.FIFOQueue(
          8,
          [x.dtype for x in like],
          [x.shape for x in like],
          shared_name="queue_%d" % len(self._queues),
        )
    return self._queues[key]

  def _replica_of(self, core):
    """Returns the replica of a host's core; the current device has the host."""
    with tf.control_dependencies(None):
      task = re.search(r"task:(\d+)", tf.no_op().device)
    return (int(task.group(1)) if task else 0) * self._cores + core

  def _put(self, name, replica, tensors):
    return self._queue(name, replica, like=tensors).enqueue(list(tensors))

  def _take(self, name, replica):
    return tf.nest.flatten(self._queue(name, replica).dequeue())

  def _cross_replica_sum(self, x, group_assignment=None, name=None):
    x = tf.convert_to_tensor(x)
    number, here = self._num_sums, self._replica
    self._num_sums += 1

    def queue(source, target):
      return self._queue("sum", number, source, target, like=[x])

    with tf.control_dependencies(
      [queue(here, other).enqueue(x) for other in range(self._count)]
    ):
      return tf.add_n(
        [queue(other, here).dequeue() for other in range(self._count)]
      )

  def _make_replicas(self, computation, inputs=None, num_shards=1, **_):
    """Replaces tpu.split_compile_and_shard."""
    outputs = []
    for self._replica in range(num_shards):
      self._num_sums = 0
      with tf.device(_DEVICE), tf.variable_scope(
        tf.get_variable_scope(), reuse=self._replica > 0 or None
      ):
        outputs.append(computation(*[x[self._replica] for x in inputs or []]))
    self._replica = None
    with tf.control_dependencies(tf.nest.flatten(outputs)):
      first = [tf.identity(x) for x in tf.nest.flatten(outputs[0])]
    return tf.no_op(), [first[0] if len(first) == 1 else first]

  def _let_the_first_replica_write(self):
    def wrap(assign):
      def wrapped(variable, value, *args, **kwargs):
        if not self._replica:
          return assign(variable, value, *args, **kwargs)
        with tf.control_dependencies(
          [tf.convert_to_tensor(value, variable.dtype.base_dtype)]
        ):
          return tf.no_op()

      return wrapped

    for cls in {
      resource_variable_ops.ResourceVariable,
      getattr(
        resource_variable_ops,
        "BaseResourceVariable",
        resource_variable_ops.ResourceVariable,
      ),
    }:
      for name in ("assign", "assign_sub", "assign_add"):
        if name in vars(cls):
          setattr(cls, name, wrap(vars(cls)[name]))

    call = tpu_estimator._ModelFnWrapper._call_model_fn

    def call_model_fn(wrapper, *args, **kwargs):
      """A replica's step ends when the first replica has written."""
      spec = call(wrapper, *args, **kwargs)
      if self._replica is None or spec.mode != tf.estimator.ModeKeys.TRAIN:
        return spec
      done = [
        self._queue("done", replica, like=[tf.constant(0)])
        for replica in range(self._count)
      ]
      if self._replica:
        return spec._replace(
          train_op=tf.group(spec.train_op, done[self._replica].dequeue())
        )
      with tf.control_dependencies([spec.train_op]):
        return spec._replace(
          train_op=tf.group(*[queue.enqueue(0) for queue in done[1:]])
        )

    tpu_estimator._ModelFnWrapper._call_model_fn = call_model_fn


def _free_address():
  with socket.socket() as found:
    found.bind(("localhost", 0))
    return "localhost:%d" % found.getsockname()[1]


if __name__ == "__main__":
  hosts, cores, script = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
  sys.argv = sys.argv[3:]
  sys.path.insert(0, os.path.dirname(script))
  import modeling

  modeling.AlbertModel.dropout = lambda model, x, *args, **kwargs: x
  emulator = Emulator(hosts, cores)
  emulator.install()
  sys.argv += [
    "--use_tpu",
    "--master=" + emulator.master,
    "--num_tpu_cores=%d" % (hosts * cores),
  ]
  runpy.run_path(script, run_name="__main__")
