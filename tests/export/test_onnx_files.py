"""ONNX files give the same outputs as TensorFlow."""

import re
import sys

import everything
import numpy as np
import pytest
import reference_albert as reference
import small_models
from reading import table
from refusals import refused
from scripting import ROOT, SIZES, export, succeed
from small_steps import full

from albert import heads
from albert.export import onnx_files
from albert.model.config import AlbertConfig
from albert.predict import engines

ENGINES = "tensorflow", "onnx"


def run_file(content, feed):
  import onnxruntime

  session = onnxruntime.InferenceSession(
    content, providers=["CPUExecutionProvider"]
  )
  names = [output.name for output in session.get_outputs()]
  return dict(
    zip(
      names,
      session.run(names, {x.name: feed[x.name] for x in session.get_inputs()}),
    )
  )


@pytest.mark.slow
@pytest.mark.parametrize(
  "name, int8",
  [
    ("albert_zh", False),
    full("google", True),
    *(
      full(name, False)
      for name in (
        "albert_zh_attention",
        "albert_zh_ffn_preln",
        "google_groups",
        "google_preln",
        "bert",
      )
    ),
  ],
)
def test_every_head_of_every_kind_of_model(name, int8, tmp_path):
  config, checkpoint = everything.write(tmp_path, name)
  head, feed = everything.Everything(), everything.FEED
  content = onnx_files.convert(config, head, checkpoint, int8=int8)
  wanted = everything.in_session(config, checkpoint, head, feed)
  found = run_file(content, feed)
  assert set(found) == set(wanted) - {"token_labels_labels"}
  if int8:
    return everything.assert_8_bits(found, wanted)
  everything.assert_same(found, wanted)
  for row, length in enumerate(everything.LENGTHS):  # without padding
    found = run_file(
      content, {name: x[row : row + 1, :length] for name, x in feed.items()}
    )
    everything.assert_same(
      {name: x[0] for name, x in found.items()},
      {
        name: wanted[name][(row, *map(slice, x.shape[1:]))]
        for name, x in found.items()
      },
    )


@pytest.mark.full
@pytest.mark.parametrize("name", ["google_preln", "albert_zh", "bert"])
def test_without_operations_of_onnx_runtime(name, tmp_path):
  """Standard ONNX, run by ONNX's reference evaluator."""
  onnx = pytest.importorskip("onnx")
  evaluation = pytest.importorskip("onnx.reference")  # ONNX >= 1.13
  config, checkpoint = everything.write(tmp_path, name)
  model = onnx.load_from_string(
    onnx_files.convert(config, heads.Encode(), checkpoint, standard_ops=True)
  )
  onnx.checker.check_model(model, full_check=True)
  assert [x.domain for x in model.opset_import] == [""]
  assert not any(node.domain for node in model.graph.node)
  names = ["sequence_output", "layer_0"]
  found = evaluation.ReferenceEvaluator(model).run(
    names, {x.name: everything.FEED[x.name] for x in model.graph.input}
  )
  everything.assert_same(
    dict(zip(names, found)),
    everything.in_session(config, checkpoint, heads.Encode(), everything.FEED),
  )


def test_what_cannot_be_converted(monkeypatch):
  refused(
    "--standard_ops .* --int8",
    onnx_files.convert,
    None,
    None,
    None,
    int8=True,
    standard_ops=True,
  )
  for package in ("tf2onnx", "onnx", "onnxruntime"):
    with monkeypatch.context() as patch:
      for name in list(sys.modules):
        if name.startswith(package + "."):
          patch.delitem(sys.modules, name)
      patch.setitem(sys.modules, package, None)
      refused("onnx]", onnx_files.convert, None, None, None)


@pytest.mark.full
def test_files_of_a_model(tmp_path):
  source, target = tmp_path / "model", tmp_path / "onnx"
  config = AlbertConfig(
    **dict(SIZES, ln_type="preln", hidden_size=32, embedding_size=24)
  ).to_dict()
  weights = reference.random_weights(config)
  small_models.write_folder(
    source,
    config,
    ROOT / "albert_config" / "vocab.txt",
    dict(weights, output_weights=np.ones([2, 32]), output_bias=np.ones([2])),
  )
  export(source, target, "--onnx")
  assert {path.stem for path in target.iterdir()} == {
    "config",
    "task",
    "vocab",
    "classify",
    "encode",
    "masked_lm",
    "sentence_order",
    "sentence_vector",
  }
  # The embedding table is stored once, without its transpose.
  assert (target / "masked_lm.onnx").stat().st_size <= 1.15 * 4 * sum(
    x.size for x in weights.values()
  )
  ours, theirs = [
    re.sub(
      r" [\d.]+",
      "",
      succeed(
        "predict.py",
        "--model_dir=%s" % folder,
        "--engine=" + engine,
        "--top_k=3",
        "[MASK]海[MASK]",
        "中国的首[MASK]是北京",
      )[0],
    )
    for engine, folder in zip(ENGINES, (source, target))
  ]
  assert ours == theirs and ours.count("\n") == 2


@pytest.mark.full
def test_a_fine_tuned_model_in_8_bits(tmp_path):
  """The starter weights after an epoch, on 600 texts, 240 of them unseen."""
  topics, target = ROOT / "data" / "topics", tmp_path / "onnx"
  succeed(
    "run_classifier.py",
    "--task_name=tsv",
    "--data_dir=%s" % topics,
    "--init_checkpoint=%s" % (ROOT / "albert_tiny_starter"),
    "--output_dir=%s" % tmp_path,
    "--do_train",
    "--num_train_epochs=1",
    "--max_seq_length=48",
    "--train_batch_size=16",
    "--learning_rate=3e-4",
  )
  export(tmp_path, target, "--onnx", "--signature=classify", "--int8")
  assert (target / "classify.onnx").stat().st_size < 5e6
  texts = [
    (row[1], None) for path in topics.glob("*.tsv") for row in table(path)[1:]
  ]
  assert len(texts) == 600
  wanted, found = [
    engines.load(engine, str(folder))
    .predictor("classify", "probabilities", max_seq_length=64)
    .predict(texts)
    for engine, folder in zip(ENGINES, (tmp_path, target))
  ]
  assert np.abs(found - wanted).mean() <= 0.02
  assert np.mean(found.argmax(1) == wanted.argmax(1)) >= 0.98
