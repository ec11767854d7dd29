"""Hooks of the training loop: progress, evaluation, checkpoints."""

import collections
import math
import sys
import threading
import time
import traceback
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional, Sequence

import tensorflow.compat.v1 as tf
import tqdm
from absl import logging

from albert.errors import InputError
from albert.files import checkpoints
from albert.files.outputs import short, write_summary
from albert.progress import hours
from albert.train import distribution, interrupts
from albert.train.evaluation import Evaluator
from albert.train.settings import TrainSettings
from albert.train.step import PROGRESS

_SECONDS = 30  # maximum between progress lines
_DAY = 24 * 60 * 60
# By then the loss scale is 1, and further steps would also overflow.
_MOST_SKIPPED = 30
_HOST_SECONDS = 10  # maximum wait for values from a TPU


def create(
  settings: TrainSettings,
  workers: distribution.Workers,
  ends: Sequence[int],
  evaluator: Optional[Evaluator],
  should_stop: Callable[[], bool],
) -> List[tf.train.SessionRunHook]:
  """Returns the hooks of training, in the order in which they run.

  Args:
    settings: settings of the run.
    workers: the processes.
    ends: last steps of the stages of training.
    evaluator: evaluates saved checkpoints.
    should_stop: called on rank 0.
  """
  run, device = settings.run, settings.device
  progress = ProgressHook(
    ends[-1],
    run.log_steps,
    settings.batch.train_batch_size * workers.size,
    run.output_dir,
    not workers.rank,
  )
  hooks = [progress]
  if run.save_checkpoints_secs and not workers.rank:
    hooks.append(_TimedSaver(run.output_dir, run.save_checkpoints_secs))
  if device.use_tpu:  # its estimator saves by steps itself
    return hooks
  if not workers.rank:
    every = run.save_checkpoints_steps

    def is_due(step):
      return run.save_checkpoints_secs or is_evaluated(step, every, ends)

    hooks.append(
      _Saver(
        run.output_dir,
        every,
        [_EvaluationListener(evaluator, progress, is_due)]
        if evaluator
        else None,
      )
    )
  if device.use_horovod:
    hooks.insert(0, distribution.broadcast_variables_hook())
    hooks.append(
      distribution.StopTogetherHook(run.save_checkpoints_steps, should_stop)
    )
  return hooks


def is_evaluated(step: int, every: int, ends: Sequence[int]) -> bool:
  """Returns whether a checkpoint is evaluated, unless they are saved by time.

  Not one that an interruption left: its evaluations would be different.

  Args:
    step: its global step.
    every: steps between checkpoints.
    ends: last steps of the stages of training.
  """
  return step % every == 0 or step in ends


def not_finite(what: str, output_dir: str) -> InputError:
  """Returns the error of a loss or weights that are not finite."""
  return InputError(
    "%s; the newest checkpoint with finite weights is %s: remove newer ones "
    "to resume from it; try a lower --learning_rate or different data"
    % (what, checkpoints.newest_finite_checkpoint(output_dir))
  )


