"""Writers of input files and checkpoints."""

import json

import numpy as np

from albert.files import checkpoints


def write(folder, name, *rows):
  """Writes a file of rows, as text or JSON; returns its URL."""
  path = folder / name
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(
    "\n".join(
      row if isinstance(row, str) else json.dumps(row) for row in rows
    ).encode(errors="surrogateescape")
  )
  return "file://%s" % path


def write_checkpoint(folder, step, value=0.0):
  """Writes a checkpoint of one variable, "x"."""
  checkpoints.write_checkpoint(
    str(folder), "model.ckpt-%d" % step, {"x": np.float32(value)}
  )
