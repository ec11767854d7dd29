"""What every test shares: graph mode, a fresh graph, real data, strictness.

ALBERT_REAL_DATA: the folder with the real data sets; without it, the tests that
read them are skipped. ALBERT_TESTS_STRICT=1 turns every skip into a failure.
ALBERT_TESTS_SHARE: 0 or 1, the half of the tests marked `slow` or `once`, but
not `both`, that are run; those of one platform's files are, whatever it is.
"""

import os
import pathlib
import shutil
import sys
import zlib

import fork_server
import pytest
import tensorflow.compat.v1 as tf

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

tf.disable_eager_execution()
tf.enable_resource_variables()
fork_server.save_time()

STRICT = os.environ.get("ALBERT_TESTS_STRICT", "0") not in ("", "0")

# Not collected, rather than skipped: nothing is missing where they do not run.
collect_ignore_glob = [
    "*_tf2.py" if tf.__version__.startswith("1.") else "*_tf1.py"
]
# run_tests.sh says so.
if not (shutil.which("chromium") and shutil.which("chromedriver")):
  collect_ignore_glob.append("*_browser.py")


def pytest_configure(config):
  config.addinivalue_line("markers", "slow: starts scripts, trains, real data")
  config.addinivalue_line("markers", "once: another TensorFlow changes little")
  config.addinivalue_line("markers", "long: begun first, as it takes minutes")
  config.addinivalue_line("markers", "both: slow, but another TensorFlow may "
                          "change it much")
  # TensorFlow's own use of what Python and itself deprecate.
  config.addinivalue_line(
      "filterwarnings", "ignore::DeprecationWarning:tensorflow.*")


def pytest_itemcollected(item):
  if "real_data" in item.fixturenames:
    item.add_marker("slow")
  # With --dist=loadgroup, tests that share a fixture go to one process.
  fixtures = item._fixtureinfo.name2fixturedefs.values()
  if any(fixture[-1].scope == "module" for fixture in fixtures):
    item.add_marker(pytest.mark.xdist_group(item.module.__name__))


def pytest_collection_modifyitems(config, items):
  """Leaves out the tests that are the other platform's; the longest first."""
  share = os.environ.get("ALBERT_TESTS_SHARE")

  def has(item, *names):
    return any(map(item.get_closest_marker, names))

  def half(item):
    # What tests of a module share is then made once, for all with a parameter.
    parameter = item.name[len(item.originalname):]
    return zlib.crc32((item.module.__name__ + parameter).encode()) % 2

  others = [item for item in items if share and has(item, "slow", "once") and
            not has(item, "both") and half(item) != int(share) and
            not item.module.__name__.endswith(("_tf1", "_tf2"))]
  config.hook.pytest_deselected(items=others)
  items[:] = sorted((item for item in items if item not in others),
                    key=lambda item: not has(item, "long"))


@pytest.fixture(autouse=True)
def fresh_graph():
  tf.reset_default_graph()


@pytest.fixture(scope="session")
def real_data():
  folder = os.environ.get("ALBERT_REAL_DATA")
  if not folder:
    pytest.skip("set ALBERT_REAL_DATA to the folder of the real data sets")
  return pathlib.Path(folder)


def fail_if_skipped(report):
  # An expected failure is reported as skipped too, and is none.
  if STRICT and report.skipped and not hasattr(report, "wasxfail"):
    reason = report.longrepr[2]
    report.outcome = "failed"
    report.longrepr = "under ALBERT_TESTS_STRICT: %s" % reason


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
  outcome = yield
  fail_if_skipped(outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report():
  outcome = yield
  fail_if_skipped(outcome.get_result())
