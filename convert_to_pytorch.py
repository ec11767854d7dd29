r"""Converts checkpoints to Hugging Face transformers, and back.

    python convert_to_pytorch.py --init_checkpoint=albert_tiny_zh_google \
      --output_dir=for_pytorch
    python convert_to_pytorch.py --pytorch_dir=for_pytorch --output_dir=back

Google's layout becomes an ALBERT of transformers. albert_zh's has no
counterpart and becomes a BERT: irreversibly, the projection is folded into the
word embeddings and shared layers are duplicated.
"""

import dataclasses

from absl import logging

from albert import cli, model_folder
from albert.errors import InputError
from albert.export import pytorch
from albert.files import filesystem
from albert.model_folder import ModelSettings
from albert.settings import NEEDED, from_flags, setting


@dataclasses.dataclass(frozen=True)
class ConversionSettings:
  """Source and target."""

  output_dir: str = setting(None, "Output folder.", NEEDED, required=True)
  pytorch_dir: str = setting(
    None,
    "transformers model folder to convert to a checkpoint, instead of "
    "--init_checkpoint.",
    NEEDED,
  )


SETTINGS = (ConversionSettings, ModelSettings)


def main() -> None:
  args = from_flags(ConversionSettings)
  model = from_flags(ModelSettings)
  if bool(model.init_checkpoint) == bool(args.pytorch_dir):
    raise InputError("give one of --init_checkpoint and --pytorch_dir")
  with filesystem.whole_folder(args.output_dir) as target:
    if args.pytorch_dir:
      pytorch.read_folder(args.pytorch_dir, target, model.do_lower_case)
    else:
      pytorch.write_folder(
        model_folder.load(model, model.init_checkpoint), target
      )
  logging.info("wrote %s", args.output_dir)


if __name__ == "__main__":
  cli.run(main, SETTINGS)
