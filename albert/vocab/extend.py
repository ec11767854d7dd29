r"""Adds words to a model's vocabulary and embeddings.

    python -m albert.vocab extend --words_file=words.txt \
      --init_checkpoint=albert_tiny_starter --output_dir=output/with_words

Words, one per line, become single tokens: a Chinese word anywhere in running
text, longest first; a word of letters and digits at the beginning of such a
run. Text without the words keeps its ids and its predictions. The embedding of
a new token is the mean over its former pieces. Its masked-LM bias is so far
below the lowest of theirs that the probability of all new words together is at
most 1e-4; continue training from there. The output is a complete model folder
to use as --init_checkpoint.
"""

import dataclasses
import os
import re
from typing import Any, Callable, Dict, Iterable, List, Sequence

import numpy as np
from absl import logging

import tokenization
from albert import cli, model_folder
from albert.errors import InputError
from albert.export import inspection
from albert.files import checkpoints, filesystem
from albert.model.config import AlbertConfig
from albert.model_folder import ModelSettings
from albert.settings import NEEDED, USUAL, from_flags, setting

# How to combine the rows of a word's pieces in each table.
BIAS = "cls/predictions/output_bias"
TABLES: Dict[str, Callable] = {
  "bert/embeddings/word_embeddings": np.mean,  # [V, E]
  BIAS: np.min,
}  # [V]
MOST = 1e-4  # maximum probability of all new words together


@dataclasses.dataclass(frozen=True)
class WordSettings:
  """The words and the output."""

  words_file: str = setting(
    None, "Words to add, one per line, UTF-8.", NEEDED, required=True
  )
  output_dir: str = setting(None, "Output folder.", NEEDED, required=True)
  use_unused: bool = setting(
    False,
    "Replace [unused1] and so on first; only words beyond these "
    "increase vocab_size.",
    USUAL,
  )


SETTINGS = (WordSettings, ModelSettings)
DEFAULTS: Dict[str, Any] = dict(init_checkpoint=dict(required=True))


def read_words(
  path: str, tokenizer: tokenization.WordPieceTokenizer
) -> Dict[str, List[int]]:
  """Reads words and their pieces.

  Args:
    path: UTF-8 file with one word per line.
    tokenizer: a tokenizer without the words.

  Returns:
    normalized word -> ids of its pieces, without [UNK].

  Raises:
    InputError: there are no words, or one cannot be added.
  """
  words: Dict[str, List[int]] = {}
  lines: Dict[str, int] = {}
  for number, line in enumerate(filesystem.read_text(path).split("\n"), 1):
    line = line.strip()
    if not line:
      continue
    word = "".join(tokenizer.basic_tokenize(line))
    ids = [
      i
      for i in tokenizer.convert_tokens_to_ids(tokenizer.tokenize_plain(line))
      if i != tokenizer.unk_id
    ]
    if line in tokenization.SPECIAL_TOKENS:
      problem = "is a special token"
    elif len(line.split()) > 1:
      problem = "has a space: write one word per line"
    elif word in tokenizer.vocab or line in tokenizer.vocab:
      problem = "is already in the vocabulary"
    elif word in words:
      problem = "is already on line %d" % lines[word]
    elif not ids:
      problem = "has no piece in the vocabulary for its embedding"
    else:
      words[word], lines[word] = ids, number
      continue
    raise InputError("%s:%d: %r %s" % (path, number, line, problem))
  if not words:
    raise InputError("%s: has no words" % path)
  return words


def place_words(
  tokens: List[str], words: Sequence[str], use_unused: bool
) -> List[int]:
  """Adds words to a vocabulary.

  Args:
    tokens: the vocabulary, changed in place.
    words: words to add.
    use_unused: whether to replace entries such as [unused1] first.

  Returns:
    the id of each word.
  """
  unused = [
    i
    for i, token in enumerate(tokens)
    if use_unused and re.match(r"\[unused\d+\]$", token)
  ]
  places = unused + list(range(len(tokens), len(tokens) + len(words)))
  places = places[: len(words)]
  tokens += [""] * (max(places) + 1 - len(tokens))
  for place, word in zip(places, words):
    tokens[place] = word
  return places


def extend(
  table: np.ndarray,
  places: Sequence[int],
  pieces: Iterable[Sequence[int]],
  combine: Callable,
) -> np.ndarray:
  """Returns a table with rows for new words.

  Args:
    table: float [V, ...].
    places: id of each word.
    pieces: ids of each word's pieces.
    combine: function of (rows, axis), such as np.mean.
  """
  more = max(places) + 1 - len(table)
  extended = np.concatenate(
    [table, np.zeros((max(0, more),) + table.shape[1:], table.dtype)]
  )
  for place, ids in zip(places, pieces):
    extended[place] = combine(table[ids], axis=0)
  return extended


def main() -> None:
  args = from_flags(WordSettings)
  model = from_flags(ModelSettings)
  folder = model_folder.load(model, model.init_checkpoint)
  checkpoint, tokenizer = folder.checkpoint, folder.create_tokenizer()
  if not isinstance(tokenizer, tokenization.WordPieceTokenizer):
    raise InputError(
      "%s: words can be added to WordPiece vocabularies, not to "
      "a SentencePiece model" % folder.tokenizer_file
    )
  checkpoints.check_fits(
    checkpoint, inspection.encoder_variables(folder.config)
  )
  words = read_words(args.words_file, tokenizer)
  tokens = list(tokenizer.vocab)
  places = place_words(tokens, list(words), args.use_unused)
  weights = checkpoints.read_weights(checkpoint)
  for name, combine in TABLES.items():
    if name in weights:
      weights[name] = extend(weights[name], places, words.values(), combine)
  if BIAS in weights:
    # A mean of embeddings scores no higher than the best one.
    weights[BIAS][places] -= np.log(len(words) / MOST)
  with filesystem.whole_folder(args.output_dir) as target:
    vocab_file = os.path.join(target, "vocab.txt")
    filesystem.write_lines(vocab_file, tokens)
    folder = dataclasses.replace(
      folder,
      tokenizer_file=vocab_file,
      config=AlbertConfig.from_dict(
        dict(folder.config.to_dict(), vocab_size=len(tokens))
      ),
    )
    extended = folder.create_tokenizer()
    for word in words:
      if extended.tokenize(word) != [word]:
        raise InputError(
          "%s: %r would not be found in text: a word needs a Chinese "
          "character, or only letters and digits" % (args.words_file, word)
        )
    folder.write(target)
    checkpoints.write_checkpoint(target, os.path.basename(checkpoint), weights)
  logging.info(
    "wrote %s: %d words, %.1f pieces each before, %d entries",
    args.output_dir,
    len(words),
    np.mean([len(ids) for ids in words.values()]),
    len(tokens),
  )


if __name__ == "__main__":
  cli.run(main, SETTINGS, **DEFAULTS)
