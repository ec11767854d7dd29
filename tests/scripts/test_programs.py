"""What scripts say of themselves, and what it takes to import them."""

import dataclasses
import json
import re
import subprocess
import sys

import pytest
from scripting import ROOT, SCRIPTS, parsed

from albert import cli

MODULES = sorted(path.stem for path in ROOT.glob("*.py")) + sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "albert").rglob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("script", SCRIPTS)
def test_help(script):
  """What the script is for, then each of its flags once."""
  with parsed(script) as (module, _):
    text = cli.help_text(module.__doc__, getattr(module, "REQUIRED", ()))
  assert text.startswith(module.__doc__.strip() + "\n\n")
  text = text[len(module.__doc__):]
  fields = sum(map(dataclasses.fields, module.SETTINGS), ())
  assert sorted(re.findall(r"^  --(\w+)  \S", text, re.M)) == sorted(
      field.name for field in fields)
  assert max(map(len, text.splitlines())) <= 80


@pytest.mark.slow
def test_imports_need_no_optional_package_and_define_no_flag():
  """So that a program may define any flag, before and after."""
  program = """
import importlib, json, sys
from absl import app, flags, logging
for name in ("vocab_file", "do_lower_case", "model_dir", "layer"):
  flags.DEFINE_string(name, "", "The program's own.")
import tensorflow.compat.v1
before, lacking = set(flags.FLAGS), {}
for name in ("apache_beam", "faiss", "horovod", "matplotlib", "onnx",
             "onnxruntime", "psutil", "sklearn", "tokenizers", "torch",
             "transformers"):
  sys.modules[name] = None  # an import of it fails
for name in json.loads(sys.argv[1]):
  try:
    importlib.import_module(name)
  except ImportError as error:
    lacking[name] = error.name
from tokenization import WordPieceTokenizer
print(json.dumps([sorted(set(flags.FLAGS) - before), lacking,
                  WordPieceTokenizer(sys.argv[2]).tokenize("Bank 天")]))
"""
  done = subprocess.run(
      [sys.executable, "-c", program, json.dumps(MODULES),
       str(ROOT / "albert_config" / "vocab.txt")], cwd=str(ROOT),
      stdout=subprocess.PIPE, check=True)
  assert json.loads(done.stdout.decode()) == [
      [], {"albert.data.beam_pipeline": "apache_beam"}, ["bank", "天"]]
