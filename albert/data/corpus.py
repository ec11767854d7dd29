"""Reads text, and cuts it into words and token ids."""

import collections
import gzip
import io
import itertools
import math
import re
import zlib
from typing import NamedTuple

import jieba
import jieba.finalseg
import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from albert import characters
from albert.errors import InputError
from albert.files import filesystem


class Document(NamedTuple):
  """A document's tokens, T of them.

  Attributes:
    ids: int32 [T].
    words: int32 [...], where in [0, T) words begin, 0 first.
    clauses, sentences: int32 [...], where in (0, T) clauses and sentences
      begin. Every sentence begins a clause.
  """
  ids: np.ndarray
  words: np.ndarray
  clauses: np.ndarray
  sentences: np.ndarray


# What ends a clause, with closing marks; not as in 3.5, node.js, http://.
_CLAUSE_END = re.compile(
    r"(?:[，；：。！？…]|[,;:.!?](?! ?[0-9]|[A-Za-z/]))+"
    r"[”’」』）》〉】〕)\]}]*")

_CACHE_SIZE = 30000  # words; memory must not grow with the text
LONGEST_LINE = 10000  # characters; a longer line is cut into sentences
_CHECKED_LINES = 1000  # from one look at how many are not UTF-8 to the next
_DOCUMENT_COST = 256  # characters; records of a short one are mostly padding


class WordCutter:
  """Cuts text into words as `jieba.lcut` does, in about half the time.

  The words are jieba's: its dictionary (with what was added to it before), the
  most probable path through it, and for runs of single characters that are no
  word in it, its hidden Markov model. The path is found in one pass over a
  table of log-probabilities, and what the model makes of a run is remembered.

  Args:
    always: list of str, what is a word wherever it stands, in upper or lower
      case.
  """

  def __init__(self, always=()):
    jieba.initialize()
    self._always = re.compile("(%s)" % "|".join(map(re.escape, sorted(
        always, key=len, reverse=True))), re.I) if always else None
    log_total = math.log(jieba.dt.total)
    self._unknown = 0.0 - log_total
    # As in jieba, what only begins a word is there too, with 0.
    self._weights = {
        word: math.log(frequency) - log_total if frequency else 0.0
        for word, frequency in jieba.dt.FREQ.items()}
    self._recognized = {}

  def cut(self, text):
    """Returns the words of `text`, a list of str; joined, they are the text."""
    words = []
    for i, part in enumerate(
        self._always.split(text) if self._always else [text]):
      if i % 2:
        words.append(part)
      else:
        self._cut_part(part, words)
    return words

  def _cut_part(self, text, words):
    """Appends the words of a text as jieba has them."""
    for i, block in enumerate(jieba.re_han_default.split(text)):
      if i % 2:
        self._cut_block(block, words)
      elif block:
        for k, part in enumerate(jieba.re_skip_default.split(block)):
          words += [part] if k % 2 else part

  def _cut_block(self, block, words):
    """Appends the words of a block without punctuation and space."""
    weight_of = self._weights.get
    length = len(block)
    scores = [0.0] * (length + 1)  # of the best path from there on
    ends = [0] * length  # of its first word
    for start in range(length - 1, -1, -1):
      best = None
      end = start + 1
      weight = weight_of(block[start])
      while weight is not None:
        if weight:
          score = weight + scores[end]
          if best is None or score >= best:
            best = score
            ends[start] = end
        if end == length:
          break
        end += 1
        weight = weight_of(block[start:end])
      if best is None:
        best = self._unknown + scores[start + 1]
        ends[start] = start + 1
      scores[start] = best

    start = run = 0  # `run`: where the run of single characters began
    while start < length:
      end = ends[start]
      if end - start > 1:
        if run < start:
          self._append_run(block[run:start], words)
        words.append(block[start:end])
        run = end
      start = end
    if run < length:
      self._append_run(block[run:], words)

  def _append_run(self, run, words):
    if len(run) == 1:
      words.append(run)
    elif self._weights.get(run):
      words += run
    else:
      parts = self._recognized.get(run)
      if parts is None:
        if len(self._recognized) >= _CACHE_SIZE:
          self._recognized.clear()
        parts = self._recognized[run] = list(jieba.finalseg.cut(run))
      words += parts


