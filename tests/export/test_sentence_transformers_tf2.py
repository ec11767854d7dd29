"""A converted folder gives the same vectors in sentence-transformers."""

import json

import numpy as np
import pytest
from small_models import albert_zh_config, google_config, write_folder

from albert import model_folder
from albert.export import pytorch
from albert.files import checkpoints
from albert.model_folder import FolderSettings
from albert.predict import engines

pytestmark = pytest.mark.slow

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + list(
    "中国的首都是北京上海大")
TEXTS = ["中国的首都", "北京", "上海大" * 9, "中"]


@pytest.fixture(params=[("mean", google_config), ("cls", albert_zh_config)],
                ids=["mean", "cls"])
def folders(request, tmp_path):
  pooling, config = request.param
  ours, theirs = tmp_path / "ours", tmp_path / "theirs"
  ours.mkdir()
  theirs.mkdir()
  write_folder(ours, config(vocab_size=len(TOKENS), initializer_range=0.3),
               TOKENS)
  (ours / "task.json").write_text(json.dumps({
      "head": "sentence_vector", "pooling": pooling, "layer": -1,
      "max_seq_length": 8}))
  return ours, theirs


def load(path):
  return model_folder.load(FolderSettings(), str(path))


def vectors(path):
  predictor = engines.sentence_vectors(engines.load("tensorflow", str(path)))
  return predictor.predict([(text, None) for text in TEXTS])


def remove_heads(folder):
  """Rewrites the checkpoint with the encoder alone, as training leaves it."""
  checkpoint = checkpoints.find_checkpoint(str(folder))
  checkpoints.write_checkpoint(str(folder), "model.ckpt-7", {
      name: value for name, value in checkpoints.read_weights(
          checkpoint).items() if name.startswith("bert/")})


def assert_same_back(ours, theirs, back):
  back.mkdir()
  pytorch.read_folder(str(theirs), str(back))
  assert load(back).vector == load(ours).vector
  np.testing.assert_allclose(vectors(back), vectors(ours), atol=1e-5)


def test_same_vectors_there_and_back(folders, tmp_path):
  ours, theirs = folders
  remove_heads(ours)
  pytorch.write_folder(load(ours), str(theirs))
  assert_same_back(ours, theirs, tmp_path / "back")
  sentence_transformers = pytest.importorskip("sentence_transformers")
  model = sentence_transformers.SentenceTransformer(str(theirs), device="cpu")
  np.testing.assert_allclose(model.encode(TEXTS), vectors(ours), atol=1e-5)
  model.save(str(tmp_path / "saved"))
  assert_same_back(ours, tmp_path / "saved", tmp_path / "again")
