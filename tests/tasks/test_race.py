"""Multiple choice, from files to answers, on a small model."""

import json

import numpy as np
import pytest
import scripting
from scripting import VOCAB, results, succeed

from albert.errors import InputError
from albert.tasks import race

pytestmark = [pytest.mark.slow, pytest.mark.once]

THINGS = ["书", "车", "鱼", "米", "花", "酒"]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
  folder = tmp_path_factory.mktemp("race")
  (folder / "small.json").write_text(json.dumps(dict(
      scripting.SIZES, hidden_size=64, intermediate_size=128,
      embedding_size=32, num_attention_heads=4, num_hidden_groups=1,
      initializer_range=0.05)))
  return folder


def choose(work, output_dir, *args):
  """The command; its paths are URLs, as on another file system."""
  return ["run_race.py", "--bert_config_file=file://%s" % (work / "small.json"),
          VOCAB.replace("=", "=file://"),
          "--output_dir=file://%s" % (work / output_dir), "--max_seq_length=24",
          "--max_query_length=12", "--train_batch_size=8",
          "--learning_rate=0.0005", "--save_checkpoints_steps=1000", *args]


def question(i, with_answer=True):
  """What somebody buys; two to four choices."""
  thing = THINGS[i % 6]
  choices = [THINGS[(i + j) % 6] for j in range(2 + i % 3)]
  choices = choices[i % 2:] + choices[:i % 2]
  row = {"question": "买什么？", "choice": choices}
  if with_answer:
    row["answer"] = thing
  return [["甲：我去买%s。" % thing, "乙：好。"], [row], "c-%d" % i]


def test_a_small_model_learns_to_choose(work):
  data = work / "c3"
  data.mkdir()
  for part, numbers in (("d", range(16)), ("m", range(16, 24))):
    for split in ("train", "dev", "test"):
      (data / ("c3-%s-%s.json" % (part, split))).write_text(json.dumps(
          [question(i, split != "test") for i in numbers]))
  succeed(*choose(work, "learnt", "--task_name=C3",
                  "--data_dir=file://%s" % data, "--do_train",
                  "--do_eval", "--do_predict", "--num_train_epochs=200"))
  found = results(work / "learnt")
  assert found["eval_accuracy"] == 1
  assert found["eval_accuracy_d"] == found["eval_accuracy_m"] == 1
  rows = [list(map(float, line.split("\t"))) for line in (
      work / "learnt" / "test_results.tsv").read_text().splitlines()]
  assert [len(row) for row in rows] == [2 + i % 3 for i in range(24)]
  for row in rows:
    assert sum(row) == pytest.approx(1, abs=1e-6)
  predicted = [json.loads(line) for line in (
      work / "learnt" / "c311_predict.json").read_text().splitlines()]
  assert predicted[3]["id"] == "d-c-3-0"
  assert [row["label"] for row in predicted] == [
      int(np.argmax(row)) for row in rows] == [
          question(i)[1][0]["choice"].index(THINGS[i % 6]) for i in range(24)]
  # Padding, and other questions in the batch, change nothing.
  succeed(*choose(work, "learnt", "--task_name=c3",
                  "--data_dir=file://%s" % data, "--do_predict",
                  "--pad_to_max", "--predict_batch_size=5"))
  again = [list(map(float, line.split("\t"))) for line in (
      work / "learnt" / "test_results.tsv").read_text().splitlines()]
  for one, other in zip(rows, again):
    assert one == pytest.approx(other, abs=1e-5)


def test_gaps():
  assert race.fill_in("It is _ .", "a\\1") == "It is  a\\1  ."
  assert race.fill_in("他____了", "走") == "他 走 了"
  assert race.fill_in("What?", "a") == "What? a"


def test_race(work):
  data = work / "race"
  for split in ("train", "dev"):
    for part, count in (("middle", 3), ("high", 5)):
      folder = data / split / part
      folder.mkdir(parents=True)
      for i in range(count):
        (folder / ("%d.txt" % i)).write_text(json.dumps({
            "id": "%s%d.txt" % (part, i), "article": "a b c " * 30,
            "questions": ["What?", "It is _ ."], "answers": ["A", "D"],
            "options": [["a", "b", "c", "d"], ["e", "f", "g", "h"]]}))
  args = ["--task_name=race", "--data_dir=file://%s" % data, "--do_train",
          "--do_eval", "--num_train_epochs=1"]
  _, log = succeed(*choose(work, "race_out", *args))
  assert "train: 16 questions" in log
  found = results(work / "race_out")
  assert found["eval_accuracy"] == pytest.approx(
      (6 * found["eval_accuracy_middle"] + 10 * found["eval_accuracy_high"]) /
      16)
  # With other seeds next to it, the run is the same.
  succeed(*choose(work, "race_runs", *args, "--num_seeds=2"))
  assert results(work / "race_runs" / "rate_0.0005_seed_12345" / "best") == (
      results(work / "race_out" / "best"))
  assert (work / "race_runs" / "runs.tsv").read_text().count("mean") == 1


ROW = {"question": "b", "choice": ["a", "b"], "answer": "a"}


@pytest.mark.parametrize("content, message", [
    (None, "no questions for train there"),
    ("[", "d-train.json: not JSON"),
    (["abc"], "d-train.json: not C3's layout"),
    ([[["a"], [{"question": "b"}], "c"]], "not C3's layout: 'choice'"),
    ([[["a"], [dict(ROW, choice=["a"])], "c"]],
     "question d-c-0 has fewer than 2 choices"),
    ([[["a"], [dict(ROW, answer=None)], "c"]], "question d-c-0 has no answer"),
    ([[["a"], [dict(ROW, question=None)], "c"]],
     "question d-c-0 has a value that is not text"),
    ([[["a"], [ROW], "c"], [["b"], [ROW], "c"]],
     "the id d-c-0 occurs twice"),
])
def test_broken_files_are_named(tmp_path, content, message):
  if content:
    (tmp_path / "d-train.json").write_text(
        content if isinstance(content, str) else json.dumps(content))
  with pytest.raises(InputError, match=message):
    race.read_examples(race.find_c3, race.read_c3, "file://%s" % tmp_path,
                       "train")


ARTICLE = {"article": "a", "questions": ["b", "c"], "answers": ["A", "B"],
           "options": [["d", "e", "f"], ["g", "h"]]}


@pytest.mark.parametrize("content, message", [
    (dict(ARTICLE, answers=["A", "C"]),
     "question high/1.txt-1 has no choice C"),
    (dict(ARTICLE, answers=["A"]),
     "1.txt: not RACE's layout: 2 questions, 2 options, 1 answers"),
    (dict(ARTICLE, answers=["AB", "A"]),
     "1.txt: not RACE's layout: 'AB' is not in list"),
    (dict(ARTICLE, options=["def", ["g", "h"]]),
     "question high/1.txt-0 has a value that is not text"),
    ([ARTICLE], "1.txt: not RACE's layout")])
def test_broken_articles_are_named(tmp_path, content, message):
  folder = tmp_path / "train" / "high"
  folder.mkdir(parents=True)
  (folder / "1.txt").write_text(json.dumps(content))
  with pytest.raises(InputError, match=message):
    race.read_examples(race.find_race, race.read_race, "file://%s" % tmp_path,
                       "train")
