"""WordPiece and SentencePiece tokenizers; truncates and packs pairs."""

import difflib
import re
from typing import Dict, List, Optional, Sequence, Tuple, Union

from absl import logging

from albert import characters
from albert.errors import InputError
from albert.files import filesystem

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_SPECIAL = re.compile("(%s)" % "|".join(re.escape(t) for t in SPECIAL_TOKENS))
# Vocabulary entries that stand for no text.
NO_TEXT = re.compile(
  r"\[(unused\d+|PAD|UNK|CLS|SEP|MASK)\]$|<(pad|unk|s|/s|S|T)>$"
)
_WORD_START = "\u2581"  # SentencePiece's mark for the space before a word

# Tokens, and the (start, end) of each in the text.
TokensAndSpans = Tuple[List[str], List[Tuple[int, int]]]


_MOST_BYTES = 100 << 20  # of a vocabulary


def load_vocab(vocab_file: str) -> Dict[str, int]:
  """Reads a WordPiece vocabulary, one token per line.

  Only "\\n" ends a line: Google's Chinese vocabulary has entries that are line
  separators themselves (U+2028), and splitting at those would shift every later
  id.

  Args:
    vocab_file: path of a UTF-8 text file.

  Returns:
    token -> id.

  Raises:
    InputError: the file is empty, too large, not UTF-8, or lists a token twice.
  """
  tokens = filesystem.read_text(vocab_file, _MOST_BYTES).split("\n")
  if tokens[-1] == "":
    tokens.pop()
  if not tokens:
    raise InputError("%s: the vocabulary is empty" % vocab_file)
  vocab: Dict[str, int] = {}
  for index, token in enumerate(tokens):
    token = token.rstrip("\r")
    if token in vocab:
      raise InputError(
        "%s:%d: token %r is already on line %d"
        % (vocab_file, index + 1, token, vocab[token] + 1)
      )
    vocab[token] = index
  return vocab


def create_tokenizer(
  vocab_file: Optional[str] = None,
  spm_model_file: Optional[str] = None,
  do_lower_case: bool = True,
) -> Union["WordPieceTokenizer", "SentencePieceTokenizer"]:
  """Returns the tokenizer for a vocabulary or a SentencePiece model."""
  if spm_model_file:
    return SentencePieceTokenizer(spm_model_file, do_lower_case)
  if vocab_file:
    return WordPieceTokenizer(vocab_file, do_lower_case)
  raise InputError("--vocab_file or --spm_model_file is required")


class Tokenizer:
  """The base class of both tokenizers: special tokens and conversion.

  Attributes:
    vocab_size: number of ids.
    pad_id, unk_id, cls_id, sep_id, mask_id: ids of the special tokens.
    do_lower_case: whether text is lower-cased.
  """

  vocab_size: int
  pad_id: int
  unk_id: int
  cls_id: int
  sep_id: int
  mask_id: int
  do_lower_case: bool

  def tokenize(self, text: str) -> List[str]:
    """Splits `text` into tokens; special tokens in it are kept whole."""
    tokens = []
    for part in _SPECIAL.split(text):
      if part in SPECIAL_TOKENS:
        tokens.append(part)
      elif part:
        tokens.extend(self.tokenize_plain(part))
    return tokens

  def tokenize_plain(self, text: str) -> List[str]:
    """Like `tokenize`, but treats special tokens as ordinary text."""
    raise NotImplementedError

  def tokenize_with_offsets(self, text: str) -> TokensAndSpans:
    """Like `tokenize_plain`, and returns the position of each token.

    Returns:
      (tokens, spans): a token with span (start, end) comes from
      `text[start:end]`.
    """
    raise NotImplementedError

  def tokenize_whole_with_offsets(self, text: str) -> TokensAndSpans:
    """Like `tokenize`, with spans like `tokenize_with_offsets`."""
    tokens: List[str] = []
    spans: List[Tuple[int, int]] = []
    start = 0
    for part in _SPECIAL.split(text):
      if part in SPECIAL_TOKENS:
        found, places = [part], [(0, len(part))]
      else:
        found, places = self.tokenize_with_offsets(part)
      tokens += found
      spans += [(start + first, start + last) for first, last in places]
      start += len(part)
    return tokens, spans

  def is_word_start(self, token: str) -> bool:
    """Returns whether `token` starts a word, judging by its spelling."""
    raise NotImplementedError

  def convert_tokens_to_ids(self, tokens: Sequence[str]) -> List[int]:
    """Returns the ids of tokens; unknown tokens get `unk_id`."""
    raise NotImplementedError

  def convert_ids_to_tokens(self, ids: Sequence[int]) -> List[str]:
    """Returns the tokens of ids."""
    raise NotImplementedError


