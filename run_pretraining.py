r"""Pretrains ALBERT: masked LM and sentence order.

    python run_pretraining.py --do_train --input_file='records/*.tfrecord' \
      --bert_config_file=albert_config/albert_config_tiny.json \
      --output_dir=output/pretrained
"""

import dataclasses
import os
import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import tensorflow.compat.v1 as tf
from absl import logging

from albert import cli, model_folder
from albert.errors import InputError
from albert.files import checkpoints, filesystem, outputs, records, tables
from albert.heads.pretraining import Pretraining
from albert.model.config import AlbertConfig
from albert.predict import load
from albert.settings import NEEDED, USUAL, from_flags, setting
from albert.train import evaluation, loop, run_file, step
from albert.train import settings as train_settings
from albert.train.settings import TrainSettings

Stages = List[Tuple[Any, int]]  # (TPUEstimator, last step with it)


@dataclasses.dataclass(frozen=True)
class PretrainingSettings:
  """Records, steps and losses."""

  input_file: str = setting(
    None,
    "Record files to train on: globs, separated by commas.",
    NEEDED,
    required="do_train or do_eval and not eval_input_file",
  )
  eval_input_file: str = setting(
    None,
    "Held-out record files, evaluated at every saved checkpoint; must "
    "not be training files.",
    USUAL,
  )
  export_dir: str = setting(
    None,
    "Folder to export the trained encoder to (SavedModel).",
    demands="do_train",
  )
  num_train_steps: int = setting(
    125000, "Total training steps.", USUAL, least=1, needs="do_train"
  )
  num_warmup_steps: int = setting(
    12500, "Warm-up steps.", USUAL, least=0, needs="do_train"
  )
  grow_layers: str = setting(
    None,
    "Train with fewer layers first: '1:4000,2:8000' is one layer up to "
    "step 4000, two up to step 8000, then the configured number. Layers must "
    "share their parameters.",
    demands="do_train",
  )
  max_seq_length: int = setting(
    None,
    "Tokens per record; default: from the JSON file next to the "
    "records, otherwise 512.",
  )
  max_predictions_per_seq: int = setting(
    None,
    "Masked tokens per record; default: from the JSON file next to the "
    "records, otherwise 51.",
  )
  sample_file: str = setting(
    None,
    "Texts with [MASK], one per line; every evaluation adds what it "
    "fills in to samples.txt.",
    demands="eval_input_file",
  )
  early_stop_evals: int = setting(
    None,
    "Stop after this many evaluations without improvement.",
    USUAL,
    least=1,
    demands="do_train and eval_input_file",
  )
  max_eval_steps: int = setting(
    None,
    "Maximum batches to evaluate; default: all.",
    least=1,
    needs="do_eval or eval_input_file",
  )
  sentence_loss_weight: float = setting(
    1.0,
    "Weight of the sentence-order loss; with 0, the pooler and the "
    "sentence-order head are not trained.",
  )
  shuffle_buffer: int = setting(
    10000, "Records in the shuffle buffer.", least=1, needs="do_train"
  )
  skip_corrupt_records: bool = setting(
    False,
    "Whether to skip unreadable record files, the rest of damaged "
    "ones, and records that do not fit; reads all records first.",
  )
  check_records: bool = setting(
    False, "Whether to check all records before training instead of during it."
  )


SETTINGS = (PretrainingSettings, *train_settings.PRETRAINING)
_MOST_PASSES = 40  # over the records before a warning
_TRAINED_BATCHES = 100  # of training records to evaluate
DEFAULTS: Dict[str, Any] = dict(
  optimizer="lamb",
  learning_rate=dict(
    default=1.56e-4,
    text="Peak learning rate. The default is for LAMB and the "
    "default batch: 0.00176, published for 4096 examples, times "
    "sqrt(32 / 4096).",
  ),
)


def parse_growth(
  text: Optional[str], config: AlbertConfig, num_train_steps: int
) -> List[Tuple[AlbertConfig, int]]:
  """Returns the stages of --grow_layers: (configuration, last step).

  As layers share their parameters, a shallow model can initialize a deeper one
  (ALBERT, section 4.3, the table of depths).

  Args:
    text: value of --grow_layers.
    config: configuration of the last stage.
    num_train_steps: last step of the last stage.

  Raises:
    InputError: the text is malformed, steps or depths do not increase, or
      layers do not share all parameters.
  """
  stages = []
  for part in text.split(",") if text else []:
    numbers = re.match(r"(\d+):(\d+)$", part.strip())
    if not numbers:
      raise InputError(
        "--grow_layers=%s: write LAYERS:STEP,LAYERS:STEP, such "
        "as 1:4000,2:8000" % text
      )
    stages.append(tuple(map(int, numbers.groups())))
  if stages and not (
    config.parameter_sharing == "all" or config.num_hidden_groups == 1
  ):
    raise InputError(
      "--grow_layers: the layers of this configuration do not "
      "share their parameters"
    )
  stages.append((config.num_hidden_layers, num_train_steps))
  for before, after in zip([(0, 0)] + stages, stages):
    if not (before[0] < after[0] and before[1] < after[1]):
      raise InputError(
        "--grow_layers=%s: layers and steps must grow, up to %d layers and "
        "step %d" % (text, config.num_hidden_layers, num_train_steps)
      )
  return [
    (
      AlbertConfig.from_dict(dict(config.to_dict(), num_hidden_layers=layers)),
      end,
    )
    for layers, end in stages
  ]


