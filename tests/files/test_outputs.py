"""Starting from checkpoints, and keeping the best one."""

import collections
import logging
import os
import sys
import types

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import modeling
from albert import errors
from albert.files import checkpoints, outputs
from albert.heads import heads
from albert.train import training

SIZES = {"vocab_size": 30, "hidden_size": 8, "embedding_size": 4,
         "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 16, "hidden_act": "gelu",
         "max_position_embeddings": 16}


def build(**changes):
  tf.reset_default_graph()
  config = modeling.AlbertConfig.from_dict(dict(SIZES, **changes))
  model = heads.create_model(config, False, tf.zeros([2, 5], tf.int32))
  return config, model


def save(path, drop=(), add=(), **changes):
  """Saves a model's variables with fixed random values; returns them."""
  build(**changes)
  rng = np.random.RandomState(0)
  values = {v.op.name: rng.randn(*v.shape.as_list()).astype(np.float32)
            for v in tf.trainable_variables() if v.op.name not in drop}
  values.update(add)
  tf.reset_default_graph()
  variables = [tf.get_variable(name, initializer=value)
               for name, value in values.items()]
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    tf.train.Saver(variables).save(session, path)
  return values


@pytest.mark.parametrize("changes", [{}, {"num_hidden_groups": 1}])
def test_a_checkpoint_loads_by_equal_names(tmp_path, changes, caplog):
  path = str(tmp_path / "model.ckpt")
  values = save(path, add={"unrelated": np.zeros(3, np.float32)}, **changes)
  config, model = build(**changes)
  heads.classifier_logits(model, 2)
  with caplog.at_level(logging.INFO, "absl"):
    checkpoints.init_from_checkpoint(path, is_training=True)
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for variable in tf.trainable_variables():
      if variable.op.name in values:
        np.testing.assert_array_equal(
            session.run(variable), values[variable.op.name])
  text = caplog.text
  assert "%d variables loaded" % (len(values) - 1) in text
  assert "newly initialised: output_weights, output_bias" in text
  assert "unused: unrelated" in text
  assert "of a different shape, newly initialised: none" in text


def test_a_head_of_another_shape_starts_anew(tmp_path, caplog):
  path = str(tmp_path / "model.ckpt")
  save(path, add={"output_weights": np.ones([3, 8], np.float32),
                  "output_bias": np.ones([2], np.float32)})
  config, model = build()
  heads.classifier_logits(model, 2)
  with caplog.at_level(logging.INFO, "absl"):
    checkpoints.init_from_checkpoint(path, is_training=True)
  assert ("of a different shape, newly initialised: output_weights "
          "(checkpoint [3, 8], model [2, 8])") in caplog.text
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    values = {v.op.name: session.run(v) for v in tf.trainable_variables()}
  assert values["output_weights"].shape == (2, 8)
  assert (values["output_bias"] == 1).all()


@pytest.mark.parametrize("saved, wanted, message", [
    ({}, {"num_hidden_groups": 1}, "albert_zh's variable layout"),
    ({"num_hidden_groups": 1}, {}, "Google's variable layout"),
    ({"hidden_size": 4}, {}, "does not fit the configuration"),
    ({"vocab_size": 31}, {}, "word_embeddings .checkpoint .31, 4., model .30"),
    ({"drop": ["bert/encoder/layer_shared/output/dense/bias"]}, {},
     "lacks a variable of the model: bert/encoder/layer_shared/output/dense"),
    ({"drop": ["bert/embeddings/word_embeddings_2"]}, {},
     "lacks a variable of the model: bert/embeddings/word_embeddings_2"),
    ({"parameter_sharing": "none"}, {}, "lacks a variable"),
])
def test_a_checkpoint_that_does_not_fit_is_an_error(
    tmp_path, saved, wanted, message):
  path = str(tmp_path / "model.ckpt")
  save(path, **saved)
  build(**wanted)
  with pytest.raises(errors.InputError, match=message):
    checkpoints.init_from_checkpoint(path, is_training=True)


