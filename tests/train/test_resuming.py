"""What was killed and goes on is, bit by bit, what nothing stopped."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from scripting import kill_at, succeed
from small_steps import write_pretraining
from trained_models import command


@pytest.mark.full
@pytest.mark.parametrize("name", ["labels", "entities", "pretraining"])
def test_three_kills_change_nothing(name, tmp_path):
  args = command(tmp_path, name) if name != "pretraining" else [
      "run_pretraining.py", *write_pretraining(tmp_path, 21),
      "--train_batch_size=4", "--num_warmup_steps=3", "--shuffle_buffer=8"]
  args += ["--do_train", "--num_train_steps=27", "--save_checkpoints_steps=5",
           "--log_steps=1", "--learning_rate=1e-3"]
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
