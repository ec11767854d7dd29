"""Tables of examples: CSV, TSV, JSON; the only module that opens them.

    .csv           RFC 4180: quotes, "" for a quote, line ends inside cells
    .tsv           columns separated by tabs, without quotes; with quotes as in
                   CSV if the whole file follows these rules
    .json, .jsonl  one object per line, or an array of objects
    others         as .tsv
Each may be gzipped and end in .gz; case does not matter.
"""

import codecs
import contextlib
import csv
import dataclasses
import gzip
import io
import itertools
import json
import re
import sys
import zlib
from typing import (
  Any,
  Callable,
  Dict,
  Iterable,
  Iterator,
  List,
  NamedTuple,
  Optional,
  Sequence,
)

from absl import logging

from albert.errors import InputError
from albert.files import filesystem
from albert.settings import setting

# The first bytes of files that are not text, and advice.
_BINARY = (
  (b"\xff\xfe", "UTF-16: give --encoding=utf-16, or save it as UTF-8"),
  (b"\xfe\xff", "UTF-16: give --encoding=utf-16, or save it as UTF-8"),
  (
    b"PK\x03\x04",
    "a zip archive or a spreadsheet (.xlsx): unpack it, or "
    "save it as CSV (UTF-8)",
  ),
  (b"\xd0\xcf\x11\xe0", "a spreadsheet (.xls): save it as CSV (UTF-8)"),
  (
    b"PAR1",
    'Parquet: convert it: python -c "import pandas; '
    "pandas.read_parquet('OLD').to_csv('NEW.csv', index=False)\"",
  ),
  (b"\x1f\x8b", "gzipped: its name must end in .gz"),
  (b"BZh", "compressed by bzip2: unpack it"),
  (b"\xfd7zXZ", "compressed by xz: unpack it"),
)
_BAD = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8
_JSON = re.compile(r'\s*[{[]\s*(["{]|$)')
_QUOTED = re.compile('"(?:[^"]|"")*"')
# Common names of columns.
TEXT = (
  "text_a",
  "text",
  "content",
  "sentence",
  "review",
  "sentence1",
  "query",
  "query1",
  "question1",
  "premise",
  "文本",
  "内容",
  "评论",
  "句子",
  "句子1",
  "标题",
  "title",
)
SECOND = ("text_b", "sentence2", "query2", "question2", "hypothesis", "句子2")
LABEL = (
  "label",
  "labels",
  "category",
  "class",
  "target",
  "sentiment",
  "score",
  "标签",
  "类别",
  "分类",
  "情感",
)


@dataclasses.dataclass(frozen=True)
class ReadSettings:
  """How to read files."""

  encoding: str = setting("utf-8", "Encoding of the files, such as gb18030.")
  skip_bad_rows: bool = setting(
    False,
    "Skip and count bad rows of the training and dev files; in the "
    "test file, they are errors.",
    needs="do_train or do_eval",
  )
  max_bad_rows: float = setting(
    0.1,
    "--skip_bad_rows: maximum share of a file.",
    least=0.0,
    most=1.0,
    needs="skip_bad_rows",
  )


@dataclasses.dataclass(frozen=True)
class TableSettings(ReadSettings):
  """How to read tables."""

  columns: list = setting(
    None, "Column names of files without a header, such as label,text_a."
  )
  id_field: str = setting(
    None, "Column or JSON key of the id; default: id or index."
  )
  label_separator: str = setting(
    "|", "--multi_label: separator of labels, such as a comma."
  )


LINE = "\n"  # the column of a text file; no table can have this name


class Row(NamedTuple):
  """A row of a table.

  Attributes:
    values: column -> str, or JSON value.
    where: str, file and line, for messages.
    error: the problem of a bad row, otherwise None.
    is_blank: whether the row is empty.
  """

  values: Dict[str, Any]
  where: str
  error: Optional[str] = None
  is_blank: bool = False


