"""predict.py and `load`: every kind of model, both engines, all inputs."""

import csv
import json

import pytest
import tensorflow.compat.v1 as tf
from reading import json_lines, read_json, table
from refusals import refused
from scripting import export, fail, succeed
from trained_models import KINDS, LIMITS
from writing import write

from albert.predict import command, load, results
from albert.predict.inputs import Item
from albert.predict.predictors import PredictSettings


def labels_of(folder):
  """(label, {label: probability}) of each text, as --do_predict wrote them."""
  header, *rows = table(folder / "test_results.tsv")
  names = header[1 : header.index("text_a")]
  return [(row[0], dict(zip(names, map(float, row[1:])))) for row in rows]


def answers_of(folder):
  best, nbest, odds = [
    read_json(folder / (name + ".json"))
    for name in ("predictions", "nbest_predictions", "null_odds")
  ]
  return [
    (
      best[key],
      {row["text"]: row["probability"] for row in nbest[key]},
      odds[key],
    )
    for key in best
  ]


def choices_of(folder):
  return [list(map(float, row)) for row in table(folder / "test_results.tsv")]


def candidates(found):
  return {x.text: x.probability for x in found.candidates}


LABEL = labels_of, lambda x: (x.label, candidates(x))
SCORE = (
  lambda folder: [
    float(row[0]) for row in table(folder / "test_results.tsv")[1:]
  ],
  lambda x: x.score,
)
ENTITIES = (
  lambda folder: [
    row["entities"] for row in json_lines(folder / "test_entities.jsonl")
  ],
  lambda x: results.to_json(x.entities),
)
ANSWER = answers_of, lambda x: (x.text, candidates(x), x.null_odds)
# Kind -> (reader of --do_predict's files, function of a result).
SAID = {
  "labels": LABEL,
  "pairs": LABEL,
  "windows": LABEL,
  "several": (labels_of, lambda x: ("|".join(x.labels), candidates(x))),
  "cosines": SCORE,
  "numbers": SCORE,
  "entities": ENTITIES,
  "crf": ENTITIES,
  "spans": ANSWER,
  "beam": ANSWER,
  "choices": (choices_of, lambda x: [c.probability for c in x.candidates]),
  # Two rows per text.
  "idioms": (
    lambda folder: list(zip(*[iter(choices_of(folder))] * 2)),
    lambda x: [[c.probability for c in blank.candidates] for blank in x.blanks],
  ),
}


def same(found, wanted):
  """Asserts equality, of floats to 1e-5."""
  tf.nest.assert_same_structure(found, wanted, check_types=False)
  for one, other in zip(*map(tf.nest.flatten, (found, wanted))):
    assert one == (
      pytest.approx(other, 1e-6, 1e-5) if isinstance(other, float) else other
    )


@pytest.mark.parametrize(
  "name, engine",
  [
    pytest.param(
      name,
      engine,
      marks=pytest.mark.slow
      if name == "pairs"
      or (engine == "auto" and name not in ("windows", "idioms"))
      else pytest.mark.full,
    )
    for name in KINDS
    for engine in ("auto", "onnx")
  ],
)
def test_load_gives_what_do_predict_gives(name, engine, trained, tmp_path):
  said, (read, of_result) = trained(name), SAID[name]
  folder = said.best
  if engine == "onnx":
    pytest.importorskip("onnxruntime")
    folder = tmp_path / "onnx"
    export(said.best, folder, "--onnx")
  model = load(
    str(folder), engine, settings=PredictSettings(batch_size=4, **LIMITS)
  )
  found = list(map(of_result, model.predict(said.inputs, top_k=99)))
  # A split of C3 has two files, here with the same content.
  assert len(found) == len(said.inputs)
  same(found, read(said.out)[: len(found)])


