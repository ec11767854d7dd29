"""Reads text and splits it into words and token ids."""

import collections
import gzip
import io
import itertools
import re
import zlib
from typing import (
  Callable,
  Counter,
  Dict,
  Iterator,
  List,
  NamedTuple,
  Optional,
  Sequence,
  Set,
  Tuple,
)

import jieba
import jieba.finalseg
import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from albert import characters
from albert.errors import InputError
from albert.files import filesystem, tables
from tokenization import Tokenizer


class Document(NamedTuple):
  """The T tokens of a document.

  Attributes:
    ids: int32 [T].
    words: int32 [...], starts of words in [0, T), including 0.
    clauses, sentences: int32 [...], starts of clauses and sentences in (0, T).
      Every sentence starts a clause.
  """

  ids: np.ndarray
  words: np.ndarray
  clauses: np.ndarray
  sentences: np.ndarray


# The end of a clause, with closing marks; not in 3.5, node.js, http://.
_CLAUSE_END = re.compile(
  r"(?:[，；：。！？…]|[,;:.!?](?! ?[0-9]|[A-Za-z/]))+"
  r"[”’」』）》〉】〕)\]}]*"
)

_CACHE_SIZE = 30000  # words; memory must not grow with the text
LONGEST_LINE = 10000  # characters; longer lines are split into sentences
_MOST_KNOWN = 1000000  # documents in which duplicates are found
_LONG_LINE = 10  # characters; shorter lines occur in unrelated texts
_CHECKED_LINES = 1000  # lines between checks of the encoding
_DOCUMENT_COST = 256  # characters; records of short ones are mostly padding


# Runs that rjieba may cut differently: with a sign, or a Chinese character
# outside jieba's range.
_PLAIN = "\u4e00-\u9fd5a-zA-Z0-9"
_OTHER = "-+#&._%\u3400-\u4dbf\u9fd6-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_FOR_JIEBA = re.compile("([%s]*[%s][%s%s]*)" % (_PLAIN, _OTHER, _OTHER, _PLAIN))
_LETTER = re.compile("[a-zA-Z0-9]")


class WordCutter:
  """Cuts text into the words of `jieba.lcut`, with rjieba if installed.

  rjieba is jieba in Rust and ten times as fast. It cuts dictionary words; the
  hidden Markov model for unknown words is jieba's, since rjieba's decides near
  ties differently.

  Args:
    user_words: words added to jieba's dictionary.
  """

  def __init__(self, user_words: Sequence[str] = ()):
    jieba.initialize()
    self._user_words = user_words
    # jieba splits some words before the dictionary look-up, which is
    # case-sensitive.
    always = [
      word
      for word in user_words
      if not jieba.re_han_default.fullmatch(word)
      or word.lower() != word.upper()
    ]
    self._always = (
      re.compile(
        "(%s)"
        % "|".join(map(re.escape, sorted(always, key=len, reverse=True))),
        re.I,
      )
      if always
      else None
    )
    self._rust_cut = _rust_cut(user_words)
    self._recognized: Dict[str, List[str]] = {}

  def __reduce__(self):
    return WordCutter, (self._user_words,)

  def cut(self, text: str) -> List[str]:
    """Returns the words of `text`; joined, they are the text."""
    words: List[str] = []
    for i, part in enumerate(
      self._always.split(text) if self._always else [text]
    ):
      if i % 2:
        words.append(part)
      elif not self._rust_cut:
        words += jieba.lcut(part)
      else:
        for k, run in enumerate(_FOR_JIEBA.split(part)):
          if run:
            words += jieba.lcut(run) if k % 2 else self._cut(run)
    return words

  def _cut(self, text):
    """Returns the words of a text without such runs."""
    words: List[str] = []
    single = ""  # characters that are not dictionary words
    for word in [*self._rust_cut(text, hmm=False), ""]:
      if len(word) == 1 and "\u4e00" <= word <= "\u9fd5":
        single += word
        continue
      if len(single) > 1:
        around = (words[-1][-1:] if words else "") + word[:1]
        if jieba.dt.FREQ.get(single) and _LETTER.search(around):
          return jieba.lcut(text)  # it looks up letters with their neighbours
        words += self._recognize(single)
      elif single:
        words.append(single)
      single = ""
      words.append(word)
    return words[:-1]

  def _recognize(self, single):
    """Returns the words of a run of single characters."""
    parts = self._recognized.get(single)
    if parts is None:
      if len(self._recognized) >= _CACHE_SIZE:
        self._recognized.clear()
      parts = self._recognized[single] = list(
        single if jieba.dt.FREQ.get(single) else jieba.finalseg.cut(single)
      )
    return parts


