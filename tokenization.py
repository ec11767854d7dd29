"""WordPiece and SentencePiece tokenizers, packing and truncation of pairs."""

import difflib
import re

from absl import logging

from albert import characters
from albert.errors import InputError
from albert.files import filesystem

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_SPECIAL = re.compile("(%s)" % "|".join(re.escape(t) for t in SPECIAL_TOKENS))
# Entries of vocabularies that stand for no text.
NO_TEXT = re.compile(
    r"\[(unused\d+|PAD|UNK|CLS|SEP|MASK)\]$|<(pad|unk|s|/s|S|T)>$")
_WORD_START = "\u2581"  # how SentencePiece writes the space before a word


def load_vocab(vocab_file):
  """Reads a WordPiece vocabulary, one token a line.

  Lines end at "\\n" only: Google's Chinese vocabulary has entries that are
  themselves line separators (U+2028), and splitting at those would shift every
  later id.

  Args:
    vocab_file: path of a UTF-8 text file.

  Returns:
    dict, token -> id.

  Raises:
    InputError: the file is empty, is not UTF-8, or lists a token twice.
  """
  tokens = filesystem.read_text(vocab_file).split("\n")
  if tokens[-1] == "":
    tokens.pop()
  if not tokens:
    raise InputError("%s: the vocabulary is empty" % vocab_file)
  vocab = {}
  for index, token in enumerate(tokens):
    token = token.rstrip("\r")
    if token in vocab:
      raise InputError("%s:%d: token %r is on line %d already" % (
          vocab_file, index + 1, token, vocab[token] + 1))
    vocab[token] = index
  return vocab


def create_tokenizer(vocab_file=None, spm_model_file=None, do_lower_case=True):
  """Returns the tokenizer for a vocabulary or for a SentencePiece model."""
  if spm_model_file:
    return SentencePieceTokenizer(spm_model_file, do_lower_case)
  if vocab_file:
    return WordPieceTokenizer(vocab_file, do_lower_case)
  raise InputError("--vocab_file or --spm_model_file is required")


class _Tokenizer:
  """What both tokenizers share: special tokens and conversion.

  Attributes:
    vocab_size: int, number of ids.
    pad_id, unk_id, cls_id, sep_id, mask_id: int, ids of the special tokens.
  """

  def tokenize(self, text):
    """Splits `text` into a list of tokens; special tokens in it stay whole."""
    tokens = []
    for part in _SPECIAL.split(text):
      if part in SPECIAL_TOKENS:
        tokens.append(part)
      elif part:
        tokens.extend(self.tokenize_plain(part))
    return tokens

  def tokenize_plain(self, text):
    """Like `tokenize`, but "[MASK]" and the like are ordinary text."""
    raise NotImplementedError

  def tokenize_with_offsets(self, text):
    """Like `tokenize_plain`, and returns where each token is in `text`.

    Returns:
      (tokens, spans): lists of str and of (start, end), `text[start:end]` being
      what the token was made from.
    """
    raise NotImplementedError

  def tokenize_whole_with_offsets(self, text):
    """Like `tokenize`, and returns places as `tokenize_with_offsets` does."""
    tokens, spans, start = [], [], 0
    for part in _SPECIAL.split(text):
      found, places = ([part], [(0, len(part))]) if (
          part in SPECIAL_TOKENS) else self.tokenize_with_offsets(part)
      tokens += found
      spans += [(start + first, start + last) for first, last in places]
      start += len(part)
    return tokens, spans

  def is_word_start(self, token):
    """Whether `token` begins a word, as spelling alone can tell."""
    raise NotImplementedError

  def convert_tokens_to_ids(self, tokens):
    """Returns a list of ids; an unknown token gives `unk_id`."""
    raise NotImplementedError

  def convert_ids_to_tokens(self, ids):
    """Returns a list of tokens."""
    raise NotImplementedError


class BasicTokenizer:
  """Splits at white space, punctuation and around each Chinese character.

  Args:
    do_lower_case: bool, whether to lower-case and strip accents.
  """

  def __init__(self, do_lower_case=True):
    self.do_lower_case = do_lower_case
    self._clean = characters.Table(characters.clean)
    self._isolate = characters.Table(
        characters.isolate_and_strip_accent if do_lower_case else
        characters.isolate)

  def clean(self, text):
    """Drops control characters and makes every kind of space a space."""
    return text.translate(self._clean)

  def normalize(self, text):
    """Returns the text with spaces between its tokens."""
    text = self.clean(text)
    if self.do_lower_case:
      text = characters.decompose(characters.lower(text), "NFD")
    return text.translate(self._isolate)

  def tokenize(self, text):
    """Returns a list of basic tokens."""
    return self.normalize(convert_to_unicode(text)).split()


