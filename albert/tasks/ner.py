"""Named entities: from characters to labelled tokens and back."""

import functools
import unicodedata
from typing import NamedTuple

import numpy as np

from albert.errors import InputError
from albert.tasks import windows
from albert.tasks.entity_files import Entity


def labels_of(kinds):
  """Returns the labels of tokens, in the scheme BIO; "O" is the first.

  BIO has half as many labels as BIOES, a quarter of a CRF's transitions, and is
  what other programs that mark entities read.

  Args:
    kinds: iterable of str.
  """
  return ["O"] + ["%s-%s" % (letter, kind) for kind in sorted(set(kinds))
                  for letter in "BI"]


def tokenize(tokenizer, text, by_character):
  """Cuts a text into tokens; see `tokenize_with_offsets` of tokenization.py.

  Args:
    tokenizer: of tokenization.py.
    text: str.
    by_character: bool, whether each character is a token.
  """
  if not by_character:
    return tokenizer.tokenize_with_offsets(text)
  tokens, spans = [], []
  for place, char in enumerate(text):
    pieces = _tokens_of_character(tokenizer, char)
    tokens += pieces
    spans += [(place, place + 1)] * len(pieces)
    if spans and not pieces and unicodedata.combining(char):
      spans[-1] = (spans[-1][0], place + 1)  # an accent that is dropped
  return tokens, spans


@functools.lru_cache(maxsize=None)
def _tokens_of_character(tokenizer, char):
  return tokenizer.tokenize_plain(char)


def label_tokens(entities, spans, labels):
  """Labels tokens; one that an entity begins or ends inside of belongs to it.

  Args:
    entities: list of Entity, sorted.
    spans: int array [tokens, 2], start and end of each token.
    labels: list of str, see labels_of.

  Returns:
    int array [tokens], numbers of labels.
  """
  numbers = {label: number for number, label in enumerate(labels)}
  label_ids = np.full([len(spans)], numbers["O"], np.int32)
  for entity in entities:
    tokens = np.flatnonzero((spans[:, 1] > entity.start) &
                            (spans[:, 0] < entity.end) &
                            (label_ids == numbers["O"]))
    label_ids[tokens] = numbers["I-" + entity.kind]
    label_ids[tokens[:1]] = numbers["B-" + entity.kind]
  return label_ids


def find_entities(numbers, spans, labels):
  """Returns the entities that labels of tokens stand for, a list of Entity.

  Args:
    numbers: int array [tokens]; an I follows a B or an I of its kind.
    spans: int array [tokens, 2], start and end of each token.
    labels: list of str, see labels_of.
  """
  entities = []
  for number, (start, end) in zip(numbers, spans.tolist()):
    letter, _, kind = labels[number].partition("-")
    if letter == "B":
      # One character can be several tokens.
      start = max([start] + [entity.end for entity in entities[-1:]])
      entities.append(Entity(start, end, kind))
    elif letter == "I":
      entities[-1] = entities[-1]._replace(end=end)
  return [entity for entity in entities if entity.start < entity.end]


class Window(NamedTuple):
  """A text with as many of its tokens as fit: [CLS] tokens [SEP].

  Attributes:
    number: int, which text.
    first: int, which of its tokens is the window's first.
    decides: int array, for each token whether this window has most of its
      context.
  """
  number: int
  first: int
  decides: np.ndarray


class Texts:
  """Texts as windows of labelled tokens.

  Args:
    examples: list of Example.
    tokenizer: of tokenization.py.
    labels: list of str, see labels_of.
    max_seq_length: int, maximum ids of a window.
    by_character: bool, see `tokenize`.
    doc_stride: int, tokens from one window of a text to the next, by default
      half of those that fit.

  Attributes:
    examples, labels: as given.
    windows: list of Window, those of a text in a row.
    spans: list of int array [tokens, 2], start and end of each token.
    label_ids: list of int array [tokens], 0 where the entities are not known.

  Raises:
    InputError: windows would not move on.
  """

  def __init__(self, examples, tokenizer, labels, max_seq_length, by_character,
               doc_stride=None):
    room = max_seq_length - 2
    doc_stride = (room + 1) // 2 if doc_stride is None else doc_stride
    if min(room, doc_stride) < 1:
      raise InputError("--max_seq_length must be at least 3, not %d, and "
                       "--doc_stride at least 1, not %d" % (
                           max_seq_length, doc_stride))
    self.examples = examples
    self.labels = labels
    self.windows, self.spans, self.label_ids = [], [], []
    self._tokenizer = tokenizer
    self._tokens = []  # arrays of ids
    for number, example in enumerate(examples):
      tokens, spans = tokenize(tokenizer, example.text, by_character)
      spans = np.array(spans, np.int32).reshape([-1, 2])
      self.spans.append(spans)
      self.label_ids.append(label_tokens(example.entities or [], spans, labels))
      self._tokens.append(np.array(
          tokenizer.convert_tokens_to_ids(tokens), np.int32))
      cuts = list(windows.cut(len(tokens), room, doc_stride))
      most = np.zeros([len(tokens)])  # context of each token, in which window
      best = np.zeros([len(tokens)], np.int32)
      for which, (first, count) in enumerate(cuts):
        inside = slice(first, first + count)
        context = np.array([windows.context(first, count, token)
                            for token in range(first, first + count)])
        best[inside] = np.where(context > most[inside], which, best[inside])
        most[inside] = np.maximum(context, most[inside])
      self.windows += [
          Window(number, first, (best[first:first + count] == which).astype(
              np.int32)) for which, (first, count) in enumerate(cuts)]

  def make_features(self, window):
    """Returns the features of a window, a dict."""
    tokens = slice(window.first, window.first + len(window.decides))
    input_ids = [self._tokenizer.cls_id,
                 *self._tokens[window.number][tokens].tolist(),
                 self._tokenizer.sep_id]
    return {"input_ids": input_ids, "input_mask": [1] * len(input_ids),
            "segment_ids": [0] * len(input_ids),
            "label_mask": [0, *window.decides.tolist(), 0],
            "label_ids": [0, *self.label_ids[window.number][tokens].tolist(),
                          0]}

  def join(self, values):
    """Puts together what windows say about the tokens that they decide.

    Args:
      values: list of arrays [at least the window's ids, L], for each window.

    Returns:
      list of arrays [tokens, L], for each text.
    """
    joined = [[] for _ in self.examples]
    for window, value in zip(self.windows, values):
      inside = value[1:len(window.decides) + 1]
      joined[window.number].append(inside[window.decides == 1])
    return [np.concatenate(parts) for parts in joined]

  def entities(self, label_ids):
    """Returns a list of Entity for each text, given labels as `label_ids`."""
    return [find_entities(*pair, self.labels)
            for pair in zip(label_ids, self.spans)]

  def count_inexact(self):
    """Returns how many known entities are not what their own labels mean."""
    return sum(len(set(example.entities or []) - set(findable))
               for example, findable in zip(
                   self.examples, self.entities(self.label_ids)))