def _rust_cut(user_words):
  """Returns rjieba's function to cut text, or None without rjieba."""
  try:
    import rjieba
  except ImportError:
    return None
  if not user_words:
    return rjieba.cut
  frequencies = [jieba.dt.FREQ.get(word, 0) for word in user_words]
  # Only rjieba 0.2 and later can add words.
  can_add = hasattr(getattr(rjieba, "Jieba", None), "add_word")
  if not can_add or 0 in frequencies:
    return None
  cutter = rjieba.Jieba()
  for word, frequency in zip(user_words, frequencies):
    cutter.add_word(word, frequency, None)
  return cutter.cut


class Segmenter:
  """Splits lines into token ids and finds the starts of words.

  The ids are the tokenizer's for the whole line. Words are jieba's, of any
  length. If jieba cuts inside a basic token, such as an accented word, or
  inside a vocabulary word, the parts are one word.

  Args:
    tokenizer: provides tokens and ids.
    use_jieba: find words with jieba, otherwise by spelling.
    user_words: words added to jieba's dictionary.
  """

  def __init__(
    self, tokenizer: Tokenizer, use_jieba: bool, user_words: Sequence[str] = ()
  ):
    self._tokenizer = tokenizer
    # Of a line: (ids, starts of words, ends of clauses), lists of int.
    self.segment: Callable[[str], Tuple[List[int], List[int], List[int]]] = (
      self._by_jieba if use_jieba else self._by_spelling
    )
    if use_jieba:
      self._cutter = WordCutter(user_words)
    self._cache: Dict[str, Tuple[List[int], bool, bool]] = {}
    lost = [word for word in user_words if len(self.segment(word)[1]) != 1]
    if lost:
      logging.warning(
        "%d words of the user dictionary can never match: %s",
        len(lost),
        ", ".join(lost[:20]),
      )

  def document(self, lines: Sequence[str]) -> Document:
    """Returns the Document of a list of sentences."""
    ids: List[int] = []
    words: List[int] = []
    clauses: List[int] = []
    sentences: List[int] = []
    for line in lines:
      start = len(ids)
      line_ids, line_words, line_clauses = self.segment(line)
      ids += line_ids
      words += [start + word for word in line_words]
      clauses += [start + clause for clause in line_clauses]
      sentences.append(len(ids))
    return Document(
      np.array(ids, np.int32),
      np.array(words, np.int32),
      _inside(clauses + sentences, len(ids)),
      _inside(sentences, len(ids)),
    )

  def _by_spelling(self, line):
    tokens = self._tokenizer.tokenize_plain(line)
    words = [
      i
      for i, token in enumerate(tokens)
      if i == 0 or self._tokenizer.is_word_start(token)
    ]
    parts = [token.lstrip("#\u2581") for token in tokens]
    for i in words:
      parts[i] = " " + parts[i]
    return (
      self._tokenizer.convert_tokens_to_ids(tokens),
      words,
      _clause_ends(parts),
    )

  def _by_jieba(self, line):
    ids, words, clauses = [], [], []
    line = self._tokenizer.clean(line)
    ends = {match.end() for match in _CLAUSE_END.finditer(line)}
    inside = self._inside_tokens(line)
    together, place = [], 0  # parts of a word, and where they end
    word_ids, is_open = [], False  # of the last part
    for part in [*self._cutter.cut(line), ""]:
      part_ids, begins_joined, ends_joined = self._cache.get(
        part
      ) or self._look_up(part)
      if place in inside or is_open and begins_joined:
        together.append(part)  # in a basic token or a vocabulary word
      else:
        if len(together) > 1:
          word_ids = self._look_up("".join(together))[0]
        if word_ids:
          words.append(len(ids))
          ids += word_ids
        if place in ends:
          clauses.append(len(ids))
        together = [part]
      place += len(part)
      word_ids, is_open = part_ids, ends_joined
    return ids, words, clauses

  def _inside_tokens(self, line):
    """Returns the positions in a line that are inside a token."""
    if not self._tokenizer.words:
      return ()  # `is_joined` is enough
    _, spans = self._tokenizer.tokenize_with_offsets(line)
    return {place for start, end in spans for place in range(start + 1, end)}

  def _look_up(self, word):
    """Returns ids, and whether the word's ends can join its neighbours."""
    if word in self._cache:
      return self._cache[word]
    if len(self._cache) >= _CACHE_SIZE:
      self._cache.clear()
    known = self._cache[word] = (
      self._tokenizer.convert_tokens_to_ids(
        self._tokenizer.tokenize_plain(word)
      ),
      bool(word) and characters.is_joined(word[0]),
      bool(word) and characters.is_joined(word[-1]),
    )
    return known


