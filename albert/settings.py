"""Settings as small frozen classes, each field of which can be a flag.

A class says once what there is, what it defaults to and what --help says:

    @dataclasses.dataclass(frozen=True)
    class BatchSettings:
      train_batch_size: int = setting(32, "Examples per training step.")

`define_flags` makes flags of it, `from_flags` makes it of them. Library
functions take such objects; `dataclasses.replace` makes different ones.
"""

import dataclasses
import re

from absl import flags, logging

from albert.errors import InputError

# Groups of --help, in its order.
NEEDED, USUAL, ADVANCED, TPU = GROUPS = ("needed", "usual", "advanced", "TPU")


def setting(default, text, group=ADVANCED, **more):
  """Returns the field of a settings class.

  Args:
    default: its default value.
    text: str, what --help says.
    group: str, of GROUPS.
    **more: `choices`, list of str: the values that it can have; `alias`, str:
      another name of the flag; `least`, `most`: limits of a number;
      `instead_of`, str: flags that
      cannot be given with it, "a or b"; and three
      conditions (see `_holds`): the flag is `required`, has no effect unless it
      `needs` them (a warning), or is refused unless it `demands` them, because
      what was asked for would not happen.
  """
  return dataclasses.field(default=default, metadata=dict(
      more, text=text, group=group))


def define_flags(*classes, **changes):
  """Defines the flags of settings classes; for a script's `main` alone.

  Args:
    *classes: the classes.
    **changes: name of a field -> its default in this script, or a dict of the
      arguments of `setting` that differ.
  """
  for cls in classes:
    for field in dataclasses.fields(cls):
      change = changes.get(field.name, {})
      if not isinstance(change, dict):
        change = dict(default=change)
      _define(field, dict(field.metadata, **dict(
          dict(default=field.default), **change)))


def _define(field, meta):
  name, default, text = field.name, meta["default"], meta["text"]
  if meta.get("choices"):
    flags.DEFINE_enum(name, default, meta["choices"], text,
                      case_sensitive=False)
  elif field.type in (int, float):
    define = {int: flags.DEFINE_integer, float: flags.DEFINE_float}[field.type]
    define(name, default, text, lower_bound=meta.get("least"),
           upper_bound=meta.get("most"))
  else:
    {bool: flags.DEFINE_bool, str: flags.DEFINE_string,
     list: flags.DEFINE_list,  # a,b
     tuple: flags.DEFINE_multi_string,  # given several times
     }[field.type](name, default, text)
  flags.FLAGS[name].setting = meta
  if meta.get("alias"):
    flags.DEFINE_alias(meta["alias"], name)


def own_flags():
  """Returns the flags that are settings, in the order of their definition."""
  return [flag for module in flags.FLAGS.flags_by_module_dict().values()
          for flag in module if hasattr(flag, "setting")]


def _value(name):
  return flags.FLAGS[name].value if name in flags.FLAGS else None


def _holds(condition):
  """Returns whether a condition holds, such as "a and not b or c=value"."""
  def term_holds(term):
    name, _, wanted = term.replace("not ", "").partition("=")
    value = _value(name)
    return (str(value) == wanted if wanted else bool(value)) != (
        term.startswith("not "))

  return any(all(map(term_holds, terms.split(" and ")))
             for terms in condition.split(" or "))


def _as_flags(condition):
  """Returns a condition of the flags of this script: "--a and --b"."""
  known = [terms for terms in condition.split(" or ") if all(
      name in flags.FLAGS
      for name in re.findall(r"(\w+)(?:=\S+)?(?: and |$)", terms))]
  return re.sub(r"\b(?!and\b|or\b|not\b)(?<!=)(\w+)", r"--\1",
                " or ".join(known))


def requirement(flag):
  """Returns when a flag is required: " (required if --a)", or ""."""
  required = flag.setting.get("required")
  if not required:
    return ""
  return " (required)" if required is True else (
      " (required if %s)" % _as_flags(required))


def check_flags():
  """Checks the conditions of all flags that are settings; see `setting`.

  Raises:
    InputError: a flag is missing, or contradicts others.
  """
  ours = own_flags()
  given = [flag for flag in ours if flag.present and flag.value]
  missing = [flag for flag in ours if not flag.value and (
      flag.setting.get("required") is True or
      flag.setting.get("required") and _holds(flag.setting["required"]))]
  missing.sort(key=lambda flag: flag.setting["required"] is not True)
  if missing:
    raise InputError("--%s is%s; see --help" % (
        missing[0].name, re.sub("[()]", "", requirement(missing[0]))))
  for flag in given:
    for other in flag.setting.get("instead_of", "").split(" or "):
      if other and flags.FLAGS[other].present:
        raise InputError("give --%s or --%s, not both" % (other, flag.name))
    demands = flag.setting.get("demands")
    if demands and not _holds(demands):
      raise InputError("--%s: no effect without %s" % (
          flag.name, _as_flags(demands)))
  idle = {}
  for flag in given:
    needs = flag.setting.get("needs")
    if needs and not _holds(needs):
      idle.setdefault(needs, []).append("--" + flag.name)
  for needs, names in idle.items():
    logging.warning("%s: no effect without %s", ", ".join(names),
                    _as_flags(needs))


def warn_if_given(name, need):
  """Warns of a flag that was given though what it needs, a str, is missing."""
  if flags.FLAGS[name].present and flags.FLAGS[name].value:
    logging.warning("--%s: no effect without %s", name, need)


def from_flags(cls):
  """Returns the object of a settings class that the flags give.

  Fields that are settings classes too are read as well; None if their flags are
  not the script's.
  """
  values = {}
  for field in dataclasses.fields(cls):
    if dataclasses.is_dataclass(field.type):
      parts = dataclasses.fields(field.type)
      values[field.name] = from_flags(field.type) if parts[0].name in (
          flags.FLAGS) else None
    elif field.name in flags.FLAGS:
      values[field.name] = _value(field.name)
  return cls(**values)
