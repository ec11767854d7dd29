"""Named entity recognition: from characters to labelled tokens and back."""

import functools
import unicodedata
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

import numpy as np

from albert.errors import InputError
from albert.model_folder import Tokenizer
from albert.tasks import windows
from albert.tasks.entity_files import Entity, Example


def labels_of(kinds: Iterable[str]) -> List[str]:
  """Returns the BIO labels of entity types; "O" is the first.

  BIO has half as many labels as BIOES, a quarter of the CRF transitions, and
  most NER programs read it.
  """
  return ["O"] + [
    "%s-%s" % (letter, kind) for kind in sorted(set(kinds)) for letter in "BI"
  ]


def tokenize(
  tokenizer: Tokenizer, text: str, by_character: bool
) -> Tuple[List[str], List[Tuple[int, int]]]:
  """Tokenizes a text; see `tokenize_with_offsets` of tokenization.py.

  Args:
    tokenizer: tokenizer.
    text: text.
    by_character: whether each character is a token.
  """
  if not by_character:
    return tokenizer.tokenize_with_offsets(text)
  tokens, spans = [], []
  for place, char in enumerate(text):
    pieces = _tokens_of_character(tokenizer, char)
    tokens += pieces
    spans += [(place, place + 1)] * len(pieces)
    if spans and not pieces and unicodedata.combining(char):
      spans[-1] = (spans[-1][0], place + 1)  # a dropped accent
  return tokens, spans


@functools.lru_cache(maxsize=None)
def _tokens_of_character(tokenizer, char):
  return tokenizer.tokenize_plain(char)


def label_tokens(
  entities: List[Entity], spans: np.ndarray, labels: List[str]
) -> np.ndarray:
  """Labels tokens; an entity includes partially overlapping tokens.

  Args:
    entities: sorted.
    spans: int [tokens, 2], start and end of each token.
    labels: see labels_of.

  Returns:
    int [tokens], indices of labels.
  """
  numbers = {label: number for number, label in enumerate(labels)}
  label_ids = np.full([len(spans)], numbers["O"], np.int32)
  for entity in entities:
    tokens = np.flatnonzero(
      (spans[:, 1] > entity.start)
      & (spans[:, 0] < entity.end)
      & (label_ids == numbers["O"])
    )
    label_ids[tokens] = numbers["I-" + entity.kind]
    label_ids[tokens[:1]] = numbers["B-" + entity.kind]
  return label_ids


def find_entities(
  numbers: np.ndarray, spans: np.ndarray, labels: List[str]
) -> List[Entity]:
  """Converts token labels to entities.

  Args:
    numbers: int [tokens]; an I follows a B or I of its type.
    spans: int [tokens, 2], start and end of each token.
    labels: see labels_of.
  """
  entities: List[Entity] = []
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
  """A window of a text: [CLS] tokens [SEP].

  Attributes:
    number: index of the text.
    first: index in the text of the window's first token.
    decides: int [tokens], 1 if this window has the most context of the token
      and decides its label, otherwise 0.
  """

  number: int
  first: int
  decides: np.ndarray


class Texts:
  """Texts as windows of labelled tokens.

  Args:
    examples: texts.
    tokenizer: tokenizer.
    labels: see labels_of.
    max_seq_length: maximum tokens of a window.
    by_character: see `tokenize`.
    doc_stride: stride between windows, in tokens; by default half a window.

  Attributes:
    examples, labels: as passed.
    windows: windows of all texts, in order.
    spans: for each text int [tokens, 2], start and end of each token.
    label_ids: for each text int [tokens], 0 if the entities are unknown.

  Raises:
    InputError: windows would not advance.
  """

  def __init__(
    self,
    examples: List[Example],
    tokenizer: Tokenizer,
    labels: List[str],
    max_seq_length: int,
    by_character: Optional[bool],
    doc_stride: Optional[int] = None,
  ):
    room = max_seq_length - 2
    doc_stride = (room + 1) // 2 if doc_stride is None else doc_stride
    if min(room, doc_stride) < 1:
      raise InputError(
        "--max_seq_length must be at least 3, not %d, and "
        "--doc_stride at least 1, not %d" % (max_seq_length, doc_stride)
      )
    self.examples = examples
    self.labels = labels
    self.windows: List[Window] = []
    self.spans: List[np.ndarray] = []
    self.label_ids: List[np.ndarray] = []
    self._tokenizer = tokenizer
    self._tokens: List[np.ndarray] = []  # ids
    for number, example in enumerate(examples):
      tokens, pairs = tokenize(tokenizer, example.text, bool(by_character))
      spans = np.array(pairs, np.int32).reshape([-1, 2])
      self.spans.append(spans)
      self.label_ids.append(label_tokens(example.entities or [], spans, labels))
      self._tokens.append(
        np.array(tokenizer.convert_tokens_to_ids(tokens), np.int32)
      )
      cuts = list(windows.cut(len(tokens), room, doc_stride))
      most = np.zeros([len(tokens)])  # best context of each token; its window
      best = np.zeros([len(tokens)], np.int32)
      for which, (first, count) in enumerate(cuts):
        inside = slice(first, first + count)
        context = np.array(
          [
            windows.context(first, count, token)
            for token in range(first, first + count)
          ]
        )
        best[inside] = np.where(context > most[inside], which, best[inside])
        most[inside] = np.maximum(context, most[inside])
      self.windows += [
        Window(
          number, first, (best[first : first + count] == which).astype(np.int32)
        )
        for which, (first, count) in enumerate(cuts)
      ]

  def make_features(self, window: Window) -> Dict[str, List[int]]:
    """Returns the features of a window by name."""
    tokens = slice(window.first, window.first + len(window.decides))
    input_ids = [
      self._tokenizer.cls_id,
      *self._tokens[window.number][tokens].tolist(),
      self._tokenizer.sep_id,
    ]
    return {
      "input_ids": input_ids,
      "input_mask": [1] * len(input_ids),
      "segment_ids": [0] * len(input_ids),
      "label_mask": [0, *window.decides.tolist(), 0],
      "label_ids": [0, *self.label_ids[window.number][tokens].tolist(), 0],
    }

  def join(self, values: Iterable[Any]) -> List[np.ndarray]:
    """Joins the outputs of windows at the tokens that they decide.

    Args:
      values: for each window, an array [at least the window's tokens, L].

    Returns:
      for each text, an array [tokens, L].
    """
    joined: List[List[np.ndarray]] = [[] for _ in self.examples]
    for window, value in zip(self.windows, values):
      inside = value[1 : len(window.decides) + 1]
      joined[window.number].append(inside[window.decides == 1])
    return [np.concatenate(parts) for parts in joined]

  def entities(self, label_ids: Iterable[np.ndarray]) -> List[List[Entity]]:
    """Converts labels, as in `label_ids`, to the entities of each text."""
    return [
      find_entities(*pair, self.labels) for pair in zip(label_ids, self.spans)
    ]

  def count_inexact(self) -> int:
    """Returns the number of entities that token labels cannot represent."""
    return sum(
      len(set(example.entities or []) - set(findable))
      for example, findable in zip(self.examples, self.entities(self.label_ids))
    )
