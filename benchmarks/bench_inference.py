r"""Latency, throughput, size and memory of a classifier's inference backends.

    python benchmarks/bench_inference.py --model_dir=output/lcqmc/best \
      --input_file=text.txt

All use the same weights and sentences, without padding: texts are joined and
cut to length. Each measurement runs in a separate process. Ways:
  session      a warm session, as in similarity.py
  saved_model  export_model.py --saved_model, loaded by this TensorFlow
  tflite       export_model.py --tflite; tflite_int8: also --int8
  onnx         export_model.py --onnx in ONNX Runtime; onnx_int8: also --int8
  openvino     the files of onnx in OpenVINO; openvino_bf16: --precision=bf16
  pytorch      convert_to_pytorch.py, with torch and transformers installed
  onnx_pytorch the same, exported by torch, in ONNX Runtime
"cores" is the number of busy cores. --profile shows the time by operation.
"""

import functools
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from typing import Any, List, Tuple

import numpy as np
from absl import app, flags

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

FLAGS = flags.FLAGS
flags.DEFINE_string(
  "model_dir", None, "Folder of a fine-tuned classifier.", required=True
)
flags.DEFINE_string(
  "input_file", None, "Text to take sentences from.", required=True
)
flags.DEFINE_list(
  "ways",
  [
    "session",
    "saved_model",
    "tflite",
    "tflite_int8",
    "onnx",
    "onnx_int8",
    "openvino",
    "openvino_bf16",
    "pytorch",
    "onnx_pytorch",
  ],
  "What to measure.",
)
flags.DEFINE_list("lengths", ["32", "128"], "Tokens per sentence.")
flags.DEFINE_list("batches", ["1", "32"], "Sentences per batch.")
flags.DEFINE_list("threads", ["2"], "Threads; TFLite also runs with 1.")
flags.DEFINE_float("seconds", 5.0, "Duration of each measurement.")
flags.DEFINE_bool(
  "profile", False, "Only show the time of the session by operation."
)
flags.DEFINE_string("one", None, "Internal.")

_INPUTS = ("input_ids", "input_mask", "segment_ids")


def make_batch(batch: int, length: int) -> List[np.ndarray]:
  """Returns input_ids, input_mask, segment_ids: int32 [batch, length]."""
  from albert import model_folder

  tokenizer = model_folder.load(
    model_folder.FolderSettings(), FLAGS.model_dir
  ).create_tokenizer()
  ids = []
  with open(FLAGS.input_file, encoding="utf-8") as reader:
    for line in reader:
      ids += tokenizer.convert_tokens_to_ids(tokenizer.tokenize(line))
      if len(ids) >= batch * length:
        break
  input_ids = np.resize(np.array(ids, np.int32), [batch, length])
  input_ids[:, 0], input_ids[:, -1] = tokenizer.cls_id, tokenizer.sep_id
  return [input_ids, np.ones_like(input_ids), np.zeros_like(input_ids)]


def open_session(path: str, threads: int) -> Tuple[Any, Any, List[Any]]:
  """Returns a session, its tensor of probabilities, and its placeholders."""
  import tensorflow.compat.v1 as tf

  from albert import heads, model_folder
  from albert.files import checkpoints
  from albert.heads.signatures import build_signature

  folder = model_folder.load(model_folder.FolderSettings(), path)
  found = heads.restore(checkpoints.saved_shapes(folder.checkpoint), folder)
  signature = build_signature(folder.config, found["classify"])
  return (
    checkpoints.restored_session(
      folder.checkpoint,
      tf.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=1
      ),
    ),
    (signature.outputs["probabilities"]),
    list(signature.inputs.values()),
  )


def session(path, inputs, threads):
  sess, probabilities, placeholders = open_session(path, threads)
  call = sess.make_callable(probabilities, placeholders)
  return lambda: call(*inputs)


def profile(inputs: List[np.ndarray], threads: int) -> None:
  """Prints the time of a session by operation."""
  import tensorflow.compat.v1 as tf

  import profiling

  with tf.Graph().as_default():
    sess, probabilities, placeholders = open_session(FLAGS.model_dir, threads)
    runs = [tf.RunMetadata() for _ in range(20)]
    for metadata in runs:
      sess.run(
        probabilities,
        dict(zip(placeholders, inputs)),
        tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE),
        metadata,
      )
  profiling.print_shares(
    "%d x %d, %d thread(s)" % (inputs[0].shape + (threads,)), runs[10:], 8
  )


