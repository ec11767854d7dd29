"""Fine-tuning, similarity and vectors, on a small model."""

import functools
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import threading
import zipfile

import numpy as np
import pytest
import scripting
import tensorflow.compat.v1 as tf
from scripting import ROOT, VOCAB, fail, results, succeed

from albert.files import checkpoints
from similarity import BertSim

pytestmark = [pytest.mark.slow, pytest.mark.once]

PAIRS = ROOT / "tests" / "pairs"
VOCAB_URL = VOCAB.replace("=", "=file://")
DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


@pytest.fixture(scope="module")
def work(tmp_path_factory):
  folder = tmp_path_factory.mktemp("classifier")
  (folder / "small.json").write_text(json.dumps(
      dict(scripting.SIZES, **DROPOUT)))
  return folder


def classify(work, output_dir, *args):
  """The command; its paths are URLs, as on another file system."""
  return ["run_classifier.py", "--task_name=LCQMC",
          "--data_dir=file://%s" % PAIRS,
          "--bert_config_file=file://%s" % (work / "small.json"), VOCAB_URL,
          "--output_dir=file://%s" % (work / output_dir),
          "--train_batch_size=8",
          "--max_seq_length=32", "--learning_rate=0.01",
          "--max_train_examples=64", "--num_train_epochs=1", *args]


@pytest.fixture(scope="module")
def fine_tuned(work):
  _, log = succeed(*classify(
      work, "pairs", "--do_train", "--do_eval", "--do_predict",
      "--save_checkpoints_steps=4"))
  return work / "pairs", log


def rows(folder, name="test_results.tsv"):
  lines = (folder / name).read_text(encoding="utf-8").splitlines()
  return [line.split("\t") for line in lines]


def predicted(folder):
  """Returns the probabilities, or scores, of the test file, float [N, L]."""
  header, *lines = rows(folder)
  first = header[0] == "label"
  return np.array([line[first:header.index("text_a")] for line in lines], float)


def test_fine_tuning(fine_tuned):
  folder, log = fine_tuned
  assert "train: 64 examples; labels: 1 " in log
  lengths = [len(a) + len(b) + 3 for a, b, _ in rows(PAIRS, "train.txt")[:64]]
  assert max(lengths) == 32  # a token each, in these texts
  assert "train: %.1f%% of the examples fill --max_seq_length=32" % (
      100 * lengths.count(32) / 64) in log
  found = results(folder)
  assert set(found) == {
      "eval_loss", "eval_accuracy", "eval_f1", "eval_macro_f1", "eval_matthews",
      "loss", "global_step"}
  assert found["global_step"] == 8
  probabilities = predicted(folder)
  assert len(probabilities) == 64
  np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-6)
  likeliest = [str(label) for label in probabilities.argmax(1)]
  assert rows(folder) == [["label", "0", "1", "text_a", "text_b"]] + [
      [label, *["%.8f" % p for p in row], *texts[:2]] for label, row, texts in
      zip(likeliest, probabilities, rows(PAIRS, "test.txt"))]
  assert {path.name for path in (folder / "best").iterdir()} >= {
      "checkpoint", "config.json", "task.json", "vocab.txt", "eval_report.txt"}
  submission = [json.loads(line) for line in
                (folder / "lcqmc_predict.json").read_text().splitlines()]
  assert submission == [{"id": i, "label": label}
                        for i, label in enumerate(likeliest)]


def test_tensorboard_shows_one_run(fine_tuned):
  folder, _ = fine_tuned
  paths = list(folder.rglob("events.out.tfevents.*"))
  assert len(paths) == 1 and paths[0].parent == folder
  found = {}
  for event in tf.train.summary_iterator(str(paths[0])):
    for value in event.summary.value:
      found.setdefault(value.tag, {})[event.step] = value.simple_value
  assert {"loss", "accuracy", "learning_rate", "examples_per_second",
          "eval/loss", "eval/accuracy"} < set(found)
  header, *history = rows(folder, "eval_history.tsv")
  assert found["eval/accuracy"] == {
      int(row[0]): pytest.approx(float(row[header.index("eval_accuracy")]))
      for row in history}
  assert len(history) == 2


