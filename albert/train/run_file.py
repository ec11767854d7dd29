"""`run.flags` in the output folder: the code, data and flags of a run.

It repeats the run: `python SCRIPT.py --flagfile=run.flags
--output_dir=ELSEWHERE`. Resuming in the folder is checked against it.
"""

import datetime
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from typing import Any, Dict, List, Optional, Sequence

from absl import logging

from albert.errors import InputError
from albert.files import checkpoints, filesystem, tables
from albert.files.records import RecordFile
from albert.train.settings import Schedule, TrainSettings

NAME = "run.flags"
_TIME = "%Y-%m-%d %H:%M"
_PACKAGES = ("tensorflow", "numpy", "jieba", "sentencepiece")
# Flags that may differ when a run resumes: they do not affect weights, except
# for the length of the run. Data files are compared by content.
_FREE = {
  "output_dir",
  "do_train",
  "do_eval",
  "do_predict",
  "check_data",
  "resume_anyway",
  "sample_file",
  "fold",
  "save_checkpoints_steps",
  "save_checkpoints_secs",
  "keep_checkpoint_max",
  "log_steps",
  "early_stop_evals",
  "eval_batch_size",
  "max_eval_steps",
  "calibrate",
  "recompute_grads",
  "check_records",
  "export_dir",
  "plain_results",
  "num_train_epochs",
  "num_train_steps",
  "num_seeds",
  "seeds",
  "learning_rates",
  "dry_run",
  "tpu_name",
  "tpu_zone",
  "gcp_project",
  "master",
  "iterations_per_loop",
  "null_score_diff_threshold",
  "data_dir",
  "train_file",
  "dev_file",
  "test_file",
  "texts_file",
  "unlabelled_file",
  "input_file",
  "eval_input_file",
}
# Flags for which a sweep does the opposite.
_OF_SEVERAL = {
  "num_train_epochs",
  "num_train_steps",
  "random_seed",
  "learning_rate",
}


def describe_files(paths: Sequence[str]) -> Dict[str, Any]:
  """Returns a description that identifies files by content; see `begin`."""
  return {
    "files": len(paths),
    "first": os.path.basename(paths[0]),
    "bytes": sum(map(filesystem.size, paths)),
    "sha256": filesystem.sha256(*paths),
  }


def describe_records(files: List[RecordFile]) -> Dict[str, Any]:
  """Returns a description that identifies record files by name and size."""
  named = [(os.path.basename(file.path), file.size) for file in files]
  return {
    "files": len(files),
    "first": named[0][0],
    "bytes": sum(size for _, size in named),
    "sha256": hashlib.sha256(json.dumps(named).encode()).hexdigest(),
  }


def read(output_dir: str) -> Optional[Dict[str, Any]]:
  """Returns the record of the run in a folder, None without a run.

  Its keys: albert, python, packages, data, rate, flags and `begun`, a datetime.

  Raises:
    InputError: the file is damaged.
  """
  path = os.path.join(output_dir, NAME)
  if not filesystem.exists(path):
    return None
  notes, described = _read(path)
  return dict(
    described, begun=datetime.datetime.strptime(notes[0].split(": ")[0], _TIME)
  )


def _read(path):
  """Returns the notes and the description in a file."""
  try:
    *notes, described = [
      line[2:] for line in tables.read_lines(path) if line.startswith("# ")
    ]
    return notes, json.loads(described)
  except ValueError as error:
    raise InputError("%s: damaged (%s): remove it" % (path, error)) from error


def begin(
  settings: TrainSettings,
  begun: Optional[str],
  data: Dict[str, Dict[str, Any]],
  schedule: Schedule,
  several: bool = False,
) -> None:
  """Records the start of a run, or compares it with the record.

  Args:
    settings: settings of the run.
    begun: checkpoint to resume from.
    data: split -> description of its files.
    schedule: steps of the training.
    several: whether this is a sweep over learning rates and seeds.

  Raises:
    InputError: the run in the folder was started with different ones.
  """
  path = os.path.join(settings.run.output_dir, NAME)
  now = {
    "albert": _commit(),
    "python": platform.python_version(),
    "packages": {
      name: sys.modules[name].__version__
      for name in _PACKAGES
      if name in sys.modules
    },
    "data": data,
    "rate": [
      settings.optimizer.learning_rate,
      settings.optimizer.poly_power,
      schedule.num_train_steps,
      schedule.num_warmup_steps,
    ],
    "flags": settings.flags,
  }
  notes = [
    "%s: begun; to repeat it in a different folder, use --flagfile"
    % datetime.datetime.now().strftime(_TIME)
  ]
  if (begun or several) and filesystem.exists(path):
    notes, before = _read(path)
    step = checkpoints.step_of(begun)
    changes = _changes(before, now, step, several)
    _accept(path, changes, settings, before["flags"]["optimizer"])
    if changes:
      notes.append("from step %d on: %s" % (step, "; ".join(changes)))
    # Keeps files that are not read now, such as an earlier dev file.
    now["data"] = dict(before["data"], **data)
  filesystem.write_lines(
    path,
    [
      *("# " + note for note in notes),
      "# " + json.dumps(now, ensure_ascii=False),
      *settings.given,
    ],
  )


def _changes(before, now, step, several):
  """Returns the differences: message -> whether it prevents resuming."""
  free = _FREE ^ _OF_SEVERAL if several else _FREE
  changes = {
    "--%s=%s, not %s" % (name, before["flags"][name], value): True
    for name, value in now["flags"].items()
    if name not in free and before["flags"].get(name, value) != value
  }
  for name, value in now["data"].items():
    old = before["data"].get(name, value)
    if old["sha256"] != value["sha256"]:
      changes[
        "%s data of %s (%d bytes), not of %s (%d bytes)"
        % (name, old["first"], old["bytes"], value["first"], value["bytes"])
      ] = True
  if not several and before["rate"] != now["rate"]:
    changes[
      "the learning rate of step %d was %.4g and becomes %.4g"
      % (
        step,
        *[learning_rate_at(step, *each["rate"]) for each in (before, now)],
      )
    ] = False
  return changes


def _accept(path, changes, settings, optimizer):
  """Logs changes, or raises an InputError if they prevent resuming."""
  what = "; ".join(changes)
  can_go_on = optimizer == settings.optimizer.optimizer
  if any(changes.values()) and not (can_go_on and settings.run.resume_anyway):
    raise InputError(
      "%s: the run here was started with %s: use the same, a different "
      "--output_dir%s"
      % (
        path,
        what,
        " or --resume_anyway"
        if can_go_on
        else "; a different optimizer has different moments",
      )
    )
  if changes:
    logging.warning("%s: the run here was started with %s", path, what)


def learning_rate_at(
  step: int,
  peak: float,
  power: float,
  num_train_steps: int,
  num_warmup_steps: int,
) -> float:
  """Returns the learning rate of a step, as in `optimization`."""
  if step < num_warmup_steps:
    return peak * step / num_warmup_steps
  return peak * (1.0 - min(1.0, step / num_train_steps)) ** power


def _commit():
  """Returns the commit of this code; None outside a repository."""
  if not shutil.which("git"):
    return None
  found = subprocess.run(
    ["git", "describe", "--always", "--dirty", "--abbrev=12"],
    cwd=os.path.dirname(os.path.abspath(__file__)),
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    check=False,
  )
  return found.stdout.decode().strip() or None
