"""--precision=fp16: the graph rewritten by TensorFlow for a GPU, run on CPU."""

import os

import numpy as np
import pytest
import small_steps as small
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf import device_properties_pb2
from tensorflow.core.protobuf import rewriter_config_pb2 as rewriter
from tensorflow.python.grappler import cluster, tf_optimizer

from albert.model import kernels

# Otherwise CPU builds of TensorFlow ignore the described GPU.
os.environ["TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_SIMULATE_GPU"] = "1"

GPU = "/job:localhost/replica:0/task:0/device:GPU:0"


def rewrite(graph, names):
  """Returns the GraphDef rewritten for a V100; `names`: ops to fetch."""
  meta = tf.train.export_meta_graph(
    graph=graph, graph_def=graph.as_graph_def(add_shapes=True)
  )
  for node in meta.graph_def.node:
    node.device = GPU
  meta.collection_def["train_op"].node_list.value.extend(names)
  device = device_properties_pb2.NamedDevice(
    name=GPU,
    properties=device_properties_pb2.DeviceProperties(
      type="GPU", environment={"architecture": "7.0", "cuda": "10000"}
    ),
  )
  config = tf.ConfigProto()
  options = config.graph_options.rewrite_options
  options.optimizers.append("auto_mixed_precision")
  options.auto_mixed_precision = rewriter.RewriterConfig.ON
  options.meta_optimizer_iterations = rewriter.RewriterConfig.ONE
  options.min_graph_nodes = -1
  rewritten = tf_optimizer.OptimizeGraph(
    config,
    meta,
    cluster=cluster.Cluster(
      allow_soft_placement=True, disable_detailed_stats=True, devices=[device]
    ),
  )
  for node in rewritten.node:
    node.device = ""
  return rewritten


def run(precision):
  """Trains; returns (losses, types of float16 operations)."""
  with tf.Graph().as_default() as graph:
    tf.set_random_seed(7)
    inputs = {
      name: tf.placeholder(x.dtype, x.shape, name)
      for name, x in small.make_features().items()
    }
    spec = small.make_model_fn(
      small.make_options(
        precision=precision,
        learning_rate=0.001,
        gradient_accumulation_steps=2,
        optimizer="adamw",
      ),
      **small.LAYOUTS["albert_zh"],
    )(inputs, None, tf.estimator.ModeKeys.TRAIN, {})
    loss, step, start, global_step = names = [
      tf.identity(spec.loss).op.name,
      tf.group(spec.train_op).name,
      tf.global_variables_initializer().name,
      tf.identity(tf.train.get_global_step().read_value()).op.name,
    ]
    definition = (
      rewrite(graph, names) if precision == "fp16" else (graph.as_graph_def())
    )
  config = tf.ConfigProto()
  config.graph_options.rewrite_options.disable_meta_optimizer = True
  with tf.Graph().as_default(), tf.Session(config=config) as session:
    tf.import_graph_def(definition, name="")
    session.run(start)
    losses = [
      session.run(
        [loss + ":0", step],
        {name + ":0": x for name, x in small.make_features(seed).items()},
      )[0]
      for seed in range(20)
    ]
    assert session.run(global_step + ":0") == 20
  return losses, {
    node.op
    for node in definition.node
    if "T" in node.attr and node.attr["T"].type == tf.float16.as_datatype_enum
  }


@pytest.mark.full
def test_losses_are_those_of_single_precision():
  wanted, none = run("float32")
  found, half = run("fp16")
  assert not none and {"MatMul", "BatchMatMulV2"} <= half
  # Long sums and roots of small numbers stay in float32.
  assert not {"Softmax", "Rsqrt", "Mean", "L2Loss"} & half
  np.testing.assert_allclose(found, wanted, rtol=2e-3)
  assert found != wanted and abs(wanted[-1] - wanted[0]) > 0.1


def test_gelu_is_one_whose_gradient_half_precision_can_hold():
  assert [
    kernels.for_training(9, precision).gelu for precision in ("fp16", "float32")
  ] == [kernels.half_gelu, kernels.lean_gelu]
