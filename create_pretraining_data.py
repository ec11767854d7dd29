"""Turns text into tfrecords for masked LM and a sentence task.

Text has one sentence per line and a blank line between documents. It is read
once, in shards of whole documents, which are processed in parallel: each is
segmented and tokenized once and yields the records of all passes. All records
are shuffled together. They depend only on the text, the flags and the seed.
"""

import collections
import dataclasses
import fnmatch
import hashlib
import json
import os
import re
from typing import Any, Dict, List, Tuple

from albert import cli  # first: reports a missing TensorFlow

# isort: split
import jieba
import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

import tokenization
from albert import characters
from albert.data import corpus, shards
from albert.data.masking import Settings
from albert.errors import InputError
from albert.files import filesystem, records, tables
from albert.model_folder import Tokenizer
from albert.settings import NEEDED, USUAL, from_flags, setting

_LONG_DOCUMENT = 200000  # bytes on average, above which to warn


@dataclasses.dataclass(frozen=True)
class TextSettings:
  """The text, and where to write the records."""

  input_file: str = setting(
    None,
    "Text files, also .gz: globs, separated by commas; GLOB:3 reads a "
    "source three times per pass.",
    NEEDED,
    required=True,
  )
  heldout_file: str = setting(
    None,
    "Text files held out for evaluation; lines that --input_file "
    "shares with them are reported.",
    needs="not beam_runner",
  )
  heldout_share: float = setting(
    0.0,
    "Fraction of the documents to leave out for evaluation, chosen by a "
    "hash of their text.",
    USUAL,
    least=0,
    most=1,
    instead_of="heldout_file",
  )
  only_heldout: bool = setting(
    False,
    "Whether to make records of the documents that --heldout_share leaves out.",
    demands="heldout_share",
  )
  text_field: str = setting(
    None, "Key of the text, if files have a JSON object per document.", USUAL
  )
  paragraphs_per_document: int = setting(
    1,
    "For text with a blank line after every paragraph.",
    least=1,
    instead_of="text_field",
  )
  document_characters: int = setting(
    None,
    "For text without blank lines: ends a document after this many characters.",
    least=1,
  )
  output_file: str = setting(
    None, "Record files to write, separated by commas.", NEEDED
  )
  output_dir: str = setting(
    None,
    "Folder for --num_output_shards record files, instead of --output_file.",
    NEEDED,
  )
  vocab_file: str = setting(None, "WordPiece vocabulary.", NEEDED)
  spm_model_file: str = setting(
    None, "SentencePiece model, instead of --vocab_file."
  )
  do_lower_case: bool = setting(True, "Whether to lower-case the text.", USUAL)
  num_output_shards: int = setting(
    10, "Number of record files in --output_dir.", USUAL, least=1
  )
  num_workers: int = setting(
    None,
    "Processes; default: all cores. Their number does not affect the records.",
    least=1,
  )
  shard_characters: int = setting(
    500000, "Characters of text per process at a time.", least=1
  )
  non_chinese: bool = setting(
    False, "Take whole words from spaces and pieces instead of jieba."
  )
  user_dict: str = setting(
    None, "User dictionary for jieba, in jieba's format."
  )
  beam_runner: str = setting(
    None,
    "Make the records on a cluster with this Apache Beam runner, such "
    "as FlinkRunner.",
  )
  beam_options: str = setting("", "Additional runner options.")


