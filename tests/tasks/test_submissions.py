"""What is sent to the boards, and how files with labels are scored.

Predictions are given, so that no model is trained.
"""

import json

import numpy as np
import pytest
from scripting import succeed

from albert.errors import InputError
from albert.tasks import classification

pytestmark = pytest.mark.slow

PAIR = {"sentence1": "甲", "sentence2": "乙"}
SPAN = {"text": "甲他", "target": {"span1_index": 0, "span1_text": "甲",
                                 "span2_index": 1, "span2_text": "他"}}
GLUE_PAIR = "index\tsentence1\tsentence2\n%s\ta\tb\n%s\tc\td\n"


def one_hot(size, *hot):
  """Rows of logits, greatest where a label's number says."""
  return [{"logits": [float(i == k) for i in range(size)]} for k in hot]


def json_lines(*rows):
  return "".join(json.dumps(row) + "\n" for row in rows)


def predict(folder, script, cases):
  """Predicts cases: (flags, {file in folder/N: text}, {split: predictions}).

  Paths in the flags are relative to folder/N; what is written is in the folders
  that are returned.
  """
  commands = []
  for number, (flags, files, predictions) in enumerate(cases):
    data = folder / str(number)
    for name in ["set/x", "out/x"] + list(files):
      (data / name).parent.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
      (data / name).write_text(text, encoding="utf-8")
    commands.append({"flags": {
        key: value if key == "task_name" else "file://%s" % (data / value)
        for key, value in dict(flags, output_dir="out").items()},
                     "predictions": predictions})
  (folder / "cases.json").write_text(json.dumps(commands))
  _, log = succeed("tests/given_predictions.py", script, folder / "cases.json")
  return [folder / str(number) / "out" for number in range(len(cases))], log


def contents(folder):
  return {path.name: path.read_text(encoding="utf-8")
          for path in folder.iterdir()}


# Task, file to predict, its rows, size and numbers of the labels, submission.
CLUE = [
    ("afqmc", "test.json", [dict(PAIR, id=0), dict(PAIR, id=1)], 2, [1, 0],
     "afqmc_predict.json",
     '{"id": 0, "label": "1"}\n{"id": 1, "label": "0"}\n'),
    ("tnews", "test.json", [{"id": 5, "sentence": "甲"},
                            {"id": 3, "sentence": "乙"}], 15, [14, 5],
     "tnews11_predict.json",
     '{"id": 5, "label": "116"}\n{"id": 3, "label": "106"}\n'),
    ("tnews", "test1.1.json", [{"id": 0, "sentence": "甲"}], 15, [0],
     "tnews11_predict.json", '{"id": 0, "label": "100"}\n'),
    ("tnews", "test1.0.json", [{"id": 0, "sentence": "甲"}], 15, [6],
     "tnews10_predict.json", '{"id": 0, "label": "107"}\n'),
    ("iflytek", "test.json", [{"id": 0, "sentence": "甲"},
                              {"id": 1, "sentence": "甲"}], 119, [118, 0],
     "iflytek_predict.json",
     '{"id": 0, "label": "118"}\n{"id": 1, "label": "0"}\n'),
    ("ocnli", "test.json", [dict(PAIR, id=0), dict(PAIR, id=1, label="-"),
                            dict(PAIR, id=2)], 3, [2, 1, 0],
     "ocnli_50k_predict.json",
     '{"id": 0, "label": "neutral"}\n{"id": 1, "label": "entailment"}\n'
     '{"id": 2, "label": "contradiction"}\n'),
    ("ocnli", "diagnostics.json", [
        {"index": 7, "premise": "甲", "hypothesis": "乙"}], 3, [1],
     "diagnostics_predict.json", '{"id": 7, "label": "entailment"}\n'),
    ("cmnli", "test.json", [dict(PAIR, id=0)], 3, [0], "cmnli_predict.json",
     '{"id": 0, "label": "contradiction"}\n'),
    ("cmnli", "diagnostics.json", [dict(PAIR, id=1)], 3, [2],
     "diagnostics_predict.json", '{"id": 1, "label": "neutral"}\n'),
    ("wsc", "test.json", [dict(SPAN, id=2), dict(SPAN, id=1)], 2, [1, 0],
     "cluewsc11_predict.json",
     '{"id": 2, "label": "true"}\n{"id": 1, "label": "false"}\n'),
    ("cluewsc2020", "test1.0.json", [dict(SPAN, id=0)], 2, [0],
     "cluewsc10_predict.json", '{"id": 0, "label": "false"}\n'),
    ("csl", "test.json", [{"id": 2415, "abst": "甲", "keyword": ["乙"]}], 2,
     [1], "csl_predict.json", '{"id": 2415, "label": "1"}\n'),
]

