"""Windows of tokens over what is longer than a model's sequence.

What a classifier is given of such a text:

    head       its beginning
    head_tail  its beginning, about a quarter, and its end: Sun et al., "How to
               Fine-Tune BERT for Text Classification?" (arXiv:1905.05583),
               section 5.3, 128 and 382 of 510 tokens there
    windows    windows that follow one another, whose logits are averaged; a
               last one of fewer than five tokens is filled from the one before
"""

import tokenization

HEAD, HEAD_TAIL, WINDOWS = WAYS = ("head", "head_tail", "windows")
MAX_WINDOWS = 4  # by default
_LEAST = 5  # tokens of a last window


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


def sequence_maker(tokenizer, max_seq_length, long_text=HEAD,
                   max_windows=1):
  """Returns the function that makes the sequences of a text or pair.

  Args:
    tokenizer: of tokenization.py.
    max_seq_length: int, maximum ids of a sequence.
    long_text: str, of WAYS; pairs go with HEAD alone.
    max_windows: int, of WINDOWS: what is behind them is left out.

  Returns:
    function of (str, str or None) that returns a list of (ids, segment ids):
    several of WINDOWS, else one.
  """
  room = max_seq_length - 2  # [CLS] and [SEP]

  def sequence(ids):
    return tokenization.pack_pair(tokenizer, ids, None, max_seq_length)

  def make(text_a, text_b=None):
    if long_text == HEAD:
      return [tokenization.encode_texts(tokenizer, text_a, text_b,
                                        max_seq_length)]
    ids = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text_a))
    if long_text == HEAD_TAIL:
      if len(ids) > room:
        head = round(room * 128 / 510)
        ids = ids[:head] + ids[len(ids) - room + head:]
      return [sequence(ids)]
    cuts = list(cut(len(ids), room, room))
    if len(cuts) > 1 and cuts[-1][1] < _LEAST:
      cuts[-1] = len(ids) - room, room
    return [sequence(ids[first:first + count])
            for first, count in cuts[:max_windows]]

  return make