@dataclasses.dataclass(frozen=True)
class RecordSettings:
  """How records are made from text."""

  masking: str = setting(
    None,
    "Mask single tokens, whole words (the default), n-grams of whole "
    "words, or a mix of whole words and one of their tokens.",
    USUAL,
    choices=["token", "word", "ngram", "mixed"],
  )
  whole_word_share: float = setting(
    0.5, "Fraction of words masked whole with --masking=mixed.", least=0, most=1
  )
  do_whole_word_mask: bool = setting(
    None, "Alias: true is --masking=word, false --masking=token."
  )
  ngram: int = setting(3, "Maximum words per n-gram with --masking=ngram.")
  sentence_pair: str = setting(
    "sop",
    "Label 1 means that the segments are swapped (sop), or that the "
    "second is from a different document (nsp).",
    choices=["sop", "nsp"],
  )
  max_seq_length: int = setting(512, "Tokens per record.", USUAL)
  max_predictions_per_seq: int = setting(
    51, "Maximum masked tokens per record.", USUAL
  )
  masked_lm_prob: float = setting(0.10, "Fraction of tokens to mask.", USUAL)
  dupe_factor: int = setting(
    10, "Passes over the text, each masked differently.", USUAL
  )
  short_seq_prob: float = setting(
    0.1, "Fraction of records made shorter than possible.", least=0, most=1
  )
  random_seed: int = setting(12345, "Random seed.", least=0, most=2**32 - 1)
  per_token_replacement: bool = setting(
    False,
    "Choose [MASK] / random / unchanged for each token of a masked "
    "word instead of once per word.",
  )
  legacy_wwm_labels: bool = setting(
    False,
    "Label Chinese characters inside words with the ids of their '##' "
    "forms, like the first albert_zh models; only to continue training "
    "those.",
  )


SETTINGS = (TextSettings, RecordSettings)


def create_settings(options: RecordSettings, tokenizer: Tokenizer) -> Settings:
  """Returns the masking settings for a tokenizer."""
  if options.max_seq_length < 5:
    raise InputError("--max_seq_length must be at least 5")
  if not 0 < options.masked_lm_prob < 1:
    raise InputError("--masked_lm_prob must be between 0 and 1")
  for name in ("max_predictions_per_seq", "dupe_factor", "ngram"):
    if getattr(options, name) < 1:
      raise InputError("--%s must be at least 1" % name)
  tokens = tokenizer.convert_ids_to_tokens(range(tokenizer.vocab_size))
  special = re.compile(r"\[unused\d+\]$|<.+>$|\[(PAD|UNK|CLS|SEP|MASK)\]$")
  ids = {token: i for i, token in enumerate(tokens)}
  inner_labels = np.arange(len(tokens), dtype=np.int32)
  for i, token in enumerate(tokens):
    if len(token) == 1 and characters.is_chinese(token):
      inner_labels[i] = ids.get("##" + token, i)
  replacements = np.array(
    [i for i, token in enumerate(tokens) if not special.match(token)], np.int32
  )
  if not replacements.size:
    raise InputError("the vocabulary has only special tokens")
  values = {
    name: getattr(options, name)
    for name in Settings._fields
    if hasattr(options, name)
  }
  alias = {None: None, True: "word", False: "token"}[options.do_whole_word_mask]
  if alias and options.masking not in (None, alias):
    raise InputError(
      "--do_whole_word_mask=%s means --masking=%s, but --masking=%s is given"
      % (options.do_whole_word_mask, alias, options.masking)
    )
  values["masking"] = options.masking or alias or "word"
  return Settings(
    unk_id=tokenizer.unk_id,
    cls_id=tokenizer.cls_id,
    sep_id=tokenizer.sep_id,
    mask_id=tokenizer.mask_id,
    inner_labels=inner_labels,
    replacements=replacements,
    **values,
  )


def create_segmenter(
  texts: TextSettings, tokenizer: Tokenizer
) -> corpus.Segmenter:
  """Returns the segmenter, with jieba's dictionary loaded."""
  use_jieba = not (texts.non_chinese or texts.spm_model_file)
  user_words = []
  if use_jieba:
    jieba.setLogLevel("WARNING")
    jieba.initialize()
    if texts.user_dict:
      with filesystem.open_binary(texts.user_dict) as reader:
        try:
          jieba.load_userdict(reader)
        except ValueError as error:
          raise InputError(
            "--user_dict %s: %s" % (texts.user_dict, error)
          ) from error
      user_words = [
        jieba.re_userdict.match(line.strip()).group(1)
        for line in tables.read_lines(texts.user_dict)
        if line.strip()
      ]
  return corpus.Segmenter(tokenizer, use_jieba, user_words)


