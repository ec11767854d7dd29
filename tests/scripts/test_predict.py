"""predict.py and `load`: every task, both engines, all ways in."""

import dataclasses
import json
import re
import subprocess
import sys

import pytest
import scripting
from live_service import live
from scripting import ROOT, VOCAB, call_main, fail, succeed

import export_model
from albert import model_folder
from albert.errors import InputError
from albert.predict import load, results
from albert.predict.predictors import PredictSettings
from albert.serving.service import create_app

pytestmark = [pytest.mark.slow, pytest.mark.once]

NO_TENSORFLOW = """
import json, sys
sys.modules["tensorflow"] = None
from albert.predict import load, predictors, results
folder, inputs, own = sys.argv[1:]
model = load(folder, "onnx", own=predictors.PredictSettings(**json.loads(own)))
print(json.dumps([results.to_json(x) for x in model.predict(
    json.loads(inputs), %d)]))
""" % 99
CITIES = ["北京", "上海", "西安"]
LIMITS = {"max_query_length": 8, "doc_stride": 4}
EVERY = 99  # candidates


def columns(*names):
  """Makes TSV of rows, with a header."""
  return lambda rows: "".join("\t".join(row) + "\n" for row in [names] + rows)


def texts():
  inputs = ["第%d天在%s，很好" % (i, CITIES[i % 3]) for i in range(9)]
  return inputs, columns("text_a", "label")(
      [(text, CITIES[i % 3]) for i, text in enumerate(inputs)])


def pairs():
  inputs = [("他在%s" % CITIES[i % 3], "%s在第%d天" % (CITIES[i % 2], i))
            for i in range(9)]
  return inputs, columns("text_a", "text_b", "label")(
      [pair + (str(i % 2),) for i, pair in enumerate(inputs)])


def numbers():
  inputs, _ = texts()
  return inputs, columns("text_a", "score")(
      [(text, str(i % 3)) for i, text in enumerate(inputs)])


def entities():
  inputs = ["他在%s，她在%s" % (CITIES[i % 3], CITIES[i % 2]) * (1 + i)
            for i in range(9)]  # longer than a window, too
  return inputs, "".join(json.dumps({"text": text, "label": {"city": {
      city: [[x.start(), x.end() - 1] for x in re.finditer(city, text)]
      for city in CITIES if city in text}}}) + "\n" for text in inputs)


def answers():
  inputs = [
      ("谁在第%d天？" % i, "第%d天是%s的%s。" % (i, name, CITIES[i % 3]) * (
          1 + i % 4)) for i, name in enumerate("甲乙丙丁戊己庚辛壬")]
  return inputs, json.dumps({"data": [{"paragraphs": [{
      "context": passage, "qas": [{
          "id": str(i), "question": question, "is_impossible": i % 3 == 0,
          "answers": [] if i % 3 == 0 else [
              {"text": "甲乙丙丁戊己庚辛壬"[i], "answer_start": 4}]}]}
                                      for i, (question, passage) in enumerate(
                                          inputs)]}]})


def choices():
  inputs = [("甲：第%d天去%s。" % (i, CITIES[i % 3]), "去哪里？",
             CITIES[:2 + i % 2]) for i in range(9)]
  return inputs, json.dumps([[[passage], [{
      "question": question, "choice": options, "answer": options[i % 2]}],
                              str(i)] for i, (passage, question, options)
                             in enumerate(inputs)])


def idioms():
  inputs = [("第%d天他#idiom%d1#，她#idiom%d2#。" % (i, i, i),
             ["画蛇添足", "雪中送炭", "一心一意"]) for i in range(9)]
  rows = [{"content": [text], "candidates": options}
          for text, options in inputs]
  return inputs, "".join(json.dumps(row) + "\n" for row in rows)


def lines(folder, name):
  return (folder / name).read_text(encoding="utf-8").splitlines()


def labels_of(folder):
  """What --do_predict wrote: the label and all probabilities of each text."""
  header, *rows = [line.split("\t") for line in lines(
      folder, "test_results.tsv")]
  names = header[1:header.index("text_a")]
  return [(row[0], dict(zip(names, map(float, row[1:])))) for row in rows]


def scores_of(folder):
  return [float(row.split("\t")[0]) for row in lines(
      folder, "test_results.tsv")[1:]]


def entities_of(folder):
  return [[(x["text"], x["start"], x["end"], x["kind"]) for x in json.loads(
      line)["entities"]] for line in lines(folder, "test_entities.jsonl")]


