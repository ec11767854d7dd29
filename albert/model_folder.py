"""A model folder: a model and everything needed to use it.

    config.json           configuration
    vocab.txt, spm.model  WordPiece vocabulary or SentencePiece model
    task.json             the task, and how text is read
    model.ckpt-...        checkpoints
Scripts that make a model write such a folder; those that use one call `load`.
No function here needs TensorFlow.
"""

import dataclasses
import json
import os
import re
from typing import Any, Dict, List, Optional, Tuple, Union, cast, get_type_hints

from absl import logging

import tokenization
from albert.errors import InputError
from albert.files import filesystem
from albert.model.config import AlbertConfig
from albert.settings import USUAL, setting

Tokenizer = Union[
  tokenization.WordPieceTokenizer, tokenization.SentencePieceTokenizer
]


@dataclasses.dataclass(frozen=True)
class FolderSettings:
  """Settings for incomplete model folders."""

  bert_config_file: str = setting(
    None,
    "Model configuration (JSON); default: the one next to the checkpoint.",
    alias="albert_config_file",
  )
  vocab_file: str = setting(
    None, "WordPiece vocabulary; default: the one next to the checkpoint."
  )
  spm_model_file: str = setting(
    None, "SentencePiece model, instead of a vocabulary."
  )
  do_lower_case: bool = setting(
    None,
    "Whether to lower-case the text; default: that of the model, "
    "otherwise true.",
  )


@dataclasses.dataclass(frozen=True)
class ModelSettings(FolderSettings):
  """The model to start from."""

  init_checkpoint: str = setting(
    None,
    "Checkpoint to start from, in either variable layout, or a folder "
    "with checkpoints.",
    USUAL,
  )


# Keys of task.json: those of a task, and all.
_TASK = (
  "head",
  "labels",
  "pairs",
  "long_text",
  "max_windows",
  "positive_label",
  "reading",
  "thresholds",
  "calibration_temperature",
  "crf",
  "by_character",
  "has_unanswerable",
  "null_threshold",
  "pooling",
  "layer",
)
_KEYS = (
  "task_name",
  "max_seq_length",
  "do_lower_case",
  "init_checkpoint",
  *_TASK,
)
_TOKENIZERS = ("vocab.txt", "spm.model")


