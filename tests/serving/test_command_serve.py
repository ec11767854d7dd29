"""serve.py: responses, shutdown, errors."""

import concurrent.futures
import re
import runpy
import signal
import socket
import subprocess
import sys
import time

import pytest
from live_service import client, live
from scripting import ROOT, command, export, fail, parsed
from small_steps import full
from writing import write

from albert.predict import load
from albert.serving import command as serve
from albert.settings import from_flags

pytestmark = pytest.mark.slow

TEXTS = ["今天天气很好", "我们去公园散步", "他昨天没有来上班，因为病了"]


def served(*args):
  """Runs the application of serve.py in a thread; see live_service.live."""
  with parsed(serve, *args):
    return live(serve.create_app(from_flags(serve.ServerSettings)))


@pytest.fixture(scope="module")
def folder(trained):
  return trained("labels").best


@pytest.fixture(scope="module")
def onnx(folder, tmp_path_factory):
  """Flags to serve the same model with ONNX Runtime."""
  pytest.importorskip("onnxruntime")
  target = tmp_path_factory.mktemp("exported") / "onnx"
  export(folder, target, "--onnx", "--signature=classify")
  return ["--engine=onnx", "--model_dir=%s" % target]


def labels_of(answer):
  return [
    (row["label"], row["probability"]) for row in answer.json["predictions"]
  ]


def test_models_of_both_engines_and_keys(folder, onnx, tmp_path):
  wanted = [
    (row.label, pytest.approx(row.probability, abs=1e-5))
    for row in load(str(folder)).predict(TEXTS)
  ]
  path, body = "/v1/models/%s:predict", {"instances": TEXTS}
  with served("--model_dir=%s" % folder, "--model_dir=two=%s" % folder) as ask:
    for name in ("out", "two"):
      assert labels_of(ask(path % name, body)) == wanted
  keys = write(tmp_path, "keys.txt", "", "secret", "")
  with served(*onnx, "--host=0.0.0.0", "--api_key_file=" + keys) as ask:
    assert ask(path % "onnx", body).status == 401
    assert (
      labels_of(ask(path % "onnx", body, {"Authorization": "Bearer secret"}))
      == wanted
    )


@pytest.mark.full
def test_a_pretrained_model_compares_sentences(tmp_path, monkeypatch):
  monkeypatch.chdir(ROOT)
  corpus = write(tmp_path, "corpus.txt", *TEXTS, "")
  starter = "/v1/models/albert_tiny_starter"
  for flag, status in (("reference", 404), ("corpus", 200)):
    with served("--%s_file=%s" % (flag, corpus)) as ask:
      assert ask(starter).json["compares_sentences"]
      (one, near, far), *_ = ask(
        starter + ":similarity",
        {"sentences": ["今天天气很好", "今天天气不错", "开银行卡"]},
      ).json["scores"]
      assert one == pytest.approx(1) and near > far
      found = ask(
        starter + ":search", {"queries": ["他昨天没来上班"], "top_k": 1}
      )
      assert found.status == status
  assert [(x["text"], x["line"]) for x in found.json["results"][0]] == [
    (TEXTS[2], 3)
  ]


@pytest.mark.parametrize("number", [signal.SIGTERM, full(signal.SIGHUP)])
def test_at_a_signal_it_answers_what_it_has(onnx, number):
  process = subprocess.Popen(
    command("serve.py", "--port=0", *onnx, "--max_wait_ms=2000"),
    stderr=subprocess.PIPE,
    text=True,
    preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
  )  # if nohup'd
  ask = client(
    int(
      next(
        filter(
          None, (re.search(r":(\d+) serves", line) for line in process.stderr)
        )
      )[1]
    )
  )
  assert ask("/health").status == 200
  with concurrent.futures.ThreadPoolExecutor() as pool:
    answer = pool.submit(ask, "/v1/models/onnx:predict", {"instances": TEXTS})
    time.sleep(0.5)
    process.send_signal(number)
    assert len(labels_of(answer.result())) == 3
  process.communicate(timeout=60)
  assert process.returncode == 0


@pytest.mark.parametrize(
  "args, message",
  [
    (["--port={port}"], "--port={port}: Address already in use"),
    (["--host=0.0.0.0"], "--host=0.0.0.0: .*--api_key_file"),
    (["--api_key_file={empty}"], "empty.txt"),
    (["--model_dir={folder}"], "out: give --model_dir=NAME="),
    (["--model_dir=a b={folder}"], "--model_dir=a b={folder}"),
    (["--reference_file={empty}"], "empty.txt"),
    (["--corpus_file={empty}"], "--reference_file and --corpus_file"),
  ],
)
def test_bad_flags(args, message, folder, tmp_path):
  (tmp_path / "empty.txt").write_text("\n")
  with socket.socket() as taken:
    taken.bind(("127.0.0.1", 0))
    taken.listen(1)
    values = dict(
      folder=folder, empty=tmp_path / "empty.txt", port=taken.getsockname()[1]
    )
    fail(
      message.format(**values),
      "serve.py",
      "--port=0",
      "--model_dir=%s" % folder,
      *[arg.format(**values) for arg in args],
    )


def test_what_is_not_installed(monkeypatch):
  monkeypatch.setitem(sys.modules, "uvicorn", None)
  with pytest.raises(SystemExit, match="serve]"):
    runpy.run_path(serve.__file__)


@pytest.mark.full
@pytest.mark.parametrize(
  "script, args, lines",
  [
    (
      "bench_serving.py",
      [
        "--input_file=%s" % (ROOT / "data/text_train.txt"),
        "--servers=batched",
        "--clients=2",
        "--seconds=0.5",
      ],
      r"server\tclients.*\nbatched\t2\t[1-9]\d*\t[\d.]+\t[\d.]+\t0\t\d+\t\d+\n",
    ),
    (
      "bench_first_answer.py",
      ["--ways=onnx", "--times=1"],
      r"way\tmedian s.*\nonnx\t[\d.]+\t[\d.]+\t[\d.]+\n",
    ),
  ],
)
def test_what_measures_it(script, args, lines, folder, onnx):
  out = subprocess.check_output(
    command("benchmarks/" + script, "--model_dir=%s" % folder, *args), text=True
  )
  assert re.fullmatch(lines, out), out