def answers_of(folder):
  best, nbest, odds = [json.loads((folder / name).read_text(
      encoding="utf-8")) for name in (
          "predictions.json", "nbest_predictions.json", "null_odds.json")]
  return [(best[key], {row["text"]: row["probability"] for row in nbest[key]},
           odds[key]) for key in best]


def choices_of(folder):
  return [list(map(float, row.split("\t"))) for row in lines(
      folder, "test_results.tsv")]


def candidates(found):
  return {x.text: x.probability for x in found.candidates}


LONG = ["--num_train_epochs=60"]  # until entities are found
TSV = ("run_classifier.py", "tsv", "{}.tsv")
# Script, task, files, what makes inputs and their file, flags, what
# --do_predict wrote, the same of a result.
CASES = {
    "labels": (*TSV, texts, [], labels_of, lambda x: (x.label, candidates(x))),
    "pairs": (*TSV, pairs, [], labels_of, lambda x: (x.label, candidates(x))),
    "cosines": ("run_sentence_vectors.py", "tsv", "{}.tsv", pairs, [],
                scores_of, lambda x: x.score),
    "numbers": (*TSV, numbers, ["--regression"], scores_of,
                lambda x: x.score),
    "entities": ("run_ner.py", "file", "{}.json", entities, LONG, entities_of,
                 lambda x: list(map(tuple, x.entities))),
    "crf": ("run_ner.py", "file", "{}.json", entities, LONG + ["--crf"],
            entities_of, lambda x: list(map(tuple, x.entities))),
    "spans": ("run_squad.py", "squad2", "{}.json", answers, [], answers_of,
              lambda x: (x.text, candidates(x), x.null_odds)),
    "beam": ("run_squad.py", "squad2", "{}.json", answers, ["--head=beam"],
             answers_of, lambda x: (x.text, candidates(x), x.null_odds)),
    "choices": ("run_race.py", "c3", "d-{}.json", choices, [], choices_of,
                lambda x: [c.probability for c in x.candidates]),
    "idioms": ("run_race.py", "chid", "{}.json", idioms, [], choices_of,
               lambda x: [[c.probability for c in blank.candidates]
                          for blank in x.blanks])}


@pytest.fixture(scope="module", params=sorted(CASES))
def case(request, tmp_path_factory):
  """(name, inputs, folder of the model, what --do_predict says of them)."""
  script, task, files, make, flags, read, _ = CASES[request.param]
  folder = tmp_path_factory.mktemp(request.param)
  (folder / "small.json").write_text(json.dumps(dict(
      scripting.SIZES, max_position_embeddings=32)))
  inputs, content = make()
  names = {split: folder / files.format(split)
           for split in ("train", "dev", "test")}
  for path in names.values():
    path.write_text(content, encoding="utf-8")
  if task == "chid":
    for path in names.values():
      path.with_name(path.stem + "_answer.json").write_text(json.dumps(
          {"#idiom%d%d#" % (i, j): (i + j) % 3
           for i in range(9) for j in (1, 2)}))
  elif task == "c3":
    for path in list(names.values()):
      (folder / path.name.replace("d-", "m-")).write_text(content)
  data = ["--data_dir=%s" % folder] if script != "run_squad.py" else [
      *("--%s_file=%s" % item for item in names.items()),
      *("--%s=%d" % item for item in LIMITS.items())]
  succeed(script, "--task_name=" + task, VOCAB, *data, "--do_train",
          "--do_eval", "--do_predict", "--max_seq_length=24",
          "--bert_config_file=%s" % (folder / "small.json"),
          "--train_batch_size=4", "--num_train_epochs=2",
          "--learning_rate=3e-3", "--save_checkpoints_steps=200", *flags,
          "--output_dir=%s" % (folder / "out"))
  said = read(folder / "out")
  assert script != "run_ner.py" or any(said)
  if task == "c3":  # both parts
    said = said[:len(inputs)]
  if task == "chid":  # two blanks a text
    said = [said[i:i + 2] for i in range(0, len(said), 2)]
  return request.param, inputs, folder / "out" / "best", said


def same(found, wanted):
  """Asserts that two values are the same, floats to 1e-5."""
  if isinstance(wanted, dict):
    assert set(found) == set(wanted)
    found, wanted = [[x[key] for key in sorted(wanted)]
                     for x in (found, wanted)]
  if isinstance(wanted, (list, tuple)):
    assert len(found) == len(wanted)
    for pair in zip(found, wanted):
      same(*pair)
  else:
    assert found == (pytest.approx(wanted, abs=1e-5) if isinstance(
        wanted, float) else wanted)