class Skipped:
  """The bad rows of a file.

  Args:
    path: the file.
    settings: whether to skip them, and how many.
    is_test: whether not to skip any.
  """

  def __init__(self, path: str, settings: ReadSettings, is_test: bool = False):
    self._path = path
    self._settings = settings
    self._is_test = is_test
    self._may_skip = settings.skip_bad_rows and not is_test
    self._messages: List[str] = []

  def add(self, where: str, error: ValueError) -> None:
    """Counts a bad row, or raises an InputError if it may not be skipped."""
    message = "%s: %s" % (where, error)
    if not self._may_skip:
      raise InputError(
        message + ("" if self._is_test else "; --skip_bad_rows skips such rows")
      ) from error
    self._messages.append(message)

  def report(self, count: int) -> None:
    """Logs the bad rows, given the number of good ones.

    Raises:
      InputError: there are too many.
    """
    bad = len(self._messages)
    if bad > self._settings.max_bad_rows * (count + bad):
      raise InputError(
        "%s: %d of %d rows are bad, more than --max_bad_rows=%g; the first: "
        "%s"
        % (
          self._path,
          bad,
          count + bad,
          self._settings.max_bad_rows,
          self._messages[0],
        )
      )
    if bad:
      logging.warning(
        "%s: skipped %d bad row(s), the first: %s",
        self._path,
        bad,
        self._messages[0],
      )


def kind_of(path: Optional[str]) -> str:
  """Returns "csv", "tsv", "json" or "txt", by the file's extension."""
  name = re.sub(r"\.gz$", "", (path or "").lower())
  ending = name.rsplit(".", 1)[-1]
  return {"csv": "csv", "tsv": "tsv", "json": "json", "jsonl": "json"}.get(
    ending, "txt"
  )


def read(
  path: Optional[str],
  settings: Optional[TableSettings] = None,
  header: Optional[Callable[[List[str]], Sequence[str]]] = None,
  may_be_quoted: bool = True,
  as_lines: bool = False,
) -> Iterator[Row]:
  """Reads a table.

  Args:
    path: path of the file; None for standard input.
    settings: TableSettings.
    header: function of the cells of the first row that returns the names of the
      columns: these cells, or others if the first row is data. By default, the
      first row is the header.
    may_be_quoted: whether a .tsv may have quotes as in CSV.
    as_lines: whether files that are neither CSV, TSV nor JSON have one text per
      line, LINE, instead of columns.

  Yields:
    Row, including blank rows.

  Raises:
    InputError: the file is not such a table.
  """
  settings = settings or TableSettings()
  name, kind = path or "standard input", kind_of(path)
  with open_text(path, settings.encoding) as lines:
    first, lines = peek(lines)
    begin = first.lstrip()[:1]
    if not path and _JSON.match(first):
      kind = "json"
    if kind == "json" and begin not in ("", "{", "["):
      raise InputError(
        "%s: not JSON: it begins with %r" % (name, first.strip()[:40])
      )
    if kind != "json" and _JSON.match(first):
      raise InputError("%s: looks like JSON: rename it to .jsonl" % name)
    if kind == "json":
      yield from json_rows(lines, name)
      return
    if kind == "txt" and as_lines:
      yield from _text_rows(lines, name)
      return
    if kind == "csv":
      cells = _quoted_cells(lines, name, ",")
      if "," not in first and re.search("[;\t]", first):
        raise InputError("%s:1: columns are not separated by commas" % name)
    elif (
      kind == "tsv" and may_be_quoted and _is_quoted(path, settings.encoding)
    ):
      logging.info("%s: has quotes as in CSV; they are removed", name)
      cells = _quoted_cells(lines, name, "\t")
    else:
      cells = (
        (number, line.rstrip("\r\n").split("\t") if line.strip() else [])
        for number, line in enumerate(lines, 1)
      )
    yield from _rows(cells, name, settings.columns, header)


def read_json(path: str, encoding: str = "utf-8") -> Any:
  """Returns the content of a JSON file; of JSON lines, a list of objects.

  Raises:
    InputError: it is neither, or has a duplicate key.
  """
  with open_text(path, encoding) as lines:
    text = "".join(lines)
  try:
    return _load(text)
  except ValueError as error:
    rows = [row for row in _objects(text.split("\n"), path) if not row.is_blank]
    bad = next((row for row in rows if row.error), None)
    if not bad:
      return [row.values for row in rows]
    if bad is rows[0]:  # not lines
      raise InputError("%s: not JSON (%s)" % (path, error)) from error
    raise InputError("%s: %s" % (bad.where, bad.error)) from error