def saved_model(path, inputs, threads):
  import tensorflow as tf

  if tf.__version__.startswith("1."):
    tf = tf.compat.v1
    sess = tf.Session(
      config=tf.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=1
      )
    )
    signature = tf.saved_model.loader.load(sess, ["serve"], path).signature_def[
      "serving_default"
    ]
    call = sess.make_callable(
      signature.outputs["probabilities"].name,
      [signature.inputs[name].name for name in _INPUTS],
    )
    return lambda: call(*inputs)
  tf.config.threading.set_intra_op_parallelism_threads(threads)
  tf.config.threading.set_inter_op_parallelism_threads(1)
  loaded = tf.saved_model.load(path)  # kept: it owns the variables
  call = loaded.signatures["serving_default"]
  return lambda: (
    loaded,
    call(**{name: tf.constant(x) for name, x in zip(_INPUTS, inputs)})[
      "probabilities"
    ].numpy(),
  )[1]


def tflite(path, inputs, threads):
  import tensorflow as tf

  kwargs = {} if tf.__version__.startswith("1.") else {"num_threads": threads}
  interpreter = tf.lite.Interpreter(path + "/model.tflite", **kwargs)
  interpreter.allocate_tensors()
  places = {
    detail["name"].split(":")[0]: detail["index"]
    for detail in interpreter.get_input_details()
  }
  output = interpreter.get_output_details()[0]["index"]

  def call():
    for name, x in zip(_INPUTS, inputs):
      interpreter.set_tensor(places[name], x)
    interpreter.invoke()
    return interpreter.get_tensor(output)

  return call


def pytorch_model(path):
  import transformers

  return transformers.AutoModelForSequenceClassification.from_pretrained(
    path
  ).eval()


def pytorch(path, inputs, threads):
  import torch

  torch.set_num_threads(threads)
  model = pytorch_model(path)
  ids, mask, segments = [torch.tensor(x, dtype=torch.long) for x in inputs]

  def call():
    with torch.inference_mode():
      return (
        model(input_ids=ids, attention_mask=mask, token_type_ids=segments)
        .logits.softmax(-1)
        .numpy()
      )

  return call


def onnx_runtime(file, inputs, threads):
  """Returns a function that returns the first output."""
  import onnxruntime

  options = onnxruntime.SessionOptions()
  options.intra_op_num_threads = threads
  sess = onnxruntime.InferenceSession(
    file, options, providers=["CPUExecutionProvider"]
  )
  feed = dict(zip(_INPUTS, inputs))
  return lambda: sess.run(None, feed)[0]


def onnx(path, inputs, threads):
  return onnx_runtime(path + "/classify.onnx", inputs, threads)


def openvino(path, inputs, threads, precision="f32"):
  import openvino as runtime

  model = runtime.Core().compile_model(
    path + "/classify.onnx",
    "CPU",
    {
      "PERFORMANCE_HINT": "LATENCY",
      "INFERENCE_NUM_THREADS": threads,
      "INFERENCE_PRECISION_HINT": precision,
    },
  )
  feed = dict(zip(_INPUTS, inputs))
  return lambda: model(feed)["probabilities"]


def onnx_pytorch(path, inputs, threads):
  logits_of = onnx_runtime(
    path + "/model.onnx", [x.astype(np.int64) for x in inputs], threads
  )

  def call():
    logits = logits_of()
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)

  return call


