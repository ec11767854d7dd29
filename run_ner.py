"""Fine-tunes ALBERT for named entity recognition: CLUENER or your own files."""

import dataclasses
import functools
import json
import os
from typing import Any, Dict, List, Optional, Sequence, Tuple, cast

import numpy as np
from absl import logging

from albert import cli
from albert.errors import InputError
from albert.files import checkpoints, filesystem, tables
from albert.files.records import FeatureSpec
from albert.heads import TokenLabels, crf
from albert.model_folder import ModelFolder
from albert.predict import tagger
from albert.settings import NEEDED, USUAL, from_flags, setting
from albert.tasks import classification, entity_files, metrics, ner
from albert.train import finetuning, loop, teachers
from albert.train.settings import FINE_TUNING, TrainSettings


@dataclasses.dataclass(frozen=True)
class EntitySettings(teachers.DistillationSettings, tables.ReadSettings):
  """The data set and the head."""

  task_name: str = setting(
    None,
    "Data set; file: your own files train, dev and test, .json, "
    ".jsonl, .txt, .tsv or .bio.",
    NEEDED,
    choices=sorted(entity_files.TASKS),
    required=True,
  )
  data_dir: str = setting(None, "Folder with its files.", NEEDED, required=True)
  dev_share: float = setting(
    None,
    "Share of the training file to evaluate on instead of a dev file.",
    USUAL,
    least=0.0,
    most=1.0,
  )
  crf: bool = setting(
    False,
    "Train a CRF on top instead of a softmax per token.",
    USUAL,
    needs="do_train",
  )
  by_character: bool = setting(
    None,
    "Whether each character is a token, so that entities can begin and "
    "end within words; default: that of the model, otherwise the task's.",
  )
  doc_stride: int = setting(
    None,
    "Stride between windows of a long text, in tokens; default: half a window.",
  )


SETTINGS = (EntitySettings, *FINE_TUNING)


def read_texts(
  args: EntitySettings,
  settings: TrainSettings,
  names: List[str],
  folder: ModelFolder,
) -> Tuple[Dict[str, ner.Texts], List[str], bool]:
  """Reads splits.

  Args:
    args: settings of the task.
    settings: settings of the run.
    names: splits to read.
    folder: folder of the model; without training, its labels are used.

  Returns:
    texts by split, labels, and whether each character is a token.
  """
  trains = "train" in names
  if not trains and folder.head != TokenLabels.name:
    raise InputError(
      "%s has no model that finds entities: train one with "
      "--do_train" % folder.where
    )
  task = entity_files.TASKS[args.task_name]
  divides = bool(args.dev_share) and not {"train", "dev"}.isdisjoint(names)
  read = {*names, "train"} - {"dev"} if divides else names
  examples = {
    name: entity_files.read_examples(
      entity_files.find_file(task, args.data_dir, name), name == "test", args
    )
    for name in read
  }
  kinds = {
    name: {entity.kind for example in rows for entity in example.entities or []}
    for name, rows in examples.items()
  }
  if divides:
    examples.update(
      classification.divide(
        examples["train"],
        {"dev": args.dev_share},
        settings.run.random_seed,
        lambda x: x.text,
        lambda x: bool(x.entities),
      )
    )
  examples = {name: examples[name] for name in names}
  labels = (
    ner.labels_of(kinds["train"]) if trains else cast(List[str], folder.labels)
  )
  for name, names_found in kinds.items():
    unknown = sorted(kind for kind in names_found if "B-" + kind not in labels)
    if unknown:
      raise InputError(
        "the %s file has the unknown entity type(s) %s: the "
        "labels are %s" % (name, ", ".join(unknown), ", ".join(labels))
      )
  if trains:
    examples["train"] = finetuning.limited(examples["train"], settings) + [
      entity_files.Example(None, text, None)
      for text, _ in teachers.read_unlabelled(args.unlabelled_file, False)
    ]
  by_character = task.by_character
  for choice in (folder.by_character, args.by_character):
    by_character = by_character if choice is None else choice
  tokenizer = folder.create_tokenizer()
  texts = {
    name: ner.Texts(
      rows,
      tokenizer,
      labels,
      settings.data.max_seq_length,
      by_character,
      args.doc_stride,
    )
    for name, rows in examples.items()
  }
  for name, split in texts.items():
    describe(name, split, by_character)
  return texts, labels, by_character


def describe(name: str, texts: ner.Texts, by_character: bool) -> None:
  """Logs the size of a split, and entities that no tokens match."""
  logging.info(
    "%s: %d texts, %d windows, %d entities",
    name,
    len(texts.examples),
    len(texts.windows),
    sum(len(x.entities or []) for x in texts.examples),
  )
  inexact = texts.count_inexact()
  if inexact:
    logging.warning(
      "%s: %d entities begin or end inside a token and cannot "
      "be found exactly%s",
      name,
      inexact,
      "" if by_character else "; with --by_character they may",
    )


