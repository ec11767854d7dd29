"""Sweeps over learning rates and seeds: plan, runs, results."""

import re

import numpy as np
import pytest
from given_settings import make_settings
from reading import table
from refusals import refused
from scripting import results

from albert.files import checkpoints, filesystem, outputs
from albert.train import sweep

# (learning rate, seed) -> accuracy: 0.2 is better on average.
FOUND = {(0.1, 7): 0.5, (0.1, 3): 0.7, (0.2, 7): 0.65, (0.2, 3): 0.6}
ROWS = [
  ["learning_rate", "seed", "eval_accuracy", "global_step"],
  ["0.1", "7", "0.5", "8"],
  ["0.1", "3", "0.7", "8"],
  ["0.1", "mean", "0.6", ""],
  ["0.1", "deviation", "0.1414", ""],
  ["0.2", "7", "0.65", "8"],
  ["0.2", "3", "0.6", "8"],
  ["0.2", "mean", "0.625", ""],
  ["0.2", "deviation", "0.03536", ""],
]


@pytest.fixture
def run(tmp_path):
  """Returns a function that sweeps and returns its runs."""

  def run(ends_before=None, leads=True, invalid=(), **changes):
    calls = []

    def run_once(settings):
      folder = settings.run.output_dir
      case = settings.optimizer.learning_rate, settings.run.random_seed
      if case == ends_before:
        raise KeyboardInterrupt
      calls.append((*case, settings.run.do_train, settings.data.do_predict))
      if settings.run.do_train and leads and case not in invalid:
        checkpoints.write_checkpoint(
          folder, "model.ckpt-8", {"x": np.array(case)}
        )
        filesystem.write_text(folder + "/report.txt", "of %s %s" % case)
        outputs.keep_best(
          folder + "/best",
          folder + "/model.ckpt-8",
          {"eval_accuracy": FOUND[case], "loss": 0.0, "global_step": 8},
          ["task.json", "report.txt"],
        )

    sweep.run(
      make_settings(
        **dict(
          dict(
            do_train=True,
            do_eval=True,
            do_predict=True,
            num_train_epochs=2.0,
            output_dir=str(tmp_path),
            learning_rates=["0.1", "0.2"],
            seeds=["7", "3"],
          ),
          **changes,
        )
      ),
      leads,
      "eval_accuracy",
      {"task.json": b"{}"},
      ["report.txt"],
      run_once,
    )
    return calls

  return run


def runs_of(folder):
  """The rows of `runs.tsv`, numbers rounded as in ROWS."""
  return [
    [
      re.sub(r"^\d+\.\d+$", lambda x: "%.4g" % float(x[0]), cell)
      for cell in row
    ]
    for row in table(folder / "runs.tsv")
  ]


def test_every_rate_with_every_seed_though_interrupted(run, tmp_path):
  with pytest.raises(KeyboardInterrupt):
    run(ends_before=(0.2, 7))
  assert runs_of(tmp_path) == ROWS[:5]
  assert not (tmp_path / "best").exists()
  assert run() == [(rate, seed, True, False) for rate, seed in FOUND] + [
    (5e-5, 12345, False, True)
  ]  # predicts with `best`
  assert runs_of(tmp_path) == ROWS
  # The best seed of the best rate, not the best run.
  path = checkpoints.latest_checkpoint(str(tmp_path / "best"))
  assert checkpoints.read_weights(path)["x"].tolist() == [0.2, 7]
  assert results(tmp_path / "best")["eval_accuracy"] == 0.65
  assert (tmp_path / "best" / "report.txt").read_text() == "of 0.2 7"
  assert results(tmp_path / "rate_0.1_seed_3" / "best")["eval_accuracy"] == 0.7


def test_a_rate_without_a_valid_evaluation_is_not_chosen(run, tmp_path):
  run(invalid=[(0.2, 3)])
  assert runs_of(tmp_path)[6:] == [
    ["0.2", "3", "nan", "nan"],
    ["0.2", "mean", "nan", ""],
    ["0.2", "deviation", "nan", ""],
  ]
  assert results(tmp_path / "best")["eval_accuracy"] == 0.7
  (tmp_path / "none").mkdir()
  refused(
    "none of the 4 runs in .*_accuracy: ",
    run,
    invalid=FOUND,
    output_dir=str(tmp_path / "none"),
  )


def test_one_seed_has_no_deviation_and_other_ranks_write_nothing(run, tmp_path):
  assert len(run(leads=False)) == 5
  assert not list(tmp_path.iterdir())
  run(seeds=["7"])
  assert runs_of(tmp_path) == [ROWS[0], ROWS[1], ROWS[5]]


def plan(folder, **given):
  return sweep.plan(
    make_settings(
      **dict(dict(do_train=True, do_eval=True, output_dir=str(folder)), **given)
    )
  )


def test_plan(tmp_path):
  assert plan(tmp_path) == [(5e-5, 12345)]
  assert plan(tmp_path, num_seeds=2, random_seed=3) == [(5e-5, 3), (5e-5, 4)]
  assert plan(
    tmp_path, seeds=["9", "2", "9"], learning_rates=["1e-4", ".5", ".0001"]
  ) == [(1e-4, 9), (1e-4, 2), (0.5, 9), (0.5, 2)]
  # A folder holds either a single run or a sweep.
  checkpoints.write_checkpoint(str(tmp_path), "model.ckpt-1", {"x": np.ones(1)})
  assert plan(tmp_path, learning_rate=0.5) == [(0.5, 12345)]
  refused("a single run: .* --output_dir", plan, tmp_path, num_seeds=1)
  (tmp_path / "several" / "rate_1e-05_seed_1").mkdir(parents=True)
  refused("several has the runs of a sweep", plan, tmp_path / "several")


@pytest.mark.parametrize(
  "given, message",
  [
    (dict(do_eval=False, num_seeds=2), "--do_train and --do_eval"),
    (dict(seeds=["1"], num_seeds=2), "--num_seeds or --seeds"),
    (dict(seeds=["1"], random_seed=2), "--random_seed or --seeds"),
    (
      dict(learning_rate=1.0, learning_rates=["0.5", "1"]),
      "--learning_rate or --learning_rates",
    ),
    (dict(seeds=["1", "x"]), "--seeds: .* 'x'"),
  ],
)
def test_what_cannot_be_planned(given, message):
  refused(message, plan, "out", **given)
