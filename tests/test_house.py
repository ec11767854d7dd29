"""How the code is laid out: flags, imports, a test for each module."""

import ast
import importlib
import pathlib
import re

import pytest
from absl import flags
from scripting import ROOT, SCRIPTS

pytestmark = pytest.mark.platform_independent("source text")

LIBRARY = sorted((ROOT / "albert").rglob("*.py"))


def test_scripts_alone_read_flags():
  readers = set()
  for path in LIBRARY:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    if path.stem not in ("__init__", "__main__", "beam_pipeline"):
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
      lacking.append(path)
  assert lacking == []


def imports_of(path):
  found = set()
  for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
    if isinstance(node, ast.Import):
      found.update(alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      assert not node.level, path  # relative
      found.add(node.module)
      found.update("%s.%s" % (node.module, alias.name) for alias in node.names)
  return found


@pytest.mark.parametrize("folder, later", [
    ("", [script[:-len(".py")] for script in SCRIPTS]),  # the library, scripts
    ("files", [r"albert\.(tasks|heads|train|predict|export)"]),
    ("tasks", [r"albert\.(heads|train|predict|export)"]),
    ("heads", [r"albert\.(train|predict|export)"])])
def test_imports_run_one_way(folder, later):
  paths = [path for path in LIBRARY if ROOT / "albert" / folder in path.parents]
  assert paths and later
  for path in paths:
    assert not [name for name in imports_of(path) if re.match(
        r"(%s)(\.|$)" % "|".join(later), name)], path
