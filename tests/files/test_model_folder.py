"""What belongs to a model: written, read, given, and what contradicts."""

import dataclasses
import json
import logging
import os

import numpy as np
import pytest
from scripting import SIZES

from albert import model_folder
from albert.errors import InputError
from albert.files import checkpoints, filesystem, outputs
from albert.model.config import AlbertConfig
from albert.model_folder import FolderSettings, ModelFolder

CONFIG = AlbertConfig(**dict(SIZES, vocab_size=6))
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]


def write_vocabulary(path, last="a"):
  path.parent.mkdir(exist_ok=True)
  path.write_text("\n".join(TOKENS[:-1] + [last]))
  return str(path)


@pytest.fixture
def folder(tmp_path):
  """A fine-tuned folder, of a model whose texts keep their case."""
  folder = tmp_path / "model"
  vocabulary = write_vocabulary(tmp_path / "vocabulary" / "any.txt")
  folder.mkdir()
  ModelFolder(CONFIG, vocabulary, do_lower_case=False,
              labels=["0", "1"]).write(str(folder))
  checkpoints.write_checkpoint(str(folder), "model.ckpt-3", {
      "x": np.zeros([], np.float32)})
  return folder


def load(path, **given):
  return model_folder.load(FolderSettings(**given), path and str(path))


def change_task(folder, **changes):
  """Changes task.json; what is None is removed."""
  task = dict(json.loads((folder / "task.json").read_text()), **changes)
  (folder / "task.json").write_text(json.dumps({
      key: value for key, value in task.items() if value is not None}))


def test_what_is_written_is_read(tmp_path):
  """Every field has another value than its default."""
  written = ModelFolder(
      config=CONFIG, tokenizer_file=write_vocabulary(tmp_path / "a"),
      do_lower_case=False, path=str(tmp_path), max_seq_length=99,
      task_name="lcqmc", head="classifier", labels=["no", "是"], pairs=True,
      more={"crf": True, "doc_stride": 64})
  for field in dataclasses.fields(ModelFolder):
    if field.default is not dataclasses.MISSING:
      assert getattr(written, field.name) != field.default, field.name
  for number, changes in enumerate((
      {}, dict(labels=[], pairs=False, more={}),
      dict(task_name=None, head=None, labels=None, pairs=None,
           max_seq_length=None))):
    one = dataclasses.replace(written, **changes)
    folder = tmp_path / str(number)
    folder.mkdir()
    one.write(str(folder))
    assert sorted(os.listdir(str(folder))) == [
        "config.json", "task.json", "vocab.txt"]
    read = load(folder)
    assert read.config.to_dict() == CONFIG.to_dict()
    assert filesystem.read_bytes(read.tokenizer_file) == (
        filesystem.read_bytes(written.tokenizer_file))
    assert dataclasses.replace(
        read, config=one.config, tokenizer_file=one.tokenizer_file,
        path=one.path) == one
    assert read.path == str(folder)
    assert read.contents() == one.contents()


def test_a_sentencepiece_model_has_its_own_name(tmp_path):
  (tmp_path / "any.model").write_bytes(b"a model")
  written = ModelFolder(CONFIG, str(tmp_path / "any.model"))
  assert written.is_sentencepiece
  assert written.contents()["spm.model"] == b"a model"
  assert "vocab.txt" not in written.contents()
  assert set(ModelFolder(CONFIG, None).contents()) == {
      "config.json", "task.json"}


def test_the_output_folder_may_be_that_of_the_model(folder):
  (folder / "checkpoint").unlink()
  url = "file://%s" % folder
  outputs.prepare_output_dir(url, load(url).contents())
  assert (folder / "vocab.txt").read_text() == "\n".join(TOKENS)


def test_a_folder_and_a_checkpoint_in_it(folder, caplog):
  url = "file://%s" % folder
  for path in (url, url + "/model.ckpt-3", str(folder)):
    loaded = load(path)
    assert loaded.checkpoint == path.replace("/model.ckpt-3", "") + (
        "/model.ckpt-3")
    assert loaded.create_tokenizer().tokenize("a A") == ["a", "[UNK]"]
    assert loaded.labels == ["0", "1"]
  assert not [record for record in caplog.records
              if record.levelno >= logging.WARNING]


