"""Published commands, verbatim, with small models and few steps."""

import json
import os
import pathlib
import re
import shlex
import shutil

import pytest
from absl import flags
from reading import json_lines
from scripting import ROOT, SIZES, parsed, results, succeed

from albert.files import checkpoints

# Appended: the last of repeated flags wins.
RECORDS = " --max_seq_length=32 --max_predictions_per_seq=5"
SMALL = {
  "run_pretraining.py": " --train_batch_size=8 --eval_batch_size=8 "
  "--num_train_steps=2 --num_warmup_steps=1" + RECORDS,
  "run_classifier.py": " --max_seq_length=16 --train_batch_size=8 "
  "--num_train_epochs=1 --max_train_examples=64 "
  "--save_checkpoints_steps=4",
  "create_pretraining_data.py": RECORDS + " --dupe_factor=1",
  "extract_features.py": " --max_seq_length=16",
}

# (comment, script, flags).
COMMANDS = re.findall(
  r"^(?:# (.*)\n)?python3? (\S+) (.*)$",
  pathlib.Path(__file__).with_name("published_commands.txt").read_text("utf-8"),
  re.M,
)


@pytest.mark.parametrize("_, script, words", COMMANDS)
def test_a_command_is_understood(_, script, words):
  words = shlex.split(words)
  with parsed(script, *words):
    for word in words:
      name = word.lstrip("-").split("=")[0]
      # Flags without effect are dropped with a warning.
      assert name not in flags.FLAGS or flags.FLAGS[name].present


@pytest.mark.full
@pytest.mark.platform_independent("flags")
def test_they_run(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  model = tmp_path / "albert_tiny_zh"
  monkeypatch.setenv("BERT_BASE_DIR", str(model))
  monkeypatch.setenv("TEXT_DIR", str(ROOT / "tests" / "pairs"))
  shutil.copytree(str(ROOT / "albert_config"), str(model))
  for path in model.glob("*.json"):
    config = dict(json.loads(path.read_text()), **SIZES)
    if path.name.startswith("bert"):
      del config["embedding_size"]
    path.write_text(json.dumps(config))
  (tmp_path / "albert_config").symlink_to(model)
  shutil.copytree(str(ROOT / "data"), str(tmp_path / "data"))
  (tmp_path / "tmp").mkdir()
  succeed(
    "create_pretraining_data.py",
    *RECORDS.split(),
    "--dupe_factor=1",
    "--input_file=data/text_heldout.txt",
    "--output_file=data/tf1.tfrecord",
    "--vocab_file=albert_config/vocab.txt",
  )
  succeed(
    "run_pretraining.py",
    "--do_train",
    "--num_train_steps=1",
    "--input_file=data/tf1.tfrecord",
    "--output_dir=pretrained",
    "--bert_config_file=albert_config/albert_config_tiny.json",
  )
  checkpoints.write_checkpoint(
    str(model),
    "albert_model.ckpt",
    checkpoints.read_weights(checkpoints.latest_checkpoint("pretrained")),
  )

  logs = {
    about: succeed(
      script, *shlex.split(os.path.expandvars(words + SMALL[script]))
    )[1]
    for about, script, words in COMMANDS
    if about.startswith("run: ")
  }
  log = logs["run: albert_zh, pretraining of tiny"]
  assert log.count("training records") == 1 and "--eval_input_file" in log
  folder = tmp_path / "my_new_model_path"
  assert results(folder)["global_step"] == 2
  assert not (folder / "best").exists()
  assert list((tmp_path / "my_new_model_path_export").glob("*/saved_model.pb"))
  for name in (
    "albert_lcqmc_checkpoints",
    "albert_lcqmc_google",
    "albert_large_lcqmc_checkpoints",
  ):
    assert results(tmp_path / name / "best")["eval_accuracy"] > 0
  # The named checkpoint, not the newest.
  assert results(tmp_path / "lcqmc_output")["global_step"] == 4
  assert (tmp_path / "lcqmc_output" / "test_results.tsv").exists()
  row = json_lines(tmp_path / "tmp" / "output.jsonl")[0]
  assert len(next(iter(row["tokens"][0]["layers"].values()))) == 16