class ProgressHook(tf.train.SessionRunHook):
  """Logs step, means since the last line, rate and time left.

  Logs after the first step, then every `every` steps, and at least every half
  minute. Raises an InputError if the loss or gradient is not finite, before
  these weights are saved, or if half precision keeps overflowing. Warns of a
  loss far above the first one. Stops after the step in which a signal requested
  it.

  Args:
    num_train_steps: of the whole training.
    every: steps between lines.
    examples_per_step: over all processes.
    output_dir: output folder.
    writes: whether to write the same means for TensorBoard.
  """

  def __init__(
    self,
    num_train_steps: int,
    every: int,
    examples_per_step: int,
    output_dir: str,
    writes: bool = True,
  ):
    self._num_train_steps = num_train_steps
    self._every = every
    self._examples_per_step = examples_per_step
    self._output_dir = output_dir
    self._writes = writes
    self._num_lines = 0
    self._first_loss = 0.0
    self._diverges = False
    self._num_skipped = 0  # consecutive steps

  def begin(self) -> None:
    self._scalars: Dict[str, tf.Tensor] = collections.OrderedDict(
      (scalar.op.name.split("/")[-1], scalar)
      for scalar in tf.get_collection(PROGRESS)
    )
    self._global_step = tf.train.get_global_step()
    self._of_host: Dict[str, tf.Tensor] = {}
    if "host_step" in self._scalars:
      # A TPU's host receives the last step of a loop after the loop ends.
      self._of_host = dict(self._scalars)
      loss = tf.get_collection(tf.GraphKeys.LOSSES)[-1]
      with tf.control_dependencies([loss]):
        self._scalars = {
          "loss": loss,
          "global_step": self._global_step.read_value(),
        }

  def after_create_session(
    self, session: tf.Session, coord: tf.train.Coordinator
  ) -> None:
    del coord
    self._step = session.run(self._global_step)
    # disable=None: on a terminal only.
    self._bar = tqdm.tqdm(
      total=self._num_train_steps,
      initial=self._step,
      desc="steps",
      disable=None,
      leave=False,
    )
    self._watch = _Watch()
    self._watch.start()
    self._start_interval()

  def exclude(self, seconds: float) -> None:
    """Excludes time not spent on training from the rate."""
    self._since += seconds
    self._watch.ended()

  def _start_interval(self):
    self._since = time.monotonic()
    self._first_step = self._step
    self._count = 0
    self._sums = collections.Counter()

  def before_run(
    self, run_context: tf.train.SessionRunContext
  ) -> tf.train.SessionRunArgs:
    return tf.train.SessionRunArgs(self._scalars)

  def after_run(
    self,
    run_context: tf.train.SessionRunContext,
    run_values: tf.train.SessionRunValues,
  ) -> None:
    values = run_values.results
    step = values.pop("global_step")
    self._watch.ended()
    if self._of_host:
      values = dict(self._host_values(run_context.session, step), **values)
    if interrupts.requested():
      run_context.request_stop()
    if not math.isfinite(values["loss"]):
      raise not_finite(
        "the loss is %s at step %d" % (values["loss"], self._step + 1),
        self._output_dir,
      )
    if step > self._step and not math.isfinite(values.get("gradient_norm", 0)):
      raise not_finite(
        "the norm of the gradient is %s at step %d"
        % (values["gradient_norm"], step),
        self._output_dir,
      )
    if step == self._step:
      self._num_skipped += 1
      if self._num_skipped == _MOST_SKIPPED:
        raise InputError(
          "step %d overflows half precision %d times in a row: try a lower "
          "--learning_rate, more --num_warmup_steps, or --precision=float32"
          % (step + 1, _MOST_SKIPPED)
        )
      logging.info(
        "step %d skipped: gradients too large for half precision", step + 1
      )
      return
    self._num_skipped = 0
    self._bar.update(step - self._step)
    self._step = step
    self._count += 1
    self._sums.update(values)
    # A TPU runs many steps at once, so `step` can pass a multiple of `every`.
    if (
      not self._num_lines
      or step == self._num_train_steps
      or step // self._every != self._first_step // self._every
      or time.monotonic() > self._since + _SECONDS
    ):
      self._log()

  def _host_values(self, session, step):
    """Returns what a TPU sent in a step; after a timeout, the last values."""
    late = time.monotonic() + _HOST_SECONDS
    while True:
      values = session.run(self._of_host)
      if values.pop("host_step") >= step or time.monotonic() > late:
        return values
      time.sleep(0.01)

  def end(self, session: tf.Session) -> None:
    self._bar.close()
    self._watch.stop.set()

  def _log(self):
    seconds = (time.monotonic() - self._since) / (self._step - self._first_step)
    interrupts.tell_step(seconds)
    self._watch.usual = seconds
    means = {name: total / self._count for name, total in self._sums.items()}
    if math.isclose(
      means.get("example_loss", math.nan), means["loss"], rel_tol=1e-6
    ):
      del means["example_loss"]
    rate = self._examples_per_step / seconds
    left = seconds * (self._num_train_steps - self._step)
    tokens = means.pop("tokens_per_example", 0.0)
    parts = ["%s %s" % (name, short(mean)) for name, mean in means.items()]
    # A TPU's host writes the other summaries.
    summary = {} if self._of_host else means
    if self._num_lines:
      parts += [
        "%.1f examples/s" % rate,
        "%.0f tokens/s" % (tokens * rate),
        hours(left) + " left",
      ]
      summary = dict(
        summary, examples_per_second=rate, tokens_per_second=tokens * rate
      )
    else:  # including set-up
      parts.append("%.1f s per step" % seconds)
    if self._writes and summary:
      write_summary(self._output_dir, self._step, summary)
    self._bar.clear()
    logging.info(
      "step %d/%d | last %d: %s",
      self._step,
      self._num_train_steps,
      self._step - self._first_step,
      " | ".join(parts),
    )
    self._num_lines += 1
    self._first_loss = self._first_loss or means["loss"]
    if means["loss"] > 2 * self._first_loss + 1 and not self._diverges:
      self._diverges = True
      logging.warning(
        "the loss is %s, but was %s at first: training diverges; try a lower "
        "--learning_rate",
        short(means["loss"]),
        short(self._first_loss),
      )
    if self._num_lines == 2 and left > _DAY:
      logging.warning(
        "at this rate training takes %.1f more days: use fewer "
        "--num_train_steps, a smaller model or shorter records",
        left / _DAY,
      )
    self._start_interval()


