"""run_pretraining.py in this process: restarts, damage, URLs, flags, TPUs."""

import functools
import json
import logging
import math
import re
import signal
import subprocess

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from scripting import call_main, command, fail, succeed

import run_pretraining
from albert import errors
from albert.files import checkpoints, outputs, records
from albert.train import hooks
from albert.train.settings import BatchSettings

pytestmark = [pytest.mark.slow, pytest.mark.once]

SPECS = records.pretraining_specs(16, 4)
SIZES = {"vocab_size": 50, "hidden_size": 8, "embedding_size": 4,
         "num_hidden_layers": 1, "num_attention_heads": 2,
         "intermediate_size": 16, "hidden_act": "gelu",
         "max_position_embeddings": 16}


def write_records(path, count):
  rng = np.random.RandomState(0)
  records.write_records(str(path), (records.serialize({
      "input_ids": rng.randint(50, size=16), "input_mask": np.ones(16, int),
      "segment_ids": rng.randint(2, size=16),
      "masked_lm_positions": rng.randint(16, size=4),
      "masked_lm_ids": rng.randint(50, size=4),
      "masked_lm_weights": np.ones(4, np.float32),
      "next_sentence_labels": [rng.randint(2)]}, SPECS) for _ in range(count)))


@pytest.fixture(scope="module")
def work(tmp_path_factory):
  folder = tmp_path_factory.mktemp("work")
  (folder / "config.json").write_text(json.dumps(SIZES))
  for number in range(3):
    write_records(folder / ("train-%d.tfrecord" % number), 40)
  write_records(folder / "heldout.tfrecord", 21)
  return folder


def pretrain(work, output_dir, *args):
  call_main(
      run_pretraining, "--bert_config_file=%s/config.json" % work,
      "--input_file=%s/train-*.tfrecord" % work, "--output_dir=%s" % output_dir,
      "--max_seq_length=16", "--max_predictions_per_seq=4",
      "--train_batch_size=4", "--eval_batch_size=4", "--log_steps=1",
      "--num_warmup_steps=1", *args)


def steps_evaluated(folder):
  rows = (folder / "eval_history.tsv").read_text().splitlines()
  return [row.split("\t")[0] for row in rows[1:]]


def test_a_step_back_with_all_paths_as_urls(work, caplog):
  folder = work / "back"
  args = ["file://%s" % work, "file://%s" % folder, "--do_train",
          "--save_checkpoints_steps=2", "--eval_input_file=file://%s" % (
              work / "heldout.tfrecord")]
  pretrain(*args, "--num_train_steps=6")
  assert steps_evaluated(folder) == ["2", "4", "6"]
  first = outputs.read_results(str(folder / "eval_results.txt"))
  # The file `checkpoint` goes on naming the checkpoint of step 6.
  for path in folder.glob("model.ckpt-6.*"):
    path.unlink()
  (folder / "model.ckpt-4.data-00000-of-00001").unlink()
  with caplog.at_level(logging.INFO, "absl"):
    pretrain(*args, "--num_train_steps=5", "--export_dir=file://%s" % (
        work / "export"))
  assert "resuming from step 2 of" in caplog.text
  assert steps_evaluated(folder) == ["2", "4", "5"]
  assert outputs.read_results(str(folder / "eval_results.txt")) != first
  best = checkpoints.latest_checkpoint(str(folder / "best"))
  results = outputs.read_results(str(folder / "best" / "eval_results.txt"))
  assert checkpoints.step_of(best) == results["global_step"] <= 5
  assert tf.train.load_variable(best, "global_step") == results["global_step"]
  assert list((work / "export").glob("*/saved_model.pb"))
  (folder / "eval_results.txt").unlink()
  pretrain(*args[:2], "--do_eval", args[-1])
  assert outputs.read_results(
      str(folder / "eval_results.txt"))["global_step"] == 5


def test_a_damaged_file_is_named_when_it_is_met(work, capfd):
  for name in ("train-0", "train-1", "heldout"):
    (work / ("damaged-%s.tfrecord" % name)).write_bytes(
        (work / (name + ".tfrecord")).read_bytes())
  expected = {}
  for name, good in (("damaged-train-1", 20), ("damaged-heldout", 10)):
    path = work / (name + ".tfrecord")
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(data[:middle] + b"?" + data[middle + 1:])
    expected[name] = "%s: damaged after %d records" % (path, good)
  args = ["--input_file=%s/damaged-train-*" % work, "--num_train_steps=20",
          "--save_checkpoints_steps=20", "--shuffle_buffer=1"]
  heldout = "--eval_input_file=%s/damaged-heldout.tfrecord" % work

  def expect(name, *args):
    with pytest.raises(errors.InputError) as raised:
      pretrain(work, work / "damaged", *args)
    assert str(raised.value).startswith(expected[name]), raised.value

  expect("damaged-train-1", "--do_train", *args)
  expect("damaged-heldout", "--do_eval", heldout)
  pretrain(work, work / "damaged", "--do_train", heldout,
           "--skip_corrupt_records", *args)
  log = capfd.readouterr().err
  assert log.count(expected["damaged-train-1"]) >= 1
  assert log.count(expected["damaged-heldout"]) == 1
  with pytest.raises(errors.InputError, match="damaged-train-1.tfrecord: not a "
                     "readable tfrecord file after 20 records"):
    pretrain(work, work / "damaged", "--do_train", "--check_records", *args)


