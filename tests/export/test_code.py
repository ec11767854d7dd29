"""An exported ONNX folder with inference code runs standalone."""

import json
import os
import re
import subprocess
import sys

import pytest
from live_service import client
from scripting import ROOT, export

from albert.export import code
from albert.predict import load

# A Python without TensorFlow and this repository.
ALONE = """
import runpy, sys
sys.modules.update(dict.fromkeys(
    ("tensorflow", "tf2onnx", "onnx", "jieba", "tqdm", "six")))
sys.path[0] = "."
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


@pytest.mark.slow
def test_it_predicts_and_serves_the_page(trained, tmp_path):
  pytest.importorskip("onnxruntime")
  source, target = trained("labels").best, tmp_path / "onnx"
  export(source, target, "--onnx", "--with_code", "--signature=classify")
  assert {
    str(path.relative_to(target))
    for path in target.rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
  } == {
    "classify.onnx",
    "config.json",
    "task.json",
    "vocab.txt",
    *code.files(False),
  }
  predict, serve = [
    subprocess.Popen(
      [sys.executable, "-c", ALONE, *words.split()],
      text=True,
      cwd=str(target),
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      env={"PATH": os.environ["PATH"]},
    )
    for words in (
      "predict.py --engine=onnx --model_dir=. --format=jsonl 今天天气很好",
      "serve.py --engine=onnx --model_dir=a=. --port=0",
    )
  ]
  try:
    found = json.loads(predict.communicate()[0])
    (wanted,) = load(str(source)).predict(["今天天气很好"])
    assert found["label"] == wanted.label
    assert found["probability"] == pytest.approx(wanted.probability, abs=1e-5)
    line = next(line for line in serve.stderr if "serves" in line)
    ask = client(int(line.split("http://127.0.0.1:")[1].split(" ")[0]))
    assert ask("/").text == (ROOT / "albert/serving/page.html").read_text(
      encoding="utf-8"
    )
    assert ask("/v1/models/a:predict", {"instances": ["好"]}).status == 200
  finally:
    serve.kill()
    serve.communicate()


def test_files():
  found = code.files(is_sentencepiece=False)
  assert re.fullmatch(
    r"numpy\nabsl-py\nonnxruntime\nfastapi==.*\nuvloop>=0.17;"
    " platform_system != 'Windows'\n",
    found.pop("requirements.txt").decode(),
    re.S,
  )
  for path, content in found.items():  # unchanged
    assert content == (ROOT / path).read_bytes()
  assert {
    "predict.py",
    "serve.py",
    "LICENSE",
    "albert/predict/engines.py",
    "albert/serving/page.html",
  } < set(found)
  assert len(found) < 48
  assert "sentencepiece" in code.files(True)["requirements.txt"].decode()
