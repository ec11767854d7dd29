"""Teachers: what they say of a text, and how a training gets it."""

import json

import numpy as np
import pytest
import reference_albert as reference
import scripting
import tensorflow.compat.v1 as tf
from scripting import VOCAB, call_main
from small_models import albert_zh_config, google_config

import run_classifier
import run_ner
import tokenization
from albert.errors import InputError
from albert.export import pytorch
from albert.files import checkpoints
from albert.model.config import AlbertConfig
from albert.model_folder import FolderSettings, ModelFolder
from albert.model_folder import load as load_folder
from albert.predict import load, predictors
from albert.predict.tagger import EntityTagger
from albert.tasks import entity_files, ner
from albert.train import finetuning, teachers

CHARACTERS = list("甲乙丙丁戊己庚辛壬癸")
TEXTS = ["甲乙丙丁", "戊己", "庚辛壬癸甲", "丙丁戊", "乙乙", "癸己丁"]
BIO = ["O", "B-x", "I-x"]


def write_model(folder, labels, google=False, seed=0, **task):
  """Writes a model with random weights, of an own vocabulary."""
  vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]"] + (
      CHARACTERS[::-1] if google else CHARACTERS + ["ab"])
  folder.mkdir()
  words = folder / "words.txt"
  words.write_text("\n".join(vocabulary), encoding="utf-8")
  config = (google_config if google else albert_zh_config)(
      vocab_size=len(vocabulary), max_position_embeddings=12)
  weights = reference.random_weights(config, seed)
  rng = np.random.RandomState(seed)
  count = len(labels) or 1
  weights.update(output_weights=rng.normal(size=[count, 24]),
                 output_bias=rng.normal(size=[count]))
  ModelFolder(AlbertConfig.from_dict(config), str(words), labels=labels,
              **task).write(str(folder))
  checkpoints.write_checkpoint(str(folder), "model.ckpt-1", {
      name: x.astype(np.float32) for name, x in weights.items()})
  return str(folder)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
  """Teachers of every kind, name -> folder."""
  folder = tmp_path_factory.mktemp("teachers")
  one = dict(head="classifier", pairs=False)
  return {
      "one": write_model(folder / "one", ["a", "b", "c"], **one),
      "turned": write_model(folder / "turned", ["c", "a", "b"], google=True,
                            seed=1, **one),
      "windows": write_model(
          folder / "windows", ["a", "b", "c"], max_seq_length=4,
          more={"long_text": "windows", "max_windows": 3}, **one),
      "several": write_model(folder / "several", ["b", "a"], True, 2,
                             head="multi_label", pairs=False),
      "numbers": write_model(folder / "numbers", [], head="regression",
                             pairs=True),
      "vectors": write_model(
          folder / "vectors", [], head="sentence_vector",
          more={"pooling": "mean", "layer": -1}),
      "entities": write_model(
          folder / "entities", BIO[::-1], seed=3, head="token_labels",
          more={"crf": False, "by_character": False})}


def settings(*paths, **changes):
  return teachers.DistillationSettings(teacher=list(paths), **changes)


def taught(own, kind, labels, texts, is_labelled=None):
  """Returns the features of texts, as arrays."""
  split = teachers.teach_texts(
      finetuning.Split(texts, lambda text: {"text": text}), own, kind, labels,
      texts, is_labelled or [True] * len(texts))
  rows = [split.make_features(example) for example in split.examples]
  assert [row["text"] for row in rows] == texts
  assert [spec.name for spec in split.more_specs] == [
      "teacher_logits", "is_labelled"]
  return [np.array([row[spec.name] for row in rows])
          for spec in split.more_specs]


def single(texts=TEXTS):
  return [(text, None) for text in texts]


def log_probabilities(path, labels):
  """What a user of the model sees, by name."""
  rows = [{x.text: x.probability for x in result.candidates}
          for result in load(path).predict(TEXTS)]
  return np.log([[row[label] for label in labels] for row in rows])