@pytest.mark.parametrize("args, message", [
    (["--do_train", "--bert_config_file="],
     "--bert_config_file is required: a model from scratch needs it"),
    (["--do_train", "--early_stop_evals=2"],
     "without --do_train and --eval_input_file, .* --early_stop_evals"),
    (["--do_eval", "--export_dir=x"], "without --do_train, .* --export_dir"),
    (["--do_train", "--tpu_name=x"], "without --use_tpu, .* --tpu_name")])
def test_flags_that_would_mislead_are_errors(work, args, message):
  with pytest.raises(errors.InputError, match=message):
    pretrain(work, work / "none", *args)
  assert not (work / "none").exists()


def test_flags_that_do_nothing_are_warned_of(work, caplog, monkeypatch):
  monkeypatch.setattr(
      tf.config.experimental, "list_physical_devices", lambda kind: [])
  with pytest.raises(errors.InputError, match="nothing to do"):
    pretrain(work, work / "none", "--use_fp16", "--num_tpu_cores=8",
             "--recompute_grads", "--max_eval_steps=3", "--norecompute_grads")
  assert [record.getMessage() for record in caplog.records] == [
      "without --do_train, there is no effect of --train_batch_size",
      "without --use_tpu, there is no effect of --num_tpu_cores",
      "without a GPU, there is no effect of --use_fp16",
      "without --do_train, there is no effect of --num_warmup_steps",
      "without --do_eval or --eval_input_file, there is no effect of "
      "--max_eval_steps, --eval_batch_size"]


def test_the_default_rate_is_that_of_the_default_batch():
  rate = 0.00176 * math.sqrt(BatchSettings().train_batch_size / 4096)
  assert run_pretraining.DEFAULTS["learning_rate"][0] == pytest.approx(
      rate, rel=0.01)
  assert run_pretraining.DEFAULTS["optimizer"] == "lamb"


@pytest.fixture(scope="module")
def growing(work):
  """A folder with one record many times, and models of up to three layers.

  So each batch is the same one, in whatever order records are read.
  """
  folder = work / "growing"
  folder.mkdir()
  write_records(folder / "one.tfrecord", 1)
  record, = tf.python_io.tf_record_iterator(str(folder / "one.tfrecord"))
  for name in ("train", "heldout"):
    records.write_records(str(folder / (name + ".tfrecord")), [record] * 8)
  for layers in (1, 2, 3):
    for name, rate in (("%d.json", 0.0), ("dropout_%d.json", 0.1)):
      (folder / (name % layers)).write_text(json.dumps(dict(
          SIZES, num_hidden_layers=layers, initializer_range=0.4,
          hidden_dropout_prob=rate, attention_probs_dropout_prob=rate)))
  return folder


def grow(growing, output_dir, *args):
  return ["--do_train", "--output_dir=%s" % (growing / output_dir),
          "--bert_config_file=%s/3.json" % growing,
          "--input_file=%s/train.tfrecord" % growing,
          "--eval_input_file=%s/heldout.tfrecord" % growing,
          "--max_seq_length=16", "--max_predictions_per_seq=4",
          "--train_batch_size=4", "--eval_batch_size=4", "--log_steps=1",
          "--num_warmup_steps=0", "--optimizer=adamw", "--learning_rate=0.01",
          "--num_train_steps=9", "--grow_layers=1:3,2:6",
          "--save_checkpoints_steps=2", "--keep_checkpoint_max=20", *args]


def losses(log):
  """Returns the loss of each step that a log has: dict, step -> float."""
  return {int(step): float(loss) for step, loss in re.findall(
      r"step (\d+)/\d+ \| last 1: loss ([\d.]+) ", log)}


@pytest.fixture(scope="module")
def grown(growing):
  """The losses of a run that was not interrupted."""
  _, log = succeed("run_pretraining.py", *grow(growing, "grown"))
  found = losses(log)
  assert sorted(found) == list(range(1, 10))
  return found


