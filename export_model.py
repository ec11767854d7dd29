r"""Inspects, strips or exports a model: SavedModel, TFLite, ONNX.

    python export_model.py --inspect --init_checkpoint=albert_tiny
    python export_model.py --strip --init_checkpoint=output/lcqmc/best \
      --output_dir=slim
    python export_model.py --saved_model --init_checkpoint=output/lcqmc/best \
      --output_dir=served
    python export_model.py --tflite --init_checkpoint=output/lcqmc/best \
      --output_dir=phone
    python export_model.py --onnx --init_checkpoint=output/lcqmc/best \
      --output_dir=onnx

The signatures that a model has follow from its variables:
  classify         probabilities [B, L] of the labels; score [B] where L is 1
  label_tokens     labels [B, S], int32, numbers among those in task.json: the
                   likeliest sequence in which "I-" follows "B-" or "I-" of its
                   kind, by softmax or CRF; 0 at [CLS], [SEP] and padding
  spans            of run_squad.py: start and end, [B, S], scores of each token;
                   with its beam head starts, int32 [B, 5], ends [B, 5, 5],
                   start_scores and end_scores, their log-probabilities, and
                   null [B], greater where no answer is likelier
  encode           sequence_output [B, S, H], pooled_output [B, H]
  sentence_vector  vector [B, H], the mean over the tokens
  masked_lm        logits [B, P, V] at masked_lm_positions, int32 [B, P]
  sentence_order   probabilities [B, 2] of "in order" and "swapped"
All take input_ids, input_mask, segment_ids, int32 [B, S].
"""

import os
import re
import sys
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags, logging

import modeling
import tokenization
from albert import errors
from albert.errors import InputError
from albert.export import onnx_signatures
from albert.files import checkpoints, filesystem
from albert.heads import crf, heads
from albert.predict import predictor, tagger
from albert.train import model_flags

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(tokenization)
flags.adopt_module_key_flags(model_flags)
flags.DEFINE_string("output_dir", None, "Folder to make.")
flags.DEFINE_bool("inspect", False, "Print layout, sizes and what is missing.")
flags.DEFINE_bool("strip", False, "Write the weights without the optimizer's.")
flags.DEFINE_integer("repeat_positions", None,
                     "With --strip: the length that the model was trained on; "
                     "later positions become copies of the earlier ones, and "
                     "learn faster.", lower_bound=1)
flags.DEFINE_bool("saved_model", False, "Write a SavedModel of any batch and "
                  "length, with all signatures.")
flags.DEFINE_bool("tflite", False, "Write model.tflite, of one signature.")
flags.DEFINE_bool("onnx", False, "Write SIGNATURE.onnx of any batch and length "
                  "for each signature, for ONNX Runtime.")
flags.DEFINE_enum("signature", None, ["classify", "label_tokens", "spans",
                                      "encode", "sentence_vector", "masked_lm",
                                      "sentence_order"],
                  "TFLite: the signature; default: the first of these that the "
                  "model has.")
flags.DEFINE_bool("int8", False,
                  "TFLite and ONNX: weights of 8 bits (dynamic range).")
flags.DEFINE_integer("batch_size", 1, "TFLite: texts at a time.", 1)
flags.DEFINE_integer("max_seq_length", 128, "TFLite: tokens of a text.", 1)
flags.DEFINE_integer("max_predictions_per_seq", 1,
                     "TFLite: positions to predict with masked_lm.", 1)

_INPUTS = ("input_ids", "input_mask", "segment_ids")


