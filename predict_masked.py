"""Fills in [MASK] in texts, with a pretrained model.

    python predict_masked.py 我[MASK]知道他在哪里。 今天天[MASK]很好
    python predict_masked.py --input_file=texts.txt --output_file=filled.tsv

Prints a line for each mask: the text, the number of the mask in it, and the
likeliest tokens with their probabilities, separated by tabs. Where a text has
several masks, each is predicted on its own, the others being masked: their
first tokens need not go together.
"""

import dataclasses

import numpy as np
from absl import flags

import tokenization
from albert import cli
from albert.errors import InputError
from albert.files import filesystem
from albert.model_folder import FolderSettings
from albert.predict import engines
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
    model = engines.load(engine, model_dir, given)
    self._tokenizer = model.tokenizer
    self._max_seq_length = model.folder.config.max_position_embeddings
    self._predictor = model.predictor(
        "masked_lm", "logits", max_seq_length=self._max_seq_length,
        batch_size=batch_size)

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
    features = [self._encode(number, text)
                for number, text in enumerate(texts, 1)]
    filled = [None] * len(texts)
    for i, (logits,) in self._predictor.run(features):
      filled[i] = [self._likeliest(row, top_k) for row, _ in zip(
          logits, features[i][2])]  # without the padding
    return filled

  def _encode(self, number, text):
    """Returns input_ids, segment_ids and the positions of the masks."""
    input_ids, segment_ids = tokenization.encode_texts(
        self._tokenizer, text, None, self._max_seq_length + 1)
    positions = np.flatnonzero(np.equal(input_ids, self._tokenizer.mask_id))
    if len(input_ids) > self._max_seq_length:
      problem = ("has more than the %d tokens that the model can read: "
                 "shorten it" % self._max_seq_length)
    elif not len(positions):
      problem = "has no [MASK]: write one where a token is to be filled in"
    else:
      return input_ids, segment_ids, positions
    raise InputError("text %d (%s) %s" % (
        number, text if len(text) <= 40 else text[:40] + "...", problem))

  def _likeliest(self, logits, top_k):
    ids = np.argsort(-logits, kind="stable")[:top_k]
    weights = np.exp(logits - logits.max())
    return list(zip(self._tokenizer.convert_ids_to_tokens(ids),
                    (weights[ids] / weights.sum()).tolist()))


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
      engine=flags.FLAGS.engine)
  lines = "".join("\t".join([text, str(number)] + [
      "%s %.4f" % choice for choice in choices]) + "\n"
                  for text, masks in zip(
                      texts, predictor.predict(texts, own.top_k))
                  for number, choices in enumerate(masks, 1))
  if own.output_file:
    filesystem.write_text(own.output_file, lines)
  else:
    print(lines, end="")


if __name__ == "__main__":
  cli.run(main, SETTINGS, takes_arguments=True)
