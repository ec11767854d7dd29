"""export_model.py --onnx --standard_ops, by ONNX's own evaluator."""

import json

import numpy as np
import pytest
import reference_albert as reference
import small_models
from scripting import ROOT, fail

from albert import heads, model_folder
from albert.errors import InputError
from albert.export import onnx_files
from albert.files import checkpoints
from albert.model.config import AlbertConfig

onnx = pytest.importorskip("onnx")
pytest.importorskip("tf2onnx")
evaluation = pytest.importorskip("onnx.reference")  # from ONNX 1.13 on
pytestmark = [pytest.mark.slow, pytest.mark.once]


@pytest.mark.parametrize("name", ["albert_zh", "google_preln", "bert"])
def test_any_runtime_can_read_it(name, tmp_path):
  config = small_models.CONFIGS[name]
  weights = {key: value.astype(np.float32) for key, value in
             reference.random_weights(config).items()}
  checkpoints.write_checkpoint(str(tmp_path), "model.ckpt-7", weights)
  (tmp_path / "config.json").write_text(json.dumps(config))
  checkpoint = str(tmp_path / "model.ckpt-7")
  folder = model_folder.load(model_folder.FolderSettings(), checkpoint)
  feed = {key: value.astype(np.int32) for key, value in zip(
      ("input_ids", "input_mask", "segment_ids", "masked_lm_positions"), (
          small_models.INPUT_IDS, small_models.INPUT_MASK,
          small_models.SEGMENT_IDS, small_models.POSITIONS))}
  wanted = small_models.run_reference(config, weights)
  wanted["logits"] = wanted["masked_lm_logits"].reshape(
      small_models.POSITIONS.shape + (config["vocab_size"],))
  on_top = heads.restore(checkpoints.saved_shapes(checkpoint), folder)
  for signature, output in (("encode", "sequence_output"),
                            ("masked_lm", "logits")):
    model = onnx.load_from_string(onnx_files.convert(
        AlbertConfig.from_dict(config), on_top[signature], checkpoint,
        standard_ops=True))
    onnx.checker.check_model(model, full_check=True)
    assert [x.domain for x in model.opset_import] == [""]
    assert not any(node.domain for node in model.graph.node)
    found, = evaluation.ReferenceEvaluator(model).run([output], {
        x.name: feed[x.name] for x in model.graph.input})
    np.testing.assert_allclose(found, wanted[output], rtol=0, atol=1e-5)


def test_not_with_8_bits(tmp_path):
  with pytest.raises(InputError, match="does not go with --int8"):
    onnx_files.convert(None, None, None, int8=True, standard_ops=True)
  fail("--standard_ops does not go with --int8", "export_model.py", "--onnx",
       "--int8", "--standard_ops", "--output_dir=%s" % (tmp_path / "out"),
       "--init_checkpoint=%s" % (ROOT / "albert_tiny_starter"))
  assert not (tmp_path / "out").exists()
