"""What every test shares: tiers, graph mode, data, models, strictness.

A test belongs to a tier by what it needs:

    quick    no mark             no script, no training, no real data
    default  `slow`              starts a script or trains, for a few steps
    all      `full`, real data   takes long, or needs what is large or built

--tier runs one with those before it; by default all. `platform_independent`
marks a test whose outcome another TensorFlow cannot change, with the reason;
run_tests.sh runs it on the first platform alone.

ALBERT_REAL_DATA: the folder with the real data sets; without it, the tests that
read them are skipped. ALBERT_TESTS_STRICT=1 turns every skip into a failure.
ALBERT_TESTS_SUMMARY: file to append the counts to.
"""

import collections
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import tensorflow.compat.v1 as tf
import trained_models
from vocabularies import VOCAB_FILE

import tokenization
from albert.data import corpus

tf.disable_eager_execution()
tf.enable_resource_variables()
# XLA: a step is compiled for one run, so the compiler should not take its time.
os.environ["XLA_FLAGS"] = (
  "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)

STRICT = os.environ.get("ALBERT_TESTS_STRICT", "0") not in ("", "0")
TIERS = ("quick", "default", "all")

# Not collected, rather than skipped: nothing is missing where they do not run.
collect_ignore_glob = [
  "*_tf2.py" if tf.__version__.startswith("1.") else "*_tf1.py"
]
if not (shutil.which("chromium") and shutil.which("chromedriver")):
  collect_ignore_glob.append("*_browser.py")


def pytest_addoption(parser):
  parser.addoption("--tier", choices=TIERS, default="all")
  parser.addoption(
    "--second_platform",
    action="store_true",
    help="leave out what is platform independent",
  )


def pytest_configure(config):
  for mark in (
    "slow: starts a script or trains",
    "full: for --all alone",
    "platform_independent(reason): TensorFlow changes no outcome",
  ):
    config.addinivalue_line("markers", mark)
  # TensorFlow's own use of what Python and itself deprecate.
  config.addinivalue_line(
    "filterwarnings", "ignore::DeprecationWarning:tensorflow.*"
  )
  config.left_out = collections.Counter()


def tier_of(item):
  if item.get_closest_marker("full") or "real_data" in item.fixturenames:
    return "all"
  return "default" if item.get_closest_marker("slow") else "quick"


def pytest_itemcollected(item):
  # With --dist=loadgroup, tests that share a fixture go to one process.
  fixtures = item._fixtureinfo.name2fixturedefs.values()
  if any(fixture[-1].scope == "module" for fixture in fixtures):
    item.add_marker(pytest.mark.xdist_group(item.module.__name__))


def pytest_collection_modifyitems(config, items):
  """Leaves out what is of a later tier, or was run on the first platform."""
  tier, is_second = map(config.getoption, ("--tier", "--second_platform"))
  kept, others = [], []
  for item in items:
    why = None
    if TIERS.index(tier_of(item)) > TIERS.index(tier):
      why = "of a later tier"
    elif is_second and item.get_closest_marker("platform_independent"):
      why = "platform independent, run before"
    config.left_out[why] += 1
    (others if why else kept).append(item)
  config.hook.pytest_deselected(items=others)
  # The longest are begun first.
  items[:] = sorted(kept, key=lambda item: -TIERS.index(tier_of(item)))


def pytest_sessionfinish(session):
  if hasattr(session.config, "workeroutput"):
    session.config.workeroutput["left_out"] = dict(session.config.left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
  node.config.left_out = getattr(node, "workeroutput", {}).get("left_out", {})


def pytest_terminal_summary(terminalreporter, config):
  """Appends a line of counts to what run_tests.sh prints at its end."""
  path = os.environ.get("ALBERT_TESTS_SUMMARY")
  if not path or "PYTEST_XDIST_WORKER" in os.environ:
    return
  counts = [
    (len(terminalreporter.getreports(name)), name)
    for name in ("passed", "failed", "error", "skipped")
  ]
  counts += [
    (count, "left out (%s)" % why)
    for why, count in sorted(config.left_out.items(), key=str)
    if why
  ]
  with open(path, "a") as writer:
    print(
      "TensorFlow %s, %s:" % (tf.__version__, config.getoption("--tier")),
      ", ".join("%d %s" % pair for pair in counts if pair[0]),
      file=writer,
    )


@pytest.fixture(autouse=True)
def fresh_graph():
  tf.reset_default_graph()


@pytest.fixture(scope="session")
def real_data():
  folder = os.environ.get("ALBERT_REAL_DATA")
  if not folder:
    pytest.skip("set ALBERT_REAL_DATA to the folder of the real data sets")
  return pathlib.Path(folder)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
  """Makes a folder once for all processes of the tests, at the first call.

  It is a function of a name and of a function that fills the folder; it returns
  the folder, which tests must not change.
  """
  root = tmp_path_factory.getbasetemp()
  if "PYTEST_XDIST_WORKER" in os.environ:
    root = root.parent

  def make(name, fill):
    folder = root / ("once_" + name)
    with open(str(root / (name + ".lock")), "w") as lock:
      fcntl.flock(lock, fcntl.LOCK_EX)
      if not (folder / "made").exists():
        shutil.rmtree(str(folder), ignore_errors=True)
        folder.mkdir()
        fill(folder)
        (folder / "made").write_text("")
    return folder

  return make


@pytest.fixture(scope="session")
def trained(made_once):
  """A function of a key of KINDS that returns its trained_models.Trained."""

  def make(name):
    folder = made_once(
      "trained_" + name, lambda folder: trained_models.train(folder, name)
    )
    return trained_models.Trained(
      folder, folder / "out", trained_models.KINDS[name].make()[0]
    )

  return make


@pytest.fixture(scope="session")
def tokenizer():
  return tokenization.WordPieceTokenizer(VOCAB_FILE)


@pytest.fixture(scope="session")
def segmenter(tokenizer):
  return corpus.Segmenter(tokenizer, use_jieba=True)


SPM_TEXT = (
  "in 2000, we met\nby 12000, they left\n2000 2000 dogs\n2000, 2000, 12000, "
  '2000 cats\nk99, m99, p99, r99,\nhe had 3 dogs "b" c\ncafe fi.\n'
)


@pytest.fixture(scope="session")
def spm_file(made_once):
  """str, a SentencePiece model with the pieces "_2000,", "_12000,", "99,"."""

  def train(folder):
    (folder / "tiny.txt").write_text(SPM_TEXT * 20)
    # In a separate process: training (not loading) crashes beside TF 1.15.
    subprocess.run(
      [
        sys.executable,
        "-c",
        "import sentencepiece, sys; "
        "sentencepiece.SentencePieceTrainer.Train(sys.argv[1])",
        "--input=tiny.txt --model_prefix=tiny --model_type=bpe --vocab_size=70 "
        "--user_defined_symbols=[CLS],[SEP],[MASK] --pad_id=0 --unk_id=1 "
        "--pad_piece=<pad> --bos_id=-1 --eos_id=-1 --hard_vocab_limit=false "
        "--minloglevel=2",
      ],
      cwd=str(folder),
      check=True,
    )

  return str(made_once("spm", train) / "tiny.model")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
  report = (yield).get_result()
  # An expected failure is reported as skipped too, and is none.
  if STRICT and report.skipped and not hasattr(report, "wasxfail"):
    report.outcome = "failed"
    report.longrepr = "under ALBERT_TESTS_STRICT: %s" % report.longrepr[2]


pytest_make_collect_report = pytest_runtest_makereport