class Segmenter:
  """Cuts lines into token ids and says where words begin.

  The ids are those of the tokenizer on the whole line. Words are jieba's own,
  of whatever length; where jieba cuts inside one basic token of the tokenizer
  (as in accented words) or inside a word of its vocabulary, the parts are one
  word.

  Args:
    tokenizer: of `tokenization.py`.
    use_jieba: bool; otherwise spelling tells where words begin.
    user_words: list of str, what was added to jieba's dictionary.
  """

  def __init__(self, tokenizer, use_jieba, user_words=()):
    self._tokenizer = tokenizer
    # Of a line: (ids, where words begin, where clauses end), lists of int.
    self.segment = self._by_jieba if use_jieba else self._by_spelling
    # What jieba's pattern cuts before it looks into its dictionary, or where
    # its dictionary has a different case.
    self._cutter = WordCutter([
        word for word in user_words
        if not jieba.re_han_default.fullmatch(word) or
        word.lower() != word.upper()]) if use_jieba else None
    self._cache = {}
    lost = [word for word in user_words if len(self.segment(word)[1]) != 1]
    if lost:
      logging.warning("%d words of the user dictionary are no words of their "
                      "own in any text: %s", len(lost), ", ".join(lost[:20]))

  def document(self, lines):
    """Returns the Document of a list of sentences."""
    ids, words, clauses, sentences = [], [], [], []
    for line in lines:
      start = len(ids)
      line_ids, line_words, line_clauses = self.segment(line)
      ids += line_ids
      words += [start + word for word in line_words]
      clauses += [start + clause for clause in line_clauses]
      sentences.append(len(ids))
    return Document(np.array(ids, np.int32), np.array(words, np.int32),
                    _inside(clauses + sentences, len(ids)),
                    _inside(sentences, len(ids)))

  def _by_spelling(self, line):
    tokens = self._tokenizer.tokenize_plain(line)
    words = [i for i, token in enumerate(tokens)
             if i == 0 or self._tokenizer.is_word_start(token)]
    parts = [token.lstrip("#\u2581") for token in tokens]
    for i in words:
      parts[i] = " " + parts[i]
    return (self._tokenizer.convert_tokens_to_ids(tokens), words,
            _clause_ends(parts))

  def _by_jieba(self, line):
    ids, words, clauses = [], [], []
    line = self._tokenizer.clean(line)
    parts = self._cutter.cut(line)
    ends = set(_clause_ends(parts))
    inside = self._inside_tokens(line)
    together, place = [], 0
    for number, part in enumerate(parts, 1):
      together.append(part)
      place += len(part)
      if place in inside or (
          number < len(parts) and characters.is_joined(part[-1]) and
          characters.is_joined(parts[number][0])):
        continue  # one basic token or word of the vocabulary goes on
      word, together = "".join(together), []
      word_ids = self._cache.get(word)
      if word_ids is None:
        word_ids = self._look_up(word)
      if word_ids:
        words.append(len(ids))
        ids += word_ids
      if number in ends:
        clauses.append(len(ids))
    return ids, words, clauses

  def _inside_tokens(self, line):
    """Returns the places in a line that are inside a token, a set of int."""
    if not self._tokenizer.words:
      return ()  # is_joined tells
    _, spans = self._tokenizer.tokenize_with_offsets(line)
    return {place for start, end in spans for place in range(start + 1, end)}

  def _look_up(self, word):
    if len(self._cache) >= _CACHE_SIZE:
      self._cache.clear()
    ids = self._cache[word] = self._tokenizer.convert_tokens_to_ids(
        self._tokenizer.tokenize_plain(word))
    return ids


