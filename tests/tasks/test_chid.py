"""ChID: files in both formats, features, the assignment, and a whole run."""

import itertools
import json

import numpy as np
import pytest
import scripting
from scripting import ROOT, VOCAB, fail, results, succeed

import tokenization
from albert.errors import InputError
from albert.tasks import chid, race

IDIOMS = ["画蛇添足", "雪中送炭", "喜上眉梢", "草木皆兵"]
ROW = {"groupID": 1, "candidates": IDIOMS,
       "content": ["甲#idiom000001#乙#idiom000002#丙", "丁#idiom000003#"]}
ANSWERS = {"#idiom000001#": 2, "#idiom000002#": 0, "#idiom000003#": 3}
FEW = {"id": 1500, "candidates": IDIOMS, "content": "甲#idiom#乙", "answer": 1}


def write(folder, name, *rows):
  (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def read(folder, split="train"):
  return race.read_examples(
      chid.find_files, chid.read, "file://%s" % folder, split)


def test_the_full_format(tmp_path):
  write(tmp_path, "train.json", ROW, dict(ROW, content=["戊#idiom000004#"]))
  write(tmp_path, "train_answer.json", dict(ANSWERS, **{"#idiom000004#": 2}))
  examples = read(tmp_path)
  assert [(e.id, e.passage, e.answer, e.group) for e in examples] == [
      ("#idiom000001#", ROW["content"][0], 2, 1),
      ("#idiom000002#", ROW["content"][0], 0, 1),
      ("#idiom000003#", ROW["content"][1], 3, 1),
      ("#idiom000004#", "戊#idiom000004#", 2, 2)]
  assert all(e.question == e.id and e.choices == IDIOMS for e in examples)
  write(tmp_path, "test1.1.json", ROW)
  assert [e.answer for e in read(tmp_path, "test")] == [None] * 3
  assert not chid.find_files(str(tmp_path), "test1.0")
  write(tmp_path, "dev.json", ROW)
  with pytest.raises(InputError, match="question #idiom000001# has no answer"):
    read(tmp_path, "dev")


def test_the_format_of_fewclue(tmp_path):
  write(tmp_path, "dev_few_all.json", FEW, dict(FEW, id=7, answer=0))
  assert [e[:6] for e in read(tmp_path, "dev")] == [
      (1500, None, "甲#idiom#乙", "#idiom#", IDIOMS, 1),
      (7, None, "甲#idiom#乙", "#idiom#", IDIOMS, 0)]


def test_real_rows(real_data):
  for split in ("train", "dev"):
    examples = read(real_data / "chid_few", split)
    assert len(examples) == 202
    assert {len(e.choices) for e in examples} == {7}
    assert {e.answer for e in examples} == set(range(7))


@pytest.mark.parametrize("row, message", [
    ("[", ":2: not JSON"),
    ([1], ":2: not a JSON object"),
    ({"candidates": IDIOMS}, ":2: no field 'content', only candidates"),
    (dict(ROW, candidates="画蛇添足"), ":2: candidates is no list of texts"),
    (dict(ROW, content=["甲"]), ":2: no blank, or a tag that occurs twice"),
    (dict(ROW, content=["#idiom000001#", "#idiom000001#"]),
     ":2: no blank, or a tag that occurs twice"),
    (dict(ROW, content=["#idiom%06d#" % i for i in range(5)]),
     ":2: 5 blanks for 4 candidates, each of which is used once"),
    (dict(ROW, candidates=IDIOMS[:3]), ":2: #idiom000003#: the answer 3 is not "
     "0 to 2"),
    (dict(FEW, content="甲"), ":2: expected one #idiom#, found 0"),
    (dict(FEW, answer="1"), ":2: #idiom#: the answer '1' is not 0 to 3"),
    (dict(ROW, content=3), ":2: 'int' object is not iterable"),
])
def test_bad_rows_are_named_by_line(tmp_path, row, message):
  (tmp_path / "train.json").write_text("%s\n%s\n" % (
      json.dumps(FEW), row if isinstance(row, str) else json.dumps(row)))
  write(tmp_path, "train_answer.json", ANSWERS)
  with pytest.raises(InputError, match="train.json" + message):
    read(tmp_path)


def test_features(tmp_path):
  """Candidates stand in the blank, masks in others; both sides are kept."""
  tokenizer = tokenization.create_tokenizer(
      str(ROOT / "albert_config" / "vocab.txt"))
  write(tmp_path, "test.json", {
      "candidates": ["画蛇添足", "雪中"],
      "content": ["子丑寅卯#idiom000001#辰巳#idiom000002#"]})
  first, second = read(tmp_path, "test")

  def rows(example, length, num_choices=2):
    features = race.pack_choices(
        chid.sequence_maker(tokenizer, length, 128)(example), example,
        num_choices)
    assert features["num_choices"] == 2
    tokens = np.array(tokenizer.convert_ids_to_tokens(
        features["input_ids"])).reshape([num_choices, -1])
    mask = np.reshape(features["input_mask"], tokens.shape)
    assert not any(features["segment_ids"])
    return [" ".join(row[:n]).replace("[MASK]", "_")
            for row, n in zip(tokens, mask.sum(1))]

  assert rows(first, 32) == [
      "[CLS] 子 丑 寅 卯 画 蛇 添 足 辰 巳 _ _ _ _ [SEP]",
      "[CLS] 子 丑 寅 卯 雪 中 辰 巳 _ _ _ _ [SEP]"]
  assert rows(second, 32, 3) == [
      "[CLS] 子 丑 寅 卯 _ _ _ _ 辰 巳 画 蛇 添 足 [SEP]",
      "[CLS] 子 丑 寅 卯 _ _ _ _ 辰 巳 雪 中 [SEP]", ""]
  assert rows(first, 11) == ["[CLS] 寅 卯 画 蛇 添 足 辰 巳 _ [SEP]",
                             "[CLS] 寅 卯 雪 中 辰 巳 _ [SEP]"]
  # What one side does not need, the other one gets.
  assert rows(second, 11) == ["[CLS] _ _ _ 辰 巳 画 蛇 添 足 [SEP]",
                              "[CLS] _ _ _ 辰 巳 雪 中 [SEP]"]


def test_the_assignment_is_the_best_of_all():
  rng = np.random.RandomState(0)
  for _ in range(1000):
    columns = rng.randint(1, 7)
    rows = rng.randint(1, columns + 1)
    scores = np.log(rng.dirichlet([0.3] * columns, size=rows) + 1e-9)
    found = race.assign(scores)
    assert len(set(found)) == rows
    assert scores[np.arange(rows), found].sum() == pytest.approx(max(
        scores[np.arange(rows), list(columns)].sum()
        for columns in itertools.permutations(range(columns), rows)))


def test_only_questions_of_a_group_have_different_answers():
  question = race.Example("a", None, "p", "q", ["b", "c"], 0)
  examples = [question, question, question._replace(group=1),
              question._replace(group=1), question._replace(group=2)]
  scores = np.log([[0.9, 0.1, 9], [0.8, 0.2, 9], [0.9, 0.1, 9], [0.6, 0.4, 9],
                   [0.7, 0.3, 9]])
  assert race.choose(examples, scores).tolist() == [0, 0, 0, 1, 0]
  assert race.choose(examples[::-1], scores).tolist() == [0, 1, 0, 0, 0]


@pytest.mark.once
@pytest.mark.slow
@pytest.mark.parametrize("layout", [
    {}, {"num_hidden_groups": 1}], ids=["albert_zh", "google"])
def test_a_small_model_learns_the_idioms(layout, tmp_path):
  """A passage says which idioms it wants, and which of them in which blank."""
  rng = np.random.RandomState(1)
  for split in ("train", "dev", "test", "test1.0"):
    rows, answers = [], {}
    for group in range(40):
      candidates = [IDIOMS[i] for i in rng.permutation(4)]
      content = []
      for k in rng.permutation(4)[:rng.randint(1, 4)]:
        tag = "#idiom%06d#" % len(answers)
        content.append("%s：%s。" % (candidates[k][0], tag))
        answers[tag] = int(k)
      rows.append({"groupID": group, "candidates": candidates,
                   "content": content})
    write(tmp_path, split + ".json", *rows)
    if split != "test1.0":
      write(tmp_path, split + "_answer.json", answers)
  (tmp_path / "small.json").write_text(json.dumps(dict(
      scripting.SIZES, hidden_size=32, intermediate_size=64,
      initializer_range=0.1, **layout)))
  args = ["run_race.py", "--task_name=ChID",
          "--data_dir=file://%s" % tmp_path, VOCAB.replace("=", "=file://"),
          "--bert_config_file=file://%s" % (tmp_path / "small.json"),
          "--output_dir=file://%s" % (tmp_path / "out"), "--max_seq_length=16",
          "--train_batch_size=8", "--learning_rate=0.002"]
  succeed(*args, "--do_train", "--do_eval", "--do_predict",
          "--num_train_epochs=30", "--save_checkpoints_steps=1000")
  out = tmp_path / "out"
  assert results(out)["eval_accuracy"] > 0.9
  answers = json.loads((tmp_path / "test_answer.json").read_text())
  found = json.loads((out / "chid11_predict.json").read_text())
  assert list(found) == list(answers)
  scored = dict(line.split(" = ") for line in (
      out / "test_results.txt").read_text().splitlines())
  assert float(scored["eval_accuracy"]) == pytest.approx(
      np.mean([found[tag] == answers[tag] for tag in answers]))
  older = json.loads((out / "chid10_predict.json").read_text())
  for row in map(json.loads, (tmp_path / "test1.0.json").read_text(
      ).splitlines()):
    tags = chid._BLANK.findall("".join(row["content"]))
    assert len({older[tag] for tag in tags}) == len(tags)
  assert not (out / "test1.0_results.txt").exists()
  (tmp_path / "train.json").write_text("{}\n")
  fail("train.json:1: no field 'content'", *args, "--do_train")
