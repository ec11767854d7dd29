"""Scripts: --help, imports, packaging."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from scripting import ROOT, SCRIPTS, parsed

from albert import cli

MODULES = sorted(
  ".".join(path.relative_to(ROOT).with_suffix("").parts)
  for pattern in ("*.py", "albert/**/*.py")
  for path in ROOT.glob(pattern)
  if path.stem != "__init__"
)


@pytest.mark.parametrize("script", SCRIPTS)
def test_help(script):
  with parsed(script) as (module, _):
    text = cli.help_text(module.__doc__)
  assert text.startswith(module.__doc__.strip() + "\n\n")
  text = text[len(module.__doc__) :]
  assert sorted(re.findall(r"^  --(\w+)  \S", text, re.M)) == sorted(
    x.name for cls in module.SETTINGS for x in dataclasses.fields(cls)
  )
  assert max(map(len, text.splitlines())) <= 80


@pytest.mark.slow
def test_imports_need_no_optional_package_and_define_no_flag():
  """Programs may define any flag, before or after the import."""
  program = """
import importlib, json, sys
from absl import app, flags, logging
for name in ("vocab_file", "do_lower_case", "model_dir", "layer"):
  flags.DEFINE_string(name, "", "The program's own.")
import tensorflow.compat.v1
before, lacking = set(flags.FLAGS), {}
for name in ("apache_beam", "faiss", "horovod", "matplotlib", "onnx",
             "onnxruntime", "psutil", "sklearn", "tokenizers", "torch",
             "transformers"):
  sys.modules[name] = None  # an import of it fails
for name in json.loads(sys.argv[1]):
  try:
    importlib.import_module(name)
  except ImportError as error:
    lacking[name] = error.name
from tokenization import WordPieceTokenizer
print(json.dumps([sorted(set(flags.FLAGS) - before), lacking,
                  WordPieceTokenizer(sys.argv[2]).tokenize("Bank 天")]))
"""
  _, out, log = start(
    ROOT,
    ROOT,
    "-c",
    program,
    json.dumps(MODULES),
    str(ROOT / "albert_config" / "vocab.txt"),
  )
  assert out and json.loads(out) == [
    [],
    {"albert.data.beam_pipeline": "apache_beam"},
    ["bank", "天"],
  ], log


def test_requirements_are_those_of_the_project():
  project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
  (required,) = re.findall(r"^dependencies = \[(.*?)^\]", project, re.M | re.S)
  (tf1,) = re.findall(r"^tf1 = \[(.*)\]", project, re.M)
  assert set(re.findall('"(.*?)"', required + tf1)) - {"numpy"} == set(
    re.findall(
      r"^[\w-]+[<=>.,\d]*", (ROOT / "requirements.txt").read_text(), re.M
    )
  )


def start(installed, folder, *command):
  """Runs Python; returns (status, stdout, last line of stderr)."""
  done = subprocess.run(
    [sys.executable, *command],
    cwd=str(folder),
    capture_output=True,
    text=True,
    stdin=subprocess.DEVNULL,
    env={"PATH": os.environ["PATH"], "PYTHONPATH": str(installed)},
  )
  return done.returncode, done.stdout, (done.stderr.splitlines() or [""])[-1]


@pytest.mark.full
@pytest.mark.platform_independent("pip")
def test_what_is_installed(tmp_path):
  source, installed, here = [
    tmp_path / name for name in ("source", "installed", "here")
  ]
  shutil.copytree(
    str(ROOT),
    str(source),
    ignore=shutil.ignore_patterns(
      ".*", "__pycache__", "output", "tests", "albert_*", "*.egg-info"
    ),
  )
  subprocess.run(
    [
      sys.executable,
      "-m",
      "pip",
      "install",
      "-qq",
      "--no-deps",
      "--target",
      str(installed),
      str(source),
    ],
    check=True,
  )
  names = {path.name for path in installed.iterdir()}
  assert {"albert", "bin"} < names
  modules = sorted(name for name in names if name.endswith(".py"))
  assert modules == [
    "lamb_optimizer.py",
    "modeling.py",
    "modeling_google.py",
    "optimization.py",
    "tokenization.py",
  ]
  assert (installed / "albert" / "serving" / "page.html").exists()
  here.mkdir()
  for name in ("albert-serve", "albert-predict"):
    program = str(installed / "bin" / name)
    status, out, log = start(installed, here, program, "--help")
    assert status == 0 and "--model_dir" in out, log
  # The bundled model is not installed.
  status, _, log = start(installed, here, program, "a")
  assert status == 1 and re.match("ERROR: .*--model_dir", log), log
  load = ["-c", "from albert.predict import load"]
  assert start(installed, here, *load)[0] == 0
  for name in modules:  # a module of the same name
    (here / name).write_text("")
    status, _, log = start(installed, here, *load)
    assert status == 1
    assert re.match(
      "ImportError: %s shadows %s: .*rename" % (here / name, installed / name),
      log,
    ), log
    (here / name).unlink()


def test_without_tensorflow():
  program = (
    "import runpy, sys; sys.modules['tensorflow'] = sys.argv.pop(0) "
    "and None; runpy.run_path(sys.argv[0], run_name='__main__')"
  )
  for command in (
    "run_ner.py --task_name=file --data_dir=a --output_dir=a",
    "create_pretraining_data.py",
    "predict.py",
    "serve.py --port=0",
    "similarity.py a b",
    "extract_features.py --input_file=README.md "
    "--init_checkpoint=albert_tiny_starter --output_file=a",
  ):
    status, _, line = start(ROOT, ROOT, "-c", program, *command.split())
    assert status == 1 and line.startswith("ERROR: TensorFlow is not installed")