def test_a_deeper_model_begins_with_the_weights_of_the_shallower(
    growing, grown):
  @functools.lru_cache(maxsize=None)
  def loss(step, layers):
    """Of all layers at once, for the weights of a step."""
    folder = growing / ("evaluated_%d_%d" % (step, layers))
    call_main(
        run_pretraining, "--do_eval", "--output_dir=%s" % folder,
        "--init_checkpoint=%s/grown/model.ckpt-%d" % (growing, step),
        "--bert_config_file=%s/%d.json" % (growing, layers),
        "--input_file=%s/heldout.tfrecord" % growing, "--max_seq_length=16",
        "--max_predictions_per_seq=4")
    return outputs.read_results(str(folder / "eval_results.txt"))["loss"]

  for step, layers in ((2, 1), (3, 2), (5, 2), (6, 3), (8, 3)):
    assert grown[step + 1] == pytest.approx(loss(step, layers), abs=2e-4)
  for step, layers in ((3, 1), (3, 3), (6, 2)):
    assert abs(grown[step + 1] - loss(step, layers)) > 0.001
  # Each checkpoint was evaluated as deep as it was trained.
  rows = (growing / "grown" / "eval_history.tsv").read_text().splitlines()
  history = {int(row.split("\t")[0]): float(row.split("\t")[
      rows[0].split("\t").index("loss")]) for row in rows[1:]}
  assert sorted(history) == [2, 3, 5, 6, 8, 9]
  for step, layers in ((2, 1), (3, 1), (5, 2), (6, 2), (8, 3), (9, 3)):
    assert history[step] == pytest.approx(loss(step, layers), rel=1e-5)


def kill_at(step, *args):
  """Kills a training when it logs a step."""
  process = subprocess.Popen(command("run_pretraining.py", *args),
                             stderr=subprocess.PIPE)
  for line in process.stderr:
    assert not line.startswith(b"ERROR"), line
    if b"step %d/" % step in line:
      break
  process.send_signal(signal.SIGKILL)
  process.wait()


def test_the_best_is_never_of_a_shallower_model(growing):
  """Not where it has the least loss, nor after kills."""
  folder = growing / "best_of"
  # It gets worse from the first step on.
  args = grow(growing, "best_of", "--learning_rate=0.5",
              "--save_checkpoints_steps=1", "--grow_layers=1:4")
  kill_at(4, *args)
  assert (folder / "eval_history.tsv").exists()
  assert not (folder / "best").exists()
  kill_at(6, *args)
  succeed("run_pretraining.py", *args)
  rows = (folder / "eval_history.tsv").read_text().splitlines()
  column = rows[0].split("\t").index("masked_lm_loss")
  history = {int(row.split("\t")[0]): float(row.split("\t")[column])
             for row in rows[1:]}
  assert min(history, key=history.get) <= 4
  deep = {step: loss for step, loss in history.items() if step > 4}
  best = outputs.read_results(str(folder / "best" / "eval_results.txt"))
  assert best["global_step"] == min(deep, key=deep.get)
  assert checkpoints.step_of(checkpoints.latest_checkpoint(
      str(folder / "best"))) == best["global_step"]


def test_a_killed_run_goes_on_in_the_middle_of_a_stage(growing):
  def args(name):
    return grow(growing, name, "--save_checkpoints_steps=1",
                "--bert_config_file=%s/dropout_3.json" % growing,
                "--eval_input_file=")

  _, log = succeed("run_pretraining.py", *args("whole"))
  expected = losses(log)
  kill_at(5, *args("killed"))
  _, log = succeed("run_pretraining.py", *args("killed"))
  start = int(re.search(r"resuming from step (\d+)", log).group(1))
  assert 3 < start < 6
  found = losses(log)
  assert sorted(found) == list(range(start + 1, 10))
  assert found == pytest.approx({step: expected[step] for step in found},
                                abs=2e-4)


@pytest.mark.parametrize("value", [
    "1", "1:", ":4", "one:4", "1:4,", "1:4;2:6", "1:-4", "1.5:4", "1:4:6"])
def test_growth_that_cannot_be_read(growing, value):
  with pytest.raises(errors.InputError, match=(
      "^--grow_layers=%s: write LAYERS:STEP,LAYERS:STEP, such as "
      "1:4000,2:8000$" % re.escape(value))):
    call_main(run_pretraining, *grow(growing, "none",
                                     "--grow_layers=" + value))
  assert not (growing / "none").exists()


@pytest.mark.parametrize("value", [
    "0:4", "2:4,1:6", "1:4,1:6", "1:4,2:4", "1:6,2:4", "3:4", "1:9", "1:0"])
def test_growth_that_does_not_grow(growing, value):
  with pytest.raises(errors.InputError, match=(
      "^--grow_layers=%s: layers and steps must grow, up to 3 layers and step "
      "9$" % value)):
    call_main(run_pretraining, *grow(growing, "none",
                                     "--grow_layers=" + value))
  assert not (growing / "none").exists()


