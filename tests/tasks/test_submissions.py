"""What is sent to boards; how labelled files are scored; nothing is trained."""

import json

import pytest
from reading import json_lines, read_json
from scripting import results, succeed
from writing import write

pytestmark = pytest.mark.slow

PAIR = {"sentence1": "甲", "sentence2": "乙"}


def one_hot(size, *hot):
  """Rows of logits, greatest where a label's number says."""
  return [{"logits": [float(i == k) for i in range(size)]} for k in hot]


def predict(folder, script, *cases):
  """Predicts cases: (task, {file in folder/N/set: rows}, {split: predictions}).

  Returns:
    (list of the folders that are written, log).
  """
  commands = []
  for number, (task, files, predictions) in enumerate(cases):
    url = "file://%s/" % (folder / str(number))
    (folder / str(number) / "out").mkdir(parents=True)
    for name, rows in files.items():
      write(folder / str(number) / "set", name, *rows)
    given = {"test_file": url + "set/test.json"} if script == "run_squad" else {
        "data_dir": url + "set"}
    commands.append({"predictions": predictions, "flags": dict(
        given, task_name=task, output_dir=url + "out")})
  write(folder, "cases.json", commands)
  _, log = succeed("tests/given_predictions.py", script, folder / "cases.json")
  return [folder / str(number) / "out" for number in range(len(cases))], log


def clue(*answers):
  return "".join('{"id": %d, "label": %s}\n' % (name, json.dumps(label))
                 for name, label in answers)


def glue(*answers):
  return "index\tprediction\n" + "".join("%d\t%s\n" % x for x in answers)


def test_classification(tmp_path):
  """All files of a task; those one folder up, as GLUE and CLUE unpack them."""
  mnli = ["index\tsentence1\tsentence2", "0\ta\tb", "1\ta \"b\tc"]
  cases = [
      ("ocnli", {"test.json": [dict(PAIR, id=i, label="-") for i in range(3)],
                 "../diagnostics/test.json": [
                     {"index": 7, "premise": "甲", "hypothesis": "乙"}]},
       {"test": one_hot(3, 2, 1, 0), "diagnostics": one_hot(3, 1)},
       {"ocnli_50k_predict.json": clue(
           (0, "neutral"), (1, "entailment"), (2, "contradiction")),
        "diagnostics_predict.json": clue((7, "entailment"))}),
      ("mnli", {"test_matched.tsv": mnli, "test_mismatched.tsv": mnli,
                "../diagnostic/diagnostic.tsv": mnli},
       {"test": one_hot(3, 2, 0), "test_mismatched": one_hot(3, 1, 2),
        "diagnostic": one_hot(3, 0, 1)},
       {"MNLI-m.tsv": glue((0, "neutral"), (1, "contradiction")),
        "MNLI-mm.tsv": glue((0, "entailment"), (1, "neutral")),
        "AX.tsv": glue((0, "contradiction"), (1, "entailment"))}),
      ("sts-b", {"test.tsv": mnli},
       {"test": [{"logits": [4.0626]}, {"logits": [0.5]}]},
       {"STS-B.tsv": glue((0, "4.063"), (1, "0.500"))})]
  folders, _ = predict(tmp_path, "run_classifier", *[x[:3] for x in cases])
  for folder, (_, _, predictions, submissions) in zip(folders, cases):
    found = {path.name: path.read_text() for path in folder.iterdir()}
    for split, rows in predictions.items():
      table = found.pop(split + "_results.tsv")
      assert len(table.splitlines()) == 1 + len(rows)
    assert found == submissions  # no scores without labels


def chosen(*rows):
  """Predictions of multiple choice."""
  return [{"log_probabilities": list(row)} for row in rows]


def test_multiple_choice(tmp_path):
  c3 = [[[["甲"], [{"question": "乙", "choice": list(choices), "id": name}
                   for name, choices in rows], "x"]
         for rows in ([(4, "一二"), (3, "一二三")], [(9, "一二")])]]
  of_c3 = chosen([-2, -1, -1e9], [-3, -2, -1], [-1, -2, -1e9])
  chid = [{"groupID": 3, "candidates": ["一二", "三四", "五六"], "content": [
      "甲#idiom000007#乙", "丙#idiom000002#丁#idiom000003#"]}]
  # On their own the first and the second blank would both get 1.
  of_chid = chosen([-3, -1, -9], [-3.5, -1, -9], [-1, -2, -3])
  few = [{"id": name, "candidates": ["一", "二"], "content": "甲#idiom#"}
         for name in (8, 2)]
  (c3_out, chid_out, few_out), _ = predict(tmp_path, "run_race", *(
      (task, {"test1.1.json": rows, "test1.0.json": rows},
       {"test": said, "test1.0": said[::-1]})
      for task, rows, said in (("c3", c3, of_c3), ("chid", chid, of_chid))), (
          "chid", {"test.json": few}, {"test": chosen(*[[-1, -2]] * 2)}))
  assert (c3_out / "c311_predict.json").read_text() == clue(
      (4, 1), (3, 2), (9, 0))
  assert (c3_out / "c310_predict.json").read_text() == clue(
      (4, 0), (3, 2), (9, 1))
  assert (chid_out / "chid11_predict.json").read_text() == (
      '{\n "#idiom000007#": 0,\n "#idiom000002#": 1,\n "#idiom000003#": 2\n}\n')
  assert read_json(chid_out / "chid10_predict.json") == {
      "#idiom000007#": 2, "#idiom000002#": 1, "#idiom000003#": 0}
  assert read_json(few_out / "chid11_predict.json") == {"8": 0, "2": 0}


