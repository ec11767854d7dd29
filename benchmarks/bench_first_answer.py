r"""Seconds from the start of a process to its first prediction.

    python benchmarks/bench_first_answer.py --model_dir=output/topics/best

The classifier in --model_dir predicts one text in a new process, repeatedly:
  checkpoint  predict.py
  onnx        predict.py --engine=onnx
  openvino    predict.py --engine=openvino
  pipeline    transformers.pipeline, with torch and transformers installed
"""

import os
import subprocess
import sys
import tempfile
import time

import numpy as np
from absl import app, flags

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

FLAGS = flags.FLAGS
flags.DEFINE_string(
  "model_dir", None, "Folder of a fine-tuned classifier.", required=True
)
flags.DEFINE_list(
  "ways", ["checkpoint", "onnx", "openvino", "pipeline"], "What to measure."
)
flags.DEFINE_integer("times", 7, "Processes per way.")

_TEXT = "高铁通到了县城，游客多了一倍"
_PIPELINE = """
import sys, transformers
folder, text = sys.argv[1:]
print(transformers.pipeline("text-classification", model=folder,
                            tokenizer=folder)(text))
"""


def run(*command, **kwargs):
  subprocess.run([sys.executable, *command], cwd=ROOT, check=True, **kwargs)


def main(_):
  source = os.path.abspath(FLAGS.model_dir)
  with tempfile.TemporaryDirectory() as folder:
    onnx, pytorch = [os.path.join(folder, name) for name in ("onnx", "pytorch")]
    if {"onnx", "openvino"}.intersection(FLAGS.ways):
      run(
        "export_model.py",
        "--onnx",
        "--signature=classify",
        "--init_checkpoint=" + source,
        "--output_dir=" + onnx,
      )
    if "pipeline" in FLAGS.ways:
      run(
        "convert_to_pytorch.py",
        "--init_checkpoint=" + source,
        "--output_dir=" + pytorch,
      )
    commands = {
      "checkpoint": ["predict.py", "--model_dir=" + source, _TEXT],
      "onnx": ["predict.py", "--engine=onnx", "--model_dir=" + onnx, _TEXT],
      "openvino": [
        "predict.py",
        "--engine=openvino",
        "--model_dir=" + onnx,
        _TEXT,
      ],
      "pipeline": ["-c", _PIPELINE, pytorch, _TEXT],
    }
    print("way\tmedian s\tleast\tmost")
    for way in FLAGS.ways:
      seconds = []
      for _ in range(FLAGS.times + 1):
        start = time.time()
        run(*commands[way], stdout=subprocess.DEVNULL)
        seconds.append(time.time() - start)
      seconds = seconds[1:]  # the first run fills the page cache
      print(
        "%s\t%.2f\t%.2f\t%.2f"
        % (way, np.median(seconds), min(seconds), max(seconds)),
        flush=True,
      )


if __name__ == "__main__":
  app.run(main)