@dataclasses.dataclass(frozen=True)
class ModelFolder:
  """A model folder's contents.

  Attributes:
    config: configuration.
    tokenizer_file: vocabulary or SentencePiece model; None if missing.
    do_lower_case: whether text is lower-cased.
    path: checkpoint or folder with checkpoints; None for a model from scratch.
    max_seq_length: tokens per text in training.
    task_name: name of the task.
    head: kind of task; see `heads.Head.name`. None if unknown, or if the model
      was not trained for a task.
    labels: None if the task has no labels, empty for regression.
    pairs: whether the texts are pairs; None if unknown.
    init_checkpoint: what training started from; None if unknown.
    long_text, max_windows: how long texts are read; see tasks.windows.
    positive_label: of two labels, the positive one for F1.
    reading: how the training table was read: `columns`, and which are `text_a`
      and `text_b`; None without such flags.
    thresholds: label -> probability threshold.
    calibration_temperature: divides the logits, with one label per text.
    crf, by_character: of NER models; see run_ner.py.
    has_unanswerable: whether a question may have no answer.
    null_threshold: threshold for the odds of no answer.
    pooling, layer: of sentence vectors; see heads.vectors.
  """

  config: AlbertConfig
  tokenizer_file: Optional[str]
  do_lower_case: bool = True
  path: Optional[str] = None
  max_seq_length: Optional[int] = None
  task_name: Optional[str] = None
  head: Optional[str] = None
  labels: Optional[List[str]] = None
  pairs: Optional[bool] = None
  init_checkpoint: Optional[str] = None
  long_text: Optional[str] = None
  max_windows: Optional[int] = None
  positive_label: Optional[str] = None
  reading: Optional[Dict[str, Any]] = None
  thresholds: Optional[Dict[str, float]] = None
  calibration_temperature: Optional[float] = None
  crf: Optional[bool] = None
  by_character: Optional[bool] = None
  has_unanswerable: Optional[bool] = None
  null_threshold: Optional[float] = None
  pooling: Optional[str] = None
  layer: Optional[int] = None

  @property
  def where(self) -> str:
    """Name of the folder in messages."""
    return self.path or "the model"

  @property
  def vector(self) -> Optional[Tuple[str, int]]:
    """Pooling and layer of a model trained for vectors, otherwise None.

    See `heads.vectors.sentence_vectors`.
    """
    return (self.pooling, cast(int, self.layer)) if self.pooling else None

  @property
  def is_sentencepiece(self) -> bool:
    """Whether the tokenizer is a SentencePiece model."""
    return cast(str, self.tokenizer_file).endswith(".model")

  @property
  def checkpoint(self) -> str:
    """Path of the checkpoint; raises an InputError if there is none."""
    return _find_checkpoint(self.path)

  def create_tokenizer(self) -> Tokenizer:
    """Returns the tokenizer.

    Raises:
      InputError: there is none, or its size differs from the configuration's.
    """
    if not self.tokenizer_file:
      raise InputError("--vocab_file or --spm_model_file is required")
    name = "spm_model_file" if self.is_sentencepiece else "vocab_file"
    tokenizer = tokenization.create_tokenizer(
      do_lower_case=self.do_lower_case, **{name: self.tokenizer_file}
    )
    if tokenizer.vocab_size != self.config.vocab_size:
      raise InputError(
        "%s has %d entries, but the configuration has vocab_size %d: use "
        "the vocabulary the model was made with"
        % (self.tokenizer_file, tokenizer.vocab_size, self.config.vocab_size)
      )
    return tokenizer

  def length(self, max_seq_length: Optional[int] = None) -> int:
    """Returns the maximum tokens of a text.

    Args:
      max_seq_length: maximum requested; defaults to the model's.
    """
    longest = self.config.max_position_embeddings
    return min(max_seq_length or self.max_seq_length or longest, longest)

  def check_length(self, max_seq_length: int) -> None:
    """Raises an InputError if the model has fewer positions."""
    if max_seq_length > self.config.max_position_embeddings:
      raise InputError(
        "--max_seq_length %d exceeds the %d positions of %s"
        % (max_seq_length, self.config.max_position_embeddings, self.where)
      )

  def contents(self) -> Dict[str, bytes]:
    """Returns the files that describe the model: name -> content."""
    values = {"config.json": self.config.to_dict(), "task.json": self.task()}
    files = {
      name: filesystem.json_text(content).encode()
      for name, content in values.items()
    }
    if self.tokenizer_file:
      name = "spm.model" if self.is_sentencepiece else "vocab.txt"
      files[name] = filesystem.read_bytes(self.tokenizer_file)
    return files

  def task(self) -> Dict[str, Any]:
    """Returns the content of `task.json`: the known attributes."""
    values = {key: getattr(self, key) for key in _KEYS}
    return {key: value for key, value in values.items() if value is not None}

  def for_task(self, **task: Any) -> "ModelFolder":
    """Returns a copy for a different task.

    Args:
      **task: attributes of the task; the rest become None.
    """
    return dataclasses.replace(self, **dict(dict.fromkeys(_TASK), **task))

  def write(self, folder: str) -> None:
    """Writes the files that describe the model."""
    for name, content in self.contents().items():
      filesystem.write_bytes(os.path.join(folder, name), content)


def load(given: FolderSettings, path: Optional[str]) -> ModelFolder:
  """Reads the folder of a checkpoint, such as the `best` of a fine-tuning run.

  Args:
    given: settings; a configuration overrides the one in the folder, with a
      warning if they differ.
    path: checkpoint or folder with checkpoints; None for a model from scratch.

  Raises:
    InputError: the configuration is missing, or files are inconsistent.
  """
  task = read_task(path)
  config_file = find_config(path, given.bert_config_file)
  if not config_file:
    if path:
      _find_checkpoint(path)  # fails early
      raise InputError(
        "--bert_config_file is required: there is no "
        "configuration next to %s" % path
      )
    raise InputError(
      "--bert_config_file is required: give --init_checkpoint "
      "or, from scratch, --bert_config_file and --vocab_file"
    )
  config = AlbertConfig.from_json_file(config_file)
  logging.info("%s: %s", config_file, config.summary())
  do_lower_case = task.pop("do_lower_case", None)
  if given.do_lower_case is not None:
    if do_lower_case not in (None, given.do_lower_case):
      raise InputError(
        "--do_lower_case is %s, but the model next to %s was "
        "made with %s" % (given.do_lower_case, path, do_lower_case)
      )
    do_lower_case = given.do_lower_case
  values = {key: task[key] for key in _KEYS if key in task}
  return ModelFolder(
    config=config,
    path=path,
    tokenizer_file=_find_tokenizer(path, given),
    do_lower_case=True if do_lower_case is None else do_lower_case,
    **dict(values, **_thresholds(path)),
  )