# Text whose characters are normalized one by one: no accents to reorder, no
# final sigma.
_SIMPLE = re.compile(
  "[\x00-\u02ff\u2000-\u206f\u3000-\u3029\u3030-\u303f"
  "\u4e00-\u9fff\uff00-\uffef]*"
)


class BasicTokenizer:
  """Splits at white space, punctuation and around each Chinese character.

  Args:
    do_lower_case: whether to lower-case and strip accents.
  """

  def __init__(self, do_lower_case: bool = True):
    self.do_lower_case = do_lower_case
    self._clean = characters.Table(characters.clean)
    self._isolate = characters.Table(
      characters.isolate_and_strip_accent
      if do_lower_case
      else characters.isolate
    )
    self._normalize = characters.Table(self._normalize_text)

  def clean(self, text: str) -> str:
    """Drops control characters and replaces all white space with spaces."""
    return text.translate(self._clean)

  def normalize(self, text: str) -> str:
    """Returns the text with its tokens separated by spaces."""
    if _SIMPLE.fullmatch(text):
      return text.translate(self._normalize)
    return self._normalize_text(text)

  def _normalize_text(self, text):
    text = self.clean(text)
    if self.do_lower_case:
      text = characters.decompose(characters.lower(text), "NFD")
    return text.translate(self._isolate)

  def tokenize(self, text: Union[str, bytes]) -> List[str]:
    """Returns the basic tokens."""
    return self.normalize(convert_to_unicode(text)).split()


class WordpieceTokenizer:
  """Splits basic tokens greedily into the longest pieces of a vocabulary.

  Args:
    vocab: piece -> id.
    unk_token: for tokens that cannot be split or are too long.
    max_input_chars_per_word: maximum length of a token.
  """

  def __init__(
    self,
    vocab: Dict[str, int],
    unk_token: str = "[UNK]",
    max_input_chars_per_word: int = 200,
  ):
    self.vocab = vocab
    self._unk_token = unk_token
    self._longest = max_input_chars_per_word

  def tokenize(self, text: Union[str, bytes]) -> List[str]:
    """Returns the pieces of basic tokens separated by spaces."""
    return [
      piece
      for word in convert_to_unicode(text).split()
      for piece in self.split(word)
    ]

  def split(self, word: str) -> List[str]:
    """Returns the pieces of one basic token."""
    if word in self.vocab:
      return [word]
    if len(word) > self._longest:
      return [self._unk_token]
    pieces, start = [], 0
    while start < len(word):
      prefix = "##" if start else ""
      for end in range(len(word), start, -1):
        piece = prefix + word[start:end]
        if piece in self.vocab:
          break
      else:
        return [self._unk_token]
      pieces.append(piece)
      start = end
    return pieces