def test_results_are_those_of_the_predictions(work, fine_tuned):
  """Predicts the dev file as a test file, and scores that by hand."""
  folder, _ = fine_tuned
  data = work / "dev_as_test"
  data.mkdir()
  shutil.copy(str(PAIRS / "dev.txt"), str(data / "test.txt"))
  shutil.copytree(str(folder / "best"), str(work / "copy"))
  succeed(*classify(work, "copy", "--do_predict", "--data_dir=%s" % data))
  probabilities = predicted(work / "copy")
  labels = np.array([int(row[2]) for row in rows(PAIRS, "dev.txt")])
  found = results(folder / "best")
  assert found["eval_accuracy"] == pytest.approx(
      (probabilities.argmax(1) == labels).mean())
  assert found["eval_loss"] == pytest.approx(
      -np.log(probabilities[np.arange(64), labels]).mean(), rel=1e-5)
  report = (folder / "best" / "eval_report.txt").read_text()
  assert report.split()[9] == str((labels == 0).sum())
  # Scored as a test file, it has the same metrics and report.
  scored = dict(line.split(" = ") for line in (
      work / "copy" / "test_results.txt").read_text().splitlines())
  assert set(scored) == set(found) - {"global_step"}
  for name, value in scored.items():
    assert float(value) == pytest.approx(found[name], rel=1e-5)
  assert (work / "copy" / "test_report.txt").read_text() == report


def test_two_runs_of_a_seed_are_equal(work, fine_tuned):
  again = ["--do_train", "--do_predict", "--save_checkpoints_steps=4"]
  for name, seed in (("again", 12345), ("other", 1)):
    succeed(*classify(work, name, "--random_seed=%d" % seed, *again))
  weights, same, other = [
      tf.train.load_variable(str(work / name), "output_weights")
      for name in ("pairs", "again", "other")]
  np.testing.assert_allclose(same, weights, atol=1e-6)
  assert np.abs(other - weights).max() > 1e-3
  _, log = succeed(*classify(work, "again", "--do_train",
                             "--num_train_epochs=2"))
  assert "resuming from step 8 of file://%s" % (work / "again") in log
  assert checkpoints.start_step(str(work / "again")) == 16


def test_several_runs_differ_in_seed_and_rate_alone(work):
  """In one folder, other settings than those of the runs there are errors."""
  data = work / "same_pairs"
  shutil.copytree(str(PAIRS), str(data))
  args = classify(work, "several", "--do_train", "--do_eval",
                  "--max_train_examples=16")
  succeed(*args, "--num_seeds=2")
  table = (work / "several" / "runs.tsv").read_text()
  for flag, before in (
      ("--weight_decay_rate=0.1", "0.01"), ("--poly_power=2.0", "1.0"),
      ("--data_dir=%s" % data, "file://%s" % PAIRS),
      ("--metric_for_best=f1", "None"), ("--optimizer=lamb", "adamw"),
      ("--pad_to_max", "False"), ("--class_weights=balanced", "None"),
      ("--max_train_examples=24", "16")):
    name, _, value = flag[2:].partition("=")
    fail("several has runs with --%s=%s, not %s: choose a different "
         "--output_dir" % (name, before, value or True), *args, "--num_seeds=2",
         flag)
  assert (work / "several" / "runs.tsv").read_text() == table
  # More seeds, and what changes no weights, may come later.
  succeed(*args, "--num_seeds=3", "--log_steps=1", "--eval_batch_size=7")
  later = (work / "several" / "runs.tsv").read_text()
  assert later.splitlines()[:3] == table.splitlines()[:3]


def test_padding_changes_no_prediction(work, fine_tuned):
  shutil.copytree(str(fine_tuned[0] / "best"), str(work / "padded"))
  succeed(*classify(work, "padded", "--do_predict", "--pad_to_max",
                    "--predict_batch_size=7", "--plain_results"))
  np.testing.assert_allclose(np.array(rows(work / "padded"), float),
                             predicted(fine_tuned[0]), atol=1e-5)


def test_similarity_gives_the_probabilities_of_the_classifier(
    work, fine_tuned):
  folder, _ = fine_tuned
  pairs = [row[:2] for row in rows(PAIRS, "test.txt")]
  expected = predicted(folder)[:, 1]
  assert np.ptp(expected) > 1e-4  # or any order would do
  similarity = BertSim(str(folder / "best"), batch_size=5)
  np.testing.assert_allclose(similarity.predict_sentences(pairs), expected,
                             atol=1e-6)
  model = "--model_dir=file://%s" % (folder / "best")
  text = "".join("\t".join(pair) + "\n" for pair in pairs).encode()
  out, _ = succeed("similarity.py", model, input=text)
  found = [line.split("\t") for line in out.splitlines()]
  assert [row[2:] for row in found] == pairs
  np.testing.assert_allclose([float(row[0]) for row in found], expected,
                             atol=1e-4)
  assert {row[1] for row in found if float(row[0]) < 0.5} <= {"different"}
  (work / "pairs.tsv").write_bytes(text)
  _, log = succeed("similarity.py", model, "--benchmark",
                   "--input_file=file://%s" % (work / "pairs.tsv"),
                   "--output_file=file://%s" % (work / "scores.tsv"))
  assert "p50" in log
  assert rows(work, "scores.tsv") == found
  out, _ = succeed("similarity.py", model, *pairs[0])
  assert out.split("\t")[0] == found[0][0]