def score(
  texts: ner.Texts,
  label_ids: List[np.ndarray],
  entities: List[List[entity_files.Entity]],
  losses: List[float],
) -> Tuple[Dict[str, float], str]:
  """Returns results by name, and a report."""
  results, report = metrics.entities(
    [example.entities or [] for example in texts.examples], entities
  )
  loss = float(np.mean(losses))
  hits = np.concatenate(label_ids) == np.concatenate(texts.label_ids)
  results = {"eval_" + name: value for name, value in results.items()}
  return dict(
    results, eval_token_accuracy=float(hits.mean()), eval_loss=loss, loss=loss
  ), report


class EntityTask(finetuning.Task):
  """Texts with entities.

  Args:
    args: settings of the task.
    settings: settings of the run.
    folder: folder of the model.
    texts: texts by split.
    labels: labels of the tokens.
    by_character: whether each character is a token.
  """

  metric = "eval_f1"
  has_windows = True
  label_specs = (
    FeatureSpec("label_mask", "int", None),
    FeatureSpec("label_ids", "int", None),
  )
  reports = ["eval_report.txt"]

  def __init__(
    self,
    args: EntitySettings,
    settings: TrainSettings,
    folder: ModelFolder,
    texts: Dict[str, ner.Texts],
    labels: List[str],
    by_character: bool,
  ):
    trains = "train" in texts
    use_crf = args.crf if trains else folder.crf
    self._name, self._dev_share = args.task_name, args.dev_share
    self._labels = labels
    self._init_checkpoint = settings.model.init_checkpoint
    # Without "train", so that its texts are freed once they are written.
    self._texts = {
      name: split for name, split in texts.items() if name != "train"
    }
    self.head = teachers.head_for(TokenLabels(labels, bool(use_crf)), args)
    self.description = {
      "task_name": args.task_name,
      "labels": labels,
      "crf": use_crf,
      "by_character": by_character,
    }
    self.splits = {
      name: finetuning.Split(
        split.windows,
        split.make_features,
        has_labels=name == "train"
        or all(example.entities is not None for example in split.examples),
        paths=[
          entity_files.find_file(
            entity_files.TASKS[args.task_name],
            args.data_dir,
            "train" if args.dev_share and name == "dev" else name,
          ),
          *teachers.unlabelled_files(args, name),
        ],
        items=functools.partial(entity_files.items, split.examples),
      )
      for name, split in texts.items()
    }
    if args.teacher and trains:
      self.splits["train"] = teachers.teach_tokens(
        self.splits["train"], args, texts["train"]
      )

  def begin(self, output_dir: str) -> None:
    """See finetuning.Task."""
    if self._dev_share and "dev" in self._texts:
      filesystem.write_lines(
        os.path.join(output_dir, "dev.jsonl"),
        (
          json.dumps(
            entity_files.with_offsets(x, x.entities or []), ensure_ascii=False
          )
          for x in self._texts["dev"].examples
        ),
      )

  def decode(
    self, name: str, outputs: finetuning.Outputs, checkpoint: Optional[str]
  ) -> Tuple[List[Any], ...]:
    """Returns label ids, entities and loss of each text."""
    texts = self._texts[name]
    transitions = crf.load_transitions(
      checkpoint or checkpoints.find_checkpoint(self._init_checkpoint),
      self._labels,
    )
    label_ids = tagger.decode(
      texts.join(outputs["logits"]), transitions, self._labels
    )
    return (
      label_ids,
      texts.entities(label_ids),
      outputs.get("loss", [0.0] * len(outputs["logits"])),
    )

  def targets(self, name: str) -> List[Any]:
    """See finetuning.Task."""
    return [example.entities for example in self._texts[name].examples]

  def score(
    self, name: str, predictions: Any, rows: Sequence[int]
  ) -> Tuple[Dict[str, float], Optional[str]]:
    """See finetuning.Task; either all texts have labels or none."""
    return score(self._texts[name], *predictions)

  def write(
    self,
    name: str,
    predictions: Any,
    output_dir: str,
    checkpoint: Optional[str],
  ) -> None:
    """See finetuning.Task."""
    for file, to_row in (
      (self._name + "_predict.json", entity_files.submission),
      (name + "_entities.jsonl", entity_files.with_offsets),
    ):
      path = os.path.join(output_dir, file)
      filesystem.write_lines(
        path,
        (
          json.dumps(to_row(*pair), ensure_ascii=False)
          for pair in zip(self._texts[name].examples, predictions[1])
        ),
      )
      logging.info("wrote %s", path)


def main() -> None:
  args = from_flags(EntitySettings)
  settings, workers, folder = finetuning.start(default_length=128)
  device = settings.device
  if loop.IS_TF1 and args.crf and device.use_xla and device.recompute_grads:
    raise InputError(
      "--crf with --use_xla and --recompute_grads needs TensorFlow 2.15"
    )
  teachers.check(args)
  texts, labels, by_character = read_texts(
    args, settings, finetuning.wanted_splits(settings, workers), folder
  )
  task = EntityTask(args, settings, folder, texts, labels, by_character)
  finetuning.run(task, settings, workers, folder)


if __name__ == "__main__":
  cli.run(main, SETTINGS)
