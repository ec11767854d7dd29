"""Output folders: descriptions, evaluations, the best checkpoint."""

import json
import os
import pathlib
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from reading import read_json, table
from refusals import refused
from writing import write_checkpoint

from albert.files import checkpoints, outputs
from albert.train import evaluation


def evaluate(folder, scores, first_step=0, higher=True, **kwargs):
  """Writes and evaluates checkpoints; returns the last Evaluator.

  `scores`: dict, step -> score or dict of results.
  """

  def results(checkpoint):
    step = checkpoints.step_of(checkpoint)
    found = scores[step]
    return dict(
      found if isinstance(found, dict) else {"score": found}, global_step=step
    )

  for step in sorted(scores):
    write_checkpoint(folder, step, step)
    # A new Evaluator each time, as after a restart: the history is on disk.
    evaluator = evaluation.Evaluator(
      str(folder),
      results,
      evaluation.BestRule("score", higher, first_step),
      **kwargs,
    )
    evaluator.evaluate(step)
  return evaluator


def best_step(folder):
  return checkpoints.step_of(
    checkpoints.latest_checkpoint(str(folder / "best"))
  )


@pytest.mark.parametrize("higher, best", [(True, 30), (False, 20)])
def test_the_best_checkpoint_is_kept(tmp_path, higher, best, monkeypatch):
  """In a relative folder, too."""
  monkeypatch.chdir(tmp_path.parent)
  folder = pathlib.Path(tmp_path.name) if higher else tmp_path
  outputs.prepare_output_dir(str(folder), {"config.json": b"{}"})
  scores = {10: 0.5, 20: 0.4, 30: 0.7, 40: 0.6, 50: 0.6}
  evaluate(folder, scores, higher=higher, files=["config.json"]).evaluate(50)
  name = "model.ckpt-%d" % best
  assert sorted(os.listdir(str(tmp_path / "best"))) == [
    "checkpoint",
    "config.json",
    "eval_results.txt",
    name + ".data-00000-of-00001",
    name + ".index",
  ]
  found = checkpoints.latest_checkpoint(str(folder / "best"))
  assert found == str(folder / "best" / name)
  assert tf.train.load_variable(found, "x") == best
  assert (tmp_path / "best" / "eval_results.txt").read_text() == (
    "global_step = %d\nparameters = 1\nscore = %s\n" % (best, scores[best])
  )
  history = table(tmp_path / "eval_history.tsv")
  assert history[0] == ["global_step", "score"] and len(history) == 6


def test_after_a_step_back_later_evaluations_do_not_count(tmp_path):
  scores = {10: 0.9, 20: 0.6, 30: 0.5, 40: 1.0, 50: 0.8}
  evaluator = evaluate(tmp_path, scores, early_stop_evals=1)
  assert evaluator.should_stop() and best_step(tmp_path) == 40

  def go_on_without(*steps, step):
    """Deletes checkpoints as `keep_checkpoint_max` or a user would."""
    for number in steps:
      for path in tmp_path.glob("model.ckpt-%d.*" % number):
        path.unlink()
    evaluator.go_on_from(step)

  def history():
    return [int(row[0]) for row in table(tmp_path / "eval_history.tsv")[1:]]

  del scores[20]
  with pytest.raises(KeyError):  # interrupted, then repeated
    go_on_without(10, 40, 50, step=30)
  scores[20] = 0.6
  go_on_without(step=30)
  assert history() == [10, 20, 30]
  assert best_step(tmp_path) == 20  # the checkpoint of step 10 is gone
  assert evaluator.should_stop()  # the score of step 10 still counts
  scores[40] = 0.7
  write_checkpoint(tmp_path, 40)
  evaluator.evaluate(40)
  assert history() == [10, 20, 30, 40]
  for _ in range(2):
    assert best_step(tmp_path) == 40
    evaluator.go_on_from(40)
  go_on_without(20, 30, 40, step=0)
  assert history() == []
  assert not (tmp_path / "best").exists() and not evaluator.should_stop()


