"""build_vocab.py: what it makes is read as released vocabularies are."""

import gzip
import sys

import pytest
import scripting
from scripting import ROOT, fail

import tokenization

pytestmark = pytest.mark.slow

TEXT = ROOT / "data" / "text_train.txt"


def build(*args):
  # Not the quick python: it has TensorFlow, beside which SentencePiece crashes.
  return scripting.succeed("build_vocab.py", *args, python=sys.executable)


def make_records(tmp_path, *vocabulary):
  scripting.succeed(
      "create_pretraining_data.py", "--input_file=%s" % TEXT, "--dupe_factor=1",
      "--output_file=%s" % (tmp_path / "records"), "--max_seq_length=64",
      "--max_predictions_per_seq=10", *vocabulary)
  assert (tmp_path / "records").stat().st_size > 10000


def test_wordpiece(tmp_path):
  path = tmp_path / "vocab.txt"
  (tmp_path / "a.txt").write_text("Running running RUNNING, runs 跑步 café "
                                  "Walking walking\n" * 3, encoding="utf-8")
  with gzip.open(str(tmp_path / "b.txt.gz"), "wt", encoding="utf-8") as writer:
    writer.write("跳 talking talking\n" * 3)
  build("--input_file=%s" % (tmp_path / "[ab].txt*"), "--output_file=%s" % path,
        "--vocab_size=60")
  tokenizer = tokenization.WordPieceTokenizer(str(path))
  tokens = list(tokenizer.vocab)
  assert tuple(tokens[:5]) == tokenization.SPECIAL_TOKENS
  assert len(tokens) <= 60
  assert {"跑", "步", "跳", "running", "cafe", "walking", ",", "##s"} < set(
      tokens)
  assert not tokenizer.words
  assert not {"跑步", "##步", "Running", "café"} & set(tokens)
  assert tokenizer.tokenize("跑步 RUNNING, talking") == [
      "跑", "步", "running", ",", "talking"]
  # With its case.
  build("--input_file=%s" % (tmp_path / "a.txt"), "--output_file=%s" % path,
        "--vocab_size=200", "--nodo_lower_case")
  assert {"RUNNING", "Running", "café"} < set(
      tokenization.load_vocab(str(path)))


def test_wordpiece_makes_records(tmp_path):
  path = tmp_path / "vocab.txt"
  build("--input_file=%s" % TEXT, "--output_file=%s" % path)
  tokenizer = tokenization.WordPieceTokenizer(str(path))
  lines = TEXT.read_text(encoding="utf-8").split("\n")
  unknown = sum(tokenizer.tokenize(line).count("[UNK]") for line in lines)
  # Characters that occur once.
  assert unknown < 0.01 * sum(map(len, lines))
  make_records(tmp_path, "--vocab_file=%s" % path)


def test_sentencepiece(tmp_path):
  path = tmp_path / "spm.model"
  build("--input_file=%s" % TEXT, "--output_file=%s" % path,
        "--kind=sentencepiece", "--vocab_size=2500")
  tokenizer = tokenization.SentencePieceTokenizer(str(path))
  assert tokenizer.vocab_size == 2500
  assert tokenizer.convert_ids_to_tokens(range(5)) == [
      "<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
  # A text's own "[MASK]" is no special piece.
  assert tokenizer.mask_id not in tokenizer.convert_tokens_to_ids(
      tokenizer.tokenize_plain("今天[MASK]"))
  assert tokenizer.unk_id not in tokenizer.convert_tokens_to_ids(
      tokenizer.tokenize(TEXT.read_text(encoding="utf-8").split("\n")[0]))
  make_records(tmp_path, "--spm_model_file=%s" % path)


def test_bad_input(tmp_path):
  def fails(message, *args):
    fail(message, "build_vocab.py", "--output_file=%s" % (tmp_path / "out.txt"),
         *args, python=sys.executable)
    assert not (tmp_path / "out.txt").exists()

  empty = tmp_path / "empty.txt"
  empty.write_text("\n \n")
  text = "--input_file=%s" % TEXT
  fails("--input_file is required")
  fails("no file matches .*nothing", "--input_file=%s/nothing*" % tmp_path)
  fails("there is no text in .*empty.txt", "--input_file=%s" % empty)
  fails("--vocab_size=100: the characters of the text need [0-9]+$", text,
        "--vocab_size=100")
  fails("ends in .model", text, "--kind=sentencepiece")
  fails("vocab_size=90000: Vocabulary size too high .*[0-9]+\\.$", text,
        "--kind=sentencepiece", "--vocab_size=90000",
        "--output_file=%s" % (tmp_path / "out.model"))
  empty.write_bytes("很好\n".encode("gbk") * 99)
  fails("not UTF-8", "--input_file=%s" % empty)