class WordpieceTokenizer:
  """Splits basic tokens into the longest pieces of a vocabulary, greedily.

  Args:
    vocab: dict, piece -> id.
    unk_token: str, for a token that has other pieces or is too long.
    max_input_chars_per_word: int.
  """

  def __init__(self, vocab, unk_token="[UNK]", max_input_chars_per_word=200):
    self.vocab = vocab
    self._unk_token = unk_token
    self._longest = max_input_chars_per_word

  def tokenize(self, text):
    """Returns the pieces of basic tokens separated by spaces."""
    return [piece for word in convert_to_unicode(text).split()
            for piece in self.split(word)]

  def split(self, word):
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


class WordPieceTokenizer(_Tokenizer):
  """BERT's tokenization: basic tokens, then longest pieces, greedily.

  Entries of the vocabulary with a Chinese character and more, such as 机器学习
  or 维生素C, are words that stay whole, anywhere in running text, the longest
  first; at an end that is a letter or digit, the text's run of these must end
  too. No other entry is such a word: released vocabularies have "...", <S> and
  <T>, which basic tokenization cuts apart, and their models have never read.

  Args:
    vocab_file: path of the vocabulary, one token a line.
    do_lower_case: lower-case and strip accents, as "uncased" models want it.

  Attributes:
    vocab: dict, entry -> id.
    words: dict, normalized word -> its entry: those that stay whole.
  """

  def __init__(self, vocab_file, do_lower_case=True):
    self.vocab = load_vocab(vocab_file)
    self.vocab_size = len(self.vocab)
    self._tokens = list(self.vocab)
    missing = [t for t in SPECIAL_TOKENS if t not in self.vocab]
    if missing:
      raise InputError("%s: the vocabulary lacks %s" % (
          vocab_file, ", ".join(missing)))
    self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
        self.vocab[token] for token in SPECIAL_TOKENS)
    self.do_lower_case = do_lower_case
    self._basic = BasicTokenizer(do_lower_case)
    self.clean = self._basic.clean
    self.wordpiece = WordpieceTokenizer(self.vocab).split
    self.words = {}
    self._lengths = {}  # of the words with a first basic token, longest first
    for token in self.vocab:
      if len(token) > 1 and not token.startswith("##") and any(
          map(characters.is_chinese, token)):
        word = self._basic.normalize(token).strip()
        if " " in word:
          self.words[word] = token
          self._lengths.setdefault(word.split(" ")[0], set()).add(len(word))
    self._lengths = {first: sorted(lengths, reverse=True)
                     for first, lengths in self._lengths.items()}

  def basic_tokenize(self, text):
    """Like `BasicTokenizer.tokenize`; words of the vocabulary stay whole."""
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
        if word and after <= len(text) and (
            not text[after:after + 1].strip()):
          token, end = word, after
          break
      yield token, start, end

  def tokenize_plain(self, text):
    return [piece for word in self.basic_tokenize(text)
            for piece in self.wordpiece(word)]

  def tokenize_with_offsets(self, text):
    # What a character becomes depends on that character alone, but for the
    # spelling of a final sigma, which is as long.
    origins = [index for index, char in enumerate(text)
               for _ in self._basic.normalize(char)]
    tokens, spans = [], []
    for word, start, word_end in self._find_tokens(self._basic.normalize(text)):
      pieces = self.wordpiece(word)
      for number, piece in enumerate(pieces):
        end = word_end if number + 1 == len(pieces) else (
            start + len(piece) - 2 * piece.startswith("##"))
        last = origins[end - 1] + 1
        while self.do_lower_case and last < len(text) and (
            characters.category(text[last]) == "Mn"):
          last += 1  # an accent of its own, which has been stripped
        tokens.append(piece)
        spans.append((origins[start], last))
        start = end
    return tokens, spans

  def is_word_start(self, token):
    return not token.startswith("##")

  def convert_tokens_to_ids(self, tokens):
    return [self.vocab.get(token, self.unk_id) for token in tokens]

  def convert_ids_to_tokens(self, ids):
    return [self._tokens[i] for i in ids]


