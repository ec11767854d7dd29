"""--rehearse: what it reports of hardware that is not here."""

import json

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from given_settings import make_settings
from scripting import ROOT, VOCAB, fail, succeed

from albert import heads
from albert.errors import InputError
from albert.files import records
from albert.model.config import AlbertConfig
from albert.train import distribution, rehearsal, step
from albert.train.settings import Schedule

pytestmark = pytest.mark.slow

SEQ = 32
SIZES = {"vocab_size": 21128, "hidden_size": 32, "embedding_size": 16,
         "num_hidden_layers": 3, "num_attention_heads": 2,
         "intermediate_size": 64, "hidden_act": "gelu",
         "max_position_embeddings": SEQ, "num_hidden_groups": 1}


@pytest.fixture(scope="module")
def work(tmp_path_factory):
  folder = tmp_path_factory.mktemp("work")
  (folder / "config.json").write_text(json.dumps(SIZES))
  rng = np.random.RandomState(0)
  records.write_records(str(folder / "a.tfrecord"), (records.serialize({
      "input_ids": rng.randint(50, size=SEQ), "input_mask": np.ones(SEQ, int),
      "segment_ids": np.zeros(SEQ, int),
      "masked_lm_positions": np.arange(4), "masked_lm_ids": np.arange(4),
      "masked_lm_weights": np.ones(4, np.float32),
      "next_sentence_labels": [0]}, records.pretraining_specs(SEQ, 4))
                                                     for _ in range(200)))
  return folder


def pretraining(work, *args):
  return ["run_pretraining.py", "--do_train", "--max_predictions_per_seq=4",
          "--bert_config_file=%s/config.json" % work, "--max_seq_length=32",
          "--input_file=%s/*.tfrecord" % work, *args]


@pytest.mark.parametrize("hosts, share", [(1, 64), (4, 16), (8, 8)])
def test_pretraining_on_a_pod(hosts, share, work):
  out, log = succeed(*pretraining(
      work, "--rehearse=tpu:%dx8" % hosts, "--train_batch_size=512",
      "--gradient_accumulation_steps=4", "--eval_batch_size=64",
      "--output_dir=gs://bucket/out", "--tpu_name=pod", "--use_tpu"))
  lines = dict(line.split(None, 1) for line in out.splitlines()[1:])
  assert out.startswith("rehearsal of tpu:%dx8 on TensorFlow " % hosts)
  assert "512 examples a step, %d for each core; " % share in lines["training"]
  for name in ("training", "evaluation", "prediction"):
    assert lines[name].endswith("XLA has all")
  assert "%d for each core" % (8 // hosts) in lines["evaluation"]
  assert "input_file=%s/a.tfrecord: the TPU is on a different" % work in log
  assert not (ROOT / "gs:").exists()


def test_what_would_fail(work):
  fail("--eval_batch_size=32 is not a multiple of --num_tpu_cores=64: the next",
       *pretraining(work, "--rehearse=tpu:8x8", "--train_batch_size=512",
                    "--output_dir=gs://bucket/out"))
  for hardware in ("gpu", "gpu:0", "tpu:0x8", "tpu:8", "gpu:1x8"):
    with pytest.raises(InputError, match="it can be tpu:HOSTSxCORES"):
      make_settings(rehearse=hardware)
  with pytest.raises(InputError, match="of --num_gpus=3: the next one is 33"):
    make_settings(rehearse="gpu:3")


@pytest.mark.parametrize("hardware", ["tpu:1x8", "gpu:2"])
@pytest.mark.parametrize("flags", [["--do_train", "--do_eval"], ["--do_eval"]])
def test_fine_tuning(hardware, flags, tmp_path):
  out, _ = succeed(
      "run_classifier.py", "--task_name=lcqmc", *flags, VOCAB,
      "--data_dir=%s" % (ROOT / "tests" / "pairs"), "--max_seq_length=32",
      "--init_checkpoint=%s" % (ROOT / "albert_tiny_starter"),
      "--output_dir=%s" % tmp_path, "--rehearse=" + hardware)
  names = [line.split()[0] for line in out.splitlines()[1:]]
  # It evaluates what it predicts.
  assert names == ["training", "evaluation"] * ("--do_train" in flags) + [
      "prediction", "memory"]
  assert not list(tmp_path.iterdir())


class Unfit(heads.Classifier):
  """Chooses examples, how many is not known before."""

  def apply(self, model, features):
    output = super().apply(model, features)
    chosen = tf.boolean_mask(output.predictions["logits"],
                             tf.equal(features["label_ids"], 1))
    return output._replace(losses={
        "example_loss": tf.reduce_sum(tf.square(chosen))})


def report(head, capsys):
  settings = make_settings(rehearse="tpu:1x2", train_batch_size=8, log_steps=9)
  model_fn = step.model_fn_builder(
      AlbertConfig.from_dict(SIZES), head, settings, Schedule(9),
      distribution.get_workers(use_tpu=True))
  specs = [records.FeatureSpec(name, "int", SEQ) for name in (
      "input_ids", "input_mask", "segment_ids")]
  specs.append(records.FeatureSpec("label_ids", "int", 0))

  def input_fn(params):
    return tf.data.Dataset.from_tensors({
        spec.name: np.zeros([params["batch_size"]] + [SEQ] * bool(spec.length),
                            np.int32) for spec in specs})

  with pytest.raises(SystemExit) as end:
    rehearsal.Rehearsal(settings, model_fn).train(input_fn)
  return end.value.code, capsys.readouterr().out


def test_a_graph_that_no_tpu_runs(capsys):
  assert report(heads.Classifier(2), capsys)[0] == 0
  status, out = report(Unfit(2), capsys)
  assert status == "ERROR: training and evaluation would not run"
  assert "sizes are not known beforehand" in out


def test_memory_by_hand():
  """Of one dense layer on [8, 4]: what a student would count."""
  def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [4, 5])
    tf.get_variable("slot", [4, 5], trainable=False)
    y = tf.tanh(tf.matmul(features["x"], kernel))
    loss = tf.reduce_sum(y * y)
    gradient, = tf.gradients(loss, [kernel])
    return tf.estimator.EstimatorSpec(mode, loss=loss,
                                      train_op=kernel.assign_sub(gradient))

  memory = rehearsal.make_step(
      model_fn, {"x": (tf.float32, [8, 4])}).memory
  global_step = 8
  assert memory["weights"] == memory["gradients"] == 4 * 20
  assert memory["optimizer"] == 4 * 20 + global_step
  # The input of the product and the output of tanh; shapes are small change.
  kept = memory["kept for the backward pass"] - 4 * (8 * 4 + 8 * 5)
  assert 0 <= kept <= 100