def signatures(model, saved, task, inputs):
  """Builds every signature that the variables of a checkpoint allow.

  Args:
    model: AlbertModel.
    saved: dict, name -> shape, of the checkpoint's variables.
    task: dict of task.json.
    inputs: dict, name -> int tensor, `masked_lm_positions` among them.

  Returns:
    dict, signature -> dict of output name -> tensor.
  """
  found = {}
  if task.get("label_tokens"):
    found["label_tokens"] = {"labels": tagger.token_labels(
        model, task["labels"], crf.TRANSITIONS in saved)}
  elif "output_weights" in saved:
    num_labels = saved["output_weights"][0]
    logits = heads.classifier_logits(model, num_labels)
    found["classify"] = {"probabilities": tf.nn.softmax(logits)} if (
        num_labels > 1) else {"score": tf.reshape(logits, [-1])}
  if "cls/squad/output_weights" in saved:
    found["spans"] = dict(zip(("start", "end"), heads.span_logits(model)))
  elif "start_logits/dense/kernel" in saved:
    found["spans"] = heads.BeamSpan(model, heads.answer_mask(
        inputs["input_mask"], inputs["segment_ids"])).likeliest(
            *heads.BEAM_SIZE)
  found["encode"] = {"sequence_output": model.get_sequence_output(),
                     "pooled_output": model.get_pooled_output()}
  found["sentence_vector"] = {"vector": heads.sentence_vectors(model)}
  if "cls/predictions/output_bias" in saved:
    found["masked_lm"] = {"logits": heads.masked_lm_logits(
        model, inputs["masked_lm_positions"])}
  if "cls/seq_relationship/output_bias" in saved:
    found["sentence_order"] = {
        "probabilities": tf.nn.softmax(model.sentence_order_logits())}
  return {name: {key: tf.identity(x, "%s/%s" % (name, key))
                 for key, x in tensors.items()}
          for name, tensors in found.items()}


def matmul_by_heads(a, b, transpose_b=False):
  """tf.matmul; of [1, N, S, K] and [1, N, K, T], head by head.

  TFLite's batched product is slower on two threads than on one; its product of
  two matrices, the second one transposed, is not. That pays for one long text;
  for 32 texts at a time the batched product is faster.
  """
  if a.shape.ndims == 2:
    return tf.matmul(a, b, transpose_b=transpose_b)
  if not transpose_b:
    b = tf.transpose(b, [0, 1, 3, 2])
  return tf.expand_dims(tf.stack([
      tf.matmul(x, y, transpose_b=True)
      for x, y in zip(tf.unstack(a[0]), tf.unstack(b[0]))]), 0)


class Graph:
  """A session with a checkpoint's model, and what goes in and comes out.

  Args:
    config: AlbertConfig.
    checkpoint: str.
    task: dict of task.json.
    batch_size, length, num_positions: int, or None for any.
  """

  def __init__(self, config, checkpoint, task, batch_size=None, length=None,
               num_positions=None):
    self.graph = tf.Graph()
    with self.graph.as_default():
      self.inputs = {name: tf.placeholder(tf.int32, [batch_size, length], name)
                     for name in _INPUTS}
      self._positions = {"masked_lm_positions": tf.placeholder(
          tf.int32, [batch_size, num_positions], "masked_lm_positions")}
      model = heads.create_model(
          config, False, *[self.inputs[name] for name in _INPUTS],
          matmul=matmul_by_heads if batch_size == 1 else tf.matmul)
      self.signatures = signatures(
          model, checkpoints.saved_shapes(checkpoint), task,
          dict(self.inputs, **self._positions))
      self.session = predictor.restored_session(checkpoint)

  def inputs_of(self, signature):
    """Returns a dict, name -> placeholder."""
    return dict(self.inputs,
                **(self._positions if signature == "masked_lm" else {}))


