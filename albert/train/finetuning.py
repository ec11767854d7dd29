"""The common part of the fine-tuning scripts, from features to `best`."""

import dataclasses
import itertools
import os
import random
import time
from typing import (
  Any,
  Callable,
  Dict,
  List,
  NamedTuple,
  Optional,
  Sequence,
  Tuple,
  Union,
)

import numpy as np
from absl import logging

import tokenization
from albert import model_folder
from albert.errors import InputError
from albert.files import (
  checkpoints,
  filesystem,
  outputs,
  reading_order,
  records,
)
from albert.files.records import FeatureSpec
from albert.heads.base import Head
from albert.model_folder import ModelFolder
from albert.progress import Progress
from albert.tasks import data_report
from albert.train import (
  distribution,
  evaluation,
  loop,
  model_card,
  run_file,
  step,
  sweep,
)
from albert.train import settings as train_settings
from albert.train.settings import TrainSettings

# The features of every fine-tuning record; tasks add their own. The Runner adds
# `number`, the index of an example in its split.
SPECS = (
  FeatureSpec("input_ids", "int", None),
  FeatureSpec("input_mask", "int", None),
  FeatureSpec("segment_ids", "int", None),
  FeatureSpec("number", "int", 0),
)


# Name of an output of the head -> its value for each example: an array if all
# have the same shape.
Outputs = Dict[str, Union[np.ndarray, List[np.ndarray]]]


def with_rows(count: int) -> List[FeatureSpec]:
  """Returns SPECS of examples with `count` sequences, padded if fewer."""
  return [
    spec if spec.length == 0 else spec._replace(rows=count) for spec in SPECS
  ]


class Split(NamedTuple):
  """The examples of a file.

  Attributes:
    examples: of any type.
    make_features: maps an example to its features, name -> value or list.
      Called when records are written, as features take many times the memory of
      texts.
    has_labels: whether the features include labels.
    more_specs: of features that only this split has.
    paths: files of the examples.
    items: returns the examples as in the files, for the report on the data.
  """

  examples: List[Any]
  make_features: Callable[[Any], Dict[str, Any]]
  has_labels: bool = True
  more_specs: Sequence[FeatureSpec] = ()
  paths: Sequence[str] = ()
  items: Callable[[], List[data_report.Item]] = list


def start(
  default_length: int,
) -> Tuple[TrainSettings, distribution.Workers, ModelFolder]:
  """Reads the flags, sets up the process and reads the model's folder.

  Args:
    default_length: `max_seq_length` if neither the flags nor the model to
      predict with have one.

  Returns:
    settings, workers, and the model to start from, resume or evaluate.

  Raises:
    InputError: flags contradict each other or the model.
  """
  data_report.NOTES.begin()
  settings = train_settings.read()
  run, data = settings.run, settings.data
  if not (run.do_train or run.do_eval or data.do_predict):
    raise InputError("nothing to do: give --do_train, --do_eval, --do_predict")
  sweep.plan(settings)  # fails early
  workers = loop.start(settings)
  if not run.do_train:
    checkpoints.require_model(settings.model.init_checkpoint, run.output_dir)
  begun = checkpoints.newest_or_best(run.output_dir)
  if (
    begun
    and settings.model.init_checkpoint
    and (not settings.model.bert_config_file)
  ):
    model_folder.require_same_model(settings.model.init_checkpoint, begun)
  folder = model_folder.begun_with(
    model_folder.load(settings.model, begun or settings.model.init_checkpoint),
    begun,
    settings.model.init_checkpoint,
  )
  length = data.max_seq_length or default_length
  if not (run.do_train or data.max_seq_length):
    length = folder.max_seq_length or default_length
  folder.check_length(length)
  return (
    dataclasses.replace(
      settings, data=dataclasses.replace(data, max_seq_length=length)
    ),
    workers,
    folder,
  )


def dev_result(
  name: str, checkpoint: Optional[str], settings: TrainSettings
) -> Optional[float]:
  """Returns a dev result of a checkpoint; None if it was not evaluated.

  Args:
    name: name in `eval_results.txt`.
    checkpoint: None for --init_checkpoint, which this run may have evaluated.
    settings: settings of the run.
  """
  if checkpoint:
    folders = [os.path.dirname(checkpoint)]
  else:
    folders = [
      os.path.dirname(
        checkpoints.find_checkpoint(settings.model.init_checkpoint)
      )
    ]
    if settings.run.do_eval:
      folders.insert(0, settings.run.output_dir)
  for folder in folders:
    results = outputs.read_results(os.path.join(folder, "eval_results.txt"))
    if name in results and (
      not checkpoint
      or (results["global_step"] == checkpoints.step_of(checkpoint))
    ):
      return results[name]
  return None


