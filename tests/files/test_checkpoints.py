"""Finding checkpoints, initializing from them, mismatches."""

import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from refusals import refused
from writing import write_checkpoint

from albert.files import checkpoints

WORDS = "bert/embeddings/word_embeddings"
# Variables of each layout and of a head.
SHARED = {
  WORDS: [6, 4],
  WORDS + "_2": [4, 8],
  "bert/encoder/layer_shared/output/dense/bias": [8],
  "bert/pooler/dense/bias": [8],
}
SINGLE = {WORDS: [6, 8], "bert/encoder/layer_0/output/dense/bias": [8]}
GOOGLE = {WORDS: [6, 4], "bert/encoder/transformer/group_0/bias": [8]}
HEAD = {"output_weights": [2, 8], "output_bias": [2]}


def save(folder, shapes):
  """Writes random weights; returns (checkpoint path, weights)."""
  rng = np.random.RandomState(0)
  weights = {
    name: np.asarray(rng.normal(size=shape), np.float32)
    for name, shape in shapes.items()
  }
  checkpoints.write_checkpoint(str(folder), "model.ckpt", weights)
  return str(folder / "model.ckpt"), weights


def start(path, shapes, is_training=True):
  """Returns the variables of a model initialized from a checkpoint."""
  tf.reset_default_graph()
  for name, shape in shapes.items():
    tf.get_variable(name, shape)
  checkpoints.init_from_checkpoint(path, is_training)
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    return {v.op.name: session.run(v) for v in tf.trainable_variables()}


def test_a_checkpoint_loads_by_equal_names(tmp_path, caplog):
  caplog.set_level("INFO", "absl")
  path, weights = save(
    tmp_path,
    dict(SHARED, unrelated=[3], global_step=[], **{WORDS + "/adam_m": [6, 4]}),
  )
  values = start(path, dict(SHARED, **HEAD))
  for name in SHARED:
    np.testing.assert_array_equal(values[name], weights[name])
  assert (
    "4 variables loaded; new: output_weights, output_bias; not used: "
    "unrelated\n"
  ) in caplog.text
  start(path, SHARED, is_training=False)
  refused(
    "lacks .* output_weights",
    start,
    path,
    dict(SHARED, **HEAD),
    is_training=False,
  )
  # Comparing does not read the weights, which is slow for large models.
  os.truncate(path + ".data-00000-of-00001", 0)
  with pytest.raises(tf.errors.OpError):
    start(path, SHARED)


def test_a_head_of_another_shape_starts_anew(tmp_path, caplog):
  path, weights = save(tmp_path, {**SHARED, **HEAD, "output_weights": [3, 8]})
  caplog.set_level("INFO", "absl")
  values = start(path, dict(SHARED, **HEAD))
  assert (
    "of a different shape: output_weights (checkpoint [3, 8], model [2, 8])"
  ) in caplog.text
  assert values["output_weights"].shape == (2, 8)
  np.testing.assert_array_equal(values["output_bias"], weights["output_bias"])


@pytest.mark.parametrize(
  "saved, wanted, message",
  [
    (SHARED, GOOGLE, "has albert_zh's"),
    (GOOGLE, SHARED, "has Google's"),
    (
      dict(SHARED, **{WORDS: [7, 4]}),
      SHARED,
      r"word_embeddings .checkpoint .7, 4., model .6, 4..$",
    ),
    (dict(SHARED, **{WORDS: [6, 3], WORDS + "_2": [3, 8]}), SHARED, "1 more"),
    *(
      (
        {key: shape for key, shape in SHARED.items() if key != name},
        SHARED,
        "lacks .*" + name,
      )
      for name in list(SHARED)[1:3]
    ),
    (
      SINGLE,
      dict(SINGLE, **{"bert/encoder/layer_1/output/dense/bias": [8]}),
      "lacks .*layer_1",
    ),
    (None, SHARED, "no checkpoint at"),
  ],
)
def test_a_checkpoint_that_does_not_fit(tmp_path, saved, wanted, message):
  if saved:
    save(tmp_path, saved)
  refused(message, start, str(tmp_path / "model.ckpt"), wanted)


