"""python -m albert.vocab build|extend

build makes a vocabulary from text, extend adds words to a model; both have
--help. Tests: tests/vocab/test_build_vocab.py.
"""

import runpy
import sys

if __name__ == "__main__":
  if sys.argv[1:2] not in (["build"], ["extend"]):
    sys.exit(
      "ERROR: python -m albert.vocab: give build or extend, then --help "
      "or flags"
    )
  runpy.run_module(
    "albert.vocab." + sys.argv.pop(1), run_name="__main__", alter_sys=True
  )
