"""A damaged model folder is read or refused in one line; never a traceback."""

import json
import random
import shutil

import pytest
from small_steps import full

from albert.errors import InputError
from albert.predict import load

VALUES = [
  None,
  True,
  -1,
  0,
  1,
  2.5,
  10**9,
  "",
  "x",
  [],
  {},
  ["x"],
  [1],
  {"x": 1},
  {"x": "y"},
  [[]],
]


def damage(folder, rng):
  """Damages one file; returns what was done, to be read in a failure."""
  path = rng.choice(sorted(x for x in folder.iterdir() if x.is_file()))
  content = path.read_bytes()
  flipped = bytearray(content)
  for _ in range(rng.choice([1, 20])):
    flipped[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
  ways = {
    "removed": None,
    "folder": None,
    "empty": b"",
    "doubled": content * 2,
    "cut": content[: rng.randrange(len(content))],
    "flipped": flipped,
  }
  way = rng.choice([*ways, *["value"] * 6 * (path.suffix == ".json")])
  if way == "value":
    values = json.loads(content)
    key = rng.choice(sorted(values) + ["labels", "head", "max_seq_length"])
    values[key] = rng.choice(VALUES)
    way, ways = "%s = %r" % (key, values[key]), {}
    path.write_text(json.dumps(values))
  elif ways[way] is not None:
    path.write_bytes(ways[way])
  else:
    path.unlink()
    if way == "folder":
      path.mkdir()
  return "%s: %s" % (path.name, way)


@pytest.mark.slow
@pytest.mark.parametrize(
  "kind, count",
  [("labels", 8), full("labels", 60), full("entities", 30), full("spans", 30)],
)
def test_damaged_folders(kind, count, trained, tmp_path):
  rng = random.Random(count)
  model = trained(kind)
  for number in range(count):
    folder = tmp_path / str(number)
    shutil.copytree(str(model.best), str(folder))
    what = damage(folder, rng)
    try:
      load(str(folder)).predict(model.inputs[:2])
    except InputError as error:
      assert "\n" not in str(error), what
    except OSError as error:
      assert error.filename, what
    except Exception as error:
      raise AssertionError("%s: %r" % (what, error)) from error
    shutil.rmtree(str(folder))
