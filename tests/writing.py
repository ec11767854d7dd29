"""What tests write for others to read."""

import json


def write(folder, name, *rows):
  """Writes a file of rows, text or what becomes JSON; returns its URL."""
  path = folder / name
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes("\n".join(
      row if isinstance(row, str) else json.dumps(row) for row in rows).encode(
          errors="surrogateescape"))
  return "file://%s" % path
