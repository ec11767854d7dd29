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
import numpy as np
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
FINE_TUNING = (
  "--num_train_epochs=1 --save_checkpoints_steps=1000 "
  "--max_train_examples=12 --train_batch_size=6"
)
SMALL = {
  script: words.split()
  for script, words in {
    "run_classifier.py": FINE_TUNING,
    "run_ner.py": FINE_TUNING,
    "run_squad.py": FINE_TUNING + " --max_seq_length=64",
    "run_race.py": FINE_TUNING + " --max_seq_length=64",
    "run_sentence_vectors.py": FINE_TUNING + " --layer=-1",
    "run_pretraining.py": "--num_train_steps=2 --num_warmup_steps=1 "
    "--train_batch_size=32 --gradient_accumulation_steps=1 "
    "--eval_batch_size=32 --max_eval_steps=1",
    "bench_pretrain.py": "--arms=ours --allocators=own --steps=1 "
    "--batch_size=2 --max_seq_length=32 --max_predictions_per_seq=4",
    "bench_inference.py": "--ways=session --lengths=32 "
    "--batches=1 --seconds=0.1",
  }.items()
}
# What a script is given, and what it then says at the end.
ENDS = {
  "convert_to_pytorch": " --output_dir",
  "export_model": " --init_checkpoint",
  "create_pretraining_data": " --input_file",
  "run_race": " --data_dir",
  "extract_features": " --input_file",
  "run_classifier": " --task_name",
  "run_ner": " --task_name",
  "predict": "--model_dir=no_such no_such",
  "serve": "--port=0 --model_dir=no_such no_such",
  "similarity": "a b c --input_file",
  "run_squad": "cmrc2018 'cmrc2018'",
  "run_pretraining": "--do_train --output_dir",
  "run_sentence_vectors": "--loss=mse --loss=mse.*cosent",
}

# In the output of similarity.py and in results.
SCORE = r"\d+\.\d+(\tsame|\tdifferent)?"
IS_TF2 = not tf.__version__.startswith("1.")
# One run of a sweep, and two of eight GPUs, have all there is to see.
SHORTER = {
  r"--num_seeds=\d": "--num_seeds=1",
  "gpu:8": "gpu:2",
  "(--learning_rates=[^, ]*),[^ ]*": r"\1",
}


def write_models(tree):
  configs, sizes = tree / "albert_config", dict(SIZES, num_hidden_layers=1)
  for path in configs.glob("*.json"):
    config = read_json(path)
    write(
      configs,
      path.name,
      dict(config, **{key: sizes[key] for key in set(config) & set(sizes)}),
    )
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
  row = dict(
    sentence1="甲",
    sentence2="乙",
    sentence="甲",
    abst="乙",
    keyword=["甲"],
    text="甲他乙",
    target=target,
  )
  for folder, kind in (
    (clue / "chid", "idioms"),
    (clue / "c3", "choices"),
    (clue / "cmrc2018", "spans"),
    (clue / "cluener", "entities"),
    (tree / "my_tags", "several"),
  ):
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
    write(
      tree / "my_reviews",
      split + ".jsonl",
      *(dict(zip(("title", "body", "stars"), pair)) for pair in pairs),
    )
    for task, *labels in (
      ("afqmc", "0", "1"),
      ("cmnli", "neutral", "entailment"),
      ("csl", "1", "0"),
      ("ocnli", "neutral", "entailment"),
      ("iflytek", "7", "8"),
      ("tnews", "100", "101"),
      ("wsc", "true", "false"),
    ):
      write(
        clue / task,
        split + ".json",
        *[dict(row, label=label) for label in labels] * 10,
      )


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
  """A copy of the tree with small models and data, and a quick `python`."""
  tree = tmp_path_factory.mktemp("readme") / "tree"
  shutil.copytree(
    str(ROOT),
    str(tree),
    ignore=shutil.ignore_patterns(
      ".*", "__pycache__", "output", "albert_[!c]*", "lcqmc", "clue"
    ),
  )
  write_models(tree)
  write_data(tree)
  # The interpreter is the tests' own; run_tests.sh has tested the real one.
  (tree / "env.sh").write_text("PYTHON=python\n")
  server = fork_server.start(tree.parent / "bin", SMALL)
  yield tree
  server.communicate()


def chosen(path, of_tf2=False):
  """Returns (language, text) of the blocks that need TensorFlow 2, or of all
  others, if what else they need is there."""
  found = []
  for comment, language, text in blocks(path):
    needs = set(comment[len("needs ") :].split(", ")) - {""}
    if (
      language
      and not comment.startswith("not run: ")
      and (of_tf2 == ("TensorFlow 2" in needs))
      and all(map(importlib.util.find_spec, needs - {"TensorFlow 2"}))
    ):
      found.append((language, text))
  return found


