r"""Repeats one of the ALBERT paper's ablations in small; prints a table.

    python benchmarks/run_ablations.py sharing --output_dir=output/ablations

Tables, whose rows differ in one thing only and share layout, records, seeds and
budget:
  embedding  embedding size                     (Google's layout)
  sharing    which parameters layers share      (albert_zh's layout)
  sentence   sentence order, next sentence, neither
  depth      number of layers
  data       share of the records to train on
Each row is pretrained with every seed, evaluated on all records of the table
(or on those of --heldout_file), and fine-tuned on --data_dir. A row whose
masked-LM loss is not clearly below that of token frequencies has learnt nothing
yet and is not ranked: raise --num_train_steps. For the paper's sizes, change
--config, --max_seq_length, --num_train_steps and --train_batch_size.

Writes OUTPUT_DIR/TABLE.tsv, .json and, with matplotlib, .png. Finished runs are
kept: the same command resumes.
"""

import dataclasses
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np
from absl import logging

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from albert import cli
from albert.errors import InputError
from albert.files import filesystem, outputs, records
from albert.runs import describe
from albert.settings import NEEDED, USUAL, from_flags, setting
from benchmarks import unigram_entropy

ROOT = sys.path[0]


class Row(NamedTuple):
  """What is special about a row.

  Attributes:
    config: changes of the configuration.
    making: flags of create_pretraining_data.py.
    training: flags of run_pretraining.py.
    shards: how many of the four record files to train on.
  """

  config: Dict[str, Any] = {}
  making: List[str] = []
  training: List[str] = []
  shards: int = 4


TABLES = {
  "embedding": {
    "E = %d" % size: Row({"embedding_size": size}) for size in (64, 128, 256)
  },
  # With projected embeddings five times smaller, this layout learns late.
  "sharing": {
    name: Row({"parameter_sharing": name, "initializer_range": 0.1})
    for name in ("all", "attention", "ffn", "none")
  },
  "sentence": {
    "neither": Row(training=["--sentence_loss_weight=0"]),
    "next sentence": Row(making=["--sentence_pair=nsp"]),
    "sentence order": Row(),
  },
  "depth": {
    "%d layers" % number: Row({"num_hidden_layers": number})
    for number in (1, 2, 4, 8)
  },
  "data": {"a quarter": Row(shards=1), "half": Row(shards=2), "all": Row()},
}
_CLEARLY = 0.2  # nats below token frequencies


@dataclasses.dataclass(frozen=True)
class AblationSettings:
  """Text, sizes and budget."""

  output_dir: str = setting(
    None, "Folder for runs and tables.", NEEDED, required=True
  )
  input_file: str = setting(
    os.path.join(ROOT, "data", "text_heldout.txt"),
    "Text files to pretrain on; the default is little enough to be learnt in "
    "the default steps.",
    NEEDED,
  )
  heldout_file: str = setting(
    None,
    "Text to evaluate on; default: the text to pretrain on, of which a "
    "small budget can show how well it is memorized.",
    USUAL,
  )
  data_dir: str = setting(
    os.path.join(ROOT, "data", "topics"),
    "Folder of train.tsv and dev.tsv to fine-tune on.",
    USUAL,
  )
  config: str = setting(
    None, "Configuration; default: tiny, in the layout of the table.", USUAL
  )
  seeds: list = setting("1,2,3", "Random seeds.", USUAL)
  num_train_steps: int = setting(150, "Steps of pretraining.", USUAL, least=1)
  train_batch_size: int = setting(16, "Examples per step.", USUAL, least=1)
  learning_rate: float = setting(3e-4, "Peak rate of pretraining.", USUAL)
  max_seq_length: int = setting(32, "Tokens per record.", USUAL)
  masked_lm_prob: float = setting(0.4, "Share of masked tokens.", USUAL)
  num_train_epochs: int = setting(8, "Passes of fine-tuning.", USUAL, least=1)


SETTINGS = (AblationSettings,)


