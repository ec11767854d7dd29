"""Finding checkpoints, starting from them, and what does not fit."""

import logging
import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from albert import errors
from albert.files import checkpoints
from albert.heads import Classifier
from albert.model.config import AlbertConfig
from albert.model.layouts import create_model

SIZES = {"vocab_size": 30, "hidden_size": 8, "embedding_size": 4,
         "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 16, "hidden_act": "gelu",
         "max_position_embeddings": 16}


def build(**changes):
  tf.reset_default_graph()
  config = AlbertConfig.from_dict(dict(SIZES, **changes))
  return create_model(config, False, tf.zeros([2, 5], tf.int32))


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
  model = build(**changes)
  Classifier(2).logits(model)
  with caplog.at_level(logging.INFO, "absl"):
    checkpoints.init_from_checkpoint(path, is_training=True)
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for variable in tf.trainable_variables():
      if variable.op.name in values:
        np.testing.assert_array_equal(
            session.run(variable), values[variable.op.name])
  text = caplog.text
  assert ("%d variables loaded; new: output_weights, output_bias; not used: "
          "unrelated\n" % (len(values) - 1)) in text


def test_shapes_are_known_without_reading_weights(tmp_path):
  path = str(tmp_path / "model.ckpt")
  save(path)
  os.truncate(path + ".data-00000-of-00001", 0)
  build()
  checkpoints.init_from_checkpoint(path, is_training=True)


def test_a_head_of_another_shape_starts_anew(tmp_path, caplog):
  path = str(tmp_path / "model.ckpt")
  save(path, add={"output_weights": np.ones([3, 8], np.float32),
                  "output_bias": np.ones([2], np.float32)})
  model = build()
  Classifier(2).logits(model)
  with caplog.at_level(logging.INFO, "absl"):
    checkpoints.init_from_checkpoint(path, is_training=True)
  assert ("of a different shape: output_weights (checkpoint [3, 8], model "
          "[2, 8])") in caplog.text
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
  model = build()
  Classifier(2).logits(model)
  checkpoints.init_from_checkpoint(path, is_training=True)
  with pytest.raises(errors.InputError, match="lacks .* output_weights"):
    checkpoints.init_from_checkpoint(path, is_training=False)


def test_no_checkpoint(tmp_path):
  build()
  with pytest.raises(errors.InputError, match="no checkpoint at"):
    checkpoints.init_from_checkpoint(str(tmp_path / "none"), is_training=True)


def test_comparing_with_a_checkpoint_does_not_read_its_weights(tmp_path):
  """Of large models that takes a while; the initializer reads them later."""
  path = str(tmp_path / "model.ckpt")
  save(path)
  data, = tmp_path.glob("model.ckpt.data*")
  os.truncate(str(data), 0)
  build()
  checkpoints.init_from_checkpoint(path, is_training=False)
  with tf.Session() as session, pytest.raises(tf.errors.OpError):
    session.run(tf.global_variables_initializer())


def make_checkpoint(folder, step):
  path = str(folder / ("model.ckpt-%d" % step))
  tf.reset_default_graph()
  tf.get_variable("x", initializer=float(step))
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    tf.train.Saver().save(session, path)
  tf.train.update_checkpoint_state(str(folder), path)


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
