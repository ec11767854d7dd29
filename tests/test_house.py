"""Code structure: flags, imports, a test for each module."""

import ast
import pathlib
import re

import pytest
from scripting import ROOT, SCRIPTS

pytestmark = pytest.mark.platform_independent("source text")

LIBRARY = sorted((ROOT / "albert").rglob("*.py"))


def test_every_module_has_a_test_or_names_one():
  lacking = []
  for path in LIBRARY:
    folder = path.parent.relative_to(ROOT / "albert")
    if path.stem == "__init__" or not folder.parts:
      continue
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
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


def test_scripts_alone_read_flags():
  assert [path for path in LIBRARY if "absl.flags" in imports_of(path)] == [
    ROOT / "albert" / name for name in ("cli.py", "settings.py")
  ]


@pytest.mark.parametrize(
  "folder, later",
  [
    ("", [script[: -len(".py")] for script in SCRIPTS]),  # the library
    ("files", [r"albert\.(tasks|heads|train|predict|export)"]),
    ("tasks", [r"albert\.(heads|train|predict|export)"]),
    ("heads", [r"albert\.(train|predict|export)"]),
  ],
)
def test_imports_run_one_way(folder, later):
  paths = [path for path in LIBRARY if ROOT / "albert" / folder in path.parents]
  assert paths and later
  for path in paths:
    assert not [
      name
      for name in imports_of(path)
      if re.match(r"(%s)(\.|$)" % "|".join(later), name)
    ], path
