"""bert4keras and bert-for-tf2 load our checkpoints."""

import numpy as np
import pytest
import tensorflow as tf
from scripting import ROOT
from small_models import CONFIGS, TOKENS, write_folder

import modeling
from albert.files import checkpoints
from albert.model.config import AlbertConfig

pytestmark = pytest.mark.full

IDS = np.array([[2, 7, 9, 30, 12, 3, 0, 0], [2, 45, 8, 3, 9, 11, 21, 3]])
SEGMENTS = np.array([[0] * 8, [0] * 4 + [1] * 4])


@pytest.fixture
def paths(name, tmp_path, trained, monkeypatch):
  monkeypatch.setenv("TF_KERAS", "1")
  tf.keras.backend.clear_session()
  folder = ROOT / "albert_tiny_starter" if name == "starter" else tmp_path
  if name == "tuned":
    folder = trained("labels").best
  elif name in CONFIGS:
    write_folder(folder, CONFIGS[name], TOKENS)
  yield str(folder / "config.json"), checkpoints.find_checkpoint(str(folder))
  tf.keras.backend.clear_session()


def check(model, paths):
  """Asserts that the last layer's output equals ours."""
  with tf.Graph().as_default():
    own = modeling.AlbertModel(
      AlbertConfig.from_json_file(paths[0]),
      False,
      tf.constant(IDS),
      tf.constant((IDS > 0).astype(int)),
      tf.constant(SEGMENTS),
    )
    with checkpoints.restored_session(paths[1]) as session:
      wanted = session.run(own.get_sequence_output())
  np.testing.assert_allclose(
    model.predict([IDS, SEGMENTS])[IDS > 0], wanted[IDS > 0], rtol=0, atol=1e-5
  )


@pytest.mark.parametrize("name", ["starter", "google"])
@pytest.mark.parametrize("kind", ["albert", "albert_unshared"])
def test_bert4keras(name, kind, paths):
  pytest.importorskip("bert4keras")
  from bert4keras.backend import set_gelu
  from bert4keras.models import build_transformer_model

  set_gelu("tanh")
  check(build_transformer_model(*paths, model=kind), paths)


@pytest.mark.parametrize("name", ["starter", "google", "albert_zh", "tuned"])
def test_bert_for_tf2(name, paths):
  bert = pytest.importorskip("bert")
  from bert.loader_albert import map_to_tfhub_albert_variable_name

  is_google = name in ("starter", "google")
  params = bert.loader.map_stock_config_to_params(
    bert.loader.StockBertConfig.from_json_file(paths[0])
  )
  params.project_position_embeddings = is_google
  params.project_embeddings_with_bias = is_google
  layer = bert.BertModelLayer.from_params(params, name="albert")
  inputs = [tf.keras.layers.Input([8], dtype="int32") for _ in range(2)]
  model = tf.keras.Model(
    inputs,
    layer(inputs, mask=tf.keras.layers.Lambda(lambda x: x > 0)(inputs[0])),
  )
  changes = (
    {"map_to_stock_fn": map_to_tfhub_albert_variable_name}
    if (is_google)
    else {}
  )
  assert not bert.loader.load_stock_weights(layer, paths[1], **changes)
  check(model, paths)
