"""Fills in [MASK] in texts, with a pretrained model.

    python predict_masked.py 我[MASK]知道他在哪里。 今天天[MASK]很好
    python predict_masked.py --input_file=texts.txt --output_file=filled.tsv

Prints a line for each mask: the text, the number of the mask in it, and the
likeliest tokens with their probabilities, separated by tabs. Where a text has
several masks, each is predicted on its own, the others being masked: their
first tokens need not go together.
"""

import dataclasses

from absl import flags

from albert import cli
from albert.errors import InputError
from albert.files import filesystem
from albert.model_folder import FolderSettings
from albert.predict import engines, predictors
from albert.settings import NEEDED, USUAL, from_flags, setting


class MaskedPredictor:
  """Tells what [MASK] stands for; the graph is built once and stays warm.

  Args:
    model_dir: str, folder with a checkpoint that has masked-LM weights, its
      configuration and its vocabulary, or path of a checkpoint in one.
    batch_size: int, texts per call of the model.
    given: FolderSettings, what is not in the folder, or None.
    engine: str, "tensorflow" or "onnx"; see engines.py.

  Raises:
    InputError: the folder has no such model.
  """

  def __init__(self, model_dir="albert_tiny_starter", batch_size=16,
               given=None, engine="tensorflow"):
    self._masks = predictors.Masks(
        engines.load(engine, model_dir, given),
        predictors.PredictSettings(batch_size=batch_size))

  def predict(self, texts, top_k=5):
    """Predicts the masks of texts, each given that the others are masked.

    Args:
      texts: list of str, each with one [MASK] or more.
      top_k: int, tokens to tell for each mask.

    Returns:
      list, for each text, of lists, for each mask in it, of lists of
      (token, probability), the likeliest first. A token is what the vocabulary
      has, such as "都", or "##ing" or "▁the" where a word goes on or begins.

    Raises:
      InputError: a text has no mask or too many tokens for the model.
    """
    return [result.masks for result in self._masks.predict(texts, top_k)]


@dataclasses.dataclass(frozen=True)
class MaskedSettings:
  """Which texts, how many candidates."""
  model_dir: str = setting(
      "albert_tiny_starter", "Folder with a pretrained model.", NEEDED)
  input_file: str = setting(
      None, "Texts, one a line; default, if none are given as arguments: "
      "standard input.", USUAL)
  output_file: str = setting(
      None, "What to write; default: standard output.", USUAL)
  top_k: int = setting(
      5, "Likeliest tokens to write for a mask.", USUAL, least=1)


SETTINGS = (MaskedSettings, engines.EngineSettings, FolderSettings)


def main(texts):
  own = from_flags(MaskedSettings, flags.FLAGS)
  if texts and own.input_file:
    raise InputError("give texts or --input_file, not both")
  texts = texts or filesystem.read_lines(own.input_file)
  if not texts:
    raise InputError("%s: has no texts" % (own.input_file or "standard input"))
  predictor = MaskedPredictor(
      own.model_dir, given=from_flags(FolderSettings, flags.FLAGS),
      engine=from_flags(engines.EngineSettings, flags.FLAGS))
  lines = "".join("\t".join([text, str(number)] + [
      str(choice) for choice in choices]) + "\n"
                  for text, masks in zip(
                      texts, predictor.predict(texts, own.top_k))
                  for number, choices in enumerate(masks, 1))
  if own.output_file:
    filesystem.write_text(own.output_file, lines)
  else:
    print(lines, end="")


if __name__ == "__main__":
  cli.run(main, SETTINGS, takes_arguments=True)