# Task, file to predict, its text, predictions, submission.
GLUE = [
    ("cola", "test.tsv", "index\tsentence\n0\tA b.\n1\tC d.\n",
     one_hot(2, 1, 0), "CoLA.tsv", "0\t1\n1\t0\n"),
    ("sst-2", "test.tsv", "index\tsentence\n0\ta\n1\tb\n", one_hot(2, 0, 1),
     "SST-2.tsv", "0\t0\n1\t1\n"),
    ("mrpc", "test.tsv", "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
     "0\t7\t8\ta\tb\n1\t7\t8\ta \"b\tc\n", one_hot(2, 1, 1), "MRPC.tsv",
     "0\t1\n1\t1\n"),
    ("qqp", "test.tsv", "id\tquestion1\tquestion2\n0\ta\tb\n1\tc\td\n",
     one_hot(2, 0, 1), "QQP.tsv", "0\t0\n1\t1\n"),
    ("sts-b", "test.tsv", "index\tgenre\tsentence1\tsentence2\n0\tx\ta\tb\n"
     "1\tx\ta\tb\n", [{"logits": [4.0626]}, {"logits": [0.5]}], "STS-B.tsv",
     "0\t4.063\n1\t0.500\n"),
    ("mnli", "test_matched.tsv", GLUE_PAIR % (0, 1), one_hot(3, 2, 0),
     "MNLI-m.tsv", "0\tneutral\n1\tcontradiction\n"),
    ("mnli", "test_mismatched.tsv", GLUE_PAIR % (0, 1), one_hot(3, 1, 2),
     "MNLI-mm.tsv", "0\tentailment\n1\tneutral\n"),
    ("mnli", "diagnostic.tsv", GLUE_PAIR % (0, 1),
     one_hot(3, 0, 1), "AX.tsv", "0\tcontradiction\n1\tentailment\n"),
    ("qnli", "test.tsv", "index\tquestion\tsentence\n0\ta\tb\n1\tc\td\n",
     one_hot(2, 0, 1), "QNLI.tsv", "0\tentailment\n1\tnot_entailment\n"),
    ("rte", "test.tsv", GLUE_PAIR % (0, 1), one_hot(2, 1, 0), "RTE.tsv",
     "0\tnot_entailment\n1\tentailment\n"),
    ("wnli", "test.tsv", GLUE_PAIR % (0, 1), one_hot(2, 1, 0), "WNLI.tsv",
     "0\t1\n1\t0\n"),
]


def split_of(task, file):
  split, = [split for split, names in classification.TASKS[task].files.items()
            if file in names]
  return split


def test_classification(tmp_path):
  cases = [(task, file, json_lines(*rows), one_hot(size, *hot), name, text)
           for task, file, rows, size, hot, name, text in CLUE]
  cases += [(task, file, text, logits, name, "index\tprediction\n" + expected)
            for task, file, text, logits, name, expected in GLUE]
  folders, _ = predict(tmp_path, "run_classifier", [
      ({"task_name": task, "data_dir": "set"}, {"set/" + file: text},
       {split_of(task, file): logits})
      for task, file, text, logits, _, _ in cases])
  for folder, (task, file, _, logits, name, text) in zip(folders, cases):
    found = contents(folder)
    assert found.pop(name) == text
    probabilities = found.pop(split_of(task, file) + "_results.tsv")
    assert len(probabilities.splitlines()) == 1 + len(logits)
    assert not found  # no scores without labels


