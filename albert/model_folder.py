"""A model's folder: what a model is and what belongs to it.

    config.json           configuration
    vocab.txt, spm.model  WordPiece vocabulary or SentencePiece model
    task.json             what it was trained for, and how text is read
    model.ckpt-...        checkpoints
Whatever makes a model writes such a folder, and whatever uses one reads it by
`load`. Nothing here needs TensorFlow.
"""

import dataclasses
import os
import re
from typing import Dict, List, Optional

from absl import logging

import tokenization
from albert.errors import InputError
from albert.files import filesystem
from albert.model.config import AlbertConfig
from albert.settings import USUAL, setting


@dataclasses.dataclass(frozen=True)
class FolderSettings:
  """What the folder of a model does not say."""
  bert_config_file: str = setting(
      None, "Configuration of the model (JSON); default: the one next to the "
      "checkpoint.", alias="albert_config_file")
  vocab_file: str = setting(
      None, "WordPiece vocabulary; default: the one next to the checkpoint.")
  spm_model_file: str = setting(
      None, "SentencePiece model, instead of a vocabulary.")
  do_lower_case: bool = setting(
      None, "Whether to lower-case the text; default: as the model has it, "
      "else true.")


@dataclasses.dataclass(frozen=True)
class ModelSettings(FolderSettings):
  """Which model to start from."""
  init_checkpoint: str = setting(
      None, "Checkpoint to start from, of either variable layout, or a folder "
      "with some.", USUAL)


# Keys of task.json: those of what a model was trained for, and all.
_TASK = ("head", "labels", "pairs", "long_text", "max_windows",
         "positive_label", "thresholds", "crf", "by_character",
         "has_unanswerable", "null_threshold", "pooling", "layer")
_KEYS = ("task_name", "max_seq_length", "do_lower_case", "init_checkpoint",
         *_TASK)
_TOKENIZERS = ("vocab.txt", "spm.model")


