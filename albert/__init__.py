"""The library of the scripts at the top.

It goes with five modules beside it. One of the same name in the working
directory, which every BERT repository has, would be imported instead.
"""

import importlib.util
import os

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
for _name in ("tokenization", "modeling", "modeling_google", "optimization",
              "lamb_optimizer"):
  _own = os.path.join(_ROOT, _name + ".py")
  _found = getattr(importlib.util.find_spec(_name), "origin", None)
  if _found and os.path.exists(_own) and os.path.abspath(_found) != _own:
    raise ImportError("%s is in the way of %s: start in a different folder, or "
                      "rename it" % (_found, _own))
