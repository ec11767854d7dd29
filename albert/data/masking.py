"""Pretraining records: segment pairs without order cues; masked words."""

from typing import (
  Counter,
  Dict,
  Iterator,
  List,
  NamedTuple,
  Sequence,
  Set,
  Tuple,
)

import numpy as np

from albert.data.corpus import Document


class Text(NamedTuple):
  """A document and its possible cuts.

  Attributes:
    document: the document.
    cuts: int [C], sorted, from 0 to the number of tokens.
    weights: float [C], for each cut the cumulative weight of the pieces before
      it; see create_pairs.
  """

  document: Document
  cuts: np.ndarray
  weights: np.ndarray


class Segment(NamedTuple):
  """Tokens `start` to `end` of a document."""

  document: Document
  start: int
  end: int


class Settings(NamedTuple):
  """How records are made: the flags of the same names, and the vocabulary.

  Attributes:
    unk_id, cls_id, sep_id, mask_id: ids of special tokens.
    replacements: int32 [...], ids that may replace a masked token.
    inner_labels: int32 [V], label of each token inside a word, usually its id.
  """

  max_seq_length: int
  max_predictions_per_seq: int
  masked_lm_prob: float
  dupe_factor: int
  short_seq_prob: float
  random_seed: int
  masking: str
  ngram: int
  whole_word_share: float
  sentence_pair: str
  per_token_replacement: bool
  legacy_wwm_labels: bool
  unk_id: int
  cls_id: int
  sep_id: int
  mask_id: int
  replacements: np.ndarray
  inner_labels: np.ndarray


# Tokens; sentences up to this length are not cut. Shorter pieces mean less
# padding.
LONG = 32
_MIDDLE = (0.35, 0.65)  # range of the cut in the last pair of a document
_MOST_WAITING = 20  # n-grams; some never fit if records have very few masks
_NEIGHBOURS = 50  # candidates of similar length for exchanging segments


def create_records(
  documents: Sequence[Document],
  shard_index: int,
  settings: Settings,
  counts: Counter[str],
) -> Iterator[Dict[str, np.ndarray]]:
  """Makes the records of one shard, in random order.

  The records depend only on the first three arguments.

  Args:
    documents: may include empty ones.
    shard_index: seeds the random numbers, with `settings.random_seed`.
    settings: see Settings.
    counts: updated.

  Yields:
    arrays by feature name; see `records.pretraining_specs`.
  """
  rng = np.random.RandomState([settings.random_seed, shard_index])
  documents = [document for document in documents if len(document.ids)]
  texts = [
    prepare_text(document, settings.max_seq_length - 3)
    for document in documents
  ]
  counts["text_tokens"] += sum(len(document.ids) for document in documents)
  counts["unknown_tokens"] += sum(
    np.count_nonzero(np.equal(document.ids, settings.unk_id))
    for document in documents
  )
  pairs: List[Tuple[Segment, Segment, int]] = []
  for _ in range(settings.dupe_factor):
    pairs.extend(
      label_pairs(
        [
          pair
          for text in texts
          for pair in create_pairs(text, settings, rng, counts)
        ],
        settings,
        rng,
      )
    )
  waiting: List[int] = []
  for i in rng.permutation(len(pairs)):
    first, second, label = pairs[i]
    yield create_record(first, second, label, settings, rng, counts, waiting)


