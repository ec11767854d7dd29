"""What a classifier is given of a text that is longer than a sequence.

    head       its beginning
    head_tail  its beginning, about a quarter, and its end: Sun et al., "How to
               Fine-Tune BERT for Text Classification?" (arXiv:1905.05583),
               section 5.3, 128 and 382 of 510 tokens there
    windows    windows that follow one another, whose logits are averaged; a
               last one of fewer than five tokens is filled from the one before
"""

import tokenization
from albert.tasks import windows

HEAD, HEAD_TAIL, WINDOWS = WAYS = ("head", "head_tail", "windows")
MAX_WINDOWS = 4  # by default
_LEAST = 5  # tokens of a last window


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
    cuts = list(windows.cut(len(ids), room, room))
    if len(cuts) > 1 and cuts[-1][1] < _LEAST:
      cuts[-1] = len(ids) - room, room
    return [sequence(ids[first:first + count])
            for first, count in cuts[:max_windows]]

  return make