@pytest.mark.parametrize(
  "name",
  [
    pytest.param("pairs", marks=pytest.mark.slow),
    *(
      pytest.param(name, marks=pytest.mark.full)
      for name in ("several", "crf", "beam", "idioms")
    ),
  ],
)
def test_script(name, trained, tmp_path):
  said = trained(name)
  model = load(str(said.best), settings=PredictSettings(**LIMITS))
  rows = [
    dict(zip(model.fields, (row,) if isinstance(row, str) else row))
    for row in said.inputs
  ]
  found = model.predict(said.inputs, 2)
  args = [
    "predict.py",
    "--model_dir=file://%s" % said.best,
    "--top_k=2",
    *("--%s=%d" % item for item in LIMITS.items()),
  ]
  path = write(tmp_path, "in.jsonl", *rows)
  succeed(
    *args, "--input_file=" + path, "--output_file=%s" % (tmp_path / "out.jsonl")
  )
  same(
    json_lines(tmp_path / "out.jsonl"),
    [dict(row, **results.to_json(x)) for row, x in zip(rows, found)],
  )
  out, _ = succeed(*args, input=(tmp_path / "in.jsonl").read_bytes())
  assert [line.split("\t") for line in out.splitlines()] == [
    x.cells()
    + [
      " | ".join(cell) if isinstance(cell, list) else cell
      for cell in row.values()
    ]
    for row, x in zip(rows, found)
  ]


@pytest.mark.slow
def test_tables_come_back(trained, tmp_path):  # including blank rows
  best, text = str(trained("labels").best), trained("labels").inputs[0]
  label = load(best).predict([text])[0]
  wanted = [["7", text, "1", label.label], [], ["8", text, "2", label.label]]
  for name, content in (
    ("in.csv", "id,review,x\n7,%s,1\n\n8,%s,2\n"),
    (
      "in.jsonl",
      '{"id": 7, "review": "%s", "x": 1}\n\n'
      '{"id": 8, "review": "%s", "x": 2}\n',
    ),
  ):
    path = write(tmp_path, name, content % (text, text))
    for out in ("out.csv", "out.jsonl", "out.txt"):
      succeed(
        "predict.py",
        "--model_dir=" + best,
        "--input_file=" + path,
        "--output_file=%s" % (tmp_path / out),
      )
    rows = json_lines(tmp_path / "out.jsonl")
    assert [list(map(str, row.values()))[:4] for row in rows] == wanted
    with open(str(tmp_path / "out.csv"), encoding="utf-8") as reader:
      header, *cells = csv.reader(reader)
    assert header == ["id", "review", "x", "label", "probability"]
    assert list(rows[0])[:4] == header[:4]
    assert [row[:4] for row in cells] == [row or [""] * 4 for row in wanted]
    assert float(cells[0][4]) == pytest.approx(label.probability, rel=1e-5)
    lines = (tmp_path / "out.txt").read_text(encoding="utf-8").split("\n")
    assert [line.split("\t")[-3:] for line in lines] == [
      *(row[:3] or [""] for row in wanted),
      [""],
    ]


@pytest.mark.slow
def test_bad_rows_have_their_place(trained, tmp_path):
  for content, message in (
    ('{"text": "好"}\n' * 1500 + '{"text": 1}\n', "in.jsonl:1501: expected"),
    ("\n", "in.jsonl: has no texts"),
  ):
    fail(
      message,
      "predict.py",
      "--model_dir=%s" % trained("labels").best,
      "--output_file=%s/out.txt" % tmp_path,
      "--input_file=" + write(tmp_path, "in.jsonl", content),
    )
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_csv_begins_with_its_header():
  """Even if blank rows come first; columns are never dropped."""
  to_line, found = command._CsvLines(), results.ScoreResult(0.5)
  blank, row = Item(None, {"id": 1}, "a:1"), Item("x", {"id": 2, "b": 3}, "a:2")
  assert to_line(blank, None) == ""
  assert to_line(row, found) == "id,b,score\n1,,\n2,3,0.5\n"
  assert to_line(blank, None) == "1,,\n"
  refused("a:3: .*no c: .*jsonl", to_line, Item("x", {"c": 1}, "a:3"), found)


def test_a_label_that_is_not_sure_is_an_empty_cell():
  unsure = results.LabelResult(None, 0.5, [results.Candidate("x", 0.5)])
  item = Item("甲", {"id": None}, "a:1")
  assert command._CsvLines()(item, unsure) == "id,label,probability\n,,0.5\n"
  assert json.loads(command.json_line(item, unsure))["label"] is None
  assert command.table_line(item, unsure).startswith("not sure\tx 0.5000\t")
