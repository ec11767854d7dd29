r"""Makes a vocabulary from text, for another language or domain.

    python -m albert.vocab build --input_file='my_text/*.txt' \
      --vocab_size=21128 --output_file=vocab.txt
    python -m albert.vocab build --input_file='my_text/*.txt' \
      --vocab_size=30000 --kind=sentencepiece --output_file=spm.model

For a model trained from scratch; `extend` adds words to an existing one. Both
kinds begin with the special tokens, padding first. WordPiece: like BERT's, with
separate Chinese characters. SentencePiece: a unigram model with the special
pieces and the normalization of Google's ALBERT.
"""

import dataclasses
import glob
import gzip
import io
import itertools
from typing import Iterator, Sequence

from absl import logging

import tokenization
from albert import cli
from albert.errors import InputError
from albert.files import filesystem
from albert.settings import NEEDED, USUAL, from_flags, setting


@dataclasses.dataclass(frozen=True)
class VocabSettings:
  """The text and the vocabulary."""

  input_file: str = setting(
    None,
    "Text files, also .gz: globs, separated by commas.",
    NEEDED,
    required=True,
  )
  output_file: str = setting(
    None,
    "File to write; SentencePiece models must end in .model.",
    NEEDED,
    required=True,
  )
  kind: str = setting(
    "wordpiece",
    "Type of vocabulary.",
    NEEDED,
    choices=["wordpiece", "sentencepiece"],
  )
  vocab_size: int = setting(
    21128,
    "Entries, including special tokens; WordPiece may have fewer if "
    "the text has no more.",
    USUAL,
    least=6,
  )
  do_lower_case: bool = setting(
    True, "Whether to lower-case the text and strip accents.", USUAL
  )
  character_coverage: float = setting(
    0.9995,
    "SentencePiece: share of the text whose characters have pieces.",
    least=0.9,
    most=1,
  )


SETTINGS = (VocabSettings,)


def read_lines(paths: Sequence[str]) -> Iterator[str]:
  """Yields the lines of text files.

  Args:
    paths: text files, gzipped if the name ends in `.gz`.

  Raises:
    InputError: a file is damaged or not UTF-8.
  """
  for path in paths:
    number = count_bad = 0
    with filesystem.open_binary(path) as raw:
      try:
        for line in gzip.open(raw) if path.endswith(".gz") else raw:
          text = line.decode("utf-8", "replace").strip()
          number += 1
          count_bad += "\ufffd" in text
          yield text
      except (OSError, EOFError) as error:
        raise InputError("%s: damaged (%s)" % (path, error)) from error
    filesystem.check_encoding(path, number, count_bad)


def wordpiece(lines: Iterator[str], args: VocabSettings) -> bytes:
  """Returns the content of a WordPiece vocabulary file.

  Raises:
    InputError: `vocab_size` is less than the number of characters.
  """
  try:
    import tokenizers
  except ImportError as error:
    raise InputError(
      "tokenizers is not installed: pip install '.[vocab]'"
    ) from error
  model = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
  model.normalizer = tokenizers.normalizers.BertNormalizer(
    lowercase=args.do_lower_case
  )
  model.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
  model.train_from_iterator(
    lines,
    tokenizers.trainers.WordPieceTrainer(
      vocab_size=args.vocab_size,
      min_frequency=2,
      show_progress=False,
      special_tokens=list(tokenization.SPECIAL_TOKENS),
    ),
  )
  ids = model.get_vocab()
  if len(ids) > args.vocab_size:
    raise InputError(
      "--vocab_size=%d: the characters of the text need %d"
      % (args.vocab_size, len(ids))
    )
  tokens = sorted(ids, key=lambda token: ids[token])
  return "".join(token + "\n" for token in tokens).encode()


def sentencepiece(lines: Iterator[str], args: VocabSettings) -> bytes:
  """Returns the content of a SentencePiece model file.

  Raises:
    InputError: SentencePiece cannot train with these settings.
  """
  # Training crashes with TensorFlow 1.15 loaded, so this script avoids it.
  from sentencepiece import SentencePieceTrainer

  model = io.BytesIO()
  try:
    SentencePieceTrainer.Train(
      sentence_iterator=(
        tokenization.sentencepiece_text(line, args.do_lower_case)
        for line in lines
      ),
      model_writer=model,
      vocab_size=args.vocab_size,
      model_type="unigram",
      pad_id=0,
      unk_id=1,
      bos_id=-1,
      eos_id=-1,
      control_symbols=["[CLS]", "[SEP]", "[MASK]"],
      character_coverage=args.character_coverage,
      input_sentence_size=10000000,
      shuffle_input_sentence=True,
      minloglevel=2,
    )
  except RuntimeError as error:
    # A location in SentencePiece's source code precedes the message.
    raise InputError(
      "--vocab_size=%d: %s"
      % (args.vocab_size, str(error).strip().rsplit("] ", 1)[-1])
    ) from error
  return model.getvalue()


def main() -> None:
  args = from_flags(VocabSettings)
  is_model = args.kind == "sentencepiece"
  if args.output_file.endswith(".model") != is_model:
    raise InputError(
      "--output_file=%s: SentencePiece models, and only these, "
      "must end in .model" % args.output_file
    )
  paths = [
    path
    for pattern in args.input_file.split(",")
    for path in sorted(glob.glob(pattern))
  ]
  if not paths:
    raise InputError("--input_file: no file matches %s" % args.input_file)
  lines = filter(None, read_lines(paths))
  first = next(lines, None)
  if not first:
    raise InputError("--input_file: no text in %s" % args.input_file)
  make = sentencepiece if is_model else wordpiece
  content = make(itertools.chain([first], lines), args)
  filesystem.write_bytes(args.output_file, content)
  tokenizer = tokenization.create_tokenizer(
    None if is_model else args.output_file,
    args.output_file if is_model else None,
  )
  logging.info("wrote %s: %d entries", args.output_file, tokenizer.vocab_size)


if __name__ == "__main__":
  cli.run(main, SETTINGS)