def describe(checkpoint, config):
  """Describes a checkpoint in lines of text.

  Args:
    checkpoint: str.
    config: AlbertConfig, or None.

  Raises:
    InputError: it is not an ALBERT checkpoint.
  """
  saved = checkpoints.saved_shapes(checkpoint)
  everything = dict(tf.train.list_variables(checkpoint))

  def shape(*names):
    return next((saved[name] for name in names if name in saved), None)

  words = shape("bert/embeddings/word_embeddings")
  pooler = shape("bert/pooler/dense/kernel")
  layers = {m.group(1) for m in (re.match(
      "bert/encoder/(transformer|layer_shared|layer_[0-9]+)/", name)
                                 for name in saved) if m}
  if not (words and pooler and layers):
    raise InputError("%s has no word embeddings, encoder and pooler of an "
                     "ALBERT or BERT" % checkpoint)
  sizes = [("vocab_size", words[0]), ("embedding_size", words[1]),
           ("hidden_size", pooler[0])]
  for key, name in (("max_position_embeddings", "position_embeddings"),
                    ("type_vocab_size", "token_type_embeddings")):
    sizes.append((key, (shape("bert/embeddings/" + name) or ["?"])[0]))
  sizes += [("intermediate_size", saved[name][1]) for name in sorted(saved)
            if re.search("intermediate(_[0-9]+)?/dense/kernel$", name)][:1]
  google = "transformer" in layers
  if google:
    sizes += [(key, 1 + max(int(number) for name in saved for number in
                            re.findall("/%s_([0-9]+)/" % part, name)))
              for key, part in (("num_hidden_groups", "group"),
                                ("inner_group_num", "inner_group"))]
  elif "layer_shared" not in layers:
    sizes.append(("num_hidden_layers", len(layers)))
  lines = ["checkpoint: %s" % checkpoint,
           "layout: %s" % ("google" if google else "albert_zh")]
  lines += ["%s: %s" % item for item in sizes]
  tops = [("classifier of %d label(s)" % saved["output_weights"][0],
           "output_weights")] if "output_weights" in saved else []
  tops += [("masked LM", "cls/predictions/output_bias"),
           ("sentence order", "cls/seq_relationship/output_bias"),
           ("CRF", crf.TRANSITIONS), ("answer span", "cls/squad/output_bias"),
           ("answer beam", "start_logits/dense/kernel")]
  lines.append("on top: %s" % (", ".join(
      text for text, name in tops if name in saved) or "nothing"))
  lines.append("parameters: %s" % "{:,}".format(
      sum(int(np.prod(s)) for s in saved.values())))
  slots = len([name for name in everything if re.search("/adam_[mv]$", name)])
  lines.append("optimizer slots: %d" % slots)
  with checkpoints.reading(checkpoint):
    lines.append("step: %s" % (
        tf.train.load_checkpoint(checkpoint).get_tensor("global_step")
        if "global_step" in everything else "not saved"))
  if config:
    lines += _compare(saved, config)
  else:
    lines.append("no configuration next to it: the number of heads%s is not "
                 "known from weights" % (
                     "" if len(layers) > 1 else " and of layers"))
  return lines


def encoder_variables(config):
  """Returns the variables of a configuration's encoder: name -> shape."""
  with tf.Graph().as_default():
    heads.create_model(config, False, tf.placeholder(tf.int32, [None, None]))
    return {v.op.name: v.shape.as_list() for v in tf.global_variables()}


def _compare(saved, config):
  """Says what a configuration asks for and the checkpoint lacks."""
  wanted = encoder_variables(config)
  lines = ["configuration: %d layers, %d heads, %s" % (
      config.num_hidden_layers, config.num_attention_heads, config.ln_type)]
  bad = ["%s (%s, not %s)" % misfit
         for misfit in checkpoints.misfits(saved, wanted)]
  return lines + ["does not fit the configuration: %s" % (
      ", ".join(bad) or "nothing")]


def save_model(graph, folder, assets):
  """Writes a SavedModel; `assets` are files to put into it."""
  builder = tf.saved_model.builder.SavedModelBuilder(folder)
  with graph.graph.as_default():
    for path in assets:
      tf.add_to_collection(tf.GraphKeys.ASSET_FILEPATHS, tf.constant(path))
    definitions = {
        name: tf.saved_model.predict_signature_def(
            graph.inputs_of(name), tensors)
        for name, tensors in graph.signatures.items()}
    definitions["serving_default"] = definitions[default_signature(graph)]
    builder.add_meta_graph_and_variables(
        graph.session, [tf.saved_model.tag_constants.SERVING], definitions,
        assets_collection=tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS))
  builder.save()


def default_signature(graph):
  return next(name for name in ("classify", "label_tokens", "spans", "encode")
              if name in graph.signatures)


def to_tflite(graph, signature, int8):
  """Returns the bytes of a TFLite file."""
  if signature not in graph.signatures:
    raise InputError("the model has no %s: --signature can be %s" % (
        signature, ", ".join(sorted(graph.signatures))))
  tensors = graph.signatures[signature]
  frozen = tf.graph_util.convert_variables_to_constants(
      graph.session, graph.graph.as_graph_def(),
      [tensor.op.name for tensor in tensors.values()])
  for node in frozen.node:
    if node.op == "IdentityN":  # where a custom gradient would be called
      kind = node.attr["T"].list.type[0]
      node.op = "Identity"
      node.attr.clear()
      node.attr["T"].type = kind
      del node.input[1:]
  converter = tf.lite.TFLiteConverter(
      frozen, list(graph.inputs_of(signature).values()), list(tensors.values()))
  # TensorFlow 1.15 converts with a program in the folder of python.
  os.environ["PATH"] = os.pathsep.join(
      [os.path.dirname(sys.executable), os.environ.get("PATH", "")])
  if int8:
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
  return converter.convert()


