"""Reading tables in common formats; errors."""

import csv
import gzip
import io
import json
import random

import pytest
from refusals import refused

from albert.files import tables
from albert.files.tables import TableSettings


def read(folder, name, content, **kwargs):
  """Returns each row's values, None if it is blank, or its error, str."""
  path = folder / name
  if not isinstance(content, bytes):
    content = content.encode()
    if name.endswith(".gz"):
      content = gzip.compress(content)
  path.write_bytes(content)
  return [
    None if row.is_blank else row.error or row.values
    for row in tables.read(str(path), **kwargs)
  ]


AB = [{"a": "甲", "b": "乙"}]


@pytest.mark.parametrize(
  "name, content, rows",
  [
    (
      "a.csv",
      'id,text\r\n7,"大,好""静"""\r\n8,"早\n不好"\r\n\r\n9,\r\n',
      [
        {"id": "7", "text": '大,好"静"'},
        {"id": "8", "text": "早\n不好"},
        None,
        {"id": "9", "text": ""},
      ],
    ),
    ("A.CSV", "\ufeffa,b\n甲,乙\n", AB),
    ("a.csv.gz", "a,b\n甲,乙\n", AB),
    ("a.tsv", "a\tb\n甲\t乙", AB),
    ("a.tsv", "a\tb\n甲\n", ["expected 2 columns (a, b), found 1"]),
    ("a.tsv", "text\n好\n \n坏\n", [{"text": "好"}, None, {"text": "坏"}]),
    # CSV quoting, if every opening quote is closed.
    ("a.tsv", 'text\tb\n"早\n好"\t1\n', [{"text": "早\n好", "b": "1"}]),
    ("a.tsv", 'text\tb\n"好" 他说\t"1"\n', [{"text": '"好" 他说', "b": '"1"'}]),
    (
      "a.tsv",
      'b\ttext\n1\t"你好\n0\t再见"\n',
      [{"b": "1", "text": '"你好'}, {"b": "0", "text": '再见"'}],
    ),
    ("a.txt", 'text\n"好"\n', [{"text": '"好"'}]),
    ("a.jsonl", '\ufeff{"a": "甲", "b": "乙"}\n', AB),
    ("a.json", '\n[\n {"a": "甲",\n"b": "乙"}\n]\n', AB),
    (
      "a.jsonl",
      '{"a": NaN}\n\n{"a": null}\n',
      [{"a": None}, None, {"a": None}],
    ),
    (
      "a.jsonl",
      '{"a": 1, "a": 2}\n[]\n{\n' + "[" * 9**5 + "\n",
      [
        "not JSON (duplicate key 'a')",
        "not a JSON object",
        "not JSON (Expecting property name enclosed in double quotes: line 2 "
        "column 1 (char 2))",
        "not JSON (nested too deeply)",
      ],
    ),
  ],
)
def test_tables(name, content, rows, tmp_path):
  assert read(tmp_path, name, content) == rows


GBK = "房间很大，早餐不好".encode("gb18030")


@pytest.mark.parametrize(
  "name, content, message",
  [
    ("a.csv", "a;b\n1;2\n", ":1: .*commas"),
    ("a.csv", 'a,b\n"1,2\n', ":2: invalid CSV quotes"),
    ("a.tsv", "a\ta\n", ":1: .*duplicate column: a, a"),
    ("a.txt", '{"a": 1}\n', ": .*\\.jsonl"),
    ("a.tsv", '[\n{"a": 1}]\n', ": .*\\.jsonl"),
    ("a.jsonl", "甲\n", ": not JSON: .*甲"),
    ("a.json", "[1, 2", ": not JSON"),
    ("a.txt", GBK, ":1: .*GBK.*--encoding=gb18030.*iconv"),
    ("a.txt", b"a\n\xe4\xff\n", ":2: not UTF-8$"),
    ("a.txt", "a\n".encode("utf-16"), ": UTF-16.*--encoding=utf-16"),
    ("a.csv", b"PK\x03\x04...", ": .*xlsx.*CSV"),
    ("a.csv", b"PAR1...", ": Parquet.*to_csv"),
    ("a.csv", b"\x1f\x8b\x08...", r": gzipped.*\.gz"),
    ("a.csv.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\3K", ": damaged"),
    ("a.csv", b"a\0b", ": .*NUL"),
  ],
)
def test_what_is_refused(name, content, message, tmp_path):
  refused(name + message, read, tmp_path, name, content)


def test_settings(tmp_path):
  for name in ("gb18030", "utf-16"):
    assert (
      read(
        tmp_path,
        "a.txt",
        "a\tb\n甲\t乙\n".encode(name),
        settings=TableSettings(encoding=name),
      )
      == AB
    )
  refused(
    "--encoding=x: ",
    read,
    tmp_path,
    "a.txt",
    "a\n",
    settings=TableSettings(encoding="x"),
  )
  refused(
    "a.txt: not utf-8-sig|a.txt: not ascii",
    read,
    tmp_path,
    "a.txt",
    "甲\n",
    settings=TableSettings(encoding="ascii"),
  )
  named = TableSettings(columns=["b", "a"])  # without a header
  assert read(tmp_path, "a.tsv", "乙\t甲\n", settings=named) == AB
  assert read(tmp_path, "a.csv", "b,a\n乙,甲\n", settings=named) == AB


@pytest.mark.parametrize("seed", range(4))
def test_what_is_written_is_read(seed, tmp_path):
  """By Python's csv and json: 200 tables with quotes, tabs and newlines."""
  rng = random.Random(seed)
  for _ in range(50):
    names = ["text"] + ["c%d" % i for i in range(rng.randrange(1, 6))]
    rows = [
      {
        name: "".join(rng.choices('甲乙a "\t\n,😀\u2028{', k=rng.randrange(9)))
        + "文" * (name == "text")
        for name in names
      }
      for _ in range(9)
    ]  # no text is blank
    for delimiter, name in ((",", "a.csv"), ("\t", "a.tsv")):
      if name == "a.tsv":  # a line may look like a row
        rows = [
          {key: value.replace("\n", " ") for key, value in row.items()}
          for row in rows
        ]
      for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
        text = io.StringIO()
        writer = csv.DictWriter(
          text, names, delimiter=delimiter, quoting=quoting
        )
        writer.writeheader()
        writer.writerows(rows)
        assert read(tmp_path, name, text.getvalue()) == rows
    assert read(tmp_path, "a.json", json.dumps(rows, indent=1)) == rows
    assert read(tmp_path, "a.jsonl", "\n".join(map(json.dumps, rows))) == rows