@dataclasses.dataclass(frozen=True)
class ModelFolder:
  """A model and what belongs to it.

  Attributes:
    config: AlbertConfig.
    tokenizer_file: str, path of a vocabulary or of a SentencePiece model; None
      where there is none.
    do_lower_case: bool, whether text is lower-cased.
    path: str, checkpoint or folder with some; None for a model from scratch.
    max_seq_length: int, tokens that it was trained with, or None.
    task_name: str, the task that it was trained for, or None.
    head: str, the kind of task; see `heads.Head.name`; None where it is not
      known or not trained for one.
    labels: list of str; None where a task has none, empty for numbers.
    pairs: bool, whether the texts are pairs; None where it is not known.
    init_checkpoint: str, what its training began with; None where it is not
      known.

  Of some kinds of tasks, else None:
    long_text, max_windows: what is read of a long text; see tasks.windows.
    positive_label: str, the one of two labels that F1 is of.
    thresholds: dict, label -> what its probability must exceed.
    crf, by_character: bool, of entities; see run_ner.py.
    has_unanswerable: bool, whether a question may have no answer.
    null_threshold: float, what the odds of no answer must exceed.
    pooling, layer: str and int, of sentence vectors; see heads.vectors.
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
  thresholds: Optional[Dict[str, float]] = None
  crf: Optional[bool] = None
  by_character: Optional[bool] = None
  has_unanswerable: Optional[bool] = None
  null_threshold: Optional[float] = None
  pooling: Optional[str] = None
  layer: Optional[int] = None

  @property
  def where(self):
    """str, what to call the folder in a message."""
    return self.path or "the model"

  @property
  def vector(self):
    """(str, int), pooling and layer of the vectors of texts that it was trained
    to make; None where it was not. See `heads.vectors.sentence_vectors`.
    """
    return (self.pooling, self.layer) if self.pooling else None

  @property
  def is_sentencepiece(self):
    """bool, whether the tokenizer is a SentencePiece model."""
    return self.tokenizer_file.endswith(".model")

  @property
  def checkpoint(self):
    """str, path of the checkpoint; raises InputError where there is none."""
    return _find_checkpoint(self.path)

  def create_tokenizer(self):
    """Returns the tokenizer of tokenization.py.

    Raises:
      InputError: there is none, or it is not of the configuration's size.
    """
    if not self.tokenizer_file:
      raise InputError("--vocab_file or --spm_model_file is required")
    vocab_file, spm_model_file = self.tokenizer_file, None
    if self.is_sentencepiece:
      vocab_file, spm_model_file = None, self.tokenizer_file
    tokenizer = tokenization.create_tokenizer(vocab_file, spm_model_file,
                                              self.do_lower_case)
    if tokenizer.vocab_size != self.config.vocab_size:
      raise InputError(
          "%s has %d entries, but the configuration says vocab_size %d: use "
          "the vocabulary the model was made with" % (
              self.tokenizer_file, tokenizer.vocab_size,
              self.config.vocab_size))
    return tokenizer

  def length(self, max_seq_length=None):
    """Returns the most tokens of a text, what is given or what the model has.

    Args:
      max_seq_length: int, or None.
    """
    longest = self.config.max_position_embeddings
    return min(max_seq_length or self.max_seq_length or longest, longest)

  def check_length(self, max_seq_length):
    """Raises an InputError where the model has no such position."""
    if max_seq_length > self.config.max_position_embeddings:
      raise InputError("--max_seq_length %d is more than the %d positions of %s"
                       % (max_seq_length, self.config.max_position_embeddings,
                          self.where))

  def contents(self):
    """Returns what describes the model: dict, name of a file -> bytes."""
    task = {key: getattr(self, key) for key in _KEYS}
    task = {key: value for key, value in task.items() if value is not None}
    files = {"config.json": self.config.to_dict(), "task.json": task}
    files = {name: filesystem.json_text(content).encode()
             for name, content in files.items()}
    if self.tokenizer_file:
      name = _TOKENIZERS[self.is_sentencepiece]
      files[name] = filesystem.read_bytes(self.tokenizer_file)
    return files

  def for_task(self, **task):
    """Returns the folder of a model that is trained for a different task.

    Args:
      **task: attributes; what else a task has, is None.
    """
    return dataclasses.replace(self, **dict(dict.fromkeys(_TASK), **task))

  def write(self, folder):
    """Writes what describes the model into a folder."""
    for name, content in self.contents().items():
      filesystem.write_bytes(os.path.join(folder, name), content)


def load(given, path):
  """Reads what is next to a checkpoint, such as the `best` of a fine-tuning.

  Args:
    given: FolderSettings; a configuration that is given wins over the one that
      is found, with a warning where the two differ.
    path: str, checkpoint or folder with some; None for a model from scratch.

  Returns:
    ModelFolder.

  Raises:
    InputError: the configuration is missing, or something does not fit.
  """
  task = read_task(path)
  config_file = find_config(path, given.bert_config_file)
  if not config_file:
    if path:
      _find_checkpoint(path)  # its error comes first
    raise InputError("--bert_config_file is required: " + (
        "there is no configuration next to %s" % path if path else
        "a model from scratch needs it and --vocab_file, others "
        "--init_checkpoint"))
  config = AlbertConfig.from_json_file(config_file)
  logging.info("%s: %s", config_file, config.summary())
  do_lower_case = task.pop("do_lower_case", None)
  if given.do_lower_case is not None:
    if do_lower_case not in (None, given.do_lower_case):
      raise InputError("--do_lower_case is %s, but the model next to %s was "
                       "made with %s" % (given.do_lower_case, path,
                                         do_lower_case))
    do_lower_case = given.do_lower_case
  values = {key: task[key] for key in _KEYS if key in task}
  return ModelFolder(
      config=config, path=path, tokenizer_file=_find_tokenizer(path, given),
      do_lower_case=True if do_lower_case is None else do_lower_case,
      **dict(values, **_thresholds(path)))


def begun_with(folder, begun, init_checkpoint):
  """Returns the folder of a model with what its training began with.

  Args:
    folder: ModelFolder.
    begun: str, checkpoint of --output_dir to go on from, or None.
    init_checkpoint: str, what --init_checkpoint says, or None.
  """
  return dataclasses.replace(
      folder, init_checkpoint=read_task(begun).get("init_checkpoint") if begun
      else init_checkpoint or "random weights")


def for_records(folder, given, made_with, paths, max_seq_length):
  """Returns the folder of a model that is pretrained on records.

  The vocabulary is the one that is given, or next to the checkpoint to start
  from, or next to the records, and the one that they were made with.

  Args:
    folder: ModelFolder, that of the checkpoint to start from.
    given: FolderSettings.
    made_with: dict, what the descriptions of the records say.
    paths: list of str, the record files.
    max_seq_length: int, of the records.

  Raises:
    InputError: the records were made with another vocabulary, or their text was
      read differently.
  """
  name = "spm_model_file" if made_with.get("spm_model_file_sha256") else (
      "vocab_file")
  wanted = made_with.get(name + "_sha256")
  tokenizer_file = folder.tokenizer_file or next(filter(None, (
      filesystem.find_beside(os.path.dirname(path) or ".", _TOKENIZERS)
      for path in paths)), None)
  if tokenizer_file and wanted not in (None, filesystem.sha256(tokenizer_file)):
    raise InputError("%s is not the vocabulary that %s was made with: give "
                     "that as --%s" % (tokenizer_file, paths[0], name))
  if not tokenizer_file:
    logging.warning("the vocabulary of %s is not known, so it will not be next "
                    "to the model: give --%s", paths[0], name)
  do_lower_case = made_with.get("do_lower_case", folder.do_lower_case)
  known = given.do_lower_case is not None or (
      "do_lower_case" in read_task(folder.path))
  if known and do_lower_case != folder.do_lower_case:
    raise InputError("%s was made with do_lower_case %s, but the model has %s" %
                     (paths[0], do_lower_case, folder.do_lower_case))
  return ModelFolder(
      config=folder.config, path=folder.path, tokenizer_file=tokenizer_file,
      do_lower_case=do_lower_case, max_seq_length=max_seq_length,
      init_checkpoint=folder.init_checkpoint)


def read_task(path):
  """Returns the dict of `task.json` next to a checkpoint; empty without it.

  What folders of earlier versions leave out is filled in.
  """
  task_file = filesystem.find_beside(path, ["task.json"])
  task = filesystem.read_json(task_file) if task_file else {}
  if task.pop("label_tokens", False):
    task["head"] = "token_labels"
  elif "head" not in task and task.get("task_name") in ("race", "c3", "chid"):
    task["head"] = "choices"
  return task


def _thresholds(path):
  """Returns what an evaluation next to `path` chose, for a head's own.

  `null_threshold`: what "no answer" must exceed; `thresholds`: what the
  probability of each label must exceed, a dict.
  """
  report, labels = [filesystem.find_beside(path, [name]) for name in (
      "eval_results.txt", "thresholds.json")]
  found = re.search(r"^null_threshold = (\S+)$",
                    filesystem.read_text(report) if report else "", re.M)
  chosen = {"null_threshold": float(found.group(1))} if found else {}
  return dict(chosen, thresholds=filesystem.read_json(labels)) if labels else (
      chosen)


def find_config(path, given=None):
  """Returns a model's configuration file: `given`, or one next to a checkpoint.

  A warning says where the two differ.

  Args:
    path: str, path of a checkpoint or of a folder with some, or None.
    given: str, path of the configuration, or None.

  Returns:
    str, or None where there is none.
  """
  beside = filesystem.find_beside(path, [
      "config.json", "albert_config*.json", "bert_config*.json"])
  if given and beside:
    _warn_of_other_config(given, beside)
  return given or beside


def require_same_model(init_checkpoint, begun):
  """Refuses to go on with a model that is not the one asked for.

  Args:
    init_checkpoint: str, what --init_checkpoint says.
    begun: str, checkpoint of --output_dir.

  Raises:
    InputError: their configurations differ, in more than dropout.
  """
  asked, there = map(find_config, (init_checkpoint, begun))
  differences = asked and there and [
      text for key, text in _differences(there, asked).items()
      if not key.endswith("dropout_prob")]
  if differences:
    raise InputError(
        "%s has a model that was not begun with %s: it has %s; choose a "
        "different --output_dir" % (os.path.dirname(begun), init_checkpoint,
                                    ", ".join(differences[:3])))


def _find_checkpoint(path):
  from albert.files import checkpoints  # the only way to TensorFlow from here
  return checkpoints.find_checkpoint(path)


def _find_tokenizer(path, given):
  """Returns a vocabulary or a SentencePiece model, what is given first."""
  beside = filesystem.find_beside(path, ["vocab*.txt"]) or (
      filesystem.find_beside(path, ["*.model"]))
  chosen = given.spm_model_file or given.vocab_file
  if chosen and beside and (
      filesystem.read_bytes(chosen) != filesystem.read_bytes(beside)):
    raise InputError(
        "%s is not the vocabulary that the model was made with, %s: leave the "
        "flag out" % (chosen, beside))
  return chosen or beside


def _differences(path, other):
  """Returns in which keys configuration files differ: dict, key -> str."""
  a, b = [AlbertConfig.from_json_file(x).to_dict() for x in (path, other)]
  return {key: "%s %s, not %s" % (key, a.get(key), b.get(key))
          for key in sorted(set(a) | set(b)) if a.get(key) != b.get(key)}


def _warn_of_other_config(given, beside):
  differences = _differences(given, beside)
  if differences:
    logging.warning("%s differs from %s next to the checkpoint: %s", given,
                    beside, ", ".join(differences.values()))