def test_an_evaluation_with_other_metrics(tmp_path):
  evaluate(tmp_path, {10: {"f1": 0.5}, 20: {"f1": 0.0}})
  evaluator = evaluate(
    tmp_path, {30: -0.5, 40: -0.25, 50: {"f1": 0.75}}, early_stop_evals=1
  )
  assert (tmp_path / "eval_history.tsv").read_text() == (
    "global_step\tf1\tscore\n10\t0.5\t\n20\t0.0\t\n30\t\t-0.5\n"
    "40\t\t-0.25\n50\t0.75\t\n"
  )
  assert best_step(tmp_path) == 40
  assert evaluator.should_stop()


@pytest.mark.parametrize(
  "scores, patience, first_step, stops, best",
  [
    ([0.5, 0.4, 0.3], None, 0, "---", 1),
    ([0.5, 0.4, 0.6, 0.5, 0.6, 0.7], 2, 0, "----x-", 6),
    ([0.5, 0.4], 1, 0, "-x", 1),
    # Checkpoints before first_step do not count.
    ([0.9, 0.8], 1, 3, "--", 0),
    ([0.9, 0.8, 0.5, 0.4], 1, 3, "---x", 3),
    # float32 scores have fewer digits in the files.
    ([np.float32(0.1)] * 2, 1, 0, "-x", 1),
  ],
)
def test_when_to_stop(tmp_path, scores, patience, first_step, stops, best):
  found = [
    evaluate(
      tmp_path, {step: score}, first_step, early_stop_evals=patience
    ).should_stop()
    for step, score in enumerate(scores, 1)
  ]
  assert found == [stop == "x" for stop in stops]
  assert best_step(tmp_path) == best


def test_what_is_evaluated(tmp_path):
  """The requested checkpoint, else the newest, the best or none."""

  def evaluated(**kwargs):
    paths = []
    evaluation.evaluate_and_write(
      str(tmp_path),
      lambda path: paths.append(path) or {"global_step": 1},
      **kwargs,
    )
    return paths[0] and pathlib.Path(paths[0]).relative_to(tmp_path).as_posix()

  assert evaluated() is None
  (tmp_path / "best").mkdir()
  write_checkpoint(tmp_path / "best", 4)
  assert evaluated() == "best/model.ckpt-4"
  write_checkpoint(tmp_path, 8)
  assert evaluated() == "model.ckpt-8"
  best = str(tmp_path / "best" / "model.ckpt-4")
  assert evaluated(checkpoint=best) == "best/model.ckpt-4"


def prepare(folder, **contents):
  outputs.prepare_output_dir(
    str(folder),
    {name + ".json": json.dumps(x).encode() for name, x in contents.items()},
  )


def test_another_description_needs_another_folder(tmp_path):
  prepare(tmp_path, config={"a": 1})
  prepare(tmp_path, config={"a": 2})
  assert read_json(tmp_path / "config.json") == {"a": 2}
  (tmp_path / "best").mkdir()
  write_checkpoint(tmp_path / "best", 1)  # as after several runs
  prepare("file://%s" % tmp_path, config={"a": 2})
  refused("config.json: .*with different", prepare, tmp_path, config={"a": 3})
  assert read_json(tmp_path / "config.json") == {"a": 2}
  # All three commands, with timestamps.
  commands = (tmp_path / "command.txt").read_text().splitlines()
  assert len(commands) == 3
  assert all(line.split(" ", 3)[2] == sys.executable for line in commands)
  refused("--output_dir", prepare, tmp_path / "[1]")  # a glob pattern
  assert not (tmp_path / "[1]").exists()


def test_what_an_earlier_version_says_less_is_no_contradiction(tmp_path):
  write_checkpoint(tmp_path, 1)
  prepare(tmp_path, task={"labels": ["a", "b"], "label_tokens": True})
  now = {"labels": ["a", "b"], "head": "token_labels"}
  prepare(tmp_path, task=now)
  assert read_json(tmp_path / "task.json") == now
  for changed in (dict(now, labels=["a", "c"]), {"labels": ["a", "b"]}):
    refused("task.json: .*made with different", prepare, tmp_path, task=changed)


def test_results_of_an_earlier_test_file_go(tmp_path):
  folder = str(tmp_path)
  outputs.write_test_scores(
    folder, "test", [1, None], lambda rows: ({"rows": len(rows)}, "report")
  )
  assert (tmp_path / "test_results.txt").read_text() == "rows = 1\n"
  assert (tmp_path / "test_report.txt").read_text() == "report"
  outputs.write_test_scores(folder, "test", [None], None)
  assert not list(tmp_path.iterdir())
