"""Settings of trainings, without a command line."""

import dataclasses
import types

from albert.train import settings


def given_flags(**given):
  """Returns flags as absl.flags.FlagValues have them, name -> flag."""
  values = {field.name: field.default for cls in settings.FINE_TUNING
            for field in dataclasses.fields(cls)}
  assert set(given) <= set(values)
  return {name: types.SimpleNamespace(
      name=name, value=given.get(name, default), present=int(name in given),
      group=None, serialize="--{}={}".format(name, given.get(name)).format)
          for name, default in values.items()}


def make_settings(**given):
  return settings.read(given_flags(**given))