def test_growth_is_refused_in_one_line(growing):
  fail("ERROR: --grow_layers=deep: write LAYERS:STEP", "run_pretraining.py",
       *grow(growing, "none", "--grow_layers=deep"))
  for changes in ({"parameter_sharing": "none"},
                  {"parameter_sharing": "attention"},
                  {"num_hidden_groups": 2}):
    (growing / "unshared.json").write_text(json.dumps(dict(
        SIZES, num_hidden_layers=3, **changes)))
    fail("ERROR: --grow_layers: the layers of this configuration do not share "
         "their parameters", "run_pretraining.py",
         *grow(growing, "none",
               "--bert_config_file=%s/unshared.json" % growing))
  assert not (growing / "none").exists()


def test_training_leaves_a_tpu_only_to_evaluate(work, monkeypatch):
  """A TPU's own check refuses an evaluation without a number of batches."""
  calls = []

  def train(self, input_fn, max_steps, hooks):
    calls.append(("train", max_steps, [type(hook) for hook in hooks]))
    checkpoints.write_checkpoint(
        self.model_dir, "model.ckpt-%d" % max_steps, {"x": np.zeros([])})

  def evaluate(self, input_fn, steps, checkpoint_path):
    stop, _ = self._convert_eval_steps_to_hooks(steps)
    calls.append(("evaluate", stop._num_evals))
    return {"masked_lm_loss": 1.0, "sentence_order_loss": 1.0,
            "global_step": checkpoints.step_of(checkpoint_path)}

  estimator = tf.estimator.tpu.TPUEstimator
  monkeypatch.setattr(estimator, "train", train)
  monkeypatch.setattr(estimator, "evaluate", evaluate)
  args = ["--do_train", "--use_tpu", "--num_tpu_cores=1",
          "--num_train_steps=5", "--save_checkpoints_steps=3"]
  progress = [hooks.ProgressHook]
  pretrain(work, work / "tpu", *args)
  assert calls == [("train", 5, progress)]
  del calls[:]
  heldout = "--eval_input_file=%s/heldout.tfrecord" % work
  pretrain(work, work / "tpu_and_evaluation", heldout, *args)
  assert calls == [("train", 3, progress), ("evaluate", 5),
                   ("train", 5, progress), ("evaluate", 5)]
  del calls[:]
  # Killed after a checkpoint was saved, before it was evaluated.
  history = work / "tpu_and_evaluation" / "eval_history.tsv"
  history.write_text("".join(history.read_text().splitlines(True)[:2]))
  pretrain(work, work / "tpu_and_evaluation", heldout, *args,
           "--num_train_steps=6")
  assert calls == [("evaluate", 5), ("train", 6, progress), ("evaluate", 5)]
  del calls[:]
  pretrain(work, work / "tpu", "--do_eval", "--use_tpu", "--num_tpu_cores=1",
           "--max_eval_steps=2", heldout)
  assert calls == [("evaluate", 2)]


def test_weights_that_a_tpu_finds_not_finite(work, monkeypatch):
  def train(*args, **kwargs):
    raise tf.errors.InvalidArgumentError(
        None, None, "Gradient for bert/x is NaN : Tensor had NaN values")

  monkeypatch.setattr(tf.estimator.tpu.TPUEstimator, "train", train)
  with pytest.raises(errors.InputError, match="not finite after step 0; the "
                     "newest checkpoint with finite weights is none"):
    pretrain(work, work / "nan", "--do_train", "--use_tpu",
             "--num_tpu_cores=1", "--num_train_steps=5")


def test_a_tpu_training_makes_its_graph(work, monkeypatch):
  """As far as a graph goes without a TPU."""
  scalars = []

  def build(self, input_fn, hooks, saving_listeners):
    with tf.Graph().as_default():
      self._create_and_assert_global_step(tf.get_default_graph())
      spec = self._call_model_fn(
          self._call_input_fn(input_fn, tf.estimator.ModeKeys.TRAIN), None,
          tf.estimator.ModeKeys.TRAIN, self.config)
      tf.add_to_collection(tf.GraphKeys.LOSSES, spec.loss)
      hooks[0].begin()
      scalars.extend(hooks[0]._of_host)
      assert spec.loss is hooks[0]._scalars["loss"]
      assert len([v for v in tf.local_variables()
                  if v.op.name.startswith("host_call/")]) == 7
      assert not [v for v in tf.global_variables() if "host_call" in v.op.name]

  monkeypatch.setattr(tf.estimator.tpu.TPUEstimator, "_train_model", build)
  pretrain(work, work / "graph", "--do_train", "--use_tpu", "--num_tpu_cores=1",
           "--num_train_steps=5")
  assert scalars == [
      "loss", "masked_lm_loss", "masked_lm_accuracy", "sentence_order_loss",
      "sentence_order_accuracy", "learning_rate", "host_step"]
