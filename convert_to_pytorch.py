r"""Converts a checkpoint to what Hugging Face's transformers load, and back.

    python convert_to_pytorch.py --init_checkpoint=albert_tiny_zh_google \
      --output_dir=for_pytorch
    python convert_to_pytorch.py --pytorch_dir=for_pytorch --output_dir=back

Google's layout becomes an ALBERT of transformers. albert_zh's has no
counterpart there; it becomes a BERT: the projection is multiplied into the word
embeddings and shared layers are written once per layer, which is not undone.
"""

import io
import json
import os

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags, logging

import modeling
import tokenization
from albert import errors
from albert.errors import InputError
from albert.export import transformers_tokenizer
from albert.files import checkpoints, filesystem
from albert.heads import crf, heads
from albert.predict import predictor
from albert.train import model_flags

FLAGS = flags.FLAGS

_ALBERT_BLOCK = {
    "attention_1/self/query": "attention.query",
    "attention_1/self/key": "attention.key",
    "attention_1/self/value": "attention.value",
    "attention_1/output/dense": "attention.dense",
    "LayerNorm": "attention.LayerNorm",
    "ffn_1/intermediate/dense": "ffn",
    "ffn_1/intermediate/output/dense": "ffn_output",
    "LayerNorm_1": "full_layer_layer_norm",
}
_KINDS = {"kernel": "weight", "gamma": "weight", "beta": "bias",
          "output_weights": "weight", "output_bias": "bias"}
_POOLER = "bert/pooler/dense/"
_MAPPING = "albert.encoder.embedding_hidden_mapping_in."
# Keys of equal name and meaning in both configurations.
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers",
          "num_attention_heads", "intermediate_size",
          "max_position_embeddings", "type_vocab_size", "initializer_range",
          "hidden_dropout_prob", "attention_probs_dropout_prob")
# Keys that only ALBERT has, with transformers' defaults.
_ALBERT_SIZES = {"embedding_size": 128, "num_hidden_groups": 1,
                 "inner_group_num": 1}


def albert_name(name):
  """Takes a variable's name in Google's layout to transformers' parameter."""
  scope, _, kind = name.rpartition("/")
  if "/transformer/" in scope:
    _, _, _, group, inner, part = scope.split("/", 5)
    scope = "albert/encoder/albert_layer_groups/%s/albert_layers/%s/%s" % (
        group.replace("group_", ""), inner.replace("inner_group_", ""),
        _ALBERT_BLOCK[part])
  elif name == "cls/predictions/output_bias":
    scope = "predictions"
  else:
    scope = {"": "classifier", "bert/pooler/dense": "albert/pooler",
             "cls/squad": "qa_outputs",
             "cls/seq_relationship": "sop_classifier/classifier"}.get(
                 scope, scope)
    scope = scope.replace("cls/predictions/transform", "predictions")
    if scope.startswith("bert/"):
      scope = "al" + scope
  return _finish_name(scope, kind)


def bert_name(name):
  """Takes a variable's name in plain BERT to transformers' parameter."""
  scope, _, kind = name.rpartition("/")
  scope = {"": "classifier", "cls/squad": "qa_outputs"}.get(scope, scope)
  return _finish_name(scope.replace("/layer_", "/layer/"), kind)


def _finish_name(scope, kind):
  kind = _KINDS.get(kind, kind)
  if kind.endswith("_embeddings"):
    kind += ".weight"
  return scope.replace("/", ".") + "." + kind


def _turn(name, value):
  """Transposes a kernel: transformers keep it as [out, in]."""
  return value.T if name.endswith("/kernel") else value


def to_plain_bert(config, weights):
  """Writes weights of albert_zh's layout as those of a BERT.

  Args:
    config: AlbertConfig.
    weights: dict, variable name -> array.

  Returns:
    (AlbertConfig, dict of the same kind)
  """
  plain = modeling.AlbertConfig(**dict(
      config.to_dict(), embedding_size=None, parameter_sharing="none"))
  weights = dict(weights)
  projection = weights.pop("bert/embeddings/word_embeddings_2", None)
  if projection is not None:
    weights["bert/embeddings/word_embeddings"] = np.matmul(
        weights["bert/embeddings/word_embeddings"], projection)
  found = {name: value for name, value in weights.items()
           if not name.startswith("bert/encoder/")}
  for layer in range(config.num_hidden_layers):
    for source, target in zip(
        *(modeling.AlbertModel.layer_scopes(c, layer)[0]
          for c in (config, plain))):
      source, target = ["bert/encoder/%s/" % s for s in (source, target)]
      found.update((target + name[len(source):], value)
                   for name, value in weights.items()
                   if name.startswith(source))
  return plain, found


