"""Fine-tunes ALBERT to find named entities: CLUENER, one's own files.

    python run_ner.py --mark --init_checkpoint=output/cluener/best <texts.txt

marks those of a model that was fine-tuned, in the lines of standard input.
"""

import dataclasses
import json
import os
import sys

import numpy as np
from absl import flags, logging

from albert import cli
from albert.errors import InputError
from albert.files import checkpoints, filesystem, outputs
from albert.files.records import FeatureSpec
from albert.heads import TokenLabels, crf
from albert.predict import tagger
from albert.settings import NEEDED, USUAL, from_flags, setting
from albert.tasks import entity_files, metrics, ner
from albert.train import finetuning, teachers
from albert.train.settings import FINE_TUNING


@dataclasses.dataclass(frozen=True)
class EntitySettings(teachers.DistillationSettings):
  """Which data, and what finds entities."""
  task_name: str = setting(
      None, "Data set; file: your own train, dev and test.json, .jsonl, .txt, "
      ".tsv or .bio.", NEEDED, choices=sorted(entity_files.TASKS))
  data_dir: str = setting(None, "Folder with its files.", NEEDED)
  crf: bool = setting(
      False, "Train a CRF on top, instead of a softmax for each token.", USUAL)
  by_character: bool = setting(
      None, "Whether each character is a token, even within words, so that "
      "entities can begin and end anywhere; default: as the model, or else the "
      "task, has it.")
  doc_stride: int = setting(
      None, "Tokens from one window of a long text to the next; default: half "
      "a window.")
  skip_bad_rows: bool = setting(
      False, "Leave out and count the bad rows, or sentences, of the training "
      "and dev files; in the test file, they are errors.")
  mark: bool = setting(
      False, "Mark entities in the lines of standard input with the model of "
      "--init_checkpoint, and nothing else.", USUAL)


SETTINGS = (EntitySettings, *FINE_TUNING)


def read_texts(own, settings, names, folder):
  """Reads splits.

  Args:
    own: EntitySettings.
    settings: TrainSettings.
    names: list of str, the splits.
    folder: ModelFolder, whose labels count unless it is trained.

  Returns:
    (dict, name -> ner.Texts; list of labels; bool, whether each character is a
    token)
  """
  trains = "train" in names
  if not trains and folder.head != TokenLabels.name:
    raise InputError("%s has no model that finds entities: train one with "
                     "--do_train" % folder.where)
  task = entity_files.TASKS[own.task_name]
  examples = {name: entity_files.read_examples(
      entity_files.find_file(task, own.data_dir, name), name == "test",
      own.skip_bad_rows) for name in names}
  kinds = {name: {entity.kind for example in rows
                  for entity in example.entities or []}
           for name, rows in examples.items()}
  labels = ner.labels_of(kinds["train"]) if trains else folder.labels
  for name, names_found in kinds.items():
    unknown = sorted(kind for kind in names_found if "B-" + kind not in labels)
    if unknown:
      raise InputError("the %s file has the kind(s) %s, which are unknown: the "
                       "labels are %s" % (name, ", ".join(unknown),
                                          ", ".join(labels)))
  if trains:
    examples["train"] = finetuning.limited(examples["train"], settings) + [
        entity_files.Example(None, text, None)
        for text, _ in teachers.read_unlabelled(own.unlabelled_file, False)]
  by_character = next(choice for choice in (
      own.by_character, folder.more.get("by_character"), task.by_character)
                      if choice is not None)
  tokenizer = folder.create_tokenizer()
  texts = {name: ner.Texts(
      rows, tokenizer, labels, settings.data.max_seq_length, by_character,
      own.doc_stride)
           for name, rows in examples.items()}
  for name, split in texts.items():
    logging.info("%s: %d texts, %d windows, %d entities", name,
                 len(split.examples), len(split.windows),
                 sum(len(x.entities or []) for x in split.examples))
    inexact = split.count_inexact()
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