def test_evaluating_needs_every_variable(tmp_path):
  path = str(tmp_path / "model.ckpt")
  save(path)
  config, model = build()
  heads.classifier_logits(model, 2)
  checkpoints.init_from_checkpoint(path, is_training=True)
  with pytest.raises(errors.InputError, match="lacks .* output_weights"):
    checkpoints.init_from_checkpoint(path, is_training=False)


def test_no_checkpoint(tmp_path):
  build()
  with pytest.raises(errors.InputError, match="no checkpoint at"):
    checkpoints.init_from_checkpoint(str(tmp_path / "none"), is_training=True)


Options = collections.namedtuple("Options", ["output_dir"])


def make_checkpoint(folder, step):
  path = str(folder / ("model.ckpt-%d" % step))
  tf.reset_default_graph()
  tf.get_variable("x", initializer=float(step))
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    tf.train.Saver().save(session, path)
  tf.train.update_checkpoint_state(str(folder), path)


@pytest.mark.parametrize("higher, best", [(True, 30), (False, 20)])
@pytest.mark.parametrize("relative", [True, False])
def test_the_best_checkpoint_is_kept(
    tmp_path, higher, best, relative, monkeypatch):
  monkeypatch.chdir(tmp_path.parent)
  output_dir = tmp_path.name if relative else str(tmp_path)
  outputs.prepare_output_dir(
      Options(output_dir), {"config.json": {"a": 1}})
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


def test_without_its_newest_checkpoint_a_folder_stands_for_the_one_before(
    tmp_path):
  """What is not whole does not count either."""
  folders = str(tmp_path), "file://%s" % tmp_path
  for step in (9, 10, 20, 30):
    make_checkpoint(tmp_path, step)

  def expect(step):
    for folder in folders:
      path = "%s/model.ckpt-%d" % (folder, step)
      assert checkpoints.latest_checkpoint(folder) == path
      assert checkpoints.find_checkpoint(folder) == path
      checkpoints.name_whole_checkpoints(folder)
      assert tf.train.latest_checkpoint(folder) == path
    return [os.path.basename(path) for path in tf.train.get_checkpoint_state(
        folder).all_model_checkpoint_paths]

  expect(30)
  (tmp_path / "model.ckpt-30.index").unlink()
  expect(20)
  data = tmp_path / "model.ckpt-20.data-00000-of-00001"
  data.rename(tmp_path / "model.ckpt-20.data-00001-of-00002")
  assert expect(10) == ["model.ckpt-9", "model.ckpt-10"]
  # A user may name an older one.
  checkpoints.name_newest(str(tmp_path), "model.ckpt-9")
  assert expect(9) == ["model.ckpt-9"]
  (tmp_path / "checkpoint").write_bytes(b"")
  expect(10)
  for path in tmp_path.glob("*.index"):
    path.unlink()
  for folder in folders:
    assert checkpoints.latest_checkpoint(folder) is None
    checkpoints.name_whole_checkpoints(folder)
    with pytest.raises(errors.InputError, match="no checkpoint at"):
      checkpoints.find_checkpoint(folder)
  assert not (tmp_path / "checkpoint").exists()


def test_a_released_checkpoint_is_not_one_to_go_on_from(tmp_path):
  checkpoints.write_checkpoint(str(tmp_path), "albert_model.ckpt",
                               {"x": np.zeros([])})
  assert checkpoints.latest_checkpoint(str(tmp_path)) is None
  assert checkpoints.find_checkpoint(str(tmp_path)) == str(
      tmp_path / "albert_model.ckpt")


def make_evaluator(tmp_path, scores, **kwargs):
  """Returns an Evaluator, and evaluates checkpoints: step -> results."""
  def evaluate(checkpoint):
    step = checkpoints.step_of(checkpoint)
    return dict(scores[step], global_step=step)

  evaluator = outputs.Evaluator(
      str(tmp_path), evaluate, outputs.BestRule("score", True), **kwargs)
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