def sentencepiece_text(text, do_lower_case):
  """Returns a text as a SentencePiece model of Google's ALBERT is given it."""
  # JSON may hold half of a surrogate pair, which no UTF-8 can.
  text = text.encode("utf-8", "ignore").decode("utf-8")
  text = " ".join(text.split())
  text = "".join(char for char in characters.decompose(text, "NFKD")
                 if not characters.is_combining(char))
  return characters.lower(text) if do_lower_case else text


# What a model's normalization may put together: the parts of a Hangul syllable.
_CLUSTER = re.compile(
    "[\u1100-\u115f][\u1160-\u11a7]?[\u11a8-\u11ff]?|\\S")
_WINDOW = 200  # characters


def _aligned(ours, theirs):
  """Yields (start, end, length): theirs of a length is for ours[start:end].

  Where the texts differ, it takes a time linear in their lengths.

  Args:
    ours, theirs: str, which differ little.
  """
  if ours == theirs:
    yield 0, len(ours), len(theirs)
    return
  a = b = 0
  while b < len(theirs):
    codes = difflib.SequenceMatcher(
        None, ours[a:a + _WINDOW], theirs[b:b + _WINDOW],
        autojunk=False).get_opcodes()
    if max(len(ours) - a, len(theirs) - b) > _WINDOW and len(codes) > 1:
      codes = codes[:-1]  # the next window tells better
    for _, start, end, first, last in codes:
      yield a + start, a + end, last - first
    a, b = a + codes[-1][2], b + codes[-1][4]


class SentencePieceTokenizer(_Tokenizer):
  """SentencePiece with the rules of Google's ALBERT around it.

  Args:
    model_file: path of a `.model` file with pieces [CLS], [SEP], [MASK], <pad>.
    do_lower_case: lower-case the text first.
  """

  def __init__(self, model_file, do_lower_case=True):
    # Only this tokenizer needs the package.
    import sentencepiece
    self._model = sentencepiece.SentencePieceProcessor()
    try:
      self._model.LoadFromSerializedProto(filesystem.read_bytes(model_file))
    except RuntimeError as error:
      raise InputError("%s: not a SentencePiece model (%s)" % (
          model_file, str(error).split("\n")[0])) from error
    self.vocab_size = self._model.GetPieceSize()
    self.unk_id = self._model.unk_id()
    self.pad_id, self.cls_id, self.sep_id, self.mask_id = (
        self._model.PieceToId(piece)
        for piece in ("<pad>", "[CLS]", "[SEP]", "[MASK]"))
    if self.unk_id in (self.pad_id, self.cls_id, self.sep_id, self.mask_id):
      raise InputError("%s: the model lacks one of <pad>, [CLS], [SEP], [MASK]"
                       % model_file)
    self.do_lower_case = do_lower_case
    self._known = {}  # see _written

  def tokenize_plain(self, text):
    pieces = []
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

  def tokenize_with_offsets(self, text):
    tokens = self.tokenize_plain(text)
    written = "".join(token.replace(_WORD_START, "") for token in tokens)
    origins = self._origins(text, written)
    spans, start = [], 0
    for token in tokens:
      end = start + len(token.replace(_WORD_START, ""))
      # A token that is only the mark of a word is where the next one begins, or
      # at the end of the text.
      places = origins[start:end] or origins[start:start + 1] or [
          (len(text), len(text))]
      spans.append((places[0][0], places[-1][1]))
      start = end
    return tokens, spans

  def _origins(self, text, written):
    """Returns where in `text` each character of `written` comes from."""
    origins, parts = [], []
    for match in _CLUSTER.finditer(text):
      part = self._written(match.group())
      origins += [match.span()] * len(part)
      parts.append(part)
    matched = []
    for first, last, theirs in _aligned("".join(parts), written):
      places = origins[first:last] or origins[first:first + 1] or origins[
          -1:] or [(0, 0)]
      matched += [places[min(i, len(places) - 1)] for i in range(theirs)]
    return matched

  def _written(self, cluster):
    """Returns what the model makes of a character and what belongs to it."""
    if cluster not in self._known:
      self._known[cluster] = "".join(self._model.EncodeAsPieces(
          self._normalize(cluster))).replace(_WORD_START, "")
    return self._known[cluster]

  def _split_number(self, piece):
    pieces = self._model.EncodeAsPieces(piece.replace(_WORD_START, ""))
    if not piece.startswith(_WORD_START) and pieces[0][0] == _WORD_START:
      # Encoding on its own has put a word start where there was none.
      pieces[0] = pieces[0][1:]
    return [piece for piece in pieces if piece]

  def is_word_start(self, token):
    return token.startswith(_WORD_START) or token in SPECIAL_TOKENS

  def convert_tokens_to_ids(self, tokens):
    names = {"[PAD]": "<pad>", "[UNK]": "<unk>"}
    return [self._model.PieceToId(names.get(t, t)) for t in tokens]

  def convert_ids_to_tokens(self, ids):
    return [self._model.IdToPiece(int(i)) for i in ids]


