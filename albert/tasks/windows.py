"""Windows of tokens over what is longer than a model's sequence.

Tests: tests/tasks/test_squad.py.
"""


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