def test_all_files_of_a_task(tmp_path):
  """All that there are; those one folder up, as GLUE and CLUE unpack them."""
  ids = {"tnews": [{"id": 1, "sentence": "甲"}], "ocnli": [dict(PAIR, id=0)]}
  tnews, ocnli = (json_lines(*rows) for rows in ids.values())
  folders, _ = predict(tmp_path, "run_classifier", [
      ({"task_name": "tnews", "data_dir": "set"},
       {"set/test.json": tnews, "set/test1.0.json": tnews * 2},
       {"test": one_hot(15, 0), "test1.0": one_hot(15, 1, 2)}),
      ({"task_name": "ocnli", "data_dir": "set"},
       {"set/test.json": ocnli, "diagnostics/test.json": ocnli},
       {"test": one_hot(3, 1), "diagnostics": one_hot(3, 2)}),
      ({"task_name": "mnli", "data_dir": "set"},
       {"set/test_matched.tsv": GLUE_PAIR % (0, 1),
        "set/test_mismatched.tsv": GLUE_PAIR % (0, 1),
        "diagnostic/diagnostic.tsv": GLUE_PAIR % (0, 1)},
       {"test": one_hot(3, 0, 0), "test_mismatched": one_hot(3, 1, 1),
        "diagnostic": one_hot(3, 2, 2)})])
  for folder, expected in zip(folders, (
      {"tnews11_predict.json": "100", "tnews10_predict.json": "102"},
      {"ocnli_50k_predict.json": "entailment",
       "diagnostics_predict.json": "neutral"},
      {"MNLI-m.tsv": "contradiction", "MNLI-mm.tsv": "entailment",
       "AX.tsv": "neutral"})):
    for name, last in expected.items():
      assert (folder / name).read_text().rstrip('"}\n').endswith(last)


def test_multiple_choice(tmp_path):
  c3 = json.dumps([
      [["甲"], [{"question": "乙", "choice": ["一", "二"], "id": 4},
               {"question": "乙", "choice": ["一", "二", "三"], "id": 3}], "x"],
      [["甲"], [{"question": "乙", "choice": ["一", "二"], "id": 9}], "y"]])
  c3_predictions = [{"log_probabilities": row} for row in (
      [-2, -1, -1e9], [-3, -2, -1], [-1, -2, -1e9])]
  chid = json_lines({
      "groupID": 3, "candidates": ["一二", "三四", "五六"],
      "content": ["甲#idiom000007#乙", "丙#idiom000002#丁#idiom000003#"]})
  # On their own the first and the second blank would both get 1.
  chid_predictions = [{"log_probabilities": row} for row in (
      [-3, -1, -9], [-3.5, -1, -9], [-1, -2, -3])]
  few = json_lines(*[
      {"id": name, "candidates": ["一", "二"], "content": "甲#idiom#"}
      for name in (8, 2)])
  flags = {"data_dir": "set"}
  (c3_out, chid_out, few_out), _ = predict(tmp_path, "run_race", [
      (dict(flags, task_name="c3"),
       {"set/test1.1.json": c3, "set/test1.0.json": c3},
       {"test": c3_predictions, "test1.0": c3_predictions[::-1]}),
      (dict(flags, task_name="chid"),
       {"set/test1.1.json": chid, "set/test1.0.json": chid},
       {"test": chid_predictions, "test1.0": chid_predictions[::-1]}),
      (dict(flags, task_name="chid"), {"set/test.json": few},
       {"test": [{"log_probabilities": [-1, -2]}] * 2})])
  assert (c3_out / "c311_predict.json").read_text() == (
      '{"id": 4, "label": 1}\n{"id": 3, "label": 2}\n{"id": 9, "label": 0}\n')
  assert (c3_out / "c310_predict.json").read_text() == (
      '{"id": 4, "label": 0}\n{"id": 3, "label": 2}\n{"id": 9, "label": 1}\n')
  assert (chid_out / "chid11_predict.json").read_text() == (
      '{\n "#idiom000007#": 0,\n "#idiom000002#": 1,\n "#idiom000003#": 2\n}\n')
  assert json.loads((chid_out / "chid10_predict.json").read_text()) == {
      "#idiom000007#": 2, "#idiom000002#": 1, "#idiom000003#": 0}
  assert json.loads((few_out / "chid11_predict.json").read_text()) == {
      "8": 0, "2": 0}


def squad(*answers):
  """A file with a question for each list of answers, or None."""
  return json.dumps({"data": [{"paragraphs": [{"context": "甲乙丙丁", "qas": [
      {"id": "TEST_%d_QUERY_0" % i, "question": "子", "answers": texts and [
          {"text": text, "answer_start": -1} for text in texts]}
      for i, texts in enumerate(answers)]}]}]})