def wanted_splits(
  settings: TrainSettings,
  workers: distribution.Workers,
  tests: Sequence[str] = (),
) -> List[str]:
  """Returns the names of the splits that this process reads.

  Args:
    settings: settings of the run.
    workers: the processes.
    tests: splits to predict that have a file; if empty, "test" is reported as
      missing.
  """
  names = []
  if settings.run.do_train:
    names.append("train")
  if workers.rank:
    return names
  if settings.run.do_eval:
    names.append("dev")
  if settings.data.do_predict:
    names += tests or ["test"]
  return names


def with_evaluations(settings: TrainSettings, steps: int) -> TrainSettings:
  """Returns settings with ten evaluations if the default would give only one.

  Warns if early stopping has no effect.

  Args:
    settings: settings of the run.
    steps: training steps.
  """
  run, patience = settings.run, settings.data.early_stop_evals
  if not run.do_eval:
    return settings
  if run.save_checkpoints_steps > steps and not any(
    flag.startswith("--save_checkpoints_steps=") for flag in settings.given
  ):
    run = dataclasses.replace(run, save_checkpoints_steps=-(-steps // 10))
    logging.info(
      "evaluating every %d steps (--save_checkpoints_steps)",
      run.save_checkpoints_steps,
    )
  evaluations = -(-steps // run.save_checkpoints_steps)
  if patience and patience >= evaluations:
    logging.warning(
      "--early_stop_evals=%d: no effect with %d evaluations: "
      "reduce --save_checkpoints_steps",
      patience,
      evaluations,
    )
  return dataclasses.replace(settings, run=run)


def limited(examples: List[Any], settings: TrainSettings) -> List[Any]:
  """Samples --max_train_examples by --random_seed, keeping their order.

  Args:
    examples: the training examples.
    settings: settings of the run.
  """
  count = settings.data.max_train_examples
  if not count or count >= len(examples):
    return examples
  drawn = random.Random(settings.run.random_seed).sample(
    range(len(examples)), count
  )
  return [examples[i] for i in sorted(drawn)]


class Task:
  """A kind of task: its head, its data, and how predictions are used.

  Each script has a subclass; Runner does the rest.

  Attributes:
    head: head of the model.
    splits: splits by name; see wanted_splits.
    metric: result that chooses the best checkpoint; higher is better.
    label_specs: of the features that are labels.
    specs: of the remaining features.
    description: attributes of ModelFolder that describe the task, such as
      `task_name` and `labels`.
    reports: files in the output folder written by `evaluate`, to keep next to
      the best checkpoint.
    has_windows: whether long texts are read in windows, without truncation.
  """

  head: Head
  splits: Dict[str, Split]
  metric: str
  label_specs: Sequence[FeatureSpec] = ()
  specs: Sequence[FeatureSpec] = SPECS
  description: Dict[str, Any] = {}
  reports: Sequence[str] = ()
  has_windows: bool = False

  def begin(self, output_dir: str) -> None:
    """Writes additional files of a run to its folder, before training."""

  def decode(
    self, name: str, outputs: Outputs, checkpoint: Optional[str]
  ) -> Any:
    """Returns the predictions of a split.

    Args:
      name: name of the split.
      outputs: what the head returned.
      checkpoint: checkpoint of the predictions; None for --init_checkpoint.
    """
    raise NotImplementedError

  def targets(self, name: str) -> List[Any]:
    """Returns the label of each prediction of a split, None if unknown."""
    raise NotImplementedError

  def score(
    self, name: str, predictions: Any, rows: Sequence[int]
  ) -> Tuple[Dict[str, float], Optional[str]]:
    """Returns results by name, and a report or None.

    Args:
      name: name of the split.
      predictions: see `decode`.
      rows: indices of the known targets.
    """
    raise NotImplementedError

  def evaluate(
    self, predictions: Any, output_dir: str
  ) -> Tuple[Dict[str, float], Optional[str]]:
    """Scores the dev set; may first choose thresholds and write `reports`."""
    del output_dir
    return self.score("dev", predictions, range(len(self.targets("dev"))))

  def write(
    self,
    name: str,
    predictions: Any,
    output_dir: str,
    checkpoint: Optional[str],
  ) -> None:
    """Writes the predictions of a split to a folder; see `decode`."""
    raise NotImplementedError


class Runner:
  """Trains, evaluates and predicts.

  Args:
    settings: settings of the run.
    workers: the processes.
    folder: folder of the model; rank 0 writes it to the output folder.
    task: the task; the split "train" is removed from its splits. Every process
      gets all of "train" and reads its share.

  Attributes:
    output_dir: folder of the run.

  Raises:
    InputError: there are too few training examples for a batch, or the output
      folder has a different model, or a run with different data or settings.
  """

  def __init__(
    self,
    settings: TrainSettings,
    workers: distribution.Workers,
    folder: ModelFolder,
    task: Task,
  ):
    self._settings = settings
    self._workers = workers
    self._leads = not workers.rank
    self._task = task
    self._folder = folder = folder.for_task(
      head=task.head.name,
      max_seq_length=settings.data.max_seq_length,
      **task.description,
    )
    self._unk_id = (
      folder.create_tokenizer().unk_id if (folder.tokenizer_file) else None
    )
    self._splits = splits = task.splits
    self._train_split = splits.pop("train", None)
    self._num_train_steps, self._passes_per_step = 0, 0.0
    if self._train_split:
      self._num_train_steps = self._count_steps()
      self._settings = settings = with_evaluations(
        settings, self._num_train_steps
      )
    if self._leads:
      outputs.prepare_output_dir(
        settings.run.output_dir, folder.contents(), settings.run.do_train
      )
    if self._leads and self._train_split:
      all_splits = {"train": self._train_split, **splits}
      report_data(all_splits, task.has_windows, settings, folder)
      run_file.begin(
        settings,
        checkpoints.newest_or_best(settings.run.output_dir),
        {
          name: dict(
            run_file.describe_files(split.paths), rows=len(split.examples)
          )
          for name, split in all_splits.items()
          if name != "test" and split.paths
        },
        self._schedule(),
        sweep.is_wanted(settings),
      )
    if self._leads:
      task.begin(settings.run.output_dir)
    self._begin(settings)

  def _count_steps(self):
    examples = self._train_split.examples
    batch_size = self._settings.batch.train_batch_size * self._workers.size
    data = self._settings.data
    steps = data.num_train_steps or int(
      len(examples) * data.num_train_epochs / batch_size
    )
    if not steps or len(examples) < self._workers.size:
      raise InputError(
        "%d training examples are less than one batch of %d"
        % (len(examples), batch_size)
      )
    self._passes_per_step = batch_size / len(examples)
    logging.info("%d steps of %d examples", steps, batch_size)
    if len(examples) < batch_size:
      logging.warning(
        "%d training examples are fewer than a batch of %d, which repeats "
        "some of them",
        len(examples),
        batch_size,
      )
    return steps

  def _begin(self, settings):
    """Builds the estimator."""
    self._settings = settings
    self.output_dir = settings.run.output_dir
    # name -> (records.Index, list of FeatureSpec)
    self._written: Dict[str, Tuple[records.Index, List[FeatureSpec]]] = {}
    self._estimator = loop.create_estimator(
      settings,
      self._workers,
      step.model_fn_builder(
        self._folder.config,
        self._task.head,
        settings,
        self._schedule(),
        self._workers,
      ),
    )

  def _schedule(self):
    data = self._settings.data
    num_warmup_steps = data.num_warmup_steps
    if num_warmup_steps is None:
      num_warmup_steps = int(self._num_train_steps * data.warmup_proportion)
    return train_settings.Schedule(
      self._num_train_steps,
      num_warmup_steps,
      data.adversarial_epsilon if data.adversarial else 0.0,
      self._passes_per_step,
    )

  def run(self) -> None:
    """Trains, evaluates and predicts as requested by the flags.

    Several seeds or learning rates are several runs; see sweep.run.
    """
    if sweep.is_wanted(self._settings):
      sweep.run(
        self._settings,
        self._leads,
        self._task.metric,
        self._folder.contents(),
        self._task.reports,
        self._run,
      )
    else:
      self._run(self._settings)
    output_dir = self._settings.run.output_dir
    if (
      self._num_train_steps
      and self._leads
      and checkpoints.latest_checkpoint(os.path.join(output_dir, "best"))
    ):
      model_card.write(
        output_dir,
        self._folder.task_name or "",
        self._settings.model.init_checkpoint,
      )

  def _run(self, settings):
    if settings is not self._settings:  # a run of a sweep
      self._begin(settings)
    run, data, task = settings.run, settings.data, self._task
    if run.do_train:
      evaluator = None
      if run.do_eval and self._leads:
        evaluator = evaluation.Evaluator(
          run.output_dir,
          self._evaluate,
          evaluation.BestRule(task.metric, higher_is_better=True),
          [*self._folder.contents(), *task.reports],
          settings.data.early_stop_evals,
          task.head.for_use,
        )
      loop.train_and_evaluate(
        settings,
        self._workers,
        [(self._estimator, self._num_train_steps)],
        self._train_input_fn_at,
        evaluator,
      )
    asked = (
      None
      if run.do_train
      else checkpoints.named_in(run.output_dir, settings.model.init_checkpoint)
    )
    if run.do_eval and not run.do_train and self._leads:
      evaluation.evaluate_and_write(run.output_dir, self._evaluate, asked)
    if data.do_predict and self._leads:
      best = os.path.join(run.output_dir, "best")
      checkpoint = (
        asked
        or checkpoints.latest_checkpoint(best)
        or checkpoints.latest_checkpoint(run.output_dir)
      )
      logging.info(
        "predicting with %s", checkpoint or settings.model.init_checkpoint
      )
      for name in self._splits:
        if name != "dev":
          self._write_test(name, checkpoint)

  def _evaluate(self, checkpoint):
    """Returns the dev results by name; writes `eval_report.txt`."""
    predictions = self._task.decode(
      "dev", self.predict("dev", checkpoint), checkpoint
    )
    results, report = self._task.evaluate(predictions, self.output_dir)
    if report:
      filesystem.write_text(
        os.path.join(self.output_dir, "eval_report.txt"), report
      )
    return dict(results, global_step=checkpoints.step_of(checkpoint))

  def _write_test(self, name, checkpoint):
    """Predicts a split; writes the predictions and, with labels, the scores."""
    task = self._task
    predictions = task.decode(name, self.predict(name, checkpoint), checkpoint)
    task.write(name, predictions, self.output_dir, checkpoint)
    outputs.write_test_scores(
      self.output_dir,
      name,
      task.targets(name),
      lambda rows: task.score(name, predictions, rows),
      checkpoint,
    )

  def _train_input_fn_at(self, start, error=None):
    if error:
      raise error
    if "train" not in self._written:
      self._write("train", self._in_training_order(self._train_split))
      if not sweep.is_wanted(self._settings):
        self._train_split = None  # frees memory
    seed = self._settings.run.random_seed
    if self._settings.device.use_tpu:
      return self._input_fn(
        "train", is_training=True, drop_remainder=True, seed=seed, start=start
      )
    data, (index, specs) = self._settings.data, self._written["train"]
    batch_size = self._settings.batch.train_batch_size * self._workers.size
    left = reading_order.left_out(
      index.lengths, batch_size, seed, self._num_train_steps
    )
    if 0 < len(left) < batch_size:
      logging.info(
        "the last pass skips %d of %d training examples: %s%s",
        len(left),
        len(index.lengths),
        ", ".join("no. %d" % (i + 1) for i in left[:20]),
        ", ..." if len(left) > 20 else "",
      )
    return records.ordered_input_fn_builder(
      index,
      specs,
      max_length=data.max_seq_length,
      pad_to_max=data.pad_to_max,
      seed=seed,
      start=start,
      shard=(self._workers.size, self._workers.rank),
    )

  def _in_training_order(self, split):
    """Returns a Split in random order if it will be read sequentially."""
    if not self._settings.device.use_tpu:
      return split
    # Sorted files would defeat the shuffle window.
    examples = list(split.examples)
    random.Random(self._settings.run.random_seed).shuffle(examples)
    return split._replace(examples=examples)

  def predict(self, name: str, checkpoint: Optional[str]) -> Outputs:
    """Predicts a split, in batches of examples of similar length.

    Args:
      name: name of the split.
      checkpoint: None for --init_checkpoint.
    """
    split = self._splits[name]
    examples = split.examples
    count = len(examples)
    use_tpu = self._settings.device.use_tpu
    if name not in self._written:
      padding = 0
      if use_tpu:  # requires full batches
        padding = -count % self._settings.batch.eval_batch_size
      self._write(
        name, split._replace(examples=examples + examples[-1:] * padding)
      )
    input_fn = self._input_fn(name, is_training=False, drop_remainder=use_tpu)
    found: Outputs = {}
    started, progress = 0.0, Progress("examples predicted")
    with checkpoints.restoring(
      checkpoint or self._settings.model.init_checkpoint
    ):
      for done, prediction in enumerate(
        self._estimator.predict(input_fn, checkpoint_path=checkpoint), 1
      ):
        started = started or time.monotonic()  # the model is built and loaded
        number = int(prediction.pop("number"))
        if number < count:  # no padding
          for key, value in prediction.items():
            _put(found, key, number, value, count)
        progress.log(done, done / count)
    logging.info(
      "%d examples predicted, %.1f a second",
      count,
      count / (time.monotonic() - started),
    )
    return found

  def _write(self, name, split):
    """Writes the records of a split."""
    specs = [*self._task.specs, *split.more_specs]
    if split.has_labels:
      specs += self._task.label_specs
    num_rows = self._task.specs[0].rows or 1
    lengths, unknown = [], []
    progress = Progress("examples of %s prepared" % name)

    def record(number, example):
      progress.log(number, number / len(split.examples))
      row = dict(split.make_features(example), number=number)
      lengths.append(len(row["input_ids"]) // num_rows)
      unknown.append(np.count_nonzero(np.equal(row["input_ids"], self._unk_id)))
      return records.serialize(row, specs)

    path = os.path.join(self._estimator.model_dir, name + ".tf_record")
    sizes = records.write_records(
      path, itertools.starmap(record, enumerate(split.examples))
    )
    self._written[name] = records.Index(path, sizes, np.array(lengths)), specs
    longest = self._settings.data.max_seq_length
    total = num_rows * sum(lengths)
    logging.info(
      "%s: %.1f%% of the examples fill --max_seq_length=%d; %.2f%% "
      "of the tokens are [UNK]",
      name,
      100.0 * lengths.count(longest) / len(lengths),
      longest,
      100.0 * sum(unknown) / total,
    )
    tokenization.warn_of_unknown(name, sum(unknown), total)

  def _input_fn(self, name, **kwargs):
    index, specs = self._written[name]
    data, device = self._settings.data, self._settings.device
    return records.input_fn_builder(
      [records.record_file(index.path)],
      specs,
      max_length=data.max_seq_length,
      pad_to_max=data.pad_to_max or device.use_tpu,
      **kwargs,
    )


def _put(outputs, key, number, value, count):
  """Sets the value of one of `count` examples."""
  column = outputs.get(key)
  if column is None:
    column = outputs[key] = np.empty([count, *value.shape], value.dtype)
  elif isinstance(column, np.ndarray) and column.shape[1:] != value.shape:
    column = outputs[key] = list(column)
  column[number] = value


def run(
  task: Task,
  settings: TrainSettings,
  workers: distribution.Workers,
  folder: ModelFolder,
) -> None:
  """Trains, evaluates and predicts a Task; see Runner."""
  if settings.data.check_data:
    report_data(task.splits, task.has_windows, settings, folder)
  else:
    Runner(settings, workers, folder, task).run()


def report_data(
  splits: Dict[str, Split],
  has_windows: bool,
  settings: TrainSettings,
  folder: ModelFolder,
) -> None:
  """Logs a report on the splits and writes it to `data_report.txt`.

  Args:
    splits: splits by name, "train" first; those without `items` are skipped.
    has_windows: see Task.
    settings: settings of the run.
    folder: folder of the model.
  """
  tokenizer = None
  lines = [
    note + "\n"
    for note in data_report.NOTES.end(
      [path for split in splits.values() for path in split.paths]
    )
  ]
  train: List[data_report.Item] = []
  for name, split in splits.items():
    rows = split.items()
    if not rows:
      continue
    tokenizer = tokenizer or folder.create_tokenizer()
    for level, text in data_report.describe(
      rows,
      split.paths,
      list(split.make_features(split.examples[0])["input_ids"]),
      tokenizer,
      None if has_windows else settings.data.max_seq_length,
      train,
    ):
      logging.log(level, "%s: %s", name, text)
      lines.append("%s: %s\n" % (name, text))
    if name == "train":
      train = rows
  filesystem.make_folder(settings.run.output_dir)
  filesystem.write_text(
    os.path.join(settings.run.output_dir, "data_report.txt"), "".join(lines)
  )
