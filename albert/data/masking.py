"""Pretraining records: pairs whose order does not leak, and masked words."""

from typing import Any, NamedTuple

import numpy as np


class Text(NamedTuple):
  """A document and where it may be cut.

  Attributes:
    document: corpus.Document.
    cuts: int [C], in order, from 0 to the number of tokens.
    weights: float [C], for each cut the sum over the pieces before it; see
      create_pairs.
  """
  document: Any
  cuts: np.ndarray
  weights: np.ndarray


class Segment(NamedTuple):
  """Part of a corpus.Document, tokens `start` to `end`."""
  document: Any
  start: int
  end: int


class Settings(NamedTuple):
  """How records are made: the flags of the same names, and the vocabulary.

  Attributes:
    unk_id, cls_id, sep_id, mask_id: int.
    replacements: int32 [...], ids that may stand for a masked token.
    inner_labels: int32 [V], the label of a token inside a word, mostly its id.
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


# Tokens; a sentence that is not longer stays whole. The shorter the pieces of a
# text, the less of a record is padding.
LONG = 32
_MIDDLE = (0.35, 0.65)  # of the last pair of a document
_MOST_WAITING = 20  # n-grams; with very few masks to a record, some never fit
_NEIGHBOURS = 50  # of about the same length, to exchange segments with


def create_records(documents, shard_index, settings, counts):
  """Makes the records of one shard, in random order.

  They depend on the first three arguments alone.

  Args:
    documents: list of corpus.Document.
    shard_index: int.
    settings: Settings.
    counts: collections.Counter, to count into.

  Yields:
    dicts, feature name -> array (see `records.pretraining_specs`).
  """
  rng = np.random.RandomState([settings.random_seed, shard_index])
  documents = [document for document in documents if len(document.ids)]
  texts = [prepare_text(document, settings.max_seq_length - 3)
           for document in documents]
  counts["text_tokens"] += sum(len(document.ids) for document in documents)
  counts["unknown_tokens"] += sum(
      np.count_nonzero(np.equal(document.ids, settings.unk_id))
      for document in documents)
  pairs = []
  for _ in range(settings.dupe_factor):
    pairs.extend(label_pairs([
        pair for text in texts
        for pair in create_pairs(text, settings, rng, counts)], settings, rng))
  waiting = []
  for i in rng.permutation(len(pairs)):
    yield create_record(*pairs[i], settings, rng, counts, waiting)


def find_cuts(document, length):
  """Returns where a document may be cut, whatever the cut is for.

  Cuts are sentence boundaries. A sentence of more than LONG tokens, or a sixth
  of `length`, may also be cut between its clauses; a clause of more than a
  sixth of it, between its words: with few pieces in a pair, their lengths would
  tell which is the first. What is more than half of `length` is cut anywhere,
  so that two neighbouring pieces always fit.

  Args:
    document: corpus.Document, not empty.
    length: int, maximum number of tokens in a pair.

  Returns:
    int [...], in order, from 0 to the number of tokens.
  """
  total = len(document.ids)
  cuts = np.concatenate([[0], document.sentences, [total]])
  for finer, limit in (
      (document.clauses, min(LONG, length // 6)),
      (document.words, length // 6),
      (np.arange(total), length // 2)):
    sizes = np.diff(cuts)
    cuts = np.union1d(
        cuts, finer[sizes[cuts.searchsorted(finer, "right") - 1] > limit])
  return cuts


def prepare_text(document, length):
  """Returns the Text of a corpus.Document; `length` as for `find_cuts`."""
  cuts = find_cuts(document, length)
  sizes = np.diff(cuts)
  return Text(document, cuts,
              np.append(0, (sizes / (1 - sizes / length)).cumsum()))


def create_pairs(text, settings, rng, counts):
  """Cuts a document into pairs of segments, one after the other.

  A pair has as many pieces as fit into a record, or, with `short_seq_prob`,
  into a random shorter length that two pieces fit into. Nothing must tell which
  segment comes first. A pair ends before the piece that the token at a given
  distance is in, so a cut before a piece of s tokens is an end with probability
  s / L, L being the length. The cut inside the pair is drawn among those that
  are not ends with weight s / (1 - s / L), and so it is like an end.

  The end of the document is no such end: its last lines may be short, and what
  is left before it has few pieces. The last pair begins so early that it fills
  a record, too, and is cut near its middle.

  Args:
    text: Text.
    settings: Settings.
    rng: np.random.RandomState.
    counts: collections.Counter; "dropped_tokens" counts those of documents of a
      single piece, which make no pair.

  Yields:
    (Segment, Segment), in their order.
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
      between = first + 1 + np.argmin(np.abs(
          cuts[first + 1:last] -
          (1 - place) * cuts[first] - place * cuts[last]))
    else:
      between = _draw_piece(text, first + 1, stop, rng)
    yield (Segment(document, cuts[first], cuts[between]),
           Segment(document, cuts[between], cuts[stop]))
    first = stop


