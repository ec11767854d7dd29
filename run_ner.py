"""Fine-tunes ALBERT to find named entities: CLUENER, one's own files.

    python run_ner.py --mark --init_checkpoint=output/cluener/best <texts.txt

marks those of a model that was fine-tuned, in the lines of standard input.
"""

import json
import os
import sys

import numpy as np
from absl import flags, logging

from albert import errors
from albert.errors import InputError
from albert.files import checkpoints, filesystem, outputs
from albert.files.records import FeatureSpec
from albert.heads import crf
from albert.predict import tagger
from albert.tasks import metrics, ner
from albert.train import finetuning, training

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(finetuning)
flags.DEFINE_enum("task_name", None, sorted(ner.TASKS), "Data set; file: your "
                  "own train, dev and test.json, .jsonl, .txt, .tsv or .bio.",
                  case_sensitive=False)
flags.DEFINE_string("data_dir", None, "Folder with its files.")
flags.DEFINE_bool("crf", False, "Train a CRF on top, instead of a softmax for "
                  "each token.")
flags.DEFINE_bool("by_character", None, "Whether each character is a token, "
                  "even within words, so that entities can begin and end "
                  "anywhere; default: as the model, or else the task, has it.")
flags.DEFINE_integer("max_seq_length", 128, "Maximum tokens of a window.")
flags.DEFINE_integer("doc_stride", None,
                     "Tokens from one window of a long text to the next; "
                     "default: half a window.")
flags.DEFINE_bool("skip_bad_rows", False,
                  "Leave out and count the bad rows, or sentences, of the "
                  "training and dev files; in the test file, they are errors.")
flags.DEFINE_bool("mark", False, "Mark entities in the lines of standard input "
                  "with the model of --init_checkpoint, and nothing else.")

_SPECS = finetuning.SPECS + (FeatureSpec("label_mask", "int", None),
                             FeatureSpec("label_ids", "int", None))


def read_texts(task, names, model):
  """Reads splits.

  Args:
    task: ner.Task.
    names: list of str, the splits.
    model: predictor.Model, whose labels count unless it is trained.

  Returns:
    (dict, name -> ner.Texts; list of labels; bool, whether each character is a
    token)
  """
  if not (FLAGS.do_train or model.task.get("label_tokens")):
    raise InputError("%s has no model that finds entities: train one with "
                     "--do_train" % model.checkpoint)
  examples = {name: ner.read_examples(
      ner.find_file(task, FLAGS.data_dir, name), name == "test",
      FLAGS.skip_bad_rows) for name in names}
  kinds = {name: {entity.kind for example in found
                  for entity in example.entities or []}
           for name, found in examples.items()}
  labels = ner.labels_of(kinds["train"]) if FLAGS.do_train else (
      model.task["labels"])
  for name, found in kinds.items():
    unknown = sorted(kind for kind in found if "B-" + kind not in labels)
    if unknown:
      raise InputError("the %s file has the kind(s) %s, which are unknown: the "
                       "labels are %s" % (name, ", ".join(unknown),
                                          ", ".join(labels)))
  if FLAGS.do_train:
    examples["train"] = examples["train"][:FLAGS.max_train_examples]
  by_character = next(choice for choice in (
      FLAGS.by_character, model.task.get("by_character"), task.by_character)
                      if choice is not None)
  texts = {name: ner.Texts(found, model.tokenizer, labels, FLAGS.max_seq_length,
                           by_character, FLAGS.doc_stride)
           for name, found in examples.items()}
  for name, found in texts.items():
    logging.info("%s: %d texts, %d windows, %d entities", name,
                 len(found.examples), len(found.windows),
                 sum(len(x.entities or []) for x in found.examples))
    inexact = found.count_inexact()
    if inexact:
      logging.warning("%s: %d entities begin or end inside a token and cannot "
                      "be found exactly%s", name, inexact, "" if by_character
                      else "; with --by_character they may")
  return texts, labels, by_character


def score(texts, label_ids, entities, losses):
  """Returns (dict of results, report) of a split's predictions."""
  results, report = metrics.entities(
      [example.entities for example in texts.examples], entities)
  loss = float(np.mean(losses))
  hits = np.concatenate(label_ids) == np.concatenate(texts.label_ids)
  results = {"eval_" + name: value for name, value in results.items()}
  return dict(results, eval_token_accuracy=float(hits.mean()), eval_loss=loss,
              loss=loss), report


def write_output(name, text):
  path = os.path.join(FLAGS.output_dir, name)
  filesystem.write_text(path, text)
  logging.info("wrote %s", path)


def write_entities(name, examples, entities, to_row):
  """Writes a JSON object for each text, made by `to_row`."""
  write_output(name, "".join(
      json.dumps(to_row(*pair), ensure_ascii=False) + "\n"
      for pair in zip(examples, entities)))


def mark_lines():
  """Prints the lines of standard input with their entities marked."""
  errors.require_flags("init_checkpoint")
  lines = [line.decode("utf-8", "replace").rstrip("\r\n")
           for line in sys.stdin.buffer]
  for line, entities in zip(lines, tagger.EntityTagger(
      FLAGS.init_checkpoint).predict(lines)):
    print(ner.marked(line, entities))


def main():
  if FLAGS.mark:
    mark_lines()
    return
  errors.require_flags("task_name", "data_dir", "output_dir")
  workers, model = finetuning.start(FLAGS)
  training.warn_of_idle_flags(FLAGS, [
      (["crf"], FLAGS.do_train, "--do_train", False),
      (["skip_bad_rows"], FLAGS.do_train or FLAGS.do_eval,
       "--do_train or --do_eval", False)])
  texts, labels, by_character = read_texts(
      ner.TASKS[FLAGS.task_name], finetuning.wanted_splits(FLAGS, workers),
      model)
  use_crf = FLAGS.crf if FLAGS.do_train else model.task["crf"]
  files = finetuning.prepare_output_dir(FLAGS, workers, model, {
      "task_name": FLAGS.task_name, "labels": labels, "label_tokens": True,
      "crf": use_crf, "by_character": by_character})
  runner = finetuning.Runner(
      FLAGS, workers, model.config, tagger.head_builder(labels, use_crf),
      _SPECS, {name: finetuning.Split(found.windows, found.make_features)
               for name, found in texts.items()})
  texts.pop("train", None)  # the runner keeps it until it is written
  decoder = tagger.Decoder(labels)

  def predict(name, checkpoint):
    rows = runner.predict(name, checkpoint)
    transitions = crf.load_transitions(
        checkpoint or checkpoints.find_checkpoint(FLAGS.init_checkpoint),
        labels)
    label_ids = decoder.decode(
        texts[name].join([row["logits"] for row in rows]), transitions)
    return label_ids, texts[name].entities(label_ids), [
        row["loss"] for row in rows]

  def evaluate(checkpoint):
    results, report = score(texts["dev"], *predict("dev", checkpoint))
    write_output("eval_report.txt", report)
    return dict(results, global_step=checkpoints.step_of(checkpoint))

  def write_test(name, checkpoint):
    examples = texts[name].examples
    found = predict(name, checkpoint)
    write_entities(FLAGS.task_name + "_predict.json", examples, found[1],
                   ner.submission)
    write_entities(name + "_entities.jsonl", examples, found[1],
                   ner.with_offsets)
    # All texts have labels, or none has.
    outputs.write_test_scores(
        FLAGS.output_dir, name, [example.entities for example in examples],
        lambda _: score(texts[name], *found))

  runner.run(evaluate, "eval_f1", files + ["eval_report.txt"], write_test)


if __name__ == "__main__":
  errors.run(main)
