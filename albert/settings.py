"""Settings as small frozen classes, each field of which can be a flag.

A class says once what there is, what it defaults to and what --help says:

    @dataclasses.dataclass(frozen=True)
    class BatchSettings:
      train_batch_size: int = setting(32, "Examples per training step.")

`define_flags` makes flags of it, `from_flags` makes it of them. Library
functions are given such objects; `dataclasses.replace` makes different ones.
"""

import dataclasses

from absl import flags

# Groups of --help, in its order.
NEEDED, USUAL, ADVANCED, TPU = GROUPS = ("needed", "usual", "advanced", "TPU")


def setting(default, text, group=ADVANCED, choices=None, alias=None, least=None,
            most=None):
  """Returns the field of a settings class.

  Args:
    default: its default value.
    text: str, what --help says.
    group: str, of GROUPS.
    choices: list of str, the values that it can have; None for any.
    alias: str, another name of the flag, or None.
    least, most: limits of a number, or None.
  """
  return dataclasses.field(default=default, metadata=dict(
      text=text, group=group, choices=choices, alias=alias, least=least,
      most=most))


def define_flags(*classes, **changes):
  """Defines the flags of settings classes; for a script's `main` alone.

  Args:
    *classes: the classes.
    **changes: name of a field -> its default in this script, or a tuple of the
      default and of what --help says.
  """
  for cls in classes:
    for field in dataclasses.fields(cls):
      default, text = field.default, field.metadata["text"]
      if field.name in changes:
        change = changes[field.name]
        default, text = change if isinstance(change, tuple) else (change, text)
      _define(field, default, text)


def _define(field, default, text):
  meta = field.metadata
  if meta["choices"]:
    flags.DEFINE_enum(field.name, default, meta["choices"], text,
                      case_sensitive=False)
  elif field.type in (int, float):
    define = {int: flags.DEFINE_integer, float: flags.DEFINE_float}[field.type]
    define(field.name, default, text, lower_bound=meta["least"],
           upper_bound=meta["most"])
  else:
    {bool: flags.DEFINE_bool, str: flags.DEFINE_string,
     list: flags.DEFINE_list,  # a,b
     tuple: flags.DEFINE_multi_string,  # given several times
     }[field.type](field.name, default, text)
  flags.FLAGS[field.name].group = meta["group"]
  if meta["alias"]:
    flags.DEFINE_alias(meta["alias"], field.name)


def from_flags(cls, values):
  """Returns the settings that flags give.

  Args:
    cls: a settings class.
    values: absl.flags.FlagValues, parsed.
  """
  return cls(**{field.name: values[field.name].value
                for field in dataclasses.fields(cls)})
