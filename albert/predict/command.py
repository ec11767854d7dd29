"""Predicts with a model; its folder determines the task.

    python predict.py --model_dir=output/my_task/best 这部电影真好看
    python predict.py --model_dir=output/cluener/best --input_file=texts.txt \\
      --output_file=entities.jsonl
    python predict.py --model_dir=output/cmrc/best --question=谁写了红楼梦 \\
      --input_file=passage.txt
    python predict.py 我[MASK]知道他在哪里。

A classifier returns labels with probabilities, a regression model a number, an
NER model entities with their offsets, a QA model a span of the passage, a
multiple-choice model a choice, a pretrained model the tokens for [MASK]. Prints
one line per text: result and text, separated by tabs, or JSON or CSV (see
--format). A file is .csv or .tsv with a header, .jsonl, or has one text per
line, or a pair (question and passage; passage, question and choices) separated
by tabs. All its columns are kept; blank rows get an empty answer.
"""

import csv
import dataclasses
import io
import itertools
import json
from typing import (
  Any,
  Callable,
  Dict,
  Iterable,
  Iterator,
  List,
  Optional,
  Tuple,
)

from absl import logging

from albert import cli, progress
from albert.errors import InputError
from albert.files import filesystem, tables
from albert.model_folder import FolderSettings
from albert.predict import engines, inputs, predictors, results
from albert.settings import NEEDED, USUAL, from_flags, setting

_CHUNK = 1024  # inputs in memory at a time


@dataclasses.dataclass(frozen=True)
class TextSettings:
  """The model, the texts and the output format."""

  model_dir: str = setting(
    "albert_tiny_starter",
    "Model folder, such as the `best` of a fine-tuning run.",
    NEEDED,
  )
  question: str = setting(
    None,
    "Question about the passages: the texts given as arguments, or all "
    "of --input_file.",
    USUAL,
  )
  choices: list = setting(
    None,
    "Answer choices for --question, or candidate idioms for #idiom# in "
    "the texts.",
    USUAL,
  )
  input_file: str = setting(
    None, "Texts; default, without texts as arguments: standard input.", USUAL
  )
  output_file: str = setting(
    None, "Output file; default: standard output.", USUAL
  )
  columns: list = setting(
    None, "Column names of a .csv or .tsv without a header."
  )
  encoding: str = setting("utf-8", "Encoding of --input_file, such as gb18030.")
  format: str = setting(
    None,
    "Readable table, JSON lines or CSV; default: by the extension of "
    "--output_file.",
    USUAL,
    choices=["table", "jsonl", "csv"],
  )
  top_k: int = setting(5, "Maximum number of candidates.", USUAL, least=1)


SETTINGS = (
  TextSettings,
  engines.EngineSettings,
  predictors.PredictSettings,
  FolderSettings,
)


def find_inputs(
  args: TextSettings,
  arguments: List[str],
  fields: Tuple[str, ...],
  reading: Optional[Dict[str, Any]] = None,
) -> Iterator[inputs.Item]:
  """Yields the inputs of a model; see `predictors.Predictor`."""
  if arguments and args.input_file:
    raise InputError("give texts or --input_file, not both")
  given = {
    name: getattr(args, name)
    for name in ("question", "choices")
    if getattr(args, name) is not None
  }
  if given:
    texts = arguments or [
      "\n".join(tables.read_texts(args.input_file, args.encoding))
    ]
    found = inputs.with_given(texts, given, fields)
  elif arguments:
    found = inputs.from_arguments(arguments, fields)
  else:
    yield from inputs.read(
      args.input_file,
      fields,
      tables.TableSettings(columns=args.columns, encoding=args.encoding),
      reading,
    )
    return
  for number, values in enumerate(found, 1):
    yield inputs.Item(
      values, dict(zip(fields, inputs.as_tuple(values))), "input %d" % number
    )


