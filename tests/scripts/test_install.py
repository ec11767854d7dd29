"""`pip install .`: what is installed, and what is in its way."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from scripting import ROOT

TOP = ["lamb_optimizer.py", "modeling.py", "modeling_google.py",
       "optimization.py", "tokenization.py"]


def test_requirements_are_those_of_the_project():
  project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
  required, = re.findall(r"^dependencies = \[(.*?)^\]", project, re.M | re.S)
  tf1, = re.findall(r"^tf1 = \[(.*)\]", project, re.M)
  assert set(re.findall('"(.*?)"', required + tf1)) - {"numpy"} == set(
      re.findall(r"^[\w-]+[<=>.,\d]*", (ROOT / "requirements.txt").read_text(),
                 re.M))


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
  """A folder that the project is installed into, by itself."""
  source = tmp_path_factory.mktemp("install") / "source"
  shutil.copytree(str(ROOT), str(source), ignore=shutil.ignore_patterns(
      ".*", "__pycache__", "output", "tests", "albert_*", "*.egg-info"))
  target = source.parent / "target"
  subprocess.run([sys.executable, "-m", "pip", "install", "-qq", "--no-deps",
                  "--target", str(target), str(source)], check=True)
  return target


def start(installed, folder, *command):
  """Returns (status, standard output, last line of standard error)."""
  done = subprocess.run(
      [sys.executable, *command], cwd=str(folder), capture_output=True,
      text=True, stdin=subprocess.DEVNULL,
      env={"PATH": os.environ["PATH"], "PYTHONPATH": str(installed)})
  return done.returncode, done.stdout, (done.stderr.splitlines() or [""])[-1]


@pytest.mark.full
@pytest.mark.platform_independent("pip")
def test_what_is_installed(installed, tmp_path):
  names = {path.name for path in installed.iterdir()}
  assert {"albert", "bin"} < names
  assert sorted(name for name in names if name.endswith(".py")) == TOP
  assert (installed / "albert" / "serving" / "page.html").exists()
  for name in ("albert-serve", "albert-predict"):
    program = str(installed / "bin" / name)
    status, out, log = start(installed, tmp_path, program, "--help")
    assert status == 0 and "--model_dir" in out, log
  # The model of the checkout is not there.
  status, _, log = start(installed, tmp_path, program, "a")
  assert status == 1 and re.match("ERROR: .*--model_dir", log), log


@pytest.mark.full
@pytest.mark.platform_independent("pip")
@pytest.mark.parametrize("name", TOP)
def test_another_module_of_that_name(name, installed, tmp_path):
  load = ["-c", "from albert.predict import load"]
  assert start(installed, tmp_path, *load)[0] == 0
  (tmp_path / name).write_text("")
  status, _, log = start(installed, tmp_path, *load)
  assert status == 1
  assert re.match("ImportError: %s is in the way of %s: .*rename" % (
      tmp_path / name, installed / name), log), log


def test_without_tensorflow(tmp_path):
  program = ("import runpy, sys; sys.modules['tensorflow'] = sys.argv.pop(0) "
             "and None; runpy.run_path(sys.argv[0], run_name='__main__')")
  for command in (
      "run_ner.py --task_name=file --data_dir=a --output_dir=a",
      "create_pretraining_data.py", "predict.py", "serve.py --port=0",
      "similarity.py a b", "extract_features.py --input_file=README.md "
      "--init_checkpoint=albert_tiny_starter --output_file=a"):
    status, _, line = start(ROOT, ROOT, "-c", program, *command.split())
    assert status == 1 and line.startswith("ERROR: TensorFlow is not installed")
