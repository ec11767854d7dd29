"""Loaders of other people read what this project writes.

bert4keras and bert-for-tf2, with TensorFlow's Keras.
"""

import os

import numpy as np
import pytest
import tensorflow as tf
from scripting import ROOT
from small_models import TOKENS, albert_zh_config, google_config, write_folder

import modeling
from albert.files import checkpoints
from albert.model.config import AlbertConfig

pytestmark = pytest.mark.full

IDS = np.array([[2, 7, 9, 30, 12, 3, 0, 0], [2, 45, 8, 3, 9, 11, 21, 3]])
SEGMENTS = np.array([[0] * 8, [0] * 4 + [1] * 4])


@pytest.fixture(autouse=True)
def tf_keras(monkeypatch):
  monkeypatch.setenv("TF_KERAS", "1")
  tf.keras.backend.clear_session()
  yield
  tf.keras.backend.clear_session()


def folder_of(name, tmp_path, trained):
  """Returns the folder of a starter, a pretrained or a fine-tuned model."""
  if name == "starter":
    return ROOT / "albert_tiny_starter"
  if name == "tuned":
    return trained("labels").best
  write_folder(tmp_path, (albert_zh_config if name == "albert_zh" else
                          google_config)(), TOKENS)
  return tmp_path


def own_vectors(folder):
  """Returns the last layer, float [2, 8, H], and the path of the checkpoint."""
  path = checkpoints.find_checkpoint(str(folder))
  with tf.Graph().as_default():
    model = modeling.AlbertModel(
        AlbertConfig.from_json_file(str(folder / "config.json")), False,
        tf.constant(IDS), tf.constant((IDS > 0).astype(int)),
        tf.constant(SEGMENTS))
    with checkpoints.restored_session(path) as session:
      return session.run(model.get_sequence_output()), path


def assert_same(found, wanted):
  there = IDS > 0
  np.testing.assert_allclose(found[there], wanted[there], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["starter", "google"])
@pytest.mark.parametrize("kind", ["albert", "albert_unshared"])
def test_bert4keras(name, kind, tmp_path, trained):
  pytest.importorskip("bert4keras")
  from bert4keras.backend import set_gelu
  from bert4keras.models import build_transformer_model

  folder = folder_of(name, tmp_path, trained)
  wanted, checkpoint = own_vectors(folder)
  set_gelu("tanh")
  model = build_transformer_model(os.path.join(str(folder), "config.json"),
                                  checkpoint, model=kind)
  assert_same(model.predict([IDS, SEGMENTS]), wanted)


@pytest.mark.parametrize("name", ["starter", "google", "albert_zh", "tuned"])
def test_bert_for_tf2(name, tmp_path, trained):
  bert = pytest.importorskip("bert")
  from bert.loader_albert import map_to_tfhub_albert_variable_name

  folder = folder_of(name, tmp_path, trained)
  wanted, checkpoint = own_vectors(folder)
  is_google = name in ("starter", "google")
  params = bert.loader.map_stock_config_to_params(
      bert.loader.StockBertConfig.from_json_file(
          os.path.join(str(folder), "config.json")))
  params.project_position_embeddings = is_google
  params.project_embeddings_with_bias = is_google
  layer = bert.BertModelLayer.from_params(params, name="albert")
  ids, segments = [tf.keras.layers.Input([8], dtype="int32")
                   for _ in range(2)]
  mask = tf.keras.layers.Lambda(lambda x: tf.not_equal(x, 0))(ids)
  model = tf.keras.Model([ids, segments], layer([ids, segments], mask=mask))
  changes = {"map_to_stock_fn": map_to_tfhub_albert_variable_name} if (
      is_google) else {}
  assert not bert.loader.load_stock_weights(layer, checkpoint, **changes)
  assert_same(model.predict([IDS, SEGMENTS]), wanted)