class Records(NamedTuple):
  """Record files and the model they fit.

  Attributes:
    folder: folder of the model.
    specs: features of the records.
    train, heldout: files to train on and to evaluate on; None for none.
  """

  folder: model_folder.ModelFolder
  specs: List[records.FeatureSpec]
  train: Optional[records.Reader]
  heldout: Optional[records.Reader]


def find_records(args: PretrainingSettings, settings: TrainSettings) -> Records:
  """Finds and checks the record files."""
  run = settings.run
  # Without held-out records, evaluates --input_file, like BERT's script.
  eval_flag = "eval_input_file" if args.eval_input_file else "input_file"
  evaluates = run.do_eval or (run.do_train and args.eval_input_file)
  if run.do_train and run.do_eval and not args.eval_input_file:
    logging.warning(
      "evaluating on at most %d batches of training records after training; "
      "this chooses no best checkpoint: hold out some text and give its "
      "records as --eval_input_file",
      args.max_eval_steps or _TRAINED_BATCHES,
    )
  wanted = []
  if run.do_train:
    wanted.append("input_file")
  if evaluates:
    wanted.append(eval_flag)
  if not wanted:
    raise InputError("nothing to do: give --do_train or --do_eval")
  paths = {
    flag: records.expand_patterns(getattr(args, flag), flag) for flag in wanted
  }
  settings.device.check_paths(paths)
  trained = set(map(filesystem.resolve, paths.get("input_file", [])))
  for path in paths.get("eval_input_file", []):
    if filesystem.resolve(path) in trained:
      raise InputError("--eval_input_file: %s is a training file" % path)

  all_paths: List[str] = sum(paths.values(), [])
  folder = model_folder.begun_with(
    model_folder.load(settings.model, settings.model.init_checkpoint),
    checkpoints.newest_or_best(run.output_dir),
    settings.model.init_checkpoint,
  )
  made_with = records.check_descriptions(
    all_paths,
    {
      "vocab_size": folder.config.vocab_size,
      "vocab_file_sha256": None,
      "spm_model_file_sha256": None,
      "do_lower_case": None,
      "max_seq_length": args.max_seq_length,
      "max_predictions_per_seq": args.max_predictions_per_seq,
      "sentence_pair": None,
      "legacy_wwm_labels": None,
    },
    may_differ=(
      "masking",
      "masked_lm_prob",
      "ngram",
      "whole_word_share",
      "per_token_replacement",
    ),
  )
  max_seq_length = made_with.get("max_seq_length", 512)
  folder.check_length(max_seq_length)
  specs = records.pretraining_specs(
    max_seq_length,
    made_with.get("max_predictions_per_seq", 51),
    folder.config.vocab_size,
  )
  files = {
    flag: records.Reader(
      paths[flag], specs, args.skip_corrupt_records, args.check_records
    )
    for flag in paths
  }
  return Records(
    model_folder.for_records(
      folder, settings.model, made_with, all_paths, max_seq_length
    ),
    specs,
    files["input_file"] if run.do_train else None,
    files[eval_flag] if evaluates else None,
  )


def count_eval_steps(
  args: PretrainingSettings,
  settings: TrainSettings,
  files: List[records.RecordFile],
) -> Optional[int]:
  """Returns the number of batches to evaluate, None for all."""
  most = args.max_eval_steps
  if settings.run.do_train and not args.eval_input_file:
    most = most or _TRAINED_BATCHES
  if not settings.device.use_tpu:
    return most
  # A TPU needs full batches and their number.
  batches = records.count_batches(files, settings.batch.eval_batch_size)
  return min(batches, most or batches)


def evaluator_of(
  args: PretrainingSettings,
  settings: TrainSettings,
  stages: Stages,
  made: Records,
) -> Callable[[Optional[str]], Dict[str, Any]]:
  """Returns the function that evaluates a checkpoint.

  Args:
    args: settings of pretraining.
    settings: settings of the run.
    stages: estimators and their last steps.
    made: the records.
  """
  steps = made.heldout and count_eval_steps(
    args, settings, made.heldout.files()
  )
  samples = read_samples(args)

  def evaluate(checkpoint):
    # With the number of layers it was trained with.
    depths = [
      stage
      for stage in stages
      if settings.run.do_train and checkpoints.step_of(checkpoint) <= stage[1]
    ]
    estimator, _ = (depths or stages[-1:])[0]
    error = None
    while True:
      input_fn = records.input_fn_builder(
        made.heldout.files(error),
        made.specs,
        is_training=False,
        drop_remainder=settings.device.use_tpu,
      )
      try:
        with checkpoints.restoring(
          checkpoint or settings.model.init_checkpoint
        ):
          results = step.whole_loss(
            estimator.evaluate(
              input_fn, steps=steps, checkpoint_path=checkpoint
            )
          )
        break
      except tf.errors.OpError as failed:
        error = failed
    if samples and checkpoint:
      write_samples(settings.run.output_dir, samples, checkpoint)
    return results

  return evaluate


