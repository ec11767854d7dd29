"""Fine-tunes ALBERT for multiple choice: RACE, C3, ChID."""

import dataclasses
import functools
import os
from typing import (
  Any,
  Callable,
  Dict,
  List,
  NamedTuple,
  Optional,
  Sequence,
  Tuple,
)

import numpy as np
from absl import logging

from albert import cli
from albert.files import filesystem
from albert.files.records import FeatureSpec
from albert.heads import Choices
from albert.model_folder import Tokenizer
from albert.settings import NEEDED, from_flags, setting
from albert.tasks import chid, race, submissions
from albert.train import finetuning
from albert.train.settings import FINE_TUNING, TrainSettings


class Task(NamedTuple):
  """A data set.

  Attributes:
    find, read, sequence_maker: find and read the files and encode examples.
    answer_file: maps the path of a file to that of its answers, or None; None
      if the answers are in the same file.
    submissions: split to predict -> name of its submission.
    word: formats a submission.
  """

  find: race.Finder
  read: race.Reader
  sequence_maker: Callable[..., Any]
  answer_file: Optional[Callable[[str], Optional[str]]]
  submissions: Dict[str, str]
  word: Callable[[Sequence[Any], Sequence[Any]], str]

  def paths(self, data_dir: str, name: str) -> List[str]:
    """Returns the paths of all files of a split."""
    paths = [path for path, _ in self.find(data_dir, name)]
    if self.answer_file:
      paths += filter(None, map(self.answer_file, paths[:]))
    return paths


TASKS = {
  "race": Task(
    race.find_race,
    race.read_race,
    race.sequence_maker,
    None,
    {"test": "race_predict.json"},
    submissions.clue_lines,
  ),
  "c3": Task(
    race.find_c3,
    race.read_c3,
    race.sequence_maker,
    None,
    {"test": "c311_predict.json", "test1.0": "c310_predict.json"},
    submissions.clue_lines,
  ),
  "chid": Task(
    chid.find_files,
    chid.read,
    chid.sequence_maker,
    chid.answer_file,
    {"test": "chid11_predict.json", "test1.0": "chid10_predict.json"},
    submissions.clue_object,
  ),
}


@dataclasses.dataclass(frozen=True)
class ChoiceSettings:
  """The data set."""

  task_name: str = setting("race", "Data set.", NEEDED, choices=sorted(TASKS))
  data_dir: str = setting(None, "Folder with its files.", NEEDED, required=True)
  max_query_length: int = setting(
    race.MAX_QUERY_LENGTH,
    "Maximum tokens of question and choice; longer "
    "ones keep their end. The passage is truncated first.",
    alias="max_qa_length",
  )


SETTINGS = (ChoiceSettings, *FINE_TUNING)
OLDER_FLAGS = ("train_file", "eval_file")


def score(
  examples: List[race.Example],
  chosen: np.ndarray,
  log_probabilities: np.ndarray,
) -> Dict[str, float]:
  """Returns loss, accuracy, and the accuracy of each part."""
  answers = np.array([example.answer for example in examples])
  hits = chosen == answers
  loss = -log_probabilities[np.arange(len(answers)), answers].mean()
  results = {
    "eval_loss": float(loss),
    "loss": float(loss),
    "eval_accuracy": float(hits.mean()),
  }
  for part in {x.part for x in examples if x.part is not None}:
    results["eval_accuracy_" + part] = float(
      np.mean(
        [hit for hit, example in zip(hits, examples) if example.part == part]
      )
    )
  return results


def write_predictions(
  output_dir: str,
  task: Task,
  name: str,
  examples: List[race.Example],
  chosen: np.ndarray,
  log_probabilities: np.ndarray,
) -> None:
  """Writes `NAME_results.tsv` and the submission of a split."""
  filesystem.write_table(
    os.path.join(output_dir, name + "_results.tsv"),
    (
      ["%.8f" % p for p in np.exp(row[: len(example.choices)])]
      for example, row in zip(examples, log_probabilities)
    ),
  )
  path = os.path.join(output_dir, task.submissions[name])
  filesystem.write_lines(
    path, task.word((example.id for example in examples), chosen.tolist())
  )
  logging.info("%s: the index of the choice, from 0, for each id", path)


class ChoiceTask(finetuning.Task):
  """Questions with choices.

  Args:
    args: settings of the task.
    settings: settings of the run.
    tokenizer: tokenizer.
    examples: questions by split.
  """

  metric = "eval_accuracy"
  label_specs = (FeatureSpec("label", "int", 0),)

  def __init__(
    self,
    args: ChoiceSettings,
    settings: TrainSettings,
    tokenizer: Tokenizer,
    examples: Dict[str, List[race.Example]],
  ):
    self._task = task = TASKS[args.task_name]
    self._examples = examples
    num_choices = max(
      (len(example.choices) for rows in examples.values() for example in rows),
      default=1,
    )
    make_sequences = task.sequence_maker(
      tokenizer, settings.data.max_seq_length, args.max_query_length
    )
    self.head = Choices(num_choices)
    self.description = {"task_name": args.task_name}
    self.specs = [
      *finetuning.with_rows(num_choices),
      FeatureSpec("num_choices", "int", 0),
    ]
    self.splits = {
      name: finetuning.Split(
        rows,
        lambda example: race.pack_choices(
          make_sequences(example), example, num_choices
        ),
        has_labels=name == "train",
        paths=task.paths(args.data_dir, name),
        items=functools.partial(race.items, rows),
      )
      for name, rows in examples.items()
    }

  def decode(
    self, name: str, outputs: finetuning.Outputs, checkpoint: Optional[str]
  ) -> Tuple[np.ndarray, np.ndarray]:
    """Returns choices, int [N], and log probabilities, float [N, choices]."""
    log_probabilities = np.array(outputs["log_probabilities"])
    return race.choose(self._examples[name], log_probabilities), (
      log_probabilities
    )

  def targets(self, name: str) -> List[Any]:
    """See finetuning.Task."""
    return [example.answer for example in self._examples[name]]

  def score(
    self, name: str, predictions: Any, rows: Sequence[int]
  ) -> Tuple[Dict[str, float], Optional[str]]:
    """See finetuning.Task."""
    chosen, log_probabilities = predictions
    return score(
      [self._examples[name][i] for i in rows],
      chosen[rows],
      log_probabilities[rows],
    ), None

  def write(
    self,
    name: str,
    predictions: Any,
    output_dir: str,
    checkpoint: Optional[str],
  ) -> None:
    """See finetuning.Task."""
    write_predictions(
      output_dir, self._task, name, self._examples[name], *predictions
    )


def main() -> None:
  args = from_flags(ChoiceSettings)
  task = TASKS[args.task_name]
  settings, workers, folder = finetuning.start(default_length=512)
  names = finetuning.wanted_splits(
    settings,
    workers,
    [name for name in task.submissions if task.find(args.data_dir, name)],
  )
  examples = {
    name: race.read_examples(task.find, task.read, args.data_dir, name)
    for name in names
  }
  if "train" in examples:
    examples["train"] = finetuning.limited(examples["train"], settings)
  finetuning.run(
    ChoiceTask(args, settings, folder.create_tokenizer(), examples),
    settings,
    workers,
    folder,
  )


if __name__ == "__main__":
  cli.run(main, SETTINGS, older_flags=OLDER_FLAGS)
