"""The paper's ablations: what rows change, and how they are ranked."""

import os
import pathlib

import numpy as np
import pytest
from reading import table
from scripting import fail, succeed
from writing import write

from albert.files import records
from albert.model.config import AlbertConfig
from benchmarks import run_ablations, unigram_entropy


@pytest.mark.parametrize("name", sorted(run_ablations.TABLES))
def test_rows_share_all_but_one_thing(name):
  args, rows = run_ablations.AblationSettings(), run_ablations.TABLES[name]
  configs = [
    AlbertConfig.from_dict(run_ablations.config_of(args, name, row))
    for row in rows.values()
  ]
  differ = {
    key
    for config in configs
    for key, value in config.to_dict().items()
    if value != configs[0].to_dict().get(key)
  }
  assert len(differ) == (name in ("embedding", "sharing", "depth"))
  assert len(
    {
      (
        config.num_hidden_groups is None,
        tuple(map(tuple, row[1:3])),
        row.shards,
        *[config.to_dict()[key] for key in differ],
      )
      for config, row in zip(configs, rows.values())
    }
  ) == len(rows)


def test_the_loss_of_token_frequencies(tmp_path):
  specs = records.pretraining_specs(8, 4)
  for name, ids in (("a", [5, 5, 5, 6]), ("b", [5, 6, 6, 0])):
    path = tmp_path / (name + ".tfrecord")
    row = {spec.name: np.zeros(spec.length or 1, int) for spec in specs}
    records.write_records(
      str(path),
      [
        records.serialize(
          dict(row, masked_lm_ids=ids, masked_lm_weights=np.sign(ids)), specs
        )
      ],
    )
    write(tmp_path, name + ".tfrecord.json", {"vocab_size": 10})
  loss, accuracy, count = unigram_entropy.frequency_loss(
    [str(tmp_path / "a.tfrecord")], [str(tmp_path / "b.tfrecord")]
  )
  # Three 5 and one 6 of four labels, and 0.1 for each of ten.
  assert (loss, accuracy, count) == (
    pytest.approx(-(np.log(3.1 / 5) + 2 * np.log(1.1 / 5)) / 3),
    1 / 3,
    3,
  )


def test_the_table(tmp_path, monkeypatch):
  """A row that is not clearly below token frequencies has no rank."""
  losses = {"a_quarter": [5.9, 6.1], "half": [4.0, 5.0], "all": [3.0, 3.0]}

  def figures(folder, has_sentence_task):
    *_, row, seed = folder.split("/")
    return {
      "parameters": 7,
      "masked-LM loss": losses[row][int(seed)],
      "masked-LM accuracy": 0.5,
      "sentence accuracy": 0.25,
      "task accuracy": 0.75,
      "minutes": 1.0,
    }

  ran = []
  monkeypatch.setattr(run_ablations, "run", lambda *args: ran.append(args))
  monkeypatch.setattr(run_ablations, "make_records", lambda args, row: "made")
  monkeypatch.setattr(run_ablations, "figures_of", figures)
  monkeypatch.setattr(
    unigram_entropy, "frequency_loss", lambda train, heldout: (6.1, 0.1, 9)
  )
  monkeypatch.setattr(records, "expand_patterns", lambda patterns, flag: [])
  out, _ = succeed(
    "benchmarks/run_ablations.py",
    "data",
    "--seeds=0,1",
    "--output_dir=%s" % tmp_path,
    "--num_train_steps=30",
  )
  rows = table(tmp_path / "data.tsv")
  assert out == (tmp_path / "data.tsv").read_text(encoding="utf-8")
  assert [row[:5] for row in rows[1:]] == [
    ["1", "all", "7", "3.000±0.000", "0.500±0.000"],
    ["2", "half", "7", "4.500±0.500", "0.500±0.000"],
    ["not learnt", "a quarter", "7", "6.000±0.100", "0.500±0.000"],
  ]
  scripts = [args[0] for args in ran]
  assert scripts[:2] == ["run_pretraining.py", "run_classifier.py"]
  assert len(scripts) == 13 and scripts[-1] == "benchmarks/plot_curves.py"
  assert "--input_file=made/train/0.tfrecord,made/train/1.tfrecord" in ran[4]
  fail(
    "one table: embedding, sharing",
    "benchmarks/run_ablations.py",
    "none",
    "--output_dir=%s" % tmp_path,
  )


def test_records_are_those_of_the_text(tmp_path, monkeypatch):
  """Records of another text, or a copy that was interrupted, are not used."""
  made = []

  def run(script, *flags):
    (paths,) = [flag[14:] for flag in flags if flag.startswith("--output_file")]
    made.append(paths)
    for path in paths.split(","):
      write(pathlib.Path(path).parent, path.split("/")[-1], str(len(made)))

  monkeypatch.setattr(run_ablations, "run", run)
  args = run_ablations.AblationSettings(
    output_dir=str(tmp_path), input_file=write(tmp_path, "a.txt", "one")
  )
  row = run_ablations.Row()
  with monkeypatch.context() as patch:
    patch.setattr(os, "rename", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
      run_ablations.make_records(args, row)
  folder = pathlib.Path(run_ablations.make_records(args, row))
  assert len(made) == 2 and (folder / "eval" / "3.tfrecord").exists()
  assert run_ablations.make_records(args, row) == str(folder)
  write(tmp_path, "a.txt", "another")
  for other in (row, run_ablations.Row(making=["--sentence_pair=nsp"])):
    assert run_ablations.make_records(args, other) != str(folder)
  assert len(made) == 4