def _clause_ends(parts):
  """Returns the numbers, from 1, of the parts of a text that end a clause."""
  ends = {match.end() for match in _CLAUSE_END.finditer("".join(parts))}
  return [
    number
    for number, end in enumerate(itertools.accumulate(map(len, parts)), 1)
    if end in ends
  ]


def _inside(positions, total):
  """Returns the positions in (0, total), sorted, int32."""
  return np.array(sorted(set(positions) - {0, total}), np.int32)


# White space and zero-width characters, which tokenizers drop.
_BLANK = re.compile("^[\\s\x00\u200b-\u200f\u2060\ufeff]+$")
_DOC_TAG = re.compile("^<doc [^>]*>$|^</doc>$")  # of WikiExtractor
_PARAGRAPH = re.compile(r"\n\s*\n")
_INVALID_BYTE = re.compile("[\udc80-\udcff]")  # as surrogateescape decodes it


# JSON, markup, or the header of a table.
_MARKUP = re.compile(
  r'\s*[{[]\s*["{]|\s*<(!doctype|html|\?xml|mediawiki)|'
  r"(\w+[,\t])*(id|text|title|url|label)([,\t]\w+)*\r?\n",
  re.IGNORECASE,
)


def check_is_text(path: str) -> None:
  """Raises an InputError for JSON, markup or a table.

  The model would learn keys, tags and numbers.
  """
  with filesystem.open_binary(path) as raw:
    reader = gzip.open(raw) if path.endswith(".gz") else raw
    try:
      begin = reader.read(1000).decode("utf-8-sig", "ignore")
    except (EOFError, OSError):
      return  # TextReader reports it
  if _MARKUP.match(begin):
    raise InputError(
      "%s: not plain text, it begins with %r: if it has a JSON object per "
      "document, give the key of its text as --text_field; otherwise extract "
      "the text first, with one sentence per line and a blank line between "
      "documents" % (path, begin.strip()[:30])
    )