def read_samples(args: PretrainingSettings) -> List[str]:
  """Returns the texts of --sample_file.

  Raises:
    InputError: a text has no mask.
  """
  texts = (
    list(filter(None, map(str.strip, tables.read_lines(args.sample_file))))
    if args.sample_file
    else []
  )
  for text in texts:
    if "[MASK]" not in text:
      raise InputError("--sample_file: %r has no [MASK]" % text)
  return texts


def write_samples(output_dir: str, texts: List[str], checkpoint: str) -> None:
  """Adds rows of step, text, and most likely tokens to `samples.txt`."""
  path = os.path.join(output_dir, "samples.txt")
  number = str(checkpoints.step_of(checkpoint))
  lines = tables.read_lines(path) if filesystem.exists(path) else []
  rows = [line.split("\t") for line in lines]
  rows = [row for row in rows if row[0] != number]  # of an earlier evaluation
  for text, found in zip(
    texts, load(checkpoint, "tensorflow").predict(texts, top_k=3)
  ):
    rows.append([number, text, *found.cells()])
  filesystem.write_table(path, sorted(rows, key=lambda row: int(row[0])))


def report_passes(
  args: PretrainingSettings, num_records: int, examples: int
) -> None:
  """Logs the number of passes; warns of an unusual schedule.

  Args:
    args: settings of pretraining.
    num_records: records to train on.
    examples: per step.
  """
  passes = args.num_train_steps * examples / num_records
  logging.info(
    "%d records, %d examples per step: %d steps are %.1f passes",
    num_records,
    examples,
    args.num_train_steps,
    passes,
  )
  if passes > _MOST_PASSES:
    logging.warning(
      "%.0f passes over the text: the model will memorize it; use more text, "
      "fewer --num_train_steps, or --eval_input_file with "
      "--early_stop_evals",
      passes,
    )
  if args.num_warmup_steps >= args.num_train_steps:
    logging.warning(
      "--num_warmup_steps=%d: the learning rate does not reach its peak in "
      "%d steps",
      args.num_warmup_steps,
      args.num_train_steps,
    )


def main() -> None:
  args = from_flags(PretrainingSettings)
  settings = train_settings.read()
  run = settings.run
  workers = loop.start(settings)
  made = find_records(args, settings)
  if not run.do_train:
    checkpoints.require_model(settings.model.init_checkpoint, run.output_dir)
  depths = parse_growth(
    args.grow_layers, made.folder.config, args.num_train_steps
  )
  contents = made.folder.contents()
  examples = settings.batch.train_batch_size * workers.size
  schedule = train_settings.Schedule(
    args.num_train_steps,
    args.num_warmup_steps,
    passes_per_step=(examples / made.train.count() if made.train else 0.0),
  )
  if not workers.rank:
    outputs.prepare_output_dir(run.output_dir, contents, run.do_train)
    if run.do_train:
      run_file.begin(
        settings,
        checkpoints.newest_or_best(run.output_dir),
        {
          name: run_file.describe_records(reader.files())
          for name, reader in (("train", made.train), ("dev", made.heldout))
          if reader
        },
        schedule,
      )

  head = Pretraining(args.sentence_loss_weight)
  stages = [
    (
      loop.create_estimator(
        settings,
        workers,
        step.model_fn_builder(config, head, settings, schedule, workers),
      ),
      end,
    )
    for config, end in depths
  ]
  evaluate = evaluator_of(args, settings, stages, made)
  if run.do_train:
    report_passes(args, made.train.count(), examples)
    loop.warn_of_slow_training(made.folder.config, settings.device)

    def train_input_fn_at(start, error=None):
      return records.input_fn_builder(
        made.train.files(error),
        made.specs,
        is_training=True,
        drop_remainder=True,
        seed=run.random_seed,
        start=start,
        shuffle_buffer=args.shuffle_buffer,
        shard=(workers.size, workers.rank),
      )

    rule = evaluation.BestRule(
      "masked_lm_loss",
      higher_is_better=False,
      first_step=stages[-2][1] + 1 if len(stages) > 1 else 0,
    )
    evaluator = None
    if args.eval_input_file:
      evaluator = evaluation.Evaluator(
        run.output_dir, evaluate, rule, list(contents), args.early_stop_evals
      )
    loop.train_and_evaluate(
      settings, workers, stages, train_input_fn_at, evaluator
    )
    if args.export_dir and not workers.rank:
      loop.export_saved_model(stages[-1][0], args.export_dir)
  if (
    made.heldout
    and not (run.do_train and args.eval_input_file)
    and (not workers.rank)
  ):
    evaluation.evaluate_and_write(
      run.output_dir,
      evaluate,
      None
      if run.do_train
      else checkpoints.named_in(run.output_dir, settings.model.init_checkpoint),
    )


if __name__ == "__main__":
  cli.run(main, SETTINGS, **DEFAULTS)