def spans(*places):
  """Logits of [CLS] 子 [SEP] 甲 乙 丙 丁 [SEP], greatest at (start, end)."""
  return [{"start": [float(i == start + 3) for i in range(8)],
           "end": [float(i == end + 3) for i in range(8)]}
          for start, end in places]


def test_reading_comprehension(tmp_path):
  fake = ["FAKE_ANSWER_1", "FAKE_ANSWER_2"]
  (out,), log = predict(tmp_path, "run_squad", [
      ({"task_name": "cmrc2018", "test_file": "set/test.json"},
       {"set/test.json": squad(fake, fake)},
       {"test": spans((0, 1), (3, 3))})])
  assert (out / "cmrc2018_predict.json").read_text(encoding="utf-8") == (
      '{\n "TEST_0_QUERY_0": "甲乙",\n "TEST_1_QUERY_0": "丁"\n}\n')
  assert "in all rows is taken for a placeholder: not scored" in log
  assert not (out / "test_results.txt").exists()


@pytest.mark.parametrize("task, row", [
    (task, rows[0]) for task, _, rows, *_ in CLUE])
def test_no_row_is_left_out(tmp_path, task, row):
  path = tmp_path / "test.json"
  row, task = json.dumps(row) + "\n", classification.get_task(task)
  for text, message in ((row + row[:9], ":2: not JSON"),
                        (row + "{}\n" + row, ":2: no field"),
                        (row + "\n" + row, ":3: there is a blank line")):
    path.write_text(text)
    with pytest.raises(InputError, match="test.json" + message):
      classification.read_examples(task, "file://%s" % path, is_test=True,
                                   skip_bad_rows=True)
  path.write_text(row + "\n")  # at the end it shifts nothing
  assert len(classification.read_examples(task, str(path), is_test=True)) == 1


def results(folder, name="test_results.txt"):
  return {key: float(value) for key, value in (
      line.split(" = ") for line in (folder / name).read_text().splitlines())}


def test_scores_of_labelled_files_for_classification(tmp_path):
  rng = np.random.RandomState(0)
  labels = rng.randint(2, size=50)
  nli = rng.choice(classification.TASKS["xnli"].labels, size=50).tolist()
  numbers = rng.rand(50) * 5

  def logits(size):
    return {"test": [{"logits": row} for row in rng.randn(50, size).tolist()]}

  flags = {"data_dir": "set"}
  folders, log = predict(tmp_path, "run_classifier", [
      (dict(flags, task_name="lcqmc"), {"set/test.txt": "".join(
          "甲\t乙\t%d\n" % label for label in labels)}, logits(2)),
      (dict(flags, task_name="chnsenticorp"),
       {"set/test.tsv": "label\ttext_a\n" + "".join(
           "%d\t甲\n" % label for label in labels)}, logits(2)),
      (dict(flags, task_name="xnli"),
       {"set/test.tsv": "premise\thypo\tlabel\n" + "".join(
           "甲\t乙\t%s\n" % label.replace("contradiction", "contradictory")
           for label in nli)}, logits(3)),
      (dict(flags, task_name="ocnli"),  # two without agreement, not scored
       {"set/test.json": json_lines(*[dict(PAIR, id=i, label=label)
                                      for i, label in enumerate(
                                          ["-", "-"] + nli[2:])])}, logits(3)),
      (dict(flags, task_name="sts-b"),
       {"set/test.tsv": "index\tsentence1\tsentence2\tscore\n" + "".join(
           "%d\ta\tb\t%s\n" % item for item in enumerate(numbers))}, logits(1)),
      (dict(flags, task_name="afqmc"), {"set/test.json": json_lines(*[dict(
          PAIR, id=i, label="0") for i in range(50)])}, logits(2))])
  truths = [list(map(str, labels)), list(map(str, labels)), nli,
            ["-", "-"] + nli[2:]]
  for folder, truth, name in zip(folders, truths, (
      "lcqmc_predict.json", "chnsenticorp_predict.json", "xnli_predict.json",
      "ocnli_50k_predict.json")):
    pairs = [(json.loads(line)["label"], label) for line, label in zip(
        (folder / name).read_text().splitlines(), truth) if label != "-"]
    found = results(folder)
    assert found["eval_accuracy"] == pytest.approx(
        np.mean([predicted == label for predicted, label in pairs]))
    f1 = [2 * pairs.count((x, x)) / sum(pair.count(x) for pair in pairs)
          for x in sorted(set(truth) - {"-"})]
    assert found["eval_macro_f1"] == pytest.approx(np.mean(f1))
    assert found.get("eval_f1", f1[1]) == pytest.approx(f1[1])
    report = (folder / "test_report.txt").read_text().splitlines()
    for line, x in zip(report[1:], sorted(set(truth) - {"-"})):
      assert line.split()[0] == x
      assert int(line.split()[-1]) == truth.count(x)
  predicted = [float(line.split("\t")[1]) for line in (
      folders[4] / "STS-B.tsv").read_text().splitlines()[1:]]
  assert results(folders[4])["eval_pearson"] == pytest.approx(
      np.corrcoef(predicted, numbers)[0, 1], abs=1e-3)
  assert not (folders[4] / "test_report.txt").exists()
  assert "test.json: '0' in all rows is taken for a placeholder" in log
  assert not (folders[5] / "test_results.txt").exists()


