"""What `build` makes is read as released vocabularies are."""

import gzip
import subprocess
import sys

import pytest
from scripting import ROOT, fail, succeed

import tokenization

TEXT = ROOT / "data" / "text_train.txt"


def test_wordpiece(tmp_path):
  path = tmp_path / "vocab.txt"
  (tmp_path / "a.txt").write_text("Running running RUNNING, runs 跑步 café "
                                  "Walking walking\n" * 3, encoding="utf-8")
  with gzip.open(str(tmp_path / "b.txt.gz"), "wt", encoding="utf-8") as writer:
    writer.write("跳 talking talking\n" * 3)
  succeed("albert/vocab/build.py", "--input_file=%s" % (tmp_path / "[ab].txt*"),
          "--output_file=%s" % path, "--vocab_size=60")
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
  succeed("albert/vocab/build.py", "--input_file=%s" % (tmp_path / "a.txt"),
          "--output_file=%s" % path, "--vocab_size=200", "--nodo_lower_case")
  assert {"RUNNING", "Running", "café"} < set(
      tokenization.load_vocab(str(path)))


def test_wordpiece_of_the_sample_text(tmp_path):
  path = tmp_path / "vocab.txt"
  succeed("albert/vocab/build.py", "--input_file=%s" % TEXT,
          "--output_file=%s" % path)
  tokenizer = tokenization.WordPieceTokenizer(str(path))
  lines = TEXT.read_text(encoding="utf-8").split("\n")
  unknown = sum(tokenizer.tokenize(line).count("[UNK]") for line in lines)
  # Characters that occur once.
  assert unknown < 0.01 * sum(map(len, lines))


@pytest.mark.slow
def test_sentencepiece(tmp_path):
  path = tmp_path / "spm.model"
  args = ["--input_file=%s" % TEXT, "--output_file=%s" % path,
          "--kind=sentencepiece", "--vocab_size=2500"]
  # In a process of its own: beside TensorFlow, SentencePiece crashes.
  def run(*words):
    return subprocess.run(
        [sys.executable, "-m", "albert.vocab", *words], cwd=str(ROOT),
        stderr=subprocess.PIPE, text=True)

  assert run("build", *args, "--vocab_size=90000").returncode == 1
  done = run("build", *args)
  assert not done.returncode
  assert done.stderr.endswith("spm.model: 2500 entries\n")
  assert "give build or extend" in run("make").stderr
  tokenizer = tokenization.SentencePieceTokenizer(str(path))
  assert tokenizer.vocab_size == 2500
  assert tokenizer.convert_ids_to_tokens(range(5)) == [
      "<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
  # A text's own "[MASK]" is no special piece.
  assert tokenizer.mask_id not in tokenizer.convert_tokens_to_ids(
      tokenizer.tokenize_plain("今天[MASK]"))
  assert tokenizer.unk_id not in tokenizer.convert_tokens_to_ids(
      tokenizer.tokenize(TEXT.read_text(encoding="utf-8").split("\n")[0]))


@pytest.mark.parametrize("args, message", [
    (["--input_file="], "^--input_file"),
    (["--input_file=nothing*"], "^--input_file: .*nothing"),
    (["--input_file=empty.txt"], "empty.txt"),
    (["--input_file=gbk.txt"], "gbk.txt: .*UTF-8"),
    (["--input_file=cut.txt.gz"], "cut.txt.gz: damaged"),
    (["--vocab_size=100"], "^--vocab_size=100: .*[0-9]{4}$"),
    (["--kind=sentencepiece"], "^--output_file=out.txt: .*[.]model")])
def test_bad_input(args, message, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "empty.txt").write_text("\n \n")
  (tmp_path / "gbk.txt").write_bytes("很好\n".encode("gbk") * 99)
  (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(b"a\n" * 9999)[:-9])
  fail(message, "albert/vocab/build.py", "--output_file=out.txt",
       "--input_file=%s" % TEXT, *args)
  assert not (tmp_path / "out.txt").exists()
