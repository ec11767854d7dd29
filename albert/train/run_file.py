"""What a run was begun with: `run.flags` of its output folder.

The file repeats the run: `python SCRIPT.py --flagfile=run.flags
--output_dir=ELSEWHERE`. A run that goes on in the folder is compared with it.
"""

import datetime
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys

from absl import logging

from albert.errors import InputError
from albert.files import checkpoints, filesystem

NAME = "run.flags"
_PACKAGES = ("tensorflow", "numpy", "jieba", "sentencepiece")
# What may differ when a run goes on: what changes no weights, and how long it
# is. Files of data are compared by what is in them.
_FREE = {
    "output_dir", "do_train", "do_eval", "do_predict", "resume_anyway",
    "save_checkpoints_steps", "save_checkpoints_secs", "keep_checkpoint_max",
    "log_steps", "early_stop_evals", "eval_batch_size", "max_eval_steps",
    "recompute_grads", "check_records", "export_dir", "plain_results",
    "num_train_epochs", "num_train_steps", "num_seeds", "seeds",
    "learning_rates", "dry_run", "tpu_name", "tpu_zone", "gcp_project",
    "master", "iterations_per_loop", "null_score_diff_threshold",
    "data_dir", "train_file", "dev_file", "test_file", "texts_file",
    "unlabelled_file", "input_file", "eval_input_file"}
# What is otherwise with several runs, which are compared.
_OF_SEVERAL = {"num_train_epochs", "num_train_steps", "random_seed",
               "learning_rate"}


def describe_files(paths):
  """Returns what tells whether files are the same: a dict for `begin`.

  Args:
    paths: list of str; they are read whole.
  """
  digest, size = hashlib.sha256(), 0
  for path in paths:
    with filesystem.open_binary(path) as reader:
      for block in iter(lambda reader=reader: reader.read(1 << 20), b""):
        digest.update(block)
        size += len(block)
  return {"files": len(paths), "first": os.path.basename(paths[0]),
          "bytes": size, "sha256": digest.hexdigest()}


def describe_records(files):
  """Returns what tells whether records are the same, from all but content.

  Args:
    files: list of records.RecordFile.
  """
  named = [(os.path.basename(file.path), file.size) for file in files]
  return {"files": len(files), "first": named[0][0],
          "bytes": sum(size for _, size in named),
          "sha256": hashlib.sha256(json.dumps(named).encode()).hexdigest()}


def begin(settings, begun, data, schedule, several=False):
  """Writes what a training begins with, or compares it with what is there.

  Args:
    settings: TrainSettings.
    begun: str, the checkpoint that training goes on from, or None.
    data: dict, name of a split -> what describes its files.
    schedule: train_settings.Schedule.
    several: bool, whether these are several runs, each with a learning rate and
      a seed of its own.

  Raises:
    InputError: the training in the folder was begun with something else.
  """
  path = os.path.join(settings.run.output_dir, NAME)
  now = {"albert": _commit(), "python": platform.python_version(),
         "packages": {name: sys.modules[name].__version__
                      for name in _PACKAGES if name in sys.modules},
         "data": data,
         "rate": [settings.optimizer.learning_rate,
                  settings.optimizer.poly_power, schedule.num_train_steps,
                  schedule.num_warmup_steps],
         "flags": settings.flags}
  notes = ["%s: begun; repeated in a different folder by --flagfile" %
           datetime.datetime.now().strftime("%Y-%m-%d %H:%M")]
  if (begun or several) and filesystem.exists(path):
    *notes, before = [line[2:] for line in filesystem.read_lines(path)
                      if line.startswith("# ")]
    before, step = json.loads(before), checkpoints.step_of(begun)
    changes = _changes(before, now, step, several)
    _accept(path, changes, settings, before["flags"]["optimizer"])
    notes += ["from step %d on: %s" % (step, "; ".join(changes))] * bool(
        changes)
    # A dev file that is not read now is still the one of earlier evaluations.
    now["data"] = dict(before["data"], **data)
  filesystem.write_text(path, "\n".join(
      ["# " + note for note in notes] +
      ["# " + json.dumps(now, ensure_ascii=False), *settings.given, ""]))


def _changes(before, now, step, several):
  """Returns what differs: a dict, a line -> whether it keeps from going on."""
  free = _FREE ^ _OF_SEVERAL if several else _FREE
  changes = {
      "--%s=%s, not %s" % (name, before["flags"][name], value): True
      for name, value in now["flags"].items()
      if name not in free and before["flags"].get(name, value) != value}
  for name, value in now["data"].items():
    old = before["data"].get(name, value)
    if old["sha256"] != value["sha256"]:
      changes["%s data of %s (%d bytes), not of %s (%d bytes)" % (
          name, old["first"], old["bytes"], value["first"],
          value["bytes"])] = True
  if not several and before["rate"] != now["rate"]:
    changes["the learning rate of step %d was %.4g and becomes %.4g" % (
        step, *[learning_rate_at(step, *each["rate"])
                for each in (before, now)])] = False
  return changes


def _accept(path, changes, settings, optimizer):
  """Logs changes, or raises an InputError where they keep from going on."""
  what = "; ".join(changes)
  can_go_on = optimizer == settings.optimizer.optimizer
  if any(changes.values()) and not (can_go_on and settings.run.resume_anyway):
    raise InputError(
        "%s: the training here was begun with %s: give what it was begun with, "
        "a different --output_dir%s" % (
            path, what, " or --resume_anyway" if can_go_on else
            "; another optimizer has other moments"))
  if changes:
    logging.warning("%s: the training here was begun with %s", path, what)


def learning_rate_at(step, peak, power, num_train_steps, num_warmup_steps):
  """Returns the learning rate of a step as `optimization` computes it."""
  if step < num_warmup_steps:
    return peak * step / num_warmup_steps
  return peak * (1.0 - min(1.0, step / num_train_steps))**power


def _commit():
  """Returns the commit of this code, None where it is in no repository."""
  found = subprocess.run(
      ["git", "describe", "--always", "--dirty", "--abbrev=12"],
      cwd=os.path.dirname(os.path.abspath(__file__)), stdout=subprocess.PIPE,
      stderr=subprocess.DEVNULL, check=False) if shutil.which("git") else None
  return found and found.stdout.decode().strip() or None