def test_all_ways_give_what_do_predict_gives(case, tmp_path):
  name, inputs, best, said = case
  own = PredictSettings(batch_size=4, **LIMITS if name in ("spans", "beam")
                        else {})
  as_own = CASES[name][-1]
  found = {"tensorflow": load(str(best), own=own).predict(inputs, EVERY)}
  same([as_own(x) for x in found["tensorflow"]], said)
  folders = {"tensorflow": best}
  try:
    import onnxruntime  # noqa: F401
  except ImportError:
    pass
  else:
    folders["onnx"] = tmp_path / "onnx"
    call_main(export_model, "--onnx", "--init_checkpoint=%s" % best,
              "--output_dir=%s" % folders["onnx"])
    model = load(str(folders["onnx"]), "onnx", own=own)
    found["onnx"] = model.predict(inputs, EVERY)
    assert model.predict([]) == []
    same([as_own(x) for x in found["onnx"]], said)
    first = subprocess.run(
        [sys.executable, "-c", NO_TENSORFLOW, str(folders["onnx"]),
         json.dumps(inputs), json.dumps(dataclasses.asdict(own))],
        cwd=str(ROOT), check=True, stdout=subprocess.PIPE).stdout
    same(json.loads(first), list(map(results.to_json, found["onnx"])))
  fields = load(str(best), own=own).fields
  given = "".join(json.dumps(dict(zip(fields, (
      row,) if isinstance(row, str) else row))) + "\n" for row in inputs)
  (tmp_path / "in.jsonl").write_text(given)
  limits = ["--%s=%d" % item for item in LIMITS.items()] if name in (
      "spans", "beam") else []
  for engine, folder in folders.items():
    args = ["--model_dir=%s" % folder, "--engine=" + engine,
            "--top_k=%d" % EVERY, *limits]
    out, _ = succeed("predict.py", *args, "--format=jsonl",
                     input=given.encode())
    rows = list(map(json.loads, out.splitlines()))
    same([{key: value for key, value in row.items() if key not in fields or
           (key == "text" and name in ("choices",))} for row in rows],
         [results.to_json(x) for x in found[engine]])
    succeed("predict.py", *args, "--input_file=%s" % (tmp_path / "in.jsonl"),
            "--output_file=%s" % (tmp_path / "out.jsonl"))
    same(list(map(json.loads, lines(tmp_path, "out.jsonl"))), rows)
  # Lines for people.
  plain = ["\t".join([row] if isinstance(row, str) else sum(
      ([x] if isinstance(x, str) else list(x) for x in row), []))
           for row in inputs]
  out, _ = succeed("predict.py", "--model_dir=%s" % best, *limits,
                   input=("\n".join(plain) + "\n").encode())
  assert [line.split("\t")[:1] for line in out.splitlines()] == [
      x.cells()[:1] for x in found["tensorflow"]]


def test_the_service_answers_the_same(case):
  _, inputs, best, _ = case
  model = load(str(best))
  found = model.predict(inputs)
  rows = [row if isinstance(row, str) else dict(zip(model.fields, row))
          for row in inputs]
  with live(create_app({"a": model})) as ask:
    assert ask("/v1/models/a").json["fields"] == list(model.fields)
    answer = ask("/v1/models/a:predict", {"instances": rows})
  same([{key: value for key, value in row.items() if key != "truncated"}
        for row in answer.json["predictions"]], list(map(
            results.to_json, found)))
  assert [row["truncated"] for row in answer.json["predictions"]] == list(
      map(model.is_cut, inputs))


def test_what_is_cut(case):
  """What is behind the length of the model has no effect, and it says so."""
  name, inputs, best, _ = case
  model = load(str(best))
  text = "第三天在西安，很好。" * 9
  row = {"pairs": (text, text), "cosines": ("天", text),
         "spans": (text, text), "beam": (text, text),
         "choices": (text, "去哪里？", CITIES),
         "idioms": (text + "#idiom1#" + text, CITIES)}.get(name, text)
  assert model.is_cut(row) == (name not in ("entities", "crf"))
  assert not model.is_cut(inputs[0])
  # To the token: 24 with [CLS] and a [SEP] after each text, or its own [CLS].
  edge = {"labels": lambda n: "天" * (n - 2),
          "numbers": lambda n: "天" * (n - 2),
          "pairs": lambda n: ("天" * 5, "地" * (n - 8)),
          "cosines": lambda n: ("天" * 5, "地" * (n - 2)),
          "choices": lambda n: ("天" * (n - 7), "地" * 2, ["玄", "黄黄"]),
          "idioms": lambda n: ("天" * (n - 6) + "#idiom1#", ["玄", "黄黄黄黄"])}
  if name in edge:
    assert [model.is_cut(edge[name](n)) for n in (23, 24, 25)] == [
        False, False, True]


