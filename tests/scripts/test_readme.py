"""The commands and programs of the READMEs and of docs/ run as printed.

They run in order, in a copy of the tree, where models and data are small: the
configurations in albert_config/ are shrunk, a released model's folder has
random weights, data sets have a few rows, and training takes a few steps. A
comment before a block says why it cannot run, or what it needs.
"""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import time

import fork_server
import pytest
import tensorflow.compat.v1 as tf
from scripting import ROOT

from albert import download
from albert.model.config import AlbertConfig
from albert.model.layouts import create_model

pytestmark = pytest.mark.slow

# Appended to what is printed; the later one of two equal flags counts.
FINE_TUNING = ["--num_train_epochs=1", "--save_checkpoints_steps=1000",
               "--max_train_examples=96"]
SMALL = {
    "run_classifier.py": FINE_TUNING,
    "run_squad.py": FINE_TUNING + ["--max_seq_length=64"],
    "run_race.py": FINE_TUNING + ["--max_seq_length=64"],
    "run_ner.py": FINE_TUNING,
    "run_sentence_vectors.py": FINE_TUNING + ["--layer=-1"],
    "run_pretraining.py": [
        "--num_train_steps=2", "--num_warmup_steps=1", "--train_batch_size=32",
        "--gradient_accumulation_steps=1", "--eval_batch_size=32",
        "--max_eval_steps=1"],
    "bench_pretrain.py": [
        "--allocators=own", "--steps=1", "--batch_size=2",
        "--max_seq_length=32", "--max_predictions_per_seq=4"],
    "bench_inference.py": [
        "--ways=session", "--lengths=32", "--batches=1", "--seconds=0.1"],
}

# In the output of similarity.py and in results.
SCORE = r"\d+\.\d+(\tsame|\tdifferent)?"
NEEDS = {"TensorFlow 2": not tf.__version__.startswith("1.")}


def blocks(path):
  """Returns what a file has between ``` lines: [(comment, language, text)]."""
  return re.findall(r"^(?:<!-- ([^\n]*) -->\n)?```(\w*)\n(.*?)^```$",
                    (ROOT / path).read_text(encoding="utf-8"), re.M | re.S)


def can_run(comment):
  if comment.startswith("not run: "):
    return False
  assert not comment or comment.startswith("needs "), comment
  return all(NEEDS.get(name) or importlib.util.find_spec(name.split()[0])
             for name in comment[len("needs "):].split(", ") if name)


def write_models(tree):
  """Shrinks the configurations and writes each released model's folder."""
  for path in (tree / "albert_config").glob("*.json"):
    config = json.loads(path.read_text())
    config.update(hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                  intermediate_size=32, initializer_range=0.3)
    if "embedding_size" in config:
      config["embedding_size"] = 8
    path.write_text(json.dumps(config))
  for layout in ("", "_google"):
    config = tree / "albert_config" / ("albert_config_tiny%s.json" % layout)
    folder = tree / ("model" + layout)
    folder.mkdir()
    for path in (config, tree / "albert_config" / "vocab.txt"):
      shutil.copy(str(path), str(folder))
    with tf.Graph().as_default(), tf.Session() as session:
      ids = tf.ones([1, 8], tf.int32)
      model = create_model(AlbertConfig.from_json_file(str(config)), False,
                           ids, ids, ids)
      model.masked_lm_logits(ids)
      model.sentence_order_logits()
      session.run(tf.global_variables_initializer())
      tf.train.Saver().save(session, str(folder / "albert_model.ckpt"))
  for name in download.ITEMS:
    if name.startswith("albert_"):
      (tree / name).symlink_to(
          "model_google" if name.endswith("_google") else "model")
  (tree / "albert_tiny_starter").symlink_to("model_google")