def test_files_beside_the_checkpoint(work, fine_tuned):
  """Configuration, vocabulary need not be named; contradictions are errors."""
  args = [arg for arg in classify(work, "beside", "--do_eval",
                                  "--init_checkpoint=%s" % (
                                      fine_tuned[0] / "best"))
          if not arg.startswith(("--bert_config_file", "--vocab_file"))]
  succeed(*args)
  expected = results(fine_tuned[0] / "best")
  found = results(work / "beside")
  assert found.pop("global_step") == 0
  for name, value in found.items():
    assert value == pytest.approx(expected[name], abs=1e-6)
  (work / "dry.json").write_text(json.dumps(scripting.SIZES))
  other = work / "other_vocab.txt"
  other.write_bytes((ROOT / "albert_config" / "vocab.txt").read_bytes().replace(
      b"[unused7]", b"[unused0]"))
  args += ["--output_dir=%s" % (work / "contradicted")]
  _, log = succeed(*args, "--bert_config_file=%s" % (work / "dry.json"))
  assert "attention_probs_dropout_prob 0.0, not 0.1" in log
  assert ("without --do_train, there is no effect of --num_train_epochs, "
          "--max_train_examples\n") in log
  fail("other_vocab.txt is not the vocabulary that the model was made with, "
       ".*best/vocab.txt", *args, "--vocab_file=%s" % other)
  fail("--do_lower_case is False, but the model next to .*best was made with "
       "True", *args, "--nodo_lower_case")


def test_other_labels_than_the_checkpoint_knows(work, fine_tuned):
  data = work / "three"
  data.mkdir()
  for split in ("train", "dev"):
    (data / (split + ".jsonl")).write_text("".join(
        json.dumps({"title": "a" * i, "body": "b", "class": i % 3}) + "\n"
        for i in range(1, 30)))
  args = classify(
      work, "three_labels", "--task_name=jsonl", "--data_dir=%s" % data,
      "--text_a_field=title", "--text_b_field=body", "--label_field=class",
      "--init_checkpoint=%s" % (fine_tuned[0] / "best"))
  _, log = succeed(*args, "--do_train", "--labels=0,1,2,3", "--do_eval")
  assert "knows the labels 0, 1, not 0, 1, 2, 3" in log
  assert "; of a different shape: output_weights" in log
  assert "dev has no example of 1 label(s): 3" in log
  args += ["--do_eval", "--output_dir=%s" % (work / "unread")]
  fail("knows the labels 0, 1, not 0, 1, 2$", *args, "--labels=0,1,2")
  fail("dev.jsonl:2: unknown label '2'; known are 0, 1$", *args)


def test_labels_come_from_the_fine_tuned_model(work, fine_tuned):
  """A folder with nothing but a file to predict, in which every row counts."""
  data = work / "only_test"
  data.mkdir()
  lines = (PAIRS / "test.txt").read_text(encoding="utf-8").splitlines()
  (data / "test.tsv").write_text("text_a\ttext_b\tlabel\n" + "".join(
      line + "\n" for line in lines), encoding="utf-8")
  args = classify(work, "from_task", "--task_name=tsv", "--do_predict",
                  "--data_dir=%s" % data, "--init_checkpoint=%s" % (
                      fine_tuned[0] / "best"))
  succeed(*args)
  np.testing.assert_allclose(predicted(work / "from_task"),
                             predicted(fine_tuned[0]), atol=1e-5)
  submission = (work / "from_task" / "tsv_predict.json").read_text()
  assert submission == (fine_tuned[0] / "lcqmc_predict.json").read_text()


def test_a_checkpoint_that_was_not_made_for_labels(work, fine_tuned):
  folder = work / "no_labels"
  shutil.copytree(str(fine_tuned[0] / "best"), str(folder))
  (folder / "task.json").write_text(json.dumps(
      {"task_name": "drcd", "max_seq_length": 32, "do_lower_case": True}))
  _, log = succeed(*classify(work, "from_drcd", "--do_train",
                             "--init_checkpoint=%s" % folder))
  assert "knows the labels" not in log
  fail("are not those of a similarity task", "similarity.py",
       "--model_dir=%s" % folder, "a", "b")


