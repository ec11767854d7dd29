"""Settings of trainings, without a command line."""

import dataclasses

from albert.train.settings import TrainSettings


def make_settings(**changes):
  """Returns TrainSettings that are the defaults but for some fields.

  Args:
    **changes: name of a field of any of its groups -> value.
  """
  groups = {}
  for group in dataclasses.fields(TrainSettings):
    names = {field.name for field in dataclasses.fields(group.type)}
    groups[group.name] = group.type(**{
        name: changes.pop(name) for name in names & set(changes)})
  assert not changes, changes
  return TrainSettings(**groups)
