"""run.flags: settings of a run, and what may change when it resumes."""

import json
import types

import pytest
import tensorflow.compat.v1 as tf
from given_settings import make_settings
from refusals import refused
from scripting import fail
from trained_models import KINDS, command

from albert.train import run_file
from albert.train.settings import Schedule


@pytest.fixture
def begin(tmp_path):
  """Returns a function that begins or resumes a run."""
  (tmp_path / "train.tsv").write_text("1\ta\n0\tb\n")

  def begin(step=None, num_train_steps=100, several=False, **changes):
    settings = make_settings(
      **dict(
        dict(
          do_train=True,
          learning_rate=1e-3,
          num_train_epochs=2.0,
          output_dir=str(tmp_path),
        ),
        **changes,
      )
    )
    data = run_file.describe_files([str(tmp_path / "train.tsv")])
    run_file.begin(
      settings,
      step and "model.ckpt-%d" % step,
      {"train": data},
      Schedule(num_train_steps, 10),
      several,
    )
    return (tmp_path / "run.flags").read_text().splitlines()

  return begin


def test_what_is_kept(begin, tmp_path):
  note, kept, *given = begin(optimizer="lamb")
  assert note.startswith("# 20")
  assert given == [
    "--output_dir=%s" % tmp_path,
    "--do_train",
    "--optimizer=lamb",
    "--learning_rate=0.001",
    "--num_train_epochs=2.0",
  ]
  kept = json.loads(kept[2:])
  assert kept["data"] == {
    "train": {
      "files": 1,
      "first": "train.tsv",
      "bytes": 8,
      "sha256": "ff5c563e980fc35d538fc445d975d85c"
      "0ddda82ff3402e3b54fc794bfbf8e7d8",
    }
  }
  assert kept["flags"]["weight_decay_rate"] == 0.01
  assert kept["packages"]["tensorflow"] == tf.__version__


def test_what_may_differ(begin, caplog):
  first = begin(20)  # earlier versions wrote no run.flags
  assert begin(30, eval_batch_size=7, do_eval=True)[0] == first[0]
  assert not caplog.messages
  begin()  # a new run, in a folder without a checkpoint
  # More steps: logged, with the change of the rate.
  lines = begin(50, num_train_epochs=4.0, num_train_steps=200)
  assert "rate of step 50 was 0.0005 and becomes 0.00075" in caplog.messages[0]
  assert lines[1].startswith("# from step 50 on: the learning rate")
  assert begin(60, num_train_epochs=4.0, num_train_steps=200)[:2] == lines[:2]


@pytest.mark.parametrize(
  "changes, what",
  [
    (
      dict(learning_rate=0.9),
      "--learning_rate=0.001, not 0.9; the learning "
      "rate of step 50 was 0.0005 and becomes 0.45",
    ),
    (dict(train_batch_size=8), "--train_batch_size=32, not 8"),
    (dict(random_seed=1), "--random_seed=12345, not 1"),
  ],
)
def test_other_settings(begin, changes, what, caplog):
  begin()
  refused(what + ".*or --resume_anyway", begin, 50, **changes)
  assert "--learning_rate=0.001" in begin(50)  # nothing was written
  lines = begin(50, resume_anyway=True, **changes)
  assert what in caplog.text and what in lines[1]
  begin(60, **changes)


def test_another_optimizer(begin):
  begin()
  refused(
    "--optimizer=adamw, not lamb.*moments",
    begin,
    50,
    optimizer="lamb",
    resume_anyway=True,
  )


def test_seeds_and_rates_of_several_runs_are_free(begin):
  begin(several=True, do_eval=True, num_seeds=2)
  begin(several=True, random_seed=3, learning_rate=0.1)
  begin(several=True, do_eval=True, num_seeds=3, log_steps=1)
  refused(
    "--num_train_epochs=2.0, not 3.0", begin, several=True, num_train_epochs=3.0
  )


def test_records_are_told_apart_by_name_and_size():
  one, same, other = [
    run_file.describe_records(
      [
        types.SimpleNamespace(path="/x/a", size=a),
        types.SimpleNamespace(path=path, size=b),
      ]
    )
    for a, path, b in ((5, "/x/b", 7), (5, "/y/b", 7), (7, "/x/b", 5))
  ]
  assert one == same
  assert (one["files"], one["first"], one["bytes"]) == (2, "a", 12)
  assert one["sha256"] != other["sha256"]


@pytest.mark.slow
@pytest.mark.parametrize(
  "name",
  [
    "labels",
    "entities",
    "spans",
    "choices",
    "cosines",
    pytest.param("idioms", marks=pytest.mark.full),
  ],
)
def test_other_data_for_the_same_folder(name, trained, tmp_path):
  model, train = trained(name), KINDS[name].file.format("train")
  args = command(
    tmp_path,
    name,
    "--do_train",
    "--do_eval",
    "--bert_config_file=%s" % (model.folder / "small.json"),
    "--output_dir=%s" % model.out,
  )
  fail("started with [^;]*, not ", *args)
  if name == "labels":  # a script-specific flag
    fail(
      "started with .*--class_weights=None, not balanced",
      *args,
      "--class_weights=balanced",
    )
  path = tmp_path / {"idioms": "train_answer.json"}.get(name, train)
  path.write_text(path.read_text() + "\n")
  fail(r"train data of %s \(\d+ bytes\).*;.* --resume_anyway" % train, *args)