def run(found, tree, replace=None):
  """Runs blocks in order; returns [(block, its output)]."""
  done = []
  for language, text in found:
    for pattern, other in {**SHORTER, **(replace or {})}.items():
      text = re.sub(pattern, other, text)
    (tree / "block").write_text(text, encoding="utf-8")
    options = ["-euo", "pipefail"] if language == "bash" else []
    process = subprocess.run(
      [language, *options, "block"],
      cwd=str(tree),
      timeout=600,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      env=dict(
        os.environ,
        TF_CPP_MIN_LOG_LEVEL="3",
        PATH="%s:%s" % (tree.parent / "bin", os.environ["PATH"]),
      ),
    )
    output = process.stdout.decode()
    assert not process.returncode, "%s\n%s" % (text, output[-3000:])
    done.append((text, output))
  return done


@pytest.fixture(scope="module")
def readme(tree):
  return run(chosen("README.md"), tree)


def output_of(done, word):
  (output,) = [output for text, output in done if word in text]
  return output


@pytest.mark.platform_independent("documents")
def test_readme(tree, readme):
  (sample,) = [
    text for _, _, text in blocks("README.md") if text.startswith("== 1/4")
  ]
  shown = re.sub(SCORE, "", output_of(readme, "bash quickstart.sh"))
  for line in sample.replace("...\n", "").splitlines():
    # What weights say is left out: these are random.
    text = line.split("\t")[-1] if "[MASK]" in line else line
    assert re.sub(SCORE, "", text) in shown
  assert [
    len(list((tree / "output").glob(pattern)))
    for pattern in (
      "pretrain/train/*.tfrecord",
      "pretrain/heldout/*.tfrecord",
      "my_model/best/config.json",
    )
  ] == [10, 1, 1]
  assert "--learning_rate=0.00044 " in output_of(readme, "BATCH=256")


@pytest.mark.parametrize("script", SCRIPTS)
def test_how_a_script_ends(script, tree):
  *args, message = ENDS[script[: -len(".py")]].split()
  status, out, log = scripting.run(
    script, *args, cwd=str(tree), python=str(tree.parent / "bin" / "python")
  )
  assert (status, out) == (1, "")
  assert re.match("ERROR: .*" + message, log.splitlines()[-1]), log
  assert "Traceback" not in log


def test_the_starter_weights_know_what_their_card_says():
  starter = ROOT / "albert_tiny_starter"
  rows = re.findall(
    r"^\| (\S*\[MASK\]\S*) \| (\S) \| (.*) \|$",
    (starter / "MODEL_CARD.md").read_text(encoding="utf-8"),
    re.M,
  )
  assert [[text, answer] for text, answer, _ in rows] == (
    table(ROOT / "data" / "cloze.tsv")[1:]
  )
  assert [
    " ".join(token for token, _ in found.masks[0])
    for found in load(str(starter)).predict([row[0] for row in rows])
  ] == [likeliest for _, _, likeliest in rows]
  # Weights alone: no optimizer, no graph, no copy of the vocabulary.
  assert (starter / "vocab.txt").is_symlink()
  assert (
    sum(
      path.stat().st_size for path in starter.iterdir() if not path.is_symlink()
    )
    <= 17e6
  )


@pytest.mark.full
def test_the_programs_agree(tree):
  """Those that read an exported model."""
  folder = tree / "programs"
  folder.mkdir()
  write_folder(
    folder / "model",
    dict(
      read_json(tree / "model_google" / "config.json"),
      max_position_embeddings=64,
    ),
    ROOT / "albert_config" / "vocab.txt",
    {
      "output_weights": np.eye(3, SIZES["hidden_size"]),
      "output_bias": np.zeros(3),
    },
    {"labels": list("abc"), "max_seq_length": 64},
  )
  (label,) = load(str(folder / "model")).predict(
    ["高铁通到了县城，游客多了一倍"], top_k=3
  )
  wanted = dict(label.candidates)
  for name, *flags in (
    ("serving/my_task/1", "--saved_model"),
    ("phone", "--tflite", "--max_seq_length=64"),
    ("onnx", "--onnx"),
  ):
    scripting.export(folder / "model", folder / name, *flags)
  programs = [
    (language, text)
    for of_tf2 in {False, IS_TF2}
    for language, text in chosen("docs/deployment.md", of_tf2)
    if "labels = json" in text
  ]
  assert len(programs) == 1 + 2 * IS_TF2
  for _, output in run(programs, tree, {"output/": "programs/"}):
    found = dict(re.findall(r"'(.)': (?:np.float32.)?([.\de-]+)", output))
    assert {name: float(x) for name, x in found.items()} == pytest.approx(
      wanted, abs=1e-5
    )


# Chinese ones have the same blocks, see test_documents.py.
@pytest.mark.full
@pytest.mark.parametrize(
  "path, of_tf2",
  [
    *(
      pytest.param(
        path, False, marks=pytest.mark.platform_independent("documents")
      )
      for path in (
        "docs/" + path.name
        for path in sorted((ROOT / "docs").glob("*.md"))
        if "_zh" not in path.name
      )
      if chosen(path)
    ),
    *[("docs/measurements.md", True)] * IS_TF2,
  ],
)
def test_document(path, of_tf2, tree, request):
  if not of_tf2:
    request.getfixturevalue("readme")
  assert run(chosen(path, of_tf2), tree)