class WordPieceTokenizer(Tokenizer):
  """BERT's tokenization: basic tokens, then the longest pieces, greedily.

  Multi-character vocabulary entries with a Chinese character, such as 机器学习
  or 维生素C, are kept whole in running text, longest match first. An end that
  is a letter or digit must also end a run of these in the text. Other entries
  are not kept whole: released vocabularies have "...", <S> and <T>, but basic
  tokenization splits these, so the models have never seen them.

  Args:
    vocab_file: path of the vocabulary, one token per line.
    do_lower_case: lower-case and strip accents, for "uncased" models.

  Attributes:
    vocab: entry -> id.
    words: normalized word -> its entry, for entries that are kept whole.
  """

  def __init__(self, vocab_file: str, do_lower_case: bool = True):
    self.vocab = load_vocab(vocab_file)
    self.vocab_size = len(self.vocab)
    self._tokens = list(self.vocab)
    missing = [t for t in SPECIAL_TOKENS if t not in self.vocab]
    if missing:
      raise InputError(
        "%s: the vocabulary lacks %s" % (vocab_file, ", ".join(missing))
      )
    self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
      self.vocab[token] for token in SPECIAL_TOKENS
    )
    self.do_lower_case = do_lower_case
    self._basic = BasicTokenizer(do_lower_case)
    self.clean = self._basic.clean
    self.wordpiece = WordpieceTokenizer(self.vocab).split
    self.words: Dict[str, str] = {}
    lengths: Dict[str, set] = {}  # of the words by their first basic token
    for token in self.vocab:
      if (
        len(token) > 1
        and not token.startswith("##")
        and any(map(characters.is_chinese, token))
      ):
        word = self._basic.normalize(token).strip()
        if " " in word:
          self.words[word] = token
          lengths.setdefault(word.split(" ")[0], set()).add(len(word))
    self._lengths = {
      first: sorted(found, reverse=True) for first, found in lengths.items()
    }

  def basic_tokenize(self, text: str) -> List[str]:
    """Like `BasicTokenizer.tokenize`, but keeps vocabulary words whole."""
    text = self._basic.normalize(text)
    if not self.words:
      return text.split()
    return [token for token, _, _ in self._find_tokens(text)]

  def _find_tokens(self, text):
    """Yields (basic token or word, start, end) in a normalized text."""
    end = 0
    for match in re.finditer(r"\S+", text):
      token, start = match.group(), match.start()
      if start < end:
        continue  # inside a word
      end = match.end()
      for length in self._lengths.get(token, ()):
        after = start + length
        word = self.words.get(text[start:after])
        if word and after <= len(text) and not text[after : after + 1].strip():
          token, end = word, after
          break
      yield token, start, end

  def tokenize_plain(self, text: str) -> List[str]:
    pieces: List[str] = []
    for word in self.basic_tokenize(text):
      if word in self.vocab:  # almost always: saves the call
        pieces.append(word)
      else:
        pieces += self.wordpiece(word)
    return pieces

  def tokenize_with_offsets(self, text: str) -> TokensAndSpans:
    # Characters are normalized independently, except for the spelling of a
    # final sigma, which has the same length.
    origins = [
      index
      for index, char in enumerate(text)
      for _ in self._basic.normalize(char)
    ]
    tokens, spans = [], []
    for word, start, word_end in self._find_tokens(self._basic.normalize(text)):
      pieces = self.wordpiece(word)
      for number, piece in enumerate(pieces):
        end = start + len(piece) - (2 if piece.startswith("##") else 0)
        if number + 1 == len(pieces):
          end = word_end
        last = origins[end - 1] + 1
        while (
          self.do_lower_case
          and last < len(text)
          and (characters.category(text[last]) == "Mn")
        ):
          last += 1  # a stripped combining accent
        tokens.append(piece)
        spans.append((origins[start], last))
        start = end
    return tokens, spans

  def is_word_start(self, token: str) -> bool:
    return not token.startswith("##")

  def convert_tokens_to_ids(self, tokens: Sequence[str]) -> List[int]:
    return [self.vocab.get(token, self.unk_id) for token in tokens]

  def convert_ids_to_tokens(self, ids: Sequence[int]) -> List[str]:
    return [self._tokens[i] for i in ids]


def sentencepiece_text(text: str, do_lower_case: bool) -> str:
  """Normalizes text as Google's ALBERT does before SentencePiece."""
  # JSON may contain half of a surrogate pair, which UTF-8 cannot encode.
  text = text.encode("utf-8", "ignore").decode("utf-8")
  text = " ".join(text.split())
  text = "".join(
    char
    for char in characters.decompose(text, "NFKD")
    if not characters.is_combining(char)
  )
  return characters.lower(text) if do_lower_case else text


# Characters that normalization may compose: the parts of a Hangul syllable.
_CLUSTER = re.compile("[\u1100-\u115f][\u1160-\u11a7]?[\u11a8-\u11ff]?|\\S")
_WINDOW = 200  # characters aligned at once


def _aligned(ours, theirs):
  """Aligns two similar texts, in time linear in their lengths.

  Yields:
    (start, end, length): the next `length` characters of `theirs` correspond to
    ours[start:end].
  """
  if ours == theirs:
    yield 0, len(ours), len(theirs)
    return
  a = b = 0
  while b < len(theirs):
    codes = difflib.SequenceMatcher(
      None, ours[a : a + _WINDOW], theirs[b : b + _WINDOW], autojunk=False
    ).get_opcodes()
    if max(len(ours) - a, len(theirs) - b) > _WINDOW and len(codes) > 1:
      codes = codes[:-1]  # the next window has more context for it
    for _, start, end, first, last in codes:
      yield a + start, a + end, last - first
    a, b = a + codes[-1][2], b + codes[-1][4]


