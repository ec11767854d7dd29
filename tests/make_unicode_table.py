"""Prints the tables of albert/characters.py: changes since Unicode 11.

    python3.7 tests/make_unicode_table.py >old.json
    python3.11 tests/make_unicode_table.py old.json

The first command dumps the character data of its interpreter, the second prints
what is new or different in its own.
"""

import json
import pprint
import re
import sys
import unicodedata


def ranges(codes):
  """Formats code points as ranges, such as "898-89f b55"."""
  found = []
  for code in codes:
    is_next = found and found[-1][-1] == code - 1
    found.append([found.pop()[0], code] if is_next else [code])
  return " ".join("-".join(map("{:x}".format, part)) for part in found)


# Code point -> category (Mn, Cf, P or ""), whether it combines, lower case,
# canonical decomposition, compatibility decomposition.
known = {
  str(ord(char)): [
    re.match("Mn|Cf|P|", unicodedata.category(char)).group(),
    bool(unicodedata.combining(char)),
    char.lower(),
    unicodedata.normalize("NFD", char),
    unicodedata.normalize("NFKD", char),
  ]
  for char in map(chr, range(0x110000))
  if unicodedata.category(char) not in ("Cn", "Cs")
}
if not sys.argv[1:]:
  sys.exit(json.dump(known, sys.stdout))
with open(sys.argv[1]) as reader:
  old = json.load(reader)
print("# Unicode", unicodedata.unidata_version)
changes = [
  (int(code), old.get(code, ["", False] + [chr(int(code))] * 3), now)
  for code, now in known.items()
]
tables = {
  name: ranges(
    code for code, before, now in changes if now[0] == kind != before[0]
  )
  for name, kind in (
    ("MARKS", "Mn"),
    ("FORMATS", "Cf"),
    ("PUNCTUATION", "P"),
    ("OTHERS", ""),
  )
}
tables["COMBINING"] = ranges(
  code for code, before, now in changes if now[1] and not before[1]
)
for place, name in ((2, "LOWER"), (3, "NFD"), (4, "NFKD")):
  tables[name] = " ".join(
    "%x:%s" % (code, ",".join("%x" % ord(char) for char in now[place]))
    for code, before, now in changes
    if now[place] != before[place]
  )
for name, text in tables.items():
  print(name, "=", pprint.pformat(text, width=76))
