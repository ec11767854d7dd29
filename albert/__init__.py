"""The library behind the scripts in the root folder.

It needs five modules next to it. Modules of the same names in the working
directory, as in every BERT repository, would be imported instead.
"""

import importlib.util
import os

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
for _name in (
  "tokenization",
  "modeling",
  "modeling_google",
  "optimization",
  "lamb_optimizer",
):
  _own = os.path.join(_ROOT, _name + ".py")
  _found = getattr(importlib.util.find_spec(_name), "origin", None)
  if _found and os.path.exists(_own) and os.path.abspath(_found) != _own:
    raise ImportError(
      "%s shadows %s: start in a different folder, or rename it"
      % (_found, _own)
    )