def test_a_configuration_that_is_given_wins(folder, tmp_path, caplog):
  path = str(tmp_path / "given.json")
  filesystem.write_json(path, CONFIG.to_dict())
  with caplog.at_level(logging.WARNING, "absl"):
    assert load(folder, bert_config_file=path).config.num_hidden_layers == 2
  assert not caplog.records
  filesystem.write_json(path, dict(CONFIG.to_dict(), num_hidden_layers=3))
  with caplog.at_level(logging.WARNING, "absl"):
    assert load(folder, bert_config_file=path).config.num_hidden_layers == 3
  assert ("%s differs from %s next to the checkpoint: num_hidden_layers 3, not "
          "2" % (path, folder / "config.json")) in caplog.text


@pytest.mark.parametrize("names, found", [
    (["bert_config_large.json", "albert_config_tiny.json"],
     "albert_config_tiny.json"),
    (["albert_config_tiny.json", "config.json"], "config.json"),
    (["bert_config_large.json"], "bert_config_large.json")])
def test_configurations_of_released_models(tmp_path, names, found):
  for name in names:
    (tmp_path / name).write_text("{}")
  assert model_folder.find_config(str(tmp_path)) == str(tmp_path / found)


def test_what_a_folder_lacks(folder):
  with pytest.raises(InputError, match="a model from scratch needs it"):
    load(None)
  (folder / "vocab.txt").unlink()
  with pytest.raises(InputError, match="--vocab_file or --spm_model_file is "
                     "required"):
    load(folder).create_tokenizer()
  (folder / "config.json").unlink()
  with pytest.raises(InputError, match="--bert_config_file is required: there "
                     "is no configuration next to %s" % folder):
    load(folder)


def test_a_vocabulary_that_is_given(folder, tmp_path):
  same = write_vocabulary(tmp_path / "same.txt")
  assert load(folder, vocab_file=same).tokenizer_file == same
  other = write_vocabulary(tmp_path / "other.txt", last="b")
  for name in ("vocab_file", "spm_model_file"):
    with pytest.raises(InputError, match="%s is not the vocabulary that the "
                       "model was made with, %s: leave the flag out" % (
                           other, folder / "vocab.txt")):
      load(folder, **{name: other})
  (folder / "vocab.txt").unlink()
  loaded = load(folder, vocab_file=other)
  assert loaded.create_tokenizer().tokenize("a b") == ["[UNK]", "b"]
  # It is what is written next to the checkpoints to come.
  assert loaded.contents()["vocab.txt"] == filesystem.read_bytes(other)


def test_a_vocabulary_of_another_size(folder):
  (folder / "vocab.txt").write_text("\n".join(TOKENS + ["b"]))
  with pytest.raises(InputError, match="vocab.txt has 7 entries, but the "
                     "configuration says vocab_size 6"):
    load(folder).create_tokenizer()


def test_case_is_that_of_the_model(folder):
  assert not load(folder).do_lower_case
  assert not load(folder, do_lower_case=False).do_lower_case
  with pytest.raises(InputError, match="--do_lower_case is True, but the model "
                     "next to %s was made with False" % folder):
    load(folder, do_lower_case=True)
  change_task(folder, do_lower_case=None)
  assert load(folder).do_lower_case
  for given in (True, False):
    assert load(folder, do_lower_case=given).do_lower_case == given
  (folder / "task.json").unlink()
  assert load(folder).create_tokenizer().tokenize("A") == ["a"]


@pytest.mark.parametrize("task, head", [
    ({"label_tokens": True, "labels": ["O"]}, "token_labels"),
    ({"label_tokens": False, "labels": ["0"]}, None),
    ({"task_name": "c3"}, "choices"), ({"task_name": "race"}, "choices"),
    ({"task_name": "chid"}, "choices"),
    ({"task_name": "lcqmc", "labels": ["0", "1"]}, None),
    ({"task_name": "c3", "head": "classifier"}, "classifier")])
def test_folders_of_earlier_versions(folder, task, head):
  (folder / "task.json").write_text(json.dumps(task))
  loaded = load(folder)
  assert loaded.head == head
  assert loaded.labels == task.get("labels")
  assert loaded.more == {}


