"""Settings: small frozen dataclasses whose fields can be flags.

A class declares names, types, defaults and help texts once:

    @dataclasses.dataclass(frozen=True)
    class BatchSettings:
      train_batch_size: int = setting(32, "Examples per training step.")

`define_flags` turns it into flags, `from_flags` turns flags into an instance.
Library functions take instances; `dataclasses.replace` varies them.
"""

import dataclasses
import re
from typing import Any, Dict, List

from absl import flags, logging

from albert.errors import InputError

# Groups of --help, in its order.
NEEDED, USUAL, ADVANCED, TPU = GROUPS = ("needed", "usual", "advanced", "TPU")


def setting(default: Any, text: str, group: str = ADVANCED, **more: Any) -> Any:
  """Returns the field of a settings class.

  Args:
    default: default value.
    text: help text.
    group: one of GROUPS.
    **more: `choices`: list of allowed values; `alias`: another name of the
      flag; `least`, `most`: inclusive limits of a number; `instead_of`: flags
      it excludes, "a or b"; and three conditions (see `_holds`): `required`:
      the flag is required; `needs`: otherwise the flag has no effect, with a
      warning; `demands`: otherwise the flag is an error.
  """
  return dataclasses.field(
    default=default, metadata=dict(more, text=text, group=group)
  )


def define_flags(*classes: type, **changes: Any) -> None:
  """Defines the flags of settings classes; for a script's `main` only.

  Args:
    *classes: settings classes.
    **changes: name of a field -> its default in this script, or a dict of the
      arguments of `setting` that differ.
  """
  for cls in classes:
    for field in dataclasses.fields(cls):
      change = changes.get(field.name, {})
      if not isinstance(change, dict):
        change = dict(default=change)
      _define(
        field,
        dict(field.metadata, **dict(dict(default=field.default), **change)),
      )


_DEFINE = {
  bool: flags.DEFINE_bool,
  str: flags.DEFINE_string,
  list: flags.DEFINE_list,  # a,b
  tuple: flags.DEFINE_multi_string,  # given several times
}


def _define(field, meta):
  name, default, text = field.name, meta["default"], meta["text"]
  if meta.get("choices"):
    flags.DEFINE_enum(
      name, default, meta["choices"], text, case_sensitive=False
    )
  elif field.type in (int, float):
    define = {int: flags.DEFINE_integer, float: flags.DEFINE_float}[field.type]
    define(
      name,
      default,
      text,
      lower_bound=meta.get("least"),
      upper_bound=meta.get("most"),
    )
  else:
    _DEFINE[field.type](name, default, text)
  flags.FLAGS[name].setting = meta
  if meta.get("alias"):
    flags.DEFINE_alias(meta["alias"], name)


def own_flags() -> List[Any]:
  """Returns the absl flags that are settings, in order of definition."""
  return [
    flag
    for module in flags.FLAGS.flags_by_module_dict().values()
    for flag in module
    if hasattr(flag, "setting")
  ]


def _value(name):
  return flags.FLAGS[name].value if name in flags.FLAGS else None


def _holds(condition):
  """Returns whether a condition holds, such as "a and not b or c=value"."""

  def term_holds(term):
    negated = term.startswith("not ")
    name, _, wanted = term.replace("not ", "").partition("=")
    value = _value(name)
    found = str(value) == wanted if wanted else bool(value)
    return found != negated

  return any(
    all(map(term_holds, terms.split(" and ")))
    for terms in condition.split(" or ")
  )


def _as_flags(condition):
  """Returns a condition in flags of this script: "--a and --b"."""
  known = [
    terms
    for terms in condition.split(" or ")
    if all(
      name in flags.FLAGS
      for name in re.findall(r"(\w+)(?:=\S+)?(?: and |$)", terms)
    )
  ]
  return re.sub(
    r"\b(?!and\b|or\b|not\b)(?<!=)(\w+)", r"--\1", " or ".join(known)
  )


def requirement(flag: Any) -> str:
  """Returns when a flag is required: " (required if --a)", or ""."""
  required = flag.setting.get("required")
  if not required:
    return ""
  return (
    " (required)"
    if required is True
    else (" (required if %s)" % _as_flags(required))
  )


def check_flags() -> None:
  """Checks the conditions of all settings; see `setting`.

  Raises:
    InputError: a flag is missing, or flags contradict each other.
  """
  ours = own_flags()
  given = [flag for flag in ours if flag.present and flag.value]
  missing = [
    flag
    for flag in ours
    if not flag.value
    and (
      flag.setting.get("required") is True
      or flag.setting.get("required")
      and _holds(flag.setting["required"])
    )
  ]
  missing.sort(key=lambda flag: flag.setting["required"] is not True)
  if missing:
    raise InputError(
      "--%s is%s; see --help"
      % (missing[0].name, re.sub("[()]", "", requirement(missing[0])))
    )
  for flag in given:
    for other in flag.setting.get("instead_of", "").split(" or "):
      if other and flags.FLAGS[other].present:
        raise InputError("give --%s or --%s, not both" % (other, flag.name))
    demands = flag.setting.get("demands")
    if demands and not _holds(demands):
      raise InputError(
        "--%s has no effect without %s" % (flag.name, _as_flags(demands))
      )
  idle: Dict[str, List[str]] = {}
  for flag in given:
    needs = flag.setting.get("needs")
    if needs and not _holds(needs):
      idle.setdefault(needs, []).append("--" + flag.name)
  for needs, names in idle.items():
    logging.warning(
      "%s: no effect without %s", ", ".join(names), _as_flags(needs)
    )


def warn_if_given(name: str, need: str) -> None:
  """Warns of a given flag that has no effect without `need`."""
  if flags.FLAGS[name].present and flags.FLAGS[name].value:
    logging.warning("--%s has no effect without %s", name, need)


def from_flags(cls: Any) -> Any:
  """Returns an instance of a settings class with the values of the flags.

  Fields that are settings classes are read recursively; they are None if the
  script does not define their flags.
  """
  values = {}
  for field in dataclasses.fields(cls):
    if dataclasses.is_dataclass(field.type):
      parts = dataclasses.fields(field.type)
      values[field.name] = (
        from_flags(field.type) if parts[0].name in (flags.FLAGS) else None
      )
    elif field.name in flags.FLAGS:
      values[field.name] = _value(field.name)
  return cls(**values)