class _Watch(threading.Thread):
  """Logs where training hangs if a step takes ten times as long as usual.

  Attributes:
    usual: seconds per step, once known.
    stop: set to end the thread.
  """

  _last_one: Any = SimpleNamespace(stop=threading.Event())

  def __init__(self):
    super().__init__(daemon=True)
    self._trainer = threading.get_ident()
    self.usual: Optional[float] = None
    self.stop = threading.Event()
    self.ended()
    # A failed training does not stop the thread of its hook.
    _Watch._last_one.stop.set()
    _Watch._last_one = self

  def ended(self):
    """Records the end of a step."""
    self._last = time.monotonic()

  def run(self):
    told = None
    while not self.stop.wait(1):
      last, usual = self._last, self.usual
      waited = time.monotonic() - last
      if (
        usual
        and told != last
        and interrupts.is_training()
        and (waited > max(_SECONDS, 10 * usual))
      ):
        told = last
        frames = traceback.extract_stack(sys._current_frames()[self._trainer])
        logging.warning(
          "no step has ended for %d s, usually %.1f s: waiting in %s (%s), "
          "for records, other processes or the device",
          waited,
          usual,
          frames[-1].name,
          " < ".join(frame.name for frame in frames[-2:-5:-1]),
        )


class _Multiples(tf.train.SecondOrStepTimer):
  """Triggers at multiples of a number of steps, wherever training resumed."""

  def __init__(self, every):
    super().__init__(every_steps=every)
    self._every = every

  def should_trigger_for_step(self, step):
    last = self.last_triggered_step()
    return last is None or step // self._every > last // self._every


class _Saver(tf.train.CheckpointSaverHook):
  """Saves at multiples of a number of steps, and the first and last step."""

  def __init__(self, output_dir, every, listeners):
    super().__init__(output_dir, save_steps=every, listeners=listeners)
    self._timer = _Multiples(every)


class _Timer(tf.train.SecondOrStepTimer):
  """Uses the monotonic clock."""

  def __init__(self, seconds):
    super().__init__(every_secs=seconds)
    self._seconds = seconds

  def should_trigger_for_step(self, step):
    return time.monotonic() >= self._last + self._seconds

  def update_last_triggered_step(self, step):
    self._last = time.monotonic()
    return None, None


class _TimedSaver(tf.train.CheckpointSaverHook):
  """Saves by time; the first and the last step are saved by another hook."""

  def __init__(self, output_dir, seconds):
    super().__init__(output_dir, save_secs=seconds)
    self._timer = _Timer(seconds)

  def after_create_session(self, session, coord):
    self._timer.update_last_triggered_step(0)

  def end(self, session):
    pass


class _EvaluationListener(tf.train.CheckpointSaverListener):
  """Calls the evaluator after a checkpoint is saved.

  Args:
    evaluator: the Evaluator.
    progress: the ProgressHook.
    is_due: maps a step to whether it is evaluated.
  """

  def __init__(self, evaluator, progress, is_due):
    self._evaluator = evaluator
    self._progress = progress
    self._is_due = is_due

  def after_save(self, session, global_step_value):
    if not global_step_value or not self._is_due(int(global_step_value)):
      return False
    start = time.monotonic()
    with interrupts.pausing():
      self._evaluator.evaluate(int(global_step_value))
    self._progress.exclude(time.monotonic() - start)
    return self._evaluator.should_stop()