def run(script: str, *flags: str) -> None:
  """Runs a script of this folder; raises an InputError if it fails."""
  status = subprocess.call([sys.executable, os.path.join(ROOT, script), *flags])
  if status:
    raise InputError(
      "%s failed with status %d, for the reason above" % (script, status)
    )


def make_records(args: AblationSettings, row: Row) -> str:
  """Writes the records of a row, once; returns their folder."""
  flags = [
    "--vocab_file=" + os.path.join(ROOT, "albert_config", "vocab.txt"),
    "--max_seq_length=%d" % args.max_seq_length,
    "--dupe_factor=1",
    "--masked_lm_prob=%g" % args.masked_lm_prob,
    "--max_predictions_per_seq=%d"
    % round(1.3 * args.masked_lm_prob * args.max_seq_length),
    *row.making,
  ]
  texts = [
    filesystem.sha256(*records.expand_patterns(patterns, "input_file"))
    for patterns in (args.input_file, args.heldout_file or args.input_file)
  ]
  digest = hashlib.sha256(repr((flags, texts)).encode()).hexdigest()[:16]
  folder = os.path.join(args.output_dir, "records", digest)
  if filesystem.exists(os.path.join(folder, "eval")):
    return folder
  train, unfinished = (os.path.join(folder, x) for x in ("train", "unfinished"))
  shutil.rmtree(unfinished, ignore_errors=True)
  run(
    "create_pretraining_data.py",
    "--input_file=" + args.input_file,
    "--output_file="
    + ",".join("%s/%d.tfrecord" % (train, number) for number in range(4)),
    *flags,
  )
  if args.heldout_file:
    run(
      "create_pretraining_data.py",
      "--input_file=" + args.heldout_file,
      "--output_file=%s/0.tfrecord" % unfinished,
      *flags,
    )
  else:
    shutil.copytree(train, unfinished)
  os.rename(unfinished, os.path.join(folder, "eval"))
  return folder


def config_of(args: AblationSettings, table: str, row: Row) -> Dict[str, Any]:
  """Returns the configuration of a row."""
  path = args.config or os.path.join(
    ROOT,
    "albert_config",
    "albert_config_tiny%s.json" % ("" if table == "sharing" else "_google"),
  )
  return dict(filesystem.read_json(path), **row.config)


