"""What is printed is so: the commands and programs of README.md and docs/, what
starter weights know; and how every script ends.

They run in order, in a copy of the tree, where models and data are small. A
comment before a block says why it cannot run, or what it needs.
"""

import gzip
import importlib.util
import os
import re
import shutil
import subprocess

import fork_server
import pytest
import scripting
import tensorflow.compat.v1 as tf
from reading import read_json, table
from scripting import ROOT, SCRIPTS, SIZES, blocks
from small_models import write_folder
from trained_models import write_files
from writing import write

from albert import download
from albert.predict import load

pytestmark = pytest.mark.slow

# Appended to what is printed; the later one of two equal flags counts.
FINE_TUNING = ("--num_train_epochs=1 --save_checkpoints_steps=1000 "
               "--max_train_examples=12 --train_batch_size=6")
SMALL = {script: words.split() for script, words in {
    "run_classifier.py": FINE_TUNING, "run_ner.py": FINE_TUNING,
    "run_squad.py": FINE_TUNING + " --max_seq_length=64",
    "run_race.py": FINE_TUNING + " --max_seq_length=64",
    "run_sentence_vectors.py": FINE_TUNING + " --layer=-1",
    "run_pretraining.py": "--num_train_steps=2 --num_warmup_steps=1 "
    "--train_batch_size=32 --gradient_accumulation_steps=1 "
    "--eval_batch_size=32 --max_eval_steps=1",
    "bench_pretrain.py": "--allocators=own --steps=1 --batch_size=2 "
    "--max_seq_length=32 --max_predictions_per_seq=4",
    "bench_inference.py":
    "--ways=session --lengths=32 --batches=1 --seconds=0.1"}.items()}
# What a script is given, and what it then says at the end.
ENDS = {
    "convert_to_pytorch": " --output_dir", "export_model": " --init_checkpoint",
    "create_pretraining_data": " --input_file", "run_race": " --data_dir",
    "extract_features": " --input_file", "run_classifier": " --task_name",
    "run_ner": " --task_name", "predict": "--model_dir=no_such no_such",
    "serve": "--port=0 --model_dir=no_such no_such",
    "similarity": "a b c --input_file", "run_squad": "cmrc2018 'cmrc2018'",
    "run_pretraining": "--do_train --output_dir",
    "run_sentence_vectors": "--loss=mse --loss=mse.*cosent"}

# In the output of similarity.py and in results.
SCORE = r"\d+\.\d+(\tsame|\tdifferent)?"
NEEDS = {"TensorFlow 2": not tf.__version__.startswith("1.")}


def can_run(comment):
  return not comment.startswith("not run: ") and all(
      NEEDS.get(name) or importlib.util.find_spec(name.split()[0])
      for name in comment[len("needs "):].split(", ") if name)


def write_models(tree):
  configs, sizes = tree / "albert_config", dict(SIZES, num_hidden_layers=1)
  for path in configs.glob("*.json"):
    config = read_json(path)
    write(configs, path.name, dict(config, **{
        key: sizes[key] for key in set(config) & set(sizes)}))
  for layout in ("", "_google"):
    config = read_json(configs / ("albert_config_tiny%s.json" % layout))
    write_folder(tree / ("model" + layout), config, configs / "vocab.txt")
  for name in ["albert_tiny_starter", *download.ITEMS]:
    if name.startswith("albert_"):
      is_google = name.endswith(("_google", "_starter"))
      (tree / name).symlink_to("model_google" if is_google else "model")


def write_data(tree):
  """Writes what the commands read: texts, pairs and a few rows of each task."""
  data, clue = tree / "data", tree / "data" / "clue"
  text = (data / "text_heldout.txt").read_bytes()
  (tree / "more_text").mkdir()
  (tree / "more_text" / "a.gz").write_bytes(gzip.compress(text))
  target = dict(span1_index=0, span1_text="甲", span2_index=1, span2_text="他")
  row = dict(sentence1="甲", sentence2="乙", sentence="甲", abst="乙",
             keyword=["甲"], text="甲他乙", target=target)
  for folder, kind in ((clue / "chid", "idioms"), (clue / "c3", "choices"),
                       (clue / "cmrc2018", "spans"),
                       (clue / "cluener", "entities"),
                       (tree / "my_tags", "several")):
    folder.mkdir(parents=True)
    write_files(folder, kind)
  for split in ("train", "dev", "test"):
    texts = table(data / "topics" / (split + ".tsv"))[::7]
    pairs = table(data / "pairs" / (split + ".txt"))[::15]
    lines, tsv = list(map("\t".join, pairs)), split + ".tsv"
    write(data / "topics", tsv, *map("\t".join, texts))
    for name in ("pairs", "lcqmc"):
      write(data / name, split + ".txt", *lines)
    write(tree / "my_scores", tsv, "text_a\ttext_b\tscore", *lines)
    write(tree / "my_reviews", split + ".jsonl", *(
        dict(zip(("title", "body", "stars"), pair)) for pair in pairs))
    for task, *labels in (
        ("afqmc", "0", "1"), ("cmnli", "neutral", "entailment"),
        ("csl", "1", "0"), ("ocnli", "neutral", "entailment"),
        ("iflytek", "7", "8"), ("tnews", "100", "101"),
        ("wsc", "true", "false")):
      write(clue / task, split + ".json", *[
          dict(row, label=label) for label in labels] * 10)


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
  server.communicate()


