"""serve.py as a process: what it answers, how it ends, what it refuses."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from live_service import client
from onnx_folders import MODELS, export, write_model
from scripting import ROOT, command, fail

from albert.predict import load

pytestmark = [pytest.mark.slow, pytest.mark.once]

TEXTS = ["今天天气很好", "我们去公园散步", "他昨天没有来上班，因为病了"]


@contextlib.contextmanager
def serving(*args, port=0, cwd=None):
  """Starts serve.py; yields (process, port) when it answers."""
  process = subprocess.Popen(
      command("serve.py", "--port=%d" % port, *args), cwd=cwd and str(cwd),
      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
  try:
    log = ""
    while "serves" not in log:
      line = process.stdout.readline()
      assert line, log
      log += line
    port = int(re.search(r"http://[\w.:]+:(\d+) serves", log).group(1))
    wait_until_ready(port)
    yield process, port
  finally:
    process.kill()
    process.wait()
    process.stdout.close()


def wait_until_ready(port):
  end = time.time() + 60
  while True:
    try:
      if client(port)("/health").status == 200:
        return
    except OSError:
      assert time.time() < end
      time.sleep(0.05)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  path = tmp_path_factory.mktemp("model") / "my_task" / "best"
  path.mkdir(parents=True)
  write_model(path, MODELS["google postln"])
  return path


@pytest.fixture(scope="module")
def onnx_folder(folder):
  pytest.importorskip("onnxruntime")
  return export(folder, folder.parent.parent / "onnx", "--signature=classify",
                signatures=["classify"])


def labels_of(answer):
  assert answer.status == 200, answer.text
  return [(row["label"], row["probability"])
          for row in answer.json["predictions"]]


def test_both_engines_in_one_folder_each(folder, onnx_folder):
  wanted = [(row.label, pytest.approx(row.probability, abs=1e-5))
            for row in load(str(folder)).predict(TEXTS)]
  body = {"instances": TEXTS}
  with serving("--model_dir=%s" % folder, "--model_dir=two=%s" % folder) as (
      _, port):
    for name in ("my_task", "two"):
      assert labels_of(client(port)("/v1/models/%s:predict" % name,
                                    body)) == wanted
  with serving("--engine=onnx", "--model_dir=%s" % onnx_folder) as (_, port):
    assert labels_of(client(port)("/v1/models/onnx:predict", body)) == wanted


def test_pretrained_models_compare_sentences(tmp_path):
  reference = tmp_path / "sentences.txt"
  reference.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
  with serving("--reference_file=%s" % reference, cwd=ROOT) as (_, port):
    ask = client(port)
    assert ask("/v1/models").json["models"][0]["name"] == "albert_tiny_starter"
    answer = ask("/v1/models/albert_tiny_starter:similarity", {
        "sentences": ["今天天气很好", "今天天气不错", "开银行卡"]})
    (one, near, far), *_ = answer.json["scores"]
    assert one == pytest.approx(1) and near > far
  corpus = tmp_path / "corpus.txt"
  corpus.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
  with serving("--corpus_file=%s" % corpus, cwd=ROOT) as (_, port):
    found = client(port)("/v1/models/albert_tiny_starter:search", {
        "queries": ["他昨天没来上班"], "top_k": 1}).json["results"]
    assert [(x["text"], x["line"]) for x in found[0]] == [(TEXTS[2], 3)]
    assert client(port)("/v1/models").json["models"][0]["compares_sentences"]


def test_at_sigterm_it_answers_what_it_has(onnx_folder):
  with serving("--engine=onnx", "--model_dir=%s" % onnx_folder,
               "--max_wait_ms=2000") as (process, port):
    found = []
    thread = threading.Thread(target=lambda: found.append(client(port)(
        "/v1/models/onnx:predict", {"instances": TEXTS})))
    thread.start()
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    thread.join()
    assert len(labels_of(found[0])) == 3
    assert process.wait(30) in (0, -signal.SIGTERM)
    with pytest.raises(OSError):
      client(port)("/health")


def test_killed_and_started_again_under_load(onnx_folder):
  """Clients see refusals, but no wrong answer."""
  args = ["--engine=onnx", "--model_dir=%s" % onnx_folder]
  answers, refusals, end = [], [], threading.Event()

  def load_it(number, ask):
    while not end.is_set():
      texts = TEXTS[number % 3:] + ["第%d个" % number]
      try:
        answer = ask("/v1/models/onnx:predict", {"instances": texts})
        answers.append((texts, labels_of(answer)))
      except (OSError, EOFError) as error:
        refusals.append(error)
        time.sleep(0.01)

  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
  with serving(*args, port=port) as (process, _):
    threads = [threading.Thread(target=load_it, args=[n, client(port)])
               for n in range(8)]
    for thread in threads:
      thread.start()
    time.sleep(1)
    process.kill()
  before = len(answers)
  with serving(*args, port=port):
    time.sleep(1)
    end.set()
    for thread in threads:
      thread.join()
  assert 0 < before < len(answers) and refusals
  model = load(str(onnx_folder), "onnx")
  for texts, found in answers:
    assert [label for label, _ in found] == [
        row.label for row in model.predict(texts)]


def test_keys_for_other_machines(onnx_folder, tmp_path):
  keys = tmp_path / "keys.txt"
  keys.write_text("secret\n")
  with serving("--engine=onnx", "--model_dir=%s" % onnx_folder,
               "--host=0.0.0.0", "--api_key_file=%s" % keys) as (_, port):
    body = {"instances": TEXTS}
    assert client(port)("/v1/models/onnx:predict", body).status == 401
    assert labels_of(client(port)("/v1/models/onnx:predict", body, {
        "Authorization": "Bearer secret"}))


def test_bad_flags(folder, tmp_path):
  model = "--model_dir=%s" % folder
  empty = tmp_path / "empty.txt"
  empty.write_text("\n")
  with socket.socket() as taken:
    taken.bind(("127.0.0.1", 0))
    taken.listen(1)
    fail("--host=127.0.0.1 --port=.*: Address already in use", "serve.py",
         model, "--port=%d" % taken.getsockname()[1])
  fail("--host=0.0.0.0: others could use the models: give --api_key_file",
       "serve.py", model, "--host=0.0.0.0", "--port=0")
  fail("empty.txt: has no keys", "serve.py", model, "--port=0",
       "--api_key_file=%s" % empty)
  fail("two models are called my_task: give --model_dir=NAME=", "serve.py",
       model, model, "--port=0")
  fail("a name has letters", "serve.py", "--model_dir=a b=%s" % folder,
       "--port=0")
  fail("empty.txt: has no sentences", "serve.py", model, "--port=0",
       "--reference_file=%s" % empty)
  fail("without a pretrained model, or one of run_sentence_vectors.py, there",
       "serve.py", model, "--port=0", "--corpus_file=%s" % empty)
  fail("no_such_folder", "serve.py", "--model_dir=no_such_folder", "--port=0")


def test_what_is_not_installed():
  done = subprocess.run(
      [sys.executable, "-c", "import sys, runpy; sys.modules['fastapi'] = None;"
       "runpy.run_path('serve.py', run_name='__main__')"], cwd=str(ROOT),
      stderr=subprocess.PIPE, env=dict(os.environ, PYTHONPATH="."))
  assert done.returncode == 1
  assert b"pip install -r requirements/serve.txt" in done.stderr


@pytest.mark.parametrize("script, args, lines", [
    ("bench_serving.py", ["--input_file=%s" % (ROOT / "data/text_train.txt"),
                          "--servers=batched", "--clients=2", "--seconds=0.5"],
     r"server\tclients.*\nbatched\t2\t[1-9]\d*\t[\d.]+\t[\d.]+\t0\t\d+\t\d+\n"),
    ("bench_first_answer.py", ["--ways=onnx", "--times=1"],
     r"way\tmedian s.*\nonnx\t[\d.]+\t[\d.]+\t[\d.]+\n")])
def test_what_measures_it(script, args, lines, folder, onnx_folder):
  done = subprocess.run(
      command("benchmarks/" + script, "--model_dir=%s" % folder, *args),
      stdout=subprocess.PIPE, text=True, check=True)
  assert re.fullmatch(lines, done.stdout), done.stdout
