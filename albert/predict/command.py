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
one line per text: result and text, separated by tabs, or JSON (see --format). A
file has one text per line, or a pair (question and passage; passage, question
and choices) separated by tabs; .tsv files have a header, .jsonl files objects.
"""

import dataclasses
import json
from typing import Any, List, Sequence, Tuple

from albert import cli
from albert.errors import InputError
from albert.files import filesystem
from albert.model_folder import FolderSettings
from albert.predict import engines, inputs, predictors, results
from albert.settings import NEEDED, USUAL, from_flags, setting


@dataclasses.dataclass(frozen=True)
class TextSettings:
  """The model, the texts and the output format."""
  model_dir: str = setting(
      "albert_tiny_starter", "Model folder, such as the `best` of a "
      "fine-tuning run.", NEEDED)
  question: str = setting(
      None, "Question about the passages: the texts given as arguments, or all "
      "of --input_file.", USUAL)
  choices: list = setting(
      None, "Answer choices for --question, or candidate idioms for #idiom# in "
      "the texts.", USUAL)
  input_file: str = setting(
      None, "Texts; default, without texts as arguments: standard input.",
      USUAL)
  output_file: str = setting(
      None, "Output file; default: standard output.", USUAL)
  format: str = setting(
      None, "Readable table or JSON lines; default: by the extension of "
      "--output_file.", USUAL, choices=["table", "jsonl"])
  top_k: int = setting(
      5, "Maximum number of candidates.", USUAL, least=1)


SETTINGS = (TextSettings, engines.EngineSettings, predictors.PredictSettings,
            FolderSettings)


def find_inputs(args: TextSettings, arguments: List[str],
                fields: Tuple[str, ...]) -> List[Any]:
  """Returns the inputs of a model; see `predictors.Predictor.fields`."""
  if arguments and args.input_file:
    raise InputError("give texts or --input_file, not both")
  given = {name: getattr(args, name) for name in ("question", "choices")
           if getattr(args, name) is not None}
  if given:
    texts = arguments or ["\n".join(filesystem.read_lines(args.input_file))]
    return inputs.with_given(texts, given, fields)
  if arguments:
    return inputs.from_arguments(arguments, fields)
  return inputs.read(args.input_file, fields)


def table_line(parts: Sequence[Any], found: Any) -> str:
  """Returns a table row: cells of the result, then those of the input."""
  cells = found.cells() + [
      " | ".join(part) if isinstance(part, list) else part for part in parts]
  return "\t".join(" ".join(cell.split()) for cell in cells)


def json_line(fields: Tuple[str, ...], parts: Sequence[Any],
              found: Any) -> str:
  """Returns the input and the result as one JSON object."""
  return json.dumps(dict(zip(fields, parts), **results.to_json(found)),
                    ensure_ascii=False)


def main(arguments: List[str]) -> None:
  args = from_flags(TextSettings)
  model = predictors.load(
      args.model_dir, from_flags(engines.EngineSettings),
      from_flags(FolderSettings),
      from_flags(predictors.PredictSettings))
  rows = find_inputs(args, arguments, model.fields)
  as_json = args.format == "jsonl"
  if not args.format and args.output_file:
    as_json = args.output_file.endswith((".json", ".jsonl"))
  lines = []
  for row, found in zip(rows, model.predict(rows, args.top_k)):
    parts = (row,) if isinstance(row, str) else row
    lines.append(json_line(model.fields, parts, found) if as_json
                 else table_line(parts, found))
  text = "".join(line + "\n" for line in lines)
  if args.output_file:
    filesystem.write_text(args.output_file, text)
  else:
    print(text, end="")


def run() -> None:
  """Runs `predict.py`, installed as `albert-predict`."""
  cli.run(main, SETTINGS, takes_arguments=True, description=__doc__)