def squad(*answers):
  """A file with a question for each list of answers, or None."""
  return [{"data": [{"paragraphs": [{"context": "甲乙丙丁", "qas": [
      {"id": "TEST_%d_QUERY_0" % i, "question": "子", "answers": texts and [
          {"text": text, "answer_start": -1} for text in texts]}
      for i, texts in enumerate(answers)]}]}]}]


def spans(*places):
  """Logits of [CLS] 子 [SEP] 甲 乙 丙 丁 [SEP], greatest at (start, end)."""
  return [{name: [float(i == place + 3) for i in range(8)]
           for name, place in zip(("start", "end"), pair)} for pair in places]


def test_reading_comprehension(tmp_path):
  """A question without answers is not scored, and neither are placeholders."""
  fake = ["FAKE_ANSWER_1", "FAKE_ANSWER_2"]
  given = {"test.json": squad(["甲乙"], ["丙丁", "丙"], ["乙"], None)}, {
      "test": spans((0, 1), (3, 3), (1, 2), (0, 3))}
  (out, *folders), log = predict(
      tmp_path, "run_squad", ("cmrc2018", {"test.json": squad(fake, fake)},
                              {"test": spans((0, 1), (3, 3))}),
      ("drcd", *given), ("cmrc2018", *given))
  assert (out / "cmrc2018_predict.json").read_text(encoding="utf-8") == (
      '{\n "TEST_0_QUERY_0": "甲乙",\n "TEST_1_QUERY_0": "丁"\n}\n')
  assert "placeholder: not scored" in log
  assert not (out / "test_results.txt").exists()
  for folder in folders:
    assert list(read_json(folder / "predictions.json").values()) == [
        "甲乙", "丁", "乙丙", "甲乙丙丁"]
    assert results(folder, "test_results.txt") == pytest.approx({
        "eval_exact": 100 / 3, "eval_f1": 100 * (1 + 2 / 3 + 2 / 3) / 3,
        "eval_total": 3})


def test_scores_of_labelled_files_for_classification(tmp_path):
  pair = json.dumps(PAIR)[:-1] + ', "label": "%s"}'
  folders, log = predict(
      tmp_path, "run_classifier",
      ("xnli", {"test.tsv": ["premise\thypo\tlabel"] + [
          "甲\t乙\t" + label
          for label in ("contradictory", "neutral", "neutral")]},
       {"test": one_hot(3, 0, 2, 1)}),
      ("ocnli", {"test.json": [pair % label for label in (
          "-", "neutral", "entailment")]},  # not scored without agreement
       {"test": one_hot(3, 0, 2, 0)}),
      ("afqmc", {"test.json": [pair % 0] * 2}, {"test": one_hot(2, 0, 1)}))
  for folder, name, accuracy in zip(folders, ("xnli", "ocnli_50k"), (
      2 / 3, 1 / 2)):
    assert results(folder, "test_results.txt")["eval_accuracy"] == (
        pytest.approx(accuracy))
    assert (folder / (name + "_predict.json")).exists()
  assert "test.json: '0' in all rows" in log
  assert not (folders[2] / "test_results.txt").exists()


def test_scores_of_labelled_files_for_multiple_choice(tmp_path):
  choices = ["一", "二", "三"]
  articles = {"test/%s/1.txt" % part: [{
      "article": "a", "questions": ["b"] * len(answers), "answers": answers,
      "options": [choices] * len(answers)}] for part, answers in (
          ("middle", ["A", "B"]), ("high", ["A", "B", "C"]))}
  rows = chosen([-1, -2, -3], [-3, -2, -1], [-1, -2, -3], [-1, -2, -3],
                [-3, -2, -1])
  chid = [{"candidates": choices, "content": content}
          for content in (["#idiom1##idiom2#"], ["#idiom3#"])]
  (race, chid), _ = predict(
      tmp_path, "run_race", ("race", articles, {"test": rows}),
      ("chid", {"test.json": chid, "test_answer.json": [
          {"#idiom1#": 0, "#idiom2#": 1, "#idiom3#": 1}]}, {"test": rows[:3]}))
  found = results(race, "test_results.txt")
  assert [found["eval_accuracy" + part] for part in (
      "", "_middle", "_high")] == pytest.approx([3 / 5, 1 / 2, 2 / 3])
  assert [row["label"] for row in json_lines(race / "race_predict.json")] == [
      0, 2, 0, 0, 2]
  assert results(chid, "test_results.txt")["eval_accuracy"] == (
      pytest.approx(1 / 3))