class SentencePieceTokenizer(Tokenizer):
  """SentencePiece with the pre- and postprocessing of Google's ALBERT.

  Args:
    model_file: path of a `.model` file with pieces [CLS], [SEP], [MASK], <pad>.
    do_lower_case: lower-case the text first.
  """

  def __init__(self, model_file: str, do_lower_case: bool = True):
    # Only this tokenizer needs the package.
    import sentencepiece

    self._model = sentencepiece.SentencePieceProcessor()
    try:
      self._model.LoadFromSerializedProto(
        filesystem.read_bytes(model_file, _MOST_BYTES)
      )
    except RuntimeError as error:
      raise InputError(
        "%s: not a SentencePiece model (%s)"
        % (model_file, str(error).split("\n")[0])
      ) from error
    self.vocab_size = self._model.GetPieceSize()
    self.unk_id = self._model.unk_id()
    self.pad_id, self.cls_id, self.sep_id, self.mask_id = (
      self._model.PieceToId(piece)
      for piece in ("<pad>", "[CLS]", "[SEP]", "[MASK]")
    )
    if self.unk_id in (self.pad_id, self.cls_id, self.sep_id, self.mask_id):
      raise InputError(
        "%s: the model lacks one of <pad>, [CLS], [SEP], [MASK]" % model_file
      )
    self.do_lower_case = do_lower_case
    self._known: Dict[str, str] = {}  # cache of `_written`

  def tokenize_plain(self, text: str) -> List[str]:
    pieces: List[str] = []
    for piece in self._model.EncodeAsPieces(self._normalize(text)):
      pieces.extend(self._split(piece))
    return pieces

  def _normalize(self, text):
    return sentencepiece_text(text, self.do_lower_case)

  def _split(self, piece):
    """Separates a number from the comma after it, as Google's ALBERT does."""
    if piece[-1] == "," and piece[-2:-1].isdigit():
      return self._split_number(piece[:-1]) + [","]
    return [piece]

  def tokenize_with_offsets(self, text: str) -> TokensAndSpans:
    tokens = self.tokenize_plain(text)
    written = "".join(token.replace(_WORD_START, "") for token in tokens)
    origins = self._origins(text, written)
    spans: List[Tuple[int, int]] = []
    start = 0
    for token in tokens:
      end = start + len(token.replace(_WORD_START, ""))
      # A lone word mark gets the position of the next token, or the text's end.
      places = (
        origins[start:end]
        or origins[start : start + 1]
        or [(len(text), len(text))]
      )
      spans.append((places[0][0], places[-1][1]))
      start = end
    return tokens, spans

  def _origins(self, text, written):
    """Returns the span in `text` of each character of `written`."""
    origins, parts = [], []
    for match in _CLUSTER.finditer(text):
      part = self._written(match.group())
      origins += [match.span()] * len(part)
      parts.append(part)
    matched = []
    for first, last, theirs in _aligned("".join(parts), written):
      places = (
        origins[first:last]
        or origins[first : first + 1]
        or origins[-1:]
        or [(0, 0)]
      )
      matched += [places[min(i, len(places) - 1)] for i in range(theirs)]
    return matched

  def _written(self, cluster):
    """Returns the normalized text of one character or cluster."""
    if cluster not in self._known:
      self._known[cluster] = "".join(
        self._model.EncodeAsPieces(self._normalize(cluster))
      ).replace(_WORD_START, "")
    return self._known[cluster]

  def _split_number(self, piece):
    pieces = self._model.EncodeAsPieces(piece.replace(_WORD_START, ""))
    if not piece.startswith(_WORD_START) and pieces[0][0] == _WORD_START:
      # Encoding the number separately added a word start.
      pieces[0] = pieces[0][1:]
    return [piece for piece in pieces if piece]

  def is_word_start(self, token: str) -> bool:
    return token.startswith(_WORD_START) or token in SPECIAL_TOKENS

  def convert_tokens_to_ids(self, tokens: Sequence[str]) -> List[int]:
    names = {"[PAD]": "<pad>", "[UNK]": "<unk>"}
    return [self._model.PieceToId(names.get(t, t)) for t in tokens]

  def convert_ids_to_tokens(self, ids: Sequence[int]) -> List[str]:
    return [self._model.IdToPiece(int(i)) for i in ids]


def truncate_pair(
  ids_a: List[int], ids_b: Optional[List[int]], max_length: int
) -> Tuple[List[int], Optional[List[int]]]:
  """Truncates a pair to `max_length` ids in total, from the longer text.

  Args:
    ids_a: ids of the first text.
    ids_b: ids of the second text, or None.
    max_length: maximum number of ids of both together.

  Returns:
    (ids_a, ids_b), truncated at their ends.
  """
  max_length = max(0, max_length)
  if ids_b is None:
    return ids_a[:max_length], None
  length_a, length_b = len(ids_a), len(ids_b)
  while length_a + length_b > max_length:
    if length_a > length_b:
      length_a -= 1
    else:
      length_b -= 1
  return ids_a[:length_a], ids_b[:length_b]


