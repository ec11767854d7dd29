"""A model of TensorFlow's that stays warm and predicts texts."""

import collections

import tensorflow.compat.v1 as tf
from absl import logging

import modeling
import tokenization
from albert.errors import InputError
from albert.files import checkpoints, filesystem
from albert.heads import heads
from albert.predict.text_predictor import TextPredictor


def restored_session(checkpoint, session_config=None):
  """Returns a session whose variables, the default graph's, are a checkpoint's.

  Args:
    checkpoint: str.
    session_config: tf.ConfigProto, or None.

  Raises:
    InputError: the checkpoint is of a different model, or damaged.
  """
  checkpoints.check_fits(checkpoint, {v.op.name: v.shape.as_list()
                                  for v in tf.global_variables()})
  session = tf.Session(config=session_config)
  with checkpoints.reading(checkpoint):
    tf.train.Saver().restore(session, checkpoint)
  return session


class Predictor(TextPredictor):
  """Predicts texts with a graph that is built once.

  Args:
    config: AlbertConfig.
    tokenizer: of tokenization.py.
    checkpoint: str, where all variables come from.
    build: function of the model, and of int32 [B, ...] for each further
      feature, that returns a tensor [B, ...].
    max_seq_length, batch_size: see TextPredictor.
    num_more_features: int, features that `run` is given besides ids and
      segments.

  Raises:
    InputError: the checkpoint is of a different model, or damaged.
  """

  def __init__(self, config, tokenizer, checkpoint, build, max_seq_length=512,
               batch_size=64, num_more_features=0):
    with tf.Graph().as_default():
      inputs = [tf.placeholder(tf.int32, [None, None])
                for _ in range(3 + num_more_features)]
      output = build(heads.create_model(config, False, *inputs[:3]),
                     *inputs[3:])
      call = restored_session(checkpoint).make_callable(output, inputs)
    super().__init__(
        call, tokenizer, min(max_seq_length, config.max_position_embeddings),
        batch_size)


# What a model is used with.
#   config: AlbertConfig.
#   tokenizer: of tokenization.py.
#   checkpoint: str, or None where there is none.
#   task: dict of task.json, empty without one.
#   files: see find_files.
Model = collections.namedtuple(
    "Model", ["config", "tokenizer", "checkpoint", "task", "files"])


def load_folder(checkpoint, options=None, max_seq_length=None):
  """Loads what is next to a checkpoint, such as the `best` of a fine-tuning.

  Args:
    checkpoint: str, path of a checkpoint or of a folder with some, or None.
    options: flags, absl.flags.FlagValues, or None. Flags that were given win;
      a warning says where they contradict what is next to the checkpoint.
    max_seq_length: int, sequence length that the model must allow, or None.

  Returns:
    Model.

  Raises:
    InputError: something is missing, or does not fit the rest.
  """
  files = find_files(checkpoint, options)
  task = checkpoints.read_task(checkpoint) if checkpoint else {}
  do_lower_case = task.get("do_lower_case", True)
  if options is not None and not options["do_lower_case"].using_default_value:
    if "do_lower_case" in task and do_lower_case != options.do_lower_case:
      logging.warning("--do_lower_case is %s, but %s says %s",
                      options.do_lower_case, files["task.json"], do_lower_case)
    do_lower_case = options.do_lower_case
  if "config.json" not in files:
    raise InputError("--bert_config_file is required: " + (
        "there is no configuration next to %s" % checkpoint if checkpoint else
        "a model from scratch needs it and --vocab_file, others "
        "--init_checkpoint"))
  tokenizer = tokenization.create_tokenizer(
      files.get("vocab.txt"), files.get("spm.model"), do_lower_case)
  config = modeling.load_config(files["config.json"], max_seq_length, tokenizer)
  return Model(config, tokenizer,
               checkpoint and checkpoints.find_checkpoint(checkpoint), task,
               files)


class TensorFlowEngine:
  """A checkpoint and what can be predicted with it; see `engines.load`."""

  def __init__(self, checkpoint, options=None):
    model = load_folder(checkpoint, options)
    self.config, self.tokenizer, self._checkpoint, self.task, _ = model

  def classify(self, **kwargs):
    """See `engines.load`."""
    return self._predictor(lambda model: tf.nn.softmax(
        heads.classifier_logits(model, len(self.task["labels"]))), **kwargs)

  def sentence_vectors(self, pooling, layer, **kwargs):
    """See `engines.load`."""
    return self._predictor(
        lambda model: heads.sentence_vectors(model, pooling, layer), **kwargs)

  def masked_lm(self, **kwargs):
    """See `engines.load`."""
    if "cls/predictions/output_bias" not in checkpoints.saved_shapes(
        self._checkpoint):
      raise InputError(
          "%s has no masked-LM weights, as is usual after fine-tuning: give a "
          "pretrained model" % self._checkpoint)
    return self._predictor(heads.masked_lm_logits, num_more_features=1,
                           **kwargs)

  def _predictor(self, build, **kwargs):
    return Predictor(self.config, self.tokenizer, self._checkpoint, build,
                     **kwargs)


def find_files(checkpoint, options=None):
  """Finds the files of a model; see load_folder.

  Returns:
    dict, name in an output folder -> path: "config.json", "task.json" and
    "vocab.txt" or "spm.model", those that there are.
  """
  found = {name: checkpoints.path_beside(checkpoint, patterns)
           for name, patterns in (
               ("task.json", ["task.json"]), ("vocab.txt", ["vocab*.txt"]),
               ("spm.model", ["*.model"]))}
  given = {} if options is None else {
      "vocab.txt": options.vocab_file, "spm.model": options.spm_model_file}
  for name in given:
    if given[name] and found[name]:
      _warn_of_other_content(given[name], found[name])
  # One tokenizer, and what was given before what was found.
  tokenizers = [(name, source[name]) for source, name in (
      (given, "spm.model"), (given, "vocab.txt"), (found, "vocab.txt"),
      (found, "spm.model")) if source.get(name)]
  files = [("config.json", find_config(
      checkpoint, options and options.bert_config_file)),
           ("task.json", found["task.json"])] + tokenizers[:1]
  return {name: path for name, path in files if path}


def find_config(checkpoint, given=None):
  """Returns a model's configuration file: `given`, or one next to a checkpoint.

  A warning says where the two differ.

  Args:
    checkpoint: str, path of a checkpoint or of a folder with some, or None.
    given: str, path of the configuration, or None.

  Returns:
    str, or None where there is none.
  """
  found = checkpoints.path_beside(checkpoint, [
      "config.json", "albert_config*.json", "bert_config*.json"])
  if given and found:
    _warn_of_other_config(given, found)
  return given or found


def _warn_of_other_config(given, found):
  asked, there = [modeling.AlbertConfig.from_json_file(path).to_dict()
                  for path in (given, found)]
  keys = sorted(key for key in set(asked) | set(there)
                if asked.get(key) != there.get(key))
  if keys:
    logging.warning("%s differs from %s next to the checkpoint: %s", given,
                    found, ", ".join("%s %s, not %s" % (
                        key, asked.get(key), there.get(key)) for key in keys))


def _warn_of_other_content(given, found):
  if filesystem.read_bytes(given) != filesystem.read_bytes(found):
    logging.warning("%s differs from %s next to the checkpoint", given, found)