def test_a_folder_fine_tuned_by_older_scripts(work):
  """Their names of variables, optimizer slots included, and no task.json."""
  sizes = dict(scripting.SIZES, vocab_size=21128)
  (work / "older.json").write_text(json.dumps(sizes))
  with open(str(ROOT / "tests" / "released_variables" /
                "albert_tiny_zh_finetuned.vars.txt")) as reader:
    names = dict(line.rstrip("\n").split("\t") for line in reader)
  assert {"output_weights", "output_bias", "output_bias/adam_m",
          "bert/pooler/dense/kernel"} <= set(names)
  scale = {"312": 16, "128": 8, "1248": 32, "59": 2}
  rng = np.random.RandomState(0)
  with tf.Graph().as_default(), tf.Session() as sess:
    for name, shape in names.items():
      shape = [int(scale.get(size, size)) for size in
               shape.strip("[]").split(", ") if size]
      if name == "bert/embeddings/position_embeddings" or (
          name.startswith("bert/embeddings/position_embeddings/")):
        shape[0] = 512
      value = rng.normal(size=shape).astype(np.float32) * 0.3
      tf.get_variable(name, initializer=tf.constant(value) if shape else
                      tf.constant(7, tf.int64))
    sess.run(tf.global_variables_initializer())
    tf.train.Saver().save(sess, str(work / "older" / "model.ckpt"))
  args = classify(work, "from_older", "--do_eval", "--do_predict",
                  "--bert_config_file=%s" % (work / "older.json"),
                  "--init_checkpoint=%s" % (work / "older" / "model.ckpt"))
  succeed(*args)
  assert 0 < results(work / "from_older")["eval_loss"]
  assert len(predicted(work / "from_older")) == 64
  fail(r"does not fit the configuration: output_weights "
       r"\(checkpoint \[2, 16\], model \[15, 16\]\)", *args,
       "--task_name=tnews", "--data_dir=%s" % tnews(work),
       "--output_dir=%s" % (work / "fifteen"))


def tnews(work):
  data = work / "tnews"
  data.mkdir(exist_ok=True)
  for split in ("train", "dev", "test"):
    (data / (split + ".json")).write_text("".join(
        json.dumps({"id": i, "sentence": "a" * i, "label": "10%d" % (i % 4)})
        + "\n" for i in range(1, 9)))
  return data


def test_clue_in_one_command(work, fine_tuned):
  """The data comes from a server; a checkpoint without `checkpoint`."""
  site = work / "site"
  site.mkdir()
  shutil.copytree(str(fine_tuned[0] / "best"), str(work / "released"),
                  ignore=shutil.ignore_patterns("checkpoint", "task.json"))
  content = {
      "tnews": {"id": 3, "sentence": "a", "label": "100"},
      "wsc": {"text": "ab", "label": "true", "target": {
          "span1_index": 0, "span1_text": "a", "span2_index": 1,
          "span2_text": "b"}}}
  for task, row in content.items():
    with zipfile.ZipFile(str(site / (task + ".zip")), "w") as writer:
      for split in ("train", "dev", "test"):
        writer.writestr(split + ".json", (json.dumps(row) + "\n") * 70)
  server = http.server.ThreadingHTTPServer(
      ("127.0.0.1", 0), functools.partial(
          http.server.SimpleHTTPRequestHandler, directory=str(site)))
  threading.Thread(target=server.serve_forever, daemon=True).start()
  address = "http://127.0.0.1:%d/{item}.zip" % server.server_port
  done = subprocess.run(
      ["bash", str(ROOT / "run_classifier_clue.sh"), "tnews", "cluewsc2020",
       "--num_train_epochs=1", "--max_seq_length=32"],
      env=dict(os.environ, CLUE_DATA_URL=address, no_proxy="*",
               MODEL_DIR=str(work / "released"),
               CLUE_DATA=str(work / "clue"), OUTPUT=str(work / "clue_out"),
               ALBERT_PLATFORM="tf" + tf.__version__[0],
               TF_CPP_MIN_LOG_LEVEL="2"),
      capture_output=True, timeout=300)
  server.shutdown()
  assert not done.returncode, done.stderr.decode()
  table = done.stdout.decode().splitlines()[-2:]
  for line, task in zip(table, ("tnews", "wsc")):
    assert re.match(task + r" +eval_accuracy = [\d.]+  \S+_predict.json$", line)
    predicted = [json.loads(row) for row in pathlib.Path(
        line.split()[-1]).read_text().splitlines()]
    assert [row["id"] for row in predicted] == (
        [3] * 70 if task == "tnews" else list(range(70)))
  assert results(work / "clue_out" / "wsc")["global_step"] == 4


