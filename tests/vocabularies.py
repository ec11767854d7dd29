"""Small WordPiece vocabularies, and the project's own."""

from scripting import ROOT

import tokenization

VOCAB_FILE = str(ROOT / "albert_config" / "vocab.txt")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write_vocab(path, tokens):
  # "\n" on every platform; U+2028 must not become a line end.
  path.write_bytes("".join(t + "\n" for t in tokens).encode("utf-8"))
  return str(path)


def small_tokenizer(folder, tokens, **kwargs):
  """Returns a tokenizer of the special tokens, ids 0 to 4, and `tokens`."""
  return tokenization.WordPieceTokenizer(
    write_vocab(folder / "vocab.txt", SPECIAL + list(tokens)), **kwargs
  )


class Letters:
  """A character tokenizer, for cases worked by hand."""

  cls_id, sep_id, mask_id = 1, 2, 3
  tokenize = tokenize_plain = list

  def tokenize_with_offsets(self, text):
    return list(text), [(i, i + 1) for i in range(len(text))]

  def convert_tokens_to_ids(self, tokens):
    return [ord(token) for token in tokens]


def written(ids):
  """Returns ids of Letters as text: [CLS] is <, [SEP] is |, [MASK] is _."""
  return "".join({1: "<", 2: "|", 3: "_"}.get(i, chr(i)) for i in ids)