def to_pytorch(config, weights, labels_tokens=False):
  """Converts weights to the parameters of transformers.

  Args:
    config: AlbertConfig.
    weights: dict, variable name -> array.
    labels_tokens: bool, whether the labels are those of tokens, not of texts.

  Returns:
    (dict for their `config.json`, dict of parameter name -> array)

  Raises:
    InputError: transformers have no such model.
  """
  if config.ln_type == "preln":
    raise InputError("ln_type preln cannot be converted: the models of "
                     "transformers normalize after each block, not before")
  if crf.TRANSITIONS in weights:
    raise InputError("a CRF cannot be converted: the models of transformers "
                     "label each token by itself; fine-tune without --crf")
  if labels_tokens:  # theirs has no pooler
    weights = {name: value for name, value in weights.items()
               if not name.startswith(_POOLER)}
  is_albert = config.layout == "google"
  if not is_albert:
    logging.info("albert_zh's layout becomes a BERT: the projection multiplied "
                 "into the word embeddings, each layer written out")
    config, weights = to_plain_bert(config, weights)
  rename = albert_name if is_albert else bert_name
  state = {rename(name): np.ascontiguousarray(_turn(name, value))
           for name, value in weights.items()}
  if is_albert and config.embedding_width == config.hidden_size:
    # Google's layout then has no mapping, transformers always have one.
    state[_MAPPING + "weight"] = np.eye(config.hidden_size, dtype=np.float32)
    state[_MAPPING + "bias"] = np.zeros(config.hidden_size, np.float32)
  theirs = {key: getattr(config, key)
            for key in _SIZES + (tuple(_ALBERT_SIZES) if is_albert else ())}
  if is_albert:
    theirs["embedding_size"] = config.embedding_width
  suffix = "Model"
  if "output_weights" in weights:
    suffix = "ForTokenClassification" if labels_tokens else (
        "ForSequenceClassification")
  elif "cls/squad/output_weights" in weights:
    suffix = "ForQuestionAnswering"
  elif "cls/predictions/output_bias" in weights:
    suffix = "ForPreTraining"
  if "output_weights" in weights:
    theirs["num_labels"] = len(weights["output_weights"])
  theirs.update(
      model_type="albert" if is_albert else "bert",
      architectures=[("Albert" if is_albert else "Bert") + suffix],
      hidden_act={"gelu": "gelu_new"}.get(config.hidden_act, config.hidden_act),
      classifier_dropout_prob=0.1, classifier_dropout=0.1, layer_norm_eps=1e-12)
  return theirs, state


def from_pytorch(theirs, state):
  """Converts parameters of transformers to weights.

  Args:
    theirs: dict of their `config.json`.
    state: dict, parameter name -> array.

  Returns:
    (AlbertConfig, dict of variable name -> array)

  Raises:
    InputError: it is a different kind of model, or lacks a parameter.
  """
  is_albert = theirs.get("model_type") == "albert"
  if not is_albert and theirs.get("model_type") != "bert":
    raise InputError("a model of the type %s: albert and bert can be converted"
                     % theirs.get("model_type"))
  if theirs.get("layer_norm_eps", 1e-12) != 1e-12:
    raise InputError("layer_norm_eps is %g: 1e-12 is all that is computed here"
                     % theirs["layer_norm_eps"])
  if theirs.get("hidden_act") == "gelu":
    logging.warning("their gelu is computed here by its tanh approximation, "
                    "which differs by up to 0.0005")
  values = {key: theirs[key] for key in _SIZES + ("hidden_act",)
            if key in theirs}
  if is_albert:
    values.update((key, theirs.get(key, default))
                  for key, default in _ALBERT_SIZES.items())
  config = modeling.AlbertConfig(**values)
  # transformers leave the prefix out where there is the encoder only.
  state = {**{"%s.%s" % (theirs["model_type"], name): value
              for name, value in state.items()}, **state}
  # As the first BERTs of PyTorch had it.
  state = {name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
      "LayerNorm.beta", "LayerNorm.bias"): value
           for name, value in state.items()}
  if is_albert and config.embedding_width == config.hidden_size and (
      _MAPPING + "weight" in state and not np.array_equal(
          state[_MAPPING + "weight"], np.eye(config.hidden_size))):
    raise InputError("it maps embeddings that are as wide as the layers, which "
                     "Google's layout does not")
  rename = albert_name if is_albert else bert_name
  labels = state.get("classifier.weight")
  reads_pooler = (labels is not None and not _labels_tokens(theirs)) or (
      rename("cls/seq_relationship/output_weights") in state)
  weights, missing = {}, []
  for name, shape in _variables(config, labels is not None and len(labels)):
    if rename(name) in state:
      weights[name] = _turn(name, state[rename(name)]).astype(np.float32)
      if list(weights[name].shape) != shape:
        raise InputError("%s is %s, where the configuration asks for %s" % (
            rename(name), list(state[rename(name)].shape), shape))
    elif name.startswith("bert/e"):  # embeddings, encoder
      raise InputError("it lacks %s" % rename(name))
    elif name.startswith(_POOLER) and not reads_pooler:
      logging.info("%s is not there; nothing reads it, zeros take its place",
                   rename(name))
      weights[name] = np.zeros(shape, np.float32)
    else:
      missing.append(rename(name))
  logging.info("%d parameters converted; not there: %s", len(weights),
               ", ".join(missing) or "none")
  return config, weights