def describe(
  settings: Settings, texts: TextSettings, tokenizer: Tokenizer
) -> Dict[str, Any]:
  """Returns the description of the records for their JSON file."""
  description = collections.OrderedDict(
    (name, value)
    for name, value in settings._asdict().items()
    if isinstance(value, (int, float, str))
  )
  description["vocab_size"] = tokenizer.vocab_size
  for name in (
    "do_lower_case",
    "non_chinese",
    "shard_characters",
    "paragraphs_per_document",
    "document_characters",
  ):
    description[name] = getattr(texts, name)
  for name in ("text_field", "heldout_share", "only_heldout"):
    if getattr(texts, name):
      description[name] = getattr(texts, name)
  for name in ("vocab_file", "spm_model_file", "user_dict"):
    if getattr(texts, name):
      description[name + "_sha256"] = hashlib.sha256(
        filesystem.read_bytes(getattr(texts, name))
      ).hexdigest()
  return description


def report(counts: Dict[str, int], settings: Settings) -> None:
  """Logs statistics of the records."""
  made = counts["records"]
  usable = counts["tokens"] - 3 * made
  rows = [
    (
      "documents",
      "%d, %d of them duplicates; %d left out"
      % (
        counts["documents"],
        counts["repeated_documents"],
        counts["other_documents"],
      ),
    ),
    (
      "records",
      "%d, %.1f%% with label 1" % (made, 100.0 * counts["label_1"] / made),
    ),
    (
      "tokens per record",
      "%.1f of %d, %.1f%% padding"
      % (
        counts["tokens"] / made,
        settings.max_seq_length,
        100 - 100.0 * counts["tokens"] / made / settings.max_seq_length,
      ),
    ),
    (
      "masked words",
      "%d, %.2f%%"
      % (
        counts["masked_words"],
        100.0 * counts["masked_words"] / counts["words"],
      ),
    ),
    (
      "masked tokens",
      "%d, %.2f%%"
      % (counts["masked_tokens"], 100.0 * counts["masked_tokens"] / usable),
    ),
  ]
  if settings.masking == "ngram":
    numbers = [counts["placed_%d" % n] for n in range(1, settings.ngram + 1)]
    rows.append(
      (
        "n-grams",
        ", ".join(
          "%d: %.2f%%" % (n, 100.0 * count / max(1, sum(numbers)))
          for n, count in enumerate(numbers, 1)
        ),
      )
    )
  rows += [
    (
      "dropped tokens",
      "%d, %.3f%%, of documents that cannot be split"
      % (
        counts["dropped_tokens"],
        100.0
        * counts["dropped_tokens"]
        / (settings.dupe_factor * counts["text_tokens"]),
      ),
    ),
    (
      "unknown tokens",
      "%d, %.3f%%, [UNK]"
      % (
        counts["unknown_tokens"],
        100.0 * counts["unknown_tokens"] / counts["text_tokens"],
      ),
    ),
    (
      "cut lines",
      "%d times, after %d characters"
      % (counts["cut_lines"], corpus.LONGEST_LINE),
    ),
    ("invalid bytes", "%d, not UTF-8" % counts["invalid_bytes"]),
  ]
  for row in rows:
    logging.info("%18s  %s", *row)
  tokenization.warn_of_unknown(
    "the text", counts["unknown_tokens"], counts["text_tokens"]
  )
  if counts["heldout_lines"]:
    logging.warning(
      "%d lines of --input_file are also in --heldout_file: "
      "results on it will be too good",
      counts["heldout_lines"],
    )
  documents = counts["documents"] + counts["other_documents"]
  if counts["text_bytes"] > _LONG_DOCUMENT * documents:
    logging.warning(
      "documents have %.0f KB on average: separate documents by "
      "blank lines, or give --document_characters",
      counts["text_bytes"] / documents / 1e3,
    )
  if counts["label_1"] in (0, made):
    logging.warning(
      "all records have the same label: nothing to learn for the sentence task"
    )


def name_outputs(texts: TextSettings) -> Tuple[List[str], List[str]]:
  """Returns the paths of the record files and of their descriptions."""
  if texts.output_dir:
    count = texts.num_output_shards
    names = ["part-%05d-of-%05d.tfrecord" % (i, count) for i in range(count)]
    return [os.path.join(texts.output_dir, name) for name in names], [
      os.path.join(texts.output_dir, "records.json")
    ]
  outputs = [path for path in texts.output_file.split(",") if path]
  if not outputs:
    raise InputError("--output_file=%s has no file name" % texts.output_file)
  return outputs, [path + ".json" for path in outputs]