def write_data(tree):
  """Writes what the commands read: texts, pairs and a few rows of each task."""
  (tree / "more_text").mkdir()
  subprocess.run("gzip -c data/text_heldout.txt >more_text/a.gz", shell=True,
                 check=True, cwd=str(tree))
  shutil.copytree(str(tree / "data" / "pairs"), str(tree / "data" / "lcqmc"))
  (tree / "my_scores").mkdir()
  (tree / "my_reviews").mkdir()
  (tree / "my_tags").mkdir()
  for split in ("train", "dev", "test"):
    rows = (tree / "data" / "pairs" / (split + ".txt")).read_text(
        encoding="utf-8").splitlines()
    (tree / "my_scores" / (split + ".tsv")).write_text("\n".join(
        ["text_a\ttext_b\tscore"] + rows), encoding="utf-8")
    (tree / "my_tags" / (split + ".tsv")).write_text("\n".join(
        ["text_a\tlabel"] + ["%s\t%s" % (row.split("\t")[0], tags) for
                             row, tags in zip(rows, ["a|b", "b", ""] * 99)]),
                                                   encoding="utf-8")
    (tree / "my_reviews" / (split + ".jsonl")).write_text("".join(
        json.dumps(dict(zip(("title", "body", "stars"), row.split("\t")))) +
        "\n" for row in rows))

  wsc = {"span1_index": 0, "span1_text": "甲", "span2_index": 1,
         "span2_text": "他"}
  question = {"question": "去哪里？", "choice": ["北京", "上海"],
              "answer": "北京"}
  passage = {"context": "小明住在北京，小红住在上海。", "qas": [{
      "id": "1", "question": "小明住在哪里？",
      "answers": [{"text": "北京", "answer_start": 4}]}]}
  squad = {"data": [{"title": "t", "paragraphs": [dict(passage, qas=[
      dict(passage["qas"][0], id=str(i))]) for i in range(40)]}]}
  clue = {
      "afqmc": {"sentence1": "甲", "sentence2": "乙", "label": "0"},
      "cluener": {"text": "甲在乙", "label": {"name": {"甲": [[0, 0]]}}},
      "cmnli": {"sentence1": "甲", "sentence2": "乙", "label": "neutral"},
      "ocnli": {"sentence1": "甲", "sentence2": "乙", "label": "neutral"},
      "csl": {"keyword": ["甲"], "abst": "乙", "label": "1"},
      "iflytek": {"sentence": "甲", "label": "7"},
      "tnews": {"sentence": "甲", "label": "100"},
      "wsc": {"text": "甲他", "label": "true", "target": wsc}}
  for task, row in clue.items():
    for split in ("train", "dev", "test"):
      write_json(tree / "data" / "clue" / task / (split + ".json"), *[row] * 70)
  for split in ("train", "dev", "test"):
    tags = ["#idiom%d#" % i for i in range(40)]
    write_json(tree / "data" / "clue" / "chid" / (split + ".json"), *[
        {"candidates": ["北京", "上海"], "content": [tag]} for tag in tags])
    write_json(tree / "data" / "clue" / "chid" / (split + "_answer.json"),
               dict.fromkeys(tags, 1))
  for split in ("train", "dev"):
    write_json(tree / "data" / "clue" / "cmrc2018" / (split + ".json"), squad)
    for part in ("d", "m"):
      write_json(tree / "data" / "clue" / "c3" / (
          "c3-%s-%s.json" % (part, split)), [
              [["甲：去北京。"], [question], str(i)] for i in range(20)])
  for name in ("DRCD_dev.json", "cmrc2018_trial.json"):
    write_json(tree / name, squad)


def write_json(path, *values):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text("".join(json.dumps(value) + "\n" for value in values))


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
  """A copy of the tree with small models and data, and a quick `python`."""
  tree = tmp_path_factory.mktemp("readme") / "tree"
  shutil.copytree(str(ROOT), str(tree), ignore=shutil.ignore_patterns(
      ".*", "__pycache__", "output", "albert_[!c]*", "lcqmc", "clue"))
  write_models(tree)
  write_data(tree)
  # The interpreter is the tests' own; run_tests.sh has tested the real one.
  (tree / "env.sh").write_text("PYTHON=python\n")
  server = fork_server.start(tree.parent / "bin", SMALL)
  yield tree
  os.killpg(server.pid, signal.SIGTERM)
  server.wait()


