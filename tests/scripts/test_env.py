"""Shell scripts: help, errors, commands, virtual environments."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from scripting import ROOT

pytestmark = [
  pytest.mark.slow,
  pytest.mark.platform_independent("shell scripts"),
]
SCRIPTS = sorted(path.name for path in ROOT.glob("*.sh"))
# A fake Python of the version in its name, which makes venvs of itself. Its pip
# logs its arguments and runs $PIP.
PYTHON = """#!/usr/bin/env bash
version=%s
case "$*" in
  *ensurepip*) [[ $version ]] && echo "$version.1 (fake)" ;;
  "-m venv "*)
    mkdir -p "$3/bin" "$3/lib/python$version" && cp "$0" "$3/bin/python" ;;
  "-m pip "*) echo "$*" >>"$PIP_LOG"; eval "$PIP" ;;
  *) exit 1 ;;
esac
"""


class Shell:
  """A copy of the shell scripts, with only fake Pythons on the PATH."""

  def __init__(self, tmp_path):
    self.tree, self.bin = tmp_path / "tree", tmp_path / "bin"
    self.log = tmp_path / "pip.log"
    for path in ("bin", "tree/output/quickstart", "tree/.ci", "tree/albert"):
      (tmp_path / path).mkdir(parents=True)
    for name in (*SCRIPTS, ".ci/run", "albert/shell.sh", "pyproject.toml"):
      shutil.copy(str(ROOT / name), str(self.tree / name))
    self.log.write_text("")
    for version in ("", "3", "3.7", "3.9", "3.10", "3.11"):
      self.add("python" + version)
    self.add("uv")

  def add(self, name, version="", program=PYTHON):
    (self.bin / name).write_text(program.replace("%s", version))
    (self.bin / name).chmod(0o755)

  def run(self, *args, **variables):
    done = subprocess.run(
      ["bash", *args],
      cwd=str(self.tree),
      capture_output=True,
      text=True,
      timeout=60,
      env={
        "PATH": "%s:/usr/bin:/bin" % self.bin,
        "PIP": "",
        "PIP_LOG": str(self.log),
        "HOME": str(self.bin),
        **variables,
      },
    )
    return done.returncode, done.stdout, done.stderr

  def source(self, **variables):
    return self.run(
      "-c",
      "source ./env.sh && echo $ALBERT_PLATFORM $PYTHON "
      "${PATH%%:*} $PYTHONUNBUFFERED $TF_CPP_MIN_LOG_LEVEL",
      **variables,
    )

  def installed(self):
    """Returns the pip commands since the last call."""
    text = self.log.read_text()
    self.log.write_text("")
    return text.splitlines()


@pytest.fixture
def shell(tmp_path):
  return Shell(tmp_path)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_shell_script_explains_itself(shell, script):
  head = re.match(r"(?:#!.*\n)?((?:#.*\n)+)", (ROOT / script).read_text())
  head = re.sub("(?m)^# ?", "", head.group(1))
  before = sorted(shell.tree.parent.rglob("*"))
  for args in (["-h"], ["--help"], ["--quick", "--help"], ["no_such", "-h"]):
    assert shell.run(script, *args) == (0, head, "")
  status, out, log = shell.run(script, "no_such")
  assert (status, out) == (2, "")
  assert re.fullmatch("ERROR: no_such: .*bash %s --help\n" % script, log)
  assert sorted(shell.tree.parent.rglob("*")) == before


def test_words_for_shell_scripts(shell):
  for command, message in (
    ("quickstart.sh --flag", "--flag: unknown"),
    ("run_pretraining.sh --num_train_steps 5", "5: unknown"),
    ("create_pretrain_data.sh --output_dir=a", "--output_dir: .*TEXT"),
    ("run_tests.sh --platform=tf3", "--platform=tf3: .*tf2"),
    ("run_tests.sh tests/no_such.py::test", "tests/no_such.py::test: "),
    (".ci/run no_such", "no_such: unknown"),
    ("run_pretraining.sh", "PRESET=x: "),
    ("create_pretrain_data.sh", "PRESET=x: "),
    ("run_classifier_clue.sh", "SIZE=x: "),
    ("run_classifier_clue.sh tnews drcd", "drcd: "),
  ):
    status, _, log = shell.run(*command.split(), PRESET="x", SIZE="x")
    assert status == 2 and re.search("^ERROR: " + message, log, re.M), log
  assert not shell.installed()
  # Valid arguments: the search for a Python is next.
  (shell.tree / "tests").mkdir()
  for args in (["-k", "this or that"], ["--lf", "tests"], ["--quick"]):
    status, out, log = shell.run("run_tests.sh", *args)
    assert status == 1 and "NOT RUN: tf2" in out, log


def test_eight_gpus(shell):  # tests/train/test_distribution.py runs it
  (shell.tree / "env.sh").write_text("PYTHON=python\n")
  for name in ("horovodrun", "python"):
    shell.add(name, program="#!/bin/sh\necho %s $*\n" % name)
  for where, start, flags in (
    ({"GPUS": "8"}, "python", "--num_gpus=8 --train_batch_size=4096"),
    (
      {"HOSTS": "a:4,b:4"},
      "horovodrun -np 8 -H a:4,b:4 python",
      "--use_horovod --train_batch_size=512",
    ),
  ):
    _, out, _ = shell.run("run_pretraining.sh", "--last=1", **where)
    line = out.splitlines()[-1]
    assert line.startswith(start + " run_pretraining.py --do_train ")
    assert {
      *flags.split(),
      "--gradient_accumulation_steps=16",
      "--input_file=output/pretrain/train/*.tfrecord",
      "--eval_input_file=output/pretrain/heldout/*.tfrecord",
      "--learning_rate=0.00176",
    } < set(line.split(" "))
    assert line.endswith(" --last=1")


def test_ci_with_and_without_real_data(shell, tmp_path):
  (shell.tree / "run_tests.sh").write_text(
    "echo ${ALBERT_REAL_DATA-none} ${ALBERT_TESTS_STRICT-none} $*"
  )
  assert shell.run(".ci/run", "--quick")[1] == "none none --quick\n"
  (tmp_path / "shared" / "data").mkdir(parents=True)
  assert shell.run(".ci/run")[1] == "%s/shared/data 1\n" % tmp_path


def test_env_installs_once(shell):
  shell.add("python3.7", "3.7")
  venv, (status, out, log) = shell.tree / ".venv", shell.source()
  assert (status, out) == (0, "tf1 {0}/python {0} 1 3\n".format(venv / "bin"))
  assert log.startswith("Installing into %s (Python 3.7)" % venv)
  upgrade, project = shell.installed()
  assert upgrade.endswith("--upgrade pip")
  assert project.endswith(" -e %s[tf1]" % shell.tree)
  for extras, found in (
    ("plot,onnx", "plot,onnx,tf1"),
    ("serve", "serve,plot,onnx,tf1"),
  ):
    assert shell.source(ALBERT_EXTRAS=extras)[0] == 0
    assert shell.installed()[1].endswith("[%s]" % found)
    assert shell.source() == shell.source(ALBERT_EXTRAS=extras) == (0, out, "")
    assert not shell.installed()
  with open(str(shell.tree / "pyproject.toml"), "a") as writer:
    writer.write("\n")
  assert shell.source()[0] == 0
  assert shell.installed()[1].endswith("[serve,plot,onnx,tf1]")


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("end", ["exit 1", "kill -9 $$"])
def test_env_after_pip_failed(shell, before, end):
  shell.add("python3.11", "3.11")
  assert not before or shell.source()[0] == 0
  plot, there = {"ALBERT_EXTRAS": "plot"}, shell.tree / ".venv-tf2" / "there"
  status, out, log = shell.source(PIP="touch %s; %s" % (there, end), **plot)
  assert (status, out) == (1, "")
  assert re.search("ERROR: .*/.venv-tf2: cannot install plot,tf2, ", log)
  shell.installed()
  if before and end == "exit 1":  # still complete
    assert shell.source()[0] == 0 and not shell.installed()
  assert shell.source(**plot)[0] == 0 and len(shell.installed()) == 2
  # After an interrupted pip, it is recreated.
  assert there.exists() == (end == "exit 1")


def test_env_twice_at_once(shell):
  shell.add("python3.7", "3.7")
  status, _, log = shell.run(
    "-c", "source ./env.sh & (source ./env.sh) && wait $!", PIP="sleep 0.5"
  )
  assert status == 0 and len(shell.installed()) == 2
  assert sorted(re.findall("^(Installing|Waiting|ERROR)", log, re.M)) == [
    "Installing",
    "Waiting",
  ]


def test_env_chooses_a_python(shell):
  status, out, log = shell.source()
  assert (status, out) == (69, "")
  assert re.fullmatch("ERROR: no Python for tf1 or tf2; .*\nTo get .*\n", log)
  kept = shell.tree / "output" / "quickstart" / "kept"
  kept.write_text("")
  assert shell.run("quickstart.sh")[0] == 69 and kept.exists()
  shell.add("python3.12", "3.12")
  shell.add("python3.9", "3.9")
  for python in ("python3.12", "/no_such"):
    status, _, log = shell.source(ALBERT_PYTHON=python)
    assert status == 69 and "tf2: %s does not fit" % python in log
  assert shell.source(ALBERT_PLATFORM="tf1")[0] == 69
  for variable in ("ALBERT_PLATFORM", "ALBERT_EXTRAS"):
    status, _, log = shell.source(**{variable: "no_such"})
    assert status == 1
    assert re.fullmatch("ERROR: %s.*no_such.*\n" % variable, log)
  assert not shell.installed()
  assert shell.source()[1].startswith("tf2 ")
  shell.add("python3.10", "3.10")
  status, _, log = shell.source(ALBERT_PYTHON="python3.10")
  assert status == 1 and "is not of Python 3.10: remove it" in log
  pyenv = shell.bin / ".pyenv" / "versions" / "3.7.16" / "bin"
  pyenv.mkdir(parents=True)
  shell.add(str(pyenv / "python"), "3.7")
  assert shell.source()[1].startswith("tf1 ")


def test_env_on_a_gpu_host(shell):
  shell.add("python3.11", "3.11")
  for extra in ("tf2", "tf2-gpu"):
    shell.source()
    assert shell.installed()[1].endswith("[%s]" % extra)
    shell.add("nvidia-smi", program="#!/bin/sh\necho GPU 0: fast\n")
    shutil.rmtree(str(shell.tree / ".venv-tf2"))


def test_env_gets_a_python_from_uv(shell):  # a fake uv
  for version in ("3.7", "3.11"):
    shell.add("a_python" + version, version)
  shell.add(
    "uv",
    program='#!/bin/sh\n[ "$1 $2" != "python install" ] || '
    "cp %s/a_python$3 %s/python$3\n" % (shell.bin, shell.bin),
  )
  assert shell.source()[1].startswith("tf2 ")
  assert shell.source(ALBERT_PLATFORM="tf1")[1].startswith("tf1 ")


@pytest.mark.parametrize(
  "installed, platform",
  [
    ("tensorflow_gpu-1.15.0.dist-info", "tf1"),
    ("tensorflow_cpu-2.15.1.dist-info", "tf2"),
  ],
)
def test_env_takes_an_active_environment(shell, installed, platform):
  for version in ("3.7", "3.11"):
    shell.add("python" + version, version)
  (shell.bin / installed).mkdir()
  active = "%s:%s:/usr/bin:/bin" % (os.path.dirname(sys.executable), shell.bin)
  for variables in ({"PATH": active}, {"ALBERT_PYTHON": sys.executable}):
    status, out, log = shell.source(PYTHONPATH=str(shell.bin), **variables)
    assert (status, log) == (0, "")
    assert out.split()[:2] == [platform, sys.executable]
  assert not list(shell.tree.glob(".venv*/bin"))