def begun_with(
  folder: ModelFolder, begun: Optional[str], init_checkpoint: Optional[str]
) -> ModelFolder:
  """Returns the folder with its `init_checkpoint` filled in.

  Args:
    folder: folder of the model.
    begun: checkpoint in --output_dir to resume from.
    init_checkpoint: value of --init_checkpoint.
  """
  first: Optional[str] = init_checkpoint or "random weights"
  if begun:
    first = read_task(begun).get("init_checkpoint")
  return dataclasses.replace(folder, init_checkpoint=first)


def for_records(
  folder: ModelFolder,
  given: FolderSettings,
  made_with: Dict[str, Any],
  paths: List[str],
  max_seq_length: int,
) -> ModelFolder:
  """Returns the folder of a model to pretrain on records.

  Its vocabulary is the given one, or the one next to the checkpoint or to the
  records; the records must have been made with it. Lower case and length are
  those of the records.

  Args:
    folder: folder of the checkpoint to start from.
    given: flags; None where not set.
    made_with: contents of the records' descriptions.
    paths: the record files.
    max_seq_length: of the records.

  Raises:
    InputError: vocabulary or do_lower_case are not those of the records.
  """
  name = (
    "spm_model_file"
    if made_with.get("spm_model_file_sha256")
    else ("vocab_file")
  )
  wanted = made_with.get(name + "_sha256")
  tokenizer_file = folder.tokenizer_file
  for path in paths:
    tokenizer_file = tokenizer_file or filesystem.find_beside(
      os.path.dirname(path) or ".", _TOKENIZERS
    )
  if tokenizer_file and wanted not in (None, filesystem.sha256(tokenizer_file)):
    raise InputError(
      "%s is not the vocabulary that %s was made with: set --%s"
      % (tokenizer_file, paths[0], name)
    )
  if not tokenizer_file:
    logging.warning(
      "the vocabulary of %s is unknown, so it will not be copied "
      "next to the model: set --%s",
      paths[0],
      name,
    )
  do_lower_case = made_with.get("do_lower_case", folder.do_lower_case)
  is_stated = given.do_lower_case is not None or (
    "do_lower_case" in read_task(folder.path)
  )
  if is_stated and do_lower_case != folder.do_lower_case:
    raise InputError(
      "%s was made with do_lower_case %s, but the model has %s"
      % (paths[0], do_lower_case, folder.do_lower_case)
    )
  return ModelFolder(
    config=folder.config,
    path=folder.path,
    tokenizer_file=tokenizer_file,
    do_lower_case=do_lower_case,
    max_seq_length=max_seq_length,
    init_checkpoint=folder.init_checkpoint,
  )


def read_task(path: Optional[str]) -> Dict[str, Any]:
  """Returns the contents of `task.json` next to a checkpoint, if it exists.

  Fills in keys that earlier versions did not write.
  """
  task_file = filesystem.find_beside(path, ["task.json"])
  task = filesystem.read_json(task_file) if task_file else {}
  if not isinstance(task, dict):
    raise InputError("%s: not a JSON object" % task_file)
  hints = get_type_hints(ModelFolder)
  for key in set(_KEYS) & set(task):
    if not _is_of_type(task[key], hints[key]):
      raise InputError(
        "%s: %r cannot be %.60s"
        % (task_file, key, json.dumps(task[key], ensure_ascii=False))
      )
  if task.pop("label_tokens", False):
    task["head"] = "token_labels"
  elif "head" not in task and task.get("task_name") in ("race", "c3", "chid"):
    task["head"] = "choices"
  return task