def test_the_newest_checkpoint_with_finite_weights_is_found(tmp_path):
  assert checkpoints.newest_finite_checkpoint(str(tmp_path)) == "none"
  paths = []
  for step, value in ((1, 0.0), (2, 1.0), (3, np.nan), (4, np.inf)):
    tf.reset_default_graph()
    tf.get_variable("x", initializer=np.array([1.0, value], np.float32))
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      paths.append(tf.train.Saver().save(
          session, str(tmp_path / ("model.ckpt-%d" % step))))
    tf.train.update_checkpoint_state(
        str(tmp_path), paths[-1], all_model_checkpoint_paths=paths)
  assert checkpoints.newest_finite_checkpoint(str(tmp_path)) == paths[1]


def test_what_a_killed_save_left_is_removed(tmp_path):
  make_checkpoint(tmp_path, 1)
  kept = sorted(os.listdir(str(tmp_path)))
  (tmp_path / "model.ckpt-2_temp_0f").mkdir()
  (tmp_path / "model.ckpt-2_temp_0f" / "part-00000-of-00001.index").touch()
  (tmp_path / "model.ckpt-2.index.tempstate12").touch()
  checkpoints.remove_unfinished_checkpoints(str(tmp_path))
  assert sorted(os.listdir(str(tmp_path))) == kept


def test_a_batch_that_cannot_be_sliced():
  options = types.SimpleNamespace(
      use_horovod=False, use_tpu=False, train_batch_size=10,
      gradient_accumulation_steps=4)
  with pytest.raises(errors.InputError, match="10 is not a multiple of .* 4"):
    training.start(options)


def test_a_folder_that_tensorflow_takes_for_a_pattern(tmp_path):
  with pytest.raises(errors.InputError, match="no checkpoint in a folder with"):
    outputs.prepare_output_dir(Options(str(tmp_path / "[1]")), {})
  assert not list(tmp_path.iterdir())


def test_files_may_be_in_the_output_folder_already(tmp_path):
  (tmp_path / "vocab.txt").write_text("[CLS]\n")
  outputs.prepare_output_dir(Options("file://%s" % tmp_path), {}, [
      (str(tmp_path / "vocab.txt"), "vocab.txt")])
  assert (tmp_path / "vocab.txt").read_text() == "[CLS]\n"


def test_the_vocabulary_of_a_model_stays(tmp_path):
  for name in ("one", "other"):
    (tmp_path / name).write_text(name)
  files = [(str(tmp_path / "one"), "vocab.txt")]
  options = Options(str(tmp_path / "out"))
  outputs.prepare_output_dir(options, {}, files)
  (tmp_path / "out" / "best").mkdir()
  make_checkpoint(tmp_path / "out" / "best", 1)  # as after several runs
  outputs.prepare_output_dir(options, {}, files)
  with pytest.raises(errors.InputError, match="vocab.txt says"):
    outputs.prepare_output_dir(options, {}, [
        (str(tmp_path / "other"), "vocab.txt")])
  assert (tmp_path / "out" / "vocab.txt").read_text() == "one"


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
  options = Options(str(tmp_path))
  outputs.prepare_output_dir(options, {"config.json": {"a": 1}})
  outputs.prepare_output_dir(options, {"config.json": {"a": 2}})
  make_checkpoint(tmp_path, 1)
  outputs.prepare_output_dir(options, {"config.json": {"a": 2}})
  with pytest.raises(errors.InputError, match="config.json says"):
    outputs.prepare_output_dir(options, {"config.json": {"a": 3}})
  # Each of the three commands, with its time.
  commands = (tmp_path / "command.txt").read_text().splitlines()
  assert len(commands) == 3
  assert all(line.split(" ", 3)[2] == sys.executable for line in commands)