def test_scores_of_labelled_files_for_multiple_choice(tmp_path):
  rng = np.random.RandomState(1)
  answers = rng.randint(4, size=30)
  choices = ["一", "二", "三", "四"]

  def c3(numbers):
    return json.dumps([[["甲"], [{"question": "乙", "choice": choices,
                                 "answer": choices[answers[i]]}], str(i)]
                       for i in numbers])

  predictions = {"test": [{"log_probabilities": row} for row in np.log(
      rng.dirichlet([1] * 4, size=30)).tolist()]}
  articles = {"set/test/%s/%d.txt" % (part, i): json.dumps({
      "id": "%s%d" % (part, i), "article": "a", "questions": ["b", "c"],
      "options": [choices] * 2, "answers": ["ABCD"[k] for k in answers[
          start + 2 * i:start + 2 * i + 2]]})
              for part, start, count in (("middle", 0, 5), ("high", 10, 10))
              for i in range(count)}
  tags = ["#idiom%d#" % i for i in range(30)]
  flags = {"data_dir": "set"}
  folders, _ = predict(tmp_path, "run_race", [
      (dict(flags, task_name="c3"), {
          "set/c3-d-test.json": c3(range(12)),
          "set/c3-m-test.json": c3(range(12, 30))}, predictions),
      (dict(flags, task_name="race"), articles, predictions),
      (dict(flags, task_name="chid"), {
          "set/test.json": json_lines(*[
              {"candidates": choices, "content": tags[i:i + 2]}
              for i in range(0, 30, 2)]),
          "set/test_answer.json": json.dumps(dict(zip(
              tags, answers.tolist())))}, predictions)])
  for folder, name, parts in zip(folders, (
      "c311_predict.json", "race_predict.json", "chid11_predict.json"), (
          {"d": range(12), "m": range(12, 30)},
          {"middle": range(10), "high": range(10, 30)}, {})):
    text = (folder / name).read_text()
    labels = list(json.loads(text).values()) if name.startswith("chid") else [
        json.loads(line)["label"] for line in text.splitlines()]
    found, hits = results(folder), np.array(labels) == answers
    assert found["eval_accuracy"] == pytest.approx(hits.mean())
    for part, numbers in parts.items():
      assert found["eval_accuracy_" + part] == pytest.approx(
          hits[list(numbers)].mean())


def test_scores_of_labelled_files_for_reading_comprehension(tmp_path):
  places = [(0, 1), (3, 3), (1, 2), (0, 3)]
  answers = [["甲乙"], ["丙丁", "丙"], ["乙"], None]  # the last is not scored
  folders, _ = predict(tmp_path, "run_squad", [
      ({"task_name": task, "test_file": "set/dev.json"},
       {"set/dev.json": squad(*answers)}, {"test": spans(*places)})
      for task in ("drcd", "cmrc2018")])
  for folder in folders:
    predicted = json.loads((folder / "predictions.json").read_text())
    assert list(predicted.values()) == ["甲乙", "丁", "乙丙", "甲乙丙丁"]
    assert results(folder) == pytest.approx({
        "eval_exact": 100 / 3, "eval_f1": 100 * (1 + 2 / 3 + 2 / 3) / 3,
        "eval_total": 3})