def predict(
  model: predictors.Predictor, items: Iterable[inputs.Item], top_k: int
) -> Iterator[Tuple[inputs.Item, Any]]:
  """Yields each input with its result, None for a blank row.

  Raises:
    InputError: an input does not fit the model; the message says where it is.
  """
  items = iter(items)
  for chunk in iter(lambda: list(itertools.islice(items, _CHUNK)), []):
    known = [item for item in chunk if item.values is not None]
    try:
      found = iter(model.predict([item.values for item in known], top_k))
    except predictors.BadInput as error:
      raise InputError(
        "%s: %s" % (known[error.number - 1].where, error.problem)
      ) from error
    for item in chunk:
      yield item, None if item.values is None else next(found)


def table_line(item: inputs.Item, found: Any) -> str:
  """Returns a line: the cells of the result, then those of the row."""
  if found is None:
    return "\n"
  cells = found.cells() + [
    " | ".join(part) if isinstance(part, list) else str(part)
    for part in item.row.values()
  ]
  return "\t".join(" ".join(cell.split()) for cell in cells) + "\n"


def json_line(item: inputs.Item, found: Any) -> str:
  """Returns the row and the result as one JSON object."""
  return (
    json.dumps(dict(item.row, **_result(item.row, found)), ensure_ascii=False)
    + "\n"
  )


def _result(row, found):
  """Returns the JSON of a result, under names that the row does not have."""
  values = {} if found is None else results.to_json(found)
  return {
    key + "_predicted" * (key in row): value for key, value in values.items()
  }


def _cell(value):
  """Returns a cell of CSV; a missing value is empty."""
  if value is None:
    return ""
  return (
    value
    if isinstance(value, (str, int, float))
    else json.dumps(value, ensure_ascii=False)
  )


class _CsvLines:
  """Writes CSV with a header: the columns of the row, then of the result.

  The first result determines the header; earlier blank rows are held back.
  """

  def __init__(self):
    self._names = None
    self._waiting = []

  def __call__(self, item, found):
    row = {
      key: _cell(value)
      for key, value in dict(item.row, **_result(item.row, found)).items()
      if key != "candidates"
    }
    self._waiting.append(row)
    if self._names is None and found is None:
      return ""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    if self._names is None:
      self._names = list(row)
      writer.writerow(self._names)
    for row in self._waiting:
      other = sorted(set(row) - set(self._names))
      if other:
        raise InputError(
          "%s: the first row determines the columns and has no "
          "%s: write .jsonl instead" % (item.where, other[0])
        )
      writer.writerow([row.get(name, "") for name in self._names])
    self._waiting = []
    return lines.getvalue()


def format_of(args: TextSettings) -> str:
  """Returns the output format: the given one, or by the extension."""
  kind = tables.kind_of(args.output_file)
  return args.format or {"csv": "csv", "json": "jsonl"}.get(kind, "table")


def main(arguments: List[str]) -> None:
  args = from_flags(TextSettings)
  model = predictors.load(
    args.model_dir,
    from_flags(engines.EngineSettings),
    from_flags(FolderSettings),
    from_flags(predictors.PredictSettings),
  )
  formats: Dict[str, Callable[[inputs.Item, Any], str]] = {
    "csv": _CsvLines(),
    "jsonl": json_line,
    "table": table_line,
  }
  to_line = formats[format_of(args)]
  items = find_inputs(args, arguments, model.fields, model.reading)
  total = tables.count_lines(args.input_file) if args.input_file else 0
  shown = progress.Progress("texts")
  number = count = 0
  with filesystem.text_writer(args.output_file) as writer:
    for number, (item, found) in enumerate(
      predict(model, items, args.top_k), 1
    ):
      writer.write(to_line(item, found))
      count += found is not None
      shown.log(number, total and min(1.0, number / total))
    if not count:
      raise InputError(
        "%s: has no texts" % (args.input_file or "standard input")
      )
  if number > count:
    logging.info(
      "%d of %d rows have no text and get an empty answer",
      number - count,
      number,
    )


def run() -> None:
  """Runs `predict.py`, installed as `albert-predict`."""
  cli.run(main, SETTINGS, takes_arguments=True, description=__doc__)