def check_outputs(
  texts: TextSettings, outputs: List[str], inputs: List[str]
) -> None:
  """Raises an InputError if outputs would overwrite text or other records."""
  for path in outputs:
    if any(filesystem.is_same(path, text) for text in inputs):
      raise InputError("--output_file %s is also an --input_file" % path)
  if texts.output_dir and filesystem.exists(texts.output_dir):
    names = fnmatch.filter(
      tf.io.gfile.listdir(texts.output_dir), "part-*-of-*.tfrecord"
    )
    others = set(names) - set(map(os.path.basename, outputs))
    if others:
      raise InputError(
        "--output_dir %s has records of a different run (%s): remove them, "
        "or choose a different folder" % (texts.output_dir, min(others))
      )


def check_described(paths: List[str], description: Dict[str, Any]) -> None:
  """Checks that existing records were made in the same way.

  Args:
    paths: descriptions of existing records.
    description: see `describe`.

  Raises:
    InputError: they differ.
  """
  for path in filter(filesystem.exists, paths):
    before = filesystem.read_json(path)
    for name, value in description.items():
      if before.get(name, value) != value:
        raise InputError(
          "%s: existing records were made with %s %s, not %s: remove them "
          "and this file, or choose a different output"
          % (path, name, before[name], value)
        )


def vocabulary_copies(
  texts: TextSettings, outputs: List[str]
) -> Dict[str, str]:
  """Returns where to copy the vocabulary next to the records: path -> source.

  Pretraining copies it from there to the model folder.

  Raises:
    InputError: there already is a different vocabulary.
  """
  source = texts.spm_model_file or texts.vocab_file
  name = "spm.model" if texts.spm_model_file else "vocab.txt"
  copies = {os.path.join(os.path.dirname(path), name) for path in outputs}
  for path in copies:
    if filesystem.exists(path) and (
      filesystem.read_bytes(path) != filesystem.read_bytes(source)
    ):
      raise InputError(
        "%s is a different vocabulary from %s: choose a "
        "different folder for the records" % (path, source)
      )
  return {path: source for path in copies}


def remove(paths: List[str]) -> None:
  """Removes files that exist."""
  for path in filter(filesystem.exists, paths):
    tf.io.gfile.remove(path)


def copy(sources: Dict[str, str]) -> None:
  """Copies files: path -> source."""
  for path, source in sources.items():
    filesystem.write_bytes(path, filesystem.read_bytes(source))


def run_beam(
  texts: TextSettings,
  reader: corpus.TextReader,
  maker: shards.ShardMaker,
  random_seed: int,
) -> None:
  """Makes the records on a cluster."""
  try:
    from albert.data import beam_pipeline  # Beam is an optional extra
  except ImportError as error:
    raise InputError(
      "--beam_runner: %s; pip install '.[beam]'" % error
    ) from error
  beam_pipeline.run(
    texts.beam_runner,
    texts.beam_options,
    reader,
    beam_pipeline.MakeRecords(maker, texts.user_dict),
    random_seed,
    texts.output_dir,
    texts.num_output_shards,
  )


def make_records(
  texts: TextSettings,
  reader: corpus.TextReader,
  maker: shards.ShardMaker,
  outputs: List[str],
  described: List[str],
) -> Dict[str, int]:
  """Makes the records in processes on this machine.

  Args:
    texts: settings of the text.
    reader: reads the text.
    maker: makes the records.
    outputs: the record files.
    described: descriptions of earlier records, which are removed first.

  Returns:
    statistics by name.
  """
  num_workers = texts.num_workers or os.cpu_count()
  try:
    num_shards, counts = shards.make_shards(reader, maker, num_workers)
    if not counts["records"]:
      raise InputError(
        "--input_file %s: too little text for a record" % texts.input_file
      )
    if counts["records"] < len(outputs):
      raise InputError(
        "%d records are too few for %d files"
        % (counts["records"], len(outputs))
      )
  except InputError:  # different text needs different shards
    tf.io.gfile.rmtree(maker.folder)
    raise
  del counts["bytes"]
  remove(described)
  shards.write_outputs(
    maker, num_shards, counts["records"], outputs, num_workers
  )
  return counts + reader.counts


