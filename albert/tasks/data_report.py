"""Reports on the data of a run before it trains."""

import collections
import itertools
import logging as std_logging
import random
from typing import (
  Counter,
  Deque,
  Dict,
  Iterator,
  List,
  NamedTuple,
  Optional,
  Sequence,
  Tuple,
)

from absl import logging

from tokenization import Tokenizer

_SAMPLE = 1000  # examples of a split to tokenize
_MOST_LONG = 0.2  # truncated share above which to warn
_LABELS, _UNKNOWN = 20, 5  # maximum to list

Line = Tuple[int, str]  # level of the log, text


class Item(NamedTuple):
  """An example as in its file.

  Attributes:
    texts: texts of one sequence, such as question and passage.
    labels: its labels, or the types of its entities; None if unknown.
  """

  texts: Tuple[str, ...]
  labels: Optional[Tuple[str, ...]]


class Notes(std_logging.Handler):
  """Keeps what the log says of files while they are read."""

  def __init__(self) -> None:
    super().__init__()
    self._messages: Deque[str] = collections.deque(maxlen=1000)

  def emit(self, record: std_logging.LogRecord) -> None:
    self._messages.append(record.getMessage())

  def begin(self) -> None:
    """Forgets earlier messages and listens."""
    self._messages.clear()
    logging.get_absl_logger().addHandler(self)

  def end(self, paths: Sequence[str]) -> List[str]:
    """Stops listening; returns the messages about `paths`."""
    logging.get_absl_logger().removeHandler(self)
    return [
      message
      for message in self._messages
      if message.startswith(tuple(path + ":" for path in paths))
    ]


NOTES = Notes()


def describe(
  rows: List[Item],
  paths: Sequence[str],
  first: List[int],
  tokenizer: Tokenizer,
  max_seq_length: Optional[int],
  train: List[Item],
) -> Iterator[Line]:
  """Describes the examples of a split.

  Args:
    rows: the examples.
    paths: their files.
    first: `input_ids` of the first example.
    tokenizer: tokenizer.
    max_seq_length: where sequences are truncated; None for windows, which lose
      nothing.
    train: the training examples, unless they are `rows`.

  Yields:
    (level of the log, text): a warning if it is suspicious.
  """
  yield (
    logging.INFO,
    "%d examples of %s%s" % (len(rows), ", ".join(paths), _labels(rows)),
  )
  if tokenizer.pad_id in first:
    first = first[: first.index(tokenizer.pad_id)]
  yield (
    logging.INFO,
    "the first is read as " + " ".join(tokenizer.convert_ids_to_tokens(first)),
  )
  yield from _tokens(rows, tokenizer, max_seq_length)
  yield from _repeats(rows)
  yield from _shared(rows, train)


def _labels(rows):
  """Returns the counts of the labels as text."""
  counts = collections.Counter(
    itertools.chain.from_iterable(row.labels or () for row in rows)
  )
  named = ["%s %d" % pair for pair in counts.most_common(_LABELS)]
  if len(counts) > _LABELS:
    named.append("%d more" % (len(counts) - _LABELS))
  return "; labels: " + ", ".join(named) if named else ""


def _tokens(rows, tokenizer, limit):
  """Yields the shares of truncated and unknown tokens in a sample."""
  sample = random.Random(0).sample(rows, min(len(rows), _SAMPLE))
  lengths = []
  unknown: Counter[str] = collections.Counter()
  for row in sample:
    length = len(row.texts) + 1  # [CLS] and [SEP]
    for text in row.texts:
      tokens, spans = tokenizer.tokenize_with_offsets(text)
      length += len(tokens)
      unknown.update(
        text[start:end]
        for number, (start, end) in zip(
          tokenizer.convert_tokens_to_ids(tokens), spans
        )
        if number == tokenizer.unk_id
      )
    lengths.append(length)
  cut = [length - limit for length in lengths if limit and length > limit]
  if cut:
    share, tokens = len(cut) / len(sample), sum(cut) / sum(lengths)
    yield (
      logging.WARNING if share > _MOST_LONG else logging.INFO,
      "%.1f%% are longer than --max_seq_length=%d, which cuts off %.1f%% "
      "of all tokens" % (100 * share, limit, 100 * tokens),
    )
  if unknown:
    yield (
      logging.INFO,
      "%.2f%% of the tokens are [UNK], most often %s"
      % (
        100 * sum(unknown.values()) / sum(lengths),
        ", ".join(
          "%s (%d times)" % pair for pair in unknown.most_common(_UNKNOWN)
        ),
      ),
    )


def _repeats(rows):
  """Yields the number of duplicate texts and of those that differ in labels."""
  first: Dict[Tuple[str, ...], Item] = {}
  other = [
    (first[row.texts], row)
    for row in rows
    if first.setdefault(row.texts, row).labels != row.labels
    and None not in (row.labels, first[row.texts].labels)
  ]
  if len(first) < len(rows):
    yield logging.INFO, "%d are duplicates" % (len(rows) - len(first))
  if other:
    yield (
      logging.WARNING,
      "%d of these differ in labels, such as %r: %s"
      % (
        len(other),
        other[0][0].texts[0][:40],
        " and ".join("|".join(row.labels or ()) or "none" for row in other[0]),
      ),
    )


def _shared(rows, train):
  """Yields the number of texts that are also in the training file."""
  known = {row.texts for row in train}
  shared = [row.texts[0] for row in rows if row.texts in known]
  if shared:
    yield (
      logging.WARNING,
      (
        "%d are in the training file, such as %r: results will be too good"
        % (len(shared), shared[0][:40])
      ),
    )
