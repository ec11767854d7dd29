"""Settings of trainings, without a command line."""

import dataclasses
import types

from albert.train import settings


def given_flags(**given):
  """Returns flags as absl.flags.FlagValues have them, name -> flag.

  Args:
    **given: name of a flag that is given -> its value.
  """
  found = {field.name: types.SimpleNamespace(value=field.default, present=0)
           for cls in settings.FINE_TUNING for field in dataclasses.fields(cls)}
  assert set(given) <= set(found)
  for name, value in given.items():
    found[name] = types.SimpleNamespace(value=value, present=1)
  return found


def make_settings(**given):
  """Returns the TrainSettings of given flags."""
  return settings.read(given_flags(**given))