def save_onnx(config, checkpoint, task, int8, folder):
  """Writes SIGNATURE.onnx for every signature of the checkpoint."""
  for name, content in onnx_signatures.write_signatures(
      config, checkpoints.read_weights(checkpoint), task).items():
    if int8:
      content = onnx_signatures.quantize(content)
    filesystem.write_bytes(os.path.join(folder, name + ".onnx"), content)
    logging.info("%s.onnx: %.1f MB", name, len(content) / 1e6)


def repeat_positions(weights, length):
  """Makes later positions copies of the first ones, as Longformer does.

  Source: arXiv:2004.05150, section 5.

  Args:
    weights: dict, name -> array; `bert/embeddings/position_embeddings`,
      [P, E], is replaced.
    length: int, positions that were trained, at most P.

  Raises:
    InputError: there are fewer positions.
  """
  name = "bert/embeddings/position_embeddings"
  positions = weights.get(name, ())
  if length > len(positions):
    raise InputError("--repeat_positions=%d: the model has %d positions" % (
        length, len(positions)))
  weights[name] = positions[np.arange(len(positions)) % length]


def copy_files(files, folder):
  """Copies files, name -> path, to a folder; returns their paths there."""
  paths = []
  for name, source in files.items():
    paths.append(os.path.join(folder, name))
    tf.io.gfile.copy(source, paths[-1])
  return paths


def main():
  errors.require_flags("init_checkpoint")
  ways = ("inspect", "strip", "saved_model", "tflite", "onnx")
  if sum(FLAGS[name].value for name in ways) != 1:
    raise InputError("give one of --" + ", --".join(ways))
  if FLAGS.repeat_positions and not FLAGS.strip:
    raise InputError("--repeat_positions needs --strip")
  if FLAGS.int8 and not (FLAGS.tflite or FLAGS.onnx):
    raise InputError("--int8 needs --tflite or --onnx")
  if FLAGS.signature and not FLAGS.tflite:
    raise InputError("--signature needs --tflite")
  checkpoint = checkpoints.find_checkpoint(FLAGS.init_checkpoint)
  files = predictor.find_files(FLAGS.init_checkpoint, FLAGS)
  config = modeling.load_config(files["config.json"]) if (
      "config.json" in files) else None
  description = describe(checkpoint, config)
  if FLAGS.inspect:
    print("\n".join(description))
    return
  errors.require_flags("output_dir")
  task = checkpoints.read_task(FLAGS.init_checkpoint)
  if not FLAGS.strip:
    model = predictor.load_folder(
        FLAGS.init_checkpoint, FLAGS,
        FLAGS.max_seq_length if FLAGS.tflite else None)
  if config:
    checkpoints.check_fits(checkpoint, encoder_variables(config))
  with filesystem.whole_folder(FLAGS.output_dir) as folder:
    if FLAGS.strip:
      copy_files(files, folder)
      weights = checkpoints.read_weights(checkpoint)
      if FLAGS.repeat_positions:
        repeat_positions(weights, FLAGS.repeat_positions)
      checkpoints.write_checkpoint(folder, os.path.basename(checkpoint),
                                   weights)
    elif FLAGS.saved_model:
      graph = Graph(config, checkpoint, task)
      with tempfile.TemporaryDirectory() as temporary:
        save_model(graph, folder, copy_files(files, temporary))
    elif FLAGS.onnx:
      save_onnx(config, checkpoint, task, FLAGS.int8, folder)
      copy_files(files, folder)
      filesystem.write_json(
          os.path.join(folder, "task.json"),
          dict(model.task, do_lower_case=model.tokenizer.do_lower_case))
    else:
      graph = Graph(config, checkpoint, task, FLAGS.batch_size,
                    FLAGS.max_seq_length, FLAGS.max_predictions_per_seq)
      content = to_tflite(graph, FLAGS.signature or default_signature(graph),
                          FLAGS.int8)
      copy_files(files, folder)
      with tf.io.gfile.GFile(os.path.join(folder, "model.tflite"),
                             "wb") as writer:
        writer.write(content)
      logging.info("model.tflite: %.1f MB", len(content) / 1e6)
  logging.info("wrote %s", FLAGS.output_dir)


if __name__ == "__main__":
  errors.run(main)
