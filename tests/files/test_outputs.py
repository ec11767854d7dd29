"""What an output folder has: descriptions, evaluations, the best checkpoint."""

import json
import os
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from test_checkpoints import make_checkpoint

from albert import errors
from albert.files import checkpoints, outputs


@pytest.mark.parametrize("higher, best", [(True, 30), (False, 20)])
@pytest.mark.parametrize("relative", [True, False])
def test_the_best_checkpoint_is_kept(
    tmp_path, higher, best, relative, monkeypatch):
  monkeypatch.chdir(tmp_path.parent)
  output_dir = tmp_path.name if relative else str(tmp_path)
  outputs.prepare_output_dir(output_dir, {"config.json": b"{}"})
  scores = {10: 0.5, 20: 0.4, 30: 0.7, 40: 0.6, 50: 0.6}
  evaluated = []

  def evaluate(checkpoint):
    step = int(checkpoint.rsplit("-", 1)[1])
    evaluated.append(step)
    return {"score": scores[step], "global_step": step}

  for step in sorted(scores):
    make_checkpoint(tmp_path, step)
    # A new one each time, as after a restart: the history is on disk.
    evaluator = outputs.Evaluator(
        output_dir, evaluate, outputs.BestRule("score", higher),
        ["config.json"])
    evaluator.evaluate(step)
    evaluator.evaluate(step)
  assert evaluated == sorted(scores)
  name = "model.ckpt-%d" % best
  assert sorted(os.listdir(str(tmp_path / "best"))) == [
      "checkpoint", "config.json", "eval_results.txt",
      name + ".data-00000-of-00001", name + ".index"]
  found = checkpoints.latest_checkpoint(os.path.join(output_dir, "best"))
  assert found == os.path.join(output_dir, "best", name)
  assert tf.train.load_variable(found, "x") == best
  assert (tmp_path / "best" / "eval_results.txt").read_text() == (
      "global_step = %d\nscore = %s\n" % (best, scores[best]))
  history = (tmp_path / "eval_history.tsv").read_text().splitlines()
  assert history[0] == "global_step\tscore" and len(history) == 6


def make_evaluator(tmp_path, scores, first_step=0, **kwargs):
  """Returns an Evaluator, and evaluates checkpoints: step -> results."""
  def evaluate(checkpoint):
    step = checkpoints.step_of(checkpoint)
    return dict(scores[step], global_step=step)

  evaluator = outputs.Evaluator(
      str(tmp_path), evaluate, outputs.BestRule("score", True, first_step),
      **kwargs)
  for step in sorted(scores):
    make_checkpoint(tmp_path, step)
    evaluator.evaluate(step)
  return evaluator


def remove_checkpoint(tmp_path, step):
  for path in tmp_path.glob("model.ckpt-%d.*" % step):
    path.unlink()


def steps_of_history(tmp_path):
  rows = (tmp_path / "eval_history.tsv").read_text().splitlines()[1:]
  return [int(row.split("\t")[0]) for row in rows]


def best_step(tmp_path):
  return checkpoints.step_of(
      checkpoints.latest_checkpoint(str(tmp_path / "best")))


def test_after_a_step_back_later_evaluations_do_not_count(tmp_path):
  scores = {step: {"score": score} for step, score in (
      (10, 0.9), (20, 0.6), (30, 0.5), (40, 1.0), (50, 0.8))}
  evaluator = make_evaluator(tmp_path, scores, early_stop_evals=1)
  assert evaluator.should_stop() and best_step(tmp_path) == 40
  # As `keep_checkpoint_max` and a user who steps back remove them.
  for step in (10, 40, 50):
    remove_checkpoint(tmp_path, step)
  evaluator.go_on_from(30)
  assert steps_of_history(tmp_path) == [10, 20, 30]
  assert best_step(tmp_path) == 20  # that of step 10 is gone
  assert evaluator.should_stop()  # step 10 was better all the same
  scores[40]["score"] = 0.7
  make_checkpoint(tmp_path, 40)
  evaluator.evaluate(40)
  assert steps_of_history(tmp_path) == [10, 20, 30, 40]
  assert best_step(tmp_path) == 40
  evaluator.go_on_from(40)
  assert best_step(tmp_path) == 40
  for step in (20, 30, 40):
    remove_checkpoint(tmp_path, step)
  evaluator.go_on_from(0)
  assert steps_of_history(tmp_path) == []
  assert not (tmp_path / "best").exists() and not evaluator.should_stop()


def test_an_evaluation_with_other_metrics(tmp_path):
  make_evaluator(tmp_path, {10: {"f1": 0.5}, 20: {"f1": 0.0}})
  evaluator = make_evaluator(tmp_path, {
      30: {"score": -0.5}, 40: {"score": -0.25}, 50: {"f1": 0.75}},
                             early_stop_evals=1)
  assert (tmp_path / "eval_history.tsv").read_text() == (
      "global_step\tf1\tscore\n10\t0.5\t\n20\t0.0\t\n30\t\t-0.5\n"
      "40\t\t-0.25\n50\t0.75\t\n")
  assert best_step(tmp_path) == 40
  assert evaluator.should_stop()


def test_checkpoints_before_the_first_step_do_not_count(tmp_path):
  scores = {10: {"score": 0.9}, 20: {"score": 0.8}}
  evaluator = make_evaluator(tmp_path, scores, 30, early_stop_evals=1)
  assert steps_of_history(tmp_path) == [10, 20]
  assert not (tmp_path / "best").exists() and not evaluator.should_stop()
  scores[30] = {"score": 0.5}
  evaluator = make_evaluator(tmp_path, scores, 30, early_stop_evals=1)
  assert best_step(tmp_path) == 30 and not evaluator.should_stop()
  scores[40] = {"score": 0.4}
  evaluator = make_evaluator(tmp_path, scores, 30, early_stop_evals=1)
  assert best_step(tmp_path) == 30 and evaluator.should_stop()