@pytest.mark.parametrize("name", ["one", "turned", "windows"])
def test_labels_go_by_their_name(models, name):
  logits, is_labelled = taught(settings(models[name]), "label",
                               ["b", "c", "a"], single(),
                               [True, False] * 3)
  expected = log_probabilities(models[name], ["b", "c", "a"])
  np.testing.assert_allclose(logits - logits.mean(1, keepdims=True),
                             expected - expected.mean(1, keepdims=True),
                             atol=1e-4)
  assert np.ptp(logits, axis=0).min() > 0.1  # texts differ
  assert is_labelled.tolist() == [1, 0] * 3


def test_a_teacher_of_windows_reads_all_of_them(models):
  whole, first, second = taught(
      settings(models["windows"]), "label", ["a", "b", "c"],
      single(["甲乙丙丁", "甲乙", "丙丁"]))[0]
  np.testing.assert_allclose(whole, (first + second) / 2, atol=1e-5)
  assert np.abs(first - second).max() > 0.1


def test_logits_of_several_teachers_are_averaged(models):
  both, first, second = [
      taught(settings(*[models[name] for name in names]), "label",
             ["a", "b", "c"], single())[0]
      for names in (("one", "turned"), ("one",), ("turned",))]
  np.testing.assert_allclose(both, (first + second) / 2, atol=1e-6)
  assert np.abs(first - second).max() > 0.5


def test_several_labels_and_numbers(models):
  logits, _ = taught(settings(models["several"]), "labels", ["a", "b"],
                     single())
  np.testing.assert_allclose(
      -np.log1p(np.exp(-logits)),
      log_probabilities(models["several"], ["a", "b"]), atol=1e-4)
  pairs = list(zip(TEXTS, TEXTS[1:]))
  logits, _ = taught(settings(models["numbers"]), "score", [], pairs)
  np.testing.assert_allclose(
      logits, [[x.score] for x in load(models["numbers"]).predict(pairs)],
      atol=1e-5)


def test_tokens_that_are_cut_alike():
  scores = np.arange(10.0).reshape([5, 2])
  #             甲      ab      乙      丙, in two pieces
  theirs = np.array([[0, 1], [1, 3], [3, 4], [4, 5], [4, 5]])
  ours = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [4, 5], [4, 5]])
  np.testing.assert_array_equal(
      teachers.match(ours, theirs, scores),
      scores[[0, 0, 0, 2, 3, 4, 0]] + np.array(
          [[0], [np.nan], [np.nan], [0], [0], [0], [np.nan]]))


def test_entities(models):
  tokenizer = load_folder(FolderSettings(), models["turned"]).create_tokenizer()
  examples = [entity_files.Example(0, "甲乙ab丙丁戊己", []),
              entity_files.Example(1, "癸", None)]
  # By character, where the teacher has words; in windows of 4.
  texts = ner.Texts(examples, tokenizer, BIO, 6, True)
  split = teachers.teach_tokens(finetuning.Split(
      texts.windows, texts.make_features), settings(models["entities"]), texts)
  rows = list(map(split.make_features, split.examples))
  assert [row["is_labelled"] for row in rows] == [1, 1, 1, 0]
  masks = [row["teacher_mask"] for row in rows]
  logits = [np.array(row["teacher_logits"]).reshape([3, -1]).T for row in rows]
  assert [len(x) for x in logits] == [len(row["input_ids"]) for row in rows]
  found = texts.join([np.concatenate([x, np.array(mask)[:, None]], 1)
                      for x, mask in zip(logits, masks)])
  _, scores = EntityTagger(models["entities"]).scores(
      [x.text for x in examples])
  np.testing.assert_allclose(found[1][:, :3], scores[1][:, ::-1], atol=1e-6)
  assert found[0][:, 3].tolist() == [1, 1, 0, 0, 1, 1, 1, 1]
  np.testing.assert_allclose(found[0][[0, 1, 4, 5, 6, 7], :3],
                             scores[0][[0, 1, 3, 4, 5, 6], ::-1], atol=1e-6)