def test_a_question_about_what_is_given(case, tmp_path):
  name, inputs, best, said = case
  model = "--model_dir=%s" % best
  if name == "spans":
    (tmp_path / "passage.txt").write_text(inputs[1][1], encoding="utf-8")
    limits = ["--%s=%d" % item for item in LIMITS.items()]
    for texts_given in ([inputs[1][1]],
                        ["--input_file=%s" % (tmp_path / "passage.txt")]):
      out, _ = succeed("predict.py", model, "--question=" + inputs[1][0],
                       "--format=jsonl", *limits, *texts_given)
      assert json.loads(out)["text"] == said[1][0]
    fail("the model takes question, passage: give --question, or a file",
         "predict.py", model, "甲")
  elif name == "choices":
    passage, question, options = inputs[0]
    out, _ = succeed("predict.py", model, "--question=" + question,
                     "--choices=" + ",".join(options), passage)
    assert out.split("\t")[0].split(" ")[0] in options
    fail("passage, question, choices: give --choices too", "predict.py", model,
         "--question=" + question, passage)
  elif name == "labels":
    out, _ = succeed("predict.py", model, *inputs[:2])
    assert [line.split(" ")[0] for line in out.splitlines()] == [
        label for label, _ in said[:2]]
    fail("the model takes text, and no --question", "predict.py", model,
         "--question=a", "b")
    with pytest.raises(InputError, match="input 2: expected text"):
      load(str(best)).predict(["a", ("b", "c")])
  elif name == "pairs":
    fail("takes text_a, text_b: give one of each, or a file", "predict.py",
         model, "甲")
    (tmp_path / "in.tsv").write_text("a\ttext_a\tb\n")
    fail("in.tsv:1: the header has no field text_b, only a, text_a, b",
         "predict.py", model, "--input_file=%s" % (tmp_path / "in.tsv"))
    (tmp_path / "in.tsv").write_text("text_b\ttext_a\n甲\t乙\n甲\n")
    fail("in.tsv:3: expected 2 columns, found 1", "predict.py", model,
         "--input_file=%s" % (tmp_path / "in.tsv"))
    (tmp_path / "in.txt").write_text("甲\t乙\n\n甲\n")
    fail("in.txt:3: expected text_a, text_b separated by tabs, found 1",
         "predict.py", model, "--input_file=%s" % (tmp_path / "in.txt"))
    (tmp_path / "in.jsonl").write_text('{"text_a": "a", "text_b": "b"}\n[]\n')
    fail("in.jsonl:2: not a JSON object", "predict.py", model,
         "--input_file=%s" % (tmp_path / "in.jsonl"))
    fail("not both", "predict.py", model, "a", "b", "--input_file=x")
  elif name == "idioms":
    with pytest.raises(InputError, match="input 1: no blank"):
      load(str(best)).predict([("甲", ["a", "b"])])


def test_a_pretrained_model_fills_masks():
  out, _ = succeed("predict.py", "--model_dir=%s" % (
      ROOT / "albert_tiny_starter"), "我[MASK]知道他在哪里。", "--top_k=2")
  wanted, _ = succeed("predict_masked.py", "--top_k=2", "--model_dir=%s" % (
      ROOT / "albert_tiny_starter"), "我[MASK]知道他在哪里。")
  text, _, *tokens = wanted.rstrip("\n").split("\t")
  assert out == " ".join(tokens) + "\t" + text + "\n"
  fail("has no texts", "predict.py", "--model_dir=%s" % (
      ROOT / "albert_tiny_starter"), input=b"")


def test_the_threshold_of_no_answer_is_next_to_the_checkpoint(tmp_path):
  (tmp_path / "config.json").write_text(json.dumps(scripting.SIZES))
  load_folder = lambda: model_folder.load(  # noqa: E731
      model_folder.FolderSettings(), str(tmp_path))
  assert load_folder().more == {}
  (tmp_path / "eval_results.txt").write_text(
      "eval_f1 = 70.5\nnull_threshold = -1.25\n")
  assert load_folder().more == {"null_threshold": -1.25}
