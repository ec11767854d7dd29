"""run_ner.py: output files, reuse of a trained model."""

import pytest
from reading import json_lines, read_json
from scripting import fail, results, succeed
from small_steps import full
from trained_models import LENGTH

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["crf", full("entities")])
def test_files(name, trained):
  model = trained(name)
  found = results(model.best)
  assert set(found) == {
    "loss",
    "global_step",
    *(
      "eval_" + key
      for key in (
        "f1",
        "macro_f1",
        "precision",
        "recall",
        "token_accuracy",
        "loss",
      )
    ),
  }
  assert found.pop("global_step") and found["eval_f1"] > 0.9
  assert results(model.out, "test_results.txt") == found
  report = (model.out / "test_report.txt").read_text()
  assert report == (model.best / "eval_report.txt").read_text()
  assert report.split()[:2] == ["kind", "precision"]
  true, claimed = [
    {
      (number, kind, words, *span)
      for number, row in enumerate(json_lines(path))
      for kind, places in row["label"].items()
      for words, spans in places.items()
      for span in spans
    }
    for path in (model.folder / "test.json", model.out / "file_predict.json")
  ]
  assert 2 * len(true & claimed) / (len(true) + len(claimed)) == (
    pytest.approx(found["eval_f1"])
  )
  assert claimed == {
    (number, x["kind"], text[x["start"] : x["end"]], x["start"], x["end"] - 1)
    for number, (text, row) in enumerate(
      zip(model.inputs, json_lines(model.out / "test_entities.jsonl"))
    )
    for x in row["entities"]
  }
  assert read_json(model.best / "task.json") == dict(
    task_name="file",
    head="token_labels",
    do_lower_case=True,
    labels=["O", "B-city", "I-city"],
    max_seq_length=LENGTH,
    crf=name == "crf",
    by_character=False,
    init_checkpoint="random weights",
  )


def test_a_model_that_goes_on_elsewhere(trained, tmp_path):
  """--do_eval alone takes labels, CRF and characters from the model."""
  model, none = trained("crf"), "--output_dir=%s/none" % tmp_path
  args = [
    "run_ner.py",
    "--task_name=file",
    "--output_dir=%s/out" % tmp_path,
    "--init_checkpoint=%s" % model.best,
  ]
  succeed(*args, "--data_dir=file://%s" % model.folder, "--do_eval")
  assert results(tmp_path / "out")["eval_f1"] == results(model.best)["eval_f1"]
  (tmp_path / "dev.txt").write_text("甲 B-zoo\n", encoding="utf-8")
  args += ["--data_dir=%s" % tmp_path, "--max_seq_length=9", none]
  fail("dev .* zoo: .* O, B-city, I-city", *args, "--do_eval")
  fail("no train file: add .*train.json or .*train.bio", *args, "--do_train")
  fail(
    "--do_train",
    *args,
    "--do_eval",
    "--init_checkpoint=%s" % trained("labels").best,
  )
  assert not (tmp_path / "none").exists()
