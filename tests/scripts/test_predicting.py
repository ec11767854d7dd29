"""--do_predict: labels and padding do not change predictions."""

import json
import shutil

import numpy as np
import pytest
from reading import features
from scripting import results, succeed
from trained_models import KINDS, LIMITS

pytestmark = pytest.mark.slow

LABELS = ("answer", "answers", "is_impossible", "label")


def without_labels(path):
  """Returns a file's text without its last column or the keys LABELS."""
  rows = path.read_text(encoding="utf-8").splitlines()
  if path.suffix == ".tsv":
    return "".join(row.rpartition("\t")[0] + "\n" for row in rows)
  return "".join(
    json.dumps(
      json.loads(
        row,
        object_hook=lambda x: {
          key: value for key, value in x.items() if key not in LABELS
        },
      )
    )
    + "\n"
    for row in rows
  )


def predict(name, model, data, *args):
  files = (
    ["--data_dir=%s" % data]
    if name != "spans"
    else [
      "--test_file=%s" % (data / "test.json"),
      *("--%s=%d" % item for item in LIMITS.items()),
    ]
  )
  succeed(
    KINDS[name].script,
    "--task_name=" + KINDS[name].task,
    *files,
    "--do_predict",
    "--init_checkpoint=%s" % model.best,
    "--output_dir=%s" % (data / "out"),
    *args,
  )
  return data / "out"


@pytest.mark.parametrize(
  "name, labels, predicted",
  [
    ("labels", {"label_ids"}, "test_results.tsv"),
    ("choices", {"label"}, "test_results.tsv"),
    ("spans", {"start", "end"}, "predictions.json"),
    ("entities", {"label_ids", "label_mask"}, "test_entities.jsonl"),
  ],
)
def test_labels_change_nothing(name, labels, predicted, trained, tmp_path):
  model = trained(name)
  assert labels < set(features(model.out / "train.tf_record")[0])
  for path in model.folder.glob("*test.*"):
    (tmp_path / path.name).write_text(without_labels(path), encoding="utf-8")
  out = predict(name, model, tmp_path)
  assert (out / predicted).read_bytes() == (model.out / predicted).read_bytes()
  assert not (out / "test_results.txt").exists()
  assert results(model.out, "test_results.txt")
  assert not labels & set(features(out / "test.tf_record")[0])
  # For entities, the loss of a labelled file is reported too.
  assert labels & set(features(model.out / "test.tf_record")[0]) == (
    labels if name == "entities" else set()
  )


def test_neither_does_padding(trained, tmp_path):
  model = trained("pairs")
  shutil.copy(str(model.folder / "test.tsv"), str(tmp_path))
  out = predict(
    "pairs",
    model,
    tmp_path,
    "--pad_to_max",
    "--predict_batch_size=7",
    "--plain_results",
  )
  np.testing.assert_allclose(
    np.loadtxt(str(out / "test_results.tsv")),
    np.loadtxt(
      str(model.out / "test_results.tsv"),
      skiprows=1,
      usecols=[1, 2],
      encoding="utf-8",
    ),
    atol=1e-5,
  )
  assert results(out, "test_results.txt") == pytest.approx(
    results(model.out, "test_results.txt"), rel=1e-4
  )
