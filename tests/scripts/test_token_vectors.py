"""extract_features.py --pooling=tokens, against the NumPy reference."""

import json

import numpy as np
import pytest
import reference_albert as reference
from scripting import call_main, fail, succeed
from small_models import albert_zh_config, google_config, write_folder

import export_model

pytestmark = [pytest.mark.slow, pytest.mark.once]

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"中国的首都是", "play",
          "##ing"]
TEXTS = ["中国 playing", "", "首都是中国的首都是", "PLAY，国"]
# With room for 7 tokens.
SEEN = [[("中", 0, 1), ("国", 1, 2), ("play", 3, 7), ("##ing", 7, 10)], [],
        [(char, i, i + 1) for i, char in enumerate(TEXTS[2][:7])],
        [("play", 0, 4), ("[UNK]", 4, 5), ("国", 5, 6)]]


@pytest.mark.parametrize("make", [albert_zh_config, google_config])
def test_vectors_are_those_of_the_reference(make, tmp_path):
  config = make(vocab_size=len(TOKENS), max_position_embeddings=9)
  (tmp_path / "model").mkdir()
  weights = write_folder(tmp_path / "model", config, TOKENS)
  (tmp_path / "texts").write_text("\n".join(TEXTS), encoding="utf-8")
  engines = {"tensorflow": tmp_path / "model"}
  try:
    import onnxruntime  # noqa: F401
  except ImportError:
    pass
  else:
    engines["onnx"] = tmp_path / "onnx"
    call_main(export_model, "--onnx", "--signature=encode",
              "--init_checkpoint=%s" % (tmp_path / "model"),
              "--output_dir=%s" % engines["onnx"])
  for engine, folder in engines.items():
    args = ["extract_features.py", "--init_checkpoint=%s" % folder,
            "--input_file=%s" % (tmp_path / "texts"), "--engine=" + engine,
            "--output_file=%s" % (tmp_path / "out.jsonl")]
    succeed(*args, "--pooling=tokens", "--layers=-1,0,1")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(
        encoding="utf-8").splitlines()]
    assert [row["text"] for row in rows] == TEXTS
    for row, seen in zip(rows, SEEN):
      assert [(x["token"], x["start"], x["end"]) for x in row["tokens"]] == seen
      ids = np.array([[2, *(TOKENS.index(token) for token, _, _ in seen), 3]])
      wanted = reference.forward(weights, config, ids, np.ones_like(ids),
                                 np.zeros_like(ids))
      layers = [wanted["embedding_output"], *wanted["all_layers"]]
      for token, place in zip(row["tokens"], range(1, len(seen) + 1)):
        assert sorted(token["layers"]) == ["-1", "0", "1"]
        for name, vector in token["layers"].items():
          np.testing.assert_allclose(
              vector, layers[int(name)][0, place], atol=1e-5)
  for flag, message in (("--layers=3", "--layer=3: the model has layers 0 to"),
                        ("--layers=a", "--layers=a: expected numbers")):
    fail(message, *args, "--pooling=tokens", flag)
  fail("without --pooling=tokens, there is no effect of --layers", *args,
       "--layers=1")
