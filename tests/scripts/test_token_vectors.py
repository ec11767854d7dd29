"""extract_features.py against the NumPy reference."""

import numpy as np
import pytest
import reference_albert as reference
from reading import json_lines
from scripting import export, fail, succeed
from small_models import albert_zh_config, google_config, write_folder
from small_steps import full
from vocabularies import SPECIAL
from writing import write

pytestmark = pytest.mark.slow

TOKENS = SPECIAL + [*"中国的首都是", "play", "##ing"]
TEXTS = ["中国 playing", "", "首都是中国的首都是", "PLAY，国", "中[MASK]国"]
# Truncated to 7 tokens.
SEEN = [
  [("中", 0, 1), ("国", 1, 2), ("play", 3, 7), ("##ing", 7, 10)],
  [],
  [(char, i, i + 1) for i, char in enumerate(TEXTS[2][:7])],
  [("play", 0, 4), ("[UNK]", 4, 5), ("国", 5, 6)],
  [("中", 0, 1), ("[MASK]", 1, 7), ("国", 7, 8)],
]


def make(folder, config, *engine):
  """Returns (command, (pooled output, outputs of layers) of each text by the
  NumPy reference)."""
  model, wanted = folder / "model", []
  config = config(vocab_size=len(TOKENS), max_position_embeddings=9)
  weights = write_folder(model, config, TOKENS)
  for seen in SEEN:
    ids = np.array([[2, *(TOKENS.index(token) for token, _, _ in seen), 3]])
    found = reference.forward(weights, config, ids, ids > 0, 0 * ids)
    wanted.append(
      (
        found["pooled_output"][0],
        [
          layer[0]
          for layer in (found["embedding_output"], *found["all_layers"])
        ],
      )
    )
  if engine:
    pytest.importorskip("onnxruntime")
    export(model, folder / "onnx", "--onnx", "--signature=encode")
    model = folder / "onnx"
  return [
    "extract_features.py",
    "--init_checkpoint=file://%s" % model,
    "--input_file=" + write(folder, "texts", *TEXTS),
    "--output_file=file://%s/out" % folder,
    *engine,
  ], wanted


@pytest.mark.parametrize(
  "config, engine",
  [
    (albert_zh_config, []),
    full(google_config, []),
    full(google_config, ["--engine=onnx"]),
    full(albert_zh_config, ["--engine=onnx"]),
  ],
)
def test_vectors_of_tokens(config, engine, tmp_path):
  args, wanted = make(tmp_path, config, *engine)
  succeed(*args, "--pooling=tokens", "--layers=-1,0,1")
  rows = json_lines(tmp_path / "out")
  assert [row["text"] for row in rows] == TEXTS
  for row, seen, (_, layers) in zip(rows, SEEN, wanted):
    assert [(x["token"], x["start"], x["end"]) for x in row["tokens"]] == seen
    for place, token in enumerate(row["tokens"], 1):
      assert sorted(token["layers"]) == ["-1", "0", "1"]
      for name, vector in token["layers"].items():
        np.testing.assert_allclose(vector, layers[int(name)][place], atol=1e-5)


def test_vectors_of_texts(tmp_path):
  args, wanted = make(tmp_path, google_config)
  for flags, vector in (
    ([], lambda pooled, layers: layers[-1].mean(0)),
    (["--pooling=cls", "--layer=0"], lambda pooled, layers: layers[0][0]),
    (["--pooling=pooled"], lambda pooled, layers: pooled),
  ):
    succeed(*args, *flags)
    np.testing.assert_allclose(
      np.load(str(tmp_path / "out")),
      [vector(*x) for x in wanted],
      atol=1e-5,
      err_msg=str(flags),
    )
  (tmp_path / "out").unlink()
  for message, pooling, layers in (
    ("--layer=3: .* 0 to 2", "tokens", "3"),
    ("--layers=a: ", "tokens", "a"),
    ("--layers .*--pooling=tokens", "mean", "1"),
  ):
    fail(message, *args, "--pooling=" + pooling, "--layers=" + layers)
  assert not (tmp_path / "out").exists()
