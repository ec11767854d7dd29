"""The LCQMC and CLUE shell scripts: commands, submissions, messages."""

import os
import shutil
import subprocess
import time
import zipfile

import pytest
from scripting import ROOT
from writing import write

pytestmark = [
  pytest.mark.slow,
  pytest.mark.platform_independent("a shell script"),
]
# A fake Python: logs each command and writes what the script would write. With
# OFFLINE, downloads of models fail.
PYTHON = """#!/usr/bin/env bash
if [[ $2 == zipfile ]]; then exec %s "$@"; fi
echo "$*" >>commands.txt
case $OFFLINE$3 in
  1--item=albert*) exit 1 ;;
  1--or_starter) echo starter ;;
  --or_starter) echo "${5#*=}" ;;
esac
for arg; do
  [[ $arg != --init_checkpoint=* ]] || model=${arg#*=}
  [[ $arg == --output_dir=* ]] || continue
  out=${arg#*=} task=${out##*/}
  mkdir -p "$out/best"
  echo "$task" >"$out/${task}_predict.json"
  printf "%%s\\n" "eval_accuracy = 0.5" "eval_f1 = 0.4" "global_step = 7" \\
    "init_checkpoint = $model" "parameters = 9" >"$out/best/eval_results.txt"
done
for task in cmnli ocnli; do
  [[ ! -e out/$task ]] || echo $task >out/$task/diagnostics_predict.json
done
"""
BOARD = [
  "afqmc",
  "tnews",
  "iflytek",
  "ocnli",
  "cmnli",
  "wsc",
  "csl",
  "cmrc2018",
  "chid",
  "c3",
]


@pytest.fixture
def clue(tmp_path):
  """Runs a shell script; returns (CompletedProcess, training commands: dicts,
  flag -> value, and "script")."""
  (tmp_path / "albert").mkdir()
  for name in (
    "run_classifier_clue.sh",
    "run_classifier_lcqmc.sh",
    "albert/shell.sh",
  ):
    shutil.copy(str(ROOT / name), str(tmp_path / name))
  (tmp_path / "env.sh").write_text("PYTHON=./python\n")
  (tmp_path / "python").write_text(PYTHON % shutil.which("python3"))
  (tmp_path / "python").chmod(0o755)

  def run(*args, script="run_classifier_clue.sh", **variables):
    written = tmp_path / "commands.txt"
    written.write_text("")
    done = subprocess.run(
      ["bash", script, *args],
      cwd=str(tmp_path),
      env=dict(os.environ, CLUE_DATA="data", **variables),
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )
    return done, [
      dict(arg.partition("=")[::2] for arg in ("script=" + line).split())
      for line in written.read_text().splitlines()
      if line.startswith("run_")
    ]

  return run


def test_the_whole_board_in_one_command(clue, tmp_path):
  for path in [
    *("data/%s/test.json" % task for task in BOARD[:-1]),
    "out/cluener/cluener_predict.json",
  ]:  # a separate leaderboard
    write(tmp_path, path)
  done, commands = clue("--save_checkpoints_steps=7", OUTPUT="out", TEAM="us")
  assert not done.returncode, done.stdout
  assert [command["--task_name"] for command in commands] == BOARD
  for task, command in zip(BOARD, commands):
    assert command["script"] == {
      "cmrc2018": "run_squad.py",
      "chid": "run_race.py",
      "c3": "run_race.py",
    }.get(task, "run_classifier.py")
    assert command["--output_dir"] == "out/" + task
    # Last, so that it overrides.
    assert list(command)[-1] == "--save_checkpoints_steps"
    # C3 has no file to predict.
    assert ("--do_predict" in command) == (task != "c3")
    assert command.get("--test_file") == {
      "cmrc2018": "data/cmrc2018/test.json"
    }.get(task)
  assert [line.split()[0] for line in done.stdout.splitlines()[-10:]] == BOARD
  with zipfile.ZipFile(
    time.strftime("%s/out/submit_us_%%Y-%%m-%%d.zip" % tmp_path)
  ) as reader:
    assert set(reader.namelist()) == {
      task + "_predict.json" for task in BOARD + ["diagnostics"]
    }
    assert reader.read("diagnostics_predict.json") == b"ocnli\n"
    assert reader.read("tnews_predict.json") == b"tnews\n"


@pytest.mark.parametrize(
  "args, size, settings",
  [
    (["tnews"], "tiny", "tnews albert_tiny 128 16 2e-5 3"),  # as CLUE's
    (["cmnli"], "tiny", "cmnli albert_tiny 128 64 3e-5 2"),
    (["cmrc2018"], "tiny", "cmrc2018 albert_tiny 512 32 3e-5 2"),
    (["cluener"], "tiny", "cluener albert_tiny 64 32 1e-4 10"),
    (["cluener"], "small", "cluener albert_small_zh_google 64 32 1e-4 10"),
    (["cluener"], "xlarge", "cluener albert_xlarge_zh_183k 64 24 2e-5 4"),
    (["c3"], "xxlarge", "c3 albert_xxlarge_zh_google 512 16 1e-5 8"),
    (["cluewsc2020"], "base", "wsc albert_base_zh 128 16 3e-5 10"),
    (
      ["csl", "--num_train_epochs=9"],
      "large",
      "csl albert_large_zh 128 16 2e-5 9",
    ),
  ],
)
def test_settings(clue, args, size, settings):
  _, (command,) = clue(*args, SIZE=size)
  assert (
    " ".join(
      command["--" + name]
      for name in (
        "task_name",
        "init_checkpoint",
        "max_seq_length",
        "train_batch_size",
        "learning_rate",
        "num_train_epochs",
      )
    )
    == settings
  )


def test_several_tasks(clue):
  done, (ocnli, cluener) = clue(
    "ocnli", "--crf", "cluener", SIZE="base", MODEL="mine"
  )
  assert cluener["script"] == "run_ner.py" and "--skip_bad_rows" in cluener
  for command in (ocnli, cluener):
    assert "--crf" in command and command["--init_checkpoint"] == "mine"
  assert cluener["--output_dir"] == "output/clue_base/cluener"
  assert done.stdout.splitlines()[-1].split() == [
    "cluener",
    "eval_f1",
    "=",
    "0.4",
    "mine,",
    "9",
    "parameters,",
    "7",
    "steps",
    "output/clue_base/cluener/cluener_predict.json",
  ]


@pytest.mark.parametrize(
  "script, args",
  [("run_classifier_clue.sh", ["tnews"]), ("run_classifier_lcqmc.sh", [])],
)
def test_results_are_never_of_another_model_unsaid(clue, script, args):
  """Only the default model falls back to the starter, announced twice."""
  for variables, model in (
    ({"SIZE": "tiny"}, None),
    ({"MODEL": "albert_tiny"}, None),
    ({"MODEL": "albert"}, "albert"),
    ({}, "starter"),
  ):
    done, commands = clue(*args, script=script, OFFLINE="1", **variables)
    assert bool(done.returncode) == (not model)
    assert [command["--init_checkpoint"] for command in commands] == (
      [model] if model else []
    )
  said = "albert_tiny cannot be downloaded. These are the results of starter"
  assert done.stdout.count(said) == 2
  assert done.stdout.index("eval_accuracy") > done.stdout.rindex(said)
