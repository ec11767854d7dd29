"""Training settings without a command line."""

import types

from scripting import parsed

from albert import settings as flag_settings
from albert.train import settings


def make_settings(classes=settings.FINE_TUNING, **given):
  """Returns the TrainSettings of `classes` for flags; None omits a flag."""
  script = types.SimpleNamespace(
    __name__="script",
    SETTINGS=classes,
    DEFAULTS={"output_dir": dict(required=False)},
  )
  with parsed(
    script,
    *[
      "--%s=%s" % (name, ",".join(value) if isinstance(value, list) else value)
      for name, value in given.items()
      if value is not None
    ],
  ):
    flag_settings.check_flags()
    return settings.read()
