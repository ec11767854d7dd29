"""Windows of tokens over what is longer than a model's sequence."""


def cut(num_tokens, room, stride):
  """Yields (first token, number of tokens) of windows that hold all tokens.

  Args:
    num_tokens: int; of no tokens, there is one window of none.
    room: int, maximum tokens of a window.
    stride: int, tokens from the start of one window to that of the next.
  """
  first = 0
  while True:
    yield first, min(room, num_tokens - first)
    if first + room >= num_tokens:
      return
    first += min(stride, room)


def context(first, count, token):
  """Returns how much a window shows around a token; -1 if it lacks the token.

  Args:
    first, count: int, the window's first token and its number of tokens.
    token: int.
  """
  least = min(token - first, first + count - 1 - token)
  # Of equal contexts, that of the longer window counts, as in BERT.
  return least + 0.01 * count if least >= 0 else -1


def pack_rows(sequences, num_rows):
  """Packs several sequences of one example.

  Args:
    sequences: list of (ids, segment ids), at most `num_rows`.
    num_rows: int; rows that an example lacks are empty.

  Returns:
    dict, input_ids, input_mask and segment_ids -> list, `num_rows` rows of
    equal length, one after the other.
  """
  length = max(len(ids) for ids, _ in sequences)
  rows = {name: [] for name in ("input_ids", "input_mask", "segment_ids")}
  for ids, segments in sequences + [([], [])] * (num_rows - len(sequences)):
    padding = [0] * (length - len(ids))
    rows["input_ids"] += ids + padding
    rows["input_mask"] += [1] * len(ids) + padding
    rows["segment_ids"] += segments + padding
  return rows
