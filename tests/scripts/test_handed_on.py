"""Vocabulary, case and length carry over from script to script."""

import random

import numpy as np
import pytest
from reading import features, read_json
from scripting import SIZES, parsed, succeed
from small_models import albert_zh_config, write_folder
from vocabularies import SPECIAL
from writing import write

from albert.train import finetuning

WORDS = ["Apple", "apple", "BANK", "bank", "天", "地", "玄", "黄"]
TOKENS = SPECIAL + WORDS


@pytest.mark.full
def test_a_cased_model_from_text_to_predictions(tmp_path):
  """Only the first script gets the flags."""
  rng, words = random.Random(0), write(tmp_path, "words.txt", *TOKENS)
  pretrained, tuned = tmp_path / "pretrained", tmp_path / "tuned"
  records = [str(tmp_path / "records" / name) for name in "ab"]
  _, log = succeed(
    "create_pretraining_data.py",
    "--max_seq_length=24",
    "--dupe_factor=1",
    "--max_predictions_per_seq=4",
    "--non_chinese",
    "--vocab_file=" + words,
    "--nodo_lower_case",
    "--output_file=" + ",".join(records),
    "--input_file="
    + write(
      tmp_path,
      "text.txt",
      *(" ".join(rng.choices(WORDS, k=8)) for _ in range(99)),
      "宇 宙",
    ),
  )
  assert "unknown tokens  2, %.3f%%, [UNK]" % (200 / 794) in log
  succeed(
    "run_pretraining.py",
    "--do_train",
    "--num_train_steps=2",
    "--num_warmup_steps=1",
    "--train_batch_size=4",
    "--input_file=" + records[0],
    "--eval_input_file=" + records[1],
    "--output_dir=%s" % pretrained,
    "--bert_config_file="
    + write(
      tmp_path,
      "small.json",
      dict(SIZES, vocab_size=len(TOKENS), num_hidden_layers=1),
    ),
  )
  for folder in (pretrained, pretrained / "best"):
    assert read_json(folder / "task.json") == {
      "max_seq_length": 24,
      "do_lower_case": False,
      "init_checkpoint": "random weights",
    }
  for split, word in (("train", "天"), ("dev", "宇"), ("test", "地")):
    write(
      tmp_path,
      split + ".tsv",
      "text_a\tlabel",
      *["Apple bank\t0", "apple BANK %s\t1" % word] * 4,
    )
  _, log = succeed(
    "run_classifier.py",
    "--task_name=tsv",
    "--data_dir=%s" % tmp_path,
    "--output_dir=%s" % tuned,
    "--train_batch_size=4",
    "--num_train_epochs=1",
    "--do_train",
    "--do_eval",
    "--do_predict",
    "--max_seq_length=5",
    "--init_checkpoint=%s" % (pretrained / "best"),
  )
  assert (
    read_json(tuned / "best" / "task.json").items()
    >= {"do_lower_case": False, "max_seq_length": 5}.items()
  )
  for split, word, unknown in (
    ("train", "天", 0),
    ("dev", "[UNK]", 1),
    ("test", "地", 0),
  ):
    assert {
      " ".join(TOKENS[i] for i in row["input_ids"])
      for row in features(tuned / (split + ".tf_record"))
    } == {"[CLS] Apple bank [SEP]", "[CLS] apple BANK %s [SEP]" % word}
    assert (
      "%s: 50.0%% of the examples fill --max_seq_length=5; %.2f%%"
      % (split, 100 / 9 * unknown)
      in log
    )
    assert ("of the tokens of %s are [UNK]" % split in log) == bool(unknown)
  succeed(
    "extract_features.py",
    "--init_checkpoint=%s" % (tuned / "best"),
    "--input_file=" + words,
    "--output_file=%s/vectors.npy" % tmp_path,
  )
  vectors = dict(zip(TOKENS, np.load(str(tmp_path / "vectors.npy"))))
  assert np.abs(vectors["Apple"] - vectors["apple"]).max() > 1e-3
  for folder in (tmp_path / "records", pretrained / "best", tuned / "best"):
    assert (folder / "vocab.txt").read_text("utf-8").split("\n") == TOKENS


@pytest.mark.parametrize(
  "given, known, length",
  [
    (["--do_predict"], 5, 5),
    (["--do_eval"], 5, 5),
    (["--do_eval"], None, 7),
    (["--do_predict", "--max_seq_length=8"], 5, 8),
    (["--do_train"], 5, 7),
    (["--do_train", "--max_seq_length=3"], 5, 3),
  ],
)
def test_length(given, known, length, tmp_path):
  """From the model if not training, else from the flag or the default."""
  write_folder(
    tmp_path,
    albert_zh_config(),
    SPECIAL,
    task={"max_seq_length": known} if known else None,
  )
  with parsed(
    "run_classifier.py",
    "--init_checkpoint=%s" % tmp_path,
    "--output_dir=%s" % (tmp_path / "out"),
    *given,
  ):
    settings, _, _ = finetuning.start(default_length=7)
  assert settings.data.max_seq_length == length