def label_pairs(pairs, settings, rng):
  """Makes the examples of the sentence task of pairs.

  Args:
    pairs: list of (Segment, Segment), as they follow one another.
    settings: Settings. With "sop", half of the pairs are swapped; label 1. With
      "nsp", half exchange their second segments with one of about the same
      length of a different document, so that lengths do not tell the label;
      those that find none stay as they are.
    rng: np.random.RandomState.

  Returns:
    list of (Segment, Segment, label).
  """
  labels = rng.randint(2, size=len(pairs))
  if settings.sentence_pair == "sop":
    return [(two, one, 1) if label else (one, two, 0)
            for (one, two), label in zip(pairs, labels)]
  made = [(one, two, 0) for one, two in pairs]
  alone = []  # have found no other one yet
  for i in sorted(np.flatnonzero(labels), key=lambda i: _size(pairs[i][1])):
    for j in alone[:-_NEIGHBOURS:-1]:
      if all(x[0].document is not y[1].document and _size(x[0]) + _size(
          y[1]) <= settings.max_seq_length - 3
             for x, y in ((pairs[i], pairs[j]), (pairs[j], pairs[i]))):
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
  """Draws one of the pieces `first` to `stop` - 1, by their weights."""
  low, high = text.weights[[first, stop]]
  drawn = low + rng.random_sample() * (high - low)
  return min(int(text.weights.searchsorted(drawn, "right")), stop) - 1


def _inside(positions, start, end):
  """Returns those of the sorted `positions` inside (start, end)."""
  return positions[positions.searchsorted(start + 1):
                   positions.searchsorted(end)]


def create_record(first, second, label, settings, rng, counts, waiting):
  """Makes one record: joins two segments, masks, pads.

  Args:
    first: Segment.
    second: Segment.
    label: int, of the sentence task.
    settings: Settings.
    rng: np.random.RandomState.
    counts: collections.Counter, to count into.
    waiting: list of int; see `choose_words`.

  Returns:
    dict, feature name -> array.
  """
  record, begins, ends = _join(first, second, settings)
  end = record["input_mask"].sum()
  limit = min(settings.max_predictions_per_seq,
              max(1, int(round((end - 3) * settings.masked_lm_prob))))
  if settings.masking == "token":
    begins = [i for begin, stop in zip(begins, ends)
              for i in range(begin, stop)]
    ends = [begin + 1 for begin in begins]
  elif settings.masking == "mixed":
    begins, ends = keep_one_token(begins, ends, settings.whole_word_share, rng)
  chosen = choose_words(begins, ends, limit, settings, rng, counts, waiting)
  masked, positions, labels = mask_words(
      record["input_ids"], [(begins[word], ends[word]) for word in chosen],
      settings, rng)

  counts["records"] += 1
  counts["tokens"] += int(end)
  counts["words"] += len(begins)
  counts["label_1"] += int(label)
  counts["masked_tokens"] += len(positions)
  counts["masked_words"] += len(chosen)
  predictions = np.zeros([2, settings.max_predictions_per_seq], np.int32)
  predictions[:, :len(positions)] = positions, labels
  weights = np.zeros(settings.max_predictions_per_seq, np.float32)
  weights[:len(positions)] = 1
  return dict(record, input_ids=masked, masked_lm_positions=predictions[0],
              masked_lm_ids=predictions[1], masked_lm_weights=weights,
              next_sentence_labels=np.array([label]))


