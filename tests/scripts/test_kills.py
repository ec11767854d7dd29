"""Killed at any change of its files, a command ends as an undisturbed one when
it is run again."""

import os
import random
import re
import shutil
import subprocess
import zipfile

import fork_server
import pytest
from scripting import ROOT
from small_steps import assert_equal_variables, full, write_pretraining
from trained_models import command

from albert.files import checkpoints

STEPS = (
  "--do_train --save_checkpoints_steps=3 --train_batch_size=4 "
  "--output_dir=out --num_train_steps=6"
).split()


def make_commands(folder):
  """Writes what the commands read; returns name -> command."""
  text = (ROOT / "data" / "text_heldout.txt").read_text(encoding="utf-8")
  (folder / "text.txt").write_text(text[:9000], encoding="utf-8")
  with zipfile.ZipFile(str(folder / "model.zip"), "w") as archive:
    for name in ("a.ckpt.index", "a.ckpt.data-0", "config.json", "vocab.txt"):
      archive.writestr("model/" + name, name)
  (folder / "starter").symlink_to(ROOT / "albert_tiny_starter")
  return {
    "pretraining": [
      "run_pretraining.py",
      *write_pretraining(folder, 21),
      *STEPS,
      "--eval_input_file=heldout.tfrecord",
      "--shuffle_buffer=8",
    ],
    "fine-tuning": command(
      folder, "labels", *STEPS, "--do_eval", "--do_predict"
    ),
    **{
      name: words.split()
      for name, words in {
        "records": "create_pretraining_data.py --input_file=text.txt "
        "--output_dir=out --num_output_shards=2 --max_seq_length=32 "
        "--max_predictions_per_seq=5 --dupe_factor=2 --num_workers=1 "
        "--shard_characters=2000 --vocab_file=starter/vocab.txt",
        "vocabulary": "albert/vocab/__main__.py build --input_file=text.txt "
        "--kind=sentencepiece --vocab_size=650 --output_file=out/spm.model",
        "export": "export_model.py --saved_model --output_dir=out/served "
        "--init_checkpoint=starter",
        "download": "albert/download.py --item=albert_tiny --target=out",
        "search": "similarity.py --search --corpus_file=out/text.txt 今天 "
        "--model_dir=starter",
      }.items()
    },
  }


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  """A function of (a command, at which change to kill it, 0 for never): runs it
  with the files of `out`, returns (what it said, changes of files)."""
  folder = tmp_path_factory.mktemp("kills")
  library, log = folder / "kill_at.so", folder / "changes"
  if not shutil.which("cc"):
    pytest.skip("no C compiler")
  subprocess.run(
    [
      "cc",
      "-shared",
      "-fPIC",
      "-o",
      str(library),
      str(ROOT / "tests" / "kill_at.c"),
      "-ldl",
    ],
    check=True,
  )
  with pytest.MonkeyPatch.context() as patch:
    patch.chdir(folder)
    patch.setenv("PYTHONPATH", str(ROOT))
    patch.setenv("LD_PRELOAD", str(library))
    server = fork_server.start(folder / "bin", {})
    patch.delenv("LD_PRELOAD")
    patch.setenv("KILL_IN", "out")
    patch.setenv("KILL_LOG", str(log))
    patch.setenv("ALBERT_MODEL_URL", (folder / "model.zip").as_uri())
    commands = make_commands(folder)

    def run(name, at):
      log.write_text("")
      script, *args = commands[name]
      done = subprocess.run(
        [str(folder / "bin" / "python"), str(ROOT / script), *args],
        env=dict(os.environ, KILL_AT=str(at)),
        timeout=300,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
      )
      return done, log.read_text().splitlines()

    run.out = folder / "out"
    yield run
    server.kill()


def begin(out):
  """Makes the folder anew, with the corpus of the search."""
  shutil.rmtree(str(out), ignore_errors=True)
  out.mkdir()
  shutil.copy(str(out.parent / "text.txt"), str(out))


def contents(out):
  """Returns path -> content of what a command left, without times."""
  found = {}
  for path in sorted(out.rglob("*")):
    name = str(path.relative_to(out))
    if path.is_dir() or re.search(
      r"events\.|command.txt|run\.flags|\.meta$|graph.pbtxt|\.data-\d|sha256",
      name,
    ):
      continue
    found[name] = path.read_bytes()
    if name.endswith((".npz", "checkpoint", ".pb")) or "variables" in name:
      found[name] = None  # has times or no fixed order
    elif name.endswith(".index") and "ckpt-" in name:
      found[name] = checkpoints.read_all(str(path)[: -len(".index")])
    elif re.search("result|history|report", name):
      found[name] = re.split(r"[\s=]+", found[name].decode())
  return found


def assert_same(found, wanted):
  assert set(found) == set(wanted)
  for name, value in wanted.items():
    if isinstance(value, dict):  # of the weights, no bit may differ
      assert_equal_variables(found[name], value, 0)
    elif isinstance(value, list):
      assert len(found[name]) == len(value), name
      for one, other in zip(found[name], value):
        assert one == other or float(one) == pytest.approx(
          float(other), abs=1e-3
        ), name
    else:
      assert found[name] == value, name


@pytest.mark.slow
@pytest.mark.parametrize(
  "name",
  [
    "records",
    full("fine-tuning"),
    full("pretraining"),
    full("vocabulary"),
    full("export"),
    full("download"),
    full("search"),
  ],
)
def test_a_killed_command_is_run_again(name, run, request):
  begin(run.out)
  done, changes = run(name, 0)
  assert not done.returncode, done.stdout.decode()
  assert len(changes) > 1
  wanted = contents(run.out)
  first = os.environ.get("ALBERT_TESTS_KILLS")  # all, from this one on
  points = range(int(first or 1), len(changes) + 1)
  if not first:
    count = 1 if request.config.getoption("--tier") == "default" else 2
    points = sorted(random.sample(points, min(count, len(points))))
  for at in points:
    begin(run.out)
    done, before = run(name, at)
    assert done.returncode, "not killed"
    done, _ = run(name, 0)
    what = "killed before change %d, %s: %s" % (
      at,
      changes[at - 1],
      done.stdout.decode(),
    )
    print(what)
    # What was finished when it was killed may be refused.
    assert not done.returncode or "already exists" in what, what
    assert_same(contents(run.out), wanted)