class TextReader:
  """Reads documents and counts them.

  Args:
    paths: text files, gzipped if the name ends in `.gz`.
    shard_characters: approximate number of characters per shard.
    text_field: key of the text, if the files have a JSON object per document.
    heldout: files of text held out for evaluation.
    paragraphs: paragraphs per document; a blank line ends a paragraph.
    document_characters: a document also ends after this many characters.
    heldout_share: share of the documents to leave out, by a hash of their text.
    only_heldout: read those instead of the others.

  Attributes:
    counts: numbers of "documents", "other_documents" (of the other part),
      "repeated_documents" (among the first million different ones),
      "text_bytes", "invalid_bytes" (replaced with U+FFFD, which tokenizers
      drop), and "heldout_lines", those with 10 characters or more that are also
      in `heldout`.
    share_read: share of the files' bytes read so far.
  """

  def __init__(
    self,
    paths: Sequence[str],
    shard_characters: int = 500000,
    text_field: Optional[str] = None,
    heldout: Sequence[str] = (),
    paragraphs: int = 1,
    document_characters: Optional[int] = None,
    heldout_share: float = 0.0,
    only_heldout: bool = False,
  ):
    self.counts: Counter[str] = collections.Counter()
    self.share_read = 0.0
    self._paths = paths
    self._shard_characters = shard_characters
    self._text_field = text_field
    self._paragraphs = paragraphs
    self._document_characters = document_characters or float("inf")
    self._heldout_share = heldout_share
    self._only_heldout = only_heldout
    self._known: Set[int] = set()  # hashes of documents
    self._heldout = {  # hashes of lines
      hash(line)
      for path in heldout
      for document in TextReader(
        [path], shard_characters, text_field
      ).documents()
      for line in document
    }

  def shards(self) -> Iterator[List[List[str]]]:
    """Yields lists of documents of about `shard_characters` in total.

    A document is a list of str. Longer ones are split; very short ones count
    for more than their text.
    """
    shard: List[List[str]] = []
    size = 0
    for lines in self.documents():
      shard.append(lines)
      size += max(_DOCUMENT_COST, sum(map(len, lines)))
      if size >= self._shard_characters:
        yield shard
        shard, size = [], 0
    if shard:
      yield shard

  def documents(self) -> Iterator[List[str]]:
    """Yields documents, lists of non-blank sentences.

    A blank line, a <doc> tag, the end of a JSON object or of a file ends a
    document.

    Raises:
      InputError: a file cannot be read completely.
    """
    sizes = [tf.io.gfile.stat(path).length for path in self._paths]
    self.counts["text_bytes"] = sum(sizes)
    for number, path in enumerate(self._paths):
      with filesystem.open_binary(path) as raw:
        data = gzip.open(raw) if path.endswith(".gz") else raw
        lines: List[str] = []
        size, paragraphs, last = 0, 0, None
        is_wanted = None  # known from the first part of a document on
        for line in itertools.chain(
          self._json_lines(path, data)
          if self._text_field
          else self._lines(path, data),
          [None],
        ):
          if line:
            self.counts["heldout_lines"] += (
              len(line) >= _LONG_LINE and hash(line) in self._heldout
            )
            lines.append(line)
            size += len(line)
          elif last:
            paragraphs += 1
          last = line
          ends = (
            line is None
            or not line
            and (paragraphs >= self._paragraphs)
            or (size >= self._document_characters)
          )
          if lines and (ends or size >= self._shard_characters):
            if is_wanted is None:
              is_wanted = self._is_wanted(lines)
              self.counts["documents" if is_wanted else "other_documents"] += 1
            if is_wanted:
              self._count_repeated(lines)
              self.share_read = (sum(sizes[:number]) + raw.tell()) / max(
                1, sum(sizes)
              )
              yield lines
            lines, size = [], 0
          if ends:
            is_wanted, paragraphs = None, 0

  def _is_wanted(self, lines):
    """Returns whether a document is in the part to read."""
    number = zlib.crc32("\n".join(lines).encode("utf-8", "surrogatepass"))
    return (number < self._heldout_share * 2**32) == self._only_heldout

  def _count_repeated(self, lines):
    key = hash("\n".join(lines))
    self.counts["repeated_documents"] += key in self._known
    if len(self._known) < _MOST_KNOWN:
      self._known.add(key)

  def _json_lines(self, path, data):
    """Yields the lines of the texts of JSON objects, and "" after each text."""
    reader = io.TextIOWrapper(
      data, encoding="utf-8-sig", errors="surrogateescape"
    )
    for row in tables.json_rows(reader, path):
      if row.is_blank:
        continue
      text = row.values.get(self._text_field)
      if row.error or not isinstance(text, str):
        raise InputError(
          "%s: %s"
          % (
            row.where,
            row.error
            or (
              "no text %r, only %s" % (self._text_field, ", ".join(row.values))
            ),
          )
        )
      yield from self._lines(
        path, io.BytesIO(_PARAGRAPH.sub("\n", text).encode("utf-8", "replace"))
      )
    reader.detach()

  def _lines(self, path, data):
    """Yields the stripped lines of a binary file, and "" at its end.

    Splits lines that are too long, after punctuation if possible.
    """
    reader = io.TextIOWrapper(
      data, encoding="utf-8-sig", errors="surrogateescape"
    )
    rest, num_lines, num_bad = "", 0, 0
    while True:
      try:
        text = reader.readline(LONGEST_LINE)
      except (OSError, EOFError, zlib.error) as error:
        raise InputError(
          "%s: damaged, or not a text file (%s)" % (path, error)
        ) from error
      text, invalid = _INVALID_BYTE.subn("\ufffd", text)
      self.counts["invalid_bytes"] += invalid
      num_lines += 1
      num_bad += "\ufffd" in text
      if self.counts["invalid_bytes"] and (
        num_lines % _CHECKED_LINES == 0 or not text
      ):
        filesystem.check_encoding(path, num_lines, num_bad)
      if len(text) < LONGEST_LINE or text.endswith("\n"):
        line = _BLANK.sub("", _DOC_TAG.sub("", (rest + text).strip()))
        if line or not rest:
          yield line
        rest = ""
        if not text:
          yield ""
          reader.detach()
          return
      else:
        text = rest + text
        cut = max(map(text.rfind, "。！？；，.!?;, ")) + 1 or len(text)
        if text[:cut].strip():
          yield text[:cut].strip()
        # The rest belongs to the same line, even if it is blank.
        rest = text[cut:] or " "
        self.counts["cut_lines"] += 1
