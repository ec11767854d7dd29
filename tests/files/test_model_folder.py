"""Model folders: writing, reading, overrides, contradictions."""

import dataclasses
import re

import pytest
from refusals import refused
from scripting import SIZES
from writing import write, write_checkpoint

from albert import model_folder
from albert.files import filesystem
from albert.model.config import AlbertConfig
from albert.model_folder import FolderSettings, ModelFolder

CONFIG = AlbertConfig(**dict(SIZES, vocab_size=6))
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
OTHER = TOKENS[:-1] + ["b"]


@pytest.fixture
def folder(tmp_path):
  """A fine-tuned folder of a cased model."""
  folder = tmp_path / "model"
  folder.mkdir()
  ModelFolder(
    CONFIG,
    write(tmp_path, "any.txt", *TOKENS),
    do_lower_case=False,
    labels=["0", "1"],
  ).write(str(folder))
  write_checkpoint(folder, 3)
  return folder


def load(path, **given):
  return model_folder.load(FolderSettings(**given), path and str(path))


@pytest.mark.parametrize(
  "content, message",
  [
    ([], "not a JSON object"),
    ({"labels": "ab"}, "'labels' cannot be \"ab\""),
    ({"labels": ["a", 1]}, "'labels'"),
    ({"max_seq_length": "9"}, "'max_seq"),
    ({"max_seq_length": True}, "'max_seq"),
    ({"crf": 1}, "'crf'"),
    ({"thresholds": {"a": "b"}}, "'thresholds'"),
    ({"reading": ["text_a"]}, "'reading'"),
    ({"layer": 1.5}, "'layer'"),
  ],
)
def test_a_damaged_task(folder, content, message):
  write(folder, "task.json", content)
  refused("task.json: " + message, load, folder)


def test_what_is_written_is_read(tmp_path):
  """No field has its default value."""
  whole = ModelFolder(
    CONFIG,
    write(tmp_path, "a", *TOKENS),
    do_lower_case=False,
    path=str(tmp_path),
    max_seq_length=99,
    task_name="lcqmc",
    head="classifier",
    labels=["no", "是"],
    pairs=True,
    crf=True,
    init_checkpoint="albert_tiny",
    by_character=True,
    pooling="cls",
    layer=2,
    long_text="windows",
    max_windows=3,
    positive_label="是",
    reading={"columns": ["a", "label"]},
    thresholds={"no": 0.25},
    calibration_temperature=1.5,
    has_unanswerable=True,
    null_threshold=1.5,
  )
  for field in dataclasses.fields(ModelFolder):
    if field.default is not dataclasses.MISSING:
      assert getattr(whole, field.name) != field.default, field.name
  for number, changes in enumerate(
    (
      {},
      dict(labels=[], pairs=False, crf=None),
      dict.fromkeys(("task_name", "head", "labels", "pairs", "max_seq_length")),
    )
  ):
    written = dataclasses.replace(whole, **changes)
    folder = tmp_path / str(number)
    folder.mkdir()
    written.write(str(folder))
    assert {path.name for path in folder.iterdir()} == {
      "config.json",
      "task.json",
      "vocab.txt",
    }
    read = load(folder)
    assert read.contents() == written.contents()
    assert read == dataclasses.replace(
      written,
      config=read.config,
      path=str(folder),
      tokenizer_file=read.tokenizer_file,
    )
  found = ModelFolder(CONFIG, write(tmp_path, "any.model", "a")).contents()
  assert set(found) == {"config.json", "task.json", "spm.model"}
  assert found["spm.model"] == b"a"
  assert set(ModelFolder(CONFIG, None).contents()) == {
    "config.json",
    "task.json",
  }


def test_a_folder_and_a_checkpoint_in_it(folder, caplog):
  for where in (str(folder), "file://%s" % folder):
    for path in (where, where + "/model.ckpt-3"):
      loaded = load(path)
      assert loaded.checkpoint == where + "/model.ckpt-3"
      assert loaded.create_tokenizer().tokenize("a A") == ["a", "[UNK]"]
      assert loaded.labels == ["0", "1"]
  assert not caplog.records


def test_a_configuration_that_is_given_wins(folder, tmp_path, caplog):
  for layers in (2, 3):
    assert not caplog.records
    loaded = load(
      folder,
      bert_config_file=write(
        tmp_path, "given.json", dict(CONFIG.to_dict(), num_hidden_layers=layers)
      ),
    )
    assert loaded.config.num_hidden_layers == layers
  assert re.search(
    "given.json .*config.json .*: num_hidden_layers 3, not 2", caplog.text
  )


def test_another_dropout_is_the_same_model(tmp_path):
  paths = []
  for name, changes in (
    ("a", {}),
    ("b", {"hidden_dropout_prob": 0.5}),
    ("c", {"num_hidden_layers": 3}),
  ):
    write(tmp_path / name, "config.json", dict(CONFIG.to_dict(), **changes))
    paths.append(str(tmp_path / name / "model.ckpt-1"))
  model_folder.require_same_model(*paths[:2])
  refused(
    "it has num_hidden_layers 3",
    model_folder.require_same_model,
    paths[0],
    paths[2],
  )


def test_configurations_of_released_models(tmp_path):
  assert model_folder.find_config(str(tmp_path)) is None
  for name in (
    "bert_config_large.json",
    "albert_config_tiny.json",
    "config.json",
  ):  # in rising precedence
    write(tmp_path, name, {})
    assert model_folder.find_config(str(tmp_path)) == str(tmp_path / name)