def train(
  args: AblationSettings, table: str, name: str, row: Row, seed: str
) -> str:
  """Pretrains and fine-tunes a row with one seed; returns its folder."""
  folder = os.path.join(args.output_dir, table, name.replace(" ", "_"), seed)
  made, config = make_records(args, row), os.path.join(folder, "config.json")
  filesystem.make_folder(folder)
  filesystem.write_json(config, config_of(args, table, row))
  pretrained = os.path.join(folder, "pretrained")
  shards = ",".join(
    "%s/train/%d.tfrecord" % (made, number) for number in range(row.shards)
  )
  run(
    "run_pretraining.py",
    "--do_train",
    "--bert_config_file=" + config,
    "--input_file=" + shards,
    "--eval_input_file=%s/eval/*.tfrecord" % made,
    "--output_dir=" + pretrained,
    "--optimizer=adamw",
    "--learning_rate=%g" % args.learning_rate,
    "--random_seed=" + seed,
    "--num_train_steps=%d" % args.num_train_steps,
    "--num_warmup_steps=%d" % (args.num_train_steps // 3),
    "--train_batch_size=%d" % args.train_batch_size,
    "--log_steps=10",
    "--save_checkpoints_steps=%d" % args.num_train_steps,
    *row.training,
  )
  run(
    "run_classifier.py",
    "--task_name=tsv",
    "--data_dir=" + args.data_dir,
    "--do_train",
    "--do_eval",
    "--init_checkpoint=" + pretrained,
    "--output_dir=" + os.path.join(folder, "task"),
    "--max_seq_length=64",
    "--train_batch_size=16",
    "--learning_rate=3e-4",
    "--random_seed=" + seed,
    "--save_checkpoints_steps=1000000",
    "--num_train_epochs=%d" % args.num_train_epochs,
  )
  return folder


def figures_of(folder: str, has_sentence_task: bool) -> Dict[str, float]:
  """Returns what was measured of a run."""
  pretrained = os.path.join(folder, "pretrained")
  found = outputs.read_results(
    os.path.join(pretrained, "best", "eval_results.txt")
  )
  tuned = outputs.read_results(
    os.path.join(folder, "task", "best", "eval_results.txt")
  )
  return {
    "parameters": found["parameters"],
    "masked-LM loss": found["masked_lm_loss"],
    "masked-LM accuracy": found["masked_lm_accuracy"],
    **(
      {"sentence accuracy": found["sentence_order_accuracy"]}
      if has_sentence_task
      else {}
    ),
    "task accuracy": tuned["eval_accuracy"],
    "minutes": describe(pretrained)["minutes"],
  }


def summary(
  name: str, runs: List[Dict[str, float]], frequencies: float
) -> Dict[str, Any]:
  """Returns the row of a table.

  Args:
    name: name of the row.
    runs: figures of each seed.
    frequencies: masked-LM loss of token frequencies.
  """
  loss = np.mean([run["masked-LM loss"] for run in runs])
  return {
    "name": name,
    "learnt": bool(loss < frequencies - _CLEARLY),
    **{
      key: [float(np.mean(values)), float(np.std(values))]
      for key in runs[0]
      for values in [[run[key] for run in runs]]
    },
  }


def lines_of(rows: List[Dict[str, Any]]) -> List[List[str]]:
  """Returns the cells of a table, best row first, those not learnt last."""
  names = [
    "parameters",
    "masked-LM loss",
    "masked-LM accuracy",
    "sentence accuracy",
    "task accuracy",
    "minutes",
  ]

  def cell(name, values: Optional[List[float]]):
    if values is None:
      return "-"
    if name == "parameters":
      return "%d" % values[0]
    return "%.1f" % values[0] if name == "minutes" else "%.3f±%.3f" % (*values,)

  ranked = sorted(
    rows, key=lambda row: (not row["learnt"], row["masked-LM loss"][0])
  )
  return [["rank", "row", *names]] + [
    [
      str(rank) if row["learnt"] else "not learnt",
      row["name"],
      *[cell(name, row.get(name)) for name in names],
    ]
    for rank, row in enumerate(ranked, 1)
  ]


def main(tables: List[str]) -> None:
  args = from_flags(AblationSettings)
  if len(tables) != 1 or tables[0] not in TABLES:
    raise InputError("give one table: " + ", ".join(TABLES))
  (table,) = tables
  folders = {
    name: [train(args, table, name, row, seed) for seed in args.seeds]
    for name, row in TABLES[table].items()
  }
  rows = []
  for name, row in TABLES[table].items():
    made = make_records(args, row)
    frequencies, *_ = unigram_entropy.frequency_loss(
      *(
        records.expand_patterns("%s/%s/*.tfrecord" % (made, part), part)
        for part in ("train", "eval")
      )
    )
    rows.append(
      summary(
        name,
        [
          figures_of(folder, "--sentence_loss_weight=0" not in row.training)
          for folder in folders[name]
        ],
        frequencies,
      )
    )
  lines = lines_of(rows)
  path = os.path.join(args.output_dir, table)
  filesystem.write_json(path + ".json", rows)
  filesystem.write_table(path + ".tsv", lines)
  for line in lines:
    print(*line, sep="\t")
  if not importlib.util.find_spec("matplotlib"):
    logging.warning("no picture: pip install '.[plot]'")
    return
  run(
    "benchmarks/plot_curves.py",
    "--output=%s.png" % path,
    "--names=" + ",".join(folders),
    "--runs="
    + ",".join(
      os.path.join(seeds[0], "pretrained") for seeds in folders.values()
    ),
  )


if __name__ == "__main__":
  cli.run(main, SETTINGS, takes_arguments=True, description=__doc__)