def _join(first, second, settings):
  """Joins two segments to [CLS] first [SEP] second [SEP] and padding.

  Returns:
    (dict, feature name -> int32 [S]; lists of int, where words begin and end).
  """
  ids, mask, segments = np.zeros([3, settings.max_seq_length], np.int32)
  ids[0] = settings.cls_id
  end, begins, ends = 1, [], []
  for segment in (first, second):
    start, end = end, end + int(segment.end - segment.start)
    document = segment.document
    ids[start:end] = document.ids[segment.start:segment.end]
    ids[end] = settings.sep_id
    # A cut word counts as a word.
    inner = _inside(document.words, segment.start, segment.end)
    begins.append(start)
    begins += (inner + (start - segment.start)).tolist()
    ends += begins[len(ends) + 1:] + [end]
    end += 1
  segments[start:end] = 1
  mask[:end] = 1
  return {"input_ids": ids, "input_mask": mask,
          "segment_ids": segments}, begins, ends


def keep_one_token(begins, ends, whole_word_share, rng):
  """Draws what may be masked of each word: all of it, or one of its tokens.

  Args:
    begins, ends: lists of int, the tokens of each word.
    whole_word_share: float, how often it is all of the word.
    rng: np.random.RandomState.

  Returns:
    (begins, ends), lists of int, of what may be masked.
  """
  begins, ends = np.array([begins, ends])
  drawn = begins + (rng.random_sample(len(begins)) * (ends - begins)).astype(
      begins.dtype)
  whole = rng.random_sample(len(begins)) < whole_word_share
  return (np.where(whole, begins, drawn).tolist(),
          np.where(whole, ends, drawn + 1).tolist())


def choose_words(begins, ends, limit, settings, rng, counts, waiting):
  """Draws the words to mask.

  Words come in random order, each with the words after it that an n-gram takes:
  n is drawn with p(n) = (1/n) / sum(1/k) (ALBERT, section 4.1) until it fits,
  into the limit, the segment, and between the words chosen before. What did not
  fit waits for the next place, in whatever record, so that runs have the shares
  that they are drawn with.

  Args:
    begins, ends: lists of int, the tokens of each word.
    limit: int, maximum number of tokens to choose.
    settings: Settings.
    rng: np.random.RandomState.
    counts: collections.Counter; n-grams count as "placed_N".
    waiting: list of int, each n that was drawn and is to be placed; changed.

  Returns:
    list of int, the chosen words in order.
  """
  longest = settings.ngram if settings.masking == "ngram" else 1
  shares = np.cumsum(1.0 / np.arange(1, longest + 1))
  chosen = set()
  for word in rng.permutation(len(begins)).tolist():
    if word in chosen or ends[word] - begins[word] > limit:
      continue
    n = 1
    if longest > 1:
      room = 1
      while room < longest and word + room < len(begins) and (
          word + room not in chosen) and (
              begins[word + room] == ends[word + room - 1]) and (
                  ends[word + room] - begins[word] <= limit):
        room += 1
      n = _draw_run(room, shares, waiting, rng)
      counts["placed_%d" % n] += 1
    chosen.update(range(word, word + n))
    limit -= ends[word + n - 1] - begins[word]
    if not limit:
      break
  return sorted(chosen)


def _draw_run(room, shares, waiting, rng):
  """Returns how many words a run of at most `room` has; see choose_words."""
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


def mask_words(ids, words, settings, rng):
  """Masks words: 80% become [MASK], 10% stay, 10% become random tokens.

  Args:
    ids: int [S].
    words: list of (begin, end), in order.
    settings: Settings.
    rng: np.random.RandomState.

  Returns:
    (masked ids int [S], positions int [M], labels int [M]).
  """
  positions = np.array([i for begin, end in words for i in range(begin, end)],
                       np.int32)
  labels = ids[positions]
  if settings.per_token_replacement:
    draws = rng.random_sample(len(positions))
  else:
    draws = np.repeat(rng.random_sample(len(words)),
                      [end - begin for begin, end in words])
  random_ids = settings.replacements[
      rng.randint(len(settings.replacements), size=len(positions))]
  masked = ids.copy()
  masked[positions] = np.where(draws < 0.8, settings.mask_id,
                               np.where(draws < 0.9, labels, random_ids))
  if settings.legacy_wwm_labels:
    inner = np.ones(len(positions), np.bool_)
    inner[np.searchsorted(positions, [begin for begin, _ in words])] = False
    labels = np.where(inner, settings.inner_labels[labels], labels)
  return masked, positions, labels
