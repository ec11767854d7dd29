"""--precision=fp16: the graph as TensorFlow rewrites it for a GPU, run here.

A processor computes in half precision what a GPU would.
"""

import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf import config_pb2, device_properties_pb2
from tensorflow.core.protobuf import rewriter_config_pb2 as rewriter
from tensorflow.python.grappler import cluster, tf_optimizer
from test_step import LAYOUTS, make_features, make_model_fn, make_options

from albert.model import kernels

# A TensorFlow that was built without GPUs sees none that are described to it.
os.environ["TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_SIMULATE_GPU"] = "1"
pytestmark = pytest.mark.slow

GPU = "/job:localhost/replica:0/task:0/device:GPU:0"


def rewrite(graph, names):
  """Returns the GraphDef of which the GPU of a V100 computes the names."""
  meta = tf.train.export_meta_graph(
      graph=graph, graph_def=graph.as_graph_def(add_shapes=True))
  for node in meta.graph_def.node:
    node.device = GPU
  meta.collection_def["train_op"].node_list.value.extend(names)
  properties = device_properties_pb2.DeviceProperties
  devices = [
      device_properties_pb2.NamedDevice(name=GPU, properties=properties(
          type="GPU", num_cores=80, frequency=1500, memory_size=2**34,
          bandwidth=900000000, environment={
              "architecture": "7.0", "cuda": "10000", "cudnn": "7600"})),
      device_properties_pb2.NamedDevice(
          name=GPU.replace("GPU", "CPU"), properties=properties(
              type="CPU", num_cores=2, frequency=2000))]
  config = config_pb2.ConfigProto()
  options = config.graph_options.rewrite_options
  options.optimizers.append("auto_mixed_precision")
  options.auto_mixed_precision = rewriter.RewriterConfig.ON
  options.meta_optimizer_iterations = rewriter.RewriterConfig.ONE
  options.min_graph_nodes = -1
  rewritten = tf_optimizer.OptimizeGraph(config, meta, cluster=cluster.Cluster(
      allow_soft_placement=True, disable_detailed_stats=True, devices=devices))
  for node in rewritten.node:
    node.device = ""
  return rewritten


def run(precision, bias_before_gelu=0.0, num_steps=20, **changes):
  """Trains; returns (losses, steps made, types of operations in half)."""
  with tf.Graph().as_default() as graph:
    tf.set_random_seed(7)
    inputs = {name: tf.placeholder(x.dtype, x.shape, name)
              for name, x in make_features().items()}
    spec = make_model_fn(
        make_options(precision=precision, learning_rate=0.001, **changes),
        **LAYOUTS["google_preln"])(
            inputs, None, tf.estimator.ModeKeys.TRAIN, {})
    start = [tf.global_variables_initializer()]
    with tf.control_dependencies(start):
      start += [variable.assign(tf.fill(variable.shape, bias_before_gelu))
                for variable in tf.trainable_variables()
                if variable.op.name.endswith("intermediate/dense/bias")]
    names = [tf.identity(spec.loss).op.name, tf.group(spec.train_op).name,
             tf.group(start).name,
             tf.identity(tf.train.get_global_step().read_value()).op.name]
    definition = rewrite(graph, names) if precision == "fp16" else (
        graph.as_graph_def())
  half = {node.op for node in definition.node if "T" in node.attr and
          node.attr["T"].type == tf.float16.as_datatype_enum}
  config = tf.ConfigProto()
  config.graph_options.rewrite_options.disable_meta_optimizer = True
  with tf.Graph().as_default(), tf.Session(config=config) as session:
    tf.import_graph_def(definition, name="")
    loss, step, started, global_step = names
    session.run(started)
    losses = [session.run([loss + ":0", step], {
        name + ":0": x for name, x in make_features(seed).items()})[0]
              for seed in range(num_steps)]
    return losses, session.run(global_step + ":0"), half


@pytest.mark.parametrize("changes", [
    {}, {"gradient_accumulation_steps": 2, "optimizer": "adamw"}])
def test_losses_are_those_of_single_precision(changes):
  wanted, steps, none = run("float32", **changes)
  found, half_steps, half = run("fp16", **changes)
  assert steps == half_steps == 20
  assert not none and {"MatMul", "BatchMatMulV2"} <= half
  # What sums many terms, or is the root of small ones, is not rounded.
  assert not {"Softmax", "Rsqrt", "Mean", "L2Loss"} & half
  np.testing.assert_allclose(found, wanted, rtol=2e-3)
  assert found != wanted and abs(wanted[-1] - wanted[0]) > 0.1


@pytest.mark.parametrize("gelu, advances", [
    (kernels.half_gelu, True), (kernels.lean_gelu, False)])
def test_steps_are_made_where_gelu_is_given_hundreds(
    gelu, advances, monkeypatch):
  """The loss scale is found in the first steps."""
  monkeypatch.setattr(kernels, "half_gelu", gelu)
  losses, steps, half = run("fp16", bias_before_gelu=100.0, num_steps=30)
  assert np.all(np.isfinite(losses))
  # Of a GPU that is not there, TF 2.15 leaves GELU in single precision.
  assert (steps > 10) == (advances or "Sigmoid" not in half)
