"""Reading comprehension, from files to answers, on a small model."""

import json

import pytest
import scripting
from scripting import VOCAB, fail, results, succeed

pytestmark = [pytest.mark.slow, pytest.mark.once]

CITIES = ["北京", "上海", "广州", "成都", "武汉", "西安"]
NAMES = ["小明", "小红", "老王", "阿强", "小李", "阿芳"]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
  folder = tmp_path_factory.mktemp("squad")
  (folder / "small.json").write_text(json.dumps(dict(
      scripting.SIZES, hidden_size=32, intermediate_size=64,
      initializer_range=0.1)))
  return folder


def dataset(impossible=False):
  """Who lives where; in half of the passages, perhaps, nobody asks for one."""
  paragraphs = []
  for i in range(24):
    name, city = NAMES[i % 6], CITIES[i // 4]
    context = "%s住在%s，%s住在%s。" % (
        name, city, NAMES[(i + 1) % 6], CITIES[(i // 4 + 1) % 6])
    asked = NAMES[(i + 2) % 6] if impossible and i % 2 else name
    paragraphs.append({"context": context, "qas": [{
        "id": "q%d" % i, "question": "%s住在哪里？" % asked,
        "is_impossible": asked != name,
        "answers": [] if asked != name else [
            {"text": city, "answer_start": context.index(city)}]}]})
  return {"version": "x", "data": [{"title": "t", "paragraphs": paragraphs}]}


def squad(work, output_dir, *args):
  """The command; its paths are URLs, as on another file system."""
  return ["run_squad.py",
          "--bert_config_file=file://%s" % (work / "small.json"),
          VOCAB.replace("=", "=file://"),
          "--output_dir=file://%s" % (work / output_dir), "--max_seq_length=24",
          "--doc_stride=4", "--max_query_length=8", "--train_batch_size=16",
          "--learning_rate=0.002", "--save_checkpoints_steps=1000", *args]


@pytest.mark.parametrize("task, head", [
    ("cmrc2018", "independent"), ("squad", "beam"), ("squad2", "independent"),
    ("squad2", "beam")])
def test_a_small_model_learns_the_answers(work, task, head):
  content = dataset(task == "squad2")
  path = work / (task + ".json")
  path.write_text(json.dumps(content))
  name = task + head
  file = "=%s" % path
  succeed(*squad(
      work, name, "--task_name=" + task, "--head=" + head, "--do_train",
      "--do_eval", "--do_predict", "--train_file" + file, "--dev_file" + file,
      "--predict_file" + file, "--num_train_epochs=160"))
  found = results(work / name)
  assert found["eval_exact"] > 95
  assert found["eval_f1"] >= found["eval_exact"]
  answers = {row["id"]: row["answers"][0]["text"] if row["answers"] else ""
             for paragraph in content["data"][0]["paragraphs"]
             for row in paragraph["qas"]}
  predictions = json.loads((work / name / "predictions.json").read_text())
  assert set(predictions) == set(answers)
  right = sum(predictions[key] == answers[key] for key in answers)
  assert 100 * right / 24 == pytest.approx(found["eval_exact"])
  nbest = json.loads((work / name / "nbest_predictions.json").read_text())
  for texts in nbest.values():
    assert sum(row["probability"] for row in texts) == pytest.approx(1)
  odds = json.loads((work / name / "null_odds.json").read_text())
  if task == "squad2":
    threshold = found["null_threshold"]
    assert {key for key in odds if odds[key] > threshold} == {
        key for key in predictions if not predictions[key]}


@pytest.mark.parametrize("head", ["independent", "beam"])
def test_the_threshold_comes_from_the_checkpoint_that_predicts(work, head):
  content = dataset(impossible=True)
  # With windows of one token, or of none, too.
  content["data"][0]["paragraphs"] += [
      {"context": text, "qas": [{"id": "x" + text, "question": "谁",
                                 "is_impossible": True, "answers": []}]}
      for text in ("", "甲")]
  path = work / "threshold.json"
  path.write_text(json.dumps(content))
  name, file = "threshold" + head, "=file://%s" % path
  args = ["--task_name=squad2", "--head=" + head, "--eval_batch_size=1"]
  succeed(*squad(work, name, *args, "--do_train", "--train_file" + file,
                 "--num_train_epochs=10"))
  _, log = succeed(*squad(work, name, *args, "--do_predict",
                          "--test_file" + file))
  assert "no null threshold from --do_eval: taking 0" in log
  succeed(*squad(work, name, *args, "--do_eval", "--dev_file" + file))
  assert results(work / name)["null_threshold"] != 0
  succeed(*squad(work, name, *args, "--do_predict", "--test_file" + file))
  folder = work / name
  assert json.loads((folder / "predictions.json").read_text()) == json.loads(
      (folder / "dev_predictions.json").read_text())
  # The model taken from there into another folder.
  succeed(*squad(work, name + "-other", *args, "--do_predict", "--test_file" +
                 file, "--init_checkpoint=file://%s" % folder))
  assert (work / (name + "-other") / "predictions.json").read_text() == (
      folder / "predictions.json").read_text()


def test_cmrc_own_layout_and_answers_that_are_not_there(work):
  content = [{"context_id": "c", "context_text": "小明住在北京。", "title": "t",
              "qas": [{"query_id": "a", "query_text": "住在哪里？",
                       "answers": ["北京"]},
                      {"query_id": "b", "query_text": "住在哪里？",
                       "answers": ["上海"]}]},
             {"context_id": "d", "context_text": "", "title": "t",
              "qas": [{"query_id": "e", "query_text": "住在哪里？",
                       "answers": ["北京"]}]}]
  path = work / "own.json"
  path.write_text(json.dumps(content))
  args = ["--task_name=CMRC2018", "--do_train", "--do_eval",
          "--train_file=%s" % path, "--dev_file=%s" % path,
          "--train_batch_size=1", "--num_train_epochs=2"]
  _, log = succeed(*squad(work, "own", *args))
  assert ("left out 2 question(s) whose answer is not in the passage: "
          "b, e") in log
  assert results(work / "own")["eval_total"] == 3
  predictions = json.loads((work / "own/dev_predictions.json").read_text())
  assert list(predictions) == ["a", "b", "e"]
  assert predictions["e"] == ""
  # With other seeds next to it, the run is the same.
  succeed(*squad(work, "runs", *args, "--num_seeds=2"))
  assert results(work / "runs" / "rate_0.002_seed_12345" / "best") == (
      results(work / "own" / "best"))
  assert (work / "runs" / "runs.tsv").read_text().count("mean") == 1


def test_bad_input(work):
  def expect(message, content, *args):
    (work / "bad.json").write_text(content)
    fail(message, *squad(work, "bad", "--task_name=squad", "--do_train",
                         "--train_file=%s" % (work / "bad.json"), *args))

  question = {"id": "a", "question": "b", "answers": []}
  paragraph = {"context": "c", "qas": [question]}
  content = {"data": [{"paragraphs": [paragraph]}]}
  expect("--doc_stride must be at least 1, not 0", json.dumps(content),
         "--doc_stride=0")
  del question["answers"]
  expect("1 question.* without \"answers\", the first: a",
         json.dumps(content))
  question["answers"] = [{"text": "d"}]
  expect("0 training examples are less than one batch", json.dumps(content))
