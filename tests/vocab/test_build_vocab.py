"""Vocabularies from `build` work like released ones."""

import gzip
import subprocess
import sys

import pytest
from scripting import ROOT, fail, succeed

import tokenization

TEXT = ROOT / "data" / "text_train.txt"


def build(folder, files, *args):
  """Builds a vocabulary; returns its tokenizer."""
  path = str(folder / "vocab.txt")
  succeed(
    "albert/vocab/build.py",
    "--input_file=%s" % files,
    "--output_file=" + path,
    *args,
  )
  return tokenization.WordPieceTokenizer(path)


def test_wordpiece(tmp_path):
  (tmp_path / "a.txt").write_text(
    "Running running RUNNING, runs 跑步 café Walking walking\n" * 3,
    encoding="utf-8",
  )
  (tmp_path / "b.txt.gz").write_bytes(
    gzip.compress(("跳 talking talking\n" * 3).encode())
  )
  tokenizer = build(tmp_path, tmp_path / "[ab].txt*", "--vocab_size=60")
  tokens = list(tokenizer.vocab)
  assert tuple(tokens[:5]) == tokenization.SPECIAL_TOKENS
  assert len(tokens) <= 60
  assert {"跑", "步", "跳", "running", "cafe", "walking", ",", "##s"} < set(
    tokens
  )
  assert not tokenizer.words
  assert not {"跑步", "##步", "Running", "café"} & set(tokens)
  assert tokenizer.tokenize("跑步 RUNNING, talking") == [
    "跑",
    "步",
    "running",
    ",",
    "talking",
  ]
  cased = build(
    tmp_path, tmp_path / "a.txt", "--vocab_size=200", "--nodo_lower_case"
  )
  assert {"RUNNING", "Running", "café"} < set(cased.vocab)


def test_wordpiece_of_the_sample_text(tmp_path):
  tokenizer = build(tmp_path, TEXT)
  lines = TEXT.read_text(encoding="utf-8").split("\n")
  unknown = sum(tokenizer.tokenize(line).count("[UNK]") for line in lines)
  # Only characters that occur once.
  assert unknown < 0.01 * sum(map(len, lines))


@pytest.mark.slow
def test_sentencepiece(tmp_path):
  path = tmp_path / "spm.model"
  args = [
    "build",
    "--input_file=%s" % TEXT,
    "--output_file=%s" % path,
    "--kind=sentencepiece",
    "--vocab_size=2500",
  ]
  for words, status, said in (
    ([*args, "--vocab_size=90000"], 1, ""),
    (["make"], 1, "build or extend"),
    (args, 0, "spm.model: 2500 entries\n"),
  ):
    # In a subprocess: SentencePiece crashes if TensorFlow is loaded.
    done = subprocess.run(
      [sys.executable, "-m", "albert.vocab", *words],
      cwd=str(ROOT),
      stderr=subprocess.PIPE,
      text=True,
    )
    assert done.returncode == status and said in done.stderr
  tokenizer = tokenization.SentencePieceTokenizer(str(path))
  assert tokenizer.convert_ids_to_tokens(range(5)) == [
    "<pad>",
    "<unk>",
    "[CLS]",
    "[SEP]",
    "[MASK]",
  ]
  # "[MASK]" in a text is not a special piece.
  assert tokenizer.mask_id not in tokenizer.convert_tokens_to_ids(
    tokenizer.tokenize_plain("今天[MASK]")
  )
  assert tokenizer.unk_id not in tokenizer.convert_tokens_to_ids(
    tokenizer.tokenize(TEXT.read_text(encoding="utf-8").split("\n")[0])
  )


@pytest.mark.parametrize(
  "args, message",
  [
    (["--input_file="], "^--input_file"),
    (["--input_file=nothing*"], "^--input_file: .*nothing"),
    (["--input_file=empty.txt"], "empty.txt"),
    (["--input_file=gbk.txt"], "gbk.txt: .*UTF-8"),
    (["--input_file=cut.txt.gz"], "cut.txt.gz: damaged"),
    (["--vocab_size=100"], "^--vocab_size=100: .*[0-9]{4}$"),
    (["--kind=sentencepiece"], "^--output_file=out.txt: .*[.]model"),
  ],
)
def test_bad_input(args, message, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "empty.txt").write_text("\n \n")
  (tmp_path / "gbk.txt").write_bytes("很好\n".encode("gbk") * 99)
  (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(b"a\n" * 9999)[:-9])
  fail(
    message,
    "albert/vocab/build.py",
    "--output_file=out.txt",
    "--input_file=%s" % TEXT,
    *args,
  )
  assert not (tmp_path / "out.txt").exists()