def _clause_ends(parts):
  """Returns how many of the parts of a text, from its start, end a clause."""
  ends = {match.end() for match in _CLAUSE_END.finditer("".join(parts))}
  return [number for number, end in enumerate(
      itertools.accumulate(map(len, parts)), 1) if end in ends]


def _inside(positions, total):
  """Returns the positions inside (0, total), in order, int32."""
  return np.array(sorted(set(positions) - {0, total}), np.int32)


# Only what has no width, which tokenizers drop.
_BLANK = re.compile("^[\\s\x00\u200b-\u200f\u2060\ufeff]+$")
_INVALID_BYTE = re.compile("[\udc80-\udcff]")  # as surrogateescape has it


class TextReader:
  """Reads documents and counts what it met.

  Args:
    paths: list of str, text files, gzipped where the name ends in `.gz`.
    shard_characters: int, about how much text makes a shard.

  Attributes:
    counts: collections.Counter of "documents", "text_bytes" and
      "invalid_bytes" (replaced by U+FFFD, which tokenizers drop).
    share_read: float, share of the files' bytes read so far.
  """

  def __init__(self, paths, shard_characters=500000):
    self.counts = collections.Counter()
    self.share_read = 0.0
    self._paths = paths
    self._shard_characters = shard_characters

  def shards(self):
    """Yields lists of documents of together about `shard_characters`.

    A document is a list of str. A longer one is handled in pieces; a very short
    one counts as more than its text.
    """
    shard, size = [], 0
    for lines in self.documents():
      shard.append(lines)
      size += max(_DOCUMENT_COST, sum(map(len, lines)))
      if size >= self._shard_characters:
        yield shard
        shard, size = [], 0
    if shard:
      yield shard

  def documents(self):
    """Yields documents: lists of sentences, none blank.

    A blank line ends a document, and so does the end of a file.

    Raises:
      InputError: a file cannot be read to its end.
    """
    sizes = [tf.io.gfile.stat(path).length for path in self._paths]
    self.counts["text_bytes"] = sum(sizes)
    for number, path in enumerate(self._paths):
      with filesystem.open_binary(path) as raw:
        if not raw.seekable():
          raise InputError("%s: not a regular file" % path)
        lines, size, is_new = [], 0, True
        for line in self._lines(path, gzip.open(raw) if (
            path.endswith(".gz")) else raw):
          if line:
            self.counts["documents"] += is_new
            lines.append(line)
            size += len(line)
          is_new = not line
          if lines and (is_new or size >= self._shard_characters):
            self.share_read = (
                sum(sizes[:number]) + raw.tell()) / max(1, sum(sizes))
            yield lines
            lines, size = [], 0

  def _lines(self, path, data):
    """Yields the lines of a binary file, stripped, and "" at its end.

    A line that is too long comes in several, cut after punctuation if it can.
    """
    reader = io.TextIOWrapper(data, encoding="utf-8-sig",
                              errors="surrogateescape")
    rest, num_lines, num_bad = "", 0, 0
    while True:
      try:
        text = reader.readline(LONGEST_LINE)
      except (OSError, EOFError, zlib.error) as error:
        raise InputError("%s: damaged, or not a text file (%s)" % (
            path, error)) from error
      text, invalid = _INVALID_BYTE.subn("\ufffd", text)
      self.counts["invalid_bytes"] += invalid
      num_lines += 1
      num_bad += "\ufffd" in text
      if self.counts["invalid_bytes"] and (
          num_lines % _CHECKED_LINES == 0 or not text):
        filesystem.check_encoding(path, num_lines, num_bad)
      if len(text) < LONGEST_LINE or text.endswith("\n"):
        line = _BLANK.sub("", (rest + text).strip())
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
        # What follows is still this line, even if it is blank.
        rest = text[cut:] or " "
        self.counts["cut_lines"] += 1