def test_vectors(work, fine_tuned):
  folder = fine_tuned[0] / "cased"
  shutil.copytree(str(fine_tuned[0] / "best"), str(folder))
  task = json.loads((folder / "task.json").read_text())
  (folder / "task.json").write_text(json.dumps(
      dict(task, do_lower_case=False)))
  (work / "texts.txt").write_text("今天会下雨吗\n好\nbank\nBANK\n",
                                  encoding="utf-8")

  def vectors(*args):
    succeed("extract_features.py", "--init_checkpoint=file://%s" % folder,
            "--input_file=file://%s" % (work / "texts.txt"),
            "--output_file=file://%s" % (work / "vectors.npy"), *args)
    return np.load(str(work / "vectors.npy"))

  mean, cls = vectors(), vectors("--pooling=cls")
  assert mean.shape == cls.shape == (4, 16)
  assert np.abs(mean[2] - mean[3]).max() > 1e-3  # the model is a cased one
  # Of the only token between [CLS] and [SEP], the mean says all.
  (work / "texts.txt").write_text("好\n", encoding="utf-8")
  np.testing.assert_allclose(vectors(), mean[1:2], atol=1e-5)
  np.testing.assert_allclose(vectors("--pooling=cls", "--layer=2"), cls[1:2],
                             atol=1e-5)
  assert np.abs(vectors("--layer=1") - mean[1:2]).max() > 1e-3
  pooled = vectors("--pooling=pooled")
  reader = tf.train.load_checkpoint(str(folder))
  np.testing.assert_allclose(pooled, np.tanh(
      cls[1:2] @ reader.get_tensor("bert/pooler/dense/kernel") +
      reader.get_tensor("bert/pooler/dense/bias")), atol=1e-5)
  fail("--layer=3: the model has layers 0 to 2", "extract_features.py",
       "--init_checkpoint=%s" % folder, "--layer=3",
       "--input_file=%s" % (work / "texts.txt"),
       "--output_file=%s" % (work / "none.npy"))
  assert not (work / "none.npy").exists()


def test_bad_input(work, fine_tuned):
  bad = work / "bad_pairs"
  bad.mkdir()
  (bad / "train.txt").write_text("a\tb\t1\na\tb\nc\td\t0\n" * 8)

  def expect(message, *args):
    fail(message, *classify(work, "bad", "--do_train"), *args)

  expect("unknown task 'lcqcm'; known are .*lcqmc", "--task_name=lcqcm")
  expect("train.txt:2: expected 3 columns", "--data_dir=%s" % bad)
  own = work / "own"
  own.mkdir()
  (own / "train.tsv").write_text(
      "text_a\ttext_b\tlabel\n" + "a\tb\t1\nc\td\t0\n" * 8)
  (own / "dev.tsv").write_text("text_a\tlabel\na\t1\nc\t0\n")
  expect("dev: 2 of 2 examples have no second text, but others have one",
         "--task_name=tsv", "--data_dir=%s" % own, "--do_eval",
         "--max_train_examples=8")
  expect("--metric_for_best=pearson does not go with 2 labels",
         "--metric_for_best=pearson")
  expect("without --do_train and --do_eval, there is no effect of "
         "--early_stop_evals", "--early_stop_evals=2")
  (work / "other_size.json").write_text(json.dumps(
      dict(scripting.SIZES, vocab_size=30000)))
  expect("vocab.txt has 21128 entries, but .* vocab_size 30000",
         "--bert_config_file=%s" % (work / "other_size.json"))
  fail("has no checkpoint: train first", *classify(work, "bad", "--do_predict"))
  fail("was not begun with .*_starter: it has embedding_size 8, not 128, .*",
       *classify(work, fine_tuned[0].name, "--do_train", "--bert_config_file="),
       "--init_checkpoint=%s" % (ROOT / "albert_tiny_starter"))
  fail("no checkpoint at", "similarity.py", "--model_dir=%s" % bad, "a", "b")
  _, log = succeed(*classify(work, "skipped", "--do_train", "--skip_bad_rows",
                             "--data_dir=%s" % bad))
  assert "skipped 8 bad row(s)" in log
