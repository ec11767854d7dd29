"""What was killed and goes on is, bit by bit, what nothing stopped."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from scripting import VOCAB, kill_at, succeed
from small_steps import write_pretraining
from trained_models import KINDS, LENGTH, write_files


def command(name, folder):
  """Returns a training of 27 steps, whose checkpoints are 5 steps apart."""
  common = ["--do_train", "--train_batch_size=4", "--log_steps=1",
            "--save_checkpoints_steps=5", "--learning_rate=1e-3"]
  if name == "pretraining":
    return ["run_pretraining.py", *write_pretraining(folder, 21), *common,
            "--num_train_steps=27", "--num_warmup_steps=3",
            "--shuffle_buffer=8"]
  kind, (_, data) = KINDS[name], write_files(folder, name)
  return [kind.script, "--task_name=" + kind.task, VOCAB, *data, *common,
          *kind.flags, "--num_train_steps=27",
          "--bert_config_file=%s" % (folder / "small.json"),
          "--max_seq_length=%d" % LENGTH]


@pytest.mark.full
@pytest.mark.parametrize("name", ["labels", "entities", "pretraining"])
def test_three_kills_change_nothing(name, tmp_path):
  args = command(name, tmp_path)
  whole, killed = tmp_path / "whole", tmp_path / "killed"
  succeed(*args, "--output_dir=%s" % whole)
  for step in (7, 4, 3):  # of this start
    kill_at(step, *args, "--output_dir=%s" % killed)
  succeed(*args, "--output_dir=%s" % killed)
  names = [name for name, _ in tf.train.list_variables(str(whole))]
  assert len(names) > 20
  for variable in names:
    np.testing.assert_array_equal(*[
        tf.train.load_variable(str(folder), variable)
        for folder in (whole, killed)], err_msg=variable)
