"""SavedModel and TFLite give the same outputs as a session."""

import everything
import pytest
import tensorflow.compat.v1 as tf
from small_steps import full

from albert import heads
from albert.export import tensorflow_files

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["albert_zh_preln", full("google_groups")])
def test_saved_model(name, tmp_path):
  config, checkpoint = everything.write(tmp_path, name)
  (tmp_path / "vocab.txt").write_text("a")
  head = everything.Everything()
  tensorflow_files.save_model(
    config,
    {"everything": head, "masked_lm": heads.MaskedLm()},
    checkpoint,
    str(tmp_path / "served"),
    [str(tmp_path / "vocab.txt")],
  )
  assert (tmp_path / "served" / "assets" / "vocab.txt").read_text() == "a"
  with tf.Graph().as_default(), tf.Session() as session:
    definitions = tf.saved_model.loader.load(
      session, ["serve"], str(tmp_path / "served")
    ).signature_def
    found = {
      key: session.run(
        {name: x.name for name, x in definition.outputs.items()},
        {
          x.name: everything.FEED[name] for name, x in definition.inputs.items()
        },
      )
      for key, definition in definitions.items()
    }
  wanted = everything.in_session(config, checkpoint, head, everything.FEED)
  everything.assert_same(found["everything"], wanted)
  assert (
    set(found["everything"]) == set(found["serving_default"]) == set(wanted)
  )
  everything.assert_same(
    found["masked_lm"], {"logits": wanted["masked_lm_logits"]}
  )


@pytest.mark.parametrize(
  "name, rows, int8",
  [
    ("google", 6, False),
    full("google_relu", 6, True),
    full("bert", 6, False),
    full("albert_zh_preln", 1, False),
  ],
)
def test_tflite(name, rows, int8, tmp_path):
  config, checkpoint = everything.write(tmp_path, name)
  head = everything.Everything()
  feed = {key: x[:rows] for key, x in everything.FEED.items()}
  interpreter = tf.lite.Interpreter(
    model_content=tensorflow_files.to_tflite(
      config, head, checkpoint, rows, 16, 2, int8
    )
  )
  interpreter.allocate_tensors()
  for detail in interpreter.get_input_details():
    interpreter.set_tensor(detail["index"], feed[detail["name"]])
  interpreter.invoke()
  outputs = {
    x["name"].split("/")[-1]: interpreter.get_tensor(x["index"])
    for x in interpreter.get_output_details()
  }
  mask = feed["input_mask"]
  # Padding is not compared.
  found, wanted = [
    {
      key: x[mask > 0] if x.shape[:2] == mask.shape else x
      for key, x in values.items()
    }
    for values in (
      outputs,
      everything.in_session(config, checkpoint, head, feed),
    )
  ]
  assert set(found) == set(wanted)
  check = everything.assert_8_bits if int8 else everything.assert_same
  check(found, wanted)
