"""Tokenizer files for transformers.

Tests: tests/export/test_huggingface_tf2.py.
"""

import base64
import itertools
import os
import re
import sys
from typing import Any, Dict, List, Optional

import tokenization
from albert import characters
from albert.errors import InputError
from albert.files import filesystem
from albert.model_folder import ModelFolder, Tokenizer

# Separators at which Python splits, but tokenizers does not.
_SPACES = "[\\x{b}\\x{c}\\x{1c}-\\x{1f}\\x{85}]"
WORDPIECE = {
  "pad_token": "[PAD]",
  "unk_token": "[UNK]",
  "cls_token": "[CLS]",
  "sep_token": "[SEP]",
  "mask_token": "[MASK]",
}
SENTENCEPIECE = dict(WORDPIECE, pad_token="<pad>", unk_token="<unk>")


def _protobuf_field(message, number):
  """Returns the last value of a bytes field in a serialized message."""

  def varint():
    nonlocal place
    value = shift = 0
    while True:
      byte = message[place]
      place += 1
      value |= (byte & 127) << shift
      shift += 7
      if byte < 128:
        return value

  place, content = 0, b""
  while place < len(message):
    field, wire_type = divmod(varint(), 8)
    if wire_type == 0:
      varint()
      continue
    size = varint() if wire_type == 2 else {1: 8, 5: 4}[wire_type]
    if field == number:
      content = message[place : place + size]
    place += size
  return content


def unigram_tokenizer(model_file: str, do_lower_case: bool) -> Dict[str, Any]:
  """Returns the content of `tokenizer.json` for a SentencePiece model.

  transformers can also make it, but needs a newer protobuf than TensorFlow
  allows.
  """
  import sentencepiece

  content = filesystem.read_bytes(model_file)
  model = sentencepiece.SentencePieceProcessor()
  model.LoadFromSerializedProto(content)
  normalizer_spec = _protobuf_field(content, 3)
  charsmap = _protobuf_field(normalizer_spec, 2)
  vocab = [
    (model.IdToPiece(i), model.GetScore(i)) for i in range(model.GetPieceSize())
  ]
  # Never chosen, because ALBERT separates a number from the comma after it.
  vocab = [
    (piece, -1e6 if re.search("[0-9],$", piece) else score)
    for piece, score in vocab
  ]
  normalizers = [
    _replace(_SPACES, " "),
    {"type": "NFKD"},
    _replace(_combining(), ""),
  ]
  if do_lower_case:
    normalizers.append({"type": "Lowercase"})
  if charsmap:
    normalizers.append(
      {
        "type": "Precompiled",
        "precompiled_charsmap": base64.b64encode(charsmap).decode(),
      }
    )
  word_starts = {
    "type": "Metaspace",
    "replacement": "\u2581",
    "add_prefix_space": True,
  }
  return dict(
    _frame(
      {piece: model.PieceToId(piece) for piece in SENTENCEPIECE.values()},
      word_starts,
    ),
    normalizer={"type": "Sequence", "normalizers": normalizers},
    decoder=word_starts,
    model={
      "type": "Unigram",
      "unk_id": model.unk_id(),
      "vocab": vocab,
      "byte_fallback": False,
    },
  )


def _replace(pattern, content):
  return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _combining():
  """Returns a pattern for what Google's ALBERT drops after decomposition.

  `StripAccents` would also drop the vowel signs of Indian scripts.
  """
  codes = [
    code for code in range(sys.maxunicode) if characters.is_combining(chr(code))
  ]
  runs = [
    [code for _, code in run]
    for _, run in itertools.groupby(
      enumerate(codes), lambda pair: pair[1] - pair[0]
    )
  ]
  return "[%s]" % "".join("\\x{%x}-\\x{%x}" % (run[0], run[-1]) for run in runs)


def character_tokenizer(
  vocab: Dict[str, int], do_lower_case: bool
) -> Dict[str, Any]:
  """Returns the content of `tokenizer.json` for splitting by character.

  Args:
    vocab: WordPiece vocabulary, token -> id.
    do_lower_case: whether to lower-case the text.
  """
  return dict(
    # The normalizer decomposes Hangul syllables.
    _frame(
      {token: vocab[token] for token in WORDPIECE.values()},
      {
        "type": "Split",
        "behavior": "Isolated",
        "invert": False,
        "pattern": {
          "Regex": "[\u1100-\u115f][\u1160-\u11a7]?[\u11a8-\u11ff]?|."
        },
      },
    ),
    normalizer={
      "type": "BertNormalizer",
      "clean_text": True,
      "handle_chinese_chars": True,
      "strip_accents": None,
      "lowercase": do_lower_case,
    },
    decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
    model={
      "type": "WordPiece",
      "unk_token": "[UNK]",
      "vocab": vocab,
      "continuing_subword_prefix": "##",
      "max_input_chars_per_word": 200,
    },
  )