def run(path, tree):
  """Runs a file's blocks in order; returns [(block, its output)]."""
  done = []
  environment = dict(
      os.environ, TF_CPP_MIN_LOG_LEVEL="3",
      PATH="%s:%s" % (tree.parent / "bin", os.environ["PATH"]))
  for comment, language, text in blocks(path):
    if language and can_run(comment):
      (tree / "block").write_text(text, encoding="utf-8")
      start = time.time()
      interpreter = {"bash": ["bash", "-euo", "pipefail"],
                     "python": ["python"]}[language]
      found = subprocess.run(
          interpreter + ["block"], cwd=str(tree), env=environment, timeout=600,
          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
      output = found.stdout.decode()
      assert not found.returncode, "%s\n%s\n%s" % (path, text, output[-3000:])
      done.append((text, output))
      print("%.1f s: %s" % (time.time() - start, text.splitlines()[0]))
  return done


@pytest.fixture(scope="module")
def readme(tree):
  return run("README.md", tree)


def output_of(done, word):
  output, = [output for text, output in done if word in text]
  return output


def test_readme(tree, readme):
  sample, = [text for _, _, text in blocks("README.md")
             if text.startswith("== 1/4")]
  shown = output_of(readme, "bash quickstart.sh")
  for line in sample.replace("...\n", "").splitlines():
    # What weights say is left out: these are random.
    text = line.split("\t1\t")[0]
    assert re.sub(SCORE, "", text) in re.sub(SCORE, "", shown)
  records = tree / "output" / "pretrain"
  assert len(list((records / "train").glob("*.tfrecord"))) == 10
  assert len(list((records / "heldout").glob("*.tfrecord"))) == 1
  assert (tree / "output" / "my_model" / "best" / "config.json").exists()
  assert "--learning_rate=0.00044 " in output_of(readme, "BATCH=256")


def test_the_programs_agree(tree, readme):
  probability = float(re.search(r"^\S+ (0\.\d+)$", output_of(
      readme, "import load"), re.M).group(1))
  programs = [output for done in (readme, run("docs/deployment.md", tree))
              for text, output in done if "labels = json" in text]
  assert len(programs) == 2 * NEEDS["TensorFlow 2"] + can_run(
      "needs onnxruntime")
  for output in programs:
    found = list(map(float, re.findall(r"[01]\.\d+", output)))
    assert len(found) == 6
    assert max(found) == pytest.approx(probability, abs=1e-5)
    assert sum(found) == pytest.approx(1, abs=1e-5)


def test_eight_gpus(tree):
  """What would start; the trainings: test_step.py and test_distribution.py."""
  for program in ("horovodrun", "python"):
    (tree / program).write_text("#!/bin/sh\necho %s $*\n" % program)
    (tree / program).chmod(0o755)
  for where, wanted in (
      ({"GPUS": "8"}, ["python run_pretraining.py", "--num_gpus=8",
                       "--train_batch_size=4096"]),
      ({"HOSTS": "a:4,b:4"}, ["-np 8 -H a:4,b:4 python run_pretraining.py",
                              "--use_horovod", "--train_batch_size=512"])):
    started = subprocess.check_output(
        ["bash", "run_pretraining.sh"], cwd=str(tree),
        stderr=subprocess.DEVNULL, env=dict(os.environ, PATH="%s:%s" % (
            tree, os.environ["PATH"]), **where)).decode()
    for flag in wanted + [
        "--gradient_accumulation_steps=16", "--learning_rate=0.00176",
        "--input_file=output/pretrain/train/*.tfrecord",
        "--eval_input_file=output/pretrain/heldout/*.tfrecord"]:
      assert flag + " " in started.replace("\n", " ")
  for program in ("horovodrun", "python"):
    (tree / program).unlink()


@pytest.mark.once
@pytest.mark.parametrize("name", [
    path.name for path in sorted((ROOT / "docs").glob("*.md"))
    # Chinese ones have the same blocks, see test_translations.py.
    if path.name != "deployment.md" and "_zh" not in path.name and any(
        language and not comment.startswith("not run")
        for comment, language, _ in blocks("docs/" + path.name))])
@pytest.mark.usefixtures("readme")
def test_document(name, tree):
  assert run("docs/" + name, tree)


def test_the_two_readmes_are_equals():
  def commands(path):
    return [(comment, re.sub(" +# .*", "", text)) if language else text
            for comment, language, text in blocks(path)]

  assert commands("README.md") == commands("docs/README_zh.md")
  for path in ("README.md", "docs/README_zh.md"):
    assert len((ROOT / path).read_text(encoding="utf-8").splitlines()) <= 300


@pytest.mark.parametrize("path", [
    "README.md", "albert_tiny_starter/MODEL_CARD.md"] + [
        "docs/" + path.name for path in sorted((ROOT / "docs").glob("*.md"))])
def test_what_a_document_names_is_there(path):
  text = (ROOT / path).read_text(encoding="utf-8")
  for comment, language, block in blocks(path):
    assert language in ("", "bash", "python")
    assert language or not re.search("^(bash|python|source) ", block, re.M)
    assert language or not comment
  for link in re.findall(r"\]\((?!http)([^)#]*)", text):
    assert ((ROOT / path).parent / link).exists(), link


def test_released_models():
  text = (ROOT / "README.md").read_text(encoding="utf-8")
  table = text[text.index("## Released models"):text.index("## (a)")]
  assert set(re.findall("`(albert_[a-z0-9_]+)`", table)) == {
      name for name in download.ITEMS if name.startswith("albert_")}
