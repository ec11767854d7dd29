"""Settings of trainings, without a command line."""

import types

from scripting import parsed

from albert import settings as flag_settings
from albert.train import settings


def make_settings(classes=settings.FINE_TUNING, **given):
  """Returns the TrainSettings of given flags.

  Args:
    classes: the settings classes that a script has.
    **given: name of a flag -> its value; not given where it is None.
  """
  script = types.SimpleNamespace(
      __name__="script", SETTINGS=classes,
      DEFAULTS=dict(output_dir=dict(required=False)))
  args = ["--%s=%s" % (
      name, ",".join(value) if isinstance(value, list) else value)
          for name, value in given.items() if value is not None]
  with parsed(script, *args):
    flag_settings.check_flags()
    return settings.read()
