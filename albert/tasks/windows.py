"""Windows over texts longer than the model's sequence length.

A classifier reads such a text in one of these ways:

    head       the beginning
    head_tail  the beginning, about a quarter, and the end: Sun et al., "How to
               Fine-Tune BERT for Text Classification?" (arXiv:1905.05583),
               section 5.3, with 128 and 382 of 510 tokens
    windows    consecutive windows, averaging their logits; a last window of
               fewer than five tokens overlaps the one before
"""

from typing import Callable, Dict, Iterator, List, Sequence, Tuple

import tokenization
from albert.model_folder import Tokenizer

Encoded = Tuple[List[int], List[int]]  # input_ids, segment_ids

HEAD, HEAD_TAIL, WINDOWS = WAYS = ("head", "head_tail", "windows")
MAX_WINDOWS = 4  # default
_LEAST = 5  # tokens of the last window


def cut(num_tokens: int, room: int, stride: int) -> Iterator[Tuple[int, int]]:
  """Yields (first token, number of tokens) of windows that cover all tokens.

  Args:
    num_tokens: 0 yields one empty window.
    room: maximum tokens of a window.
    stride: tokens between the starts of consecutive windows.
  """
  first = 0
  while True:
    yield first, min(room, num_tokens - first)
    if first + room >= num_tokens:
      return
    first += min(stride, room)


def context(first: int, count: int, token: int) -> float:
  """Returns the context of a token in a window; -1 if it is outside.

  Args:
    first, count: first token and number of tokens of the window.
    token: index of the token.
  """
  least = min(token - first, first + count - 1 - token)
  # The longer window wins ties, as in BERT.
  return least + 0.01 * count if least >= 0 else -1


def pack_rows(
  sequences: Sequence[Encoded], num_rows: int
) -> Dict[str, List[int]]:
  """Packs the sequences of one example.

  Args:
    sequences: at most `num_rows`.
    num_rows: number of rows; missing ones are padding.

  Returns:
    input_ids, input_mask and segment_ids -> `num_rows` concatenated rows of
    equal length.
  """
  length = max(len(ids) for ids, _ in sequences)
  rows: Dict[str, List[int]] = {
    name: [] for name in ("input_ids", "input_mask", "segment_ids")
  }
  missing: List[Encoded] = [([], [])] * (num_rows - len(sequences))
  for ids, segments in [*sequences, *missing]:
    padding = [0] * (length - len(ids))
    rows["input_ids"] += ids + padding
    rows["input_mask"] += [1] * len(ids) + padding
    rows["segment_ids"] += segments + padding
  return rows


def sequence_maker(
  tokenizer: Tokenizer,
  max_seq_length: int,
  long_text: str = HEAD,
  max_windows: int = 1,
) -> Callable[..., List[Encoded]]:
  """Returns the function that encodes a text or pair.

  Args:
    tokenizer: tokenizer.
    max_seq_length: maximum tokens of a sequence.
    long_text: one of WAYS; pairs require HEAD.
    max_windows: maximum windows; the rest is dropped.

  Returns:
    function of (str, str or None) that returns one sequence, or several with
    WINDOWS.
  """
  room = max_seq_length - 2  # [CLS] and [SEP]

  def sequence(ids):
    return tokenization.pack_pair(tokenizer, ids, None, max_seq_length)

  def make(text_a, text_b=None):
    if long_text == HEAD:
      return [
        tokenization.encode_texts(tokenizer, text_a, text_b, max_seq_length)
      ]
    ids = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text_a))
    if long_text == HEAD_TAIL:
      if len(ids) > room:
        head = round(room * 128 / 510)
        ids = ids[:head] + ids[len(ids) - room + head :]
      return [sequence(ids)]
    cuts = list(cut(len(ids), room, room))
    if len(cuts) > 1 and cuts[-1][1] < _LEAST:
      cuts[-1] = len(ids) - room, room
    return [
      sequence(ids[first : first + count])
      for first, count in cuts[:max_windows]
    ]

  return make
