"""Readers of task files: what they read, and how they refuse."""

import pytest

import errors
import tasks
from tasks import InputExample


def read(tmp_path, name, split, content):
  (tmp_path / (split + ".tsv")).write_bytes(content.encode())
  return tasks.read_examples(tasks.get_task(name), str(tmp_path), split)


def test_pairs(tmp_path):
  content = "\ufeff甲\t乙\t1\r\n丙\"\t丁\t0\n"
  assert read(tmp_path, "LCQMC", "train", content) == [
      InputExample("甲", "乙", "1"), InputExample("丙\"", "丁", "0")]
  assert read(tmp_path, "lcqmc_pair", "test", "甲\t乙\n") == [
      InputExample("甲", "乙", None)]


def test_tsv_columns_are_named_by_the_header(tmp_path):
  assert read(tmp_path, "tsv", "train", "label\tid\ttext_a\nx\t1\t甲\n") == [
      InputExample("甲", None, "x")]
  assert read(tmp_path, "tsv", "test", "text_b\ttext_a\n乙\t甲\n") == [
      InputExample("甲", "乙", None)]


@pytest.mark.parametrize("name, content, message", [
    ("lcqmc", "甲\t乙\t1\n甲\t乙\n", r"train.tsv:2: expected 3 columns"),
    ("lcqmc", "甲\t \t1\n", r"train.tsv:1: a text is empty"),
    ("lcqmc", "\n", "train.tsv: has no examples"),
    ("tsv", "甲\t1\n", "train.tsv:1: the header must name"),
    ("tsv", "text_a\tlabel\n甲\t1\n乙\n", "train.tsv:3: expected 2 columns"),
    ("tsv", "", "train.tsv:1: the header must name"),
])
def test_broken_files_are_named_by_line(tmp_path, name, content, message):
  with pytest.raises(errors.InputError, match=message):
    read(tmp_path, name, "train", content)


def test_not_utf8(tmp_path):
  (tmp_path / "train.tsv").write_bytes("甲\t乙\t1\n".encode("gbk"))
  with pytest.raises(errors.InputError, match="train.tsv:1: not UTF-8"):
    tasks.read_examples(tasks.get_task("lcqmc"), str(tmp_path), "train")


def test_unknown_task_missing_file_unknown_label(tmp_path):
  with pytest.raises(errors.InputError, match="unknown task 'x'.*lcqmc.*tsv"):
    tasks.get_task("x")
  with pytest.raises(errors.InputError, match="dev.txt or .*dev.tsv in place"):
    tasks.read_examples(tasks.get_task("lcqmc"), str(tmp_path), "dev")
  examples = [InputExample("甲", None, "b"), InputExample("甲", None, None)]
  assert tasks.label_ids(examples, ["a", "b"], "dev") == [1, 0]
  with pytest.raises(errors.InputError, match="dev: unknown label 'b' of '甲'"):
    tasks.label_ids(examples, ["a"], "dev")