def test_an_equal_score_is_no_better_one(tmp_path):
  """Single precision, of which the files have fewer digits."""
  make_evaluator(tmp_path, {
      step: {"score": np.float32(0.1)} for step in (1, 2)})
  assert best_step(tmp_path) == 1


@pytest.mark.parametrize("scores, patience, stops", [
    ([0.5, 0.4, 0.3], None, [False, False, False]),
    ([0.5, 0.4, 0.6, 0.5, 0.6, 0.7], 2,
     [False, False, False, False, True, False]),
    ([0.5, 0.4], 1, [False, True]),
])
def test_early_stop_counts_evaluations_since_the_best(
    tmp_path, scores, patience, stops):
  for step, (score, stop) in enumerate(zip(scores, stops), 1):
    make_checkpoint(tmp_path, step)
    results = {"score": score, "global_step": step}
    evaluator = outputs.Evaluator(
        str(tmp_path), lambda _, results=results: results,
        outputs.BestRule("score", True), early_stop_evals=patience)
    evaluator.evaluate(step)
    assert evaluator.should_stop() == stop


def test_a_folder_that_tensorflow_takes_for_a_pattern(tmp_path):
  with pytest.raises(errors.InputError, match="no checkpoint in a folder with"):
    outputs.prepare_output_dir(str(tmp_path / "[1]"), {})
  assert not list(tmp_path.iterdir())


def test_what_describes_a_model_may_be_in_the_output_folder_already(tmp_path):
  (tmp_path / "vocab.txt").write_text("[CLS]\n")
  outputs.prepare_output_dir("file://%s" % tmp_path, {"vocab.txt": b"[CLS]\n"})
  assert (tmp_path / "vocab.txt").read_text() == "[CLS]\n"


def test_the_vocabulary_of_a_model_stays(tmp_path):
  folder = str(tmp_path / "out")
  outputs.prepare_output_dir(folder, {"vocab.txt": b"one"})
  (tmp_path / "out" / "best").mkdir()
  make_checkpoint(tmp_path / "out" / "best", 1)  # as after several runs
  outputs.prepare_output_dir(folder, {"vocab.txt": b"one"})
  with pytest.raises(errors.InputError, match="vocab.txt says"):
    outputs.prepare_output_dir(folder, {"vocab.txt": b"other"})
  assert (tmp_path / "out" / "vocab.txt").read_text() == "one"


def test_what_an_earlier_version_says_less_is_no_contradiction(tmp_path):
  make_checkpoint(tmp_path, 1)
  task = tmp_path / "task.json"
  before = {"labels": ["a", "b"], "label_tokens": True}
  now = {"labels": ["a", "b"], "head": "token_labels"}
  task.write_text(json.dumps(before))
  outputs.prepare_output_dir(
      str(tmp_path), {"task.json": json.dumps(now).encode()})
  assert json.loads(task.read_text()) == now
  for changed in ({"labels": ["a", "c"]}, {"labels": ["a", "b"]}):
    with pytest.raises(errors.InputError, match="task.json says"):
      outputs.prepare_output_dir(
          str(tmp_path), {"task.json": json.dumps(changed).encode()})


def test_results_of_an_earlier_test_file_go(tmp_path):
  folder = str(tmp_path)
  outputs.write_test_scores(folder, "test", [1, None],
                            lambda rows: ({"rows": len(rows)}, "report"))
  assert (tmp_path / "test_results.txt").read_text() == "rows = 1\n"
  outputs.write_test_scores(folder, "test", [None], None)
  assert not list(tmp_path.iterdir())


def test_a_step_back_that_is_interrupted_is_done_again(tmp_path):
  scores = {step: {"score": score} for step, score in (
      (10, 0.9), (20, 0.6), (30, 1.0))}
  evaluator = make_evaluator(tmp_path, scores)
  remove_checkpoint(tmp_path, 30)
  del scores[10]
  with pytest.raises(KeyError):
    evaluator.go_on_from(20)
  scores[10] = {"score": 0.9}
  evaluator.go_on_from(20)
  assert best_step(tmp_path) == 10


def test_another_description_needs_another_folder(tmp_path):
  folder = str(tmp_path)
  outputs.prepare_output_dir(folder, {"config.json": b'{"a": 1}'})
  outputs.prepare_output_dir(folder, {"config.json": b'{"a": 2}'})
  make_checkpoint(tmp_path, 1)
  outputs.prepare_output_dir(folder, {"config.json": b'{"a": 2}'})
  with pytest.raises(errors.InputError, match="config.json says"):
    outputs.prepare_output_dir(folder, {"config.json": b'{"a": 3}'})
  # Each of the three commands, with its time.
  commands = (tmp_path / "command.txt").read_text().splitlines()
  assert len(commands) == 3
  assert all(line.split(" ", 3)[2] == sys.executable for line in commands)


def test_a_loss_is_shown_once():
  shown = outputs._shown
  assert shown({"eval_loss": 0.5, "loss": 0.5, "global_step": 7}) == (
      "eval_loss 0.5000")
  assert shown({"eval_loss": 0.5, "loss": 0.25}) == (
      "eval_loss 0.5000 | loss 0.2500")
  assert shown({"loss": 0.25}) == "loss 0.2500"