def write_onnx(path):
  """Writes model.onnx next to the transformers model."""
  import torch

  class Logits(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.model = pytorch_model(path)

    def forward(self, input_ids, input_mask, segment_ids):
      return self.model(
        input_ids=input_ids,
        attention_mask=input_mask,
        token_type_ids=segment_ids,
      ).logits

  warnings.simplefilter("ignore")  # about tracing: the model has no branches
  torch.onnx.export(
    Logits(),
    tuple(torch.ones([2, 8], dtype=torch.long) for _ in _INPUTS),
    path + "/model.onnx",
    input_names=list(_INPUTS),
    dynamo=False,
    dynamic_axes={name: {0: "batch", 1: "length"} for name in _INPUTS},
  )


WAYS = {
  "session": session,
  "saved_model": saved_model,
  "tflite": tflite,
  "tflite_int8": tflite,
  "onnx": onnx,
  "onnx_int8": onnx,
  "openvino": openvino,
  "openvino_bf16": functools.partial(openvino, precision="bf16"),
  "pytorch": pytorch,
  "onnx_pytorch": onnx_pytorch,
}


def measure_here(way: str, path: str, threads: int, batch_file: str) -> None:
  """Measures in this process and prints JSON."""
  with np.load(batch_file) as arrays:
    inputs = [arrays[name] for name in _INPUTS]
  call = WAYS[way](path, inputs, threads)
  seconds, end, busy = [], None, 0.0
  while end is None or time.time() < end or len(seconds) < 20:
    start = time.time()
    probabilities = call()
    seconds.append(time.time() - start)
    if end is None and len(seconds) == 5:  # end of the warm-up
      end, seconds, busy = time.time() + FLAGS.seconds, [], time.process_time()
  busy = time.process_time() - busy
  with open("/proc/self/status") as reader:  # without child processes
    (peak,) = [
      int(line.split()[1]) for line in reader if line.startswith("VmHWM")
    ]
  print(
    json.dumps(
      {
        "p50": 1e3 * np.percentile(seconds, 50),
        "p99": 1e3 * np.percentile(seconds, 99),
        "rate": len(inputs[0]) / np.median(seconds),
        "cores": busy / sum(seconds),
        "peak": peak / 1024,
        "probabilities": probabilities.tolist(),
      }
    )
  )


def run(*args):
  done = subprocess.run(
    [sys.executable] + list(args),
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=False,
  )
  if done.returncode:
    sys.exit("%s: %s" % (" ".join(args), done.stderr[-2000:]))
  return done.stdout


def prepare(
  way: str, folder: str, batch: int, length: int
) -> Tuple[str, float]:
  """Exports the model of a way once; returns its path and size in MB."""
  model = "--init_checkpoint=" + os.path.abspath(FLAGS.model_dir)
  if way.startswith("openvino"):
    way = "onnx"
  path = os.path.join(folder, way)
  if way == "session":
    path = os.path.abspath(FLAGS.model_dir)
  elif way == "saved_model" and not os.path.exists(path):
    run("export_model.py", "--saved_model", model, "--output_dir=" + path)
  elif way.startswith("tflite"):
    path += "-%d-%d" % (batch, length)
    if not os.path.exists(path):
      run(
        "export_model.py",
        "--tflite",
        model,
        "--output_dir=" + path,
        "--batch_size=%d" % batch,
        "--max_seq_length=%d" % length,
        "--int8=%s" % (way == "tflite_int8"),
      )
  elif way in ("onnx", "onnx_int8") and not os.path.exists(path):
    run(
      "export_model.py",
      "--onnx",
      model,
      "--output_dir=" + path,
      "--int8=%s" % (way == "onnx_int8"),
    )
  elif way in ("pytorch", "onnx_pytorch"):
    path = os.path.join(folder, "pytorch")
    if not os.path.exists(path):
      run("convert_to_pytorch.py", model, "--output_dir=" + path)
    if way == "onnx_pytorch" and not os.path.exists(path + "/model.onnx"):
      write_onnx(path)
  ends = {
    "tflite": ".tflite",
    "tflite_int8": ".tflite",
    "onnx": "classify.onnx",
    "onnx_int8": "classify.onnx",
    "pytorch": ".safetensors",
    "onnx_pytorch": ".onnx",
  }.get(way, "data-00000-of-00001")
  size = sum(
    os.path.getsize(os.path.join(parent, name))
    for parent, _, names in os.walk(path)
    for name in names
    if name.endswith(ends)
  )
  return path, size / 1e6


def main(argv):
  del argv
  if FLAGS.one:
    measure_here(**json.loads(FLAGS.one))
    return
  if FLAGS.profile:
    for length, batch, threads in itertools.product(
      *[
        map(int, values)
        for values in (FLAGS.lengths, FLAGS.batches, FLAGS.threads)
      ]
    ):
      profile(make_batch(batch, length), threads)
    return
  print(
    "%-12s%7s%6s%8s%7s%9s%9s%12s%8s%9s%12s"
    % (
      "way",
      "length",
      "batch",
      "threads",
      "cores",
      "p50 ms",
      "p99 ms",
      "sentences/s",
      "MB",
      "peak MB",
      "difference",
    )
  )
  with tempfile.TemporaryDirectory() as folder:
    for length in map(int, FLAGS.lengths):
      for batch in map(int, FLAGS.batches):
        batch_file = os.path.join(folder, "batch.npz")
        np.savez(batch_file, **dict(zip(_INPUTS, make_batch(batch, length))))
        expected = None
        for way in FLAGS.ways:
          path, size = prepare(way, folder, batch, length)
          threads = list(map(int, FLAGS.threads))
          if way.startswith("tflite"):
            threads = sorted({1} | set(threads))
          for count in threads:
            found = json.loads(
              run(
                os.path.abspath(__file__),
                *sys.argv[1:],
                "--one="
                + json.dumps(
                  {
                    "way": way,
                    "path": path,
                    "threads": count,
                    "batch_file": batch_file,
                  }
                ),
              ).splitlines()[-1]
            )
            if expected is None:
              expected = found["probabilities"]
            difference = np.abs(np.subtract(expected, found["probabilities"]))
            print(
              "%-12s%7d%6d%8d%7.2f%9.2f%9.2f%12.1f%8.1f%9.0f%12.1e"
              % (
                way,
                length,
                batch,
                count,
                found["cores"],
                found["p50"],
                found["p99"],
                found["rate"],
                size,
                found["peak"],
                difference.max(),
              ),
              flush=True,
            )


if __name__ == "__main__":
  app.run(main)