def weighted_paths(patterns: str) -> List[str]:
  """Expands globs such as "a*.txt,b.txt:3", whose files occur three times."""
  weights: Dict[str, int] = {}
  for pattern in list(filter(None, patterns.split(","))) or [""]:
    glob, weight = re.fullmatch(
      r"(.*?)(?::([1-9]\d*))?", pattern.strip()
    ).groups()
    for path in records.expand_patterns(glob, "input_file"):
      weights[path] = max(weights.get(path, 0), int(weight or 1))
  return [  # copies apart: NSP draws other documents nearby
    path
    for turn in range(max(weights.values()))
    for path in sorted(weights)
    if weights[path] > turn
  ]


def check_inputs(texts: TextSettings, paths: List[str]) -> None:
  """Raises an InputError for files that are not plain text."""
  for path in paths:
    if os.path.exists(path) and not os.path.isfile(path):  # it is read twice
      raise InputError("%s: not a regular file" % path)
    if not texts.text_field:
      corpus.check_is_text(path)


def main() -> None:
  texts = from_flags(TextSettings)
  if bool(texts.output_file) == bool(texts.output_dir):
    raise InputError("give --output_file or --output_dir")
  if texts.beam_runner and texts.output_file:
    raise InputError("--beam_runner needs --output_dir, not --output_file")
  outputs, described = name_outputs(texts)
  paths = weighted_paths(texts.input_file)
  check_outputs(texts, outputs, paths)
  check_inputs(texts, paths)
  tokenizer = tokenization.create_tokenizer(
    texts.vocab_file, texts.spm_model_file, texts.do_lower_case
  )
  settings = create_settings(from_flags(RecordSettings), tokenizer)
  checksum = filesystem.sha256(*paths)
  num_bytes = sum(map(filesystem.size, paths))
  description = dict(
    describe(settings, texts, tokenizer),
    text_files=len(set(paths)),
    text_bytes=num_bytes,
  )
  copies = vocabulary_copies(texts, outputs)
  check_described(described, description)

  # Unfinished runs resume only with the same text and settings.
  state = json.dumps([description, outputs, paths, checksum])
  folder = os.path.join(
    os.path.dirname(outputs[0]),
    "unfinished-" + hashlib.sha256(state.encode()).hexdigest()[:16],
  )
  heldout = (
    records.expand_patterns(texts.heldout_file, "heldout_file")
    if (texts.heldout_file)
    else []
  )
  reader = corpus.TextReader(
    paths,
    texts.shard_characters,
    texts.text_field,
    heldout,
    texts.paragraphs_per_document,
    texts.document_characters,
    texts.heldout_share,
    texts.only_heldout,
  )
  maker = shards.ShardMaker(
    create_segmenter(texts, tokenizer),
    settings,
    shards.count_buckets(num_bytes, settings, len(outputs)),
    folder,
  )
  if texts.beam_runner:
    remove(described)
    run_beam(texts, reader, maker, settings.random_seed)
    try:
      records.check_records(outputs, [])
    except InputError:
      remove(outputs)
      raise
  else:
    for path in {os.path.dirname(path) or "." for path in outputs}:
      filesystem.make_folder(path)
    filesystem.make_folder(folder)
    with shards.naming_death():
      counts = make_records(texts, reader, maker, outputs, described)
    if checksum != filesystem.sha256(*paths):
      remove(outputs)
      raise InputError(
        "--input_file %s: changed while being read" % texts.input_file
      )
    description["counts"] = counts
  for path in described:
    filesystem.write_json(path, description)
  copy(copies)
  if not texts.beam_runner:
    tf.io.gfile.rmtree(folder)
    report(counts, settings)
  logging.info(
    "made %s",
    ", ".join(outputs)
    if len(outputs) < 5
    else "%s ... %s" % (outputs[0], outputs[-1]),
  )


if __name__ == "__main__":
  cli.run(main, SETTINGS)
