"""How the code is laid out: flags, imports, a test for each module."""

import ast
import importlib
import pathlib
import re

import pytest
from absl import flags

pytestmark = pytest.mark.platform_independent("source text")

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARY = sorted((ROOT / "albert").rglob("*.py"))
# Modules that scripts and albert/ import; what else is beside them is a script.
TOP = ["lamb_optimizer", "modeling", "modeling_google", "optimization",
       "tokenization"]
SCRIPTS = {path.stem for path in ROOT.glob("*.py")} - set(TOP)


def name_of(path):
  """Returns the name that a module of albert/ is imported by."""
  parts = path.relative_to(ROOT).with_suffix("").parts
  return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_scripts_alone_read_flags():
  readers = set()
  for name in set(map(name_of, LIBRARY)) - {"albert.data.beam_pipeline"}:
    values = vars(importlib.import_module(name)).values()
    if any(value is flags or value is flags.FLAGS for value in values):
      readers.add(name)
  assert readers == {"albert.cli", "albert.settings"}


def test_every_module_has_a_test_or_names_one():
  lacking = []
  for path in LIBRARY:
    folder = path.parent.relative_to(ROOT / "albert")
    if path.stem == "__init__" or not folder.parts:
      continue
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    named = [ROOT / name for name in re.findall(r"\btests/[\w/]+\.py", doc)]
    own = (ROOT / "tests" / folder).glob("test_%s*.py" % path.stem)
    if not (named or list(own)) or not all(map(pathlib.Path.exists, named)):
      lacking.append(name_of(path))
  assert lacking == []


def imports_of(path):
  """Returns the names of all that a file imports, at its top or later."""
  found = set()
  for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
    if isinstance(node, ast.Import):
      found.update(alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      assert not node.level, path  # relative
      found.add(node.module)
      found.update("%s.%s" % (node.module, alias.name) for alias in node.names)
  return found


def test_the_library_imports_no_script():
  assert {"run_pretraining", "run_ner", "similarity"} < SCRIPTS
  for path in LIBRARY:
    assert not SCRIPTS & {name.split(".")[0] for name in imports_of(path)}, path


@pytest.mark.parametrize("folder, later", [
    ("files", ["tasks", "heads", "train", "predict", "export"]),
    ("tasks", ["heads", "train", "predict", "export"]),
    ("heads", ["train", "predict", "export"])])
def test_imports_run_one_way(folder, later):
  paths = sorted((ROOT / "albert" / folder).glob("*.py"))
  assert paths
  for path in paths:
    wrong = [name for name in imports_of(path) if re.match(
        r"albert\.(%s)(\.|$)" % "|".join(later), name)]
    assert not wrong, path
