"""The table of several runs, the model card of one."""

import os

import pytest
from given_settings import make_settings
from refusals import refused

from albert import runs
from albert.train import model_card, run_file
from albert.train.settings import Schedule


@pytest.fixture
def folders(tmp_path):
  """Two runs of two and three minutes with different learning rates."""
  data = tmp_path / "train.tsv"
  data.write_text("1\ta\n")
  made = []
  for minutes, rate in ((2, 1e-3), (3, 1e-4)):
    folder = tmp_path / ("run%d" % minutes)
    (folder / "best").mkdir(parents=True)
    run_file.begin(
      make_settings(
        do_train=True,
        output_dir=str(folder),
        learning_rate=rate,
        max_seq_length=64,
      ),
      None,
      {"train": run_file.describe_files([str(data)])},
      Schedule(9, 1),
    )
    (folder / "best" / "eval_results.txt").write_text(
      "eval_accuracy = 0.%d\neval_loss = 1.5\nglobal_step = 3\n" % minutes
    )
    (folder / "checkpoint").write_text("")
    begun = run_file.read(str(folder))["begun"].timestamp()
    os.utime(str(folder / "checkpoint"), (0, begun + 60 * minutes + 5))
    made.append(str(folder))
  return made


def test_a_table_of_runs(folders):
  rows = runs.table(folders, [])
  assert rows == [
    ["run", "--learning_rate", "dev accuracy", "minutes"],
    ["run2", "0.001", "0.2000", "2"],
    ["run3", "0.0001", "0.3000", "3"],
  ]
  assert runs.table(folders, ["loss"])[0][2] == "dev loss"
  assert "<tr><td>run3</td><td>0.0001</td>" in runs.page(rows)
  refused("has no run.flags", runs.table, [os.path.dirname(folders[0])], [])


def test_the_card_of_a_model(folders, tmp_path):
  (tmp_path / "run2" / "data_report.txt").write_text(
    "train: 9 examples of a/b.tsv; labels: x 9\n"
    "train: the first is read as [CLS] secret [SEP]\n"
  )
  model_card.write(folders[0], "lcqmc", None)
  card = (tmp_path / "run2" / "best" / "MODEL_CARD.md").read_text()
  for text in (
    "| task | lcqmc |",
    "| begun with | random weights |",
    "| result on dev | accuracy = 0.2, loss = 1.5 |",
    "\n--learning_rate=0.001\n",
    "## Intended use",
    "\ntrain: 9 examples of a/b.tsv; labels: x 9\n```",
  ):
    assert text in card
  assert "secret" not in card