def find_cuts(document: Document, length: int) -> np.ndarray:
  """Returns the positions where a document may be cut.

  Cuts are sentence boundaries. Sentences of more than LONG tokens, or a sixth
  of `length`, may also be cut between clauses; clauses of more than a sixth of
  `length`, between words: if a pair had few pieces, their lengths would reveal
  the order. Pieces longer than half of `length` are cut anywhere, so that two
  adjacent pieces always fit.

  Args:
    document: not empty.
    length: maximum number of tokens in a pair.

  Returns:
    int [...], sorted, from 0 to the number of tokens.
  """
  total = len(document.ids)
  cuts = np.concatenate([[0], document.sentences, [total]])
  for finer, limit in (
    (document.clauses, min(LONG, length // 6)),
    (document.words, length // 6),
    (np.arange(total), length // 2),
  ):
    sizes = np.diff(cuts)
    cuts = np.union1d(
      cuts, finer[sizes[cuts.searchsorted(finer, "right") - 1] > limit]
    )
  return cuts


def prepare_text(document: Document, length: int) -> Text:
  """Returns a document with its possible cuts and the weights of its pieces.

  Args:
    document: the document.
    length: most tokens of a pair; every piece is shorter, see find_cuts.
  """
  cuts = find_cuts(document, length)
  sizes = np.diff(cuts)
  weights = sizes / (1 - sizes / length)  # why: see create_pairs
  return Text(document, cuts, weights=np.append(0, weights.cumsum()))


def create_pairs(
  text: Text,
  settings: Settings,
  rng: np.random.RandomState,
  counts: Counter[str],
) -> Iterator[Tuple[Segment, Segment]]:
  """Cuts a document into consecutive pairs of segments.

  A pair has as many pieces as fit into a record, or, with `short_seq_prob`,
  into a random shorter length that fits two pieces. Nothing must reveal which
  segment comes first. A pair ends before the piece with the token at a given
  distance, so a cut before a piece of s tokens is an end with probability
  s / L, where L is the length. The cut inside the pair is drawn from those that
  are not ends with weight s / (1 - s / L), so it has the same distribution.

  The end of the document is different: its last lines may be short, and few
  pieces may be left before it. So the last pair starts early enough to also
  fill a record, and is cut near its middle.

  Args:
    text: what to cut.
    settings: see Settings.
    rng: source of random numbers.
    counts: "dropped_tokens" counts tokens of documents with a single piece,
      which cannot make a pair.

  Yields:
    (Segment, Segment), in document order.
  """
  document, cuts, _ = text
  longest = settings.max_seq_length - 3  # [CLS], [SEP], [SEP]
  first, last = 0, len(cuts) - 1
  if last < 2:
    counts["dropped_tokens"] += len(document.ids)
    return
  while first < last:
    stop = 0
    if rng.random_sample() < settings.short_seq_prob:
      length = rng.randint(2, longest + 1)
      stop = cuts.searchsorted(cuts[first] + length, "right") - 1
    if stop < first + 2:
      stop = cuts.searchsorted(cuts[first] + longest, "right") - 1
    if stop == last:
      first = min(first, cuts.searchsorted(cuts[last] - longest))
      place = rng.uniform(*_MIDDLE)
      between = (
        first
        + 1
        + np.argmin(
          np.abs(
            cuts[first + 1 : last]
            - (1 - place) * cuts[first]
            - place * cuts[last]
          )
        )
      )
    else:
      between = _draw_piece(text, first + 1, stop, rng)
    yield (
      Segment(document, cuts[first], cuts[between]),
      Segment(document, cuts[between], cuts[stop]),
    )
    first = stop


def label_pairs(
  pairs: Sequence[Tuple[Segment, Segment]],
  settings: Settings,
  rng: np.random.RandomState,
) -> List[Tuple[Segment, Segment, int]]:
  """Makes the examples of the sentence task.

  Args:
    pairs: consecutive segments.
    settings: with "sop", half of the pairs are swapped and get label 1. With
      "nsp", half exchange their second segments with pairs from other documents
      of similar length, so that lengths do not reveal the label; pairs without
      a match are unchanged.
    rng: source of random numbers.

  Returns:
    list of (Segment, Segment, label).
  """
  labels = rng.randint(2, size=len(pairs))
  if settings.sentence_pair == "sop":
    return [
      (two, one, 1) if label else (one, two, 0)
      for (one, two), label in zip(pairs, labels)
    ]
  made = [(one, two, 0) for one, two in pairs]

  def fit(one, two):
    return one.document is not two.document and (
      _size(one) + _size(two) <= settings.max_seq_length - 3
    )

  alone: List[int] = []  # pairs without a match, the longest last
  for i in sorted(np.flatnonzero(labels), key=lambda i: _size(pairs[i][1])):
    for j in alone[:-_NEIGHBOURS:-1]:
      if fit(pairs[i][0], pairs[j][1]) and fit(pairs[j][0], pairs[i][1]):
        made[i] = pairs[i][0], pairs[j][1], 1
        made[j] = pairs[j][0], pairs[i][1], 1
        alone.remove(j)
        break
    else:
      alone.append(i)
  return made


def _size(segment):
  return segment.end - segment.start


def _draw_piece(text, first, stop, rng):
  """Draws one of the pieces `first` to `stop` - 1 by weight."""
  low, high = text.weights[[first, stop]]
  drawn = low + rng.random_sample() * (high - low)
  return min(int(text.weights.searchsorted(drawn, "right")), stop) - 1


def _inside(positions, start, end):
  """Returns the sorted `positions` in (start, end)."""
  return positions[
    positions.searchsorted(start + 1) : positions.searchsorted(end)
  ]


def create_record(
  first: Segment,
  second: Segment,
  label: int,
  settings: Settings,
  rng: np.random.RandomState,
  counts: Counter[str],
  waiting: List[int],
) -> Dict[str, np.ndarray]:
  """Makes one record: joins two segments, masks and pads.

  Args:
    first, second: segments in the record's order.
    label: label of the sentence task.
    settings: see Settings.
    rng: source of random numbers.
    counts: updated.
    waiting: updated; see `choose_words`.

  Returns:
    arrays by feature name.
  """
  record, begins, ends = _join(first, second, settings)
  end = record["input_mask"].sum()
  limit = min(
    settings.max_predictions_per_seq,
    max(1, int(round((end - 3) * settings.masked_lm_prob))),
  )
  if settings.masking == "token":
    begins = [
      i for begin, stop in zip(begins, ends) for i in range(begin, stop)
    ]
    ends = [begin + 1 for begin in begins]
  elif settings.masking == "mixed":
    begins, ends = keep_one_token(begins, ends, settings.whole_word_share, rng)
  chosen = choose_words(begins, ends, limit, settings, rng, counts, waiting)
  masked, positions, labels = mask_words(
    record["input_ids"],
    [(begins[word], ends[word]) for word in chosen],
    settings,
    rng,
  )

  counts["records"] += 1
  counts["tokens"] += int(end)
  counts["words"] += len(begins)
  counts["label_1"] += int(label)
  counts["masked_tokens"] += len(positions)
  counts["masked_words"] += len(chosen)
  predictions = np.zeros([2, settings.max_predictions_per_seq], np.int32)
  predictions[:, : len(positions)] = positions, labels
  weights = np.zeros(settings.max_predictions_per_seq, np.float32)
  weights[: len(positions)] = 1
  return dict(
    record,
    input_ids=masked,
    masked_lm_positions=predictions[0],
    masked_lm_ids=predictions[1],
    masked_lm_weights=weights,
    next_sentence_labels=np.array([label]),
  )


def _join(first, second, settings):
  """Joins two segments to [CLS] first [SEP] second [SEP] and padding.

  Returns:
    (dict, feature name -> int32 [S]; starts of words; ends of words).
  """
  ids, mask, segments = np.zeros([3, settings.max_seq_length], np.int32)
  ids[0] = settings.cls_id
  end, begins, ends = 1, [], []
  for segment in (first, second):
    start, end = end, end + int(segment.end - segment.start)
    document = segment.document
    ids[start:end] = document.ids[segment.start : segment.end]
    ids[end] = settings.sep_id
    # Each part of a cut word counts as a word.
    inner = _inside(document.words, segment.start, segment.end)
    begins.append(start)
    begins += (inner + (start - segment.start)).tolist()
    ends += begins[len(ends) + 1 :] + [end]
    end += 1
  segments[start:end] = 1
  mask[:end] = 1
  return (
    {"input_ids": ids, "input_mask": mask, "segment_ids": segments},
    begins,
    ends,
  )


def keep_one_token(
  begins: Sequence[int],
  ends: Sequence[int],
  whole_word_share: float,
  rng: np.random.RandomState,
) -> Tuple[List[int], List[int]]:
  """Draws the tokens of each word that may be masked: all of them or one.

  Args:
    begins, ends: token range of each word.
    whole_word_share: probability of all tokens.
    rng: source of random numbers.

  Returns:
    (begins, ends), ranges of the tokens that may be masked.
  """
  starts, stops = np.array([begins, ends])
  drawn = starts + (rng.random_sample(len(starts)) * (stops - starts)).astype(
    starts.dtype
  )
  whole = rng.random_sample(len(starts)) < whole_word_share
  return (
    np.where(whole, starts, drawn).tolist(),
    np.where(whole, stops, drawn + 1).tolist(),
  )


def choose_words(
  begins: Sequence[int],
  ends: Sequence[int],
  limit: int,
  settings: Settings,
  rng: np.random.RandomState,
  counts: Counter[str],
  waiting: List[int],
) -> List[int]:
  """Draws the words to mask.

  Words are drawn in random order, each with the following words of an n-gram: n
  is drawn with p(n) = (1/n) / sum(1/k) (ALBERT, section 4.1) until it fits the
  limit, the segment, and the gaps between chosen words. Values of n that do not
  fit wait for the next place, in any record, so that n-grams keep their shares.

  Args:
    begins, ends: token range of each word.
    limit: maximum number of tokens to choose.
    settings: see Settings.
    rng: source of random numbers.
    counts: n-grams count as "placed_N".
    waiting: drawn values of n that have not been placed; updated.

  Returns:
    sorted indices of the chosen words.
  """
  longest = settings.ngram if settings.masking == "ngram" else 1
  shares = np.cumsum(1.0 / np.arange(1, longest + 1))
  chosen: Set[int] = set()
  for word in rng.permutation(len(begins)).tolist():
    if word in chosen or ends[word] - begins[word] > limit:
      continue
    n = 1
    if longest > 1:
      room = 1
      while room < longest and word + room < len(begins):
        after = word + room
        if (
          after in chosen
          or begins[after] != ends[after - 1]
          or ends[after] - begins[word] > limit
        ):
          break
        room += 1
      n = _draw_run(room, shares, waiting, rng)
      counts["placed_%d" % n] += 1
    chosen.update(range(word, word + n))
    limit -= ends[word + n - 1] - begins[word]
    if not limit:
      break
  return sorted(chosen)


def _draw_run(room, shares, waiting, rng):
  """Returns a number of words from 1 to `room`; see choose_words."""
  for n in waiting:
    if n <= room:
      waiting.remove(n)
      return n
  while len(waiting) < _MOST_WAITING:
    n = 1 + int(shares.searchsorted(rng.random_sample() * shares[-1], "right"))
    if n <= room:
      return n
    waiting.append(n)
  return min(waiting.pop(0), room)


def mask_words(
  ids: np.ndarray,
  words: Sequence[Tuple[int, int]],
  settings: Settings,
  rng: np.random.RandomState,
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Masks words: 80% become [MASK], 10% stay, 10% become random tokens.

  Args:
    ids: int [S].
    words: sorted token ranges (begin, end).
    settings: see Settings.
    rng: source of random numbers.

  Returns:
    (masked ids int [S], positions int [M], labels int [M]).
  """
  positions = np.array(
    [i for begin, end in words for i in range(begin, end)], np.int32
  )
  labels = ids[positions]
  if settings.per_token_replacement:
    draws = rng.random_sample(len(positions))
  else:
    draws = np.repeat(
      rng.random_sample(len(words)), [end - begin for begin, end in words]
    )
  random_ids = settings.replacements[
    rng.randint(len(settings.replacements), size=len(positions))
  ]
  masked = ids.copy()
  masked[positions] = np.where(
    draws < 0.8, settings.mask_id, np.where(draws < 0.9, labels, random_ids)
  )
  if settings.legacy_wwm_labels:
    inner = np.ones(len(positions), np.bool_)
    inner[np.searchsorted(positions, [begin for begin, _ in words])] = False
    labels = np.where(inner, settings.inner_labels[labels], labels)
  return masked, positions, labels
