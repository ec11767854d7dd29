"""What a script makes has with it what the next one needs to know.

No flag says a vocabulary, a case or a length twice.
"""

import json
import random
import shutil

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from scripting import SIZES, fail, results, succeed
from test_sentencepiece import spm_file  # noqa: F401

import tokenization

pytestmark = [pytest.mark.slow, pytest.mark.once]

WORDS = ["Apple", "apple", "BANK", "bank", "天", "地", "玄", "黄"]
TOKENS = list(tokenization.SPECIAL_TOKENS) + WORDS
RECORDS = ["--max_seq_length=24", "--max_predictions_per_seq=4",
           "--dupe_factor=2", "--non_chinese"]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
  """A folder with text, a vocabulary that tells capitals apart, a task."""
  folder = tmp_path_factory.mktemp("handed_on")
  rng = random.Random(0)
  (folder / "text.txt").write_text("\n\n".join(
      "\n".join(" ".join(rng.choices(WORDS, k=8)) for _ in range(6))
      for _ in range(30)), encoding="utf-8")
  (folder / "words.txt").write_text("\n".join(TOKENS), encoding="utf-8")
  (folder / "small.json").write_text(json.dumps(
      dict(SIZES, vocab_size=len(TOKENS))))
  (folder / "task").mkdir()
  for split in ("train", "dev", "test"):
    (folder / "task" / (split + ".tsv")).write_text(
        "text_a\tlabel\n" + "Apple bank\t0\napple BANK 天\t1\n" * 8,
        encoding="utf-8")
  return folder


def make_records(work, name, *args):
  for split in ("train", "heldout"):
    succeed("create_pretraining_data.py", "--input_file=%s" % (
        work / "text.txt"), *RECORDS, *args,
            "--output_file=%s" % (work / name / (split + ".tfrecord")))


def pretrain(work, name, *args):
  return ["run_pretraining.py", "--do_train", "--num_train_steps=2",
          "--num_warmup_steps=1", "--train_batch_size=4",
          "--input_file=%s" % (work / name / "train.tfrecord"),
          "--eval_input_file=%s" % (work / name / "heldout.tfrecord"),
          "--bert_config_file=%s" % (work / "small.json"), *args]


@pytest.fixture(scope="module")
def pretrained(work):
  """A pretrained model; not told the vocabulary, nor what case text has."""
  make_records(work, "records", "--vocab_file=%s" % (work / "words.txt"),
               "--nodo_lower_case")
  succeed(*pretrain(work, "records", "--output_dir=%s" % (work / "pretrained")))
  return work / "pretrained"


def read_json(path):
  return json.loads(path.read_text(encoding="utf-8"))


def texts_in(records):
  """Returns the tokens of a record file, a list of str."""
  texts = []
  for record in tf.python_io.tf_record_iterator(str(records)):
    feature = tf.train.Example.FromString(record).features.feature
    texts.append(" ".join(
        TOKENS[i] for i in feature["input_ids"].int64_list.value))
  return texts


def classify(work, name, *args):
  return ["run_classifier.py", "--task_name=tsv", "--train_batch_size=4",
          "--data_dir=%s" % (work / "task"), "--num_train_epochs=1",
          "--output_dir=%s" % (work / name), *args]


def test_a_cased_model_from_text_to_predictions(work, pretrained):
  text = (work / "words.txt").read_bytes()
  assert (work / "records" / "vocab.txt").read_bytes() == text
  for folder in (pretrained, pretrained / "best"):
    assert read_json(folder / "task.json") == {
        "max_seq_length": 24, "do_lower_case": False}
    assert (folder / "vocab.txt").read_bytes() == text
  succeed(*classify(
      work, "tuned", "--do_train", "--do_eval", "--do_predict",
      "--init_checkpoint=%s" % (pretrained / "best"), "--max_seq_length=5"))
  best = work / "tuned" / "best"
  task = read_json(best / "task.json")
  assert (task["do_lower_case"], task["max_seq_length"]) == (False, 5)
  assert (best / "vocab.txt").read_bytes() == text
  for split in ("train", "dev", "test"):
    assert set(texts_in(work / "tuned" / (split + ".tf_record"))) == {
        "[CLS] Apple bank [SEP]", "[CLS] apple BANK 天 [SEP]"}
  succeed("extract_features.py", "--init_checkpoint=%s" % best,
          "--input_file=%s" % (work / "words.txt"),
          "--output_file=%s" % (work / "vectors.npy"))
  vectors = np.load(str(work / "vectors.npy"))
  assert np.abs(vectors[TOKENS.index("Apple")] -
                vectors[TOKENS.index("apple")]).max() > 1e-3