def _frame(special, pre_tokenizer):
  """Returns the common part of both tokenizers; `special` is token -> id."""
  ends = [
    {"SpecialToken": {"id": token, "type_id": 0}}
    for token in ("[CLS]", "[SEP]")
  ]
  first = [ends[0], {"Sequence": {"id": "A", "type_id": 0}}, ends[1]]
  second = [
    {"Sequence": {"id": "B", "type_id": 1}},
    {"SpecialToken": {"id": "[SEP]", "type_id": 1}},
  ]
  return {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [
      {
        "id": number,
        "content": token,
        "special": True,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
      }
      for token, number in special.items()
    ],
    "pre_tokenizer": {
      "type": "Sequence",
      "pretokenizers": [{"type": "WhitespaceSplit"}, pre_tokenizer],
    },
    "post_processor": {
      "type": "TemplateProcessing",
      "single": first,
      "pair": first + second,
      "special_tokens": {
        token: {"id": token, "ids": [special[token]], "tokens": [token]}
        for token in ("[CLS]", "[SEP]")
      },
    },
  }


def files(folder: ModelFolder, tokenizer: Tokenizer) -> Dict[str, Any]:
  """Returns the files of a model's tokenizer, name -> content.

  Raises:
    InputError: transformers have no such tokenizer.
  """
  lower, length = tokenizer.do_lower_case, folder.length()
  if not isinstance(tokenizer, tokenization.WordPieceTokenizer):
    if folder.by_character:
      raise InputError(
        "--by_character with SentencePiece cannot be converted: "
        "transformers have no such tokenizer"
      )
    return {
      "tokenizer.json": unigram_tokenizer(folder.tokenizer_file or "", lower),
      "tokenizer_config.json": tokenizer_settings(SENTENCEPIECE, lower, length),
    }
  if folder.by_character:
    return {
      "tokenizer.json": character_tokenizer(tokenizer.vocab, lower),
      "tokenizer_config.json": tokenizer_settings(WORDPIECE, lower, length),
    }
  return {
    "tokenizer_config.json": tokenizer_settings(
      None,
      lower,
      length,
      {word: tokenizer.vocab[word] for word in tokenizer.words.values()},
    )
  }


def tokenizer_settings(
  special: Optional[Dict[str, str]],
  do_lower_case: bool,
  max_length: int,
  words: Optional[Dict[str, int]] = None,
) -> Dict[str, Any]:
  """Returns the content of `tokenizer_config.json`.

  Args:
    special: the special tokens of `tokenizer.json`, which then determines
      everything; None for BERT's tokenizer.
    do_lower_case: whether to lower-case the text.
    max_length: maximum number of tokens.
    words: Chinese words of the vocabulary -> id. transformers finds them by the
      same rules, except that more letters or digits may follow a word that ends
      in one.
  """
  settings: Dict[str, Any] = {
    "tokenizer_class": "PreTrainedTokenizerFast"
    if special
    else "BertTokenizer",
    **(special or {}),
    "do_lower_case": do_lower_case,
    "model_max_length": max_length,
    "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
  }
  if words:
    settings["added_tokens_decoder"] = {
      str(number): {
        "content": word,
        "normalized": True,
        "special": False,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
      }
      for word, number in words.items()
    }
  return settings


def read_vocabulary(folder: str) -> Optional[List[str]]:
  """Returns the WordPiece vocabulary of a transformers folder.

  Includes tokens that were added to the tokenizer.

  Returns:
    tokens in the order of their ids; None if there is no vocabulary.

  Raises:
    InputError: an id has no token.
  """
  files = {
    name: os.path.join(folder, name)
    for name in (
      "vocab.txt",
      "tokenizer.json",
      "tokenizer_config.json",
      "added_tokens.json",
    )
  }
  contents = {
    name: filesystem.read_json(path)
    for name, path in files.items()
    if name.endswith(".json") and filesystem.exists(path)
  }
  whole = contents.get("tokenizer.json", {})
  if filesystem.exists(files["vocab.txt"]):
    ids = tokenization.load_vocab(files["vocab.txt"])
  elif whole.get("model", {}).get("type") == "WordPiece":
    ids = dict(whole["model"]["vocab"])
  else:
    return None
  # Which of these files has added tokens depends on the version.
  ids.update(contents.get("added_tokens.json", {}))
  ids.update(
    (token["content"], int(number))
    for number, token in contents.get("tokenizer_config.json", {})
    .get("added_tokens_decoder", {})
    .items()
  )
  ids.update(
    (token["content"], token["id"]) for token in whole.get("added_tokens", [])
  )
  tokens = sorted(ids, key=lambda token: ids[token])
  if sorted(ids.values()) != list(range(len(ids))):
    raise InputError(
      "%s: the ids of its %d tokens are not 0 to %d"
      % (folder, len(ids), len(ids) - 1)
    )
  return tokens
