"""What was killed and goes on is, bit by bit, what nothing stopped."""

import pytest
from scripting import kill_at, succeed
from small_steps import assert_equal_variables, write_pretraining
from trained_models import command

from albert.files import checkpoints


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
  one, other = [checkpoints.read_all(checkpoints.latest_checkpoint(str(x)))
                for x in (whole, killed)]
  assert len(one) > 20
  assert_equal_variables(other, one, 0)