def _labels_tokens(theirs):
  """Whether their `config.json` is of a model that labels tokens."""
  return (theirs.get("architectures") or [""])[0].endswith(
      "ForTokenClassification")


def _variables(config, num_labels):
  """Yields (name, shape) of the encoder and of all that may be on top."""
  with tf.Graph().as_default():
    model = heads.create_model(config, False, tf.zeros([1, 2], tf.int32))
    model.masked_lm_logits(tf.zeros([1, 1], tf.int32))
    model.sentence_order_logits()
    heads.span_logits(model)
    if num_labels:
      heads.classifier_logits(model, num_labels)
    for variable in tf.global_variables():
      yield variable.op.name, variable.shape.as_list()


def safetensors_numpy():
  """Returns the module `safetensors.numpy`, which only this script needs."""
  try:
    import safetensors.numpy
  except ImportError as error:
    raise InputError("safetensors is not installed: pip install -r "
                     "requirements/pytorch.txt") from error
  return safetensors.numpy


def write_pytorch_folder(folder, model):
  """Writes a predictor.Model as transformers read it."""
  config, tokenizer = model.config, model.tokenizer
  theirs, state = to_pytorch(
      config, checkpoints.read_weights(model.checkpoint),
      model.task.get("label_tokens", False))
  labels = model.task.get("labels")
  if labels:
    theirs["id2label"] = {str(i): label for i, label in enumerate(labels)}
    theirs["label2id"] = {label: i for i, label in enumerate(labels)}
  theirs.update(pad_token_id=tokenizer.pad_id, bos_token_id=tokenizer.cls_id,
                eos_token_id=tokenizer.sep_id)
  spm_model_file = model.files.get("spm.model")
  settings = transformers_tokenizer.tokenizer_settings(
      "Albert" if spm_model_file else "Bert", tokenizer.do_lower_case,
      config.max_position_embeddings)
  files = {"config.json": theirs, "tokenizer_config.json": settings}
  if spm_model_file:
    tf.io.gfile.copy(spm_model_file, os.path.join(folder, "spiece.model"))
    files["tokenizer.json"] = transformers_tokenizer.unigram_tokenizer(
        spm_model_file, tokenizer.do_lower_case)
  else:
    tf.io.gfile.copy(model.files["vocab.txt"],
                     os.path.join(folder, "vocab.txt"))
  for name, content in files.items():
    filesystem.write_text(os.path.join(folder, name), json.dumps(
        content, ensure_ascii=False, indent=2) + "\n")
  with tf.io.gfile.GFile(os.path.join(folder, "model.safetensors"),
                         "wb") as writer:
    writer.write(safetensors_numpy().save(state, metadata={"format": "pt"}))