def test_lengths():
  folder = ModelFolder(CONFIG, None, path="some/folder", max_seq_length=128)
  assert CONFIG.max_position_embeddings == 512
  assert [folder.length(), folder.length(64), folder.length(600)] == [
      128, 64, 512]
  assert dataclasses.replace(folder, max_seq_length=None).length() == 512
  folder.check_length(512)
  with pytest.raises(InputError, match="513 is more than the 512 positions of "
                     "some/folder"):
    folder.check_length(513)


def for_records(folder, paths, made_with, **given):
  settings = FolderSettings(**given)
  return model_folder.for_records(
      model_folder.load(settings, folder and str(folder)), settings, made_with,
      [str(path) for path in paths], max_seq_length=48)


@pytest.fixture
def records(tmp_path):
  """The path of records that have their vocabulary next to them."""
  write_vocabulary(tmp_path / "records" / "vocab.txt", last="b")
  return tmp_path / "records" / "train.tfrecord"


def test_the_vocabulary_next_to_the_records(folder, records, tmp_path, caplog):
  config = str(folder / "config.json")
  vocabulary = str(records.parent / "vocab.txt")
  elsewhere = tmp_path / "elsewhere.tfrecord"  # with none next to it
  for made_with in ({}, {"vocab_file_sha256": filesystem.sha256(vocabulary)}):
    made = for_records(None, [elsewhere, records], made_with,
                       bert_config_file=config)
    assert made.tokenizer_file == vocabulary
    assert (made.max_seq_length, made.labels, made.head) == (48, None, None)
    assert made.contents()["vocab.txt"] == filesystem.read_bytes(vocabulary)
  assert "is not known" not in caplog.text
  with caplog.at_level(logging.WARNING, "absl"):
    made = for_records(None, [elsewhere], {}, bert_config_file=config)
  assert made.tokenizer_file is None and "vocab.txt" not in made.contents()
  assert "the vocabulary of %s is not known" % elsewhere in caplog.text


def test_a_checkpoint_has_its_vocabulary_for_the_records(folder, records):
  own = str(folder / "vocab.txt")
  made = for_records(folder, [records],
                     {"vocab_file_sha256": filesystem.sha256(own)})
  assert made.tokenizer_file == own and made.path == str(folder)
  # What it was fine-tuned for is none of pretraining.
  assert made.labels is None and made.more == {}


def test_records_of_another_vocabulary(folder, records):
  made_with = {"vocab_file_sha256": filesystem.sha256(
      str(records.parent / "vocab.txt"))}
  with pytest.raises(InputError, match="%s is not the vocabulary that %s was "
                     "made with: give that as --vocab_file" % (
                         folder / "vocab.txt", records)):
    for_records(folder, [records], made_with)
  with pytest.raises(InputError, match="vocab.txt is not .* --spm_model_file"):
    for_records(folder, [records], {"spm_model_file_sha256": "0"})
  write_vocabulary(records.parent / "vocab.txt", last="c")
  with pytest.raises(InputError, match="vocab.txt is not the vocabulary"):
    for_records(None, [records], made_with,
                bert_config_file=str(folder / "config.json"))


def test_the_case_of_the_records_wins(folder, records):
  config = str(folder / "config.json")
  for case in (False, True):
    made = for_records(None, [records], {"do_lower_case": case},
                       bert_config_file=config)
    assert made.do_lower_case == case
    assert for_records(None, [records], {"do_lower_case": case},
                       bert_config_file=config,
                       do_lower_case=case).do_lower_case == case
    with pytest.raises(InputError, match="made with do_lower_case %s, but the "
                       "model has %s" % (case, not case)):
      for_records(None, [records], {"do_lower_case": case},
                  bert_config_file=config, do_lower_case=not case)
  assert for_records(None, [records], {}, bert_config_file=config).do_lower_case
  with pytest.raises(InputError, match="train.tfrecord was made with "
                     "do_lower_case True, but the model has False"):
    for_records(folder, [records], {"do_lower_case": True})
  assert not for_records(folder, [records], {}).do_lower_case
  # A released model does not say it.
  (folder / "task.json").unlink()
  assert not for_records(
      folder, [records], {"do_lower_case": False}).do_lower_case
