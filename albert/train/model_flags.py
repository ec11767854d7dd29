"""The flags of every script that is given a model."""

from absl import flags

flags.DEFINE_string("bert_config_file", None,
                    "Configuration of the model (JSON); default: the one next "
                    "to --init_checkpoint.")
flags.DEFINE_alias("albert_config_file", "bert_config_file")
flags.DEFINE_string("init_checkpoint", None,
                    "Checkpoint to start from, of either variable layout.")