def read_pytorch_folder(path):
  """Returns (dict of config.json, dict of parameter name -> array)."""
  config, weights, pickled = [os.path.join(path, name) for name in (
      "config.json", "model.safetensors", "pytorch_model.bin")]
  if not tf.io.gfile.exists(config):
    raise InputError("%s has no config.json" % path)
  theirs = filesystem.read_json(config)
  if not isinstance(theirs, dict):
    raise InputError("%s: not a model's configuration" % config)
  if tf.io.gfile.exists(weights):
    read = safetensors_numpy().load
  elif tf.io.gfile.exists(pickled):
    weights, read = pickled, _read_pickled
  else:
    raise InputError("%s has neither model.safetensors nor pytorch_model.bin"
                     % path)
  try:
    return theirs, read(filesystem.read_bytes(weights))
  except InputError:
    raise
  except Exception as error:  # each library has its own
    raise InputError("%s cannot be read as weights: %s" % (
        weights, str(error).split("\n")[0])) from error


def _read_pickled(content):
  try:
    import torch
  except ImportError as error:
    raise InputError("pytorch_model.bin needs PyTorch: pip install torch"
                    ) from error
  state = torch.load(io.BytesIO(content), map_location="cpu",
                     weights_only=True)
  return {name: value.detach().float().numpy() for name, value in state.items()}


def from_folder():
  """Writes the checkpoint of --pytorch_dir."""
  source = FLAGS.pytorch_dir
  theirs, state = read_pytorch_folder(source)
  try:
    config, weights = from_pytorch(theirs, state)
  except InputError as error:
    raise InputError("%s: %s" % (source, error)) from error
  files = {"config.json": config.to_dict()}
  path = os.path.join(source, "tokenizer_config.json")
  settings = filesystem.read_json(path) if tf.io.gfile.exists(path) else {}
  if "do_lower_case" in settings:
    files["task.json"] = {"do_lower_case": settings["do_lower_case"]}
  if "output_weights" in weights and "id2label" in theirs:
    labels = theirs["id2label"]
    if len(labels) != len(weights["output_bias"]):
      raise InputError("%s has %d labels, the classifier %d" % (
          source, len(labels), len(weights["output_bias"])))
    files["task.json"] = {
        "labels": [labels[key] for key in sorted(labels, key=int)],
        "max_seq_length": config.max_position_embeddings,
        "do_lower_case": settings.get("do_lower_case", FLAGS.do_lower_case)}
    if _labels_tokens(theirs):
      files["task.json"].update(
          label_tokens=True, crf=False, by_character=False)
  with filesystem.whole_folder(FLAGS.output_dir) as folder:
    checkpoints.write_checkpoint(folder, "model.ckpt", weights)
    for name, content in files.items():
      filesystem.write_text(os.path.join(folder, name), json.dumps(
          content, ensure_ascii=False, indent=2) + "\n")
    for name, new_name in (("vocab.txt", "vocab.txt"),
                           ("spiece.model", "spm.model")):
      if tf.io.gfile.exists(os.path.join(source, name)):
        tf.io.gfile.copy(os.path.join(source, name),
                         os.path.join(folder, new_name))


def to_folder():
  """Writes --init_checkpoint as a folder of transformers."""
  model = predictor.load_folder(FLAGS.init_checkpoint, FLAGS)
  saved = checkpoints.saved_shapes(model.checkpoint)
  known = dict(_variables(model.config, saved.get("output_weights", [0])[0]))
  checkpoints.check_fits(model.checkpoint, {
      name: shape for name, shape in known.items()
      if name in saved or name.startswith("bert/")})
  unknown = sorted(set(saved) - set(known) - {crf.TRANSITIONS})
  if unknown:
    raise InputError("%s: transformers have no counterpart of %s" % (
        model.checkpoint, ", ".join(unknown)))
  with filesystem.whole_folder(FLAGS.output_dir) as folder:
    write_pytorch_folder(folder, model)


def define_flags():
  """Defines the script's flags; who imports its functions has others."""
  flags.adopt_module_key_flags(tokenization)
  flags.adopt_module_key_flags(model_flags)
  flags.DEFINE_string("output_dir", None, "Folder to make.")
  flags.DEFINE_string("pytorch_dir", None, "Folder of transformers to convert "
                      "to a checkpoint, instead of --init_checkpoint.")


def main():
  errors.require_flags("output_dir")
  if bool(FLAGS.init_checkpoint) == bool(FLAGS.pytorch_dir):
    raise InputError("give one of --init_checkpoint and --pytorch_dir")
  if FLAGS.pytorch_dir:
    from_folder()
  else:
    to_folder()
  logging.info("wrote %s", FLAGS.output_dir)


if __name__ == "__main__":
  define_flags()
  errors.run(main)