def read_texts(path: Optional[str], encoding: str = "utf-8") -> Iterator[str]:
  """Yields the lines of a text file, or of standard input, without line ends.

  A few bytes that are not UTF-8 become U+FFFD.

  Raises:
    InputError: the file is not text in this encoding.
  """
  with open_text(path, encoding) as lines:
    for row in _text_rows(lines, path or "standard input"):
      yield row.values.get(LINE, "")


def read_lines(path: Optional[str], encoding: str = "utf-8") -> List[str]:
  """Returns the lines of a text file; see `read_texts`."""
  return list(read_texts(path, encoding))


def _text_rows(lines, name):
  count = bad = 0
  for line in lines:
    text = _BAD.sub("\ufffd", line)
    count += 1
    bad += text != line
    yield Row(
      {LINE: text.rstrip("\r\n")},
      "%s:%d" % (name, count),
      is_blank=not text.strip(),
    )
  filesystem.check_encoding(name, count, bad)


def count_lines(path: str) -> int:
  """Returns the number of lines of a file; 0 if it is gzipped."""
  if path.lower().endswith(".gz"):
    return 0
  with filesystem.open_binary(path) as reader:
    chunks = iter(lambda: reader.read(1 << 20), b"")
    return sum(chunk.count(b"\n") for chunk in chunks) or 1


def find_column(
  names: Iterable[str], columns: Sequence[str], synonyms: Sequence[str]
) -> Optional[str]:
  """Returns the first of `names` among the columns, else the only synonym.

  Args:
    names: names to look for, in order.
    columns: the columns of a table.
    synonyms: lower-case names; see TEXT, SECOND, LABEL.
  """
  for name in names:
    if name in columns:
      return name
  found = [column for column in columns if column.strip().lower() in synonyms]
  return found[0] if len(found) == 1 else None


@contextlib.contextmanager
def open_text(path: Optional[str], encoding: str = "utf-8"):
  """Opens a text file, or standard input, for reading line by line.

  Lines keep their ends; only "\\n" ends a line. Bytes that are not UTF-8 become
  surrogates; a byte-order mark is dropped.

  Raises:
    InputError: the file is of a different kind or encoding.
  """
  name = path or "standard input"
  reader: Any = filesystem.open_binary(path) if path else sys.stdin.buffer
  if name.lower().endswith(".gz"):
    reader = gzip.open(reader)
  is_utf8 = encoding.lower().replace("_", "-") in ("utf-8", "utf8")
  try:
    if is_utf8:
      if not hasattr(reader, "peek"):
        reader = io.BufferedReader(reader)
      _check_head(reader.peek(1), name)
    text = io.TextIOWrapper(
      reader,
      "utf-8-sig" if is_utf8 else encoding,
      newline="\n",
      errors="surrogateescape" if is_utf8 else "strict",
    )
    try:
      yield text
    finally:
      text.detach()
  except LookupError as error:
    raise InputError("--encoding=%s: unknown encoding" % encoding) from error
  except UnicodeDecodeError as error:
    raise InputError("%s: not %s (%s)" % (name, encoding, error)) from error
  except (EOFError, zlib.error) as error:
    raise InputError("%s: damaged (%s)" % (name, error)) from error
  finally:
    if path:
      reader.close()


def _check_head(head, name):
  """Refuses a file that is not UTF-8, judging by its first bytes."""
  for begin, what in _BINARY:
    if head.startswith(begin):
      raise InputError("%s: %s" % (name, what))
  if b"\0" in head:
    raise InputError("%s: not text: it has NUL bytes" % name)
  lines = head.split(b"\n")
  numbered = [
    (number, line)
    for number, line in enumerate(lines[:-1] or lines, 1)
    if max(line, default=0) > 127
  ]
  bad = [(number, line) for number, line in numbered if not _is(line, "utf-8")]
  if bad and len(bad) > len(numbered) / 2:
    is_gbk = all(_is(line, "gb18030") for _, line in bad)
    raise InputError(
      "%s:%d: not UTF-8%s"
      % (
        name,
        bad[0][0],
        ", but GBK: give --encoding=gb18030, or " + filesystem.CONVERT
        if is_gbk
        else "",
      )
    )


def _is(line, encoding):
  """Returns whether a line, or its beginning, is in this encoding."""
  try:
    codecs.getincrementaldecoder(encoding)().decode(line)
  except UnicodeDecodeError:
    return False
  return True