def test_a_vocabulary_that_is_given(folder, tmp_path):
  same, other = [
    write(tmp_path, name, *tokens)
    for name, tokens in (("same.txt", TOKENS), ("other.txt", OTHER))
  ]
  assert load(folder, vocab_file=same).tokenizer_file == same
  for name in ("vocab_file", "spm_model_file"):
    refused(
      "%s .*%s" % (other, folder / "vocab.txt"), load, folder, **{name: other}
    )
  (folder / "vocab.txt").unlink()
  loaded = load(folder, vocab_file=other)
  assert loaded.create_tokenizer().tokenize("a b") == ["[UNK]", "b"]
  # New checkpoints get this vocabulary.
  assert loaded.contents()["vocab.txt"] == filesystem.read_bytes(other)


def test_what_a_folder_lacks(folder):
  refused("--bert_config_file .*from scratch", load, None)
  write(folder, "vocab.txt", *TOKENS, "b")
  refused("vocab.txt has 7 .*vocab_size 6", load(folder).create_tokenizer)
  (folder / "vocab.txt").unlink()
  refused("--vocab_file or --spm_model_file", load(folder).create_tokenizer)
  (folder / "config.json").unlink()
  refused("--bert_config_file .*%s" % folder, load, folder)


def test_case_is_that_of_the_model(folder):
  assert not load(folder).do_lower_case
  assert not load(folder, do_lower_case=False).do_lower_case
  refused(
    "--do_lower_case .*True.*%s .*False" % folder,
    load,
    folder,
    do_lower_case=True,
  )
  write(folder, "task.json", {})
  for given in (None, True, False):
    assert load(folder, do_lower_case=given).do_lower_case != (given is False)
  (folder / "task.json").unlink()
  assert load(folder).create_tokenizer().tokenize("A") == ["a"]


@pytest.mark.parametrize(
  "task, head",
  [
    ({"label_tokens": True, "labels": ["O"]}, "token_labels"),
    ({"label_tokens": False, "labels": ["0"]}, None),
    *(({"task_name": name}, "choices") for name in ("c3", "race", "chid")),
    ({"task_name": "lcqmc", "labels": ["0", "1"]}, None),
    ({"task_name": "c3", "head": "classifier"}, "classifier"),
  ],
)
def test_folders_of_earlier_versions(folder, task, head):
  write(folder, "task.json", task)
  loaded = load(folder)
  assert (loaded.head, loaded.labels, loaded.crf) == (
    head,
    task.get("labels"),
    None,
  )


def test_a_different_task_keeps_nothing_of_the_one_before():
  one, stays = (
    dict(task_name="lcqmc", head="classifier"),
    dict(init_checkpoint="albert_tiny", max_seq_length=64),
  )
  assert ModelFolder(
    CONFIG,
    None,
    task_name="cluener",
    head="token_labels",
    labels=["O"],
    crf=True,
    by_character=True,
    **stays,
  ).for_task(**one).task() == dict(one, **stays, do_lower_case=True)


def test_lengths():
  folder = ModelFolder(CONFIG, None, path="some/folder", max_seq_length=128)
  assert list(map(folder.length, (None, 64, 600))) == [128, 64, 512]
  assert dataclasses.replace(folder, max_seq_length=None).length() == 512
  folder.check_length(512)
  refused("513 .*512 .*some/folder", folder.check_length, 513)


def for_records(folder, path, made_with, **given):
  """`folder`: None to train from scratch."""
  if not folder:
    given["bert_config_file"] = write(path.parent, "new.json", CONFIG.to_dict())
  return model_folder.for_records(
    load(folder, **given),
    FolderSettings(**given),
    made_with,
    [str(path)],
    max_seq_length=48,
  )


@pytest.fixture
def records(tmp_path):
  """The path of records with their vocabulary next to them."""
  write(tmp_path / "records", "vocab.txt", *OTHER)
  return tmp_path / "records" / "train.tfrecord"


def test_the_vocabulary_of_records(folder, records, tmp_path, caplog):
  vocabulary = str(records.parent / "vocab.txt")
  made_with = {"vocab_file_sha256": filesystem.sha256(vocabulary)}
  for description in ({}, made_with):
    made = for_records(None, records, description)
    assert (made.tokenizer_file, made.max_seq_length) == (vocabulary, 48)
  elsewhere = tmp_path / "elsewhere.tfrecord"  # without one
  assert for_records(None, elsewhere, {}).tokenizer_file is None
  assert [str(elsewhere) in message for message in caplog.messages] == [True]
  # A checkpoint has its own vocabulary. Its fine-tuning task is dropped.
  own = str(folder / "vocab.txt")
  made = for_records(
    folder, records, {"vocab_file_sha256": filesystem.sha256(own)}
  )
  assert (made.tokenizer_file, made.path) == (own, str(folder))
  assert made.labels is None and made.head is None
  refused(
    "%s .*%s .*--vocab_file" % (own, records),
    for_records,
    folder,
    records,
    made_with,
  )
  refused(
    "vocab.txt .*--spm_model_file",
    for_records,
    folder,
    records,
    {"spm_model_file_sha256": "0"},
  )
  write(records.parent, "vocab.txt", *TOKENS)
  refused("vocab.txt is not", for_records, None, records, made_with)


def test_the_case_of_the_records_wins(folder, records):
  for case in (False, True):
    made_with = {"do_lower_case": case}
    for more in ({}, made_with):
      assert for_records(None, records, made_with, **more).do_lower_case == case
    refused(
      "do_lower_case %s.* %s" % (case, not case),
      for_records,
      None,
      records,
      made_with,
      do_lower_case=not case,
    )
  assert for_records(None, records, {}).do_lower_case
  refused(
    "train.tfrecord .*True.* False",
    for_records,
    folder,
    records,
    {"do_lower_case": True},
  )
  assert not for_records(folder, records, {}).do_lower_case
  # Released models do not record it.
  (folder / "task.json").unlink()
  assert not for_records(
    folder, records, {"do_lower_case": False}
  ).do_lower_case
