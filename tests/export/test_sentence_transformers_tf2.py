"""Converted folders give the same vectors in sentence-transformers."""

import numpy as np
import pytest
from reading import read_json
from refusals import refused
from small_models import ONE_LAYER, TOKENS, albert_zh_config, write_folder
from writing import write

from albert import model_folder
from albert.export import pytorch, sentence_transformers
from albert.model_folder import FolderSettings
from albert.predict import engines

TEXTS = ["一丁丂七", "丈三", "上下丌" * 9, "丘"]


def make(folder, pooling="mean", layer=-1):
  write_folder(
    folder,
    albert_zh_config(**ONE_LAYER),
    TOKENS,
    {"bert/pooler/dense/bias": np.ones([24])},
    {
      "head": "sentence_vector",
      "pooling": pooling,
      "layer": layer,
      "max_seq_length": 8,
    },
  )
  return model_folder.load(FolderSettings(), str(folder))


def vectors(path):
  engine = engines.load("tensorflow", str(path))
  return engines.sentence_vectors(engine).predict([(x, None) for x in TEXTS])


def test_what_a_folder_says_of_its_vectors(tmp_path):
  assert sentence_transformers.read(str(tmp_path), 9) == {}
  files = sentence_transformers.files(make(tmp_path / "cls", "cls", 1))
  config = "1_Pooling/config.json"
  for name, content in files.items():
    write(tmp_path, name, content)
  for pooling, longest, found in (
    (files[config], 9, ("cls", 8)),
    ({"pooling_mode": "mean"}, 5, ("mean", 5)),
    ({"pooling_mode_mean_tokens": True}, 9, ("mean", 8)),
  ):
    write(tmp_path, config, pooling)
    read = sentence_transformers.read(str(tmp_path), longest)
    assert (read["pooling"], read["max_seq_length"]) == found
  write(tmp_path, config, {"pooling_mode": "max"})
  refused(config + ": .*max", sentence_transformers.read, str(tmp_path), 9)
  refused(
    "layer 0", sentence_transformers.files, make(tmp_path / "first", "mean", 0)
  )


@pytest.mark.full
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_same_vectors_there_and_back(pooling, tmp_path):
  package = pytest.importorskip("sentence_transformers")
  ours, theirs, saved, back = [
    tmp_path / name for name in ("ours", "theirs", "saved", "back")
  ]
  theirs.mkdir()
  back.mkdir()
  pytorch.write_folder(make(ours, pooling), str(theirs))
  model = package.SentenceTransformer(str(theirs), device="cpu")
  np.testing.assert_allclose(model.encode(TEXTS), vectors(ours), atol=1e-5)
  model.save(str(saved))
  pytorch.read_folder(str(saved), str(back))
  assert read_json(back / "task.json")["pooling"] == pooling
  np.testing.assert_allclose(vectors(back), vectors(ours), atol=1e-5)