def write_texts(folder, rows, header="text_a\tlabel"):
  for name in ("train", "dev"):
    (folder / (name + ".tsv")).write_text("\n".join([header] + rows),
                                          encoding="utf-8")
  (folder / "small.json").write_text(json.dumps(
      dict(scripting.SIZES, num_hidden_layers=1)))
  (folder / "texts.txt").write_text("丁丁\n\n庚己\n", encoding="utf-8")


def command(folder, *args):
  return ["--data_dir=%s" % folder, "--do_train", VOCAB,
          "--bert_config_file=%s" % (folder / "small.json"),
          "--output_dir=%s" % (folder / "out"), "--train_batch_size=4",
          "--max_seq_length=16", *map(str, args)]


def records(path):
  for record in tf.io.tf_record_iterator(str(path)):
    yield tf.train.Example.FromString(record).features.feature


@pytest.mark.slow
def test_training_with_a_teacher(models, tmp_path, monkeypatch):
  write_texts(tmp_path, ["%s\t%s" % row for row in zip(TEXTS, "abcabc")])
  calls = []
  monkeypatch.setattr(predictors.Labels, "logits", lambda self, inputs, once=
                      predictors.Labels.logits: (
                          calls.append(inputs), once(self, inputs))[1])
  args = command(
      tmp_path, "--task_name=tsv", "--do_eval", "--seeds=1,2",
      "--teacher=" + models["turned"], "--gradient_accumulation_steps=2",
      "--unlabelled_file=%s" % (tmp_path / "texts.txt"),
      "--num_train_epochs=1")
  call_main(run_classifier, *args)
  assert calls == [TEXTS + ["丁丁", "庚己"]]  # once for both runs
  teacher = load(models["turned"])
  tokenizer = tokenization.create_tokenizer(VOCAB.split("=")[1])
  expected = {}
  for text, row in zip(calls[0], teacher.logits(calls[0])):
    ids, _ = tokenization.encode_texts(tokenizer, text, None, 16)
    expected[tuple(ids)] = [*row[[1, 2, 0]], text in TEXTS]
  for folder in tmp_path.glob("out/rate_*"):
    found = {tuple(row["input_ids"].int64_list.value): [
        *row["teacher_logits"].float_list.value,
        row["is_labelled"].int64_list.value[0]]
             for row in records(folder / "train.tf_record")}
    assert set(found) == set(expected)
    for ids, values in expected.items():
      np.testing.assert_allclose(found[ids], values, atol=1e-5)
  with pytest.raises(InputError, match="runs with --temperature=2.0, not 4"):
    call_main(run_classifier, *args, "--temperature=4")


@pytest.mark.slow
def test_training_on_a_teachers_entities(models, tmp_path):
  write_texts(tmp_path, ["甲\tB-x", "乙\tI-x", "", "丙\tO", "丁\tB-x"] * 4,
              "戊\tO")
  call_main(run_ner, *command(
      tmp_path, "--task_name=file", "--do_eval", "--crf",
      "--num_train_epochs=1",
      "--teacher=" + models["entities"],
      "--unlabelled_file=%s" % (tmp_path / "texts.txt")))
  rows = list(records(tmp_path / "out" / "train.tf_record"))
  labelled = [row["is_labelled"].int64_list.value[0] for row in rows]
  assert labelled.count(0) == 2 < len(labelled)
  for row in rows:
    mask, logits = row["teacher_mask"], row["teacher_logits"].float_list.value
    assert list(mask.int64_list.value) == list(
        row["label_mask"].int64_list.value)
    assert len(logits) == 3 * len(mask.int64_list.value)
  assert scripting.results(tmp_path / "out" / "best")["eval_loss"] > 0