def test_without_its_newest_a_folder_stands_for_the_one_before(tmp_path):
  """Incomplete checkpoints do not count."""
  folders = str(tmp_path), "file://%s" % tmp_path
  for step in (9, 10, 20, 30):
    write_checkpoint(tmp_path, step)

  def expect(step):
    for folder in folders:
      path = "%s/model.ckpt-%d" % (folder, step)
      assert checkpoints.latest_checkpoint(folder) == path
      assert checkpoints.find_checkpoint(folder) == path
      checkpoints.name_whole_checkpoints(folder)
      assert tf.train.latest_checkpoint(folder) == path
    return [
      os.path.basename(path)
      for path in tf.train.get_checkpoint_state(
        folder
      ).all_model_checkpoint_paths
    ]

  expect(30)
  (tmp_path / "model.ckpt-30.index").unlink()
  expect(20)
  data = tmp_path / "model.ckpt-20.data-00000-of-00001"
  data.rename(tmp_path / "model.ckpt-20.data-00001-of-00002")
  assert expect(10) == ["model.ckpt-9", "model.ckpt-10"]
  # A user may select an older one.
  checkpoints.name_newest(str(tmp_path), "model.ckpt-9")
  assert expect(9) == ["model.ckpt-9"]
  (tmp_path / "checkpoint").write_bytes(b"")
  expect(10)
  for path in tmp_path.glob("*.index"):
    path.unlink()
  for folder in folders:
    assert checkpoints.latest_checkpoint(folder) is None
    checkpoints.name_whole_checkpoints(folder)
    refused("no checkpoint at", checkpoints.find_checkpoint, folder)
  (tmp_path / "model.safetensors").write_bytes(b"")
  refused("convert_to_pytorch.py", checkpoints.find_checkpoint, str(tmp_path))
  assert not (tmp_path / "checkpoint").exists()


def test_a_released_checkpoint_is_not_one_to_go_on_from(tmp_path):
  checkpoints.write_checkpoint(
    str(tmp_path), "albert_model.ckpt", {"x": np.zeros([])}
  )
  assert checkpoints.latest_checkpoint(str(tmp_path)) is None
  assert checkpoints.find_checkpoint(str(tmp_path)) == str(
    tmp_path / "albert_model.ckpt"
  )


def test_the_newest_checkpoint_with_finite_weights_is_found(tmp_path):
  assert checkpoints.newest_finite_checkpoint(str(tmp_path)) == "none"
  for step, value in enumerate((0.0, 1.0, np.nan, np.inf)):
    write_checkpoint(tmp_path, step, value)
  assert checkpoints.newest_finite_checkpoint(str(tmp_path)) == str(
    tmp_path / "model.ckpt-1"
  )


def test_what_a_killed_save_left_is_removed(tmp_path):
  write_checkpoint(tmp_path, 1)
  kept = sorted(os.listdir(str(tmp_path)))
  (tmp_path / "model.ckpt-2_temp_0f").mkdir()
  (tmp_path / "model.ckpt-2_temp_0f" / "part-00000-of-00001.index").touch()
  (tmp_path / "model.ckpt-2.index.tempstate12").touch()
  checkpoints.remove_unfinished_checkpoints(str(tmp_path))
  assert sorted(os.listdir(str(tmp_path))) == kept


def test_the_mean_of_checkpoints(tmp_path):
  for step, value in ((5, 1.0), (10, 2.0), (15, 6.0), (20, 9.0)):
    write_checkpoint(tmp_path, step, value)
  path = str(tmp_path / "model.ckpt-15")
  assert checkpoints.read_average(path, 2) == {"x": 4.0}
  assert checkpoints.read_average(path, 3)["x"].dtype == np.float32
  refused(
    "has 3 complete checkpoints up to it, not 4",
    checkpoints.read_average,
    path,
    4,
  )
