"""The prediction code to copy into an ONNX folder."""

import ast
import pathlib
import re
from typing import Dict

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_SCRIPTS = ("predict.py", "serve.py")
_MORE = ("LICENSE", "albert/serving/page.html")
_PACKAGES = ["numpy", "absl-py", "onnxruntime"]


def files(is_sentencepiece: bool) -> Dict[str, bytes]:
  """Returns the scripts and all modules of their top-level imports.

  Skips modules imported inside functions, such as those for TensorFlow.

  Args:
    is_sentencepiece: whether the model has a SentencePiece tokenizer.

  Returns:
    path in the folder -> bytes; requirements.txt lists the packages to install.
  """
  found, waiting = set(), list(_SCRIPTS)
  while waiting:
    path = waiting.pop()
    if path not in found:
      found.add(path)
      waiting += _imports(_read(path))
  content = {path: _read(path) for path in found.union(_MORE)}
  packages = list(_PACKAGES)
  if is_sentencepiece:
    packages.append("sentencepiece")
  content["requirements.txt"] = "\n".join([*packages, *_of_serve(), ""])
  return {path: text.encode() for path, text in content.items()}


def _of_serve():
  """Returns the packages for serve.py, from pyproject.toml."""
  section = re.search(
    r"^serve = \[(.*?)^\]", _read("pyproject.toml"), re.DOTALL | re.MULTILINE
  ).group(1)
  return re.findall(r'"(.*)"', section)


def _read(path):
  return (_ROOT / path).read_text(encoding="utf-8")


def _imports(source):
  """Yields the project's files of a module's top-level imports."""
  for node in ast.parse(source).body:
    for statement in node.body if isinstance(node, ast.Try) else [node]:
      names = []
      if isinstance(statement, ast.Import):
        names = [alias.name for alias in statement.names]
      elif isinstance(statement, ast.ImportFrom):
        names = [
          "%s.%s" % (statement.module, alias.name) for alias in statement.names
        ]
      for name in names:
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
          path = "/".join(parts[:count])
          for file in (path + ".py", path + "/__init__.py"):
            if (_ROOT / file).is_file():
              yield file