def test_bad_input(models, tmp_path):
  write_texts(tmp_path, ["甲\ta", "乙\tb", "丙\tc"] * 4)
  texts = tmp_path / "texts.txt"
  (tmp_path / "none.txt").write_text("\n\n")
  (tmp_path / "pairs.txt").write_text("甲\n乙\t丙\n", encoding="utf-8")

  def expect(message, *args, script=run_classifier, task="tsv"):
    with pytest.raises((InputError, OSError), match=message) as caught:
      call_main(script, *command(tmp_path, "--task_name=" + task, *args))
    assert "\n" not in str(caught.value)

  one, several = "--teacher=" + models["one"], "--teacher=" + models["several"]
  expect("without --teacher, there is no effect of --unlabelled_file",
         "--unlabelled_file=%s" % texts)
  expect("--distill_weight=0: it must be greater than 0", one,
         "--distill_weight=0")
  expect("--distill_weight=1.5: .* at most 1", one, "--distill_weight=1.5")
  expect("--temperature=-1: it must be greater than 0", one, "--temperature=-1")
  expect("none.txt: has no texts", one,
         "--unlabelled_file=%s" % (tmp_path / "none.txt"))
  expect("pairs.txt:2: expected one text without a tab, found 2", one,
         "--unlabelled_file=%s" % (tmp_path / "pairs.txt"))
  expect("missing.txt", one, "--unlabelled_file=%s" % (
      tmp_path / "missing.txt"))
  expect("no checkpoint at .*missing", "--teacher=%s" % (tmp_path / "missing"))
  expect("several tells several labels of single texts, the task asks for one "
         "label of single texts", several)
  expect("numbers tells numbers of pairs", "--teacher=" + models["numbers"])
  expect("numbers tells numbers of pairs", one + "," + models["numbers"])
  (tmp_path / "train.tsv").write_text("text_a\tlabel\n" + "甲\t1\n" * 4,
                                      encoding="utf-8")
  expect("numbers tells numbers of pairs, the task asks for numbers of single "
         "texts", "--teacher=" + models["numbers"], "--regression")
  (tmp_path / "train.tsv").write_text(
      "text_a\ttext_b\tscore\n" + "甲\t乙\t1\n" * 4, encoding="utf-8")
  expect("vectors tells cosines of pairs, the task asks for numbers of pairs",
         "--teacher=" + models["vectors"], "--regression")
  (tmp_path / "train.tsv").write_text("text_a\tlabel\n" + "甲\ta\n乙\td\n" * 4,
                                      encoding="utf-8")
  expect("one has different labels than the task: it lacks d; it alone has b, "
         "c", one)
  (tmp_path / "train.tsv").write_text("甲\tB-y\n\n" * 4, encoding="utf-8")
  expect("entities has different labels than the task: it lacks B-y, I-y; it "
         "alone has B-x, I-x", "--teacher=" + models["entities"],
         script=run_ner, task="file")
  expect("one tells one label of single texts, the task asks for entities", one,
         script=run_ner, task="file")
  with pytest.raises(InputError, match="pairs.txt:1: expected two texts separa"
                     "ted by a tab, found 1"):
    teachers.read_unlabelled(str(tmp_path / "pairs.txt"), True)
  assert teachers.read_unlabelled(None, True) == []


def test_a_folder_of_transformers(models, tmp_path):
  pytest.importorskip("safetensors")
  for name, kind, labels, texts in (
      ("turned", "label", ["a", "b", "c"], single()),
      ("several", "labels", ["a", "b"], single()),
      ("numbers", "score", [], list(zip(TEXTS, TEXTS[1:])))):
    theirs = tmp_path / name
    theirs.mkdir()
    pytorch.write_folder(load_folder(FolderSettings(), models[name]),
                         str(theirs))
    found, expected = [taught(settings(str(path)), kind, labels, texts)[0]
                       for path in (theirs, models[name])]
    np.testing.assert_allclose(found, expected, atol=1e-4)
