"""Files to predict: with labels they are scored, and nothing else changes."""

import json

import pytest
import tensorflow.compat.v1 as tf
from scripting import SIZES, VOCAB, results, succeed

pytestmark = [pytest.mark.slow, pytest.mark.once]

CITIES = ["北京", "上海"]


def tsv(has_labels):
  rows = [("text_a", "label")] + [
      ("%s好" % CITIES[i % 2], str(i % 2)) for i in range(8)]
  return "".join("\t".join(row[:1 + has_labels]) + "\n" for row in rows)


def c3(has_labels):
  def question(i):
    row = {"question": "去哪里？", "choice": CITIES + ["西安"][:i % 3]}
    return dict(row, answer=CITIES[i % 2]) if has_labels else row

  return json.dumps([[["甲：去%s。" % CITIES[i % 2]], [question(i)], str(i)]
                     for i in range(8)])


def squad(has_labels):
  passages = []
  for i in range(8):
    question = {"id": str(i), "question": "住在哪里？"}
    if has_labels:
      question["answers"] = [{"text": CITIES[i % 2], "answer_start": 4}]
    passages.append({"context": "小明住在%s。" % CITIES[i % 2],
                     "qas": [question]})
  return json.dumps({"data": [{"title": "t", "paragraphs": passages}]})


def ner(has_labels):
  return "".join(json.dumps(dict(
      {"id": i, "text": "他在%s" % CITIES[i % 2]}, **(
          {"label": {"city": {CITIES[i % 2]: [[2, 3]]}}} if has_labels else
          {}))) + "\n" for i in range(8))


# Script, task, files to train with and to predict, what makes them, flags,
# features that are labels, file of predictions.
CASES = [
    ("run_classifier.py", "tsv", "train.tsv", "test.tsv", tsv, {"label_ids"},
     "test_results.tsv"),
    ("run_race.py", "c3", "d-train.json", "test.json", c3, {"label"},
     "test_results.tsv"),
    ("run_squad.py", "cmrc2018", "train.json", "test.json", squad,
     {"start", "end"}, "predictions.json"),
    ("run_ner.py", "file", "train.json", "test.json", ner,
     {"label_ids", "label_mask"}, "test_entities.jsonl")]


def features_of(records):
  record = next(tf.python_io.tf_record_iterator(str(records)))
  return set(tf.train.Example.FromString(record).features.feature)


@pytest.mark.parametrize("script, task, train, test, make, labels, predicted",
                         CASES, ids=[case[0] for case in CASES])
def test_labels_change_no_prediction(script, task, train, test, make, labels,
                                     predicted, tmp_path):
  (tmp_path / "small.json").write_text(json.dumps(SIZES))
  for name in ("data", "labelled", "unlabelled"):
    (tmp_path / name).mkdir()
  names = [train, "m-train.json"] if task == "c3" else [train]
  for name in names:
    (tmp_path / "data" / name).write_text(make(True), encoding="utf-8")

  def run(data, out, *args):
    files = ["--data_dir=%s" % (tmp_path / data)] if task != "cmrc2018" else [
        "--train_file=%s" % (tmp_path / data / train),
        "--test_file=%s" % (tmp_path / data / test)]
    return [script, "--task_name=" + task, "--output_dir=%s" % (tmp_path / out),
            *files, *args]

  succeed(*run("data", "model", "--do_train", VOCAB, "--train_batch_size=4",
               "--bert_config_file=%s" % (tmp_path / "small.json"),
               "--num_train_epochs=1", "--max_seq_length=24"))
  assert labels < features_of(tmp_path / "model" / "train.tf_record")
  text = {}
  for name in ("labelled", "unlabelled"):
    (tmp_path / name / test).write_text(make(name == "labelled"),
                                        encoding="utf-8")
    out = tmp_path / ("out_" + name)
    succeed(*run(name, out.name, "--do_predict",
                 "--init_checkpoint=%s" % (tmp_path / "model")))
    text[name] = (out / predicted).read_text(encoding="utf-8")
    assert (out / "test_results.txt").exists() == (name == "labelled")
    # For entities, the loss of a labelled file is reported too.
    assert features_of(out / "test.tf_record") & labels == (
        labels if (script, name) == ("run_ner.py", "labelled") else set())
  assert text["labelled"] == text["unlabelled"]
  found = results(tmp_path / "out_labelled", "test_results.txt")
  assert found and all(value >= 0 for value in found.values())