def peek(lines):
  """Returns the first non-blank line, or "", and all lines again."""
  seen = []
  for line in lines:
    seen.append(line)
    if line.strip():
      return line, itertools.chain(seen, lines)
  return "", iter(seen)


def json_rows(lines: Iterable[str], name: str) -> Iterator[Row]:
  """Yields the Rows of JSON: an array of objects, or one object per line."""
  first, lines = peek(lines)
  is_array = first.lstrip().startswith("[")
  yield from (_array if is_array else _objects)(lines, name)


def _objects(lines, name):
  """Yields the Rows of JSON lines."""
  for number, line in enumerate(lines, 1):
    where = "%s:%d" % (name, number)
    if not line.strip():
      yield Row({}, where, is_blank=True)
      continue
    try:
      yield _row(_load(line), where)
    except ValueError as error:
      yield Row({}, where, "not JSON (%s)" % error)


def _array(lines, name):
  """Yields the Rows of a JSON array of objects."""
  try:
    content = _load("".join(lines))
  except ValueError as error:
    raise InputError("%s: not JSON (%s)" % (name, error)) from error
  for number, values in enumerate(content, 1):
    yield _row(values, "%s, row %d" % (name, number))


def _row(values, where):
  if not isinstance(values, dict):
    return Row({}, where, "not a JSON object")
  return Row(values, where)


def _load(text):
  """Parses JSON; NaN becomes None, because it stands for a missing value."""
  if _BAD.search(text):
    raise ValueError("not UTF-8")
  try:
    return json.loads(
      text, object_pairs_hook=_unique, parse_constant=lambda _: None
    )
  except RecursionError as error:
    raise ValueError("nested too deeply") from error


def _unique(pairs):
  values = dict(pairs)
  if len(values) < len(pairs):
    keys = [key for key, _ in pairs]
    raise ValueError(
      "duplicate key %r" % next(key for key in keys if keys.count(key) > 1)
    )
  return values


def _quoted_cells(lines, name, delimiter):
  """Yields (line, cells) of a table with quotes as in CSV."""
  csv.field_size_limit(2**31 - 1)
  reader = csv.reader(lines, delimiter=delimiter, strict=True)
  number = 1
  try:
    for cells in reader:
      yield number, cells
      number = reader.line_num + 1
  except csv.Error as error:
    raise InputError(
      "%s:%d: invalid CSV quotes (%s)" % (name, number, error)
    ) from error


def _is_quoted(path, encoding):
  """Returns whether cells between tabs that begin with a quote are CSV's.

  If both readings are possible, plain lines win.
  """
  has_quotes, is_whole, counts = False, True, set()
  with open_text(path, encoding) as lines:
    for line in lines:
      cells = line.rstrip("\r\n").split("\t")
      counts.add(len(cells))
      quoted = [cell for cell in cells if cell.startswith('"')]
      has_quotes = has_quotes or bool(quoted)
      is_whole = is_whole and all(map(_QUOTED.fullmatch, quoted))
  if is_whole:
    return has_quotes
  return len(counts) > 1 and _is_table(path, encoding)


def _is_table(path, encoding):
  """Returns whether all rows have the same length when read with quotes."""
  try:
    with open_text(path, encoding) as lines:
      return (
        len(
          {len(cells) for _, cells in _quoted_cells(lines, path, "\t") if cells}
        )
        == 1
      )
  except InputError:
    return False


def _rows(numbered, name, columns, header):
  """Yields Rows of (line, cells), the first of which may be a header."""
  expected = None
  for number, cells in numbered:
    where = "%s:%d" % (name, number)
    if not any(cell.strip() for cell in cells):
      yield Row({}, where, is_blank=True)
      continue
    if expected is None:
      try:
        expected = columns or (header(cells) if header else cells)
      except ValueError as error:
        raise InputError("%s: the header has %s" % (where, error)) from error
      if expected == cells:
        if len(set(cells)) < len(cells):
          raise InputError(
            "%s: the header has a duplicate column: %s"
            % (where, ", ".join(cells))
          )
        continue
    problem = None
    if any(map(_BAD.search, cells)):
      problem = "not UTF-8"
    elif len(cells) != len(expected):
      problem = "expected %d columns (%s), found %d" % (
        len(expected),
        ", ".join(expected),
        len(cells),
      )
    yield Row({} if problem else dict(zip(expected, cells)), where, problem)