def write_output(output_dir, name, text):
  path = os.path.join(output_dir, name)
  filesystem.write_text(path, text)
  logging.info("wrote %s", path)


def write_entities(output_dir, name, examples, entities, to_row):
  """Writes a JSON object for each text, made by `to_row`."""
  write_output(output_dir, name, "".join(
      json.dumps(to_row(*pair), ensure_ascii=False) + "\n"
      for pair in zip(examples, entities)))


def mark_lines(model_dir):
  """Prints the lines of standard input with their entities marked."""
  lines = [line.decode("utf-8", "replace").rstrip("\r\n")
           for line in sys.stdin.buffer]
  for line, entities in zip(lines,
                            tagger.EntityTagger(model_dir).predict(lines)):
    print(entity_files.marked(line, entities))


def main():
  own = from_flags(EntitySettings, flags.FLAGS)
  if own.mark:
    cli.require_flags(flags.FLAGS, "init_checkpoint")
    mark_lines(flags.FLAGS.init_checkpoint)
    return
  cli.require_flags(flags.FLAGS, "task_name", "data_dir", "output_dir")
  settings, workers, folder = finetuning.start(flags.FLAGS, default_length=128)
  trains, evaluates = settings.run.do_train, settings.run.do_eval
  cli.warn_of_idle_flags(
      flags.FLAGS, (["crf"], trains, "--do_train"),
      (["skip_bad_rows"], trains or evaluates, "--do_train or --do_eval"))
  teachers.check(flags.FLAGS, own, trains)
  texts, labels, by_character = read_texts(
      own, settings, finetuning.wanted_splits(settings, workers), folder)
  use_crf = own.crf if trains else folder.more["crf"]
  head = TokenLabels(labels, use_crf)
  splits = {name: finetuning.Split(
      split.windows, split.make_features, has_labels=name == "train" or all(
          example.entities is not None for example in split.examples),
      paths=[entity_files.find_file(entity_files.TASKS[own.task_name],
                                    own.data_dir, name),
             *teachers.unlabelled_files(own, name)])
            for name, split in texts.items()}
  if own.teacher and trains:
    splits["train"] = teachers.teach_tokens(splits["train"], own,
                                            texts["train"])
  runner = finetuning.Runner(
      settings, workers, dataclasses.replace(
          folder, task_name=own.task_name, head=head.name, labels=labels,
          pairs=None, max_seq_length=settings.data.max_seq_length,
          more={"crf": use_crf, "by_character": by_character}),
      teachers.head_for(head, own), [
          FeatureSpec("label_mask", "int", None),
          FeatureSpec("label_ids", "int", None)], splits)
  texts.pop("train", None)  # the runner keeps it until it is written

  def predict(name, checkpoint):
    rows = runner.predict(name, checkpoint)
    transitions = crf.load_transitions(
        checkpoint or checkpoints.find_checkpoint(
            settings.model.init_checkpoint), labels)
    label_ids = tagger.decode(
        texts[name].join([row["logits"] for row in rows]), transitions, labels)
    return label_ids, texts[name].entities(label_ids), [
        row.get("loss", 0.0) for row in rows]

  def evaluate(checkpoint):
    results, report = score(texts["dev"], *predict("dev", checkpoint))
    write_output(runner.output_dir, "eval_report.txt", report)
    return dict(results, global_step=checkpoints.step_of(checkpoint))

  def write_test(name, checkpoint):
    examples = texts[name].examples
    predictions = predict(name, checkpoint)
    write_entities(runner.output_dir, own.task_name + "_predict.json", examples,
                   predictions[1], entity_files.submission)
    write_entities(runner.output_dir, name + "_entities.jsonl", examples,
                   predictions[1], entity_files.with_offsets)
    # All texts have labels, or none has.
    outputs.write_test_scores(
        runner.output_dir, name, [example.entities for example in examples],
        lambda _: score(texts[name], *predictions), checkpoint)

  runner.run(evaluate, "eval_f1", write_test, ["eval_report.txt"])


if __name__ == "__main__":
  cli.run(main, SETTINGS)
