"""Predicts with any model; its folder says the task.

    python predict.py --model_dir=output/my_task/best 这部电影真好看
    python predict.py --model_dir=output/cluener/best --input_file=texts.txt \\
      --output_file=entities.jsonl
    python predict.py --model_dir=output/cmrc/best --question=谁写了红楼梦 \\
      --input_file=passage.txt
    python predict.py 我[MASK]知道他在哪里。

A classifier gives labels with probabilities, a regression a number, a model of
entities their places, one of answers a part of the passage, one of choices the
choice, a pretrained one the tokens for [MASK]. Prints a line for each text:
what was found and the text, separated by tabs; or JSON, see --format. A file
has a text a line, the texts of a pair (question and passage; passage, question
and choices) separated by tabs; .tsv columns with a header, .jsonl objects.
"""

import dataclasses
import json

from albert import cli
from albert.errors import InputError
from albert.files import filesystem
from albert.model_folder import FolderSettings
from albert.predict import engines, inputs, predictors, results
from albert.settings import NEEDED, USUAL, from_flags, setting


@dataclasses.dataclass(frozen=True)
class TextSettings:
  """Which model, which texts, how answers are written."""
  model_dir: str = setting(
      "albert_tiny_starter", "Folder with a model, such as the `best` of a "
      "fine-tuning.", NEEDED)
  question: str = setting(
      None, "Question about the passages: the texts that are given, or the "
      "whole of --input_file.", USUAL)
  choices: list = setting(
      None, "Choices among answers to --question, or of idioms for #idiom# in "
      "the texts.", USUAL)
  input_file: str = setting(
      None, "Texts; default, if none are given as arguments: standard input.",
      USUAL)
  output_file: str = setting(
      None, "What to write; default: standard output.", USUAL)
  format: str = setting(
      None, "Lines for people, or JSON lines; default: as the name of "
      "--output_file ends.", USUAL, choices=["table", "jsonl"])
  top_k: int = setting(
      5, "Maximum number of candidates.", USUAL, least=1)


SETTINGS = (TextSettings, engines.EngineSettings, predictors.PredictSettings,
            FolderSettings)


def find_inputs(args, arguments, fields):
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


def table_line(parts, found):
  """Returns a line of a table: cells of the result, then those of the input."""
  cells = found.cells() + [
      " | ".join(part) if isinstance(part, list) else part for part in parts]
  return "\t".join(" ".join(cell.split()) for cell in cells)


def json_line(fields, parts, found):
  """Returns a JSON object of the input and the result."""
  return json.dumps(dict(zip(fields, parts), **results.to_json(found)),
                    ensure_ascii=False)


def main(arguments):
  args = from_flags(TextSettings)
  model = predictors.load(
      args.model_dir, from_flags(engines.EngineSettings),
      from_flags(FolderSettings),
      from_flags(predictors.PredictSettings))
  rows = find_inputs(args, arguments, model.fields)
  as_json = args.format == "jsonl" or not args.format and (
      (args.output_file or "").endswith((".json", ".jsonl")))
  lines = []
  for row, found in zip(rows, model.predict(rows, args.top_k)):
    parts = (row,) if isinstance(row, str) else row
    lines.append(json_line(model.fields, parts, found) if as_json else
                 table_line(parts, found))
  text = "".join(line + "\n" for line in lines)
  if args.output_file:
    filesystem.write_text(args.output_file, text)
  else:
    print(text, end="")


def run():
  """Runs `predict.py`, which is `albert-predict` where it is installed."""
  cli.run(main, SETTINGS, takes_arguments=True, description=__doc__)
