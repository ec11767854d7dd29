"""Reading comprehension, from files to answers, on a small model."""

import shutil

import pytest
from reading import read_json
from scripting import fail, results, succeed
from small_steps import full
from trained_models import LENGTH, command
from writing import write

pytestmark = pytest.mark.slow

BOTH = pytest.mark.parametrize("head", ["spans", full("beam")])


def check_files(out, content):
  """Asserts that output files agree; dev and test are the same."""
  answers = {
    row["id"]: [x["text"] for x in row["answers"]] or [""]
    for paragraph in content["data"][0]["paragraphs"]
    for row in paragraph["qas"]
  }
  predictions, dev, nbest, odds = [
    read_json(out / name)
    for name in (
      "predictions.json",
      "dev_predictions.json",
      "nbest_predictions.json",
      "null_odds.json",
    )
  ]
  found = results(out / "best")
  assert list(predictions) == list(answers) and dev == predictions
  assert found["eval_exact"] == pytest.approx(
    100
    * sum(predictions[key] in answers[key] for key in answers)
    / len(answers)
  )
  assert found["eval_f1"] >= found["eval_exact"]
  for key, texts in nbest.items():
    assert sum(row["probability"] for row in texts) == pytest.approx(1)
    none = odds[key] > found.get("null_threshold", 1e9)
    assert predictions[key] == ("" if none else texts[0]["text"])
  return found


@BOTH
def test_files_of_answers(head, trained):
  model = trained(head)
  found = check_files(model.out, read_json(model.folder / "test.json"))
  assert results(model.out, "test_results.txt") == pytest.approx(
    {
      key: value
      for key, value in found.items()
      if key in ("eval_exact", "eval_f1", "eval_total") or "Ans_" in key
    }
  )
  assert read_json(model.best / "task.json") == {
    "task_name": "squad2",
    "max_seq_length": LENGTH,
    "do_lower_case": True,
    "head": {"spans": "independent"}.get(head, head),
    "has_unanswerable": True,
    "init_checkpoint": "random weights",
  }


@BOTH
def test_the_threshold_comes_from_the_checkpoint(head, trained, tmp_path):
  """Even with windows of one token or none, and batches of one window."""
  model = trained(head)
  content = read_json(model.folder / "test.json")
  content["data"][0]["paragraphs"] += [
    dict(
      context=text,
      qas=[dict(id="x" + text, question="谁", is_impossible=True, answers=[])],
    )
    for text in ("", "甲")
  ]
  args = command(
    tmp_path,
    head,
    "--do_predict",
    "--eval_batch_size=1",
    "--test_file=" + write(tmp_path, "own.json", content),
    "--init_checkpoint=file://%s/best" % tmp_path,
  )
  shutil.copytree(str(model.best), str(tmp_path / "best"))

  def predict():
    return [
      succeed(*args)[1],
      *(
        read_json(tmp_path / "out" / name)
        for name in ("predictions.json", "null_odds.json")
      ),
    ]

  _, found, odds = predict()
  assert found.pop("x") == "" and found.pop("x甲") in ("甲", "")
  # The threshold is the odds of a question: rounding may flip its answer.
  threshold = results(model.best)["null_threshold"]
  assert {
    key: text
    for key, text in found.items()
    if abs(odds[key] - threshold) > 1e-4
  }.items() <= read_json(model.out / "predictions.json").items()
  (tmp_path / "best" / "eval_results.txt").unlink()
  log, found, odds = predict()
  assert "no null threshold from --do_eval, using 0" in log
  for key, text in found.items():
    assert key == "x" or (text == "") == (odds[key] > 0)


def test_cmrc_and_answers_that_are_not_there(trained, tmp_path, caplog):
  path = write(
    tmp_path,
    "own.json",
    [
      {
        "context_id": text,
        "context_text": text,
        "title": "t",
        "qas": [
          {
            "query_id": text + answer,
            "query_text": "住在哪里？",
            "answers": [answer],
          }
          for answer in answers
        ],
      }
      for text, *answers in (("他在北京。", "北京", "上海"), ("", "北京"))
    ],
  )
  args = command(
    tmp_path,
    "spans",
    "--task_name=CMRC2018",
    "--init_checkpoint=%s" % trained("spans").best,
  )
  fail("1 training examples", *args, "--do_train", "--train_file=" + path)
  assert "skipped 2 question(s) " in caplog.text
  assert "passage: 他在北京。上海, 北京\n" in caplog.text
  succeed(*args, "--do_eval", "--dev_file=" + path)
  assert results(tmp_path / "out")["eval_total"] == 3
  predictions = read_json(tmp_path / "out" / "dev_predictions.json")
  assert list(predictions) == ["他在北京。北京", "他在北京。上海", "北京"]
  assert predictions["北京"] == ""


@pytest.mark.parametrize(
  "answers, args, message",
  [
    ([], ["--doc_stride=0"], "--doc_stride .*1.* 0"),
    (None, [], "bad.json: 1 question.* without .*: a$"),
    ([{"text": "d"}], [], "0 training examples"),
  ],
)
def test_bad_input(answers, args, message, trained, tmp_path):
  qas = [dict(id="a", question="b", answers=answers)]
  fail(
    message,
    *command(
      tmp_path,
      "spans",
      "--do_train",
      "--init_checkpoint=%s" % trained("spans").best,
      "--train_file="
      + write(
        tmp_path,
        "bad.json",
        {"data": [{"paragraphs": [dict(context="c", qas=qas)]}]},
      ),
      *args,
    ),
  )


@pytest.mark.full
@pytest.mark.parametrize("head", ["beam", "spans"])
def test_a_small_model_learns_the_answers(head, tmp_path):
  succeed(
    *command(
      tmp_path,
      head,
      "--do_train",
      "--do_eval",
      "--do_predict",
      "--num_train_epochs=60",
      "--learning_rate=3e-3",
      "--save_checkpoints_steps=1000",
    )
  )
  found = check_files(tmp_path / "out", read_json(tmp_path / "test.json"))
  assert found["eval_exact"] > 95