def _is_of_type(value, hint):
  """Returns whether a JSON value is of a type, such as Dict[str, float]."""
  origin = getattr(hint, "__origin__", None)
  if origin is Union:
    return any(_is_of_type(value, part) for part in hint.__args__)
  if origin is dict:
    return isinstance(value, dict) and all(
      _is_of_type(part, hint.__args__[1]) for part in value.values()
    )
  if origin is list:
    return isinstance(value, list) and all(
      _is_of_type(part, hint.__args__[0]) for part in value
    )
  if hint in (int, float):
    return isinstance(value, (int, hint)) and not isinstance(value, bool)
  return hint is Any or isinstance(value, hint)


def _thresholds(path):
  """Returns the values chosen by an evaluation next to `path`.

  `null_threshold`, `thresholds`, `calibration_temperature`: see ModelFolder.
  """
  report = filesystem.find_beside(path, ["eval_results.txt"])
  labels = filesystem.find_beside(path, ["thresholds.json"])
  chosen = {}
  text = filesystem.read_text(report) if report else ""
  for name in ("null_threshold", "calibration_temperature"):
    found = re.search(r"^%s = (\S+)$" % name, text, re.M)
    if found:
      chosen[name] = float(found.group(1))
  if labels:
    chosen["thresholds"] = filesystem.read_json(labels)
    if not _is_of_type(chosen["thresholds"], Dict[str, float]):
      raise InputError("%s: not numbers by label" % labels)
  return chosen


def find_config(
  path: Optional[str], given: Optional[str] = None
) -> Optional[str]:
  """Returns a model's configuration file: `given`, or one next to a checkpoint.

  Logs a warning if the two differ.

  Args:
    path: checkpoint or folder with checkpoints.
    given: path of a configuration.

  Returns:
    None if there is no configuration.
  """
  beside = filesystem.find_beside(
    path, ["config.json", "albert_config*.json", "bert_config*.json"]
  )
  if given and beside:
    _warn_of_other_config(given, beside)
  return given or beside


def require_same_model(init_checkpoint: str, begun: str) -> None:
  """Refuses to resume a different model.

  Args:
    init_checkpoint: value of --init_checkpoint.
    begun: checkpoint in --output_dir.

  Raises:
    InputError: the configurations differ in more than dropout.
  """
  asked, there = map(find_config, (init_checkpoint, begun))
  if not (asked and there):
    return
  differences = [
    text
    for key, text in _differences(there, asked).items()
    if not key.endswith("dropout_prob")
  ]
  if differences:
    raise InputError(
      "the model in %s did not start from %s: it has %s; choose a "
      "different --output_dir"
      % (os.path.dirname(begun), init_checkpoint, ", ".join(differences[:3]))
    )


def _find_checkpoint(path):
  from albert.files import checkpoints  # imports TensorFlow

  return checkpoints.find_checkpoint(path)


def _find_tokenizer(path, given):
  """Returns the given vocabulary or SentencePiece model, or the one found."""
  beside = filesystem.find_beside(path, ["vocab*.txt"]) or (
    filesystem.find_beside(path, ["*.model"])
  )
  chosen = given.spm_model_file or given.vocab_file
  if (
    chosen
    and beside
    and (filesystem.read_bytes(chosen) != filesystem.read_bytes(beside))
  ):
    raise InputError(
      "%s is not the vocabulary that the model was made with, %s: omit the "
      "flag" % (chosen, beside)
    )
  return chosen or beside


def _differences(path, other):
  """Returns the keys in which configuration files differ: key -> message."""
  a, b = [AlbertConfig.from_json_file(x).to_dict() for x in (path, other)]
  return {
    key: "%s %s, not %s" % (key, a.get(key), b.get(key))
    for key in sorted(set(a) | set(b))
    if a.get(key) != b.get(key)
  }


def _warn_of_other_config(given, beside):
  differences = _differences(given, beside)
  if differences:
    logging.warning(
      "%s differs from %s next to the checkpoint: %s",
      given,
      beside,
      ", ".join(differences.values()),
    )