def warn_of_unknown(what: str, count: int, total: int) -> None:
  """Logs a warning if more than 1% of the tokens are [UNK].

  Args:
    what: name of the text.
    count: number of [UNK].
    total: number of tokens.
  """
  if count > 0.01 * total:
    logging.warning(
      "%.1f%% of the tokens of %s are [UNK]: not in the vocabulary",
      100.0 * count / total,
      what,
    )


def pack_pair(
  tokenizer: Tokenizer,
  ids_a: List[int],
  ids_b: Optional[List[int]],
  max_seq_length: int,
) -> Tuple[List[int], List[int]]:
  """Packs one or two texts as `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

  Args:
    tokenizer: provides the ids of [CLS] and [SEP].
    ids_a: ids of the first text.
    ids_b: ids of the second text, or None.
    max_seq_length: maximum number of ids; longer pairs are truncated.

  Returns:
    (input_ids, segment_ids), of the same length, not padded. Segment 0 is
    [CLS] A [SEP], segment 1 is B [SEP].
  """
  special = 2 if ids_b is None else 3
  ids_a, ids_b = truncate_pair(ids_a, ids_b, max_seq_length - special)
  input_ids = [tokenizer.cls_id] + ids_a + [tokenizer.sep_id]
  segment_ids = [0] * len(input_ids)
  if ids_b is not None:
    input_ids += ids_b + [tokenizer.sep_id]
    segment_ids += [1] * (len(ids_b) + 1)
  return input_ids, segment_ids


def encode_texts(
  tokenizer: Tokenizer, text_a: str, text_b: Optional[str], max_seq_length: int
) -> Tuple[List[int], List[int]]:
  """Tokenizes and packs one or two texts; see `pack_pair`."""

  def ids_of(text):
    return tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))

  ids_b = None if text_b is None else ids_of(text_b)
  return pack_pair(tokenizer, ids_of(text_a), ids_b, max_seq_length)


# For programs written for the BERT and ALBERT releases.
class FullTokenizer:
  """A tokenizer of this module with the interface of BERT's.

  Attributes:
    vocab: token -> id.
    inv_vocab: id -> token.
  """

  def __init__(
    self,
    vocab_file: str,
    do_lower_case: bool = True,
    spm_model_file: Optional[str] = None,
  ):
    tokenizer = create_tokenizer(vocab_file, spm_model_file, do_lower_case)
    self._tokenize = tokenizer.tokenize_plain
    self.inv_vocab = dict(
      enumerate(tokenizer.convert_ids_to_tokens(range(tokenizer.vocab_size)))
    )
    self.vocab = {token: i for i, token in self.inv_vocab.items()}

  def tokenize(self, text: Union[str, bytes]) -> List[str]:
    return self._tokenize(convert_to_unicode(text))

  def convert_tokens_to_ids(self, tokens: Sequence[str]) -> List[int]:
    return convert_tokens_to_ids(self.vocab, tokens)

  def convert_ids_to_tokens(self, ids: Sequence[int]) -> List[str]:
    return convert_ids_to_tokens(self.inv_vocab, ids)


def convert_tokens_to_ids(
  vocab: Dict[str, int], tokens: Sequence[str]
) -> List[int]:
  return [vocab[token] for token in tokens]


def convert_ids_to_tokens(
  inv_vocab: Dict[int, str], ids: Sequence[int]
) -> List[str]:
  return [inv_vocab[i] for i in ids]


def convert_to_unicode(text: Union[str, bytes]) -> str:
  """Decodes UTF-8 bytes, ignoring errors; str is unchanged."""
  return text.decode("utf-8", "ignore") if isinstance(text, bytes) else text


printable_text = convert_to_unicode


def validate_case_matches_checkpoint(
  do_lower_case: bool, init_checkpoint: Optional[str]
) -> None:
  """Raises a ValueError if a released BERT's name contradicts the flag."""
  name = re.search(
    r"(un|multilingual|chinese|)(cased)?_L-\d+_H-\d+_A-\d+"
    "/bert_model.ckpt",
    init_checkpoint or "",
  )
  if name and bool(do_lower_case) != bool(name.group(1)):
    raise ValueError(
      "do_lower_case=%s contradicts %s" % (do_lower_case, init_checkpoint)
    )