def run(path, tree, replace=("", "")):
  """Runs a file's blocks in order; returns [(block, its output)]."""
  done = []
  for comment, language, text in blocks(path):
    if language and can_run(comment):
      (tree / "block").write_text(text.replace(*replace), encoding="utf-8")
      options = ["-euo", "pipefail"] if language == "bash" else []
      found = subprocess.run(
          [language, *options, "block"], cwd=str(tree), timeout=600,
          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(
              os.environ, TF_CPP_MIN_LOG_LEVEL="3",
              PATH="%s:%s" % (tree.parent / "bin", os.environ["PATH"])))
      output = found.stdout.decode()
      assert not found.returncode, "%s\n%s\n%s" % (path, text, output[-3000:])
      done.append((text, output))
  return done


@pytest.fixture(scope="module")
def readme(tree):
  # Of eight GPUs, two have all there is to see.
  return run("README.md", tree, ("--dry_run=gpu:8", "--dry_run=gpu:2"))


def output_of(done, word):
  output, = [output for text, output in done if word in text]
  return output


@pytest.mark.platform_independent("documents")
def test_readme(tree, readme):
  sample, = [text for _, _, text in blocks("README.md")
             if text.startswith("== 1/4")]
  shown = re.sub(SCORE, "", output_of(readme, "bash quickstart.sh"))
  for line in sample.replace("...\n", "").splitlines():
    # What weights say is left out: these are random.
    text = line.split("\t")[-1] if "[MASK]" in line else line
    assert re.sub(SCORE, "", text) in shown
  assert [len(list((tree / "output").glob(pattern))) for pattern in (
      "pretrain/train/*.tfrecord", "pretrain/heldout/*.tfrecord",
      "my_model/best/config.json")] == [10, 1, 1]
  assert "--learning_rate=0.00044 " in output_of(readme, "BATCH=256")


@pytest.mark.parametrize("script", SCRIPTS)
def test_how_a_script_ends(script, tree):
  *args, message = ENDS[script[:-len(".py")]].split()
  status, out, log = scripting.run(script, *args, cwd=str(tree),
                                   python=str(tree.parent / "bin" / "python"))
  assert (status, out) == (1, "")
  assert re.match("ERROR: .*" + message, log.splitlines()[-1]), log
  assert "Traceback" not in log


def test_the_starter_weights_know_what_their_card_says():
  starter = ROOT / "albert_tiny_starter"
  rows = re.findall(r"^\| (\S*\[MASK\]\S*) \| (\S) \| (.*) \|$", (
      starter / "MODEL_CARD.md").read_text(encoding="utf-8"), re.M)
  assert [[text, answer] for text, answer, _ in rows] == (
      table(ROOT / "data" / "cloze.tsv")[1:])
  assert [" ".join(token for token, _ in found.masks[0]) for found in load(
      str(starter)).predict([row[0] for row in rows])] == [
          likeliest for _, _, likeliest in rows]
  # Weights alone: no optimizer, no graph, no copy of the vocabulary.
  assert (starter / "vocab.txt").is_symlink()
  assert sum(path.stat().st_size for path in starter.iterdir()
             if not path.is_symlink()) <= 17e6


@pytest.mark.full
def test_the_programs_agree(tree, readme):
  probability = float(re.search(r"^\S+ (0\.\d+)$", output_of(
      readme, "import load"), re.M).group(1))
  programs = [output for text, output in readme + run(
      "docs/deployment.md", tree) if "labels = json" in text]
  assert len(programs) == 2 * NEEDS["TensorFlow 2"] + can_run(
      "needs onnxruntime")
  for output in programs:
    found = list(map(float, re.findall(r"[01]\.\d+", output)))
    assert len(found) == 6
    assert max(found) == pytest.approx(probability, abs=1e-5)
    assert sum(found) == pytest.approx(1, abs=1e-5)


def documents():
  """Documents with commands; with one for TensorFlow 2, for each platform."""
  for path in sorted((ROOT / "docs").glob("*.md")):
    comments = [comment for comment, language, _ in blocks("docs/" + path.name)
                if language and not comment.startswith("not run")]
    # Chinese ones have the same blocks, see test_documents.py.
    if comments and path.name != "deployment.md" and "_zh" not in path.name:
      yield pytest.param(path.name, marks=[] if any(
          "TensorFlow 2" in comment for comment in comments
      ) else pytest.mark.platform_independent("documents"))


@pytest.mark.full
@pytest.mark.parametrize("name", documents())
@pytest.mark.usefixtures("readme")
def test_document(name, tree):
  assert run("docs/" + name, tree)
