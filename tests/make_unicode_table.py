"""Prints the table of albert/characters.py: what is newer than Unicode 11.

    python3.7 tests/make_unicode_table.py >old.json
    python3.11 tests/make_unicode_table.py old.json

The first one writes what its interpreter knows of all characters, the second
one what is new or different in its own.
"""

import json
import pathlib
import pprint
import sys
import unicodedata


def known():
  """Returns dict, code point -> [kind (Mn, Cf, P or ""), whether it combines,
  lower case, canonical decomposition, compatible decomposition]."""
  found = {}
  for code, char in enumerate(map(chr, range(0x110000))):
    category = unicodedata.category(char)
    if category not in ("Cn", "Cs"):
      found[code] = [
          category if category in ("Mn", "Cf") else
          "P" if category[0] == "P" else "", bool(unicodedata.combining(char)),
          char.lower(), *(unicodedata.normalize(form, char)
                          for form in ("NFD", "NFKD"))]
  return found


def ranges(codes):
  """Returns code points as text, such as "898-89f b55"."""
  found = []
  for code in codes:
    if found and found[-1][-1] == code - 1:
      found[-1] = [found[-1][0], code]
    else:
      found.append([code])
  return " ".join("-".join(map("{:x}".format, part)) for part in found)


def main(path):
  old = json.loads(pathlib.Path(path).read_text())
  new = known()
  print("# Unicode", unicodedata.unidata_version)

  def before(code):
    return old.get(str(code), ["", False] + [chr(code)] * 3)

  def show(name, text):
    print(name, "=", pprint.pformat(text, width=76))

  for name, kind in (("MARKS", "Mn"), ("FORMATS", "Cf"),
                     ("PUNCTUATION", "P"), ("OTHERS", "")):
    show(name, ranges(code for code, values in new.items()
                      if values[0] == kind != before(code)[0]))
  show("COMBINING", ranges(code for code, values in new.items()
                           if values[1] and not before(code)[1]))
  for place, name in ((2, "LOWER"), (3, "NFD"), (4, "NFKD")):
    show(name, " ".join(
        "%x:%s" % (code, ",".join("%x" % ord(char) for char in values[place]))
        for code, values in new.items()
        if values[place] != before(code)[place]))


if __name__ == "__main__":
  if sys.argv[1:]:
    main(sys.argv[1])
  else:
    json.dump(known(), sys.stdout)