def test_length_without_training_is_that_of_the_model(work, pretrained):
  """Evaluated and predicted with three tokens a text, as trained."""
  succeed(*classify(
      work, "short", "--do_train", "--do_eval", "--max_seq_length=3",
      "--init_checkpoint=%s" % (pretrained / "best")))
  best = "--init_checkpoint=%s" % (work / "short" / "best")
  succeed(*classify(work, "again", "--do_eval", "--do_predict", best))
  assert set(texts_in(work / "again" / "test.tf_record")) == {
      "[CLS] Apple [SEP]", "[CLS] apple [SEP]"}
  found, before = [results(folder) for folder in (
      work / "again", work / "short" / "best")]
  assert found["eval_loss"] == pytest.approx(before["eval_loss"], rel=1e-5)
  succeed(*classify(work, "longer", "--do_predict", best,
                    "--max_seq_length=4"))
  assert "[CLS] apple BANK [SEP]" in texts_in(
      work / "longer" / "test.tf_record")
  # What is trained is as long as its own default.
  succeed(*classify(work, "default", "--do_train", best))
  assert read_json(work / "default" / "task.json")["max_seq_length"] == 128


def test_contradictions_are_errors(work, pretrained):
  out = "--output_dir=%s" % (work / "bad")
  best = "--init_checkpoint=%s" % (pretrained / "best")
  (work / "other.txt").write_text("\n".join(TOKENS[:-1] + ["宇"]),
                                  encoding="utf-8")
  other = "--vocab_file=%s" % (work / "other.txt")
  fail("train.tfrecord was made with do_lower_case False, but the model has "
       "True", *pretrain(work, "records", out, "--do_lower_case"))
  fail("other.txt is not the vocabulary that .*train.tfrecord was made with: "
       "give that as --vocab_file", *pretrain(work, "records", out, other))
  fail("other.txt is not the vocabulary that the model was made with, "
       ".*vocab.txt: leave the flag out",
       *classify(work, "bad", "--do_train", best, other))
  fail("--do_lower_case is True, but the model .* was made with False",
       *classify(work, "bad", "--do_train", best, "--do_lower_case"))
  # The records' own copy of the vocabulary is gone.
  shutil.copytree(str(work / "records"), str(work / "alone"))
  (work / "alone" / "vocab.txt").unlink()
  _, log = succeed(*pretrain(work, "alone", "--output_dir=%s" % (
      work / "without")))
  assert ("train.tfrecord is not known, so it will not be next to the model: "
          "give --vocab_file") in log
  assert not (work / "without" / "vocab.txt").exists()
  fail("--vocab_file or --spm_model_file is required", *classify(
      work, "bad", "--do_train", "--init_checkpoint=%s" % (work / "without")))
  assert not (work / "bad").exists()
  # Other records next to it are not of that vocabulary.
  fail("vocab.txt is a different vocabulary than .*other.txt: choose a "
       "different folder", "create_pretraining_data.py", *RECORDS, other,
       "--input_file=%s" % (work / "text.txt"),
       "--output_file=%s" % (work / "records" / "more.tfrecord"))


def test_sentencepiece(work, spm_file):  # noqa: F811
  (work / "small_spm.json").write_text(json.dumps(dict(
      SIZES, vocab_size=tokenization.SentencePieceTokenizer(
          spm_file).vocab_size)))
  make_records(work, "spm", "--spm_model_file=%s" % spm_file)
  succeed(*pretrain(work, "spm", "--output_dir=%s" % (work / "pretrained_spm"),
                    "--bert_config_file=%s" % (work / "small_spm.json")))
  best = work / "pretrained_spm" / "best"
  with open(spm_file, "rb") as reader:
    assert (best / "spm.model").read_bytes() == reader.read()
  assert read_json(best / "task.json")["do_lower_case"]
  succeed(*classify(work, "tuned_spm", "--do_train", "--do_predict",
                    "--init_checkpoint=%s" % best))
  assert (work / "tuned_spm" / "spm.model").exists()