def truncate_pair(ids_a, ids_b, max_length):
  """Shortens a pair to `max_length` ids in all, the longer one first.

  Args:
    ids_a: list of the first text's ids.
    ids_b: list of the second text's ids, or None.
    max_length: int, maximum number of ids of both together.

  Returns:
    (ids_a, ids_b), cut at their ends.
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


def warn_of_unknown(what, count, total):
  """Warns where more than 1% of the tokens of a text are [UNK].

  Args:
    what: str, what the text is called.
    count, total: int, tokens that are [UNK], and all.
  """
  if count > 0.01 * total:
    logging.warning("%.1f%% of the tokens of %s are [UNK]: its words are not "
                    "in the vocabulary", 100.0 * count / total, what)


def pack_pair(tokenizer, ids_a, ids_b, max_seq_length):
  """Packs one or two texts as `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

  Args:
    tokenizer: where the ids of [CLS] and [SEP] come from.
    ids_a: list of ids.
    ids_b: list of ids, or None.
    max_seq_length: int, maximum number of ids; longer pairs are truncated.

  Returns:
    (input_ids, segment_ids), two lists of the same length, not padded.
    Segment 0 is [CLS] A [SEP], segment 1 is B [SEP].
  """
  special = 2 if ids_b is None else 3
  ids_a, ids_b = truncate_pair(ids_a, ids_b, max_seq_length - special)
  input_ids = [tokenizer.cls_id] + ids_a + [tokenizer.sep_id]
  segment_ids = [0] * len(input_ids)
  if ids_b is not None:
    input_ids += ids_b + [tokenizer.sep_id]
    segment_ids += [1] * (len(ids_b) + 1)
  return input_ids, segment_ids


def encode_texts(tokenizer, text_a, text_b, max_seq_length):
  """Packs the ids of one or two texts; see `pack_pair`.

  Args:
    tokenizer: where tokens and ids come from.
    text_a: str.
    text_b: str, or None.
    max_seq_length: int, maximum number of ids; longer pairs are truncated.

  Returns:
    (input_ids, segment_ids), two lists of the same length, not padded.
  """
  ids_a, ids_b = [
      None if text is None else tokenizer.convert_tokens_to_ids(
          tokenizer.tokenize(text)) for text in (text_a, text_b)]
  return pack_pair(tokenizer, ids_a, ids_b, max_seq_length)


# Further names that programs written for BERT and ALBERT use.
class FullTokenizer:
  """A tokenizer of this module; `vocab`, `inv_vocab`: token -> id and back."""

  def __init__(self, vocab_file, do_lower_case=True, spm_model_file=None):
    tokenizer = create_tokenizer(vocab_file, spm_model_file, do_lower_case)
    self._tokenize = tokenizer.tokenize_plain
    self.inv_vocab = dict(enumerate(tokenizer.convert_ids_to_tokens(
        range(tokenizer.vocab_size))))
    self.vocab = {token: i for i, token in self.inv_vocab.items()}

  def tokenize(self, text):
    return self._tokenize(convert_to_unicode(text))

  def convert_tokens_to_ids(self, tokens):
    return convert_tokens_to_ids(self.vocab, tokens)

  def convert_ids_to_tokens(self, ids):
    return convert_ids_to_tokens(self.inv_vocab, ids)


def convert_tokens_to_ids(vocab, tokens):
  return [vocab[token] for token in tokens]


def convert_ids_to_tokens(inv_vocab, ids):
  return [inv_vocab[i] for i in ids]


def convert_to_unicode(text):
  """Returns text as str, given that or bytes of UTF-8."""
  return text.decode("utf-8", "ignore") if isinstance(text, bytes) else text


printable_text = convert_to_unicode


def validate_case_matches_checkpoint(do_lower_case, init_checkpoint):
  """Raises a ValueError where the name of a released BERT says otherwise."""
  name = re.search(r"(un|multilingual|chinese|)(cased)?_L-\d+_H-\d+_A-\d+"
                   "/bert_model.ckpt", init_checkpoint or "")
  if name and bool(do_lower_case) != bool(name.group(1)):
    raise ValueError("do_lower_case=%s contradicts %s" % (
        do_lower_case, init_checkpoint))
